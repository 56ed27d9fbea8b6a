"""`Chart`: a Vega-Lite specification with its name and title; the parts that specifications share, and the colours in
light and in dark."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from inferometer.measure.inputs import Answers, Facts
from inferometer.measure.registry import REGISTRY, request_values
from inferometer.measure.tally import condensed, gap_batches
from inferometer.measure.window import Window, end_of
from inferometer.record.columns import Floats, Ints, Mask
from inferometer.record.record import Samples
from inferometer.record.run import Run
from inferometer.show.about import MOST_SETTINGS, UNNAMED, series_names, stack_text
from inferometer.vocabulary import NANOSECONDS, RATE_UNITS, attribute_at

# -- chart -----------------------------------------------------------------------------------------------------------

Spec = dict[str, Any]  # of Vega-Lite
ChartRow = Mapping[str, object]  # of a chart's data: written into its specification, never read


class Cannot(Exception):
    """The chart's input is missing; the message names it."""


@dataclass(frozen=True, slots=True)
class Chart:
    """`spec` has data, axes and title, but no text or background colours: these belong to the theme."""

    name: str
    title: str  # what the chart shows
    spec: Spec

    @property
    def subtitle(self) -> str:
        """The subject and the amount of data; may be empty."""
        title = self.spec.get("title")
        subtitle = title.get("subtitle", "") if isinstance(title, dict) else ""
        return " ".join(subtitle) if isinstance(subtitle, list) else str(subtitle)

    def _repr_mimebundle_(self, **_: object) -> dict[str, Spec | str]:
        """How a notebook draws it: as a picture if the extra `charts` is installed, and otherwise by its own Vega."""
        rendering = "inferometer.show.charts.registry"  # imports this module
        drawn: dict[str, Spec | str] = {"application/vnd.vegalite.v5+json": self.spec, "text/plain": self.title}
        if attribute_at(f"{rendering}:has_charts")():
            drawn["image/svg+xml"] = attribute_at(f"{rendering}:render_svg")(self.spec)
        return drawn


@dataclass(frozen=True, slots=True)
class Absent:
    """A chart that cannot be drawn, and why."""

    name: str
    title: str
    why: str


# -- spec ------------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT = 640, 240
LETTER, SYMBOL, LABEL_LIMIT = 6.6, 30, 300  # pixels of a legend: a letter, the space next to a name, the longest name
MOST = 2000  # rows of data in a chart


class Scale(NamedTuple):
    """How a unit of data is displayed: seconds below one as milliseconds, shares as percent."""

    factor: float
    unit: str

    def shown(self, value: float | None) -> float | None:
        return None if value is None or value != value else float(value) * self.factor


def scale_of(unit: str, values: Iterable[float | None]) -> Scale:
    """Chosen for the largest value, so that an axis has one unit."""
    largest = max((abs(value) for value in values if value is not None and value == value), default=0.0)
    match unit:
        case "s":
            return Scale(1e6, "µs") if largest < 1e-3 else Scale(1e3, "ms") if largest < 1 else Scale(1.0, "s")
        case "share":
            return Scale(100.0, "%")
        case "bytes":
            return Scale(2.0**-30, "GiB") if largest >= 2**29 else Scale(2.0**-20, "MiB")
    return Scale(1.0, RATE_UNITS.get(unit, unit))


def titled(text: str, subtitle: str = "") -> Spec:
    return {"text": text, "subtitle": subtitle} if subtitle else {"text": text}


def view(title: Spec, rows: Sequence[ChartRow], layers: Sequence[Spec], *, height: int = HEIGHT) -> Spec:
    """Layers over the same data; a layer may have its own data."""
    return {
        "title": title,
        "width": WIDTH,
        "height": height,
        "data": {"values": list(rows)},
        "layer": list(layers),
    }


def x(field: str, title: str, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, **more}


y = x  # an axis is an axis


def with_unit(title: str, unit: str) -> str:
    """Appends the unit unless the title contains it: `Server: requests`, `Output tokens per second`."""
    lowered = title.lower()
    known = unit in lowered.split() or (unit == RATE_UNITS["tokens/s"] and "tokens per second" in lowered)
    return title if known or not unit else f"{title} ({unit})"


