"""Sides and strategies next to each other: how much each measure changed and with which uncertainty, bars with
whiskers, ratios to the first, and where a request spends its time."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, TypedDict

import numpy as np

from inferometer.documents.document import JsonObject
from inferometer.judge.compare import Comparison, winner
from inferometer.judge.effect import Change
from inferometer.measure.values import Quantity, common_basis, quantities
from inferometer.plan.cases import CASE
from inferometer.record.run import Run
from inferometer.show.charts.chart import (
    GREY,
    STATUS_COLOURS,
    WIDTH,
    Cannot,
    ChartRow,
    Spec,
    colours,
    meanings,
    number_in_vega,
    scale_of,
    tip,
    titled,
    tooltip,
    view,
    with_unit,
    x,
    y,
)
from inferometer.show.charts.experiments import Varied, axis_title, measure_title, readable
from inferometer.show.comparison import NOT_DECIDED, ChangeRow, comparison_rows
from inferometer.vocabulary import number_text, percent_text

POLICY = "server.router.policy"
MEASURES = {"ttft.mean": "TTFT", "tpot.mean": "TPOT", "e2e.mean": "E2E", "run_time": "run time"}
PHASES = {"queue_time": "queue", "prefill_time": "prefill", "decode_time": "decode"}
TIED = "no difference shown"

MOST_GROUPS = 12  # number of bar groups
Numbers = dict[str, list[float]]  # of every strategy, one number per repeat


def strategy_bars(varied: Varied) -> Spec:
    """The mean of the repeats and their range, a panel for each of the usual measures; if more than the strategy was
    varied, a group of bars for each combination of the other settings."""
    panels, shown, groups = [], 0, 0
    for key, name in MEASURES.items():
        numbers, unit = _numbers(varied, key)
        labels = list(dict.fromkeys(label for label, _ in numbers))
        strategies = list(dict.fromkeys(strategy for _, strategy in numbers))
        if len(strategies) < 2:
            continue
        shown, groups = min(len(labels), MOST_GROUPS), len(labels)
        kept = {where: values for where, values in numbers.items() if where[0] in labels[:MOST_GROUPS]}
        scale = scale_of(unit, [value for values in kept.values() for value in values])
        rows = [
            {
                "label": label,
                "strategy": strategy,
                "mean": fmean(values) * scale.factor,
                "low": min(values) * scale.factor,
                "high": max(values) * scale.factor,
                "runs": len(values),
            }
            for (label, strategy), values in kept.items()
        ]
        panels.append(_bars(rows, strategies, labels[:MOST_GROUPS], with_unit(name, scale.unit)))
    if not panels:
        raise Cannot("it needs at least two strategies")
    repeats = max(row["runs"] for row in panels[0]["data"]["values"])
    some = f", the first {shown} of {groups} settings" if shown < groups else ""
    title = f"means of {repeats} repeats; whiskers from the lowest to the highest{some}"
    return {"title": titled("Strategies side by side", title), "vconcat": panels, "spacing": 18}


def _bars(rows: Sequence[ChartRow], strategies: list[str], labels: list[str], axis: str) -> Spec:
    side = {"field": "strategy", "type": "nominal", "title": None, "sort": strategies}
    group = {"field": "label", "type": "nominal", "title": None, "sort": labels, "axis": {"labelLimit": 240}}
    grouped = len(labels) > 1
    place = {"y": group, "yOffset": side} if grouped else {"y": side}
    tips = tooltip(
        *([tip("label", "settings", "nominal")] if grouped else []),
        *(tip("strategy", "strategy", "nominal"), tip("mean", axis), tip("low", "lowest"), tip("high", "highest")),
    )
    colour = colours("strategy", strategies) | ({} if grouped else {"legend": None})
    whiskers = {**place, "x": x("low", axis), "x2": {"field": "high"}}
    text = {**place, "x": x("high", axis), "text": {"value": {"expr": number_in_vega("datum.mean")}}}
    return {
        "width": WIDTH,
        "height": (16 if grouped else 26) * len(strategies) * len(labels),
        "data": {"values": rows},
        "layer": [
            {"mark": {"type": "bar"}, "encoding": {**place, "x": x("mean", axis), "color": colour, "tooltip": tips}},
            {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": whiskers},
            {"mark": {"type": "text", "align": "left", "dx": 5}, "encoding": text},
        ],
    }


def ratio_to_baseline(varied: Varied) -> Spec:
    """Every strategy relative to the first, repeat by repeat; 1 means no difference."""
    rows = []
    strategies: list[str] = []
    groups = 1
    for key, name in MEASURES.items():
        cells, _ = _numbers(varied, key)
        groups = len({label for label, _ in cells})
        numbers: dict[str, list[float]] = {}
        for (_, strategy), values in cells.items():
            numbers.setdefault(strategy, []).extend(values)
        if len(numbers) < 2:
            continue
        strategies = list(numbers)
        first = np.array(numbers[strategies[0]])
        for strategy, values in numbers.items():
            if len(values) == len(first) and (first > 0).all():
                ratios = np.array(values) / first
                spread = {"mean": float(ratios.mean()), "low": float(ratios.min()), "high": float(ratios.max())}
                rows.append({"measure": name, "strategy": strategy, **spread})
    if not rows:
        raise Cannot("it needs at least two strategies with the same repeats")
    across = {
        "field": "measure",
        "type": "nominal",
        "title": None,
        "sort": list(MEASURES.values()),
        "axis": {"labelAngle": 0},
    }
    side = {"field": "strategy", "type": "nominal", "sort": strategies}
    up = y("mean", f"multiple of {strategies[0]}")
    tips = tooltip(
        tip("strategy", "strategy", "nominal"),
        tip("measure", "measure", "nominal"),
        tip("mean", "ratio"),
        tip("low", "lowest"),
        tip("high", "highest"),
    )
    whiskers = {"x": across, "xOffset": side, "y": y("low", f"multiple of {strategies[0]}"), "y2": {"field": "high"}}
    layers: list[Spec] = [
        {
            "mark": {"type": "bar"},
            "encoding": {
                "x": across,
                "xOffset": side,
                "y": up,
                "color": colours("strategy", strategies),
                "tooltip": tips,
            },
        },
        {"mark": {"type": "rule"}, "encoding": whiskers},
    ]
    over = "the repeats" if groups == 1 else f"the repeats of all {groups} settings"
    return view(titled(f"Ratio to {strategies[0]}", f"below 1 is faster; whiskers over {over}"), rows, layers)


def request_lifecycle(runs: Sequence[Run]) -> Spec:
    """Queue, prefill and decode times measured by the servers, stacked; runs with the same name are averaged."""
    spent: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        server = run.summary.server
        if server is None or not all(name in server.histograms for name in PHASES):
            continue
        for phase, label in PHASES.items():
            mean = server.histograms[phase].mean
            if mean is not None:
                spent.setdefault(_label(run), {}).setdefault(label, []).append(1e3 * mean)
    rows = [
        {"strategy": strategy, "phase": phase, "value": fmean(values), "order": at}
        for strategy, phases in spent.items()
        for at, (phase, values) in enumerate(phases.items())
    ]
    if not rows:
        raise Cannot("no run has the times that requests spent waiting, in prefill and in decode at the servers")
    bars = {
        "mark": {"type": "bar"},
        "encoding": {
            "y": {"field": "strategy", "type": "nominal", "title": None, "sort": list(spent)},
            "x": x("value", "time of a request in the server (ms)", stack=True),
            "order": {"field": "order", "type": "ordinal"},
            "color": colours("phase", list(PHASES.values())),
            "tooltip": tooltip(
                tip("strategy", "run", "nominal"), tip("phase", "phase", "nominal"), tip("value", "mean (ms)")
            ),
        },
    }
    title = titled("Where a request spends its time", "queue, prefill and decode as the servers measured them")
    return view(title, rows, [bars], height=max(60, 30 * len(spent)))


def _label(run: Run) -> str:
    return run.plan.name or run.id


def routing_map(varied: Varied) -> Spec:
    """Over two numeric settings: the strategy with the lowest mean of the measure. A cell shows if others are not
    significantly worse; it has the winner's colour, faded if there are ties."""
    cells: dict[tuple[float, float], Numbers] = {}
    known = varied.known()
    axes = _numeric_axes([settings for settings, _, _ in known])
    if len(axes) < 2:
        raise Cannot("it needs two numeric settings that were varied, and strategies")
    for settings, _, quantity in known:
        place = (float(str(settings[axes[0]])), float(str(settings[axes[1]])))
        cells.setdefault(place, {}).setdefault(_strategy(settings), []).append(quantity.value)
    rows = [map_row(place, numbers) for place, numbers in sorted(cells.items()) if len(numbers) > 1]
    if not rows:
        raise Cannot("it needs at least two strategies in a cell")
    return map_view(rows, [axis_title(axis) for axis in axes], f"lowest {measure_title(known[0][2])}")


