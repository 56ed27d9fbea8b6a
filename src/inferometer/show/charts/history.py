"""A measure over time: a line for each series, and its change points."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NotRequired, TypedDict

from inferometer.judge.changes import change_points
from inferometer.judge.identity import identity
from inferometer.measure.values import common_basis, quantities
from inferometer.record.run import Run
from inferometer.show.about import series_names
from inferometer.show.charts.chart import (
    MOST,
    Cannot,
    Spec,
    colours,
    legend_columns,
    scale_of,
    tip,
    titled,
    toggled,
    tooltip,
    view,
    with_unit,
    y,
)
from inferometer.vocabulary import change_text

MOST_SERIES = 12
ROW = 14  # pixels from one row of labels to the next


class HistoryRow(TypedDict):
    """A run on its line."""

    series: str
    at: str
    run: str
    came_with: str
    value: float
    invalid: NotRequired[bool]


class StepMark(TypedDict):
    """A point where a line changed its level."""

    series: str
    at: str
    label: str
    came_with: str


Placed = dict[tuple[int, bool], list[StepMark]]  # by row and whether the label is left of its line
TIME_FORMAT = {  # ISO 8601 dates and 24-hour times
    **dict.fromkeys(("year",), "%Y"),
    **dict.fromkeys(("quarter", "month"), "%Y-%m"),
    **dict.fromkeys(("week", "date", "day"), "%m-%d"),
    **dict.fromkeys(("hours", "minutes"), "%H:%M"),
    **dict.fromkeys(("seconds", "milliseconds"), "%H:%M:%S"),
}
TOO_FEW = "a percentile of too few samples"
LABEL_WIDTH = 0.17  # share of the width that "+33.2%" takes on a phone


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """A run's value; `came_with` has versions and commit. A point that is not `sound`, because its run is invalid as a
    measurement, is drawn differently, and ignored for change points."""

    run: str
    at: str  # ISO 8601
    value: float
    came_with: str = ""
    sound: bool = True
    weak: bool = False  # a percentile of too few samples


@dataclass(frozen=True, slots=True)
class History:
    """Lines by name, oldest point first. All have the same unit. `names` are those of all charts shown together: a line
    has the same colour in each of them."""

    title: str
    unit: str
    lines: dict[str, list[HistoryPoint]] = field(default_factory=dict)
    names: Sequence[str] = ()


def history_of(runs: Sequence[Run], *keys: str) -> History:
    """One or several numbers of runs: a line for each identity (workload, stack, hardware), and for each key if there
    are several (batch sizes, lengths)."""
    lines: dict[tuple[str, str], list[HistoryPoint]] = {}
    titles, units = {}, []
    labels = _identity_labels(runs)
    basis = common_basis(run.summary for run in runs)
    for run in sorted(runs, key=lambda run: run.started_at):
        numbers = quantities(run.summary, basis)
        for key in keys:
            if (quantity := numbers.get(key)) is not None:
                sound = run.status != "invalid"
                about = run.id, run.started_at, quantity.value, _came_with(run)
                point = HistoryPoint(*about, sound=sound, weak=quantity.needed is not None)
                lines.setdefault((identity(run).key, key), []).append(point)
                titles[key] = quantity.title if quantity.statistic is None else f"{quantity.title} {quantity.statistic}"
                units.append(quantity.unit)
    named = {_line_name(labels[who], titles[key], len(labels), len(keys)): line for (who, key), line in lines.items()}
    title = titles[keys[0]] if len(titles) == 1 else "Measures"
    return History(title, units[0] if units else "", named)


def history(history: History) -> Spec:
    """Change points are marked at the start of the new level, with the size of the change."""
    lines = dict(list(history.lines.items())[:MOST_SERIES])
    if not lines:
        raise Cannot("no run of the history has this measure")
    most = max(2, MOST // len(lines))
    scale = scale_of(history.unit, [point.value for line in lines.values() for point in line])
    rows = [_row(name, point, scale.factor) for name, line in lines.items() for point in line[-most:]]
    steps = [step for name, line in lines.items() for step in _steps(name, line, line[-most:][0].at)]
    axis = with_unit(history.title, scale.unit)
    time = {"field": "at", "type": "temporal", "title": None, "axis": {"format": TIME_FORMAT}}
    colour = _colour(list(lines), history.names)
    params, opacity = toggled("series")
    tips = [
        *(
            tip("series", "series", "nominal"),
            tip("at", "when", "time"),
        ),
        *(tip("value", axis), tip("run", "run", "nominal"), tip("came_with", "versions", "nominal")),
    ]
    encoding = {"x": time, "y": y("value", axis, scale={"zero": False}), "color": colour, "opacity": opacity}
    line: Spec = {"params": params, "mark": {"type": "line", "point": {"size": 26}}}
    layers: list[Spec] = [line | {"encoding": encoding | {"tooltip": tooltip(*tips)}}]
    if any(row.get("invalid") for row in rows):
        layers = [
            {"transform": [{"filter": "!datum.invalid"}], **layers[0]},
            {
                "transform": [{"filter": "datum.invalid"}],
                "mark": {"type": "point", "shape": "cross", "filled": False, "size": 40},
                "encoding": encoding | {"tooltip": tooltip(*tips)},
            },
        ]
    placed = _placed(steps, [row["at"] for row in rows])
    if colour["legend"] is not None:
        colour["legend"]["offset"] = 8 + ROW * len({row for row, _ in placed})  # above the labels of the steps
    if steps:
        layers += _step_layers(placed, time, colour)
    return view(titled(f"{history.title} over time", _subtitle(history, rows, len(lines), len(steps))), rows, layers)


def _colour(lines: Sequence[str], names: Sequence[str]) -> Spec:
    """Colours of the lines in this chart, the same as among all names."""
    colour = colours("series", list(dict.fromkeys([*names, *lines])))
    legend = {"values": list(lines), "columns": legend_columns(lines)}
    return colour | {"legend": legend if len(lines) > 1 else None}


def _subtitle(history: History, rows: Sequence[HistoryRow], lines: int, steps: int) -> str:
    changes = f"{steps} change point{'s' if steps > 1 else ''}" if steps else "no change point"
    some = f", the first {lines} of {len(history.lines)} series" if lines < len(history.lines) else ""
    shown, every = (
        len({row["run"] for row in rows}),
        len({point.run for line in history.lines.values() for point in line}),
    )
    runs = f"the last {shown:,} of {every:,} runs" if shown < every and not some else f"{shown:,} runs"
    invalid = len({row["run"] for row in rows if row.get("invalid")})
    crosses = f", {invalid} invalid as measurements (crosses)" if invalid else ""
    return f"{runs}, {changes}{some}{crosses}"


def _step_layers(placed: Placed, time: Spec, colour: Spec) -> list[Spec]:
    """Vertical lines, and above the plot the size of each change, in the colour of its series."""
    steps = [step for group in placed.values() for step in group]
    tips = [tip("label", "change", "nominal"), tip("series", "series", "nominal"), tip("came_with", "with", "nominal")]
    rule = {"mark": {"type": "rule", "strokeDash": [4, 3]}, "encoding": {"x": time, "tooltip": tooltip(*tips)}}
    layers: list[Spec] = [{"data": {"values": steps}, **rule}]
    for (row, left), group in placed.items():
        side = {"align": "right", "dx": -4} if left else {"align": "left", "dx": 4}
        where = {"x": time, "y": {"value": -7 - ROW * row}, "text": {"field": "label"}, "color": colour}
        mark = {"type": "text", "fontSize": 11, **side}
        layers.append({"data": {"values": group}, "mark": mark, "encoding": where | {"tooltip": tooltip(*tips)}})
    return layers


def _placed(steps: Sequence[StepMark], times: Sequence[str]) -> Placed:
    """Labels by row and side of their line, so that none covers another: each in the first row with room."""
    first, last = (datetime.fromisoformat(pick(times)).timestamp() for pick in (min, max))
    length = max(last - first, 1.0)
    taken: list[list[float]] = []  # for each row, the centres of its labels
    placed: Placed = {}
    for step in sorted(steps, key=lambda step: str(step["at"])):
        at = (datetime.fromisoformat(step["at"]).timestamp() - first) / length
        left = at > 1 - LABEL_WIDTH
        middle = at + (-LABEL_WIDTH if left else LABEL_WIDTH) / 2
        free = [
            row for row, middles in enumerate(taken) if all(abs(middle - other) >= LABEL_WIDTH for other in middles)
        ]
        row = free[0] if free else len(taken)
        taken += [] if free else [[]]
        taken[row].append(middle)
        placed.setdefault((row, left), []).append(step)
    return placed


def _row(name: str, point: HistoryPoint, factor: float) -> HistoryRow:
    came_with = ", ".join(filter(None, (point.came_with, TOO_FEW if point.weak else "")))
    row: HistoryRow = {
        "series": name,
        "at": point.at,
        "run": point.run,
        "came_with": came_with,
        "value": point.value * factor,
    }
    return row if point.sound else {**row, "invalid": True}


def _steps(name: str, line: Sequence[HistoryPoint], since: str) -> list[StepMark]:
    """Detected in the whole history, marked if they are in view."""
    sound = [point for point in line if point.sound]
    changes = change_points([point.value for point in sound])
    return [
        {
            "series": name,
            "at": sound[change.index].at,
            "label": "changed" if change.change is None else change_text(change.change),
            "came_with": sound[change.index].came_with,
        }
        for change in changes
        if not change.is_drift and sound[change.index].at > since
    ]


def _came_with(run: Run) -> str:
    return ", ".join(f"{name} {value}" for name, value in identity(run).axes.items() if value)


def _identity_labels(runs: Sequence[Run]) -> dict[str, str]:
    """A name for each identity among the runs."""
    by_identity = {identity(run).key: run for run in sorted(runs, key=lambda run: run.started_at)}
    return series_names(by_identity, versions=False)


def _line_name(who: str, title: str, identities: int, keys: int) -> str:
    return title if identities == 1 and keys > 1 else who if keys == 1 else f"{who}: {title}"
