"""What `k8s run` measures: every combination of method, model and treatment, as plans for endpoints of the cluster,
and the manifests of their launcher pods."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from lightkube.resources.core_v1 import PersistentVolumeClaim

from inferometer.conduct.harness import rendered_for
from inferometer.errors import PlanError, TargetError
from inferometer.exchange.harness import BUILT_IN, HARNESSES, checked_name, harness_named, tool_container
from inferometer.plan.cases import cases_of
from inferometer.plan.experiment import experiment_from
from inferometer.plan.foreign import llmd
from inferometer.plan.foreign.recognise import open_experiment
from inferometer.plan.model import Plan
from inferometer.plan.opening import open_plan
from inferometer.plan.reading import plan_from
from inferometer.plan.redactor import REDACTED
from inferometer.plan.text import to_yaml
from inferometer.scale.kubernetes import manifests
from inferometer.scale.kubernetes.client import Cluster
from inferometer.scale.kubernetes.collecting import WITHIN_S
from inferometer.scale.kubernetes.endpoints import MODELSERVICE, STANDALONE, ClusterEndpoint, endpoint_of, model_id_of
from inferometer.scale.kubernetes.launcher import Launcher, LauncherObjects
from inferometer.scale.kubernetes.manifests import (
    WATCHING,
    JobSettings,
    Manifest,
    ObjectPlace,
    PodSettings,
    ToolContainerSettings,
    label_value,
    object_name,
)
from inferometer.scale.kubernetes.settings import NOP, PREFIX, RunSettings
from inferometer.scale.remote import needed_variables

PROFILES = "/workspace/profiles"
MOCK = "http://mock:1234"  # llm-d's, for a dry run without an endpoint
WATCHER_CPU, WATCHER_MEMORY = "1", "2Gi"  # of our container, where another one sends the load
WAITING = ["sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"]  # until it is removed: then it ends at once
LARGEST_PLAN = 900_000  # bytes; a ConfigMap takes 1 MiB
Notes = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TreatmentRequest:
    """The settings of a command line other than llm-d's: a plan of ours, and changes to it."""

    settings: RunSettings
    plan_args: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    model_given: bool = False

    @property
    def names_models(self) -> bool:
        """Whether the models come from an option or a variable, and not from llm-d's default."""
        return self.model_given or f"{PREFIX}DEPLOY_MODEL_LIST" in self.settings.variables

    @property
    def sender(self) -> str:
        """What sends the load: `inferometer`, or a harness."""
        return self.settings.harness if self.settings.generator == "harness" else "inferometer"


@dataclass(frozen=True, slots=True)
class Treatment:
    """One plan for one endpoint."""

    name: str  # empty if there is only one
    plan: Plan
    parameters: Mapping[str, Any]
    endpoint: ClusterEndpoint
    method: str
    model: str  # empty if the server should report which model it serves
    stack: str

    def suffix(self, settings: RunSettings) -> str:
        """The folder of its results, with llm-d's name."""
        part = f"-{_file_name(self.name)}" if self.name else ""
        return f"{settings.harness}_{settings.id}{part}_{self.stack}"

    @property
    def title(self) -> str:
        return " ".join(part for part in (self.stack, self.name) if part)


# -- plans ------------------------------------------------------------------------------------------------------------


def treatments_of(request: TreatmentRequest, cluster: Cluster | None, notes: Notes) -> list[Treatment]:
    """Every method with every model and every treatment. Without a cluster the endpoint is only a name."""
    treatments: list[Treatment] = []
    settings = request.settings
    checked_name(settings.harness)
    own = model_of_ours(request)
    models = settings.models if own is None else [own]
    for method in settings.methods[:1] if settings.url else settings.methods:
        stacks = stack_names("endpoint" if settings.url else method, models)
        for model in models:
            endpoint = _endpoint(settings, cluster, method, model, notes)
            named = model if request.names_models or method in (STANDALONE, MODELSERVICE) else None
            cases = _cases(request, model, endpoint.url, notes)
            if request.sender not in BUILT_IN:
                cases = [one for case in cases for one in _rates_of(*case)]
            for name, plan, parameters in cases:
                many = {"model": model} if len(models) > 1 else {}
                many |= {"method": method} if len(settings.methods) > 1 else {}
                if request.sender not in BUILT_IN:
                    rendered_for(plan, request.sender)  # reports first if the tool cannot run the plan
                treatments.append(
                    Treatment(
                        name=name if len(cases) > 1 else "",
                        plan=_aimed(plan, endpoint, named, is_ours=own is not None),
                        parameters={**many, **parameters},
                        endpoint=endpoint,
                        method=method,
                        model=model,
                        stack=stacks[model],
                    )
                )
    return treatments


