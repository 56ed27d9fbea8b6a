"""The console: plain in a pipe, without colours if NO_COLOR is set, and limited to a readable width."""

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
        """The one place where text is converted for a terminal: only rich's own control sequences pass."""
        for segment in super().render(renderable, options):
            clean = segment.text if segment.control else harmless(segment.text)
            yield segment if clean == segment.text else Segment(clean, segment.style)

    def on_broken_pipe(self) -> None:
        """The command line handles it; rich would end the process with 1, which means a failed limit."""
        raise BrokenPipeError


def console(file: TextIO | None = None, width: int | None = None) -> Console:
    """Prints to stdout by default. Markup and emoji codes are off: a model's name is shown unchanged."""
    file = sys.stdout if file is None else file
    made = _Console(file=file, width=width, markup=False, emoji=False, highlight=False)
    if width is None:
        made.width = min(made.width, WIDEST)
    return made


def emit(thing: RenderableType, to: Console) -> None:
    """Print without trailing blanks, except where a colour ends."""
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
    """The first table that fits into the width; if none does, the last. A truncated number would be a wrong one."""
    endless = Console(width=ENDLESS, markup=False, emoji=False, highlight=False)
    for table in tables:
        if endless.measure(table).maximum <= width:
            break
    return table


def on_a_screen(looks: Iterable[Sequence[RenderableType]], width: int, last_lines: int = 0) -> Sequence[RenderableType]:
    """The first variant, a list of sections, that leaves room for this many final lines on a screen; if none does, the
    last. Each section is followed by a blank line."""
    console = Console(width=width, markup=False, emoji=False, highlight=False)
    sections: Sequence[RenderableType] = ()
    for sections in looks:
        if sum(len(console.render_lines(section, pad=False)) + 1 for section in sections) <= SCREEN - last_lines:
            break
    return sections


def plain_table(*columns: str, right: tuple[str, ...] = (), wrap: str | None = None, gap: int = 2) -> Table:
    """A table without lines: a muted heading over each column, columns in `right` are right-aligned. If it gets too
    narrow, the column in `wrap` is wrapped; without one all are truncated."""
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
    table.add_column(overflow="fold")  # a long URL is wrapped, never truncated
    return table
