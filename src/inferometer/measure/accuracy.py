"""How exact the numbers of a run are: whether token counts add up, how uncertain the read times are, how far late sends
and that uncertainty may shift each number, and the instrument's own error from this machine's calibration."""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import TypeVar

import numpy as np
from msgspec import structs

from inferometer.measure.describe import share_of
from inferometer.measure.inputs import Answers, numbers
from inferometer.measure.quantiles import Distribution, Floats, Ints, middle_of, quantile, sample, values_at
from inferometer.measure.registry import REGISTRY, request_values
from inferometer.measure.tally import Tally, Values, gap_tally
from inferometer.record.columns import Mask, Reads, known
from inferometer.record.environment import CalibrationPoint, Curve
from inferometer.record.summary import (
    CachedTokens,
    Clocks,
    Difference,
    FirstTokens,
    InputTokens,
    Instrument,
    OutputTokens,
    Slack,
    Summary,
    SummarySection,
    Tokens,
    Uncertainty,
)
from inferometer.vocabulary import NANOSECONDS

# -- tokens ----------------------------------------------------------------------------------------------------------

LONGER = 16  # tokens: shorter answers may fit into an event or two, with speculative decoding
FEW_EVENTS = 4
ESTIMATED = ("events", "tokenizer", "length")  # ways of counting tokens that do not come from the server
MOST_NAMED = 32  # finish reasons; servers have a handful


def tokens(answers: Answers, chosen: Mask) -> Tokens:
    """Token counts of the chosen requests that were answered."""
    of = chosen & answers.ok
    records = answers.records
    inputs, outputs = records.requested_input[of], records.requested_output[of]
    return Tokens(
        input=InputTokens(
            requested=_total(inputs),
            reported=_total(records.input_tokens[of]),
            requested_against_reported=_compared(inputs, records.input_tokens[of]),
        ),
        output=OutputTokens(
            requested=_total(outputs),
            reported=_total(records.output_tokens[of]),
            counted=int(answers.read_tokens[of].sum()),
            requested_against_reported=_compared(outputs, answers.output_tokens[of]),
            reported_against_counted=_compared(records.output_tokens[of], answers.read_tokens[of]),
            counted_by=_ways(answers, of),
            estimated=int((records.tokens_by.mask(*ESTIMATED) & of).sum()),
        ),
        cached=_cached(records.cached_tokens[of], records.input_tokens[of]),
        finish_reasons=_named_counts(records.finish_reason.take(np.flatnonzero(of)).counts()),
        in_one_piece=_in_one_piece(answers, of),
    )


def _in_one_piece(answers: Answers, of: Mask) -> float | None:
    """The share of answers in which a single event carried all tokens. A network may merge a whole stream into one
    read, but it still has many events: besides the one with the text there may be others with the role, the usage and
    the end."""
    events = answers.records.events
    longer = of & (answers.output_tokens >= LONGER) & (events > 0)
    if not longer.any():
        return None
    return float((longer & (answers.first_tokens == answers.read_tokens) & (events <= FEW_EVENTS)).sum() / longer.sum())


def _ways(answers: Answers, of: Mask) -> dict[str, int]:
    return _named_counts(answers.records.tokens_by.take(np.flatnonzero(of)).counts())


def _named_counts(counts: dict[str | None, int]) -> dict[str, int]:
    """Counts by text, in alphabetical order; a missing text is counted as `none`. A server may write a different text
    into every answer, so the rarest are counted together as `other`."""
    named = {"none" if label is None else label: n for label, n in counts.items()}
    frequent = sorted(named, key=lambda label: (-named[label], label))[:MOST_NAMED]
    rare = sum(named.values()) - sum(named[label] for label in frequent)
    kept = {label: named[label] for label in frequent}
    if rare:
        kept["other"] = kept.get("other", 0) + rare
    return dict(sorted(kept.items()))


def _total(column: Ints) -> int | None:
    there = column[known(column)]
    return int(there.sum()) if len(there) else None


def _compared(expected: Ints, actual: Ints) -> Difference:
    """Compares requests that have both counts: how many differ, how many have fewer tokens, and by which share in
    total."""
    both = known(expected) & known(actual)
    wanted, got = expected[both], actual[both]
    total = int(wanted.sum())
    return Difference(
        requests=len(wanted),
        differ=int((wanted != got).sum()),
        fewer=int((got < wanted).sum()),
        difference=(int(got.sum()) - total) / total if total else None,
    )


