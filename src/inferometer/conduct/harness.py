"""Runs other tools' load generators: a plan is rendered for the tool, the tool runs while we observe the server, and
its result is stored as a run with the tool's own definitions."""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex

from msgspec import structs

from inferometer.conduct.run import run
from inferometer.conduct.startup import startup_of_server
from inferometer.documents.document import settings_of
from inferometer.errors import DataError, PlanError, StoreError, Terminated
from inferometer.exchange.exporting import write_outputs
from inferometer.exchange.harness import (
    Harness,
    HarnessEndpoint,
    Places,
    Rendered,
    checked,
    checked_name,
    harness_named,
)
from inferometer.exchange.harness.environments import installed, version_of
from inferometer.exchange.harness.tool_container import IMAGE_ENV, ToolContainer, tool_container
from inferometer.exchange.importing.importer import checksum, read_result, summary_of, verdict_of
from inferometer.exchange.importing.recognise import format_named
from inferometer.exchange.importing.source import ImportedRun
from inferometer.load.shard import Watch
from inferometer.measure.observed import with_observations
from inferometer.observe.environment import environment
from inferometer.observe.observer import job_of, observing
from inferometer.plan.model import Plan
from inferometer.plan.redactor import Redactor
from inferometer.plan.secrets import hiding, key_of, redacted_argv, redactor_of, resolve_headers
from inferometer.plan.text import to_mapping
from inferometer.record.encoding import with_texts
from inferometer.record.environment import Environment, HarnessRun, ImportOrigin, ToolVersion
from inferometer.record.record import Samples
from inferometer.record.run import Run, State
from inferometer.record.summary import Summary
from inferometer.record.verdict import Reason, Verdict, judged
from inferometer.store.folder import RunFolder
from inferometer.store.manifest import MARKS, Marks, checked_label, marks_bytes
from inferometer.store.save import keep
from inferometer.store.store import Place, open_store
from inferometer.target.ask import request_headers
from inferometer.target.endpoint import Aim, aiming
from inferometer.target.probe import TargetFacts
from inferometer.target.process import StartedProcess, not_started, tail
from inferometer.target.server import StartedServer, running
from inferometer.vocabulary import NANOSECONDS, duration_text

Notes = Callable[[str], None]
# -- what a harness left -----------------------------------------------------------------------------------------------

# Reads what a harness left in its folder, as one imported run; and stores such a folder as a run, for a load that ran
# elsewhere.

LOG = "harness.log"


@dataclass(frozen=True, slots=True)
class HarnessResult:
    """A result file of a harness, and its content."""

    path: Path
    imported: ImportedRun

    @property
    def stored_name(self) -> str:
        """Its file name in the folder of a run."""
        return f"source{self.path.suffix or '.txt'}"


def result_in(harness: Harness, folder: Path) -> HarnessResult:
    """The result in a folder, with every request if a second file contains them; a `DataError` if there is none."""
    path = _first(folder, harness.results)
    if path is None:
        listed = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
        got = f"there are {', '.join(listed[:8])}" if listed else "the folder is empty"
        raise DataError(f"{harness.name}: wrote no {harness.results[0]}: {got}")
    runs = read_result(path, harness.format).runs
    imported = runs[-1]  # of several, such as warm-up and measurement, the last one corresponds to the plan
    if imported.records is None and harness.requests is not None:
        imported = _with_requests(harness, folder, imported)
    return HarnessResult(path, imported)


def _first(folder: Path, patterns: Iterable[str]) -> Path | None:
    return next((file for pattern in patterns for file in sorted(folder.glob(pattern)) if file.is_file()), None)


def _with_requests(harness: Harness, folder: Path, imported: ImportedRun) -> ImportedRun:
    """The tool's own numbers stay unchanged: records only add our measures."""
    assert harness.requests is not None
    pattern, name = harness.requests
    path = _first(folder, [pattern])
    if path is None:
        return imported
    try:
        requests = read_result(path, name).runs[0]
    except DataError:
        return imported
    return replace(
        imported,
        records=requests.records,
        underivable=requests.underivable,
        started=imported.started or requests.started,
    )


