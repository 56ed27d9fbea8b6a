"""A run of somebody's own benchmark as a person reads it: the verdict, what it measured, and where its output is."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from inferometer.measure.values import Quantity, quantities
from inferometer.record.run import Run
from inferometer.show.console import emit, facts_table, plain_table
from inferometer.show.summary import verdict_table
from inferometer.show.values import spread_text, value_text
from inferometer.vocabulary import duration_text

SHOWN_BY_THEMSELVES = ("s", "share", "1/s", "tokens/s")  # units that are part of the number's text


def print_benchmark(run: Run, to: Console) -> None:
    for section in _sections(run):
        emit(section, to)
        to.print()
    if run.folder is not None:
        to.print(Text.assemble(("kept in     ", "dim"), str(run.folder)), soft_wrap=True)


def _sections(run: Run) -> Iterator[RenderableType]:
    yield verdict_table(run)
    yield _about(run)
    found = list(quantities(run.summary).values())
    if found:
        yield measures_table(found)


def _about(run: Run) -> Table:
    said: Mapping[str, Any] = run.plan.get("benchmark") or {}
    ended: Mapping[str, Any] = run.environment.get("benchmark") or {}
    table = facts_table()
    table.add_row("benchmark", str(run.plan.get("name") or "-"))
    command = said.get("python") or said.get("command")
    if command:
        table.add_row("command", command if isinstance(command, str) else " ".join(map(str, command)))
    if said.get("args"):
        table.add_row("args", ", ".join(f"{name}={value}" for name, value in said["args"].items()))
    code = "" if ended.get("exit_code") is None else f", exit status {ended['exit_code']}"
    table.add_row("took", f"{duration_text(ended.get('took_s'))}{code}")
    return table


def measures_table(found: list[Quantity]) -> Table:
    table = plain_table("", "value", " ", "better", right=("value",), wrap="")
    for each in found:
        name = each.title if each.statistic is None else f"{each.title} {each.statistic}"
        text = value_text(each.value, each.unit)
        unit = "" if each.unit in SHOWN_BY_THEMSELVES else f" {each.unit}"
        table.add_row(name, f"{text}{unit}", spread_text(each.value, each.interval, each.unit), each.direction or "-")
    return table
