"""Tokens asked, reported and counted, side by side: where they disagree, no number per token can be trusted."""

from typing import Any

import numpy as np

from inferometer.measure.answers import Answers
from inferometer.measure.quantiles import Ints
from inferometer.record.columns import Mask, known

ESTIMATED = ("events", "tokenizer", "length")  # ways of counting that are not the server's own


def tokens(answers: Answers, chosen: Mask) -> dict[str, Any]:
    """Of the chosen requests that were answered."""
    of = chosen & answers.ok
    records = answers.records
    return {
        "input": {
            "asked": _total(records.asked_input[of]),
            "reported": _total(records.input_tokens[of]),
            "asked_against_reported": _compared(records.asked_input[of], records.input_tokens[of]),
        },
        "output": {
            "asked": _total(records.asked_output[of]),
            "reported": _total(records.output_tokens[of]),
            "counted": int(answers.read_tokens[of].sum()),
            "asked_against_reported": _compared(records.asked_output[of], answers.output_tokens[of]),
            "reported_against_counted": _compared(records.output_tokens[of], answers.read_tokens[of]),
            "counted_by": _ways(answers, of),
            "estimated": int((records.tokens_by.mask(*ESTIMATED) & of).sum()),
        },
        "cached": _cached(records.cached_tokens[of], records.input_tokens[of]),
        "finish_reasons": _words(records.finish_reason.take(np.flatnonzero(of)).counts()),
    }


def _ways(answers: Answers, of: Mask) -> dict[str, int]:
    return _words(answers.records.tokens_by.take(np.flatnonzero(of)).counts())


def _words(counts: dict[str | None, int]) -> dict[str, int]:
    """Counts by word, in the order of the words; a missing one is said to be `none`."""
    return dict(sorted(("none" if word is None else word, n) for word, n in counts.items()))


def _total(column: Ints) -> int | None:
    there = column[known(column)]
    return int(there.sum()) if len(there) else None


def _compared(expected: Ints, found: Ints) -> dict[str, Any]:
    """Over the requests that have both: how many differ, how many have fewer, and by what share in all."""
    both = known(expected) & known(found)
    wanted, got = expected[both], found[both]
    total = int(wanted.sum())
    return {
        "requests": len(wanted),
        "differ": int((wanted != got).sum()),
        "fewer": int((got < wanted).sum()),
        "difference": (int(got.sum()) - total) / total if total else None,
    }


def _cached(cached: Ints, inputs: Ints) -> dict[str, Any]:
    both = known(cached) & known(inputs)
    total = int(inputs[both].sum())
    hits = int(cached[both].sum())
    return {"reported": hits if both.any() else None, "share": hits / total if total else None}
