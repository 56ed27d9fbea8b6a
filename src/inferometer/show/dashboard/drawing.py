"""The charts of `show.charts` as pages take them: specifications with their titles, and why others cannot be made."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from inferometer.judge.compare import Comparison
from inferometer.record.run import Run
from inferometer.record.summary import Summary
from inferometer.show.charts.chart import Cannot, Chart
from inferometer.show.charts.experiments import Case, Varied, joined_cases, keys_of, limit_keys
from inferometer.show.charts.history import History, Point
from inferometer.show.charts.registry import CHARTS, STRATEGIES, draw, gallery
from inferometer.show.charts.subject import ChartedRun
from inferometer.show.charts.trade_offs import Plottable
from inferometer.show.dashboard.documents import AbsentChart, ChartDocument, ChartsDocument, title_of
from inferometer.show.dashboard.families import Family, SeriesPoint
from inferometer.show.experiment_answer import comparison_from
from inferometer.show.report.page import compact
from inferometer.store.experiments import KeptExperiment

SERIES = "series"  # the field that tells the lines of a chart apart: what toggles filter by
TRADE_OFFS = ("throughput_by_user_speed", "cost_by_user_speed", "pareto", "latency_by_rate")
OVERLAID = ("ttft_cdfs", "e2e_cdfs", "startups")


def as_data(chart: Chart) -> ChartDocument:
    return ChartDocument(chart.name, chart.title, compact(chart.spec))


def run_charts(run: Run) -> ChartsDocument:
    if run.summary == Summary():
        return ChartsDocument([], note="Nothing was measured yet.")
    made, absent = gallery("run", ChartedRun(run))
    return ChartsDocument([as_data(chart) for chart in made], [AbsentChart(chart.title, chart.why) for chart in absent])


def comparison_charts(comparison: Comparison, runs: Sequence[Run]) -> list[ChartDocument]:
    return [*_made(["comparison"], comparison), *_made(OVERLAID, list(runs))]


def trade_offs(runs: Sequence[Plottable]) -> ChartsDocument:
    """Runs of different load beside each other: what is gained in one is paid in the other."""
    return ChartsDocument(_made(TRADE_OFFS, list(runs)))


def _made(names: Sequence[str], subject: Any) -> list[ChartDocument]:
    """Those that can be made."""
    charts = []
    for name in names:
        if name in CHARTS:
            try:
                charts.append(as_data(draw(name, subject)))
            except Cannot:
                continue
    return charts


def history_chart(family: Family, key: str, points: Mapping[str, Sequence[SeriesPoint]]) -> ChartDocument | None:
    quantity = family.keys[key]
    lines = {label: [_point(point) for point in own] for label, own in points.items()}
    names = [series.label for series in family.series]
    made = _made(["history"], History(title_of(quantity), quantity.unit, lines, names))
    return made[0] if made else None


def _point(point: SeriesPoint) -> Point:
    return Point(point.run, point.at, point.value, point.came_with, point.sound)


def experiment_charts(kept: KeptExperiment, cases: Sequence[Case]) -> list[ChartDocument]:
    """Of an A/B test the forest of its measures, of a search its limits by load, of a sweep the trade-offs first, then
    grids and curves of the usual numbers."""
    if kept.kind == "ab":
        return _made(["comparison"], comparison_from(kept.result)) if kept.result else []
    if kept.kind == "search":
        tried = [case for case in cases if case[0]]
        limited = [chart for key in limit_keys(tried) for chart in _of_key("search_curve", key, tried)]
        return [*limited, *_made(TRADE_OFFS, [run for _, run in tried])]
    joined = joined_cases(cases)
    varied = [
        chart
        for name in ("experiment_grid", "experiment_curves", "routing_map")
        for key in keys_of(joined)
        for chart in _of_key(name, key, joined)
    ]
    points = _made(TRADE_OFFS, [run for _, run in cases])
    first = {"pareto": 0, "throughput_by_user_speed": 1, "cost_by_user_speed": 2}
    strategies = _made(list(STRATEGIES), Varied("ttft.mean", list(cases)))
    return [*strategies, *sorted(points, key=lambda chart: first.get(chart.name, 3)), *varied]


def _of_key(name: str, key: str, cases: Sequence[Case]) -> list[ChartDocument]:
    return [
        replace(chart, name=f"{chart.name}-{key.replace('.', '-')}")
        for chart in _made([name], Varied(key, list(cases)))
    ]
