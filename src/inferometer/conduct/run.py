"""Conducts one run: a plan is driven at a target, or at the simulator in virtual time; then measured, judged and
stored."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from inferometer.conduct.curves import keep_for_machine, load_curve
from inferometer.errors import InferometerError, StoreError, TargetError
from inferometer.judge.limits import judge_plan
from inferometer.load.facts import facts_of
from inferometer.load.progress import GOALS, Progress
from inferometer.load.shard import ShardJob, ShardReport, Watch
from inferometer.measure.inputs import Facts
from inferometer.measure.observed import observed
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import verdict
from inferometer.measure.window import start_of
from inferometer.observe.environment import environment, usable_cores
from inferometer.observe.machine import check_room, enough_files
from inferometer.observe.observer import job_of, observing
from inferometer.plan.model import AUTO, Plan
from inferometer.plan.reading import plan_from
from inferometer.plan.redactor import Redactor
from inferometer.plan.secrets import hiding, redactor_of
from inferometer.plan.text import to_mapping
from inferometer.record.columns import Records
from inferometer.record.encoding import with_texts
from inferometer.record.environment import Curve
from inferometer.record.gather import Gathered, read_logs
from inferometer.record.log import Note
from inferometer.record.record import Samples
from inferometer.record.run import STATES, Run, State
from inferometer.record.summary import Summary, Value
from inferometer.record.verdict import worst
from inferometer.scale.goal import has_goals, watched_goals
from inferometer.scale.place import LOCAL, LostShard, ShardsEnd, place_named, workers_for
from inferometer.scale.worker import observed_shard
from inferometer.store.folder import RunFolder, gathered_of, logs_of
from inferometer.store.save import keep, replace_numbers
from inferometer.store.store import Place, open_store
from inferometer.target.ask import profiling, request_headers
from inferometer.target.endpoint import Aim, aiming
from inferometer.target.probe import TargetFacts
from inferometer.vocabulary import attribute_at, duration_text
from inferometer.workload.session import context_of, new_nonce, workload_of

if TYPE_CHECKING:
    from inferometer.target.server import StartedServer

Notes = Callable[[str], None]
Derive = Callable[[Summary], dict[str, Value]]  # from a summary: additional `values` for it


def run(
    plan: Plan,
    *,
    store: Place = None,
    watch: Watch | None = None,
    notes: Notes | None = None,
    nonce: str | None = None,
    server: "StartedServer | None" = None,
    wait_for_target_s: float = 0.0,
    derive: Derive | None = None,
) -> Run:
    """Carry out the plan and store the run. A run that fails half way is stored as far as it got.

    `server` is an already running one, for many runs; `wait_s` limits the wait for a target that another run uses.
    `derive` computes values of the summary that need more than the plan, such as the cost of tokens.
    """
    redactor = redactor_of(plan)
    deliver_note = notes or (lambda _text: None)
    notify: Notes = lambda text: deliver_note(redactor.hide(text))  # noqa: E731
    kept_in = open_store(store)
    written, plan = plan, _with_workers(plan, kept_in.home, notify)
    check_room(plan, notify)
    folder = kept_in.new_run()
    try:
        folder.write_plan(to_mapping(written))
        with hiding(redactor), aiming(plan, folder.path, notify, server, wait_for_target_s) as aim:
            state, losses = _measure(aim, folder, nonce or new_nonce(), watch, notify, redactor)
    except BaseException as error:
        folder.abandon(error)
        raise
    finished = finish(plan, folder, state, load_curve(kept_in.home), kept_in, notify, derive, losses)
    _write_outputs(finished, plan)
    return finished


def partial_run(kept: Run, store: Place = None) -> Run:
    """A run that was killed, or still runs, with the summary and verdict of its logs so far; nothing on disk is
    changed."""
    logs = logs_of(kept.folder) if kept.folder else []
    if not logs and kept.verdict is not None:
        raise StoreError(f"{kept.id}: is not partial, it {STATES[kept.state]}", f"inferometer show {kept.id}")
    if not logs:
        raise StoreError(f"{kept.id}: nothing was logged: the run ended before any request was sent")
    plan = plan_from(kept.plan, where=kept.id)
    records, gathered = read_logs(logs)
    if not len(records):
        raise StoreError(f"{kept.id}: no request was finished when the run ended, so there is nothing to show")
    summary, facts = measured(plan, records, gathered, load_curve(open_store(store).home))
    return replace(kept, summary=summary, verdict=verdict(summary, facts, plan), read_records=lambda: records)


def measured_again(kept: Run) -> Run:
    """A stored run with summary and verdict recomputed from its records; nothing on disk is changed. What only the
    machine of the run knew, the instrument's error there, is taken from the stored summary."""
    records = kept.records
    if records is None or kept.kind != "serving" or kept.source is not None or kept.verdict is None:
        raise StoreError(f"{kept.id}: has no records to measure again", f"inferometer show {kept.id}")
    plan = plan_from(kept.plan, where=kept.id)
    summary, facts = measured(plan, records, gathered_of(kept), None)
    summary = structs.replace(summary, instrument=kept.summary.instrument, values=kept.summary.values | summary.values)
    again = verdict(summary, facts, plan)
    doubts = [doubt for doubt in kept.doubts if doubt.code in ("server_lost", "worker_lost")]  # not in any log
    doubts += again.doubts
    judged = structs.replace(again, doubts=doubts, status=worst(doubts))
    return replace(kept, summary=summary, verdict=judged, by_older_rules=False)