class MapCell(TypedDict):
    """A cell of the map: the strategy with the lowest mean, and how many others are not significantly worse."""

    across: str
    up: str
    winner: str
    ties: str
    mark: str
    value: float
    shown: float


def map_row(place: tuple[float, float], numbers: Mapping[str, Sequence[float]]) -> MapCell:
    """A cell of the map."""
    chosen = winner(numbers)
    ties = ", ".join(chosen.ties)
    return {
        "across": number_text(place[0]),
        "up": number_text(place[1]),
        "winner": chosen.best,
        "ties": ties or "none",
        "mark": f"≈ {len(chosen.ties)} more" if ties else "",
        "value": float(np.mean(numbers[chosen.best])),
        "shown": 0.45 if ties else 1.0,
    }


def map_view(rows: Sequence[MapCell], axes: Sequence[str], subject: str) -> Spec:
    strategies = sorted({row["winner"] for row in rows})
    places: Spec = {
        "x": {"field": "across", "type": "nominal", "title": axes[0], "sort": _in_order(row["across"] for row in rows)},
        "y": {"field": "up", "type": "nominal", "title": axes[1], "sort": _in_order(row["up"] for row in rows)[::-1]},
    }
    places["x"]["axis"] = {"labelAngle": 0}
    tips = tooltip(
        tip("winner", "lowest", "nominal"),
        tip("ties", TIED, "nominal"),
        tip("value", "its mean"),
        tip("across", axes[0], "nominal"),
        tip("up", axes[1], "nominal"),
    )
    squares = {
        "mark": {"type": "rect", "stroke": "white"},
        "encoding": places
        | {
            "color": colours("winner", strategies),
            "opacity": {"field": "shown", "type": "quantitative", "scale": None, "legend": None},
            "tooltip": tips,
        },
    }
    names = {"mark": {"type": "text", "fontSize": 11, "dy": -6}, "encoding": places | {"text": {"field": "winner"}}}
    ties = {"mark": {"type": "text", "fontSize": 10, "dy": 9}, "encoding": places | {"text": {"field": "mark"}}}
    title = titled(f"Which strategy has the {subject}", f"faded with ≈ N: {TIED} to N other strategies")
    return view(title, rows, [squares, names, ties], height=46 * len({row["up"] for row in rows}))