def import_folder(
    harness: Harness, folder: Path, store: Place, *, plan: Plan | None = None, tags: Iterable[str] = ()
) -> Run:
    """Store the result of a harness from a folder, with its log, as a run. Nothing else was sampled."""
    result = result_in(harness, folder)
    imported = result.imported
    summary = summary_of(imported)
    content = result.path.read_bytes()
    files = {result.stored_name: content}
    if (log := folder / LOG).is_file():
        files[LOG] = log.read_bytes()
    if marks := [checked_label(tag, "tag") for tag in tags]:
        files[MARKS] = marks_bytes(Marks().tagged(*marks))
    environment = structs.replace(
        imported.environment,
        imported=ImportOrigin(format=harness.format, file=result.path.name, sha256=checksum(content)),
        harness=HarnessRun(name=harness.name, result=result.stored_name, log=LOG if LOG in files else None),
    )
    return keep(
        store,
        kind="serving",
        plan=to_mapping(plan) if plan is not None else settings_of(imported.plan),
        environment=environment,
        summary=summary,
        verdict=verdict_of(imported, summary, format_named(harness.format).title),
        started=imported.started,
        source=harness.format,
        records=imported.records,
        samples=imported.samples,
        files=files,
    )


# -- the run of a harness ----------------------------------------------------------------------------------------------

TIME_LIMIT_S = 3600.0  # llm-d-benchmark waits for a harness as long
GRACE_S = 5.0
DIFFERS = 0.01  # between the counts of a tool and of the server
NO_KEY = "none"  # for a tool that requires a key although the server does not


@dataclass(frozen=True, slots=True)
class HarnessOptions:
    """Options that apply to every harness."""

    tokenizer: str | None = None  # a folder or a name on the hub; None: the plan's, else from the model's name
    time_limit_s: float = TIME_LIMIT_S
    wait_for_target_s: float = 0.0


