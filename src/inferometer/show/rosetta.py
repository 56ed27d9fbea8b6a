"""A run under another tool's definitions, ours beside it, and why they differ."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from inferometer.errors import StoreError
from inferometer.exchange.exporting.facts import seen_by_others
from inferometer.measure.rosetta.registry import tool_named, translated
from inferometer.record.run import Run
from inferometer.record.schema import schema_of
from inferometer.show.console import emit, first_that_fits, plain_table
from inferometer.show.values import value_text
from inferometer.vocabulary import MEASURES, duration_text

SHOWN = ("mean", "avg", "median", "p50", "50.00", "p90", "90.00", "p99", "99.00", "max")
FEWER = ("mean", "avg", "median", "p50", "50.00", "p99", "99.00")


def rosetta(run: Run, name: str) -> dict[str, Any]:
    """The document: every number of the tool from this run's records."""
    tool = tool_named(name)
    records = run.records()
    if records is None:
        hint = "only runs with records can be computed anew; vllm bench serve keeps them with --save-detailed"
        raise StoreError(f"{run.id}: has no records, so nothing can be computed by other definitions", hint)
    return {"schema": schema_of("rosetta"), "run": run.id} | translated(tool, seen_by_others(run, records), run.summary)


def print_rosetta(said: Mapping[str, Any], to: Console) -> None:
    for section in _sections(said, to.width):
        emit(section, to)
        to.print()


def _sections(said: Mapping[str, Any], width: int) -> Iterator[RenderableType]:
    yield _head(said)
    words = [word for word in said["measures"][0]["theirs"] if word in SHOWN]
    fewer = [word for word in words if word in FEWER]
    yield first_that_fits((_measures(said, each) for each in (words, fewer)), width)
    yield _values(said)
    yield _reasons(said)


def _head(said: Mapping[str, Any]) -> Text:
    counted = said["requests"]
    requests = f"{counted['successful']:,} of {counted['all']:,} requests in {duration_text(said['duration_s'])}"
    head = Text.assemble((f"As {said['title']} counts", "bold"), f": {requests}\n")
    return head.append(f"{said['remark']}\n{said['source']}", style="dim")


def _measures(said: Mapping[str, Any], words: list[str]) -> Table:
    """Two lines each: theirs, and ours below it under its own name."""
    table = plain_table(said["tool"], *words, right=tuple(words))
    for each in said["measures"]:
        table.add_row(each["name"], *(value_text(each["theirs"][word], each["unit"]) for word in words))
        ours = each["ours"] or {}
        cells = (Text(value_text(ours.get(word), each["unit"]), "dim") for word in words)
        table.add_row(Text(f"  {_our_title(each)}", "dim"), *cells)
    return table


def _values(said: Mapping[str, Any]) -> Table:
    table = plain_table(said["tool"], "theirs", "ours", right=("theirs", "ours"))
    for each in said["values"]:
        ours = Text(value_text(each["ours"], each["unit"]), "dim")
        table.add_row(each["name"], value_text(each["theirs"], each["unit"]), ours)
    return table


def _our_title(each: Mapping[str, Any]) -> str:
    measure = MEASURES.get(each["our_measure"] or "")
    return "ours: none" if measure is None else f"ours: {measure.title}"


def _reasons(said: Mapping[str, Any]) -> Table:
    """What each of its numbers is, and why ours is another."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", max_width=26)
    table.add_column(overflow="fold")
    for each in (*said["measures"], *said["values"]):
        table.add_row(each["name"], Text.assemble(each["definition"], "\n", (each["why"], "dim")))
    return table