def _in_order(numbers: Iterable[str]) -> list[str]:
    return sorted(set(numbers), key=lambda text: float(text.replace(",", "")))


def _strategy(settings: JsonObject) -> str:
    return str(settings.get(CASE) or settings.get(POLICY) or "-")


def _numeric_axes(settings: Sequence[JsonObject]) -> list[str]:
    names = dict.fromkeys(name for case in settings for name in case if name not in (CASE, POLICY, "seed"))
    return [
        name
        for name in names
        if all(isinstance(case.get(name), int | float) for case in settings)
        and len({case.get(name) for case in settings}) > 1
    ][:2]


def _numbers(varied: Varied, key: str) -> tuple[dict[tuple[str, str], list[float]], str]:
    """Grouped by the other settings and by strategy, in the order of the cases; repeats in theirs."""
    basis = common_basis(run.summary for _, run in varied.cases)
    others = _other_settings([settings for settings, _ in varied.cases])
    numbers: dict[tuple[str, str], list[float]] = {}
    unit = ""
    for settings, run in sorted(varied.cases, key=lambda case: [_place(case[0].get(name)) for name in others]):
        quantity: Quantity | None = quantities(run.summary, basis).get(key)
        if quantity is not None and (CASE in settings or POLICY in settings):
            unit = quantity.unit
            label = ", ".join(f"{readable(name)} {settings.get(name)}" for name in others)
            numbers.setdefault((label, _strategy(settings)), []).append(quantity.value)
    return numbers, unit


