"""The conductor of one run: a plan is driven at a target, measured, judged and kept."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from inferometer.calibrate import calibrate, load_curve
from inferometer.exchange.outputs import write_outputs
from inferometer.judge.limits import judge_plan
from inferometer.load.facts import facts_of
from inferometer.load.shard import ShardJob, ShardReport, Watch
from inferometer.measure.facts import Facts
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import verdict
from inferometer.observe.environment import environment
from inferometer.plan.model import Plan
from inferometer.plan.writing import to_mapping
from inferometer.record.columns import Records
from inferometer.record.gather import Gathered
from inferometer.record.run import Run, State
from inferometer.scale.processes import ShardsEnd, run_shards
from inferometer.scale.shard import observed_shard
from inferometer.store.folder import RunFolder, default_store, new_run
from inferometer.store.index import Index
from inferometer.target.probe import TargetFacts, probe
from inferometer.target.server import started
from inferometer.workload.registry import new_nonce

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
    folder.write_plan(to_mapping(plan))
    _calibrate_once(store, say)
    with _target(plan, folder, say) as aimed:
        facts = probe(aimed.target)
        for note in facts.notes:
            say(note)
        nonce = nonce or new_nonce()
        folder.write_environment(environment(aimed, facts) | {"nonce": nonce})
        end = _drive(aimed, facts, folder, nonce, watch)
    for lost in end.lost:
        say(f"worker {lost.shard} was lost, what it had logged is kept: {lost.why}")
    for report in end.reports:
        if report.gave_up:
            say(f"ended early: {report.gave_up}")
    finished = finish(plan, folder, _state(end), load_curve(store))
    write_outputs(finished, plan.outputs)
    return finished


def finish(plan: Plan, folder: RunFolder, state: State, curve: dict[str, Any] | None = None) -> Run:
    """Turn the logs of a run into columns, numbers and a verdict, and enter it in the index."""
    gathered = folder.gather()
    records = folder.load().records()
    assert records is not None
    summary, facts = measured(plan, records, gathered, curve)
    folder.write_summary(summary)
    folder.write_verdict(verdict(summary, facts, plan))
    folder.write_state(state)
    finished = folder.load()
    Index(folder.path.parent.parent).add(finished)
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
