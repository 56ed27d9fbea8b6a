"""Runs of any model, engine and hardware together: what the index knows of them as points of trade-off charts and as
rows of tables, so that thousands of runs need not be read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inferometer.record.subject import engine_words
from inferometer.show.about import About
from inferometer.show.charts.chart import Cannot
from inferometer.show.charts.trade_offs import PlottedRun, PointRow, load_order, load_process, per_gpu, speed_rows
from inferometer.show.dashboard.documents import ChartDocument
from inferometer.show.dashboard.drawing import trade_offs
from inferometer.show.dashboard.listing import Words, accelerators_of, hardware_text
from inferometer.show.series_names import short_model
from inferometer.store.entry import Entry
from inferometer.vocabulary import MEASURES

MOST_EXPLORED = 200  # runs of one chart
SHOWN = (
    *("throughput_per_gpu", "output_rate", "total_rate", "request_rate", "tokens_per_s_user", "user_speed.p50"),
    *("ttft_scheduled.p50", "ttft_scheduled.p99", "ttft.p50", "ttft.p99", "tpot.p50", "tpot.p99", "e2e.p50"),
    *("cost_per_million_tokens", "goodput", "failure_rate"),
)
_RATES = ("request_rate", "output_rate", "total_rate")
NUMBERS = (*SHOWN, "tpot.mean", "offered_rate", *(f"{rate}.{basis}" for rate in _RATES for basis in ("window", "span")))
_OWN = {  # numbers that the index has and the registry of measures has not
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
    speed: float | None = None  # as the charts draw it: tokens per second of one user
    throughput: float | None = None  # the same: `throughput_title` says of what


@dataclass(frozen=True)
class ExploreDocument:
    """Any runs together: charts, and their numbers as rows."""

    total: int
    shown: int
    charts: list[ChartDocument]
    rows: list[ExploreRow]
    measures: list[GridMeasure]
    throughput_title: str = "Tokens per second"


def explored(entries: Sequence[Entry], words: Words) -> ExploreDocument:
    """Of entries with `NUMBERS`, the newest first."""
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
    """The same per GPU, of the runs that tell how many they had, where others do not."""
    counted = [point for point in points if per_gpu(point) is not None]
    if not 1 < len(counted) < len(points):
        return []
    made = trade_offs(counted).charts
    return [replace(chart, name=f"{chart.name}_per_gpu") for chart in made if chart.name == "throughput_by_user_speed"]


def _drawn(points: Sequence[PlottedRun]) -> tuple[dict[str, PointRow], str]:
    """By run: where the charts draw it, so that tables have the same numbers; and what its throughput is called."""
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


def _about(entry: Entry, words: Words) -> About:
    workload, load = words.of(entry)
    return About(
        id=entry.id,
        name=entry.name,
        model=short_model(entry.model),
        engine=engine_words(entry.engine, entry.engine_version),
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
