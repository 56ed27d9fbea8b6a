"""Judges the plan's limits on a summary: a failed request counts as infinitely late, so failures never make a limit
pass. Also the exit code of a run, from what happened, its verdict and its limits. Pure."""

import math
import signal
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from inferometer.errors import INVALID, LIMIT_FAILED, UNREACHABLE
from inferometer.measure.rates import judged_measure
from inferometer.plan.limit import Limit
from inferometer.plan.model import Plan
from inferometer.record.record import CENSORED
from inferometer.record.run import Run
from inferometer.record.summary import OPEN, Attainment, Ends, LimitResult, MeasureSummary, Summary, SummarySection
from inferometer.vocabulary import MEASURES, interval_text, percent_text, value_text


def judge_limits(limits: Iterable[Limit], summary: SummarySection) -> list[LimitResult]:
    """Judges each limit on a summary, or on one of its stages or traffic classes."""
    return [
        _scalar(limit, summary) if MEASURES[limit.measure].scalar else _per_request(limit, summary) for limit in limits
    ]


def judge_plan(plan: Plan, summary: Summary) -> list[LimitResult]:
    """Judges every class's limits on its own part of the summary; with several classes each result names its class."""
    if len(plan.classes) == 1:
        return judge_limits(plan.classes[0].limits, summary)
    return [
        replace(result, traffic=traffic.name)
        for traffic in plan.classes
        for result in judge_limits(traffic.limits, summary.traffic[traffic.name])
    ]


def _scalar(limit: Limit, summary: SummarySection) -> LimitResult:
    value = scalar_value(limit.measure, summary)
    if value is None:
        return _result(limit, None, None, _why_missing(limit, summary))
    return _result(limit, value, limit.met_by(value), _shown(value, limit.measure))


def _why_missing(limit: Limit, summary: SummarySection) -> str:
    phrase = MEASURES[limit.measure].phrase
    if limit.measure in ("goodput", "goodput_share") and summary.goodput is None:
        return f"{phrase} counts requests that meet a limit of their own: add one, such as ttft < 500ms"
    return f"{phrase} was not measured"


def scalar_value(name: str, summary: SummarySection) -> float | None:
    """A measure with a single value per run, from the place in the summary that holds it."""
    good, stalls = summary.goodput, summary.stalls
    places = {
        "concurrency": summary.concurrency.mean,
        "goodput": good.value if good else None,
        "goodput_share": good.share if good else None,
        "failure_rate": summary.failures.failure_rate,
        "stall_share": stalls.share if stalls else None,
        "structure_valid": summary.structure.share if summary.structure else None,
    }
    return places[name] if name in places else summary.rates[name].value


def _per_request(limit: Limit, summary: SummarySection) -> LimitResult:
    """Judges a statistic of a per-request measure; without a statistic, the worst request must meet the limit. A limit
    on a quantile is judged by intervals, any other statistic by its value."""
    name = judged_measure(limit.measure, summary.loop != "closed")
    stat = limit.stat or ("max" if limit.op[0] == "<" else "min")
    measure = _measure(name, summary)
    if measure is None:
        return _result(limit, None, None, f"{MEASURES[name].phrase} was not measured")
    value, (low, high), weak = _statistic(measure, stat, MEASURES[name].direction)
    attainment = _attainment(limit, summary)
    quantile = stat[0] == "p"
    if quantile:
        met = _decided(limit, value, (low, high), weak, attainment)
    else:
        met = None if value is None else limit.met_by(value)
    text = _value_text(name, limit, value, measure, weak, low)
    if quantile and attainment is not None and (weak or met is None):
        text += f"; {_kept_text(attainment)}"
    elif not weak:
        text += _close_call(limit, value, low, high)
    finite = value if value is not None and math.isfinite(value) else None
    needed = None if met is not None else attainment.needed if attainment is not None else weak
    return replace(_result(limit, finite, met, text), needed=needed)


