"""Conducts startups: reads a server's log, or starts a server and reads its log. The start is stored as a run, so
that it can be listed, compared and tracked over time."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from msgspec import structs

from inferometer.documents.document import JsonValue
from inferometer.errors import StoreError
from inferometer.observe.environment import environment
from inferometer.plan.model import Plan, Server
from inferometer.plan.text import to_mapping
from inferometer.record.environment import Environment, MeasuredTarget
from inferometer.record.run import Run
from inferometer.record.summary import MeasuredSleep, Startup, Summary, Value
from inferometer.record.verdict import Reason, Verdict, judged
from inferometer.store.folder import RunFolder
from inferometer.store.save import keep
from inferometer.store.store import Place, open_store
from inferometer.target.ask import sleep_and_wake
from inferometer.target.probe import TargetFacts, probe
from inferometer.target.server import StartedServer, running
from inferometer.target.startup import StartupLog, read_startup, startup_of
from inferometer.vocabulary import duration_text

MATCHED = "matched.log"  # the log lines used for the numbers; the log itself may have gigabytes
TOLERATED_S = 1.0  # between timestamps of a log and durations that a process measured itself
Notes = Callable[[str], None]


def startup_from_log(log: Path, *, store: Place = None, notes: Notes = lambda _text: None) -> Run:
    """Store the startup that a log describes. Missing parts are reported as missing."""
    read = read_startup(log)
    if read.starts > 1:
        notes(f"{log}: contains {read.starts} starts; this is the last")
    startup = read.report.startup
    return keep(
        store,
        kind="startup",
        plan=_plan_of(log, startup),
        environment=Environment(target=_target_of(startup), log=str(log)),
        summary=Summary(values=read.report.values, startup=startup),
        verdict=verdict_of(startup),
        started=_started(read),
        state=startup.state,
        files={MATCHED: read.matched.encode()},
    )


def startup_of_server(
    plan: Plan, *, store: Place = None, notes: Notes = lambda _text: None, sleep: bool = False, wait_s: float = 0.0
) -> Run:
    """Start the plan's server, wait until it is ready, stop it, and store how long each phase took."""
    assert plan.server is not None
    kept_in = open_store(store)
    verbose_plan = plan.model_copy(update={"server": talkative(plan.server, sleep)})
    folder = kept_in.new_run(kind="startup")
    try:
        folder.write_plan(to_mapping(verbose_plan))
        _measure(verbose_plan, folder, notes, sleep, wait_s)
    except BaseException as error:
        folder.abandon(error)
        raise
    kept = folder.load()
    with suppress(StoreError):  # the index follows the folders by itself
        return kept_in.add(kept)
    return kept


def talkative(server: Server, sleep: bool) -> Server:
    """vLLM logs its first phases only at level DEBUG, and sleeps only if sleep mode is enabled."""
    if server.type != "vllm":
        return server
    env, args = {"VLLM_LOGGING_LEVEL": "DEBUG"}, {}
    if sleep:
        env["VLLM_SERVER_DEV_MODE"] = "1"
        arg_names = {name.lstrip("-").replace("-", "_") for name in server.args}
        args = {} if "enable_sleep_mode" in arg_names else {"enable_sleep_mode": True}
    return server.model_copy(update={"env": {**env, **server.env}, "args": {**args, **server.args}})


def _measure(plan: Plan, folder: RunFolder, notes: Notes, sleep: bool, wait_s: float) -> None:
    assert plan.server is not None
    slept: MeasuredSleep | None = None
    with running(
        plan.server, folder.path, target=plan.target, notify=notes, holder="inferometer startup", wait_s=wait_s
    ) as server:
        notes(f"{server.name} was ready after {duration_text(server.ready_s or 0)}")
        facts = _probed(plan, server)
        if sleep:
            slept = sleep_and_wake(plan.target, server.url)
    report = startup_of(server.log, server.ready_s)
    startup = structs.replace(report.startup, requested_sleep=slept)
    folder.write_environment(structs.replace(environment(plan, facts.measured), server=server.facts))
    folder.write_summary(Summary(values=report.values | _sleep_values(slept), startup=startup))
    folder.write_verdict(verdict_of(startup))
    folder.write_state("complete")


def _probed(plan: Plan, server: StartedServer) -> TargetFacts:
    target = plan.target.model_copy(update={"url": [server.url], "model": server.model or plan.target.model})
    return probe(target)


def _sleep_values(slept: MeasuredSleep | None) -> dict[str, Value]:
    """Times measured by the client, in addition to the server's own."""
    if slept is None:
        return {}
    return {
        "sleep_asked_time": Value(value=slept.sleep_s, unit="s", direction="lower", title="put to sleep on request"),
        "wake_asked_time": Value(value=slept.wake_s, unit="s", direction="lower", title="woken up on request"),
    }


def verdict_of(startup: Startup) -> Verdict:
    """Numbers read from a log are right or missing: missing ones make a start doubtful, and so do phases that
    contradict each other."""
    return judged([*_not_ready(startup), *_too_long(startup), *_missing_ranks(startup)])


def _not_ready(startup: Startup) -> Iterator[Reason]:
    if startup.state != "complete":
        text = "The log ends before the engine was ready: time to ready is unknown, and later phases are missing."
        yield Reason(status="doubtful", code="not_ready", text=text)


def _too_long(startup: Startup) -> Iterator[Reason]:
    """No phase lasts longer than the whole start."""
    whole = startup.ready_in_log_s
    longest = max(startup.phases, key=lambda phase: phase.seconds, default=None)
    if longest is None or whole is None or longest.seconds <= whole + (startup.resolution_s or 0.0) + TOLERATED_S:
        return
    text = f"The phase {longest.title!r} took {duration_text(longest.seconds)} according to the log, but the server was"
    text += f" ready after {duration_text(whole)}: the lines of several processes or starts are mixed up."
    yield Reason(status="doubtful", code="phases_exceed_start", text=text)


def _missing_ranks(startup: Startup) -> Iterator[Reason]:
    """Quantities are totals of all workers or unknown. The slowest worker determines the times: the times of workers
    that Ray hides are unknown, while a rank that reports for its node has waited for the others."""
    if not startup.missing_ranks:
        return
    fewest = min(startup.missing_ranks, key=lambda missing: missing.reporting)
    names = ", ".join(missing.name for missing in startup.missing_ranks)
    text = f"{fewest.reporting} of {fewest.expected} workers report their sizes in this log: {names} of all are unknown"
    if any(missing.hidden for missing in startup.missing_ranks):
        text += ", and times are those of the slowest worker that is shown, since Ray hides repeated lines."
        remedy = "set RAY_DEDUP_LOGS=0 when the server is started"
        yield Reason(status="doubtful", code="ranks_missing", text=text, remedy=remedy)
    else:
        yield Reason(status="valid", code="ranks_missing", text=f"{text}.")


def _started(read: StartupLog) -> datetime | None:
    """The log's clock has no time zone: it is taken as local, which is right if the log was written here."""
    at = read.report.startup.started_at
    return None if read.started_s is None or at is None else datetime.fromisoformat(at).astimezone()


def _plan_of(log: Path, startup: Startup) -> dict[str, JsonValue]:
    """In the form of a plan: what was started, and how."""
    server = {"type": "vllm", "model": startup.model, "args": startup.arguments}
    return {"name": log.stem, "server": {name: value for name, value in server.items() if value}}


def _target_of(startup: Startup) -> MeasuredTarget:
    names = ("server", "version", "model")
    return MeasuredTarget(names=names, server=startup.engine, version=startup.version, model=startup.model)
