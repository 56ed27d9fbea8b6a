"""A run as numbers: plain data, ready for JSON, in seconds and tokens; a missing number is None, never 0 or NaN."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from inferometer.measure.accuracy import lateness_moves, tokens, uncertainty, with_clock_errors, with_error
from inferometer.measure.delivery import delivery
from inferometer.measure.describe import ALWAYS, describe, describe_all, described, per_request_names
from inferometer.measure.inputs import Answers, Facts, seconds_between
from inferometer.measure.quantiles import Floats, Ints
from inferometer.measure.rates import (
    attainments,
    basis_for,
    concurrency,
    goodput,
    judged_measure,
    rates,
    span_of,
    stalls,
)
from inferometer.measure.registry import REGISTRY, request_values
from inferometer.measure.steadiness import backlog, precision_of, steadiness
from inferometer.measure.window import (
    InFlight,
    Window,
    class_window,
    end_of,
    of_class,
    stage_windows,
    start_of,
    traffic_named,
    warmup_end,
    whole_window,
)
from inferometer.plan.limit import Limit
from inferometer.plan.model import Plan, Traffic
from inferometer.record.columns import Mask, Records, known
from inferometer.record.record import AS_PLANNED
from inferometer.record.summary import (
    ClassSummary,
    Delivery,
    ErrorCount,
    Failures,
    Instrument,
    Loop,
    Sessions,
    Slice,
    Slices,
    StageSummary,
    StructureSummary,
    Summary,
    SummarySection,
    WindowSummary,
)
from inferometer.vocabulary import NANOSECONDS

# -- sessions --------------------------------------------------------------------------------------------------------


def sessions(answers: Answers, chosen: Mask, confidence: float) -> Sessions | None:
    """Sessions whose first turn is among the chosen requests; None if every session has one turn."""
    if not len(answers) or int(answers.records.turns.max()) <= 1:
        return None
    first, last, done = _ends(answers)
    begun = chosen[first] & (answers.records.turn[first] == 0)
    complete = begun & (done == answers.records.turns[first])
    first, last, records = first[complete], last[complete], answers.records
    start_at = records.scheduled_at[first]
    values = {
        "session_time": seconds_between(start_at, records.ended_at[last]),
        "session_last_answer": seconds_between(start_at, answers.last_at[last]),
        "session_turns": done[begun].astype(np.float64),
    }
    measures = {name: described(value, REGISTRY[name], ALWAYS, confidence) for name, value in values.items()}
    return Sessions(count=int(begun.sum()), complete=int(complete.sum()), measures=measures)


def _ends(answers: Answers) -> tuple[Ints, Ints, Ints]:
    """For each session, in order of its start: index of its first and last turn, and the number of answered turns."""
    records = answers.records
    order = np.lexsort((records.turn, records.session, records.traffic.codes))
    new = _changes(records.session[order]) | _changes(records.traffic.codes[order])
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(order)) - 1
    done = np.add.reduceat(answers.ok[order].astype(np.int64), starts)
    by_time = np.argsort(order[starts], kind="stable")
    return order[starts][by_time], order[ends][by_time], done[by_time]


def _changes(column: "np.typing.NDArray[np.integer[Any]]") -> Mask:
    return np.concatenate((np.array([True]), column[1:] != column[:-1]))


# -- slices ----------------------------------------------------------------------------------------------------------

MOST = 120
_WIDTHS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400)


def slices(answers: Answers, run: Window, measure: str) -> Slices | None:
    """`ttft_*` are quantiles of `measure` among the answered requests scheduled in the slice."""
    if run.length_s <= 0:
        return None
    width_s = next((w for w in _WIDTHS_S if run.length_s / w <= MOST), run.length_s / MOST)
    count = max(1, int(np.ceil(run.length_s / width_s - 1e-9)))
    edges = run.start_at + np.round(np.arange(count + 1) * width_s * NANOSECONDS).astype(np.int64)
    columns = _columns(answers, edges, measure, width_s)
    rows = [Slice(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
    return Slices(width_s=width_s, measure=measure, rows=rows)


def _columns(answers: Answers, edges: Ints, measure: str, width_s: float) -> dict[str, list[Any]]:
    records, count = answers.records, len(edges) - 1
    flight = InFlight.of(records.sent_at, records.ended_at)
    offered = _sums(records.scheduled_at, None, edges)
    tokens = np.zeros(count)
    for reads in records.read_batches(None, ("read_at", "read_tokens")):
        tokens += _sums(reads.at, reads.tokens.astype(np.float64), edges)
    failures = _sums(records.ended_at[answers.failed], None, edges)
    values = np.where(answers.ok, request_values(measure, answers), np.nan)
    middle, high = _grouped_quantiles(_slice_of(records.scheduled_at, edges), values, count, (0.5, 0.9))
    return {
        "t": ((edges[:-1] - edges[0]) / NANOSECONDS).tolist(),
        "offered_per_s": (offered / width_s).tolist(),
        "tokens_per_s": (tokens / width_s).tolist(),
        "in_flight": flight.mean(edges).tolist(),
        "ttft_p50": middle,
        "ttft_p90": high,
        "failures": failures.astype(np.int64).tolist(),
    }


def _slice_of(at: Ints, edges: Ints) -> Ints:
    """The slice of each instant; -1 outside. The last slice includes its end."""
    count = len(edges) - 1
    index = np.searchsorted(edges, at, side="right") - 1
    index = np.where(at == edges[-1], count - 1, index)
    return np.where(known(at) & (index < count), index, -1)


def _sums(at: Ints, amount: Floats | None, edges: Ints) -> Floats:
    index = _slice_of(at, edges)
    inside = index >= 0
    weights = None if amount is None else amount[inside]
    return np.bincount(index[inside], weights, len(edges) - 1).astype(np.float64)


def _grouped_quantiles(
    group: Ints, values: Floats, count: int, shares: tuple[float, ...]
) -> tuple[list[float | None], ...]:
    """Order-statistic quantiles of each group; None for an empty one."""
    fine = ~np.isnan(values) & (group >= 0)
    group, values = group[fine], values[fine]
    ordered = values[np.lexsort((values, group))]
    sizes = np.bincount(group, minlength=count)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    return tuple(_picked(ordered, starts, sizes, share) for share in shares)


def _picked(ordered: Floats, starts: Ints, sizes: Ints, share: float) -> list[float | None]:
    ranks = np.maximum(np.ceil(share * sizes - 1e-9).astype(np.int64) - 1, 0)
    return [
        float(ordered[start + rank]) if size else None for start, rank, size in zip(starts, ranks, sizes, strict=True)
    ]


# -- summary ---------------------------------------------------------------------------------------------------------

TOP_ERRORS = 10
HEADLINE = ("ttft", "tpot", "itl", "e2e", "output_tokens")
HEADLINE_OPEN = ("ttft_scheduled", "ttft", "tpot", "itl", "e2e_scheduled", "e2e", "output_tokens")
HEADLINE_QUANTILES = ("p50", "p90")


MOST_MODELS = 100  # those with the most requests: each has all measures


def summarize(records: Records, plan: Plan, facts: Facts | None = None) -> Summary:
    """Everything that can be computed from the records of a run."""
    facts = facts or Facts()
    answers = Answers.of(records)
    run = Window(start_of(records, facts), end_of(records, facts), "the whole run")
    classes = [traffic.name for traffic in plan.classes]
    by_class = {name: of_class(answers, plan, name) for name in classes}
    parts = {name: _class_summary(by_class[name], plan, facts, name, run) for name in classes}
    only = parts[classes[0]]
    whole = only if len(classes) == 1 else _mixed_summary(answers, plan, facts, run)
    summary = Summary(
        **structs.asdict(whole),
        instrument=_instrument(whole, answers, facts),
        slices=slices(answers, run, whole.headline[0]),
        traffic=parts if len(classes) > 1 else {},
        models=_by_model(answers, plan, facts, run),
    )
    if facts.clocks is None:
        return summary
    return with_clock_errors(summary, facts.clocks, (worker.late_start_s for worker in facts.workers))


@dataclass(frozen=True, slots=True)
class Scope:
    """What is summarized: a window of a run, its limits, and the requested load."""

    window: Window
    run: Window
    limits: list[Limit]
    loop: Loop
    requested: int | None  # concurrency
    confidence: float
    measured: Mask  # the requests after the warm-up; for a stage, only its own
    level_since: int | None  # when the load reached the level that it keeps; None: it is meant to change

    @property
    def headline(self) -> tuple[str, ...]:
        return HEADLINE if self.loop == "closed" else HEADLINE_OPEN


def _class_summary(answers: Answers, plan: Plan, facts: Facts, name: str, run: Window) -> ClassSummary:
    """One traffic class: its window, its stages, and whether its load was delivered."""
    traffic, scope = traffic_named(plan, name), _class_scope(answers, plan, facts, name, run)
    window = scope.window
    cuts = stage_windows(answers, plan, facts, name, window) if traffic.load.type == "stages" else []
    stages = [_stage_summary(answers, scope, traffic, stage, window) for stage, window in cuts]
    return ClassSummary(
        **structs.asdict(_section(answers, scope)),
        precision=precision_of(answers, plan, facts, traffic),
        goal=facts.goals.get(name),
        delivery=_delivery(answers, plan, traffic, facts, window),
        stages=stages,
    )


def goal_summary(answers: Answers, plan: Plan, facts: Facts, name: str) -> ClassSummary:
    """Only the part of a traffic class's summary that shows whether its goal is reached, given its answers: it is
    computed again and again during a run."""
    traffic = traffic_named(plan, name)
    run = Window(start_of(answers.records, facts), end_of(answers.records, facts), "the run so far")
    scope = _class_scope(answers, plan, facts, name, run)
    chosen = _chosen(answers, scope.window)
    named = [judged_measure(limit.measure, scope.loop != "closed") for limit in traffic.limits]
    measures = {
        measure: describe(answers, chosen, REGISTRY[measure], traffic.limits, plan.confidence)
        for measure in per_request_names()
        if measure in named
    }
    of_sessions = any(measure.startswith("session_") for measure in named)
    return ClassSummary(
        loop=scope.loop,
        confidence=scope.confidence,
        window=_window(answers, scope, chosen),
        measures=measures,
        sessions=sessions(answers, chosen, plan.confidence) if of_sessions else None,
        attainment=attainments(answers, chosen, traffic.limits, scope.loop != "closed", scope.confidence),
        precision=precision_of(answers, plan, facts, traffic),
    )


def _class_scope(answers: Answers, plan: Plan, facts: Facts, name: str, run: Window) -> Scope:
    traffic = traffic_named(plan, name)
    return Scope(
        class_window(answers, plan, facts, name),
        run,
        traffic.limits,
        _loop([traffic]),
        _requested_concurrency(traffic),
        plan.confidence,
        answers.records.scheduled_at >= warmup_end(answers.records, plan, facts),
        None if traffic.load.changes else run.start_at,
    )


def _delivery(answers: Answers, plan: Plan, traffic: Traffic, facts: Facts, window: Window) -> Delivery:
    """The delivery, and how much our own lateness contributes to the numbers of the window."""
    proof = delivery(answers, plan, traffic, facts)
    moves = lateness_moves(answers, _chosen(answers, window), traffic.load.open_loop)
    return structs.replace(proof, lateness=structs.replace(proof.lateness, moves=moves))


def _mixed_summary(answers: Answers, plan: Plan, facts: Facts, run: Window) -> ClassSummary:
    """All classes together; limits and delivery belong to each class."""
    requested = [_requested_concurrency(traffic) for traffic in plan.classes]
    total = sum(n for n in requested if n is not None) if None not in requested else None
    measured = answers.records.scheduled_at >= warmup_end(answers.records, plan, facts)
    window, since = whole_window(answers, plan, facts), None
    scope = Scope(window, run, [], _loop(plan.classes), total, plan.confidence, measured, since)
    return ClassSummary(**structs.asdict(_section(answers, scope)))


def _by_model(answers: Answers, plan: Plan, facts: Facts, run: Window) -> dict[str, SummarySection]:
    """Each model or adapter in the window of the run; empty if the workload names none."""
    requested, made = answers.records.model, {}
    counts = {name: n for name, n in requested.counts().items() if name is not None}
    if not counts:
        return {}
    window = whole_window(answers, plan, facts)
    for name in sorted(sorted(counts, key=lambda name: -counts[name])[:MOST_MODELS]):
        own = Answers.of(answers.records.take(requested.mask(name)))
        measured = own.records.scheduled_at >= warmup_end(answers.records, plan, facts)
        scope = Scope(window, run, [], _loop(plan.classes), None, plan.confidence, measured, None)
        made[name] = _section(own, scope)
    return made


def _stage_summary(answers: Answers, scope: Scope, traffic: Traffic, stage: int, window: Window) -> StageSummary:
    """A stage covers the requests scheduled in its window; the rates count everything that arrived in that window, from
    any stage."""
    requested = traffic.load.stages[stage].concurrency if stage < len(traffic.load.stages) else None
    measured = scope.measured & (answers.records.stage == stage)
    changed = replace(scope, window=window, requested=requested, measured=measured, level_since=None)
    section = structs.asdict(_section(answers, changed))
    return StageSummary(stage=stage, **section | {"outcomes": outcomes(answers, _chosen(answers, window))})


def _requested_concurrency(traffic: Traffic) -> int | None:
    """The concurrency of a closed loop, with stages the largest; None in an open loop."""
    if traffic.load.type == "stages":
        return max((stage.concurrency for stage in traffic.load.stages if stage.concurrency), default=None)
    return traffic.load.concurrency


def _loop(classes: list[Traffic]) -> Loop:
    kinds = {traffic.load.open_loop for traffic in classes}
    return "mixed" if len(kinds) > 1 else "open" if kinds == {True} else "closed"


def _chosen(answers: Answers, window: Window) -> Mask:
    return window.holds(answers.records.scheduled_at)


def _section(answers: Answers, scope: Scope) -> SummarySection:
    """All numbers of one window: measures of the requests scheduled in it, rates of what arrived in it."""
    window, limits = scope.window, scope.limits
    chosen = _chosen(answers, window)
    span, basis = span_of(answers, scope.measured), basis_for(answers, window, chosen)
    return SummarySection(
        loop=scope.loop,
        confidence=scope.confidence,
        headline=list(scope.headline),
        headline_quantiles=list(HEADLINE_QUANTILES),
        window=_window(answers, scope, chosen),
        measures=describe_all(answers, chosen, limits, scope.confidence),
        rates=rates(answers, window, span, basis),
        concurrency=concurrency(answers, window, span, basis, scope.requested),
        goodput=goodput(answers, chosen, window, span, basis, limits, scope.loop != "closed"),
        attainment=attainments(answers, chosen, limits, scope.loop != "closed", scope.confidence),
        stalls=stalls(answers, chosen, limits),
        structure=_structure(answers, chosen),
        outcomes=outcomes(answers, np.ones(len(answers), np.bool_)),
        failures=_failures(answers, chosen),
        cancelled_as_planned=_as_planned(answers),
        errors=errors(answers),
        tokens=tokens(answers, chosen),
        uncertainty=uncertainty(answers, chosen),
        sessions=sessions(answers, chosen, scope.confidence),
    )


def _window(answers: Answers, scope: Scope, chosen: Mask) -> WindowSummary:
    window, run = scope.window, scope.run
    return WindowSummary(
        start_s=(window.start_at - run.start_at) / 1e9,
        end_s=(window.end_at - run.start_at) / 1e9,
        length_s=window.length_s,
        run_s=run.length_s,
        rule=window.rule,
        requests=int(chosen.sum()),
        steady=steadiness(answers, window, scope.headline[0]),
        backlog=backlog(answers, window, scope.level_since),
    )


def outcomes(answers: Answers, chosen: Mask) -> dict[str, int]:
    """Requests by outcome, with a separate count per HTTP status (`status_429`)."""
    records = answers.records
    counts: Counter[str] = Counter({"ok": 0})
    status = records.outcome.mask("status") & chosen
    for code, n in zip(*np.unique(records.status[status], return_counts=True), strict=True):
        counts[f"status_{code}" if known(code) else "status"] += int(n)
    rest = chosen & ~records.outcome.mask("status")
    for outcome, n in records.outcome.take(np.flatnonzero(rest)).counts().items():
        counts[str(outcome)] += n
    return {"ok": counts.pop("ok"), **dict(sorted(counts.items()))}


def _failures(answers: Answers, chosen: Mask) -> Failures:
    """The failure rate and its parts among the window's requests; censored ones count as neither failed nor
    answered."""
    ok, failed = int((answers.ok & chosen).sum()), int((answers.failed & chosen).sum())
    decided = ok + failed
    by_outcome = outcomes(answers, chosen & answers.failed)
    by_outcome.pop("ok")
    return Failures(
        failure_rate=failed / decided if decided else None,
        failed=failed,
        first=_first_message(answers, chosen),
        censored=int((answers.censored & chosen).sum()),
        by_outcome={outcome: n / decided for outcome, n in by_outcome.items()},
    )


def _structure(answers: Answers, chosen: Mask) -> StructureSummary | None:
    """Complete answers that had to follow a given structure; None if there were none."""
    structure, complete = answers.records.structure, answers.ok & chosen
    names = ("valid", "invalid", "unchecked")
    valid, invalid, unchecked = (int((structure.mask(name) & complete).sum()) for name in names)
    if not valid + invalid + unchecked:
        return None
    share = valid / (valid + invalid) if valid + invalid else None
    return StructureSummary(valid=valid, invalid=invalid, unchecked=unchecked, share=share)


def _as_planned(answers: Answers) -> int | None:
    """How many requests the plan had us cancel; None if it cancels none."""
    cancelled = np.flatnonzero(answers.records.outcome.mask("cancelled"))
    texts = answers.records.error
    return sum(texts[int(at)] == AS_PLANNED for at in cancelled) or None


def _first_message(answers: Answers, chosen: Mask) -> str | None:
    """The error message of the first request that failed."""
    failed = np.flatnonzero(answers.failed & chosen)
    in_order = failed[np.argsort(answers.records.ended_at[failed], kind="stable")]
    texts = answers.records.error
    return next((text for text in (texts[int(at)] for at in in_order) if text is not None), None)


def errors(answers: Answers) -> list[ErrorCount]:
    """The most frequent error messages of the run."""
    texts = answers.records.error[~answers.ok]
    top = Counter(text for text in texts if text is not None and text != AS_PLANNED)
    ranked = sorted(top.items(), key=lambda item: (-item[1], item[0]))
    return [ErrorCount(message=message, count=n) for message, n in ranked[:TOP_ERRORS]]


def _instrument(whole: ClassSummary, answers: Answers, facts: Facts) -> Instrument:
    """Our own error at this run's load, of which each worker has its share: most streams in flight, and events in the
    busiest second (on average, if the window is shorter than a second)."""
    records, rate = answers.records, whole.rates["output_rate"]
    workers = max(1, len(set(records.shard.tolist())))
    tokens_per_s = rate.peak_1s or rate.window or 0.0
    total = int(answers.read_tokens.sum())
    events = max(int(records.events.sum()), int(records.read_offsets[-1]))
    streams = math.ceil((whole.concurrency.max or 0) / workers)
    events_per_s = tokens_per_s * events / total / workers if total else 0.0
    uncalibrated = Instrument(
        stamps=facts.stamps, calibrated=False, workers=workers, streams=streams, events_per_s=events_per_s
    )
    return with_error(uncalibrated, facts.calibration) if facts.calibration else uncalibrated


class SlowRequest(msgspec.Struct, frozen=True):
    """An answer that took long, in seconds; `at_s` is its scheduled time since the first arrival."""

    session: int
    turn: int
    traffic: str | None
    replica: str | None
    request_id: str | None
    at_s: float
    input_tokens: int | None
    e2e: float | None
    ttft: float | None
    ttft_scheduled: float | None
    tpot: float | None
    stall: float | None
    queue_wait: float | None
    send_delay: float | None
    output_tokens: float | None


def slowest(records: Records, n: int = 10) -> list[SlowRequest]:
    """The n answers with the longest end-to-end time, longest first: where to start looking in the server's log."""
    answers = Answers.of(records)
    names = ("e2e", "ttft", "ttft_scheduled", "tpot", "stall", "queue_wait", "send_delay", "output_tokens")
    columns = {name: request_values(name, answers) for name in names}
    time_s = np.where(np.isnan(columns["e2e"]) | ~answers.ok, -np.inf, columns["e2e"])
    order = np.argsort(-time_s, kind="stable")[: min(n, int(answers.ok.sum()))]
    return [_slow_request(answers, columns, int(i)) for i in order]


def _slow_request(answers: Answers, columns: Mapping[str, Floats], i: int) -> SlowRequest:
    record = answers.records.entries(i)
    start_at = int(answers.records.scheduled_at.min())
    values = {name: None if np.isnan(column[i]) else float(column[i]) for name, column in columns.items()}
    return SlowRequest(
        session=record["session"],
        turn=record["turn"],
        traffic=record["traffic"],
        replica=record["replica"],
        request_id=record["request_id"],
        at_s=(record["scheduled_at"] - start_at) / NANOSECONDS,
        input_tokens=record["input_tokens"],
        **values,
    )