@dataclass(frozen=True)
class Remeasured:
    """A stored run with recomputed numbers, or why they were not recomputed."""

    id: str
    before: str = ""  # the previous status
    after: str = ""
    skipped: str | None = None


def remeasure(store: Place = None, names: Sequence[str] = ()) -> Iterator[Remeasured]:
    """Store the numbers and verdict of runs as the present definitions compute them from the records. Without names:
    for all runs that were measured by older definitions."""
    kept_in = open_store(store)
    for entry in [kept_in.entry(name) for name in names] or kept_in.runs():
        try:
            kept = kept_in.load(entry.id)
            if not names and not kept.is_outdated:
                continue
            again = measured_again(kept)
            replace_numbers(kept_in, entry, again)
        except StoreError as error:
            yield Remeasured(entry.id, skipped=error.message)
            continue
        assert kept.verdict is not None and again.verdict is not None
        yield Remeasured(entry.id, kept.verdict.status, again.verdict.status)


def _measure(
    aim: Aim, folder: RunFolder, nonce: str, watch: Watch | None, notify: Notes, redactor: Redactor
) -> tuple[State, list[Note]]:
    """Sends the load to its target: how it ended, and what was lost on the way."""
    plan = aim.plan
    facts = _probed(aim)
    for note in facts.notes:
        notify(note)
    _calibrate_once(folder.store, notify)
    known = structs.replace(environment(plan, facts.measured), nonce=nonce)
    folder.write_environment(with_texts(aim.known_in(known), redactor.hide_within))
    _check_workloads(plan, facts, nonce, notify)
    profiler = profiling(plan.target, facts.urls, notify) if plan.observe.profiler else nullcontext()
    if plan.place != LOCAL:
        patience = duration_text((plan.ray if plan.place == "ray" else plan.kubernetes).timeout)
        notify(f"starting {_workers_text(plan.workers)} on {plan.place.title()}; waiting up to {patience} for room")
    with observing(job_of(plan, facts.urls, request_headers(plan.target), folder.observer_log), notify), profiler:
        end = _drive(plan, facts, folder, nonce, InterruptNote(watch, notify))
    losses = [Note("lost worker", facts=_lost_facts(lost, plan.workers, redactor)) for lost in end.lost]
    if gone := aim.lost(any(report.broken for report in end.reports) or bool(end.lost)):
        losses.append(Note("lost server", facts={"why": redactor.hide(gone)}))
        folder.write_environment(with_texts(aim.known_in(known), redactor.hide_within))
    for report in end.reports:
        if report.gave_up:
            notify(f"ended early: {report.gave_up}")
    return _state(end, losses), losses


def _probed(aim: Aim) -> TargetFacts:
    """Queried from here, wherever the workers are; an address inside a cluster may be invalid outside of it."""
    try:
        return aim.probed()
    except TargetError as error:
        if aim.plan.place == "kubernetes":
            ways = (
                "start it in a pod of the cluster, or measure with launcher pods only: inferometer k8s run PLAN -U URL"
            )
            error.hint = f"the driver contacts the target too: {ways}"
        raise


def _lost_facts(lost: LostShard, workers: int, redactor: Redactor) -> dict[str, str | int | None]:
    how = redactor.hide(lost.why)
    on = f" on {lost.host}" if lost.host else ""
    why = f"{lost.shard} of {workers}{on}: {how}"
    return {"why": why, "how": how, "shard": lost.shard, "shards": workers, "host": lost.host}


def finish(
    plan: Plan,
    folder: RunFolder,
    state: State,
    curve: Curve | None = None,
    store: Place = None,
    notes: Notes | None = None,
    derive: Derive | None = None,
    losses: Sequence[Note] = (),
) -> Run:
    """Turns the logs of a run into columns, numbers and a verdict, and adds it to the index. `losses` are those that no
    log of a shard can contain."""
    records, gathered = folder.gather()
    gathered.notes.extend(losses)
    summary, facts = measured(plan, records, gathered, curve)
    if derive is not None:
        summary = structs.replace(summary, values={**summary.values, **derive(summary)})
    folder.write_summary(summary)
    folder.write_verdict(verdict(summary, facts, plan))
    folder.write_state(state)
    finished = folder.load()
    notify = notes or (lambda _text: None)
    try:
        return open_store(store or folder.store).add(finished)
    except StoreError as error:  # the index follows the folders by itself, once it is writable again
        notify(f"stored in {folder.path}, but not indexed: {error.message}; retry with inferometer store reindex")
        return finished