def run_harnesses(
    plan: Plan,
    names: Sequence[str],
    *,
    store: Place = None,
    watch: Watch | None = None,
    notes: Notes = lambda _text: None,
    options: HarnessOptions | None = None,
) -> list[Run]:
    """Run the same plan with each harness, one after the other, against the same server; if we start it, it starts
    once."""
    if len(names) > 1 and plan.outputs:
        raise PlanError("outputs: one harness would overwrite the files of the other", "inferometer export RUN ...")
    for name in names:
        checked_name(name)
        if name not in ("inferometer", "nop"):
            _runner(harness_named(name))
            _rendered(
                harness_named(name), plan, _placeholder_endpoint(plan), Places()
            )  # fail first for a plan that it cannot run
    if plan.server is None or plan.server.type == "external" or len(names) == 1 or "nop" in names:
        return [run_harness(plan, name, store=store, watch=watch, notes=notes, options=options) for name in names]
    folder = open_store(store).home / "servers" / token_hex(4)
    folder.mkdir(parents=True)
    try:
        wait_s = options.wait_for_target_s if options else 0.0
        with running(
            plan.server, folder, target=plan.target, notify=notes, holder="harnesses", wait_s=wait_s
        ) as server:
            return [
                run_harness(plan, name, store=store, watch=watch, notes=notes, options=options, server=server)
                for name in names
            ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rendered_for(plan: Plan, name: str) -> tuple[Rendered, list[str]]:
    """The files and command for a harness, and its differences from the plan; nothing is sent to the server."""
    target = plan.target
    endpoint = (
        HarnessEndpoint(target.url[0], target.model or "MODEL", _tokenizer(plan, None) or target.model or "TOKENIZER")
        if target.url
        else _placeholder_endpoint(plan)
    )
    return _rendered(harness_named(name), plan, endpoint, Places())


def _placeholder_endpoint(plan: Plan) -> HarnessEndpoint:
    """A placeholder until the server is known."""
    return HarnessEndpoint("http://127.0.0.1:8000", plan.target.model or "model", "tokenizer")


def run_harness(
    plan: Plan,
    name: str,
    *,
    store: Place = None,
    watch: Watch | None = None,
    notes: Notes = lambda _text: None,
    options: HarnessOptions | None = None,
    server: StartedServer | None = None,
) -> Run:
    """Run a plan with a harness and store the run. If it fails, the run is failed and has the end of its log."""
    checked_name(name)
    options = options or HarnessOptions()
    wait_s = options.wait_for_target_s
    if name == "inferometer":
        return run(plan, store=store, watch=watch, notes=notes, server=server, wait_for_target_s=wait_s)
    if name == "nop":
        if plan.server is None:
            text = "--harness nop: measures the start of a server, but the plan starts none"
            raise PlanError(text, "--server vllm, or inferometer startup LOG for the log of one that runs")
        return startup_of_server(plan, store=store, notes=notes, wait_s=wait_s)
    harness = harness_named(name)
    runner = _runner(harness)
    redactor = redactor_of(plan)
    kept_in = open_store(store)
    folder = kept_in.new_run(source=harness.format)
    try:
        folder.write_plan(to_mapping(plan))
        with hiding(redactor), aiming(plan, folder.path, notes, server, wait_s) as aim:
            _conducted(harness, runner, aim, folder, options, notes, redactor)
    except BaseException as error:
        folder.abandon(error)
        raise
    finished = folder.load()
    if finished.state == "complete":
        write_outputs(finished, plan.outputs)
    with suppress(StoreError):  # the index follows the folders by itself
        return kept_in.add(finished)
    return finished


def _runner(harness: Harness) -> Path | ToolContainer:
    """What runs the tool: a program on this machine, or the container next to ours."""
    container = tool_container() if harness.by_image else None
    return container or installed(harness)


@dataclass(frozen=True, slots=True)
class _Ended:
    """How the harness's process ended, and its start and end on the monotonic clock."""

    how: str
    failed: bool
    life: tuple[int, int]
    wall_at: int  # the real-time clock when it started
    stopped_by: str | None = None  # the signal that interrupted it

    @property
    def took_s(self) -> float:
        return (self.life[1] - self.life[0]) / NANOSECONDS


def _conducted(
    harness: Harness,
    runner: Path | ToolContainer,
    aim: Aim,
    folder: RunFolder,
    options: HarnessOptions,
    notes: Notes,
    redactor: Redactor,
) -> None:
    """Runs the harness on the observed server, and converts its result into the parts of a run."""
    plan, facts = aim.plan, aim.probed()
    for note in facts.notes:
        notes(note)
    work = folder.path / "harness" if isinstance(runner, Path) else runner.folder
    places = Places() if isinstance(runner, Path) else Places(str(work), str(work / Places().results))
    rendered, differences = _rendered(harness, _resolved(plan), _endpoint(plan, facts, options), places)
    for difference in differences:
        notes(f"{harness.name}: {difference}")
    _written(rendered, work)
    known = aim.known_in(environment(plan, facts.measured))
    version = version_of(harness, runner) if isinstance(runner, Path) else os.environ.get(IMAGE_ENV)
    with observing(job_of(plan, facts.urls, request_headers(plan.target), folder.observer_log), notes):
        if isinstance(runner, Path):
            ended = _process(harness, runner, plan, rendered, folder, work, options, redactor)
        else:
            ended = _run_in_container(runner, rendered, folder, options, redactor)
    about = HarnessRun(
        name=harness.name,
        version=version,
        argv=[redactor.hide(part) for part in redacted_argv(rendered.argv)],
        files=list(rendered.files),
        differences=differences,
        log=LOG,
        took_s=ended.took_s,
        ended=ended.how,
    )
    known = structs.replace(known, harness=about, tool=ToolVersion(name=harness.name, version=version))
    _finish(harness, folder, work, ended, with_texts(known, redactor.hide_within), redactor)


def _rendered(harness: Harness, plan: Plan, endpoint: HarnessEndpoint, places: Places) -> tuple[Rendered, list[str]]:
    rendered = harness.render(plan, endpoint, places)
    differences = checked(harness, plan, rendered)
    if plan.limits:
        differences.append("limits: are not judged, because the tool defines its numbers in its own way")
    return rendered, differences


def _endpoint(plan: Plan, facts: TargetFacts, options: HarnessOptions) -> HarnessEndpoint:
    model = facts.model or plan.target.model or ""
    return HarnessEndpoint(facts.urls[0], model, _tokenizer(plan, options.tokenizer) or model)


def _tokenizer(plan: Plan, given: str | None) -> str | None:
    """The requested tokenizer, or the plan's; None: that of the model's name."""
    own = getattr(plan.workload, "tokenizer", None)
    chosen = given or (own if own not in ("model", "server") else None)
    local = Path(chosen).expanduser() if chosen else None
    return str(local.absolute()) if local is not None and local.is_dir() else chosen


def _written(rendered: Rendered, work: Path) -> None:
    (work / Places().results).mkdir(parents=True, exist_ok=True)
    for name, text in rendered.files.items():
        (work / name).write_text(text, encoding="utf-8")


def _process(
    harness: Harness,
    program: Path,
    plan: Plan,
    rendered: Rendered,
    folder: RunFolder,
    work: Path,
    options: HarnessOptions,
    redactor: Redactor,
) -> _Ended:
    argv = [str(program), *rendered.argv[1:]]
    env = {**_quiet(program), **rendered.env}
    if key := key_of(plan.target, os.environ) or (NO_KEY if harness.key_needed else ""):
        env |= {harness.key_env: key} if harness.key_env else {}
        argv += harness.keyed(key) if harness.keyed else []
    clocks = time.monotonic_ns(), time.time_ns()
    try:
        process = StartedProcess(argv, folder.path / LOG, token_hex(8), env=env, folder=work, redactor=redactor)
    except OSError as error:
        raise not_started(harness.name, argv, error, f"inferometer harnesses install {harness.name}") from None
    with _waited(clocks, options) as waiting:
        try:
            if process.wait(options.time_limit_s):
                waiting.is_over(str(process.ended()), process.failed)
        finally:
            process.end(GRACE_S)
    return waiting.ended()


def _run_in_container(
    container: ToolContainer, rendered: Rendered, folder: RunFolder, options: HarnessOptions, redactor: Redactor
) -> _Ended:
    """The same by the image's container. The key of the API is not passed on: the tool has no option for one."""
    container.prepare(container.folder / Places().results)
    with _waited((time.monotonic_ns(), time.time_ns()), options) as waiting:
        try:
            container.start(rendered.argv, rendered.env)
            code = container.wait(options.time_limit_s)
            if code is not None:
                waiting.is_over(f"with exit code {code}", code != 0)
        finally:
            container.end()
            log = container.log.read_bytes() if container.log.is_file() else b""
            (folder.path / LOG).write_bytes(redactor.hide_bytes(log))
    return waiting.ended()


class _Waiting:
    """What becomes of a tool while we wait for its end."""

    def __init__(self, clocks: tuple[int, int], options: HarnessOptions) -> None:
        self._clocks = clocks  # monotonic and real-time, when it began
        self._how = f"took longer than {duration_text(options.time_limit_s)} and was stopped"
        self._failed = True
        self._stopped_by: str | None = None

    def is_over(self, how: str, failed: bool) -> None:
        self._how, self._failed = f"ended {how}", failed

    def interrupted(self, by: KeyboardInterrupt) -> None:
        self._how, self._stopped_by = "was interrupted", "SIGTERM" if isinstance(by, Terminated) else "SIGINT"

    def ended(self) -> _Ended:
        life = (self._clocks[0], time.monotonic_ns())
        return _Ended(self._how, self._failed, life, self._clocks[1], self._stopped_by)


@contextmanager
def _waited(clocks: tuple[int, int], options: HarnessOptions) -> Iterator[_Waiting]:
    waiting = _Waiting(clocks, options)
    try:
        yield waiting
    except KeyboardInterrupt as stopped:
        waiting.interrupted(stopped)


def _quiet(program: Path) -> dict[str, str]:
    """Puts its own environment first on PATH, disables colours and progress bars in its log, and disables telemetry."""
    path = f"{program.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {"PATH": path, "NO_COLOR": "1", "COLUMNS": "160", "PYTHONUNBUFFERED": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


def _resolved(plan: Plan) -> Plan:
    """With the values of variables in headers; in the stored plan they are replaced by stars."""
    headers = resolve_headers(plan.target.headers, os.environ)
    return plan.model_copy(update={"target": plan.target.model_copy(update={"headers": headers})})


# -- what it left ----------------------------------------------------------------------------------------------------


def _finish(
    harness: Harness, folder: RunFolder, work: Path, ended: _Ended, known: Environment, redactor: Redactor
) -> None:
    """Collects the parts of the run, whatever the harness left, and deletes its working folder."""
    result, problem = _result(harness, work / Places().results, ended)
    gathered = folder.observed()
    origin = _origin_of(result, ended)
    gathered.samples.move(-origin)
    life = (ended.life[0] - origin, ended.life[1] - origin)
    summary = Summary() if result is None else summary_of(result.imported)
    summary = with_observations(Samples.of(gathered.samples), gathered.notes, summary, life)
    folder.write_observed(None if result is None else result.imported.records, gathered)
    if result is not None:
        content = result.path.read_bytes()
        (folder.path / result.stored_name).write_bytes(redactor.hide_bytes(content))
        imported = ImportOrigin(format=harness.format, file=result.path.name, sha256=checksum(content))
        about = structs.replace(known.harness or HarnessRun(), result=result.stored_name)
        tool = result.imported.environment.tool or known.tool
        known = structs.replace(known, imported=imported, harness=about, tool=tool)
    for name in (known.harness or HarnessRun()).files:
        (folder.path / name).write_bytes(redactor.hide_bytes((work / name).read_bytes()))
    shutil.rmtree(work, ignore_errors=True)
    folder.write_environment(known)
    folder.write_summary(summary)
    folder.write_verdict(_verdict(harness, result, summary, ended, problem, folder.path / LOG))
    folder.write_state(_state(ended, result))


def _result(harness: Harness, results: Path, ended: _Ended) -> tuple[HarnessResult | None, str | None]:
    try:
        return result_in(harness, results), None
    except DataError as error:
        return None, error.message


def _origin_of(result: HarnessResult | None, ended: _Ended) -> int:
    """The instant of the monotonic clock that is 0 in the records, as far as the result states its start: limited to
    the lifetime of its process. Samples are moved to that clock."""
    started = result.imported.started if result is not None else None
    if started is None:
        return ended.life[0]
    at = round(started.timestamp() * NANOSECONDS) - ended.wall_at + ended.life[0]
    return at if ended.life[0] <= at <= ended.life[1] else ended.life[0]


def _verdict(
    harness: Harness, result: HarnessResult | None, summary: Summary, ended: _Ended, problem: str | None, log: Path
) -> Verdict:
    reasons: list[Reason] = []
    title = format_named(harness.format).title
    if ended.stopped_by:
        text = f"{harness.name} was interrupted before it finished."
        reasons.append(Reason(status="doubtful", code="interrupted", text=text, signal=ended.stopped_by))
    elif ended.failed or result is None:
        end = "".join(f"\n  {line}" for line in tail(log))
        what = ended.how if ended.failed else f"{ended.how}, but {problem}"
        text = (
            f"{harness.name} {what}; the end of its log:{end}" if end else f"{harness.name} {what}; its log is empty."
        )
        reasons.append(Reason(status="invalid", code="harness_failed", text=text))
    if result is None:
        return judged(reasons)
    theirs = verdict_of(result.imported, summary, title)
    return judged([*reasons, *theirs.doubts, *theirs.notes, *_counts(harness, result, summary)])


def _counts(harness: Harness, result: HarnessResult, summary: Summary) -> list[Reason]:
    """A note if the server's count differs from the tool's: because of requests outside its measurement, or uncounted
    ones."""
    counter = summary.server.counters.get("requests_ok") if summary.server else None
    answered = result.imported.answered
    if counter is None or answered is None or abs(counter.grown - answered) <= DIFFERS * max(answered, 1):
        return []
    text = f"The server answered {counter.grown:,.0f} requests while {harness.name} ran, which reports {answered:,}."
    return [Reason(status="valid", code="server_counted", text=text)]


def _state(ended: _Ended, result: HarnessResult | None) -> State:
    if ended.stopped_by:
        return "interrupted"
    return "failed" if ended.failed or result is None else "complete"
