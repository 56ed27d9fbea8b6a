"""How uncertain the stamps are, against what is reported from them."""

from typing import Any

import numpy as np

from inferometer.measure.answers import Answers, numbers
from inferometer.measure.gaps import gap_tally
from inferometer.measure.quantiles import Distribution, Floats, Ints, quantile, sample
from inferometer.measure.registry import REGISTRY, each_of
from inferometer.measure.tally import Tally, Values
from inferometer.record.columns import Mask, Reads
from inferometer.vocabulary import NANOSECONDS

LARGE_FOR_TTFT = 0.05  # of the median TTFT
LARGE_FOR_LAST = 0.50  # of the median time from the first read to the last, which TPOT is made of
LARGE_FOR_GAPS = 0.50  # of the median gap: a gap that may be half as long is no longer that gap

_NOTHING: dict[str, Any] = {"p50": None, "p99": None, "large": 0, "large_share": None}
_EXACT: dict[str, Any] = {"p50": 0.0, "p99": 0.0, "large": 0, "large_share": 0.0}


def uncertainty(answers: Answers, chosen: Mask) -> dict[str, Any]:
    """Slack of first reads, last reads and those between in seconds, and in how many it is large.

    The last token of an answer often comes in one read with the usage and the end that follow it, whatever the load:
    a read of several events, so uncertain by about a gap. That tells nothing of the other reads and stands apart.
    """
    of = chosen & answers.ok
    several = of & (answers.records.read_counts() > 1)
    decode_s = (answers.last_at - answers.first_at)[several] / NANOSECONDS
    last_s = numbers(answers.last_slack)[several] / NANOSECONDS
    middle = _middle_reads if answers.records.held else _streamed_reads
    return {
        "first_read": _described(answers.first_slack_s()[of], each_of("ttft", answers)[of], LARGE_FOR_TTFT),
        "read": middle(answers, of),
        "last_read": _described(last_s, decode_s, LARGE_FOR_LAST),
    }


def _middle_reads(answers: Answers, of: Mask) -> dict[str, Any]:
    """Of the reads between the first and the last, against the gaps."""
    inside, ends = of[answers.gaps.owner], _end_answers(answers.gaps.owner)
    return _described(_slack_of_gaps(answers)[inside & ~ends], answers.gaps.length_s[inside], LARGE_FOR_GAPS)


def _streamed_reads(answers: Answers, of: Mask) -> dict[str, Any]:
    """The same where the reads are not held in memory."""
    slack = Tally(lambda: map(_slack_between, answers.records.read_batches(of, ("read_slack",))))
    if not len(slack):
        return dict(_NOTHING)
    if slack.largest == 0.0 == slack.least:
        return dict(_EXACT)
    gaps = gap_tally(answers, of, REGISTRY["icl"])
    half = len(gaps) // 2
    middles = {half + 1} if len(gaps) % 2 else {half, half + 1}
    large = LARGE_FOR_GAPS * float(np.mean([gaps.ranked(rank) for rank in middles]))
    above = len(slack) - slack.count_up_to(large, "right")
    return _result(slack, above, above / len(slack))


def _slack_between(reads: Reads) -> Values:
    """Of all reads but the first and the last of each request."""
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


def _described(slack_s: Floats, value_s: Floats, large: float) -> dict[str, Any]:
    slack_s, value_s = slack_s[~np.isnan(slack_s)], value_s[~np.isnan(value_s)]
    if not len(slack_s) or not len(value_s):
        return dict(_NOTHING)
    if not slack_s.any():  # as in virtual time
        return dict(_EXACT)
    above: Mask = slack_s > large * float(np.median(value_s))
    return _result(sample(slack_s), int(above.sum()), float(above.mean()))


def _result(of: Distribution, large: int, share: float) -> dict[str, Any]:
    return {"p50": quantile(of, 0.5), "p99": quantile(of, 0.99), "large": large, "large_share": share}
