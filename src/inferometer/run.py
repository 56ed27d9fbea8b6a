"""The conductor of one run: a plan is driven at a target, measured, judged and kept."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from inferometer.calibrate import calibrate, load_curve
from inferometer.errors import StoreError
from inferometer.exchange.outputs import write_outputs
from inferometer.judge.limits import judge_plan
from inferometer.load.facts import facts_of
from inferometer.load.shard import ShardJob, ShardReport, Watch
from inferometer.measure.facts import Facts
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import verdict
from inferometer.observe.environment import environment
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.plan.writing import to_mapping
from inferometer.record.columns import Records
from inferometer.record.gather import Gathered, read_logs
from inferometer.record.run import STATES, Run, State
from inferometer.scale.processes import ShardsEnd, run_shards
from inferometer.scale.shard import observed_shard
from inferometer.store.folder import RunFolder, default_store, logs_of, new_run
from inferometer.store.index import Index
from inferometer.target.probe import TargetFacts, probe
from inferometer.target.server import started
from inferometer.workload.context import context_of
from inferometer.workload.registry import new_nonce, workload_of

Notes = Callable[[str], None]


def run(
    plan: Plan,
    *,
    store: Path | None = None,
    watch: Watch | None = None,
    notes: Notes | None = None,
    nonce: str | None = None,
) -> Run:
    """Do what the plan says and keep the run. A run that fails half way is kept as far as it came."""
    say = notes or (lambda _text: None)
    store = store or default_store()
    folder = new_run(store)
    try:
        folder.write_plan(to_mapping(plan))
        state = _measure(plan, folder, nonce or new_nonce(), watch, say)
    except BaseException as error:
        folder.abandon(error)
        raise
    finished = finish(plan, folder, state, load_curve(store))
    write_outputs(finished, plan.outputs)
    return finished


def partial_run(kept: Run, store: Path | None = None) -> Run:
    """A run that was killed, or still runs, with the summary and verdict of what its logs hold so far; nothing on
    disk is changed."""
    logs = logs_of(kept.folder) if kept.folder else []
    if not logs and kept.summary:
        raise StoreError(f"{kept.id}: is not partial, it {STATES[kept.state]}", f"inferometer show {kept.id}")
    if not logs:
        raise StoreError(f"{kept.id}: nothing was logged: it ended before anything was sent")
    plan = plan_from(kept.plan, where=kept.id)
    records, gathered = read_logs(logs)
    if not len(records):
        raise StoreError(f"{kept.id}: no request was over when it ended, so there is nothing to show")
    summary, facts = measured(plan, records, gathered, load_curve(store or default_store()))
    return replace(kept, summary=summary, verdict=verdict(summary, facts, plan), read_records=lambda: records)


def _measure(plan: Plan, folder: RunFolder, nonce: str, watch: Watch | None, say: Notes) -> State:
    """The load and its target, from the target's start to its end."""
    with _target(plan, folder, say) as aimed:
        facts = probe(aimed.target)
        for note in facts.notes:
            say(note)
        _calibrate_once(folder.store, say)
        folder.write_environment(environment(aimed, facts) | {"nonce": nonce})
        _check_workloads(aimed, facts, nonce, say)
        end = _drive(aimed, facts, folder, nonce, watch)
    for lost in end.lost:
        say(f"worker {lost.shard} was lost, what it had logged is kept: {lost.why}")
    for report in end.reports:
        if report.gave_up:
            say(f"ended early: {report.gave_up}")
    return _state(end)


def finish(plan: Plan, folder: RunFolder, state: State, curve: dict[str, Any] | None = None) -> Run:
    """Turn the logs of a run into columns, numbers and a verdict, and enter it in the index."""
    records, gathered = folder.gather()
    summary, facts = measured(plan, records, gathered, curve)
    folder.write_summary(summary)
    folder.write_verdict(verdict(summary, facts, plan))
    folder.write_state(state)
    finished = folder.load()
    with suppress(StoreError):  # the index follows the folders by itself, when it can be written again
        Index(folder.store).add(finished)
    return finished


def measured(
    plan: Plan, records: Records, gathered: Gathered, curve: dict[str, Any] | None
) -> tuple[dict[str, Any], Facts]:
    """The summary of records, its limits judged, and the facts it was made with."""
    facts = facts_of(plan, records, gathered.notes, gathered.samples, curve)
    summary = summarize(records, plan, facts)
    summary["limits"] = judge_plan(plan, summary)
    return summary, facts


def _calibrate_once(store: Path, say: Notes) -> None:
    """The first run on a machine learns what error the instrument has there."""
    if load_curve(store) is None:
        say("first run on this machine: a short calibration of the instrument itself (inferometer calibrate does more)")
        calibrate(quick=True, store=store)


@contextmanager
def _target(plan: Plan, folder: RunFolder, say: Notes) -> Iterator[Plan]:
    """The plan with an address to measure: its own, or that of the server it asks to start."""
    if plan.server is None:
        yield plan
        return
    with started(plan.server, folder.path) as server:
        say(f"started {server.name} at {server.url}")
        yield plan.model_copy(update={"target": plan.target.model_copy(update={"url": [server.url]})})


def _check_workloads(plan: Plan, facts: TargetFacts, nonce: str, say: Notes) -> None:
    """Make every class's first session here, where a mistake is told to a person and not to a worker's log."""
    context = context_of(plan.target, facts.model, facts.models, facts.max_model_len, say)
    for number, traffic in enumerate(plan.classes):
        workload_of(traffic.workload, plan.seed, number, nonce, context)(0)


def _drive(
    plan: Plan, facts: TargetFacts, folder: RunFolder, nonce: str, watch: Watch | None
) -> ShardsEnd[ShardReport]:
    """The load itself: every worker takes its share of the one plan."""
    jobs = [
        ShardJob(
            plan=plan.model_dump(mode="json"),
            log=str(folder.log_path(shard)),
            nonce=nonce,
            model=facts.model,
            max_model_len=facts.max_model_len,
            models=facts.models,
            shard=shard,
            shards=plan.workers,
        )
        for shard in range(plan.workers)
    ]
    return run_shards(observed_shard, jobs, watch or (lambda _progress: None))


def _state(end: ShardsEnd[ShardReport]) -> State:
    if any(report.interrupted for report in end.reports):
        return "interrupted"
    return "failed" if end.lost or any(report.gave_up for report in end.reports) else "complete"
