"""Offline latency: how long a batch takes, against its size."""

from typing import Any

from inferometer.measure.values import quantities
from inferometer.record.summary import Summary
from inferometer.show.charts.chart import (
    Cannot,
    Spec,
    colours,
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
from inferometer.show.charts.subject import ChartedRun

_STATISTICS = {"mean": "average", "p50": "p50", "p90": "p90", "p99": "p99"}


def batch_latency(subject: ChartedRun) -> Spec:
    rows = _rows(subject.run.summary)
    if len({row["batch"] for row in rows}) < 2:
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
            "x": x("batch", "batch size", scale={"type": "log", "base": 2}),
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


def _rows(summary: Summary) -> list[dict[str, Any]]:
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
