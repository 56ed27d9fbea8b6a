"""Distributions of a latency, for one run and for several, and latency against length; with fewer points that look the
same."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypedDict

import numpy as np

from inferometer.measure.registry import request_values
from inferometer.measure.values import quantities
from inferometer.record.columns import Floats, Ints
from inferometer.record.run import Run
from inferometer.show.charts.chart import (
    LETTER,
    WIDTH,
    Cannot,
    ChartedRun,
    Scale,
    Spec,
    colours,
    headlined,
    labels_of,
    legend_columns,
    rules,
    scale_of,
    tip,
    titled,
    toggled,
    tooltip,
    view,
    with_unit,
    x,
    y,
)
from inferometer.vocabulary import MEASURES, duration_text, number_text

# -- thinning --------------------------------------------------------------------------------------------------------

PIXELS = 400  # columns of a chart that can be distinguished, two values each


def quantile_grid(values: Floats, weights: Floats | None = None, most: int = 200) -> tuple[Floats, Floats]:
    """Shares and values of a distribution: equal steps, and finer ones towards the tail, as far as there are values."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    mass = np.ones(len(ordered)) if weights is None else weights[order]
    upto = np.cumsum(mass) / mass.sum()
    tail = 1 - np.geomspace(0.05, max(1e-5, 1 / (len(ordered) + 1)), most // 4)
    shares = np.unique(np.concatenate((np.linspace(0, 1, most - len(tail)), tail)))
    at = np.minimum(np.searchsorted(upto, shares - 1e-12), len(ordered) - 1)
    return shares, ordered[at]


def thinned(at: Ints, values: Floats, most: int = PIXELS) -> tuple[Ints, Floats]:
    """The smallest and the largest value of each pixel, in the order of their occurrence: no spike is lost."""
    if len(at) <= 2 * most:
        return at, values
    edges = np.linspace(0, len(at), most + 1).astype(np.int64)
    chosen: list[int] = []
    for start, end in pairwise(edges.tolist()):
        part = values[start:end]
        chosen += sorted({int(start + part.argmin()), int(start + part.argmax())})
    index = np.array(chosen, np.int64)
    return at[index], values[index]


def sampled(values: Floats, most: int) -> Ints:
    """Indices of at most this many values: every k-th, and always the largest few."""
    n = len(values)
    if n <= most:
        return np.arange(n)
    few = max(1, most // 20)
    largest = np.argpartition(values, n - few)[n - few :]
    even = np.linspace(0, n - 1, most - few).astype(np.int64)
    return np.unique(np.concatenate((even, largest)))


# -- distributions ---------------------------------------------------------------------------------------------------

BINS = 40
MARKED = ("p50", "p90", "p99")
_ROOM = 2.5  # times the width of a label in a picture: on a phone a chart has 250 of its 640 pixels
_TAIL = 4  # a histogram this many times longer than its p99 is cut, with a note


def cdf_of(name: str) -> Callable[[ChartedRun], Spec]:
    """The chart of one measure's cumulative distribution."""
    of = "tokens" if name == "itl" else "requests"

    def cdf(subject: ChartedRun) -> Spec:
        measure = subject.headlined(name)
        values, weights = subject.values(measure)
        shares, grid = quantile_grid(values, weights)
        scale = scale_of("s", [_p99(values, weights)])
        rows = [{"share": share, "value": scale.shown(value)} for share, value in zip(shares, grid, strict=True)]
        label = MEASURES[measure].title
        line = {
            "mark": {"type": "line", "interpolate": "step-before", "clip": True},
            "encoding": {
                "x": x("value", with_unit(label, scale.unit), scale={"zero": False}),
                "y": y("share", f"share of {of}", axis={"format": "%"}, scale={"domain": [0, 1]}),
                "tooltip": tooltip(tip("value", with_unit(label, scale.unit)), tip("share", f"share of {of}", "share")),
            },
        }
        title = f"{label}: share of {of} that {'came' if name == 'itl' else 'were'} at least this fast"
        return view(
            titled(title, _count(subject, values)), rows, [line, *_marks(subject, measure, scale, (grid[0], grid[-1]))]
        )

    return cdf


def histogram_of(name: str) -> Callable[[ChartedRun], Spec]:
    """The chart of one measure's histogram, binned here."""
    of = "tokens" if name == "itl" else "requests"  # with weights for reads of several tokens, or one value per token

    def histogram(subject: ChartedRun) -> Spec:
        measure = subject.headlined(name)
        values, weights = subject.values(measure)
        low, high, beyond = _range(values, weights)
        scale = scale_of("s", [high])
        counts, edges = np.histogram(values, BINS, (low, high), weights=weights)
        rows = [
            {"from": scale.shown(a), "to": scale.shown(b), "count": float(n)}
            for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)
        ]
        label = MEASURES[measure].title
        axis = with_unit(label, scale.unit)
        bars = {
            "mark": {"type": "bar", "binSpacing": 1},
            "encoding": {
                "x": x("from", axis, bin={"binned": True}, scale={"zero": False}),
                "x2": {"field": "to"},
                "y": y("count", of),
                "tooltip": tooltip(tip("from", f"{axis} from"), tip("to", "to"), tip("count", "count")),
            },
        }
        cut = f"; {beyond:,} beyond {duration_text(high)} are not shown" if beyond else ""
        title = titled(f"{label}: histogram", _count(subject, values) + cut)
        return view(title, rows, [bars, *_marks(subject, measure, scale, (low, high))])

    return histogram


def _p99(values: Floats, weights: Floats | None) -> float:
    if weights is None:
        return float(np.quantile(values, 0.99))
    order = np.argsort(values)
    upto = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(upto, 0.99 * upto[-1])]])