def _attainment(limit: Limit, summary: SummarySection) -> Attainment | None:
    return next((attainment for attainment in summary.attainment if attainment.limit == str(limit)), None)


def _kept_text(attainment: Attainment) -> str:
    """`97.3% of requests met it (94.1..98.8%, 99% required)`; the interval is rounded outwards, so that it does not
    seem to include or exclude the requirement."""
    low, high = attainment.interval
    share, required = percent_text(attainment.share), percent_text(attainment.required)
    if low is None or high is None:
        return f"{share} of requests met it ({required} required)"
    between = interval_text((math.floor(1000 * low) / 1000, min(1.0, math.ceil(1000 * high) / 1000)), "share")
    return f"{share} of requests met it ({between}, {required} required)"


def certainly_missed(limit: Limit, summary: SummarySection) -> str | None:
    """A sentence if even the near end of an interval misses the limit, of the statistic or of the share of requests
    that met it; None if the limit may still be met."""
    name = judged_measure(limit.measure, summary.loop != "closed")
    measure = None if MEASURES[limit.measure].scalar or limit.stat is None else _measure(name, summary)
    if measure is None or limit.stat is None:
        return None
    _, (low, high), _ = _statistic(measure, limit.stat, MEASURES[name].direction)
    near = low if limit.op[0] == "<" else high
    if near is None or limit.met_by(near):
        return _missed_by_share(limit, summary)
    least = "at least" if limit.op[0] == "<" else "at most"
    return f"{limit} is missed: {MEASURES[name].phrase} {limit.stat} is {least} {_shown(near, name)}"


def _missed_by_share(limit: Limit, summary: SummarySection) -> str | None:
    attainment = _attainment(limit, summary)
    most = None if attainment is None else attainment.interval[1]
    if attainment is None or most is None or most >= attainment.required:
        return None
    share, required = percent_text(most), percent_text(attainment.required)
    return f"{limit} is missed: met by at most {share} of requests, {required} required"


def _measure(name: str, summary: SummarySection) -> MeasureSummary | None:
    if name.startswith("session_"):
        return summary.sessions.measures.get(name) if summary.sessions else None
    return summary.measures.get(name)


def _statistic(measure: MeasureSummary, stat: str, direction: str | None) -> tuple[float | None, Ends, int | None]:
    """Value, interval and, for a weak quantile, the count it needs; failures count as infinitely late."""
    adjusted = measure.adjusted
    if adjusted is not None and stat in ("mean", "max", "min", "std"):
        return _with_failures(measure, adjusted.failed, stat, direction), OPEN, None
    source = measure if adjusted is None else adjusted
    low, high = source.intervals.get(stat, OPEN)
    value, needed = source.statistics.get(stat), source.weak.get(stat)
    if value is None and adjusted is not None and stat in adjusted.statistics:
        return math.inf, (low, None if needed else math.inf), needed
    return value, (low, high), needed


def _with_failures(measure: MeasureSummary, failed: int, stat: str, direction: str | None) -> float | None:
    """A mean or maximum that includes an infinite value is infinite; in a speed a failure counts as 0."""
    if direction == "higher":
        count, mean = measure.count or 0, measure.mean or 0.0
        slow: dict[str, float | None] = {"min": 0.0, "mean": mean * count / (count + failed)}
        return slow.get(stat, measure[stat])
    return measure.min if stat == "min" and measure.min is not None else math.inf


def _decided(
    limit: Limit, value: float | None, interval: Ends, weak: int | None, attainment: Attainment | None
) -> bool | None:
    """What a quantile shows: a limit is broken if its near bound is beyond it, or if too few requests met it; it is met
    if enough requests met it, or if the whole interval does. A quantile computed by another tool has only the value."""
    near, far = interval if limit.op[0] == "<" else interval[::-1]
    if near is not None and not limit.met_by(near):
        return False
    least, most = attainment.interval if attainment is not None else OPEN
    if attainment is not None and least is not None and least >= attainment.required:
        return True
    if attainment is not None and most is not None and most < attainment.required:
        return False
    if weak or value is None:
        return None
    if far is None:
        return limit.met_by(value) if attainment is None else None
    return True if limit.met_by(far) else None


