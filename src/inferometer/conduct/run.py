"""The conductor of one run: a plan is driven at a target, measured, judged and kept."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from inferometer.conduct.calibrate import calibrate, load_curve
from inferometer.errors import StoreError
from inferometer.exchange.exporting.registry import write_outputs
from inferometer.judge.limits import judge_plan
from inferometer.load.facts import facts_of
from inferometer.load.progress import GOALS
from inferometer.load.shard import ShardJob, ShardReport, Watch
from inferometer.measure.facts import Facts
from inferometer.measure.observed import observed
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import verdict
from inferometer.measure.window import start_of
from inferometer.observe.environment import environment
from inferometer.observe.observer import job_of, observing
from inferometer.plan.known_secrets import hiding, redactor_of
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.plan.redactor import Redactor
from inferometer.plan.writing import to_mapping
from inferometer.record.columns import Records
from inferometer.record.gather import Gathered, read_logs
from inferometer.record.log import Note
from inferometer.record.run import STATES, Run, State
from inferometer.record.sample import Samples
from inferometer.record.summary import Summary, Value
from inferometer.scale.goal import has_goals, watched_goals
from inferometer.scale.place import ShardsEnd, place_named
from inferometer.scale.shard import observed_shard
from inferometer.store.folder import RunFolder, logs_of
from inferometer.store.store import Place, open_store
from inferometer.target.ask import request_headers
from inferometer.target.endpoint import Aim, aiming
from inferometer.target.probe import TargetFacts, probe
from inferometer.target.server import StartedServer
from inferometer.workload.registry import new_nonce, workload_of
from inferometer.workload.session import context_of

Notes = Callable[[str], None]
Derive = Callable[[Summary], dict[str, Value]]  # of a summary: more `values` for it


def run(
    plan: Plan,
    *,
    store: Place = None,
    watch: Watch | None = None,
    notes: Notes | None = None,
    nonce: str | None = None,
    server: StartedServer | None = None,
    wait_for_target_s: float = 0.0,
    derive: Derive | None = None,
) -> Run:
    """Do what the plan says and keep the run. A run that fails half way is kept as far as it came.

    `server` is one that runs already, for many runs; a target that another run uses is waited for so long. `derive`
    makes values of the summary that the plan alone cannot, such as what tokens cost.
    """
    redactor = redactor_of(plan)
    said = notes or (lambda _text: None)
    say: Notes = lambda text: said(redactor.hide(text))  # noqa: E731
    kept_in = open_store(store)
    folder = kept_in.new_run()
    try:
        folder.write_plan(to_mapping(plan))
        with hiding(redactor), aiming(plan, folder.path, say, server, wait_for_target_s) as aim:
            state, losses = _measure(aim, folder, nonce or new_nonce(), watch, say, redactor)
    except BaseException as error:
        folder.abandon(error)
        raise
    finished = finish(plan, folder, state, load_curve(kept_in.home), kept_in, say, derive, losses)
    write_outputs(finished, plan.outputs)
    return finished


def partial_run(kept: Run, store: Place = None) -> Run:
    """A run that was killed, or still runs, with the summary and verdict of what its logs hold so far; nothing on
    disk is changed."""
    logs = logs_of(kept.folder) if kept.folder else []
    if not logs and kept.verdict is not None:
        raise StoreError(f"{kept.id}: is not partial, it {STATES[kept.state]}", f"inferometer show {kept.id}")
    if not logs:
        raise StoreError(f"{kept.id}: nothing was logged: it ended before anything was sent")
    plan = plan_from(kept.plan, where=kept.id)
    records, gathered = read_logs(logs)
    if not len(records):
        raise StoreError(f"{kept.id}: no request was over when it ended, so there is nothing to show")
    summary, facts = measured(plan, records, gathered, load_curve(open_store(store).home))
    return replace(kept, summary=summary, verdict=verdict(summary, facts, plan), read_records=lambda: records)


def _measure(
    aim: Aim, folder: RunFolder, nonce: str, watch: Watch | None, say: Notes, redactor: Redactor
) -> tuple[State, list[Note]]:
    """The load on its target: how it ended, and what was lost on the way."""
    plan = aim.plan
    facts = probe(plan.target)
    for note in facts.notes:
        say(note)
    _calibrate_once(folder.store, say)
    known = environment(plan, facts) | {"nonce": nonce}
    folder.write_environment(redactor.hide_within(known | aim.facts))
    _check_workloads(plan, facts, nonce, say)
    with observing(job_of(plan, facts.urls, request_headers(plan.target), folder.observer_log), say):
        end = _drive(plan, facts, folder, nonce, watch)
    losses = [
        Note("lost worker", facts={"why": redactor.hide(f"{lost.shard} of {plan.workers}: {lost.why}")})
        for lost in end.lost
    ]
    if gone := aim.lost(any(report.broken for report in end.reports) or bool(end.lost)):
        losses.append(Note("lost server", facts={"why": redactor.hide(gone)}))
        folder.write_environment(redactor.hide_within(known | aim.facts))
    for report in end.reports:
        if report.gave_up:
            say(f"ended early: {report.gave_up}")
    return _state(end, losses), losses


def finish(
    plan: Plan,
    folder: RunFolder,
    state: State,
    curve: dict[str, Any] | None = None,
    store: Place = None,
    notes: Notes | None = None,
    derive: Derive | None = None,
    losses: Sequence[Note] = (),
) -> Run:
    """Turn the logs of a run into columns, numbers and a verdict, and enter it in the index. `losses` are what no log
    of a shard can know."""
    records, gathered = folder.gather()
    gathered.notes.extend(losses)
    summary, facts = measured(plan, records, gathered, curve)
    if derive is not None:
        summary = structs.replace(summary, values={**summary.values, **derive(summary)})
    folder.write_summary(summary)
    folder.write_verdict(verdict(summary, facts, plan))
    folder.write_state(state)
    finished = folder.load()
    say = notes or (lambda _text: None)
    try:
        return open_store(store or folder.store).add(finished)
    except StoreError as error:  # the index follows the folders by itself, when it can be written again
        say(f"kept in {folder.path}, but not entered: {error.message}; inferometer store reindex tries again")
        return finished


def measured(plan: Plan, records: Records, gathered: Gathered, curve: dict[str, Any] | None) -> tuple[Summary, Facts]:
    """The summary of records, its limits judged, and the facts it was made with."""
    facts = facts_of(plan, records, gathered.notes, gathered.samples, curve)
    summary = summarize(records, plan, facts)
    samples, start_at = Samples.of(gathered.samples), start_of(records, facts)
    summary = observed(samples, gathered.notes, records, plan, summary, start_at)
    return structs.replace(summary, limits=judge_plan(plan, summary)), facts


def _calibrate_once(store: Path, say: Notes) -> None:
    """The first run on a machine learns what error the instrument has there."""
    if load_curve(store) is None:
        say("first run on this machine: a short calibration of the instrument itself (inferometer calibrate does more)")
        calibrate(quick=True, store=store)


def _check_workloads(plan: Plan, facts: TargetFacts, nonce: str, say: Notes) -> None:
    """Make every class's first session here, where a mistake is told to a person and not to a worker's log."""
    context = context_of(plan.target, facts.model, facts.models, facts.max_model_len, say)
    for traffic in plan.classes:
        workload_of(traffic.workload, plan.seed, traffic.draw, nonce, context)(0)


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
            goals=str(folder.path / GOALS) if has_goals(plan) else None,
        )
        for shard in range(plan.workers)
    ]
    with watched_goals(plan, folder.path):
        return place_named()(observed_shard, jobs, watch or (lambda _progress: None))


def _state(end: ShardsEnd[ShardReport], losses: Sequence[Note]) -> State:
    if any(report.interrupted for report in end.reports):
        return "interrupted"
    return "failed" if losses or any(report.gave_up for report in end.reports) else "complete"
