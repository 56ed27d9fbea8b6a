"""The console: plain in a pipe, without colours if NO_COLOR is set, and never too wide to read."""

import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

import orjson
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from inferometer.documents.document import JsonObject
from inferometer.record.files import schema_of
from inferometer.record.sanitize import harmless, json_text

WIDEST = 100
VERDICT_STYLES = {"valid": "bold green", "doubtful": "bold yellow", "invalid": "bold red"}
ENDLESS = 10_000
SCREEN = 24  # lines of an ordinary terminal


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The one place where text becomes what a terminal gets: nothing in it commands the terminal but rich."""
        for segment in super().render(renderable, options):
            clean = segment.text if segment.control else harmless(segment.text)
            yield segment if clean == segment.text else Segment(clean, segment.style)

    def on_broken_pipe(self) -> None:
        """The command line knows what to do; rich would end the process with 1, which means a failed limit."""
        raise BrokenPipeError


def console(file: TextIO | None = None, width: int | None = None) -> Console:
    """Prints to stdout by default. Markup and emoji codes are off: a model's name is shown as it is."""
    file = sys.stdout if file is None else file
    made = _Console(file=file, width=width, markup=False, emoji=False, highlight=False)
    if width is None:
        made.width = min(made.width, WIDEST)
    return made


def emit(thing: RenderableType, to: Console) -> None:
    """Print, without the blanks that fill lines up to the width where no colour ends there."""
    if to.is_terminal:
        to.print(thing)
        return
    with to.capture() as captured:
        to.print(thing)
    to.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def print_json(content: JsonObject, kind: str | None = None) -> None:
    """One JSON document with its `kind` on stdout; a missing number is null."""
    if kind is not None:
        content = {"schema": schema_of(kind), **content}
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    print(json_text(content, options), flush=True)


def first_that_fits(tables: Iterable[Table], width: int) -> Table:
    """The first table that needs no more than the width; of none, the last. A number that is cut is a wrong one."""
    endless = Console(width=ENDLESS)
    for table in tables:
        if endless.measure(table).maximum <= width:
            break
    return table


def on_a_screen(looks: Iterable[Sequence[RenderableType]], width: int, last_lines: int = 0) -> Sequence[RenderableType]:
    """The first look, a list of sections, that leaves room for so many last lines on a screen; of none, the last. Each
    section is followed by a blank line."""
    console = Console(width=width)
    sections: Sequence[RenderableType] = ()
    for sections in looks:
        if sum(len(console.render_lines(section, pad=False)) + 1 for section in sections) <= SCREEN - last_lines:
            break
    return sections


def plain_table(*columns: str, right: tuple[str, ...] = (), wrap: str | None = None, gap: int = 2) -> Table:
    """A table without lines: a muted heading over each column, those named in `right` set to the right. Where it
    gets narrow, the column named in `wrap` is broken over lines; without one all are cut."""
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for name in columns:
        table.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=name != wrap,
            overflow="fold" if name == wrap else "ellipsis",
        )
    return table


def facts_table(label: int = 10, gap: int = 2) -> Table:
    """Two columns: label and value."""
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), show_header=False)
    table.add_column(no_wrap=True, style="dim", min_width=label)
    table.add_column(overflow="fold")  # a long URL is broken, never cut
    return table
