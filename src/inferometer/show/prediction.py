"""Models and predictions on the terminal: the terms of a fit, predicted numbers with their intervals, predictions next
to measurements, and the table of capacities."""

from collections.abc import Mapping, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from inferometer.show.console import emit, plain_table
from inferometer.show.tables import title
from inferometer.simulator.fitting.server_model import Capacity, Prediction, ServerModel, Validated
from inferometer.vocabulary.formats import (
    change_size_text,
    change_text,
    duration_text,
    interval_text,
    number_text,
    percent_text,
    value_text,
)

MEASURE_TITLES = {
    "ttft": "TTFT",
    "ttft_p50": "p50",
    "ttft_p90": "p90",
    "tpot": "TPOT",
    "e2e": "E2E",
    "e2e_p90": "p90 ",
    "output_rate": "tok/s",
}
MEASURE_TEXTS = {
    "ttft": "TTFT mean",
    "ttft_p50": "TTFT p50",
    "ttft_p90": "TTFT p90",
    "tpot": "TPOT mean",
    "e2e": "E2E mean",
    "e2e_p90": "E2E p90",
    "output_rate": "output throughput",
}
RATE_TITLES = {"request_rate": "request throughput", "output_rate": "output throughput"}
LONGEST_NAME = 17  # with seven numbers in 80 columns
SETTING_TITLES = {"max_sequences": "sequences", "max_batched_tokens": "token budget"}
MAIN = ("ttft", "tpot", "e2e", "output_rate")
ERROR_SOURCES = {"in sample": "on the runs of the fit", "leave-one-out": "each run left out of its fit"}


def print_model(model: ServerModel, to: Console) -> None:
    """What was fitted, how well, and what is unknown."""
    about = " · ".join(filter(None, (model.model, model.engine, *dict.fromkeys(model.accelerators))))
    to.print(Text(model.name, "bold") + Text(f"  {about}" if about else ""))
    if model.terms:
        terms = plain_table("term", "time", "error", "from", right=("time", "error"))
        for name, term in model.terms.items():
            unsure = "" if term.identified else ", not determined by these runs"
            terms.add_row(
                name, duration_text(term.seconds), f"±{percent_text(round(term.error, 2))}", f"{term.source}{unsure}"
            )
        to.print()
        emit(terms, to)
    if model.runs:
        to.print()
        to.print("error of the model on each run (predicted / measured − 1):")
        emit(errors_table({run.name: run.errors for run in model.runs}), to)
        to.print(
            _errors_text({run.name: run.errors for run in model.runs}, ERROR_SOURCES[model.errors_are]), soft_wrap=True
        )
    for note in model.notes:
        to.print(f"note: {note}", soft_wrap=True)


def errors_table(errors: Mapping[str, Mapping[str, float]]) -> Table:
    table = plain_table("run", *MEASURE_TITLES.values(), right=tuple(MEASURE_TITLES.values()))
    for name, of_run in errors.items():
        table.add_row(_short(name), *(_percent(of_run.get(measure)) for measure in MEASURE_TITLES))
    return table


def _short(name: str) -> str:
    """The end of a long name: ids start with the date."""
    return name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"


def _percent(error: float | None) -> str:
    return change_text(error)


def _errors_text(errors: Mapping[str, Mapping[str, float]], kind: str) -> str:
    sizes = [abs(of_run[name]) for of_run in errors.values() for name in MAIN if name in of_run]
    if not sizes:
        return ""
    median, largest = (change_size_text(size) for size in (float(np.median(sizes)), max(sizes)))
    return f"mean TTFT, TPOT, E2E and throughput, {kind}: median error {median}, largest {largest}"


def print_prediction(prediction: Prediction, to: Console) -> None:
    """The numbers first, marked as predicted; then the reservations."""
    model = prediction.model
    origin = (
        "from the data sheet, not fitted"
        if model.origin == "physics"
        else f"fitted on {len(model.runs)} run{'s' * (len(model.runs) != 1)}"
    )
    to.print(Text("PREDICTED", "bold cyan") + Text(f"  by {model.name}, {origin}; nothing was measured"))
    table = plain_table("", "predicted", "95% interval", "model error", right=("predicted", "model error"))
    for one in prediction.numbers:
        quantity = one.quantity
        name = f"{title(quantity.name)} {quantity.statistic}" if quantity.statistic else RATE_TITLES[quantity.name]
        ends = interval_text((one.low, one.high), quantity.unit) if one.low is not None else "not known"
        error = "-" if one.model_error is None else f"±{percent_text(round(one.model_error, 2))}"
        table.add_row(name, value_text(quantity.value, quantity.unit), ends, error)
    to.print()
    emit(table, to)
    for limit in prediction.run.summary.limits:
        to.print(f"limit {limit.limit}: {_limit_text(limit.met)}", soft_wrap=True)
    for note in prediction.notes:
        to.print(f"note: {note}", soft_wrap=True)