def _cached(cached: Ints, inputs: Ints) -> CachedTokens:
    both = known(cached) & known(inputs)
    total = int(inputs[both].sum())
    hits = int(cached[both].sum())
    return CachedTokens(reported=hits if both.any() else None, share=hits / total if total else None)


# -- uncertainty -----------------------------------------------------------------------------------------------------

LARGE_FOR_TTFT = 0.05  # of the median TTFT
LARGE_FOR_LAST = 0.50  # of the median time from the first read to the last, from which TPOT is computed
LARGE_FOR_GAPS = 0.50  # of the median gap: a gap that may be half as long is no longer that gap

_NOTHING = Slack(p50=None, p99=None, large=0, large_share=None)
_EXACT = Slack(p50=0.0, p99=0.0, large=0, large_share=0.0)


def uncertainty(answers: Answers, chosen: Mask) -> Uncertainty:
    """Slack of first reads, last reads and the reads between them in seconds, and how many of them have a large slack.
    The last token of an answer often arrives in one read with the usage and the end that follow it, whatever the load:
    a read of several events, so uncertain by about a gap. It tells nothing about the other reads and is counted
    separately."""
    of = chosen & answers.ok
    several = of & (answers.records.read_counts() > 1)
    decode_s = (answers.last_at - answers.first_at)[several] / NANOSECONDS
    last_s = numbers(answers.last_slack)[several] / NANOSECONDS
    middle = _middle_reads if answers.records.held else _streamed_reads
    read = middle(answers, of)
    return Uncertainty(
        first_read=_described(answers.first_slack_s()[of], request_values("ttft", answers)[of], LARGE_FOR_TTFT),
        read=read,
        last_read=_described(last_s, decode_s, LARGE_FOR_LAST),
        moves=reading_moves(answers, chosen, read),
        first_tokens=_first_tokens(answers.first_tokens[of]),
    )


def _first_tokens(tokens: Ints) -> FirstTokens:
    tokens = tokens[known(tokens)]
    several = int((tokens > 1).sum())
    if not len(tokens):
        return FirstTokens(several=0, several_share=None, most=None)
    return FirstTokens(several=several, several_share=several / len(tokens), most=int(tokens.max()))


def _middle_reads(answers: Answers, of: Mask) -> Slack:
    """Slack of the reads between the first and the last, compared with the gaps."""
    between, length_s = ~_end_answers(answers.gaps.owner), answers.gaps.length_s
    if not of.all():
        inside = of[answers.gaps.owner]
        between, length_s = between & inside, length_s[inside]
    return _described(_slack_of_gaps(answers)[between], length_s, LARGE_FOR_GAPS)


def _streamed_reads(answers: Answers, of: Mask) -> Slack:
    """The same when the reads are not held in memory."""
    slack = Tally(lambda: map(_slack_between, answers.records.read_batches(of, ("read_slack",))))
    if not len(slack):
        return _NOTHING
    if slack.largest == 0.0 == slack.least:
        return _EXACT
    gaps = gap_tally(answers, of, REGISTRY["icl"])
    half = len(gaps) // 2
    middles = {half + 1} if len(gaps) % 2 else {half, half + 1}
    large = LARGE_FOR_GAPS * float(np.mean([gaps.ranked(rank) for rank in middles]))
    above = len(slack) - slack.count_up_to(large, "right")
    return _result(slack, above, above / len(slack))


def _slack_between(reads: Reads) -> Values:
    """Slack of all reads except the first and the last of each request."""
    between: Mask = np.ones(len(reads.slack), np.bool_)
    has = reads.counts() > 0
    between[reads.offsets[:-1][has]] = between[reads.offsets[1:][has] - 1] = False
    return Values(reads.slack[between] / NANOSECONDS)


def _end_answers(owner: Ints) -> Mask:
    """Which gaps are the last of their request."""
    last: Mask = np.ones(len(owner), np.bool_)
    last[:-1] = owner[1:] != owner[:-1]
    return last


def _slack_of_gaps(answers: Answers) -> Floats:
    """Slack of the read that ended each gap, in the order of the gaps."""
    records = answers.records
    later: Mask = np.ones(len(records.read_at), np.bool_)
    later[_first_reads(answers)] = False
    return records.read_slack[later] / NANOSECONDS


def _first_reads(answers: Answers) -> Ints:
    return answers.records.read_offsets[:-1][answers.records.read_counts() > 0]