def _range(values: Floats, weights: Floats | None) -> tuple[float, float, int]:
    """Start and end of the histogram, and how many values are beyond its end."""
    low, high = float(values.min()), float(values.max())
    p99 = _p99(values, weights)
    if high > _TAIL * p99 > 0:
        high = p99 * 1.5
    if high <= low:
        low, high = low * 0.95, high * 1.05 or 1e-6
    beyond = values > high
    return low, high, int(beyond.sum() if weights is None else weights[beyond].sum())


def _marks(subject: ChartedRun, name: str, scale: Scale, shown: tuple[float, float]) -> list[Spec]:
    """The quantiles with enough samples in the summary, if they are within the displayed range."""
    numbers = quantities(subject.run.summary)
    quantiles = [(key, numbers[f"{name}.{key}"].value) for key in MARKED if f"{name}.{key}" in numbers]
    rows = [Mark(at=value * scale.factor, label=key) for key, value in quantiles if value <= shown[1]]
    span = (shown[1] - shown[0]) * scale.factor
    return rules("at", with_room(rows, span), "label") if rows else []


class Mark(TypedDict):
    """A vertical line of a distribution."""

    at: float
    label: str


def with_room(rows: Sequence[Mark], span: float) -> list[Mark]:
    """Lines too close for two labels share one: `p50, p90`."""
    placed: list[Mark] = []
    last: Mark | None = None
    for row in rows:
        text = last["label"] if last else ""
        if last and row["at"] - last["at"] < _ROOM * LETTER * len(text) / WIDTH * span:
            last["label"], row = f"{text}, {row['label']}", Mark(at=row["at"], label="")
        else:
            last = row
        placed.append(row)
    return placed


def _count(subject: ChartedRun, values: Floats) -> str:
    n = int(subject.chosen.sum())
    return f"{n:,} answered requests of the window"


ttft_cdf, tpot_cdf, itl_cdf, e2e_cdf = (cdf_of(name) for name in ("ttft", "tpot", "itl", "e2e"))
ttft_histogram, tpot_histogram, itl_histogram, e2e_histogram = (
    histogram_of(name) for name in ("ttft", "tpot", "itl", "e2e")
)

# -- overlaid --------------------------------------------------------------------------------------------------------

Grid = tuple[Floats, Floats]  # shares and values

MOST_RUNS = 8  # more lines cannot be distinguished


def cdfs_of(name: str) -> Callable[[Sequence[Run]], Spec]:
    def cdfs(runs: Sequence[Run]) -> Spec:
        grids: dict[str, Grid] = {}
        measure = headlined(runs, name)
        for run in runs:
            if len(grids) == MOST_RUNS:
                break
            try:
                grids[run.id] = quantile_grid(*ChartedRun(run).values(measure), most=160)
            except Cannot:
                continue
        if len(grids) < 2:
            raise Cannot("fewer than two of these runs have records of their requests")
        return _view(measure, grids, [run for run in runs if run.id in grids], len(runs))

    return cdfs


