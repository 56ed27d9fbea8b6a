"""Imported runs for people, and a run under another tool's definitions: the numbers, how that tool defines them, and
why they differ from ours."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from inferometer.documents.document import JsonObject
from inferometer.errors import StoreError
from inferometer.exchange.exporting import seen_by_others
from inferometer.measure.rosetta import TranslatedMeasure, Translation, tool_named, translated
from inferometer.measure.summary import slowest
from inferometer.measure.values import quantities
from inferometer.record.files import schema_of
from inferometer.record.run import Run
from inferometer.record.summary import MeasureSummary, Rate, Summary, WindowSummary
from inferometer.show.about import origin_text
from inferometer.show.console import emit, facts_table, first_that_fits, on_a_screen, plain_table
from inferometer.show.summary import any_weak, notes_table, verdict_table
from inferometer.show.tables import STATS, cell, slices_table, slowest_table, title
from inferometer.vocabulary import MEASURES, WEAK_MARK, duration_text, number_text, percent_text, value_text

if TYPE_CHECKING:
    from inferometer.exchange.importing.importer import Imported


# -- imported --------------------------------------------------------------------------------------------------------


MOST_IDS = 2
_QUANTILES = ("p25", "p50", "p75", "p90", "p95", "p99", "p99.9")


def print_imported(
    run: Run, to: Console, *, more: bool = False, measures: bool = False, slices: bool = False, slow: int = 0
) -> None:
    """The most important information; with `more` also the origin, the tool's definitions and all notes."""
    last_lines = list(_last_lines(run, more))
    for section in _sections(run, to.width, measures) if more else _fitting_sections(run, to.width, len(last_lines)):
        emit(section, to)
        to.print()
    if measures and not more:
        emit(measures_table(run.summary.measures, None, to.width) or "no measures", to)
        to.print()
    if slices and run.summary.slices:
        emit(slices_table(run.summary.slices), to)
        to.print()
    if slow:
        records = run.records
        emit(
            "no records: the file has no individual requests"
            if records is None
            else slowest_table(slowest(records, slow)),
            to,
        )
        to.print()
    for line in last_lines:
        to.print(line, soft_wrap=True)


def _last_lines(run: Run, more: bool) -> Iterator[Text]:
    if run.folder is not None:
        yield (
            Text.assemble(("stored in   ", "dim"), str(run.folder))
            if more
            else Text.assemble(("see more    ", "dim"), f"inferometer show {run.id} --more")
        )


def _sections(run: Run, width: int, every: bool) -> Iterator[RenderableType]:
    yield verdict_table(run)
    yield _done(run)
    if table := measures_table(run.summary.measures, None if every else run.summary.headline, width):
        yield table
    if table := _numbers(run.summary):
        yield table
    if definitions := _definitions(run.summary):
        yield definitions
    if notes := notes_table(run, more=True):
        yield notes


@dataclass(frozen=True, slots=True)
class _Detail:
    """How much is shown: the more data the file has, the less of it."""

    doubts: int = 3
    counts: bool = True  # of tokens, next to the latencies
    numbers: int = 12
    longest: int | None = None  # maximum length of a doubt


_DETAILS = (
    _Detail(),
    _Detail(doubts=1, numbers=8),
    _Detail(doubts=1, counts=False, numbers=5),
    _Detail(doubts=1, counts=False, numbers=3, longest=160),
)


def _fitting_sections(run: Run, width: int, last_lines: int) -> Sequence[RenderableType]:
    return on_a_screen((list(_short_sections(run, width, detail)) for detail in _DETAILS), width, last_lines)


def _short_sections(run: Run, width: int, detail: _Detail) -> Iterator[RenderableType]:
    """Verdict and what was measured, the headline, the rates, and other values."""
    summary, line = run.summary, run.subject.line
    origin = Text(f"imported from {origin_text(run)}", "dim")
    yield Group(verdict_table(run, detail.doubts, detail.longest), *([Text(line)] if line else []), origin)
    names = [name for name in summary.headline if detail.counts or name not in _COUNTS]
    if table := measures_table(summary.measures, names, width):
        yield table
    if table := _numbers(summary, detail.numbers):
        yield table
    if footer := _footer(run):
        yield Text(footer, "dim")


_COUNTS = ("output_tokens", "input_tokens", "ntpot")


