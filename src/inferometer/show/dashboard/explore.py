"""Charts of pages: specifications with their titles, why others are not possible, and runs of any model, engine and
hardware as points of trade-off charts and rows of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inferometer.judge.compare import Comparison
from inferometer.record.run import Run, engine_name
from inferometer.record.summary import Summary
from inferometer.show.about import About, short_model
from inferometer.show.charts.chart import Cannot, Chart, ChartedRun
from inferometer.show.charts.experiments import ChartedCase, Varied, joined_cases, keys_of, limit_keys
from inferometer.show.charts.history import History, HistoryPoint
from inferometer.show.charts.registry import CHARTS, STRATEGIES, draw, gallery
from inferometer.show.charts.trade_offs import (
    Plottable,
    PlottedRun,
    PointRow,
    load_order,
    load_process,
    per_gpu,
    speed_rows,
)
from inferometer.show.dashboard.documents import AbsentChart, ChartDocument, ChartsDocument, title_of
from inferometer.show.dashboard.families import Family, SeriesPoint
from inferometer.show.dashboard.listing import TrafficTexts, accelerators_of, hardware_text
from inferometer.show.report.document import compact
from inferometer.store.entry import Entry
from inferometer.store.experiments import KeptExperiment
from inferometer.vocabulary import MEASURES

SERIES = "series"  # the field that distinguishes the lines of a chart, by which toggles filter
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
    """Runs of different load side by side: a trade-off of two measures."""
    return ChartsDocument(_made(TRADE_OFFS, list(runs)))


def _made(names: Sequence[str], subject: Any) -> list[ChartDocument]:
    """Those that can be drawn."""
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
    lines = {label: [_chart_point(point) for point in own] for label, own in points.items()}
    names = [series.label for series in family.series]
    made = _made(["history"], History(title_of(quantity), quantity.unit, lines, names))
    return made[0] if made else None


def _chart_point(point: SeriesPoint) -> HistoryPoint:
    return HistoryPoint(point.run, point.at, point.value, point.came_with, point.sound, point.weak)


def experiment_charts(kept: KeptExperiment, cases: Sequence[ChartedCase]) -> list[ChartDocument]:
    """For an A/B test the forest plot of its measures, for a search its limits by load, for a sweep first the
    trade-offs, then grids and curves of the usual numbers."""
    if kept.kind == "ab":
        return _made(["comparison"], kept.result) if kept.result else []
    if kept.kind == "search":
        tried = [case for case in cases if case[0]]
        limited = [chart for key in limit_keys(tried) for chart in _of_key("search_curve", key, tried)]
        return [*limited, *_made(TRADE_OFFS, [run for _, run in tried])]
    joined = joined_cases(cases)
    keys = keys_of(joined)
    varied = [
        chart
        for name in ("experiment_grid", "experiment_curves", "routing_map")
        for key in keys
        for chart in _of_key(name, key, joined)
    ]
    points = _made(TRADE_OFFS, [run for _, run in cases])
    first = {"pareto": 0, "throughput_by_user_speed": 1, "cost_by_user_speed": 2}
    strategies = _made(list(STRATEGIES), Varied("ttft.mean", list(cases)))
    return [*strategies, *sorted(points, key=lambda chart: first.get(chart.name, 3)), *varied]


def _of_key(name: str, key: str, cases: Sequence[ChartedCase]) -> list[ChartDocument]:
    return [
        replace(chart, name=f"{chart.name}-{key.replace('.', '-')}")
        for chart in _made([name], Varied(key, list(cases)))
    ]


MOST_EXPLORED = 200  # maximum number of runs in a chart
SHOWN = (
    *("throughput_per_gpu", "output_rate", "total_rate", "request_rate", "tokens_per_s_user", "user_speed.p50"),
    *("ttft_scheduled.p50", "ttft_scheduled.p99", "ttft.p50", "ttft.p99", "tpot.p50", "tpot.p99", "e2e.p50"),
    *("cost_per_million_tokens", "goodput", "failure_rate"),
)
_RATES = ("request_rate", "output_rate", "total_rate")
NUMBERS = (*SHOWN, "tpot.mean", "offered_rate", *(f"{rate}.{basis}" for rate in _RATES for basis in ("window", "span")))
_OWN = {  # numbers that the index has, but the registry of measures does not
    "throughput_per_gpu": ("Tokens per second and GPU", "tokens/s", "higher"),
    "tokens_per_s_user": ("Tokens per second of one user", "tokens/s", "higher"),
    "cost_per_million_tokens": ("Cost of a million tokens", "$", "lower"),
}


@dataclass(frozen=True)
class GridMeasure:
    key: str
    title: str
    unit: str
    direction: str | None


@dataclass(frozen=True)
class ExploreRow:
    about: About
    verdict: str | None
    values: dict[str, float]
    speed: float | None = None  # as drawn in the charts: tokens per second of one user
    throughput: float | None = None  # likewise: as named in `throughput_title`


@dataclass(frozen=True)
class ExploreDocument:
    """Any runs together: charts, and their numbers as rows."""

    total: int
    shown: int
    charts: list[ChartDocument]
    rows: list[ExploreRow]
    measures: list[GridMeasure]
    throughput_title: str = "Tokens per second"


def explored(entries: Sequence[Entry], words: TrafficTexts) -> ExploreDocument:
    """For entries with `NUMBERS`, newest first."""
    shown = entries[:MOST_EXPLORED]
    basis = "window" if all(_has_window(entry) for entry in shown) else "span"
    rows = [ExploreRow(_about(entry, words), entry.verdict, _values(entry, basis)) for entry in shown]
    points = [
        PlottedRun(_point(row.about), row.values, accelerators_of(entry))
        for row, entry in zip(rows, shown, strict=True)
    ]
    known = [key for key in SHOWN if any(key in row.values for row in rows)]
    charts = [*(trade_offs(points).charts if len(points) > 1 else []), *_per_gpu(points)]
    drawn, title = _drawn(points)
    rows = [_with_drawn(row, drawn.get(row.about.id)) for row in rows]
    return ExploreDocument(len(entries), len(shown), charts, rows, [_measure(key) for key in known], title)


def _per_gpu(points: Sequence[PlottedRun]) -> list[ChartDocument]:
    """The same per GPU, for the runs with a known number of GPUs, if it is not known for all."""
    counted = [point for point in points if per_gpu(point) is not None]
    if not 1 < len(counted) < len(points):
        return []
    made = trade_offs(counted).charts
    return [replace(chart, name=f"{chart.name}_per_gpu") for chart in made if chart.name == "throughput_by_user_speed"]


def _drawn(points: Sequence[PlottedRun]) -> tuple[dict[str, PointRow], str]:
    """By run: its coordinates in the charts, so that tables have the same numbers; and the name of its throughput."""
    try:
        rows, title = speed_rows(points)
    except Cannot:
        return {}, "Tokens per second"
    return {row["run"]: row for row in rows}, title


def _with_drawn(row: ExploreRow, point: PointRow | None) -> ExploreRow:
    return row if point is None else replace(row, speed=point["speed"], throughput=point["throughput"])


def _has_window(entry: Entry) -> bool:
    values = entry.values
    return all(values.get(f"{rate}.window") in (None, values[rate]) for rate in _RATES if rate in values)


def _values(entry: Entry, basis: str) -> dict[str, float]:
    """Rates on one basis for all runs."""
    own = {
        key: value for key, value in entry.values.items() if key in NUMBERS and not key.endswith((".window", ".span"))
    }
    return own | {rate: entry.values.get(f"{rate}.{basis}", own[rate]) for rate in _RATES if rate in own}


def _about(entry: Entry, words: TrafficTexts) -> About:
    workload, load = words.of(entry)
    return About(
        id=entry.id,
        name=entry.name,
        model=short_model(entry.model),
        engine=engine_name(entry.engine, entry.engine_version),
        hardware=hardware_text(entry),
        workload=workload,
        load=load,
        started=entry.started_at,
        commit=entry.commit[:12] if entry.commit else None,
    )


def _point(about: About) -> PointRow:
    return {
        "run": about.id,
        "stack": about.stack or "unknown model",
        "model": about.model or "-",
        "engine": about.engine or "-",
        "hardware": about.hardware or "-",
        "workload": about.workload or "-",
        "name": about.name or "-",
        "load": about.load,
        "process": load_process(about.load),
        "order": load_order(about.load),
    }


def _measure(key: str) -> GridMeasure:
    if key in _OWN:
        return GridMeasure(key, *_OWN[key])
    name, _, statistic = key.partition(".")
    measure = MEASURES[name]
    return GridMeasure(key, f"{measure.title} {statistic}".strip(), measure.unit, measure.direction)