def _view(name: str, grids: dict[str, Grid], runs: list[Run], requested: int) -> Spec:
    names, label = labels_of(runs), MEASURES[name].title
    scale = scale_of("s", [float(np.quantile(grid, 0.9)) for _, grid in grids.values()])
    rows = [
        {"run": names[id_], "share": share, "value": scale.shown(value)}
        for id_, (shares, grid) in grids.items()
        for share, value in zip(shares, grid, strict=True)
    ]
    params, opacity = toggled("run")
    axis = with_unit(label, scale.unit)
    line = {
        "params": params,
        "mark": {"type": "line", "interpolate": "step-before"},
        "encoding": {
            "x": x("value", axis, scale={"zero": False}),
            "y": y("share", "share of requests", axis={"format": "%"}, scale={"domain": [0, 1]}),
            "color": colours("run", list(names.values())),
            "opacity": opacity,
            "tooltip": tooltip(tip("run", "run", "nominal"), tip("value", axis), tip("share", "share", "share")),
        },
    }
    some = "" if requested == len(runs) else f"{len(runs)} of {requested} runs"
    return view(titled(f"{label} of several runs, overlaid", some), rows, [line])


ttft_cdfs, e2e_cdfs = cdfs_of("ttft"), cdfs_of("e2e")

# -- lengths ---------------------------------------------------------------------------------------------------------

POINTS = 700
LENGTH_BINS = 24
FEWEST = 5  # values required in a bin with a line
_LINES = {"p50": 0.5, "p90": 0.9}


def ttft_by_input(subject: ChartedRun) -> Spec:
    return _against(subject, subject.headlined("ttft"), "input_tokens", "input")


def e2e_by_output(subject: ChartedRun) -> Spec:
    return _against(subject, subject.headlined("e2e"), "output_tokens", "output")


def _against(subject: ChartedRun, name: str, length: str, kind: str) -> Spec:
    lengths, values = request_values(length, subject.answers), request_values(name, subject.answers)
    fine = subject.chosen & ~np.isnan(lengths) & ~np.isnan(values)
    lengths, values = lengths[fine], values[fine]
    if not len(values):
        raise Cannot(f"no answered request has both {MEASURES[name].title} and its {kind} tokens")
    if lengths.min() == lengths.max():
        raise Cannot(f"every request has the same {kind} length, {number_text(lengths[0])} tokens")
    scale = scale_of("s", [float(np.quantile(values, 0.99))])
    shown = sampled(values, POINTS)
    points = [{"length": lengths[at], "value": scale.shown(values[at])} for at in shown.tolist()]
    axes = {"x": x("length", f"{kind} tokens"), "y": y("value", with_unit(MEASURES[name].title, scale.unit))}
    tips = [tip("length", f"{kind} tokens"), tip("value", with_unit(MEASURES[name].title, scale.unit))]
    lines = [{**row, "value": scale.shown(row["value"])} for row in _lines(lengths, values)]
    note = (
        ""
        if len(shown) == len(values)
        else f"; points are a sample of {len(shown):,} including the slowest, lines use all requests"
    )
    title = titled(f"{MEASURES[name].title} by {kind} length", f"{len(values):,} requests{note}")
    return view(
        title,
        points,
        [
            {"mark": {"type": "point", "opacity": 0.35, "size": 22}, "encoding": axes | {"tooltip": tooltip(*tips)}},
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


class QuantileByLength(TypedDict):
    line: str
    length: float
    value: float


def _lines(lengths: Floats, values: Floats) -> list[QuantileByLength]:
    """Quantiles of requests with similar lengths; the bin edges are quantiles too, so that every bin has the same
    share."""
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, LENGTH_BINS + 1)))
    places = np.clip(np.searchsorted(edges, lengths, side="right") - 1, 0, max(len(edges) - 2, 0))
    rows: list[QuantileByLength] = []
    for place in np.unique(places):
        inside = places == place
        if inside.sum() < FEWEST:
            continue
        middle = float(lengths[inside].mean())
        rows += [
            {"line": label, "length": middle, "value": float(np.quantile(values[inside], share))}
            for label, share in _LINES.items()
        ]
    return rows