def _footer(run: Run) -> str:
    """A short description of the numbers, and what `--more` adds."""
    summary, notes = run.summary, run.verdict.notes if run.verdict else []
    weak = f"{WEAK_MARK} too few samples for a two-sided interval" if any_weak(summary) else ""
    computed = "computed from the requests in the file" if summary.reported else ""
    behind = ["the tool's definitions"] if summary.definitions else []
    behind += [f"{len(notes)} note{'s' if len(notes) > 1 else ''}"] if notes else []
    return "; ".join(filter(None, (weak, computed, f"{' and '.join(behind)} with --more" if behind else "")))


def _done(run: Run) -> Table:
    table = facts_table()
    for name, text in _facts(run):
        if text:
            table.add_row(name, text)
    return table


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    subject = run.subject
    yield "imported", origin_text(run)
    if run.plan.name:
        yield "plan", run.plan.name
    yield "target", _target(run)
    yield "workload", subject.workload
    yield "load", _load(run)
    yield "window", _window(run.summary.window)
    for note in run.summary.notes:
        yield "note", note


def _target(run: Run) -> str:
    subject = run.subject
    model = f"model {subject.model}" if subject.model else ""
    return ", ".join(
        filter(None, (*subject.urls, subject.engine_text, model, subject.accelerators_text, subject.hardware))
    )


def _load(run: Run) -> str:
    stop, load = run.plan.section("stop"), run.plan.load
    requests = stop.count("requests")
    extent = " or ".join(filter(None, [f"{requests:,} requests" if requests else "", stop.text("duration") or ""]))
    if load is None:
        return extent
    text = " ".join(filter(None, [run.subject.load, f"for {extent}" if extent else ""]))
    return f"{text} ({'open' if load.open_loop else 'closed'} loop)"


def _window(window: WindowSummary) -> str:
    length, requests = window.length_s, window.requests
    parts = [duration_text(length) if length else "", f"{requests:,} requests" if requests is not None else ""]
    return ", ".join(filter(None, parts))


def measures_table(measures: Mapping[str, MeasureSummary], names: Iterable[str] | None, width: int) -> Table | None:
    """Each measure with its available statistics; columns that no measure has are left out."""
    shown = [
        name for name in (measures if names is None else names) if name in measures and _has_values(measures[name])
    ]
    if not shown:
        return None
    wanted = STATS if names is not None else ("mean", "std", "min", *_QUANTILES, "max")
    stats = [stat for stat in wanted if any(measures[name][stat] is not None for name in shown)]
    fewer = [
        stats,
        [stat for stat in stats if stat in STATS],
        [stat for stat in stats if stat in ("p50", "p99")] or stats[:1],
    ]
    variants = [(columns, spread) for columns in fewer for spread in (True, False)]
    return first_that_fits((_measures(measures, shown, *look) for look in variants), width)


def _measures(measures: Mapping[str, MeasureSummary], shown: list[str], stats: list[str], spread: bool) -> Table:
    table = plain_table("", *stats, right=tuple(stats), gap=2)
    for name in shown:
        label = title(name) if name in MEASURES else measures[name].title or name
        table.add_row(label, *(cell(measures[name], stat, spread) for stat in stats))
    return table


def _has_values(measure: MeasureSummary) -> bool:
    return any(measure[stat] is not None for stat in ("mean", "min", "max", *_QUANTILES))


def _numbers(summary: Summary, most: int | None = None) -> Table | None:
    """Rates, failures and single values: all of them, or the first ones and their total number."""
    table = facts_table(label=24)
    numbers = [
        quantity
        for quantity in quantities(summary).values()
        if quantity.statistic is None and quantity.name != "failure_rate"
    ]
    for quantity in numbers[:most]:
        table.add_row(quantity.title, value_text(quantity.value, quantity.unit))
    if left := len(numbers[most:]) if most is not None else 0:
        table.add_row(Text(f"{left} more with --more", style="dim"), "")
    failures = summary.failures
    if failures.failed:
        share = percent_text(failures.failure_rate)
        table.add_row("Failed", Text(f"{number_text(failures.failed)} requests ({share})", style="red"))
    for error in summary.errors[: 3 if most is None else 1]:
        table.add_row("", f"{error.count:,} × {error.message[:160]}")
    return table if table.row_count else None


def _definitions(summary: Summary) -> RenderableType | None:
    """The tool's definitions. With records the numbers are computed by us, but the instants are the tool's own."""
    if not summary.definitions:
        return None
    ours = "The numbers above are computed from the requests in the file. The tool's own definitions:"
    head = Text(ours if summary.reported else "Definitions of the tool:", style="dim")
    table = facts_table(label=10)
    for name, text in summary.definitions.items():
        table.add_row(MEASURES[name].title if name in MEASURES else name, text)
    return Group(head, table)


