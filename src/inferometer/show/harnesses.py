"""What several tools report of the same server, side by side: each number by the tool's own definition."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from inferometer.record.run import Run
from inferometer.record.summary import MeasureSummary, Rate
from inferometer.show.console import plain_table
from inferometer.vocabulary import MEASURES, value_text

_MEASURES = (("ttft", "mean"), ("ttft", "p50"), ("ttft", "p99"), ("tpot", "mean"), ("itl", "mean"), ("e2e", "mean"))
_RATES = ("request_rate", "output_rate")
_SERVER = (("server_ttft", "TTFT"), ("server_tpot", "TPOT"), ("server_e2e", "E2E"))


def harnesses_table(runs: Sequence[Run]) -> Table:
    """A row for each number, a column for each tool."""
    names = [harness_of(run) for run in runs]
    table = plain_table("", *names, right=tuple(names), gap=2)
    for label, cells in rows(runs):
        table.add_row(label, *cells)
    return table


def harness_of(run: Run) -> str:
    return (run.environment.harness.name if run.environment.harness else None) or "inferometer"


def rows(runs: Sequence[Run]) -> Iterator[tuple[str, list[str]]]:
    """Label and a cell per run; a number that none of them has is left out."""
    yield "state", [run.state for run in runs]
    yield "requests answered", [_count(run) for run in runs]
    for name, statistic in _MEASURES:
        values = [_statistic(run, name, statistic) for run in runs]
        if any(value is not None for value in values):
            unit = MEASURES[name].unit
            yield f"{MEASURES[name].title} {statistic}", [value_text(value, unit) for value in values]
    for name in _RATES:
        rates = [_rate(run, name) for run in runs]
        if any(rate is not None for rate in rates):
            yield MEASURES[name].title, [value_text(rate, MEASURES[name].unit) for rate in rates]
    for name, label in _SERVER:
        means = [of.value if (of := run.summary.values.get(name)) is not None else None for run in runs]
        if any(mean is not None for mean in means):
            yield f"{label} mean, by the server", [value_text(mean, "s") for mean in means]
    counted = [_server_requests(run) for run in runs]
    if any(count is not None for count in counted):
        yield "requests, by the server", ["-" if count is None else f"{count:,.0f}" for count in counted]


def _count(run: Run) -> str:
    answered = run.summary.outcomes.get("ok")
    return "-" if answered is None else f"{answered:,}"


def reported_measure(run: Run, name: str) -> MeasureSummary | None:
    """As the tool states it; of a run of ours, or where it states none, as measured from the records."""
    stated = run.summary.reported.measures if run.summary.reported else {}
    return stated.get(name) or run.summary.measures.get(name)


def _statistic(run: Run, name: str, statistic: str) -> float | None:
    measure = reported_measure(run, name)
    if measure is None or (
        run.source is not None and run.summary.reported and name not in run.summary.reported.measures
    ):
        return None
    value = measure[statistic]
    return None if value is None else float(value)


def _rate(run: Run, name: str) -> float | None:
    stated: dict[str, Rate] = run.summary.reported.rates if run.summary.reported else {}
    rate = stated.get(name) or run.summary.rates.get(name)
    return rate.value if rate is not None else None


def _server_requests(run: Run) -> float | None:
    counter = run.summary.server.counters.get("requests_ok") if run.summary.server else None
    return counter.grown if counter is not None else None
