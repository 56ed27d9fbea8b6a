"""A server's model in pictures: how long its steps take beside the measured ones, and how far predictions are off."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inferometer.show.charts.chart import (
    WIDTH,
    Chart,
    Spec,
    colours,
    scale_of,
    tip,
    titled,
    tooltip,
    view,
    with_unit,
    x,
    y,
)
from inferometer.show.charts.distributions import quantile_grid
from inferometer.simulator.fitting.results import RunSteps
from inferometer.vocabulary.formats import percent_text

SIDES = ("measured", "modelled")
USUAL = 0.10  # relative error that is shown as a band
LONGEST = 0.995  # share of the gaps on the axis: a server without requests makes gaps of any length


def steps_chart(runs: Sequence[RunSteps]) -> Chart:
    """A panel for each run: the distribution of the time from one engine step to the next."""
    title = "Engine steps, measured and modelled"
    panels = [_steps_panel(run) for run in runs]
    count = sum(len(run.measured_s) for run in runs)
    subtitle = f"time from one step to the next, {count:,} steps read from the records"
    return Chart("steps", title, {"title": titled(title, subtitle), "concat": panels, "columns": 2, "spacing": 24})


def _steps_panel(run: RunSteps) -> Spec:
    longest = float(np.quantile(run.measured_s, LONGEST))
    scale = scale_of("s", [longest])
    rows: list[dict[str, Any]] = []
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
    """How far every prediction is off, a row for each run."""
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