def colours(field: str, names: Sequence[str]) -> Spec:
    """The theme's colours in the order of the names."""
    legend = {"columns": legend_columns(names)}
    return {"field": field, "type": "nominal", "title": None, "scale": {"domain": list(names)}, "legend": legend}


def legend_columns(names: Iterable[str]) -> int:
    """As many as fit next to each other at our width, because a row that is too long would be cut off. A narrower page
    recomputes it."""
    widest = min(max((len(name) for name in names), default=1) * LETTER, LABEL_LIMIT)
    return max(1, int(WIDTH // (widest + SYMBOL)))


def meanings(field: str, place_of: Mapping[str, int], present: Iterable[str]) -> Spec:
    """Categories with the same colour in every chart: each is a place in the theme's range, so that it follows light
    and dark. Unused places are filled with dummy names."""
    domain = [f"no {place}" for place in range(max(place_of.values()) + 1)]
    for value, place in place_of.items():
        domain[place] = value
    shown = [value for value in place_of if value in set(present)]
    return {**colours(field, domain), "legend": {"values": shown, "columns": legend_columns(shown)}}


def toggled(field: str, name: str = "chosen") -> tuple[list[Spec], Spec]:
    """Clicking the legend shows one series and fades the others: returns parameters of a layer, and its opacity."""
    params = [{"name": name, "select": {"type": "point", "fields": [field]}, "bind": "legend"}]
    return params, {"condition": {"param": name, "value": 1}, "value": 0.12}


def rules(field: str, rows: Sequence[ChartRow], label: str | None = None) -> list[Spec]:
    """Vertical lines with a label next to each; on the left side if the row has `left`."""
    data = {"values": list(rows)}
    lines: list[Spec] = [
        {
            "data": data,
            "mark": {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1},
            "encoding": {"x": {"field": field, "type": "quantitative"}},
        }
    ]
    if label is not None:
        lines += [
            _labels(field, label, [row for row in rows if bool(row.get("left")) == left], left)
            for left in (False, True)
        ]
    return [line for line in lines if line["data"]["values"]]


def _labels(field: str, label: str, rows: Sequence[ChartRow], left: bool) -> Spec:
    """Above the plot, where nothing covers them: to the right of their lines, or to the left near the end of the
    axis."""
    side = {"align": "right", "dx": 2} if left else {"align": "left", "dx": -2}
    return {
        "data": {"values": list(rows)},
        "mark": {"type": "text", "baseline": "bottom", "fontSize": 11, **side},
        "encoding": {"x": {"field": field, "type": "quantitative"}, "y": {"value": -3}, "text": {"field": label}},
    }


# -- tooltips --------------------------------------------------------------------------------------------------------


class Tip(NamedTuple):
    """A line of a tooltip: the text of `field`, as a Vega expression, after `title`."""

    title: str
    expression: str


def tip(field: str, title: str, kind: Literal["number", "share", "time", "nominal"] = "number") -> Tip:
    datum = f"datum[{json.dumps(field)}]"
    return Tip(title, {"number": number_in_vega, "share": share_in_vega, "time": _time, "nominal": _label}[kind](datum))


def tooltip(*lines: Tip) -> Spec:
    """The value of the channel `tooltip`. Vega's own number formats differ from ours."""
    return {"value": {"expr": f"{{{', '.join(f'{json.dumps(line.title)}: {line.expression}' for line in lines)}}}"}}


def number_in_vega(value: str) -> str:
    """`vocabulary.number_text` as a Vega expression of the given expression's value."""
    whole, small = f"format({value}, ',.0f')", f"format({value}, '.3~g')"
    between = f"format({value}, abs({value}) >= 9.995 ? '.1f' : '.2f')"
    digits = (
        f"abs({value}) >= 99.95 || {value} == floor({value}) ? {whole} : abs({value}) < 0.9995 ? {small} : {between}"
    )
    return f"(isValid({value}) ? replace({digits}, '−', '-') : '-')"


def share_in_vega(share: str) -> str:
    """`vocabulary.percent_text` as a Vega expression, for shares from 0 to 1."""
    percent = f"(round(1e12 * {share}) / 1e10)"
    tail = f"format({percent}, '.' + (1 - floor(log(100 - {percent}) / LN10)) + '~f')"
    digits = f"{percent} == floor({percent}) ? '.0f' : '.1f'"
    far = f"({percent} > 99.9 && {percent} < 100)"
    near = f"({percent} > 0 && {percent} < 0.1)"
    text = f"{far} ? {tail} : {near} ? {number_in_vega(percent)} : format({percent}, {digits})"
    return f"(isValid({share}) ? ({text}) + '%' : '-')"


def _time(instant: str) -> str:
    return f"timeFormat(toDate({instant}), '%Y-%m-%d %H:%M')"


def _label(value: str) -> str:
    return f"(isValid({value}) ? '' + {value} : '-')"


# -- theme -----------------------------------------------------------------------------------------------------------

Theme = Literal["light", "dark"]

SERIES: dict[Theme, list[str]] = {
    "light": [
        *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07a00", "#3a9fd8", "#5b5b5b", "#7a4f9e"),
        *("#a3232f", "#5f7300", "#00474f", "#ff5c8a"),
    ],
    "dark": [
        *("#56a9e8", "#ff8d3c", "#2bc79a", "#e39ac4", "#e6b422", "#8fd0f7", "#b5b5b5", "#b893d8"),
        *("#f2707c", "#bccf45", "#5fd8e0", "#ff5c8a"),
    ],
}
INK: dict[Theme, dict[str, str]] = {
    "light": {"text": "#1c2128", "muted": "#57606a", "grid": "#e3e6ea", "page": "#ffffff"},
    "dark": {"text": "#e6e8eb", "muted": "#9aa4af", "grid": "#30363d", "page": "#14171a"},
}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif"

# By meaning, the same in all charts: names of the first six series colours.
BLUE, ORANGE, GREEN, PINK, AMBER, SKY, GREY = range(7)
STATUS_COLOURS = {"better": GREEN, "worse": ORANGE, "same": BLUE, "changed": PINK, "unclear": GREY}


def config(theme: Theme = "light") -> Spec:
    """The `config` of Vega-Lite: everything about looks, nothing about data."""
    ink, series = INK[theme], SERIES[theme]
    text_colours = {"labelColor": ink["muted"], "titleColor": ink["text"]}
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            **text_colours,
            "gridColor": ink["grid"],
            "domainColor": ink["grid"],
            "tickColor": ink["grid"],
            "titleFontWeight": 500,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titlePadding": 8,
            "labelFlush": False,  # else the outermost label would move inwards and touch the next one
            "labelSeparation": 4,
        },
        "legend": {
            **text_colours,
            "orient": "top",
            "title": None,
            "labelFontSize": 12,
            "labelLimit": 300,
            "symbolStrokeWidth": 3,
        },
        "title": {
            "color": ink["text"],
            "subtitleColor": ink["muted"],
            "anchor": "start",
            "frame": "group",
            "fontSize": 15,
            "subtitleFontSize": 12,
            "subtitlePadding": 4,
            "offset": 12,
        },
        "header": {"labelColor": ink["text"], "titleColor": ink["text"]},
        "range": {"category": series, "ramp": {"scheme": "viridis"}, "heatmap": {"scheme": "viridis"}},
        "mark": {"color": series[BLUE]},
        "rule": {"color": ink["muted"]},
        "text": {"color": ink["text"]},
        "line": {"strokeWidth": 2},
        "point": {"filled": True, "size": 36, "opacity": 1},
    }