def model_of_ours(request: TreatmentRequest) -> str | None:
    """The model in a plan or experiment of ours, if no option or variable sets one; empty if it names none, or several.
    `None` if llm-d's models apply."""
    settings = request.settings
    if request.names_models or settings.harness == NOP or not (settings.experiment or request.plan_args):
        return None
    aim, environ = (f"target.url={MOCK}", *request.sets), {**os.environ, **settings.variables}
    if settings.experiment:
        opened = open_experiment(settings.experiment, aim, environ=environ, changes=settings.overrides)
        if opened.tool is not None:
            return None
        plans = [case.plan for case in cases_of(opened.experiment, settings.experiment)]
    else:
        plan = open_plan(request.plan_args, aim, changes=settings.overrides, environ=environ)
        if plan.tool is not None:
            return None
        plans = [plan.plan]
    models = {plan.target.model or "" for plan in plans if isinstance(plan, Plan)}
    return models.pop() if len(models) == 1 else ""


def _endpoint(settings: RunSettings, cluster: Cluster | None, method: str, model: str, notes: Notes) -> ClusterEndpoint:
    if settings.url:
        return ClusterEndpoint(kind="url", name="", namespace=settings.namespace, url=settings.url)
    mock = ClusterEndpoint(kind="mock", name="mock", namespace=settings.namespace, url=MOCK)
    if cluster is None:
        return mock
    try:
        return endpoint_of(cluster, settings.namespace, method, model_id_of(model), settings.release)
    except TargetError as error:
        if settings.skip:  # the results outlive the stack
            notes(f"{error.message}; results are found by name, regardless of the plan")
            return mock
        if not settings.dry_run:
            raise
        notes(f"{error.message}; the manifests contain {MOCK} instead")
        return mock


def _cases(request: TreatmentRequest, model: str, url: str, notes: Notes) -> list[tuple[str, Plan, Mapping[str, Any]]]:
    settings, aim = request.settings, (f"target.url={url}", *request.sets)
    environ = {**os.environ, **settings.variables}
    environ |= {
        "LLMDBENCH_DEPLOY_CURRENT_MODEL": model,
        "LLMDBENCH_DEPLOY_MODEL_LIST": model,
        "LLMDBENCH_HARNESS_STACK_ENDPOINT_URL": url,
        "LLMDBENCH_HARNESS_NAME": settings.harness,
        "LLMDBENCH_HARNESS_EXPERIMENT_PROFILE": settings.profile,
    }
    environ.pop("LLMDBENCH_HARNESS_EXPERIMENT_PROFILE_OVERRIDES", None)  # they are already in the settings
    if settings.harness == NOP:
        return [("", plan_from({}, aim, NOP), {})]
    if settings.experiment:
        opened = open_experiment(settings.experiment, aim, environ=environ, changes=settings.overrides)
        _send_notes(opened.notes, notes)
        return [(case.name, case.plan, case.parameters) for case in cases_of(opened.experiment, settings.experiment)]
    if request.plan_args:
        plan = open_plan(request.plan_args, aim, changes=settings.overrides, environ=environ)
        _send_notes(plan.notes, notes)
        return [("", plan.plan, {})]
    arguments = ["-l", settings.harness, "-w", settings.profile, "-m", model]
    foreign = llmd.from_argv(
        [*arguments, *(argument for text in settings.overrides for argument in ("-o", text))], environ
    )
    _send_notes(foreign.notes, notes)
    if not foreign.is_experiment:
        return [("", plan_from(foreign.plan, aim, settings.profile), {})]
    cases = cases_of(experiment_from(foreign.experiment, aim, settings.profile), settings.profile)
    return [(case.name, case.plan, case.parameters) for case in cases]


