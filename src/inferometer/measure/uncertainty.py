"""How uncertain the stamps are, against what is reported from them."""

from typing import Any

import numpy as np

from inferometer.measure.answers import Answers
from inferometer.measure.quantiles import Floats, Ints, quantile, sample
from inferometer.measure.registry import each_of
from inferometer.record.columns import Mask
from inferometer.vocabulary import NANOSECONDS

LARGE_FOR_TTFT = 0.05  # of the median TTFT
LARGE_FOR_LAST = 0.50  # of the median time from the first read to the last, which TPOT is made of
LARGE_FOR_GAPS = 0.50  # of the median gap: a gap that may be half as long is no longer that gap


def uncertainty(answers: Answers, chosen: Mask) -> dict[str, Any]:
    """Slack of first reads, last reads and those between in seconds, and in how many it is large.

    The last token of an answer often comes in one read with the usage and the end that follow it, whatever the load:
    a read of several events, so uncertain by about a gap. That tells nothing of the other reads and stands apart.
    """
    of = chosen & answers.ok
    first_s = answers.first_slack_s()
    later_s = _slack_of_gaps(answers)
    inside = of[answers.gaps.owner]
    ends = _end_answers(answers.gaps.owner)
    gaps_s = answers.gaps.length_s[inside]
    decode_s = (answers.last_at - answers.first_at)[of & (answers.records.read_counts() > 1)] / NANOSECONDS
    return {
        "first_read": _described(first_s[of], each_of("ttft", answers)[of], LARGE_FOR_TTFT),
        "read": _described(later_s[inside & ~ends], gaps_s, LARGE_FOR_GAPS),
        "last_read": _described(later_s[inside & ends], decode_s, LARGE_FOR_LAST),
    }


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
        return {"p50": None, "p99": None, "large": 0, "large_share": None}
    if not slack_s.any():  # as in virtual time
        return {"p50": 0.0, "p99": 0.0, "large": 0, "large_share": 0.0}
    of = sample(slack_s)
    above: Mask = slack_s > large * float(np.median(value_s))
    return {
        "p50": quantile(of, 0.5),
        "p99": quantile(of, 0.99),
        "large": int(above.sum()),
        "large_share": float(above.mean()),
    }