# `ChartedRun`: a run for charts: records and samples are read once, with the measured window; and the name of a run in
# a chart.

# -- subject ---------------------------------------------------------------------------------------------------------

_ROUNDING = 1000  # ns: the window in a summary is in rounded seconds


class ChartedRun:
    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def answers(self) -> Answers:
        records = self.run.records
        if records is None:
            raise Cannot("this run has no records of its requests")
        if not len(records):
            raise Cannot("nothing was sent in this run")
        return Answers.of(records)

    @cached_property
    def samples(self) -> Samples:
        samples = self.run.samples
        if samples is None or not len(samples):
            raise Cannot("nothing was sampled during the load")
        return samples

    @cached_property
    def start_at(self) -> int:
        """When the load started. A summary has the duration of the run; its end is the last known instant."""
        if self.run.source is not None and self.run.summary.window.start_s is None:
            raise Cannot("when the requests were sent is not known")
        records, run_s = self.answers.records, self.run.summary.window.run_s
        first_at = int(records.scheduled_at.min())
        return first_at if run_s is None else min(first_at, self.end_at - round(run_s * NANOSECONDS))

    @cached_property
    def end_at(self) -> int:
        return end_of(self.answers.records, Facts())

    @cached_property
    def window(self) -> Window:
        """The measured window; the whole run if none is stated."""
        window = self.run.summary.window
        if window.start_s is None or window.end_s is None:
            return Window(int(self.answers.records.scheduled_at.min()), self.end_at, "the whole run")
        start, end = (self.start_at + round(at_s * NANOSECONDS) for at_s in (window.start_s, window.end_s))
        return Window(start - _ROUNDING, end + _ROUNDING, window.rule)

    @cached_property
    def chosen(self) -> Mask:
        """The answered requests of the window, on which the summary's measures are based."""
        chosen: Mask = self.window.holds(self.answers.records.scheduled_at) & self.answers.ok
        return chosen

    def headlined(self, name: str) -> str:
        """The measure shown as this headline: for an open loop counted from the scheduled time."""
        return headlined([self.run], name)

    def values(self, name: str) -> tuple[Floats, Floats | None]:
        """Values of a measure for the chosen requests, or for their gaps with weights; for the gaps of a long run
        representative values, accurate to 0.012%."""
        measure = REGISTRY[name]
        if measure.gaps is None:
            values = request_values(name, self.answers)[self.chosen]
            return _some(name, values[~np.isnan(values)]), None
        if not self.answers.records.held:
            values, weights = condensed(gap_batches(self.answers, self.chosen, measure))
            return _some(name, values), weights
        series = measure.gaps(self.answers.gaps)
        inside = self.chosen[series.owner]
        return _some(name, series.values[inside]), None if series.weights is None else series.weights[inside]

    def seconds(self, at: Ints) -> Floats:
        """Instants as seconds since the start of the load."""
        since: Floats = (at - self.start_at) / NANOSECONDS
        return since

    def edges(self, most: int) -> Ints:
        """Edges that cut the run into at most this many equal pieces, none shorter than a fifth of a second."""
        length = max(self.end_at - self.start_at, 1)
        pieces = int(np.clip(length // (NANOSECONDS // 5), 1, most))
        return np.linspace(self.start_at, self.end_at, pieces + 1).astype(np.int64)


def headlined(runs: Sequence[Run], name: str) -> str:
    """`ttft_scheduled` for `ttft` if every run is an open loop: a page shows one number for it."""
    scheduled = f"{name}_scheduled"
    is_open = all(run.summary.loop in ("open", "mixed") and scheduled in run.summary.measures for run in runs)
    return scheduled if is_open and runs else name


def _some(name: str, values: Floats) -> Floats:
    if not len(values):
        raise Cannot(f"no answered request of the window has a {name}")
    return values


# -- labels ----------------------------------------------------------------------------------------------------------


def labels_of(runs: Sequence[Run]) -> dict[str, str]:
    """By run id: the plan's name if it distinguishes the runs, else the differences in words."""
    names = series_names({run.id: run for run in runs})
    return {id_: run_words(id_) if name.startswith(UNNAMED) else name for id_, name in names.items()}


def run_words(id_: str) -> str:
    """The words at the end of an id: `plum-fox`."""
    return id_.split("-", 2)[2] if id_[:8].isdecimal() and id_.count("-") >= 2 else id_


def stack_of(run: Run) -> str:
    """The model and its hardware, as far as known; behind a router also its policy, which makes it a different
    server."""
    router = run.plan.server.section("router")
    settings = [f"{name}={value}" for name, value in router.section("settings").items()]
    policy = " ".join([router.text("policy") or "", *settings[:MOST_SETTINGS]]).strip()
    return " · ".join(filter(None, (policy, stack_text(run)))) or "unknown model"
