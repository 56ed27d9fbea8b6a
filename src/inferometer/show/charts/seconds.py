"""Latency of each second of a run: against what was completed in it, and over time."""

from itertools import pairwise
from typing import Any

import numpy as np

from inferometer.measure.quantiles import Floats, Ints
from inferometer.measure.registry import each_of
from inferometer.record.columns import known
from inferometer.show.charts.chart import Cannot, Spec
from inferometer.show.charts.spec import colours, scale_of, tip, titled, toggled, view, with_unit, x, y
from inferometer.show.charts.subject import Subject
from inferometer.vocabulary import NANOSECONDS

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
MOST = 600  # points of a series


def throughput_latency(subject: Subject) -> Spec:
    """A point for each second and quantile: requests that were completed in it, and their TTFT."""
    answers = subject.answers
    ended = answers.records.ended_at
    second, pieces = _cut(subject, ended, 1.0)
    rows = _quantile_rows(second, each_of("ttft", answers), answers.ok & known(ended), pieces)
    if not rows:
        raise Cannot("no request was answered")
    for row in rows:
        row["rate"] = row.pop("count") / pieces[1]
    length = f"{pieces[1]:g} s" if pieces[1] != 1 else "second"
    title = titled("TTFT against requests completed per second", f"a point for each {length} and quantile")
    return _quantile_view(title, rows, x("rate", "requests completed (1/s)"), "point", tip("rate", "requests/s"))


def latency_over_time(subject: Subject) -> Spec:
    answers = subject.answers
    sent = answers.records.scheduled_at
    length = max(1.0, (subject.end_at - subject.start_at) / NANOSECONDS / 120)
    piece, pieces = _cut(subject, sent, length)
    rows = _quantile_rows(piece, each_of("ttft", answers), answers.ok & known(sent), pieces)
    if not rows:
        raise Cannot("no request was answered")
    for row in rows:
        row["at"] = (row.pop("piece") + 0.5) * pieces[1]
    title = titled("TTFT over the time of the run", f"quantiles of what was due in each {pieces[1]:.3g} s")
    return _quantile_view(title, rows, x("at", "time since the start (s)"), "line", tip("at", "time (s)"))


def _cut(subject: Subject, at: Ints, length_s: float) -> tuple[Ints, tuple[int, float]]:
    """The piece of the run that each instant lies in, how many there are, and how long each is."""
    whole_s = max((subject.end_at - subject.start_at) / NANOSECONDS, 1e-9)
    length_s = max(length_s, float(np.ceil(whole_s / MOST)))
    count = max(1, int(np.ceil(whole_s / length_s)))
    piece = np.where(known(at), (at - subject.start_at) // round(length_s * NANOSECONDS), -1)
    return np.minimum(piece, count - 1), (count, length_s)


def _quantile_rows(piece: Ints, values: Floats, fine: Any, pieces: tuple[int, float]) -> list[dict[str, Any]]:
    fine = fine & ~np.isnan(values) & (piece >= 0)
    order = np.argsort(piece[fine], kind="stable")
    places, ordered = piece[fine][order], values[fine][order]
    rows = []
    edges = np.searchsorted(places, np.arange(pieces[0] + 1))
    for place, (start, end) in enumerate(pairwise(edges.tolist())):
        if end > start:
            found = np.quantile(ordered[start:end], list(QUANTILES.values()))
            rows += [
                {"piece": place, "count": int(end - start), "quantile": word, "value": float(value)}
                for word, value in zip(QUANTILES, found, strict=True)
            ]
    return rows


def _quantile_view(title: Any, rows: list[dict[str, Any]], across: Spec, mark: str, more: Spec) -> Spec:
    scale = scale_of("s", [row["value"] for row in rows])
    for row in rows:
        row["value"] = scale.shown(row["value"])
    params, opacity = toggled("quantile")
    looks: Spec = {"type": "point", "size": 30} if mark == "point" else {"type": "line", "point": {"size": 14}}
    axis = with_unit("TTFT", scale.unit)
    layer = {
        "params": params,
        "mark": looks,
        "encoding": {
            "x": across,
            "y": y("value", axis),
            "color": colours("quantile", [*QUANTILES]),
            "opacity": opacity,
            "tooltip": [more, tip("quantile", "quantile", "nominal"), tip("value", axis)],
        },
    }
    return view(title, rows, [layer])
