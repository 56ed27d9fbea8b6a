"""The conductor of startups: a server's log is read, or a server is started and its log read; the start is kept as a
run, so that it can be listed, compared and followed like any other."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from inferometer.errors import StoreError
from inferometer.observe.environment import environment
from inferometer.plan.model import Plan, Server
from inferometer.plan.writing import to_mapping
from inferometer.record.run import Run, State
from inferometer.store.folder import RunFolder
from inferometer.store.save import keep
from inferometer.store.store import Place, open_store
from inferometer.target.probe import TargetFacts, probe
from inferometer.target.server import StartedServer, running
from inferometer.target.startup import StartupLog, read_startup, startup_of
from inferometer.target.startup.sleeping import Sleep, sleep_and_wake

MATCHED = "matched.log"  # the lines that the numbers were made of; the log itself may have gigabytes
Notes = Callable[[str], None]


def startup_from_log(log: Path, *, store: Place = None, notes: Notes = lambda _text: None) -> Run:
    """Keep the start that a log tells of. What is missing in it is said to be missing."""
    read = read_startup(log)
    if read.starts > 1:
        notes(f"{log}: tells of {read.starts} starts; this is the last")
    summary = read.report
    return keep(
        store,
        kind="startup",
        plan=_plan_of(log, summary["startup"]),
        environment={"target": _target_of(summary["startup"]), "log": str(log)},
        summary=summary,
        verdict=verdict_of(summary),
        started=_started(read),
        state=_state(summary),
        files={MATCHED: read.matched.encode()},
    )


def startup_of_server(
    plan: Plan, *, store: Place = None, notes: Notes = lambda _text: None, sleep: bool = False, wait_s: float = 0.0
) -> Run:
    """Start the plan's server, wait until it is ready, end it, and keep how long each part took."""
    assert plan.server is not None
    kept_in = open_store(store)
    asked = plan.model_copy(update={"server": talkative(plan.server, sleep)})
    folder = kept_in.new_run(kind="startup")
    try:
        folder.write_plan(to_mapping(asked))
        _measure(asked, folder, notes, sleep, wait_s)
    except BaseException as error:
        folder.abandon(error)
        raise
    kept = folder.load()
    with suppress(StoreError):  # the index follows the folders by itself
        return kept_in.add(kept)
    return kept


def talkative(server: Server, sleep: bool) -> Server:
    """vLLM tells of its first phases only when asked for DEBUG, and sleeps only when it may."""
    if server.type != "vllm":
        return server
    env, args = {"VLLM_LOGGING_LEVEL": "DEBUG"}, {}
    if sleep:
        env["VLLM_SERVER_DEV_MODE"] = "1"
        said = {name.lstrip("-").replace("-", "_") for name in server.args}
        args = {} if "enable_sleep_mode" in said else {"enable_sleep_mode": True}
    return server.model_copy(update={"env": {**env, **server.env}, "args": {**args, **server.args}})


def _measure(plan: Plan, folder: RunFolder, notes: Notes, sleep: bool, wait_s: float) -> None:
    assert plan.server is not None
    slept: Sleep | None = None
    with running(
        plan.server, folder.path, target=plan.target, say=notes, holder="inferometer startup", wait_s=wait_s
    ) as server:
        notes(f"{server.name} was ready after {server.ready_s or 0:.1f} s")
        facts = _probed(plan, server)
        if sleep:
            slept = sleep_and_wake(plan.target, server.url)
    summary = startup_of(server.log, server.ready_s)
    _add_sleep(summary, slept)
    folder.write_environment(environment(plan, facts) | {"server": server.facts})
    folder.write_summary(summary)
    folder.write_verdict(verdict_of(summary))
    folder.write_state("complete")


def _probed(plan: Plan, server: StartedServer) -> TargetFacts:
    target = plan.target.model_copy(update={"url": [server.url], "model": server.model or plan.target.model})
    return probe(target)


def _add_sleep(summary: dict[str, Any], slept: Sleep | None) -> None:
    """What the asker saw, beside what the server said of itself."""
    if slept is None:
        return
    summary["startup"]["asked_sleep"] = asdict(slept)
    for name, seconds, title in (
        ("sleep_asked_time", slept.sleep_s, "fall asleep, as asked"),
        ("wake_asked_time", slept.wake_s, "wake up, as asked"),
    ):
        summary["values"][name] = {"value": seconds, "unit": "s", "direction": "lower", "title": title}


def verdict_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers that were read from a log are right or missing: only what is missing makes a start doubtful."""
    startup = summary["startup"]
    if startup["state"] == "complete":
        return {"word": "valid", "reasons": []}
    text = "The log ends before the engine was ready: time to ready is not known, and later phases are missing."
    return {"word": "doubtful", "reasons": [{"severity": "doubtful", "code": "not_ready", "text": text}]}


def _state(summary: Mapping[str, Any]) -> State:
    return "complete" if summary["startup"]["state"] == "complete" else "partial"


def _started(read: StartupLog) -> datetime | None:
    """The log's clock has no zone: taken as the local one, which is right where the log was written here."""
    if read.started_s is None:
        return None
    at = read.report["startup"]["started_at"]
    return datetime.fromisoformat(at).astimezone()


def _plan_of(log: Path, startup: Mapping[str, Any]) -> dict[str, Any]:
    """As far as a plan would say it: what was started, and how."""
    server = {"type": "vllm", "model": startup["model"], "args": startup["arguments"]}
    return {"name": log.stem, "server": {name: value for name, value in server.items() if value}}


def _target_of(startup: Mapping[str, Any]) -> dict[str, Any]:
    names = {"server": "engine", "version": "version", "model": "model"}
    return {name: startup[said] for name, said in names.items()}