def imports_table(done: Iterable["Imported"], dry_run: bool) -> Table:
    """The result for each file."""
    table = facts_table(label=0)
    for imported in done:
        table.add_row(imported.format, Text.assemble(f"{imported.path}: ", _became(imported, dry_run)))
    return table


def _became(imported: "Imported", dry_run: bool) -> Text:
    if imported.before:
        return Text(f"already imported as {_some(imported.before)}; --again imports it again", style="yellow")
    if dry_run:
        return Text(f"would import {imported.results:,} run{'s' if imported.results != 1 else ''}")
    return Text(_some([run.id for run in imported.runs]))


def _some(ids: list[str]) -> str:
    if len(ids) <= MOST_IDS:
        return ", ".join(ids)
    return f"{len(ids):,} runs, {ids[0]} .. {ids[-1]}"


# -- rosetta ---------------------------------------------------------------------------------------------------------

SHOWN = ("mean", "avg", "median", "p50", "50.00", "p90", "90.00", "p99", "99.00", "max")
FEWER = ("mean", "avg", "median", "p50", "50.00", "p99", "99.00")


def rosetta(run: Run, name: str) -> Translation:
    """Every number of the tool, computed from this run's records."""
    tool = tool_named(name)
    records = run.records
    if records is None:
        hint = "only runs with records can be recomputed; vllm bench serve writes them with --save-detailed"
        raise StoreError(f"{run.id}: has no records, so other definitions cannot be applied", hint)
    return translated(tool, seen_by_others(run, records), run.summary)


def rosetta_document(run: Run, translation: Translation) -> JsonObject:
    """The document that `--json` prints; stable."""
    return {"schema": schema_of("rosetta"), "run": run.id, **msgspec.to_builtins(translation)}


def print_rosetta(translation: Translation, to: Console) -> None:
    for section in _rosetta_sections(translation, to.width):
        emit(section, to)
        to.print()


def _rosetta_sections(translation: Translation, width: int) -> Iterator[RenderableType]:
    yield _head(translation)
    statistics = [statistic for statistic in translation.measures[0].theirs if statistic in SHOWN]
    fewer = [statistic for statistic in statistics if statistic in FEWER]
    yield first_that_fits((_rosetta_measures(translation, columns) for columns in (statistics, fewer)), width)
    yield _values(translation)
    yield _reasons(translation)


def _head(translation: Translation) -> Text:
    counted = translation.requests
    requests = f"{counted.successful:,} of {counted.all:,} requests in {duration_text(translation.duration_s)}"
    head = Text.assemble((f"As {translation.title} counts", "bold"), f": {requests}\n")
    return head.append(f"{translation.remark}\n{translation.source}", style="dim")


def _rosetta_measures(translation: Translation, statistics: list[str]) -> Table:
    """Two lines each: the tool's number, and ours below it under its own name."""
    table = plain_table(translation.tool, *statistics, right=tuple(statistics))
    for row in translation.measures:
        table.add_row(row.name, *(value_text(row.theirs[statistic], row.unit) for statistic in statistics))
        ours = row.ours or {}
        cells = (Text(value_text(ours.get(statistic), row.unit), "dim") for statistic in statistics)
        table.add_row(Text(f"  {_our_title(row)}", "dim"), *cells)
    return table


def _values(translation: Translation) -> Table:
    table = plain_table(translation.tool, "theirs", "ours", right=("theirs", "ours"))
    for row in translation.values:
        table.add_row(row.name, value_text(row.theirs, row.unit), Text(value_text(row.ours, row.unit), "dim"))
    return table


def _our_title(row: TranslatedMeasure) -> str:
    measure = MEASURES.get(row.our_measure or "")
    return "ours: none" if measure is None else f"ours: {measure.title}"


def _reasons(translation: Translation) -> Table:
    """The definition of each of its numbers, and why ours differs."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", max_width=26)
    table.add_column(overflow="fold")
    for row in (*translation.measures, *translation.values):
        table.add_row(row.name, Text.assemble(row.definition, "\n", (row.why, "dim")))
    return table


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
    """Label and a cell per run; a number that no run has is left out."""
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
        yield "requests, by the server", [number_text(count) for count in counted]


def _count(run: Run) -> str:
    answered = run.summary.outcomes.get("ok")
    return "-" if answered is None else f"{answered:,}"


def reported_measure(run: Run, name: str) -> MeasureSummary | None:
    """As the tool states it; for our runs, or if the tool states none, as measured from the records."""
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
