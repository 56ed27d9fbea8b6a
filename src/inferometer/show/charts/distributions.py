"""Distributions of a latency: how many requests were how fast."""

from collections.abc import Callable

import numpy as np

from inferometer.measure.quantiles import Floats
from inferometer.measure.values import quantities
from inferometer.show.charts.chart import Spec
from inferometer.show.charts.spec import Scale, rules, scale_of, tip, titled, view, with_unit, x, y
from inferometer.show.charts.subject import Subject
from inferometer.show.charts.thinning import quantile_grid
from inferometer.vocabulary import MEASURES

BINS = 40
MARKED = ("p50", "p90", "p99")
_TAIL = 4  # a histogram that is this many times longer than its p99 is cut, and says so


def cdf_of(name: str) -> Callable[[Subject], Spec]:
    """The chart of one measure's cumulative distribution."""
    of = "tokens" if name == "itl" else "requests"

    def cdf(subject: Subject) -> Spec:
        values, weights = subject.values(name)
        shares, grid = quantile_grid(values, weights)
        scale = scale_of("s", [_p99(values, weights)])
        rows = [{"share": share, "value": scale.shown(value)} for share, value in zip(shares, grid, strict=True)]
        word = MEASURES[name].title
        line = {
            "mark": {"type": "line", "interpolate": "step-before", "clip": True},
            "encoding": {
                "x": x("value", with_unit(word, scale.unit), scale={"zero": False}),
                "y": y("share", f"share of {of}", axis={"format": "%"}, scale={"domain": [0, 1]}),
                "tooltip": [tip("value", with_unit(word, scale.unit)), tip("share", f"share of {of}", format_=".2%")],
            },
        }
        said = f"{word}: share of {of} that {'came' if name == 'itl' else 'were'} at least this fast"
        return view(titled(said, _count(subject, values)), rows, [line, *_marks(subject, name, scale)])

    return cdf


def histogram_of(name: str) -> Callable[[Subject], Spec]:
    """The chart of one measure's histogram, binned here."""

    def histogram(subject: Subject) -> Spec:
        values, weights = subject.values(name)
        low, high, beyond = _range(values, weights)
        scale = scale_of("s", [high])
        counts, edges = np.histogram(values, BINS, (low, high), weights=weights)
        rows = [
            {"from": scale.shown(a), "to": scale.shown(b), "count": float(n)}
            for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)
        ]
        word = MEASURES[name].title
        axis = with_unit(word, scale.unit)
        bars = {
            "mark": {"type": "bar", "binSpacing": 1},
            "encoding": {
                "x": x("from", axis, bin={"binned": True}, scale={"zero": False}),
                "x2": {"field": "to"},
                "y": y("count", "tokens" if weights is not None else "requests"),
                "tooltip": [tip("from", f"{axis} from"), tip("to", "to"), tip("count", "count", format_=",d")],
            },
        }
        cut = f"; {beyond:,} beyond {scale.shown(high):.3g} {scale.unit} are not shown" if beyond else ""
        title = titled(f"{word}: how often it took how long", _count(subject, values) + cut)
        return view(title, rows, [bars, *_marks(subject, name, scale, largest=high)])

    return histogram


def _p99(values: Floats, weights: Floats | None) -> float:
    if weights is None:
        return float(np.quantile(values, 0.99))
    order = np.argsort(values)
    upto = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(upto, 0.99 * upto[-1])]])


def _range(values: Floats, weights: Floats | None) -> tuple[float, float, int]:
    """Where the histogram begins and ends, and how many values are beyond it."""
    low, high = float(values.min()), float(values.max())
    p99 = _p99(values, weights)
    if high > _TAIL * p99 > 0:
        high = p99 * 1.5
    if high <= low:
        low, high = low * 0.95, high * 1.05 or 1e-6
    beyond = values > high
    return low, high, int(beyond.sum() if weights is None else weights[beyond].sum())


def _marks(subject: Subject, name: str, scale: Scale, largest: float = float("inf")) -> list[Spec]:
    """The quantiles that the summary is sure enough of to tell."""
    found = quantities(subject.run.summary)
    told = [(key, found[f"{name}.{key}"].value) for key in MARKED if f"{name}.{key}" in found]
    rows = [{"at": scale.shown(value), "word": key} for key, value in told if value <= largest]
    return rules("at", rows, "word") if rows else []


def _count(subject: Subject, values: Floats) -> str:
    n = int(subject.chosen.sum())
    return f"{n:,} answered requests of the window"


ttft_cdf, tpot_cdf, itl_cdf, e2e_cdf = (cdf_of(name) for name in ("ttft", "tpot", "itl", "e2e"))
ttft_histogram, tpot_histogram, itl_histogram, e2e_histogram = (
    histogram_of(name) for name in ("ttft", "tpot", "itl", "e2e")
)