def _described(slack_s: Floats, value_s: Floats, large: float) -> Slack:
    slack_s, value_s = _defined(slack_s), _defined(value_s)
    if not len(slack_s) or not len(value_s):
        return _NOTHING
    if not slack_s.any():  # as in virtual time
        return _EXACT
    above = int(np.count_nonzero(slack_s > large * middle_of(value_s)))
    p50, p99 = values_at(slack_s, (0.5, 0.99))
    return Slack(p50=p50, p99=p99, large=above, large_share=above / len(slack_s))


def _defined(values: Floats) -> Floats:
    missing = np.isnan(values)
    return values[~missing] if missing.any() else values


def _result(of: Distribution, large: int, share: float) -> Slack:
    return Slack(p50=quantile(of, 0.5), p99=quantile(of, 0.99), large=large, large_share=share)


# -- moves -----------------------------------------------------------------------------------------------------------

STATS = ("mean", "p50", "p90", "p99")
SHARES = {"p50": 0.5, "p90": 0.1, "p99": 0.01}  # share of reads that have to be off before the quantile may be


def lateness_moves(answers: Answers, chosen: Mask, open_loop: bool) -> dict[str, float]:
    """By how many seconds late sends increase the latencies counted from the scheduled time. In a closed loop: by which
    share they lower the rates, because a slot stays empty for as long as we are late."""
    of = chosen & answers.ok
    delay_s = np.nan_to_num(request_values("send_delay", answers))
    if open_loop:
        return {
            key: by
            for name in ("ttft_scheduled", "e2e_scheduled")
            for key, by in _differences(
                name, request_values(name, answers)[of], (request_values(name, answers) - delay_s)[of]
            ).items()
        }
    stay_s, late_s = request_values("e2e", answers)[of], delay_s[of]
    known = ~np.isnan(stay_s)
    total = float(stay_s[known].sum() + late_s[known].sum())
    share = float(late_s[known].sum()) / total if total > 0 else 0.0
    return {"request_rate": share, "output_rate": share}


def reading_moves(answers: Answers, chosen: Mask, later: Slack) -> dict[str, float]:
    """By how many seconds latencies may be off because a token may have arrived before the read that returned it."""
    of = chosen & answers.ok
    first_s, last_s = answers.first_slack_s(), numbers(answers.last_slack) / NANOSECONDS
    ttft, tpot, e2e = (request_values(name, answers) for name in ("ttft", "tpot", "e2e"))
    with np.errstate(divide="ignore", invalid="ignore"):
        decode_s = (answers.last_at - answers.first_at) / NANOSECONDS
        per_token = np.where(tpot > 0, tpot / decode_s, np.nan)  # 1 / tokens after the first read
    moves = _differences("ttft", ttft[of], (ttft - first_s)[of])
    moves |= _differences("e2e", e2e[of], (e2e - last_s)[of])
    earlier = _differences("tpot", tpot[of], (tpot - last_s * per_token)[of])
    later_first = _differences("tpot", (tpot + first_s * per_token)[of], tpot[of])
    moves |= {key: max(earlier.get(key, 0.0), later_first.get(key, 0.0)) for key in {*earlier, *later_first}}
    sizes = {"p50": later.p50, "p90": later.p99, "p99": later.p99}
    for stat, share in SHARES.items():
        size = sizes[stat]
        if size and (later.large_share or 0.0) > share:
            moves[f"itl.{stat}"] = size
    return {key: by for key, by in moves.items() if by > 0}


def _differences(name: str, values: Floats, without: Floats) -> dict[str, float]:
    """How much larger each statistic is with the cause than without it."""
    known = ~np.isnan(values) & ~np.isnan(without)
    if not known.any():
        return {}
    one, other = values[known], without[known]
    if bool((one == other).all()):
        return {}
    with_cause, free = sample(one), sample(other)
    differences = {f"{name}.mean": float(one.mean() - other.mean())}
    for stat in STATS[1:]:
        share = share_of(stat)
        differences[f"{name}.{stat}"] = (quantile(with_cause, share) or 0.0) - (quantile(free, share) or 0.0)
    return differences


# -- calibration -----------------------------------------------------------------------------------------------------

ERRORS = ("ttft_error_p50", "ttft_error_p99", "read_error_p50", "read_error_p99", "cpu_s_per_million")
_SMALLEST = 1e-9  # seconds: the clock's own step; an error of 0 has no logarithm