def _rates_of(name: str, plan: Any, parameters: Mapping[str, Any]) -> list[tuple[str, Any, Mapping[str, Any]]]:
    """One case for each stage of a plan, because other tools send one rate per result; the plan itself if its stages
    are not plain rates."""
    stages = plan.load.stages if isinstance(plan, Plan) and plan.load.type == "stages" else []
    if not stages or any(not stage.rate or stage.to is not None or stage.process == "gamma" for stage in stages):
        return [(name, plan, parameters)]
    cases: list[tuple[str, Any, Mapping[str, Any]]] = []
    for stage in stages:
        load = plan.load.model_copy(update={"type": stage.process, "rate": stage.rate, "stages": []})
        stop = plan.stop.model_copy(update={"duration": stage.duration})
        named = " ".join(filter(None, (name, f"rate={stage.rate:g}")))
        one = plan.model_copy(update={"load": load, "stop": stop})
        cases.append((named, one, {**parameters, "load.rate": stage.rate}))
    return cases


def _send_notes(texts: Sequence[str], notes: Notes) -> None:
    for text in texts:
        notes(text)


def _aimed(plan: Any, endpoint: ClusterEndpoint, named: str | None, *, is_ours: bool) -> Plan:
    if not isinstance(plan, Plan):
        raise PlanError("k8s run measures a server: offline cases and benchmarks cannot run in a launcher pod")
    model = plan.target.model if is_ours else named
    target: dict[str, Any] = {"url": [endpoint.url]}
    target |= {"model": model} if model else {"model": None} if endpoint.kind in ("pod", "service") else {}
    changes: dict[str, Any] = {"target": plan.target.model_copy(update=target), "server": None, "place": "local"}
    watched = [*endpoint.metrics, *endpoint.picker_metrics]
    if watched and plan.observe.metrics == "auto":
        changes["observe"] = plan.observe.model_copy(update={"metrics": watched})
    return plan.model_copy(update=changes)


def stack_names(method: str, models: Sequence[str]) -> dict[str, str]:
    """By model; two of the same size and type keep their whole names, because results are found by these."""
    names = {model: stack_name(method, model) for model in models}
    taken = list(names.values())
    return {
        model: name if taken.count(name) == 1 else _file_name(f"{_method_name(method)}-{model}".lower())
        for model, name in names.items()
    }


def _method_name(method: str) -> str:
    return "llm-d" if method == MODELSERVICE else method


def stack_name(method: str, model: str) -> str:
    """llm-d's `<method>-<parameters>-<model type>`: standalone-1b-instruct; modelservice is called llm-d there. Only
    the method if the model is unknown."""
    if not model:
        return _file_name(_method_name(method).lower())
    parts = model.rpartition("/")[2].lower().replace("qwen", "qwen-").split("-")
    kind = next((part for part in parts if re.search(r"nstruct|hf|chat|speech|vision|opt", part)), "base")
    sized = next((part for part in parts if re.fullmatch(r"[a-z]?\d[\d.x]*[bm]", part)), None)
    size = re.sub(r"^[a-z]", "", sized).replace(".", "p") if sized else "-".join(parts)
    return _file_name("-".join([_method_name(method), size, kind]).lower())


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.")


def longest_s(settings: RunSettings, count: int) -> float:
    """The maximum duration of this many treatments, one after the other, including the time to collect their
    results."""
    return count * (settings.deadline_s + settings.start_s + WITHIN_S)


# -- manifests -------------------------------------------------------------------------------------------------------


