"""Requests as swim lanes: a line each, from when it was due to its last token."""

from typing import Any

import numpy as np

from inferometer.record.columns import Ints, known
from inferometer.show.charts.chart import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    Cannot,
    Spec,
    meanings,
    tip,
    titled,
    tooltip,
    view,
    x,
)
from inferometer.show.charts.subject import ChartedRun
from inferometer.vocabulary import NANOSECONDS

LANES = 160
PARTS = {"waiting to be sent": GREY, "until the first token": BLUE, "until the last token": GREEN, "failed": ORANGE}


def requests(subject: ChartedRun) -> Spec:
    """Neighbours in time, around the middle of the window: of a long run all would be too thin to see."""
    answers = subject.answers
    sent = np.flatnonzero(known(answers.records.sent_at))
    if not len(sent):
        raise Cannot("no request was sent")
    chosen = _around_middle(subject, sent)
    rows = [part for lane, at in enumerate(chosen.tolist()) for part in _parts(subject, lane, at)]
    note = "" if len(chosen) == len(sent) else f"{len(chosen)} of {len(sent):,}, around the middle of the window"
    title = titled("Timeline of requests: waiting, first token, last token", note)
    bars = {
        "mark": {"type": "bar", "height": {"band": 0.75}, "clip": True},
        "encoding": {
            "x": x("from", "time since the start (s)", scale={"zero": False, "nice": False}),
            "x2": {"field": "to"},
            "y": {"field": "lane", "type": "ordinal", "axis": None, "title": None},
            "color": meanings("part", PARTS, {row["part"] for row in rows}),
            "tooltip": tooltip(
                tip("request", "session.turn", "nominal"),
                tip("part", "part", "nominal"),
                tip("took", "took (s)"),
                tip("from", "from (s)"),
                tip("tokens", "output tokens"),
            ),
        },
    }
    return view(title, rows, [bars], height=int(np.clip(3 * len(chosen), 120, 420)))


def _around_middle(subject: ChartedRun, sent: Ints) -> Ints:
    at = subject.answers.records.sent_at[sent]
    order = np.argsort(at, kind="stable")
    middle_at = (subject.window.start_at + subject.window.end_at) // 2
    middle = int(np.searchsorted(at[order], middle_at))
    start = max(0, min(middle - LANES // 2, len(sent) - LANES))
    chosen: Ints = sent[order[start : start + LANES]]
    return chosen


def _parts(subject: ChartedRun, lane: int, at: int) -> list[dict[str, Any]]:
    answers, records = subject.answers, subject.answers.records
    due, sent, first, last, ended = (
        int(column[at])
        for column in (records.scheduled_at, records.sent_at, answers.first_at, answers.last_at, records.ended_at)
    )
    tokens = int(answers.output_tokens[at]) if known(answers.output_tokens)[at] else None
    name = f"{records.session[at]}.{records.turn[at]}"
    end = ended if known(np.array([ended]))[0] else subject.end_at
    if not answers.ok[at]:
        spans = [("waiting to be sent", due, sent), ("failed", sent, end)]
    elif not known(np.array([first]))[0]:
        spans = [("waiting to be sent", due, sent), ("until the last token", sent, end)]
    else:
        spans = [("waiting to be sent", due, sent), ("until the first token", sent, first)]
        spans += [("until the last token", first, max(last, first))]
    return [
        {
            "lane": lane,
            "request": name,
            "part": part,
            "from": (start - subject.start_at) / NANOSECONDS,
            "to": (stop - subject.start_at) / NANOSECONDS,
            "took": (stop - start) / NANOSECONDS,
            "tokens": tokens,
        }
        for part, start, stop in spans
        if stop > start
    ]
