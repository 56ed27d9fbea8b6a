"""The content of a run's logs other than records, in the form that `measure` needs."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Literal

import numpy as np

from inferometer.load.arrivals import Arrivals, Replay, arrivals_of, length_s, share, warmup_sessions
from inferometer.measure.inputs import Answers, CoreUse, Facts, WorkerFacts
from inferometer.measure.steadiness import settled_at
from inferometer.measure.window import of_class
from inferometer.plan.model import Plan, Traffic
from inferometer.record.columns import Records
from inferometer.record.environment import Curve
from inferometer.record.log import UNREADABLE, Note
from inferometer.record.record import Samples
from inferometer.record.summary import GOAL_STATUSES, Clocks, Goal
from inferometer.vocabulary import NANOSECONDS


def facts_of(
    plan: Plan,
    records: Records,
    notes: Sequence[Note],
    samples: Samples | None = None,
    calibration: Curve | None = None,
    clocks: Clocks | None = None,
) -> Facts:
    """Works on complete logs and on those of a killed run: missing information stays missing."""
    starts = [note.at for note in notes if note.what == "start" and note.at is not None]
    ends = [note.known for note in notes if note.what == "ended"]
    lost = [note for note in notes if note.what == "lost worker"]
    lost_shards = {note.known.count("shard") for note in lost} - {None}  # their interrupts count as losses
    stops = [note for note in notes if note.what == "interrupted" and note.known.count("shard") not in lost_shards]
    start_at = min(starts, default=None)
    goals = {note.known.text("traffic") or "": goal_of(note) for note in notes if note.what == "goal"}
    kernel = bool(ends) and all(end.text("stamps") == "kernel" for end in ends)
    stamps: Literal["kernel", "read"] = "kernel" if kernel else "read"
    return Facts(
        start_at=start_at,
        warmup_end_at=None if start_at is None else _warmup_end_at(plan, records, start_at),
        stage_ends_at={}
        if start_at is None
        else {traffic.name: _stage_ends_at(traffic, start_at) for traffic in plan.classes},
        planned=_planned(plan, start_at, goals),
        goals=goals,
        interrupted=bool(stops) or (len(ends) < len(starts) and not lost),
        interrupted_by=next((name for note in stops if (name := note.known.text("signal"))), None),
        lost_workers=tuple(_why(note) for note in lost),
        workers=_workers(plan, notes, start_at, goals),
        clocks=clocks,
        lost_server=next((_why(note) for note in notes if note.what == "lost server"), None),
        gave_up=next((_why(note) for note in notes if note.what == "gave up"), None),
        core_use=() if samples is None else _core_use(samples, start_at),
        clock_steps_s=tuple(note.known.number("by_s") or 0.0 for note in notes if note.what == "clock stepped"),
        unreadable=sum(note.known.count("entries") or 0 for note in notes if note.what == UNREADABLE),
        calibration=calibration,
        stamps=stamps,
    )


def _workers(
    plan: Plan, notes: Sequence[Note], start_at: int | None, goals: Mapping[str, Goal]
) -> tuple[WorkerFacts, ...]:
    """The workers whose log has their start, and those that were lost; older logs name no worker. Hosts are named if
    there are several."""
    starts = [note.known for note in notes if note.what == "start" and "shard" in note.facts]
    several = len({facts.text("host") for facts in starts}) > 1
    known: dict[int, WorkerFacts] = {}
    for facts in starts:
        worker = facts.count("shard") or 0
        known[worker] = WorkerFacts(worker, facts.number("late_s") or 0.0, facts.text("host") if several else None)
    for facts in (note.known for note in notes if note.what == "lost worker" and "shard" in note.facts):
        worker, of = facts.count("shard") or 0, facts.count("shards") or 1
        planned = _planned(plan, start_at, goals, worker, of)
        began = known.get(worker, WorkerFacts(worker))
        host = facts.text("host") or began.host
        known[worker] = began._replace(host=host, lost=facts.text("how"), planned=planned)
    return tuple(known[worker] for worker in sorted(known))


def _core_use(samples: Samples, start_at: int | None) -> tuple[CoreUse, ...]:
    """Each sample of a load process covers the time since the previous one, the first since the load started."""
    before: dict[str, int] = {}
    uses = []
    own = samples.source.mask("client") & samples.name.mask("cpu_share")
    for sample in map(samples.sample, own.nonzero()[0].tolist()):
        shard = sample.labels.get("shard", "0")
        begins_at = before.get(shard, sample.at if start_at is None else start_at)
        uses.append(CoreUse(sample.value, max(0, sample.at - begins_at) / NANOSECONDS, shard))
        before[shard] = sample.at
    return tuple(uses)


def _warmup_end_at(plan: Plan, records: Records, start_at: int) -> int:
    """After the warm-up's time and its requests, whichever is later; if a precision is requested, not before the run
    has settled."""
    by_time = max(start_at + round(plan.warmup.duration * NANOSECONDS), _settled_at(plan, records, start_at))
    if not plan.warmup.requests or not len(records):
        return by_time
    behind = records.session >= plan.warmup.requests
    first = records.scheduled_at[behind].min() if behind.any() else records.scheduled_at.max()
    return max(by_time, int(first))


def _settled_at(plan: Plan, records: Records, start_at: int) -> int:
    """When the last of the classes with a precision has settled; a class that has not settled counts from the start."""
    if not any(traffic.stop.precision for traffic in plan.classes):
        return start_at
    answers = Answers.of(records)
    instants = [settled_at(of_class(answers, plan, traffic.name), traffic) for traffic in plan.classes]
    return max((at for at in instants if at is not None), default=start_at)


def _stage_ends_at(traffic: Traffic, start_at: int) -> tuple[int, ...]:
    lengths = [stage.duration for stage in traffic.load.stages]
    return tuple(start_at + round(float(after_s) * NANOSECONDS) for after_s in np.cumsum(lengths))


def goal_of(note: Note) -> Goal:
    facts = note.known
    status = facts.text("status") or facts.text("word")  # the second is the name of version 1
    return Goal(traffic=facts.text("traffic") or "", why=_why(note), status=GOAL_STATUSES.get(status or ""), at=note.at)


def _why(note: Note) -> str:
    return note.known.text("why") or ""


def _planned(
    plan: Plan, start_at: int | None, goals: Mapping[str, Goal], shard: int = 0, shards: int = 1
) -> dict[str, int]:
    """Sessions that each open-loop class was to start, or one of its workers, if that can be known in advance."""
    planned = {}
    for number, traffic in enumerate(plan.classes):
        if not traffic.load.open_loop:
            continue
        requested = traffic.stop.sessions or traffic.stop.requests
        counts = [share(requested + warmup_sessions(plan, number), shard, shards)] if requested else []
        goal = goals.get(traffic.name)
        ended_at = goal.at if goal else None
        if ended_at is not None and start_at is not None:
            counts.append(_arrived(arrivals_of(plan, number, shard, shards), ended_at - start_at))
        elif length_s(traffic.load, traffic.stop, plan.warmup) is not None or traffic.load.type == "replay":
            arrivals = arrivals_of(plan, number, shard, shards).count()
            counts += [arrivals] if arrivals is not None else []
        if counts:
            planned[traffic.name] = min(counts)
    return planned


def _arrived(arrivals: Arrivals | Replay, until_ns: int) -> int:
    return sum(1 for _ in takewhile(lambda arrival: arrival[1] <= until_ns, arrivals))
