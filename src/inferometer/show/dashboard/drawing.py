"""The charts of `show.charts` as pages take them: specifications with their titles, and why others cannot be made."""

from collections.abc import Mapping, Sequence
from typing import Any

from inferometer.judge.compare import Comparison
from inferometer.record.run import Run
from inferometer.record.summary import Summary
from inferometer.show.charts.chart import Cannot, Chart
from inferometer.show.charts.experiments import Varied, cases_of, keys_of
from inferometer.show.charts.history import History, Point
from inferometer.show.charts.registry import CHARTS, draw, gallery
from inferometer.show.charts.subject import Subject
from inferometer.show.dashboard.families import Family
from inferometer.show.report.page import compact
from inferometer.store.experiments import KeptExperiment

SERIES = "series"  # the field that tells the lines of a chart apart: what toggles filter by
TRADE_OFFS = ("throughput_by_user_speed", "cost_by_user_speed", "pareto", "latency_by_rate")
OVERLAID = ("ttft_cdfs", "e2e_cdfs", "startups")


def as_data(chart: Chart) -> dict[str, Any]:
    return {"name": chart.name, "title": chart.title, "spec": compact(chart.spec)}


def run_charts(run: Run) -> dict[str, Any]:
    if run.summary == Summary():
        return {"charts": [], "absent": [], "note": "Nothing was measured yet."}
    made, absent = gallery("run", Subject(run))
    return {"charts": [as_data(each) for each in made], "absent": [_told(each) for each in absent]}


def _told(absent: Any) -> dict[str, str]:
    return {"title": absent.title, "why": absent.why}


def comparison_charts(found: Comparison, runs: Sequence[Run]) -> dict[str, Any]:
    return {"charts": [*_made(["comparison"], found), *_made(OVERLAID, list(runs))]}


def trade_offs(runs: Sequence[Run]) -> dict[str, Any]:
    """Runs of different load beside each other: what is gained in one is paid in the other."""
    return {"charts": _made(TRADE_OFFS, list(runs))}


def _made(names: Sequence[str], thing: Any) -> list[dict[str, Any]]:
    """Those that can be made."""
    found = []
    for name in names:
        if name in CHARTS:
            try:
                found.append(as_data(draw(name, thing)))
            except Cannot:
                continue
    return found


def history_chart(family: Family, key: str, points: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    each = family.keys[key]
    title = each.title if each.statistic is None else f"{each.title} {each.statistic}"
    lines = {label: [_point(point) for point in own] for label, own in points.items()}
    made = _made(["history"], History(title, each.unit, lines, [series.label for series in family.series]))
    return {"field": SERIES, "chart": made[0] if made else None}


def _point(point: Mapping[str, Any]) -> Point:
    came_with = ", ".join(f"{name} {point[name]}" for name in ("version", "commit") if name in point)
    return Point(point["run"], point["at"], point["value"], came_with, point.get("verdict") != "invalid")


def experiment_charts(kept: KeptExperiment, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Curves and grids of the usual numbers, and the trade-offs."""
    cases = cases_of(kept, lambda id_: runs.get(id_))
    made = [
        chart | {"name": f"{chart['name']}-{key.replace('.', '-')}"}
        for name in ("experiment_grid", "experiment_curves")
        for key in keys_of(cases)
        for chart in _made([name], Varied(key, cases))
    ]
    return {"charts": [*made, *_made(TRADE_OFFS, [run for _, run in cases])]}
