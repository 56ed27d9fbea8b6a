"""A measure over time: a line for each series, and where its level changed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from inferometer.judge.changes import change_points
from inferometer.judge.identity import identity
from inferometer.measure.values import quantities
from inferometer.record.run import Run
from inferometer.show.charts.chart import Cannot, Spec
from inferometer.show.charts.labels import load_of, stack_of
from inferometer.show.charts.spec import MOST, colours, scale_of, tip, titled, toggled, view, with_unit, y

MOST_SERIES = 12


@dataclass(frozen=True, slots=True)
class Point:
    """A run's value; `came_with` tells versions and commit."""

    run: str
    at: str  # ISO 8601
    value: float
    came_with: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """Lines by name, the oldest point first. All have one unit."""

    title: str
    unit: str
    lines: dict[str, list[Point]] = field(default_factory=dict)


def history_of(runs: Sequence[Run], *keys: str) -> History:
    """One or several numbers of runs: a line for each identity (workload, stack, hardware), and for each key where
    there are several (batch sizes, lengths)."""
    lines: dict[tuple[str, str], list[Point]] = {}
    titles, units = {}, []
    words = _identity_words(runs)
    for run in sorted(runs, key=lambda run: run.started_at):
        found = quantities(run.summary)
        for key in keys:
            if (each := found.get(key)) is not None:
                point = Point(run.id, run.started_at, each.value, _came_with(run))
                lines.setdefault((identity(run).key, key), []).append(point)
                titles[key] = each.title if each.statistic is None else f"{each.title} {each.statistic}"
                units.append(each.unit)
    named = {_line_name(words[who], titles[key], len(words), len(keys)): line for (who, key), line in lines.items()}
    title = titles[keys[0]] if len(titles) == 1 else "Measures"
    return History(title, units[0] if units else "", named)


def history(told: History) -> Spec:
    """Change points are marked where the new level begins, with how much it is."""
    lines = dict(list(told.lines.items())[:MOST_SERIES])
    if not lines:
        raise Cannot("no run of the history knows this measure")
    most = max(2, MOST // len(lines))
    scale = scale_of(told.unit, [point.value for line in lines.values() for point in line])
    rows = [_row(name, point, scale.factor) for name, line in lines.items() for point in line[-most:]]
    steps = [step for name, line in lines.items() for step in _steps(name, line[-most:], scale.factor)]
    axis = with_unit(told.title, scale.unit)
    time = {"field": "at", "type": "temporal", "title": None}
    colour = colours("series", list(lines)) | ({} if len(lines) > 1 else {"legend": None})
    params, opacity = toggled("series")
    tips = [
        *(
            tip("series", "series", "nominal"),
            {"field": "at", "type": "temporal", "title": "when", "format": "%Y-%m-%d %H:%M"},
        ),
        *(tip("value", axis), tip("run", "run", "nominal"), tip("came_with", "versions", "nominal")),
    ]
    layers: list[Spec] = [
        {
            "params": params,
            "mark": {"type": "line", "point": {"size": 26}},
            "encoding": {
                "x": time,
                "y": y("value", axis, scale={"zero": False}),
                "color": colour,
                "opacity": opacity,
                "tooltip": tips,
            },
        }
    ]
    if steps:
        layers += _step_layers(steps, time)
    changes = f"{len(steps)} change{'s' if len(steps) > 1 else ''} of level" if steps else "no change of level found"
    return view(titled(f"{told.title} over time", f"{len(rows):,} runs, {changes}"), rows, layers)


def _step_layers(steps: list[dict[str, Any]], time: Spec) -> list[Spec]:
    data = {"values": steps}
    tips = [tip("word", "change", "nominal"), tip("series", "series", "nominal"), tip("came_with", "with", "nominal")]
    return [
        {"data": data, "mark": {"type": "rule", "strokeDash": [4, 3]}, "encoding": {"x": time, "tooltip": tips}},
        {
            "data": data,
            "mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 11},
            "encoding": {"x": time, "y": {"value": 8}, "text": {"field": "word"}},
        },
    ]


def _row(name: str, point: Point, factor: float) -> dict[str, Any]:
    about = {"series": name, "at": point.at, "run": point.run, "came_with": point.came_with}
    return about | {"value": point.value * factor}


def _steps(name: str, line: Sequence[Point], factor: float) -> list[dict[str, Any]]:
    found = change_points([point.value for point in line])
    return [
        {
            "series": name,
            "at": line[each.index].at,
            "word": "changed" if each.change is None else f"{each.change:+.1%}",
            "came_with": line[each.index].came_with,
        }
        for each in found
        if not each.is_drift
    ]


def _came_with(run: Run) -> str:
    return ", ".join(f"{name} {value}" for name, value in identity(run).axes.items() if value)


def _identity_words(runs: Sequence[Run]) -> dict[str, str]:
    """A name for each identity among the runs; a number where words do not tell them apart."""
    words: dict[str, str] = {}
    for run in runs:
        key = identity(run).key
        if key not in words:
            name = str(run.plan.get("name") or " ".join(filter(None, [stack_of(run), load_of(run)])))
            taken = set(words.values())
            words[key] = name if name not in taken else f"{name} ({sum(n.startswith(name) for n in taken) + 1})"
    return words


def _line_name(who: str, title: str, identities: int, keys: int) -> str:
    return title if identities == 1 and keys > 1 else who if keys == 1 else f"{who}: {title}"
