"""llm-d's run.sh: for each method, model and treatment, launcher pods in a cluster measure an endpoint. Their runs are
collected into the store; only the claim with the results stays in the cluster."""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from lightkube.resources.core_v1 import PersistentVolumeClaim, Pod

from inferometer.conduct.startup import startup_from_log
from inferometer.conduct.treatments import (
    PROFILES,
    Treatment,
    TreatmentRequest,
    claim_of,
    launcher_of,
    plan_text,
    pod_settings,
    treatments_of,
)
from inferometer.conduct.worker import STORE, Work, plan_key, read_work, results_folder
from inferometer.documents.document import JsonValue
from inferometer.errors import InferometerError, LostError, PlanError, StoreError
from inferometer.exchange.exporting import write
from inferometer.record.files import translated_errors, write_text
from inferometer.record.run import Run
from inferometer.scale.kubernetes.client import Cluster
from inferometer.scale.kubernetes.collecting import collect
from inferometer.scale.kubernetes.endpoints import models_at, models_path
from inferometer.scale.kubernetes.launcher import Launcher, is_over
from inferometer.scale.kubernetes.manifests import RUN, label_value, launch_of, uses_claim
from inferometer.scale.kubernetes.settings import NOP, RunSettings
from inferometer.scale.kubernetes.stack_watch import StackWatch, observability, processed
from inferometer.store.experiments import (
    CaseRow,
    ExperimentFolder,
    KeptExperiment,
    PlannedCase,
    SweepDefinition,
    SweepResult,
    case_row,
    new_experiment,
    rows_of,
)
from inferometer.store.folder import load_run
from inferometer.store.objects import Objects, is_object_store, upload_files
from inferometer.store.shapes import ExperimentCase
from inferometer.store.store import Place as StorePlace
from inferometer.store.store import Store, open_store
from inferometer.vocabulary import duration_text

Notes = Callable[[str], None]
Line = Callable[[str], None]


@dataclass
class Launched:
    """Result of the treatments."""

    experiment: KeptExperiment
    rows: list[CaseRow]
    runs: list[Run]
    output: Path
    left: list[str] = field(default_factory=list)  # launchers that were not waited for


@dataclass(frozen=True)
class _Tried:
    works: list[Work]
    trouble: str  # why a pod failed
    interrupted: KeyboardInterrupt | None


# -- the run ---------------------------------------------------------------------------------------------------------


def run_on_cluster(
    cluster: Cluster,
    request: TreatmentRequest,
    *,
    store: StorePlace = None,
    notes: Notes | None = None,
    line: Line | None = None,
    on_case: Callable[[CaseRow], None] = lambda _row: None,
) -> Launched:
    """Runs every treatment in turn. A treatment whose results are already here is skipped; with `skip` nothing is
    started, and only the contents of the claim are collected."""
    return _Session(cluster, request, open_store(store), notes or (lambda _text: None), line, on_case).run()