def _value_text(
    name: str, limit: Limit, value: float | None, measure: MeasureSummary, needed: int | None, low: float | None
) -> str:
    title = MEASURES[name].phrase
    what = f"{title} {limit.stat}" if limit.stat else f"the worst {title}"
    failed = measure.adjusted.failed if measure.adjusted else 0
    late = f", {failed} failed requests counted as infinitely late" if failed else ""
    if value is None:
        return f"{what} has no value{late}"
    if needed is None:
        return f"{what} is {_shown(value, name)}{late}"
    bound = f" (at least {_shown(low, name)})" if low is not None else ""
    return f"{what} is about {_shown(value, name)}{bound} in {measure.count:,} samples{late}"


def _close_call(limit: Limit, value: float | None, low: float | None, high: float | None) -> str:
    """The note for an interval that includes the limit: another run may end differently."""
    if value is None or low is None or high is None or limit.met_by(low) == limit.met_by(high):
        return ""
    return f"; its interval {_shown(low, limit.measure)}..{_shown(high, limit.measure)} lies on both sides of the limit"


def _shown(value: float | None, name: str) -> str:
    if value is not None and math.isinf(value):
        return "infinite"
    return value_text(value, MEASURES[name].unit)


def _result(limit: Limit, value: float | None, met: bool | None, text: str) -> LimitResult:
    status = {True: "met", False: "not met", None: "unclear"}[met]
    return LimitResult(limit=str(limit), value=value, met=met, text=f"{limit}: {status}, {text}")


LOST = ("server_lost", "worker_lost")  # codes of reasons: the run is only a part of what was planned
# Caused by the target: a limit broken because of it counts as broken. With any other cause of `invalid`, such as our
# own late sends, the limit may in truth be met.
BY_TARGET = frozenset({"failed_requests", "nothing_answered", "unbounded_queue", "ended_early"})


def exit_code(run: Run) -> int:
    """0: measured, and no limit is broken."""
    if run.state == "interrupted":
        return 128 + ended_by(run)
    if never_reached(run.summary.outcomes):
        return UNREACHABLE
    limits = run.summary.limits
    if any(_is_broken(limit, invalid_codes(run)) for limit in limits):
        return LIMIT_FAILED
    undecided = any(limit.met is None for limit in limits)
    return INVALID if undecided or run.state == "failed" or run.status == "invalid" else 0


def _is_broken(limit: LimitResult, codes: set[str]) -> bool:
    """Whether the limit is broken, and not because of us. Late sends do not make requests fail."""
    excused = codes & set(LOST) if limit.limit.startswith("failure_rate") else codes - BY_TARGET
    return limit.met is False and not excused


def invalid_codes(run: Run) -> set[str]:
    return {reason.code for reason in run.doubts if reason.status == "invalid"}


def ended_by(run: Run) -> int:
    """The number of the signal that interrupted a run."""
    names = (reason.signal for reason in run.doubts)
    return next((int(signal.Signals[name]) for name in names if name), int(signal.SIGINT))


def losses(run: Run) -> list[str]:
    """What was lost during the run, one sentence each: workers, and the server."""
    return [reason.text for reason in run.doubts if reason.code in LOST]


def never_reached(outcomes: Mapping[str, int]) -> bool:
    """Whether no server ever answered anything, not even an error. Requests that we ended ourselves do not count as
    evidence; a run without requests (offline, a benchmark) has no outcomes."""
    if not outcomes or outcomes.get("ok"):
        return False
    failed = {outcome: n for outcome, n in outcomes.items() if n and outcome not in CENSORED}
    return set(failed) == {"connect"} if failed else not sum(outcomes.values())