def measured(plan: Plan, records: Records, gathered: Gathered, curve: Curve | None) -> tuple[Summary, Facts]:
    """The summary of records, its limits judged, and the facts used for it."""
    samples = Samples.of(gathered.samples)
    facts = facts_of(plan, records, gathered.notes, samples, curve, gathered.clocks)
    summary = summarize(records, plan, facts)
    start_at = start_of(records, facts)
    summary = observed(samples, gathered.notes, records, plan, summary, start_at)
    return structs.replace(summary, limits=judge_plan(plan, summary)), facts


def _write_outputs(run: Run, plan: Plan) -> None:
    if plan.outputs:
        from inferometer.exchange.exporting import write_outputs  # only for a plan with outputs

        write_outputs(run, plan.outputs)


def _with_workers(plan: Plan, store: Path, notify: Notes) -> Plan:
    """The plan with a number of workers, if it does not set one. The cores of a cluster are not known yet."""
    if plan.workers != AUTO:
        return plan
    _calibrate_once(store, notify)
    count = workers_for(plan, load_curve(store), usable_cores() if plan.place == "local" else None)
    notify(f"{_workers_text(count.workers)}: {count.why}")
    return plan.model_copy(update={"workers": count.workers})


def _workers_text(workers: int) -> str:
    return "1 worker" if workers == 1 else f"{workers:,} workers"


def _calibrate_once(store: Path, notify: Notes) -> None:
    """Calibrates the instrument in the first run on a machine. If that fails, because the machine is busy, the run
    continues without, and the next one tries again."""
    if load_curve(store) is None:
        from inferometer.conduct.instrument import calibrate

        notify("first run on this machine: a short calibration of the client (inferometer calibrate does a longer one)")
        try:
            keep_for_machine(calibrate(quick=True), store)
        except (InferometerError, OSError) as error:
            notify(f"the calibration failed, this run has none: {error}")


def _check_workloads(plan: Plan, facts: TargetFacts, nonce: str, notify: Notes) -> None:
    """Create every class's first session here, so that a mistake is shown to the user and not in a worker's log."""
    context = context_of(plan.target, facts.model, facts.models, facts.max_model_len, notify)
    for traffic in plan.classes:
        workload_of(traffic.workload, plan.seed, traffic.draw, nonce, context)(0)


class InterruptNote:
    """Forwards progress and prints once, after the first Ctrl-C, how many requests are still in flight. It waits until
    all workers are counted, but not for one that is gone: the first worker reports again a moment later."""

    def __init__(self, watch: Watch | None, notify: Notes) -> None:
        self._watch, self._say = watch, notify
        self._shards: dict[int, Progress] = {}
        self._interrupted: set[int] = set()
        self._over = False

    def __call__(self, progress: Progress) -> None:
        if self._watch is not None:
            self._watch(progress)
        self._shards[progress.shard] = progress
        if progress.interrupted and not self._over:
            again = progress.shard in self._interrupted
            self._interrupted.add(progress.shard)
            pending = [shard for shard in self._shards.values() if not shard.interrupted and shard.phase != "done"]
            if again or not pending:
                self._over = True
                self._announce_wait()

    def _announce_wait(self) -> None:
        in_flight = sum(shard.in_flight for shard in self._shards.values())
        if in_flight:
            requests = "1 request" if in_flight == 1 else f"{in_flight:,} requests"
            self._say(f"finishing {requests}; interrupt again to stop now")


def _drive(plan: Plan, facts: TargetFacts, folder: RunFolder, nonce: str, watch: Watch) -> ShardsEnd[ShardReport]:
    """The load itself: every worker sends its share of the plan."""
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
    with watched_goals(plan, folder.path), enough_files(plan):
        return place_named(plan.place)(observed_shard, jobs, watch, plan)


def _state(end: ShardsEnd[ShardReport], losses: Sequence[Note]) -> State:
    if any(report.interrupted for report in end.reports):
        return "interrupted"
    return "failed" if losses or any(report.gave_up for report in end.reports) else "complete"


_FLEET = "inferometer.router.virtual:simulated_fleet_run"
_SINGLE = "inferometer.simulator.virtual:simulated_run"


def simulate(plan: Plan, note: Notes = lambda _text: None) -> Run:
    """Predict the result of a plan without a server and without a network."""
    is_fleet = plan.server is not None and plan.server.type == "fleet"
    made: Run = attribute_at(_FLEET if is_fleet else _SINGLE)(plan, note)
    return made


def simulate_kept(
    plan: Plan,
    store: Place = None,
    note: Notes = lambda _text: None,
    derive: Callable[[Summary], Mapping[str, Value]] | None = None,
) -> Run:
    """The same, stored like a real run; its environment records that time was virtual."""
    started = datetime.now(UTC)
    made = simulate(plan, note)
    assert made.verdict is not None
    derived = {} if derive is None else derive(made.summary)
    kept = keep(
        store,
        kind="serving",
        plan=to_mapping(plan),
        environment=made.environment,
        summary=structs.replace(made.summary, values={**made.summary.values, **derived}),
        verdict=made.verdict,
        started=started,
        state=made.state,
        records=made.records,
        samples=made.samples,
    )
    _write_outputs(kept, plan)
    return kept