class _Session:
    def __init__(
        self,
        cluster: Cluster,
        request: TreatmentRequest,
        store: Store,
        notify: Notes,
        line: Line | None,
        on_case: Callable[[CaseRow], None],
    ) -> None:
        self.cluster, self.request, self.settings, self.store = cluster, request, request.settings, store
        self._notify, self._line, self._on_case = notify, line, on_case
        self.output = _output_folder(self.settings, store)
        self.runs: list[Run] = []
        self.left: list[str] = []
        self._failed: list[str] = []  # failed cases
        self._claim_is_new = False
        self._served: dict[str, list[str]] = {}  # models, by the endpoint's address

    def run(self) -> Launched:
        treatments = treatments_of(self.request, self.cluster, self._notify)
        _check_output(self.settings.output)
        sends = self.settings.harness != NOP and not self.settings.skip
        if sends and self.settings.is_unattended and len(treatments) > 1:
            text = (
                f"--wait 0: {len(treatments)} treatments would run at the same time, because the command does not wait"
            )
            raise PlanError(text, "start them one by one, or let the command wait for them")
        try:
            if self.settings.skip and self.settings.harness != NOP:
                self._check_claim()
            return self._measured(treatments)
        finally:
            if self._claim_is_new and not self.left and not self.settings.debug:
                self._unmake_claim()

    def _measured(self, treatments: Sequence[Treatment]) -> Launched:
        folder = new_experiment(self.store.home, "sweep", f"k8s {self.settings.id}", self._definition(treatments))
        for treatment in treatments:
            if self.settings.stop_on_error and self._failed:
                self._notify(f"{treatment.title}: not done, because {self._failed[-1]} failed")
                continue
            if self.settings.harness == NOP:
                self._read_starts(treatment, folder)
            else:
                self._do(treatment, folder)
        if not self.left:
            folder.finish(SweepResult(cases={"complete": len(self.runs)}))
        kept = folder.load()
        rows = rows_of(kept, self.store)
        self._write_table(rows)
        self._upload()
        return Launched(kept, rows, self.runs, self.output, self.left)

    def _definition(self, treatments: Sequence[Treatment]) -> SweepDefinition:
        cases = [
            PlannedCase(name=one.title, label=one.title, key=one.title, parameters=dict(one.parameters))
            for one in treatments
        ]
        return SweepDefinition(
            file=self.settings.experiment, experiment={"name": f"k8s {self.settings.id}"}, cases=cases
        )

    def _has_claim(self) -> bool:
        claim = self.cluster.read(PersistentVolumeClaim, self.settings.claim, self.settings.harness_namespace)
        return claim is not None

    def _check_claim(self) -> None:
        if not self._has_claim():
            namespace = self.settings.harness_namespace
            text = f"namespace {namespace} has no persistent volume claim {self.settings.claim} to collect from"
            raise StoreError(text, f"--pvc NAME; {self.cluster.kubectl('get pvc', namespace)}")

    def _make_claim(self) -> None:
        """Created only when something is to be measured: an empty claim would be left behind."""
        if not self._claim_is_new and not self._has_claim():
            self._claim_is_new = True
            self.cluster.apply(claim_of(self.settings))
            self._notify(f"created the persistent volume claim {self.settings.claim} with {self.settings.claim_size}")

    def _unmake_claim(self) -> None:
        """Removes a claim of ours that never got a volume, unless something else waits for it by now."""
        name, namespace = self.settings.claim, self.settings.harness_namespace
        with suppress(InferometerError):  # the earlier error is the one to report
            claim = self.cluster.read(PersistentVolumeClaim, name, namespace)
            if claim is None or not claim.status or claim.status.phase != "Pending":
                return
            if not any(uses_claim(pod, name) and not is_over(pod) for pod in self.cluster.all(Pod, namespace)):
                self.cluster.delete(PersistentVolumeClaim, name, namespace)

    # -- one treatment -----------------------------------------------------------------------------------------------

    def _do(self, treatment: Treatment, folder: ExperimentFolder) -> None:
        began = time.monotonic()
        works = self._collected(treatment)
        if works and all(work.state == "complete" for work in works):
            self._notify(f"{treatment.title}: its results are already here; skipped")
            self._keep(treatment, works, folder, began, "")
            return
        if not self.settings.skip and (refusal := self._not_served(treatment)):
            self._keep(treatment, works, folder, began, refusal)
            return
        if self.settings.skip:
            works = self._collect(treatment, self._launcher(treatment))
            if not works:
                text = f"{self.settings.claim}: no results {treatment.suffix(self.settings)}"
                raise StoreError(
                    text, "name the experiment: --id ID, and the same method, model, harness and treatments"
                )
            self._keep(treatment, works, folder, began, "")
            return
        self._make_claim()
        for attempt in range(self.settings.attempts):
            tried = self._try(treatment, works)
            if self.left or self.settings.debug:
                return
            works, again = tried.works, f"attempt {attempt + 2} of {self.settings.attempts}"
            if tried.interrupted or not tried.trouble or attempt + 1 == self.settings.attempts:
                break
            self._notify(f"{treatment.title}: {tried.trouble}; {again}")
        self._keep(treatment, works, folder, began, tried.trouble)
        if tried.interrupted is not None:
            raise tried.interrupted

    def _launcher(self, treatment: Treatment) -> Launcher:
        return launcher_of(self.cluster, self.settings, treatment, launch_of(self.settings.id))

    def _try(self, treatment: Treatment, works: list[Work]) -> "_Tried":
        """Runs launcher pods once and collects their results; `works` is what existed before."""
        launcher = self._launcher(treatment)
        trouble, interrupted = "", None
        try:
            trouble = self._launch(treatment, launcher)
        except KeyboardInterrupt as signal:
            interrupted = signal
            if not launcher.has_begun:  # the volume that a collector needs may never exist
                self._notify("interrupted before a pod ran: there is nothing to collect")
                raise
            self._notify("interrupted: the pods have ended, collecting their results; interrupt again to stop now")
        except LostError as error:
            trouble = error.message
            after = "; results so far were collected" if launcher.has_begun else ""
            self._notify(f"{treatment.title}: {error.message}{after}")
        if self.left or self.settings.debug or (trouble and not launcher.has_begun):
            return _Tried(works, trouble, interrupted)
        works = self._collect_in_trouble(treatment, launcher) if trouble else self._collect(treatment, launcher)
        return _Tried(works, trouble, interrupted)

    def _not_served(self, treatment: Treatment) -> str:
        """Why the endpoint cannot be measured, as far as known from here; the pods query it again."""
        endpoint, model = treatment.endpoint, treatment.plan.target.model
        if endpoint.url not in self._served:
            self._served[endpoint.url] = models_at(self.cluster, endpoint)
        served = self._served[endpoint.url]
        if not served or model is None or model in served:
            return ""
        shown = self.cluster.kubectl(f"get --raw {models_path(endpoint)}")
        return f"{endpoint.url} does not serve the model {model!r}; it serves {', '.join(served)} (-m NAME): {shown}"

    def _read_starts(self, treatment: Treatment, folder: ExperimentFolder) -> None:
        """For llm-d's harness nop: stores the start of each of the stack's pods, from its log, as a run."""
        endpoint = treatment.endpoint
        if not endpoint.pods:
            text = "-l nop reads the logs of the stack's pods, which are not known for a URL"
            raise PlanError(text, "name the stack: -p NAMESPACE -t METHOD")
        with self._stack_watched(treatment):
            logs = {pod: self._log_of(pod, treatment) for pod in endpoint.pods}
        results = self.output / "results" / treatment.suffix(self.settings)
        for number, (pod, log) in enumerate(logs.items(), 1):
            began = time.monotonic()
            try:
                made, error = startup_from_log(log, store=self.store, notes=self._notify), None
                self._write_reports(made, results, results)
            except InferometerError as problem:
                shown = self.cluster.kubectl(f"logs {pod}", endpoint.namespace)
                made, error = None, f"{problem.message}: {shown}"
            self._add_case(folder, treatment, f"{treatment.title} {pod}", number, made, error, began)

    def _log_of(self, pod: str, treatment: Treatment) -> Path:
        file = self.output / "logs" / f"{treatment.suffix(self.settings)}_{pod}.log"
        with translated_errors(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("w") as log:
                log.writelines(f"{line}\n" for line in self.cluster.log(pod, treatment.endpoint.namespace))
        return file

    def _launch(self, treatment: Treatment, launcher: Launcher) -> str:
        """Why a pod failed, or an empty text. The Job is removed in any case."""
        settings = self.settings
        tail = _Tail(self._line, settings.pods, self.output / "logs" / f"{treatment.suffix(settings)}.log")
        stays = settings.debug or settings.is_unattended
        try:
            launcher.create()
            count = "1 launcher pod measures" if settings.pods == 1 else f"{settings.pods} launcher pods measure"
            self._notify(f"{treatment.title}: {count} {treatment.endpoint.url}")
            if stays:
                self._leave(treatment, launcher)
                return ""
            with self._stack_watched(treatment):
                launcher.wait(settings.start_s, settings.wait_s, self._notify, tail)
        except BaseException:
            self._remove_in_trouble(launcher)
            raise
        finally:
            tail.close()
        launcher.remove()
        lost = [pod for pod in launcher.pods if pod.state in ("failed", "lost")]
        return "; ".join(dict.fromkeys(tail.error_of(pod.number) or pod.why for pod in lost))

    def _remove_in_trouble(self, launcher: Launcher) -> None:
        """The earlier error is the one to report. After another interrupt, removal is no longer waited for."""
        try:
            try:
                launcher.remove()
            except KeyboardInterrupt:
                launcher.remove(wait_s=0.0)
                raise
        except InferometerError as error:
            ends = duration_text(self.settings.deadline_s + self.settings.keep_s)
            self._notify(
                f"Job {launcher.name} could not be removed; it ends and is deleted within {ends}: {error.message}"
            )

    def _leave(self, treatment: Treatment, launcher: Launcher) -> None:
        """Prints how to continue by hand if pods are not waited for."""
        settings, namespace = self.settings, self.settings.harness_namespace
        pods = f"-l {RUN}={label_value(launcher.place.run)}"
        self.left.append(launcher.name)
        if settings.debug:
            pod = f"$({self.cluster.kubectl(f'get pod {pods} -o name', namespace)} | head -1)"
            self._notify(f"enter the pod: {self.cluster.kubectl(f'exec -it {pod} -- bash', namespace)}")
            results = f"{settings.results.rstrip('/')}/by-hand"
            plan = f"{PROFILES}/{settings.harness}/plan.yaml"
            self._notify(f"measure in it: inferometer worker --plan {plan} --results {results}")
            self._notify(f"end it: inferometer k8s clean --id {launcher.place.run} -p {namespace} --running")
            return
        if launcher.denied:
            self._notify(f"the pods do not watch the stack: {launcher.denied}; inferometer k8s rights --unattended")
        self._notify(f"not waited for: {self.cluster.kubectl(f'logs -f {pods}', namespace)}")
        self._notify(f"when it has ended, collect the results: the same command with --id {settings.id} --skip")

    @contextmanager
    def _stack_watched(self, treatment: Treatment) -> Iterator[None]:
        """Collects what the cluster knows of the stack; not if only its address was given."""
        if treatment.endpoint.kind == "url":
            with nullcontext():
                yield
            return
        with StackWatch(self.cluster, treatment.endpoint.namespace) as watch:
            yield
        if watch.trouble:
            how = "was watched only in part" if watch.replicas or watch.starts else "could not be watched"
            self._notify(f"the stack {how}: {watch.trouble}")
        watch.write(processed(self.output / "results" / treatment.suffix(self.settings)))

    # -- results -----------------------------------------------------------------------------------------------------

    def _collect(self, treatment: Treatment, launcher: Launcher) -> list[Work]:
        settings = self.settings
        where = f"{settings.results.rstrip('/')}/{treatment.suffix(settings)}"
        into = self.output / "results"
        with translated_errors(into):
            into.mkdir(parents=True, exist_ok=True)
        pod = pod_settings(settings, treatment, launcher.place.run, "", "")
        pod = msgspec.structs.replace(pod, config_maps={}, service_account=None)
        collect(self.cluster, launcher.place, pod, where, into, settings.start_s, self._notify)
        return self._collected(treatment)

    def _collect_in_trouble(self, treatment: Treatment, launcher: Launcher) -> list[Work]:
        """The earlier error is the one to report."""
        try:
            return self._collect(treatment, launcher)
        except InferometerError as error:
            self._notify(f"{treatment.title}: the results could not be collected: {error.message}")
            return self._collected(treatment)

    def _collected(self, treatment: Treatment) -> list[Work]:
        """The local results of a treatment's pods."""
        key = plan_key(plan_text(treatment.plan))
        works = []
        for folder in self._folders(treatment):
            work = read_work(folder)
            if work is not None and work.key != key and treatment.endpoint.kind != "mock":
                claim = self.cluster.kubectl(f"describe pvc {self.settings.claim}", self.settings.harness_namespace)
                hint = f"use another id: --id, LLMDBENCH_RUN_EXPERIMENT_ID; to see who else uses the claim: {claim}"
                raise StoreError(f"{folder}: contains results of another plan", hint)
            works += [work] if work is not None else []
        return works

    def _folders(self, treatment: Treatment) -> list[Path]:
        base = self.output / "results" / treatment.suffix(self.settings)
        return [results_folder(base, index, self.settings.pods) for index in range(self.settings.pods)]

    def _keep(
        self, treatment: Treatment, works: Sequence[Work], folder: ExperimentFolder, began: float, trouble: str
    ) -> None:
        """Stores each pod's run as a case of the experiment; a pod without one is a failed case."""
        for index, results in enumerate(self._folders(treatment)):
            work = next((one for one in works if one.index == index), None)
            made = self._imported(results, self.output / "results" / treatment.suffix(self.settings))
            name = treatment.title if self.settings.pods == 1 else f"{treatment.title} #{index + 1}"
            error = None if made else (work.error if work and work.error else trouble or "the pod left no run")
            self._add_case(folder, treatment, name, index + 1, made, error, began)

    def _add_case(
        self,
        folder: ExperimentFolder,
        treatment: Treatment,
        name: str,
        repeat: int,
        made: Run | None,
        error: str | None,
        began: float,
    ) -> None:
        case = ExperimentCase(
            name=name,
            label=treatment.title,
            repeat=repeat,
            parameters=dict(treatment.parameters),
            key=name,
            run=made.id if made else None,
            state=made.state if made else "failed",
            error=error,
            wall_s=time.monotonic() - began,
        )
        folder.add(case)
        if case.state == "failed":
            self._failed.append(name)
        if made is not None:
            self.store.set_case(made.id, folder.id, name)
            self.runs.append(made)
        self._on_case(case_row(case, made))

    def _imported(self, results: Path, base: Path) -> Run | None:
        """Stores the newest run of a pod, and writes its reports next to its results. `base` is the folder of all pods,
        which contains the observations of the stack."""
        folders = sorted((results / STORE / "runs").glob("*-*")) if (results / STORE).is_dir() else []
        made = None
        for folder in folders:
            made = self._adopted(folder)
            self._write_reports(made, results, base)
        return made

    def _write_reports(self, made: Run, results: Path, base: Path) -> None:
        """With llm-d's file names; a run without enough data for a report, such as a failed one, has none."""
        for name, version in (("llm-d-v0.1", ""), ("llm-d", "_v0.2")):
            file = results / f"benchmark_report{version},_{made.id}.yaml"
            try:
                write(name, [made], file)
                if version and (seen := observability(processed(base))):
                    _add_observability(file, seen)
            except StoreError as error:
                self._notify(f"no benchmark report{version.replace('_', ' ')}: {error.message}")

    def _adopted(self, folder: Path) -> Run:
        place = self.store.home / "runs" / folder.name
        if not place.exists():
            draft = place.with_name(f".new-{folder.name}")
            with translated_errors(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copytree(folder, draft, dirs_exist_ok=True)
                draft.replace(place)
        return self.store.add(load_run(place))

    def _upload(self) -> None:
        """Uploads to an object store, if requested; the local copy stays."""
        if self.settings.output and is_object_store(self.settings.output):
            place = f"{self.settings.output.rstrip('/')}/{self.settings.id}"
            count = upload_files(self.output, place)
            self._notify(f"{count} files are at {place}")

    def _write_table(self, rows: Sequence[CaseRow]) -> None:
        from inferometer.show.experiment import csv_text

        if rows:
            folder = self.output / "analysis" / "cross-treatment-comparison"
            with translated_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / "treatment_comparison.csv", csv_text(rows))


def _add_observability(file: Path, seen: dict[str, JsonValue]) -> None:
    """Adds what the cluster knows of the stack: it is not part of the run, but the report has a field for it."""
    import yaml

    with translated_errors(file):
        report = yaml.safe_load(file.read_text())
        report["results"]["observability"] = seen
        write_text(file, yaml.safe_dump(report, sort_keys=False, allow_unicode=True))


def _check_output(place: str | None) -> None:
    """Checks, before hours of load, that the address is of a known kind and the bucket is writable."""
    if not place or "://" not in place:
        return
    if not is_object_store(place):
        raise PlanError(f"--output must be a folder, s3://... or gs://..., got {place}")
    Objects(place).check_writable()


def _output_folder(settings: RunSettings, store: Store) -> Path:
    if settings.output and "://" not in settings.output:
        return Path(settings.output).expanduser()
    return store.home / "kubernetes" / settings.id


class _Tail:
    """The output of the pods: forwarded to the user and into a file, with the last error of each."""

    def __init__(self, line: Line | None, pods: int, file: Path) -> None:
        self._line, self._pods = line, pods
        with translated_errors(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            self._file = file.open("a")
        self._errors: dict[int, str] = {}

    def __call__(self, number: int, text: str) -> None:
        prefix = f"[{number + 1}] " if self._pods > 1 else ""
        if not self._file.closed:
            self._file.write(f"{prefix}{text}\n")
        if text.startswith("error: "):
            self._errors[number] = text.removeprefix("error: ")
        if self._line is not None:
            self._line(prefix + text)

    def error_of(self, number: int) -> str | None:
        return self._errors.get(number)

    def close(self) -> None:
        self._file.close()