Points = list[CalibrationPoint]


def with_error(of: Instrument, curve: Curve) -> Instrument:
    """The expected errors in seconds: interpolated along events/s at the two nearest numbers of streams, then between
    those two. Below the ends of the curve the error of the nearest end applies; above them it grows in proportion to
    the load and is marked `extrapolated`. Without a suitable point the instrument counts as not calibrated."""
    points = _points(curve, of.stamps)
    if not points:
        return of
    errors: dict[str, float | None] = {}
    beyond = False
    for name in ERRORS:
        fitting = [point for point in points if getattr(point, name) is not None]
        value, outside = _looked_up(fitting, name, of.streams, of.events_per_s) if fitting else (None, False)
        errors[name], beyond = value, beyond or outside
    ceiling = None if curve.ceiling_is_at_least else curve.ceiling_events_per_s
    share = of.events_per_s / ceiling if ceiling else None
    return structs.replace(of, calibrated=True, **errors, ceiling_share=share, extrapolated=beyond)


def _points(curve: Curve, stamps: str | None) -> Points:
    """The points made with the same kind of timestamps, if the curve has any; otherwise all points."""
    points = [point for point in curve.points if point.streams > 0 and point.events_per_s > 0]
    return [point for point in points if stamps is None or point.stamps in (None, stamps)] or points


def _looked_up(points: Points, name: str, streams: float, events_per_s: float) -> tuple[float, bool]:
    levels: dict[float, list[tuple[float, float]]] = {}
    for point in points:
        levels.setdefault(float(point.streams), []).append((point.events_per_s, getattr(point, name)))
    nearest = _around(sorted(levels), streams)
    along = {level: _along(levels[level], events_per_s) for level in nearest}
    value, outside = _along([(level, along[level][0]) for level in nearest], streams)
    return value, outside or along[nearest[-1]][1]  # a load tried with more streams also holds for fewer


def _around(levels: list[float], x: float) -> list[float]:
    """The one or two levels between which x lies."""
    below = [level for level in levels if level <= x][-1:]
    above = [level for level in levels if level > x][:1] if below != [x] else []
    return below + above


def _along(points: list[tuple[float, float]], x: float) -> tuple[float, bool]:
    """y at x by log-log interpolation, and whether x lies beyond the last point."""
    points = sorted(points)
    (first_x, first_y), (last_x, last_y) = points[0], points[-1]
    if x <= first_x:
        return first_y, False
    if x > last_x:
        return last_y * x / last_x, True
    (x0, y0), (x1, y1) = next(pair for pair in pairwise(points) if x <= pair[1][0])
    share = math.log(x / x0) / math.log(x1 / x0) if x1 > x0 else 1.0
    return math.exp((1 - share) * _log(y0) + share * _log(y1)), False


def _log(y: float) -> float:
    return math.log(max(y, _SMALLEST))


Part = TypeVar("Part", bound=SummarySection)


def with_clock_errors(summary: Summary, clocks: Clocks, late_starts_s: Iterable[float] = ()) -> Summary:
    """The summary with its clocks, and with the clock error in every part of it; unknown stays unknown. A worker
    measures how late it started with its own clock, so that figure is as uncertain as the clock."""
    off_s = clocks.uncertainty_s
    if off_s is None:
        return structs.replace(summary, clocks=clocks)
    known = structs.replace(
        summary, clocks=structs.replace(clocks, start_spread_s=max(late_starts_s, default=0.0) + off_s)
    )
    if not off_s:
        return known
    return structs.replace(
        _with_errors(known, off_s),
        stages=[_with_errors(stage, off_s) for stage in known.stages],
        traffic={
            name: structs.replace(
                _with_errors(part, off_s), stages=[_with_errors(stage, off_s) for stage in part.stages]
            )
            for name, part in known.traffic.items()
        },
    )


def _with_errors(part: Part, off_s: float) -> Part:
    window, concurrency = part.window, part.concurrency
    share = 2 * off_s / window.length_s if window.length_s else None

    def of(value: float | None) -> float | None:
        return None if value is None or share is None else value * share

    return structs.replace(
        part,
        window=structs.replace(window, clock_error_s=off_s),
        rates={name: structs.replace(rate, clock_error=of(rate.value)) for name, rate in part.rates.items()},
        concurrency=structs.replace(concurrency, clock_error=of(concurrency.mean)),
    )
