"""Measures of whole sessions: turns done, time of the session, time to its last answer."""

from typing import Any

import numpy as np

from inferometer.measure.answers import Answers, seconds_between
from inferometer.measure.describe import ALWAYS, described
from inferometer.measure.quantiles import Ints
from inferometer.measure.registry import REGISTRY
from inferometer.record.columns import Mask


def sessions(answers: Answers, chosen: Mask, confidence: float) -> dict[str, Any] | None:
    """Of sessions whose first turn is among the chosen; None when every session has one turn."""
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
    return {"count": int(begun.sum()), "complete": int(complete.sum())} | {
        name: described(value, REGISTRY[name], ALWAYS, confidence) for name, value in values.items()
    }


def _ends(answers: Answers) -> tuple[Ints, Ints, Ints]:
    """For each session, in order of its start: index of its first and last turn, and answered turns."""
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