def _limit_text(met: bool | None) -> str:
    return {True: "would be met", False: "would be broken", None: "undecided: the simulation is too short"}[met]


def print_validation(rows: Sequence[Validated], to: Console) -> None:
    table = plain_table("", *MEASURE_TITLES.values(), right=tuple(MEASURE_TITLES.values()))
    for row in rows:
        table.add_row(Text(_short(row.name), "bold"))
        table.add_row("  measured", *(_plain(name, row.measured) for name in MEASURE_TITLES))
        table.add_row("  predicted", *(_plain(name, row.predicted) for name in MEASURE_TITLES))
        if row.intervals:
            table.add_row("  95% from", *(_end(name, row, 0) for name in MEASURE_TITLES))
            table.add_row("       to", *(_end(name, row, 1) for name in MEASURE_TITLES))
        table.add_row("  error", *(_error(name, row) for name in MEASURE_TITLES), style="bold")
        if row.aiconfigurator is not None:
            theirs = row.aiconfigurator
            off = {name: value / row.measured[name] - 1 for name, value in theirs.items()}
            table.add_row("  aiconfigurator", *(_plain(name, theirs) for name in MEASURE_TITLES))
            table.add_row("  error", *(_percent(off.get(name)) for name in MEASURE_TITLES), style="bold")
    emit(table, to)
    to.print(_errors_text({row.name: row.errors for row in rows}, "on these runs"), soft_wrap=True)
    inside = [met for row in rows for met in row.inside.values()]
    if inside:
        text = f"measured values within the 95% interval of their prediction: {sum(inside)} of {len(inside)}"
        to.print(f"{text}; ! marks the others" if not all(inside) else text, soft_wrap=True)
    for row in rows:
        if row.outside:
            to.print(f"note: {row.name} is outside of the fitted range: {'; '.join(row.outside)}", soft_wrap=True)


def _end(name: str, row: Validated, end: int) -> str:
    return _plain(name, {name: row.intervals[name][end]}) if name in row.intervals else "-"


def _error(name: str, row: Validated) -> str:
    return f"{_percent(row.errors[name])}{'' if row.inside.get(name, True) else '!'}"


def _plain(name: str, numbers: Mapping[str, float]) -> str:
    if name not in numbers:
        return "-"
    value = numbers[name]
    return number_text(value) if name == "output_rate" else duration_text(value / 1e3)


def print_capacities(rows: Sequence[Capacity], limits: Sequence[str], to: Console) -> None:
    to.print(Text("PREDICTED", "bold cyan") + Text(f"  highest request rate within {', '.join(limits)}"))
    priced = any(row.dollars_per_million is not None for row in rows)
    tried = list(dict.fromkeys(name for row in rows for name in row.settings))
    names = [SETTING_TITLES.get(name, name) for name in tried]
    columns = ("replicas", *names, "req/s", "at least", "broken at", "tok/s", *(("$/M tok",) if priced else ()))
    table = plain_table(*columns, right=columns)
    for row in rows:
        settings = [f"{row.settings[name]:,}" if name in row.settings else "-" for name in tried]
        rates = [number_text(rate) for rate in (row.rate, row.sure_rate, row.broken_at, row.output_rate)]
        cost = number_text(row.dollars_per_million)
        table.add_row(str(row.replicas), *settings, *rates, *((cost,) if priced else ()))
    to.print()
    emit(table, to)
    if any(row.rate is None for row in rows):
        to.print("-: no rate meets the limits, not even one request at a time", soft_wrap=True)
    if any(row.sure_rate is not None for row in rows):
        to.print("at least: the rate if the server is as much slower as the errors of the model allow", soft_wrap=True)
    if any(row.replicas > 1 for row in rows):
        to.print("requests are spread at random over the replicas; a router may do better", soft_wrap=True)
    for note in dict.fromkeys(text for row in rows for text in row.outside):
        to.print(f"note: {note}, for each replica", soft_wrap=True)