def _other_settings(settings: Sequence[JsonObject]) -> list[str]:
    """Settings that varied within one strategy; of settings that vary together the first."""
    names = dict.fromkeys(name for own in settings for name in own if name not in (CASE, POLICY))
    values = {name: {(_strategy(own), str(own.get(name))) for own in settings} for name in names}
    strategies = {_strategy(own) for own in settings}
    several = [name for name in names if len(values[name]) > len(strategies)]
    first: dict[frozenset[frozenset[int]], str] = {}
    for name in several:
        cells: dict[str, set[int]] = {}
        for at, own in enumerate(settings):
            cells.setdefault(str(own.get(name)), set()).add(at)
        first.setdefault(frozenset(map(frozenset, cells.values())), name)
    return list(first.values())


def _place(value: Any) -> tuple[bool, float, str]:
    """Numbers in their order, before texts."""
    return (False, float(value), "") if isinstance(value, int | float) else (True, 0.0, str(value))


_LINE = 26


def comparison(comparison: Comparison) -> Spec:
    """Measures for which less is better and measures for which more is better: the colour shows the improvement, not
    the direction."""
    rows = [_row(change, text) for change, text in zip(comparison.changes, comparison_rows(comparison), strict=True)]
    if not rows:
        raise Cannot("the two sides have no measure in common")
    across = x("change", "change (%)", axis={"format": "+,.2~f"})
    rank = {"field": "measure", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 240}}
    colour = meanings(
        "status", {NOT_DECIDED: GREY} if comparison.refused else STATUS_COLOURS, {row["status"] for row in rows}
    )
    tips = [
        tip("measure", "measure", "nominal"),
        tip("label", "change", "nominal"),
        tip("interval", "interval", "nominal"),
        tip("status", "result", "nominal"),
    ]
    whiskers = {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.55},
        "encoding": {"x": x("low", "change (%)"), "x2": {"field": "high"}, "y": rank, "color": colour},
    }
    layers: list[Spec] = [
        {
            "data": {"values": [{"zero": 0}]},
            "mark": {"type": "rule"},
            "encoding": {"x": {"field": "zero", "type": "quantitative"}},
        },
        *([whiskers] if any(row["low"] is not None for row in rows) else []),
        {
            "mark": {"type": "point", "size": 90},
            "encoding": {"x": across, "y": rank, "color": colour, "tooltip": tooltip(*tips)},
        },
    ]
    noise = any(change.within_only for change in comparison.changes)
    subtitle = (
        "whiskers show noise within the runs only"
        if noise
        else f"whiskers are {percent_text(1 - comparison.alpha)} confidence intervals, corrected for all measures"
    )
    title = "Not decided: the sides cannot be compared" if comparison.refused else "Changes with confidence intervals"
    return view(titled(title, subtitle), rows, layers, height=_LINE * len(rows) + 20)


class ChangePoint(TypedDict):
    """A change with its interval, in percent or points."""

    measure: str
    change: float
    low: float | None
    high: float | None
    status: str
    label: str
    interval: str


def _row(change: Change, texts: ChangeRow) -> ChangePoint:
    """In percent; for shares, which are percentages already, in percentage points."""
    low, high = (None, None) if change.interval is None else (100 * end for end in change.interval)
    return {
        "measure": change.title if change.relative else f"{change.title} (points)",
        "change": 100 * change.change,
        "low": low,
        "high": high,
        "status": texts.status,
        "label": texts.change,
        "interval": texts.interval,
    }
