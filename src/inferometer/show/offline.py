"""Runs without a server for people: a line per batch size, the rates of a workload, or the numbers of a user's own
benchmark."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from inferometer.measure.values import Quantity, quantities
from inferometer.plan.stored import StoredPlan
from inferometer.record.environment import BenchmarkEnd
from inferometer.record.run import Run
from inferometer.record.summary import BatchCase, MeasureSummary, Summary
from inferometer.show.console import emit, facts_table, first_that_fits, on_a_screen, plain_table
from inferometer.show.summary import LONGEST_ERROR, cut, verdict_table
from inferometer.show.tables import cell
from inferometer.target.offline import BatchProgress
from inferometer.vocabulary import duration_text, number_text, spread_text, value_text

# -- offline ---------------------------------------------------------------------------------------------------------

_PHASES = {"warmup": "warm-up", "measure": "measuring", "profile": "profiling"}
STATS = ("mean", "p50", "p90", "p99")
_LOOKS = ((STATS, True), (STATS[:3], True), (("mean", "p50"), True), (("mean", "p50"), False), (("mean",), False))


@dataclass(frozen=True, slots=True)
class _Detail:
    """How much is shown: the more batch sizes and numbers there are, the less detail."""

    rows: int | None = None
    errors: int | None = None
    numbers: int | None = None
    doubts: int | None = None


_DETAILS = (
    _Detail(),
    _Detail(rows=10, errors=2, numbers=8, doubts=2),
    _Detail(rows=8, errors=1, numbers=4, doubts=1),
    _Detail(rows=5, errors=1, numbers=3, doubts=1),
)


def print_offline(run: Run, to: Console, *, more: bool = False) -> None:
    """Verdict, what was run, the numbers, and where they are stored; with `more` all of them."""
    _print(run, to, _sections, more)


def _print(
    run: Run, to: Console, sections: Callable[[Run, int, _Detail], Iterator[RenderableType]], more: bool
) -> None:
    variants = (list(sections(run, to.width, detail)) for detail in (_DETAILS[:1] if more else _DETAILS))
    last_lines = list(_last_lines(run, more))
    for section in on_a_screen(variants, to.width, len(last_lines)):
        emit(section, to)
        to.print()
    for line in last_lines:
        to.print(line, soft_wrap=True)


def _sections(run: Run, width: int, detail: _Detail) -> Iterator[RenderableType]:
    yield verdict_table(run, detail.doubts)
    if table := _about(run):
        yield table
    if run.summary.cases:
        yield cases_table(run.summary, width, detail.rows)
        yield from _errors(run.summary.cases, detail.errors)
    elif run.summary.measures:
        yield measures_table(run.summary.measures, width, detail.rows)
    if rates := _scalars(run.summary, detail.numbers):
        yield rates


def cases_table(summary: Summary, width: int, most: int | None = None) -> Table:
    """One line per batch size, or the first ones; lengths are shown if there are several, else they are in the line
    above."""
    cases = summary.cases[:most]
    table = first_that_fits((_cases(summary, cases, stats, spread) for stats, spread in _LOOKS), width)
    return _counting_the_rest(table, len(summary.cases) - len(cases))


def _counting_the_rest(table: Table, left: int) -> Table:
    if left:
        table.caption, table.caption_justify = Text(f"{left} more with --more", style="dim"), "left"
    return table


def _cases(summary: Summary, cases: Sequence[BatchCase], stats: tuple[str, ...], spread: bool) -> Table:
    lengths = ("in", "out") if len({(case.input_len, case.output_len) for case in summary.cases}) > 1 else ()
    columns = ("batch size", *lengths, *("avg" if stat == "mean" else stat for stat in stats), "tok/s")
    table = plain_table(*columns, right=columns)
    for case in cases:
        measure = summary.measures.get(case.name)
        sizes = (case.batch_size, case.input_len, case.output_len) if lengths else (case.batch_size,)
        shape = [number_text(size) for size in sizes]
        if measure is None:
            table.add_row(*shape, Text(case.state, "bold red" if case.state == "failed" else "yellow"))
            continue
        table.add_row(*shape, *(cell(measure, stat, spread) for stat in stats), number_text(case.output_rate))
    return table


def _errors(cases: Sequence[BatchCase], most: int | None) -> Iterator[RenderableType]:
    wrong = [case for case in cases if case.error]
    if wrong:
        table = facts_table(label=1, gap=1)
        for case in wrong[:most]:
            lengths = "" if case.input_len is None else f", {case.input_len} in, {case.output_len} out"
            mark = Text("✗", "bold red") if case.state == "failed" else Text("•", "yellow")
            error = cut(str(case.error), None if most is None else LONGEST_ERROR)
            table.add_row(mark, f"batch size {case.batch_size}{lengths}: {error}")
        yield _counting_the_rest(table, len(wrong) - len(wrong[:most]))


def measures_table(measures: Mapping[str, MeasureSummary], width: int, most: int | None = None) -> Table:
    """One line per measure, for an imported run without cases."""
    shown = dict(list(measures.items())[:most])
    table = first_that_fits((_measures(shown, stats) for stats in (STATS, STATS[:2], STATS[:1])), width)
    return _counting_the_rest(table, len(measures) - len(shown))


def _measures(measures: Mapping[str, MeasureSummary], stats: tuple[str, ...]) -> Table:
    columns = tuple("avg" if stat == "mean" else stat for stat in stats)
    table = plain_table("", *columns, right=columns)
    for name, measure in measures.items():
        table.add_row(measure.title or name, *(value_text(measure[stat], measure.unit) for stat in stats))
    return table


def _scalars(summary: Summary, most: int | None) -> Table | None:
    """Rates and other single numbers, each with its interval if it has one; all of them, or the first ones."""
    numbers = [quantity for quantity in quantities(summary).values() if quantity.statistic is None]
    table = facts_table(label=24)
    for quantity in numbers[:most]:
        spread = spread_text(quantity.value, quantity.interval, quantity.unit)
        value = value_text(quantity.value, quantity.unit)
        table.add_row(quantity.title, Text.assemble(value, (f" {spread}" if spread else "", "dim")))
    return _counting_the_rest(table, len(numbers) - len(numbers[:most])) if numbers else None


def _about(run: Run) -> Table | None:
    target = run.environment.known_target
    rows = {
        "engine": _joined(run.subject.engine_text, "virtual time" if target.time == "virtual" else None),
        "model": _joined(run.subject.model, target.dtype, target.device),
        "batches": _batches_text(run.plan),
        "workload": _workload_text(run.summary),
    }
    table = facts_table()
    for label, text in rows.items():
        if text:
            table.add_row(label, text)
    return table if table.row_count else None


def _batches_text(plan: StoredPlan) -> str:
    if "iters" not in plan:
        return ""
    inputs, outputs = (" or ".join(plan.texts(name)) for name in ("input_lens", "output_lens"))
    return f"{inputs} input, {outputs} output tokens; {plan['iters']} iterations after {plan['warmup']} warm-up"


def _workload_text(summary: Summary) -> str:
    if not summary.passes:
        return ""
    passes = len(summary.passes)
    elapsed = duration_text(sum(pass_.elapsed_s for pass_ in summary.passes))
    times = f" in {passes} passes" if passes > 1 else ""
    return (
        f"{summary.requests or 0:,} requests{times}, {summary.input_tokens or 0:,} tokens in, "
        f"{summary.output_tokens or 0:,} out; {elapsed}"
    )


def _joined(*parts: Any) -> str:
    return ", ".join(str(part) for part in parts if part)


def _last_lines(run: Run, more: bool) -> Iterator[Text]:
    if run.folder is None:
        return
    if not more:
        yield Text.assemble(("see more    ", "dim"), f"inferometer show {run.id} --more")
        return
    yield Text.assemble(("stored in   ", "dim"), str(run.folder))
    if run.source is None and run.kind != "benchmark":
        yield Text.assemble(("repeat      ", "dim"), f"inferometer rerun {run.id}")


def progress_text(progress: BatchProgress) -> str:
    """`batch size 8, 512 in, 128 out  measure 12 of 30  617 ms  3 of 8 cases done`."""
    if progress.phase == "load":
        return f"starting {progress.what}"
    parts = [progress.what, f"{_PHASES[progress.phase]} {progress.part + 1} of {progress.parts}"]
    if progress.last_s is not None:
        parts.append(duration_text(progress.last_s))
    if progress.cases > 1:
        parts.append(f"{progress.case} of {progress.cases} cases done")
    return "  ".join(parts)


# -- benchmark -------------------------------------------------------------------------------------------------------


def print_benchmark(run: Run, to: Console, *, more: bool = False) -> None:
    _print(run, to, _benchmark_sections, more)


def _benchmark_sections(run: Run, width: int, detail: _Detail) -> Iterator[RenderableType]:
    yield verdict_table(run, detail.doubts)
    yield _benchmark_about(run, None if detail == _DETAILS[0] else LONGEST_ERROR)
    if numbers := list(quantities(run.summary).values()):
        table = custom_measures_table(numbers[: detail.rows])
        yield _counting_the_rest(table, len(numbers) - len(numbers[: detail.rows]))


def _benchmark_about(run: Run, longest: int | None) -> Table:
    benchmark = run.plan.benchmark
    ended = run.environment.benchmark or BenchmarkEnd()
    table = facts_table()
    table.add_row("benchmark", run.subject.name or "-")
    if command := benchmark.texts("python") or benchmark.texts("command"):
        table.add_row("command", cut(" ".join(command), longest))
    if args := benchmark.section("args"):
        table.add_row("args", cut(", ".join(f"{name}={value}" for name, value in args.items()), longest))
    code = "" if ended.exit_code is None else f", exit status {ended.exit_code}"
    table.add_row("took", f"{duration_text(ended.took_s)}{code}")
    return table


def custom_measures_table(numbers: list[Quantity]) -> Table:
    table = plain_table("", "value", " ", "better", right=("value",), wrap="")
    for quantity in numbers:
        name = quantity.title if quantity.statistic is None else f"{quantity.title} {quantity.statistic}"
        table.add_row(
            name,
            value_text(quantity.value, quantity.unit),
            spread_text(quantity.value, quantity.interval, quantity.unit),
            quantity.direction or "-",
        )
    return table