def launcher_of(cluster: Cluster | None, settings: RunSettings, treatment: Treatment, launch: str) -> Launcher:
    """The pods of a treatment, not yet created."""
    text = plan_text(treatment.plan)
    app = f"llmdbench-{settings.harness}-launcher"
    profiles, account = (
        object_name(f"{settings.harness}-profiles", launch),
        object_name(f"{settings.harness}-runner", launch),
    )
    held = {name: value for name, value in needed_variables(treatment.plan).items() if value}
    held |= _passed(settings.passed)
    held |= {"HF_TOKEN": settings.token} if settings.token else {}
    secret = object_name("inferometer-token", launch)
    pod = pod_settings(settings, treatment, launch, profiles, settings.service_account or account)
    pod = msgspec.structs.replace(pod, secret_environment={name: (secret, name) for name in held})
    both = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
    if settings.token:
        pod = msgspec.structs.replace(
            pod, secret_environment={**pod.secret_environment, **dict.fromkeys(both, (secret, "HF_TOKEN"))}
        )
    elif "HF_TOKEN" not in held:
        of_llmd = (settings.token_secret, settings.token_key)
        pod = msgspec.structs.replace(pod, optional_secrets=dict.fromkeys(both, of_llmd))
    objects = LauncherObjects(
        config_maps={profiles: {"plan.yaml": text}},
        secrets={secret: held} if held else {},
        service_account=None if settings.service_account else account,
        rules=WATCHING if _watched_by_pods(settings, treatment) else (),
    )
    place = ObjectPlace(settings.harness_namespace, launch)
    job = JobSettings(pods=settings.pods, deadline_s=settings.deadline_s, keep_s=settings.keep_s)
    return Launcher(cluster, place, object_name(app, launch), pod, job, objects, {"app": label_value(app)})


def pod_settings(settings: RunSettings, treatment: Treatment, launch: str, profiles: str, account: str) -> PodSettings:
    results = f"{settings.results.rstrip('/')}/{treatment.suffix(settings)}"
    folder = f"{PROFILES}/{settings.harness}"
    command = ["inferometer", "worker", "--plan", f"{folder}/plan.yaml", "--results", results]
    command += ["--harness", settings.harness] if settings.generator == "harness" else []
    tool = _tool_container(settings)
    watching = _watched_by_pods(settings, treatment)
    command += ["--watch-stack", settings.namespace] if watching else []
    return PodSettings(
        image=settings.image,
        command=WAITING if settings.debug else [*command, "--pods", str(settings.pods)],
        cpu=settings.cpu if tool is None or settings.cpu is None else WATCHER_CPU,
        memory=settings.memory if tool is None or settings.memory is None else WATCHER_MEMORY,
        environment={
            **({} if tool is None else {**tool.environment, tool_container.IMAGE_ENV: tool.image}),
            "INFEROMETER_LAUNCH": launch,
            "INFEROMETER_CALIBRATION": f"{settings.results.rstrip('/')}/.inferometer",  # once per kind of node
            "HOME": "/tmp",
            "LLMDBENCH_RUN_EXPERIMENT_LAUNCHER": "1",
            "LLMDBENCH_RUN_EXPERIMENT_ID": settings.id,
            "LLMDBENCH_RUN_EXPERIMENT_RESULTS_DIR": results,
            "LLMDBENCH_RUN_EXPERIMENT_HARNESS_WORKLOAD_NAME": settings.profile,
            "LLMDBENCH_HARNESS_NAME": settings.harness,
            "LLMDBENCH_HARNESS_NAMESPACE": settings.harness_namespace,
            "LLMDBENCH_HARNESS_STACK_TYPE": treatment.endpoint.stack_type,
            "LLMDBENCH_HARNESS_STACK_ENDPOINT_URL": treatment.endpoint.url,
            "LLMDBENCH_HARNESS_STACK_NAME": treatment.stack,
            "LLMDBENCH_DEPLOY_METHODS": treatment.method,
            "LLMDBENCH_DEPLOY_CURRENT_MODEL": treatment.model,
            "LLMDBENCH_MAGIC_ENVAR": "harness_pod",
        },
        pod_fields={"INFEROMETER_POD": "metadata.name", "INFEROMETER_NODE": "spec.nodeName"},
        claims={settings.results: settings.claim},
        config_maps={folder: profiles},
        service_account=account,
        mount_token=watching,
        pull_policy=settings.pull_policy,
        node_selector=settings.node_selector,
        group=settings.group,
        tool=tool,
    )


