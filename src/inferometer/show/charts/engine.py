"""An engine apart from load: how long a batch takes, how long it takes to start, and its fitted model compared with
measurements."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from inferometer.measure.values import quantities
from inferometer.record.run import Run
from inferometer.record.summary import Phase, Summary
from inferometer.show.charts.chart import (
    WIDTH,
    Cannot,
    Chart,
    ChartedRun,
    ChartRow,
    Spec,
    colours,
    labels_of,
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
from inferometer.show.charts.distributions import quantile_grid
from inferometer.simulator.fitting.server_model import RunSteps
from inferometer.vocabulary import duration_text
from inferometer.vocabulary.formats import percent_text

_STATISTICS = {"mean": "average", "p50": "p50", "p90": "p90", "p99": "p99"}


class BatchRow(TypedDict):
    """A statistic of one batch size and pair of lengths."""

    batch: int
    lengths: str
    statistic: str
    value: float | None


def batch_latency(subject: ChartedRun) -> Spec:
    rows = _rows(subject.run.summary)
    sizes = sorted({row["batch"] for row in rows})  # a tick for each: there is no batch of 6.5
    if len(sizes) < 2:
        raise Cannot("it needs at least two batch sizes")
    scale = scale_of("s", [row["value"] for row in rows])
    for row in rows:
        row["value"] = scale.shown(row["value"])
    lengths = list(dict.fromkeys(row["lengths"] for row in rows))
    params, opacity = toggled("statistic")
    axis = with_unit("batch latency", scale.unit)
    line: Spec = {
        "params": params,
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": x("batch", "batch size", scale={"type": "log", "base": 2}, axis={"values": sizes}),
            "y": y("value", axis),
            "color": colours("statistic", list(dict.fromkeys(row["statistic"] for row in rows))),
            "opacity": opacity,
            "tooltip": tooltip(
                tip("batch", "batch size"),
                tip("lengths", "tokens", "nominal"),
                tip("statistic", "statistic", "nominal"),
                tip("value", axis),
            ),
        },
    }
    if len(lengths) > 1:
        line["encoding"]["strokeDash"] = {"field": "lengths", "type": "nominal", "title": None}
    subtitle = lengths[0] if len(lengths) == 1 else f"{len(lengths)} pairs of lengths"
    return view(titled("Batch latency by batch size", subtitle), rows, [line])


def _rows(summary: Summary) -> list[BatchRow]:
    numbers = quantities(summary)
    return [
        {
            "batch": case.batch_size,
            "lengths": f"{case.input_len} input, {case.output_len} output tokens",
            "statistic": label,
            "value": numbers[f"{case.name}.{statistic}"].value,
        }
        for case in summary.cases
        if case.batch_size
        for statistic, label in _STATISTICS.items()
        if f"{case.name}.{statistic}" in numbers
    ]


_BAR = 22


def startup_phases(subject: ChartedRun) -> Spec:
    """A bar for each phase, positioned at its start; inner phases are indented below their outer one."""
    startup = subject.run.summary.startup
    phases = [(phase, phase.began_s) for phase in startup.phases if phase.began_s is not None] if startup else []
    if not phases:
        raise Cannot("this run has no startup phases")
    inside = {phase.name: phase.inside for phase, _ in phases}
    rows = [_row(phase, began_s, at, inside) for at, (phase, began_s) in enumerate(phases)]
    processes = list(dict.fromkeys(row["process"] for row in rows))
    colour = colours("process", processes) | ({} if len(processes) > 1 else {"legend": None})
    bars = {
        "mark": {"type": "bar", "height": {"band": 0.7}},
        "encoding": {
            "x": x("from", "time since the first line of the log (s)"),
            "x2": {"field": "to"},
            "y": {
                "field": "phase",
                "type": "nominal",
                "sort": None,
                "title": None,
                "axis": {"labelLimit": 150, "labelAlign": "left", "labelPadding": 150, "grid": False, "ticks": False},
            },
            "color": colour,
            "tooltip": tooltip(
                tip("phase", "phase", "nominal"),
                tip("took", "took (s)"),
                tip("process", "process", "nominal"),
            ),
        },
    }
    ready = quantities(subject.run.summary).get("time_to_ready")
    subtitle = f"ready after {duration_text(ready.value)}" if ready else "it never became ready"
    return view(titled("Startup time by phase", subtitle), rows, [bars], height=_BAR * len(rows) + 20)


# A bar of a phase; "from" is a keyword in Python.
PhaseRow = TypedDict("PhaseRow", {"phase": str, "process": str, "from": float, "to": float, "took": float})


def _row(phase: Phase, began_s: float, at: int, inside: Mapping[str, str | None]) -> PhaseRow:
    """Two processes may have the same phase: invisible characters after the title keep their rows apart."""
    depth, outer = 0, str(phase.inside)
    while outer in inside and depth < 5:
        depth, outer = depth + 1, str(inside[outer])
    return {
        "phase": "\u00a0\u00a0\u00a0" * depth + phase.title + "\u200b" * at,
        "process": phase.process or "server",
        "from": began_s,
        "to": began_s + phase.seconds,
        "took": phase.seconds,
    }


def startups(runs: Sequence[Run]) -> Spec:
    """Bars side by side for each phase, a colour for each start."""
    with_phases = [run for run in runs if (run.summary.startup and run.summary.startup.phases)]
    if len(with_phases) < 2:
        raise Cannot("fewer than two runs have startup phases")
    names = labels_of(with_phases)
    rows = [
        {"phase": quantity.title, "start": names[run.id], "took": quantity.value}
        for run in with_phases
        for quantity in quantities(run.summary).values()
        if quantity.unit == "s" and quantity.name.endswith(("_time", "time_to_ready"))
    ]
    phases = list(dict.fromkeys(row["phase"] for row in rows))
    bars = {
        "mark": {"type": "bar"},
        "encoding": {
            "x": x("took", "time (s)"),
            "y": {"field": "phase", "type": "nominal", "sort": phases, "title": None, "axis": {"labelLimit": 220}},
            "yOffset": {"field": "start", "sort": list(names.values())},
            "color": colours("start", list(names.values())),
            "tooltip": tooltip(
                tip("start", "start", "nominal"), tip("phase", "phase", "nominal"), tip("took", "took (s)")
            ),
        },
    }
    height = max(120, 12 * len(phases) * len(with_phases))
    return view(titled("Startup phases of several runs, side by side"), rows, [bars], height=height)


SIDES = ("measured", "modelled")
USUAL = 0.10  # relative error shown as a band
LONGEST = 0.995  # share of the gaps on the axis: an idle server has gaps of any length


def steps_chart(runs: Sequence[RunSteps]) -> Chart:
    """A panel for each run: the distribution of the time between engine steps."""
    title = "Engine steps, measured and modelled"
    panels = [_steps_panel(run) for run in runs]
    count = sum(len(run.measured_s) for run in runs)
    subtitle = f"time from one step to the next, {count:,} steps read from the records"
    return Chart("steps", title, {"title": titled(title, subtitle), "concat": panels, "columns": 2, "spacing": 24})


def _steps_panel(run: RunSteps) -> Spec:
    longest = float(np.quantile(run.measured_s, LONGEST))
    scale = scale_of("s", [longest])
    rows: list[ChartRow] = []
    for side, gaps in zip(SIDES, (run.measured_s, run.modelled_s), strict=True):
        shares, values = quantile_grid(gaps)
        rows += [
            {"side": side, "share": float(share), "gap": float(value) * scale.factor}
            for share, value in zip(shares, values, strict=True)
            if value <= longest
        ]
    axis = with_unit("step", scale.unit)
    encoding = {
        "x": x("gap", axis),
        "y": y("share", "share of steps", axis={"format": ".0%"}),
        "color": colours("side", SIDES),
        "tooltip": tooltip(tip("side", "", "nominal"), tip("gap", axis), tip("share", "share", "share")),
    }
    return {
        "title": run.name,
        "width": WIDTH // 2 - 60,
        "height": 140,
        "data": {"values": rows},
        "mark": {"type": "line"},
        "encoding": encoding,
    }


def errors_chart(errors: Mapping[str, Mapping[str, float]], titles: Mapping[str, str]) -> Chart:
    """The error of every prediction, a row for each run."""
    title = "Predicted against measured"
    names = list(errors)
    rows = [
        {"run": name, "measure": titles[measure], "error": error}
        for name, of_run in errors.items()
        for measure, error in of_run.items()
        if measure in titles and error == error
    ]
    up = {"field": "run", "type": "nominal", "title": None, "sort": names}
    tips = tooltip(tip("run", "run", "nominal"), tip("measure", "", "nominal"), tip("error", "error", "share"))
    points = {
        "mark": {"type": "point", "size": 60},
        "encoding": {
            "y": up,
            "x": x("error", "predicted / measured − 1", axis={"format": "+.0%"}),
            "color": colours("measure", [titles[measure] for measure in titles]),
            "tooltip": tips,
        },
    }
    band = {
        "data": {"values": [{"low": -USUAL, "high": USUAL}]},
        "mark": {"type": "rect", "opacity": 0.1},
        "encoding": {"x": x("low", ""), "x2": {"field": "high"}},
    }
    subtitle = f"the band is ±{percent_text(USUAL)}"
    return Chart("errors", title, view(titled(title, subtitle), rows, [band, points], height=26 * max(len(names), 1)))
