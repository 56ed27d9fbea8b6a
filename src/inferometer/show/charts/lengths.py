"""Latency against length: a sample of the requests as points, the median and p90 of all of them as lines."""

from typing import Any

import numpy as np

from inferometer.measure.quantiles import Floats
from inferometer.measure.registry import each_of
from inferometer.show.charts.chart import Cannot, Spec
from inferometer.show.charts.spec import colours, legend_columns, scale_of, tip, titled, view, with_unit, x, y
from inferometer.show.charts.subject import Subject
from inferometer.show.charts.thinning import sampled
from inferometer.vocabulary import MEASURES

POINTS = 700
BINS = 24
FEWEST = 5  # values in a bin that has a line
_LINES = {"p50": 0.5, "p90": 0.9}


def ttft_by_input(subject: Subject) -> Spec:
    return _against(subject, "ttft", "input_tokens", "input")


def e2e_by_output(subject: Subject) -> Spec:
    return _against(subject, "e2e", "output_tokens", "output")


def _against(subject: Subject, name: str, length: str, word: str) -> Spec:
    lengths, values = each_of(length, subject.answers), each_of(name, subject.answers)
    fine = subject.chosen & ~np.isnan(lengths) & ~np.isnan(values)
    lengths, values = lengths[fine], values[fine]
    if not len(values):
        raise Cannot(f"no answered request tells both {MEASURES[name].title} and its {word} tokens")
    if lengths.min() == lengths.max():
        raise Cannot(f"every request has the same {word} length, {lengths[0]:,.0f} tokens")
    scale = scale_of("s", [float(np.quantile(values, 0.99))])
    shown = sampled(values, POINTS)
    points = [{"length": lengths[at], "value": scale.shown(values[at])} for at in shown.tolist()]
    axes = {"x": x("length", f"{word} tokens"), "y": y("value", with_unit(MEASURES[name].title, scale.unit))}
    tips = [tip("length", f"{word} tokens", format_=",d"), tip("value", with_unit(MEASURES[name].title, scale.unit))]
    lines = [row | {"value": scale.shown(row["value"])} for row in _lines(lengths, values)]
    note = (
        ""
        if len(shown) == len(values)
        else f"; points are a sample of {len(shown):,} with the slowest, lines are of all"
    )
    title = titled(f"{MEASURES[name].title} against the length of the {word}", f"{len(values):,} requests{note}")
    return view(
        title,
        points,
        [
            {"mark": {"type": "point", "opacity": 0.35, "size": 22}, "encoding": axes | {"tooltip": tips}},
            {
                "data": {"values": lines},
                "mark": {"type": "line", "point": True},
                "encoding": axes
                | {
                    "color": colours("line", ["", *_LINES])
                    | {"legend": {"values": [*_LINES], "columns": legend_columns(_LINES)}}
                },
            },
        ],
    )


def _lines(lengths: Floats, values: Floats) -> list[dict[str, Any]]:
    """Quantiles of neighbours in length; the edges are quantiles too, so that every bin has its share."""
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, BINS + 1)))
    places = np.clip(np.searchsorted(edges, lengths, side="right") - 1, 0, max(len(edges) - 2, 0))
    rows = []
    for place in np.unique(places):
        inside = places == place
        if inside.sum() < FEWEST:
            continue
        middle = float(lengths[inside].mean())
        rows += [
            {"line": word, "length": middle, "value": float(np.quantile(values[inside], share))}
            for word, share in _LINES.items()
        ]
    return rows