def _tool_container(settings: RunSettings) -> ToolContainerSettings | None:
    """For a tool that exists only as an image; the launcher's CPUs and memory are for it, and we watch the server."""
    if settings.generator != "harness" or settings.harness not in HARNESSES:
        return None
    harness = harness_named(settings.harness)
    if not harness.by_image or harness.image is None:
        return None
    return ToolContainerSettings(
        image=settings.tool_image or harness.image,
        command=tool_container.COMMAND,
        folder=tool_container.FOLDER,
        environment={tool_container.FOLDER_ENV: tool_container.FOLDER},
        cpu=settings.cpu,
        memory=settings.memory,
    )


def _watched_by_pods(settings: RunSettings, treatment: Treatment) -> bool:
    """If no client waits here, the pods watch the stack themselves, with a role that is removed with their Job. In
    another namespace that is impossible: there only a given service account has the rights."""
    reachable = settings.namespace == settings.harness_namespace or settings.service_account is not None
    return settings.is_unattended and treatment.endpoint.kind not in ("url", "mock") and reachable


def _passed(names: Sequence[str]) -> dict[str, str]:
    missing = [name for name in names if not os.environ.get(name)]
    if missing:
        raise PlanError([f"-g {name}: the variable is not set here" for name in missing])
    return {name: os.environ[name] for name in names}


def plan_text(plan: Plan) -> str:
    text = to_yaml(plan)
    if REDACTED in text:
        hint = "write ${NAME} instead: the variable is put into a Secret for the pods"
        raise PlanError("the plan contains a key or password, which must not be in a ConfigMap", hint)
    if len(text.encode()) > LARGEST_PLAN:
        raise PlanError(f"the plan has {len(text):,} bytes, and a ConfigMap takes 1 MiB")
    for traffic in plan.classes:
        file = getattr(traffic.workload, "path", None) or getattr(traffic.workload, "file", None)
        if isinstance(file, str) and "://" not in file and Path(file).is_file():
            hint = "give a URL, or put it into the claim: /requests/NAME"
            raise PlanError(f"workload: {file} is a file on this machine, which a pod cannot read", hint)
    return text


def claim_of(settings: RunSettings) -> PersistentVolumeClaim:
    place = ObjectPlace(settings.harness_namespace, settings.claim, "results")
    modes = (settings.access_mode,)
    return manifests.claim(place, settings.claim, settings.claim_size, settings.storage_class, modes)


def all_manifests(cluster: Cluster | None, request: TreatmentRequest, notes: Notes) -> list[Manifest]:
    """What would be created, in order; as returned by the server's own dry run, if there is a server."""
    settings = request.settings
    if settings.harness == NOP:  # only reads
        treatments_of(request, cluster, notes)
        return []
    things: list[Manifest] = []
    claim = claim_of(settings)
    if cluster is None:
        things.append(claim)
    elif cluster.read(PersistentVolumeClaim, settings.claim, settings.harness_namespace) is None:
        cluster.apply(claim, dry_run=True)
        things.append(claim)
    for number, treatment in enumerate(treatments_of(request, cluster, notes)):
        launch = f"{settings.id}-{number}"
        launcher = launcher_of(cluster, settings, treatment, launch) if cluster else None
        if launcher is not None:
            launcher.check()
            things += launcher.manifests(launcher.indexed())
        else:
            things += _unchecked(settings, treatment, launch)
    return things


def _unchecked(settings: RunSettings, treatment: Treatment, launch: str) -> list[Manifest]:
    return launcher_of(None, settings, treatment, launch).manifests(settings.pods > 1)
