"""`Report`: what a report contains, before it is HTML, Markdown or anything else: sections of text, tables, charts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich import table as rich_table
from rich.text import Text as RichText

from inferometer.measure.values import Quantity, quantities
from inferometer.record.run import Run
from inferometer.show.charts.chart import Chart
from inferometer.show.charts.subject import labels_of
from inferometer.show.numbers import spread_text, value_text

# -- document --------------------------------------------------------------------------------------------------------

Tone = Literal["", "good", "doubt", "bad", "muted"]


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Table:
    """`right` are the columns of numbers. Facts have no head: what is told, and the telling."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    right: frozenset[int] = frozenset()

    @property
    def facts(self) -> bool:
        return not self.head


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """`fold` hides it behind its title until it is asked for."""

    text: str
    title: str = ""
    fold: bool = False


@dataclass(frozen=True, slots=True)
class Charts:
    charts: tuple[Chart, ...]


@dataclass(frozen=True, slots=True)
class Tile:
    """A number to see at once."""

    name: str
    value: str
    spread: str = ""


@dataclass(frozen=True, slots=True)
class Tiles:
    tiles: tuple[Tile, ...]


Block = Text | Bullets | Table | Code | Charts | Tiles


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The word, what it means here, and the first of what speaks for it."""

    word: str
    tone: Tone
    text: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    title: str
    subtitle: str
    verdict: Verdict
    sections: tuple[Section, ...] = field(default=())

    @property
    def charts(self) -> list[Chart]:
        blocks = [block for section in self.sections for block in section.blocks]
        return [chart for block in blocks if isinstance(block, Charts) for chart in block.charts]


# -- tables ----------------------------------------------------------------------------------------------------------

WIDE = 10_000  # a page scrolls: nothing has to be left out
_TONES: tuple[tuple[str, Tone], ...] = (("red", "bad"), ("yellow", "doubt"), ("green", "good"))


def from_rich(shown: rich_table.Table) -> Table:
    columns = [[_cell(cell) for cell in column.cells] for column in shown.columns]
    head = tuple(str(column.header) for column in shown.columns) if shown.show_header else ()
    right = frozenset(at for at, column in enumerate(shown.columns) if column.justify == "right")
    return Table(head, tuple(zip(*columns, strict=True)), right)


def _cell(cell: object) -> Cell:
    if not isinstance(cell, RichText):
        return Cell(str(cell))
    styles = " ".join(map(str, (cell.style, *(span.style for span in cell.spans))))
    return Cell(cell.plain, next((tone for colour, tone in _TONES if colour in styles), ""))


def facts(rows: Iterable[tuple[str, str]]) -> Table:
    return Table((), tuple((Cell(name), Cell(text)) for name, text in rows))


def numbers_table(found: Mapping[str, Quantity]) -> Table:
    """Every number with its interval."""
    rows = (
        (Cell(_title(each)), Cell(value_text(each.value, each.unit)), Cell(_interval(each)), Cell(_unit(each)))
        for each in found.values()
    )
    return Table(("measure", "value", "interval", "unit"), tuple(rows), frozenset({1, 2}))


def _title(each: Quantity) -> str:
    return each.title if each.statistic is None else f"{each.title} {each.statistic}"


def _interval(each: Quantity) -> str:
    if each.interval is None or all(end is None for end in each.interval):
        return "-"
    return " .. ".join(value_text(end, each.unit) for end in each.interval)


def _unit(each: Quantity) -> str:
    return "" if each.unit in ("s", "share", "1/s", "tokens/s") else each.unit


def side_by_side(runs: Sequence[Run], keys: Sequence[str]) -> Table:
    """A row for each number, a column for each run; the best of a row is marked where noise does not explain it."""
    names, every = labels_of(runs), [quantities(run.summary) for run in runs]
    rows = []
    for key in keys:
        known = [found.get(key) for found in every]
        some = [each for each in known if each is not None]
        if some:
            best = _best(some) if len(some) > 1 else None
            rows.append((Cell(_title(some[0])), *(_value_cell(each, best) for each in known)))
    return Table(("", *(names[run.id] for run in runs)), tuple(rows), frozenset(range(1, len(runs) + 1)))


def _best(some: Sequence[Quantity]) -> float | None:
    """None where neither way is better, or where the best one's interval touches another's. Where no interval is known
    of any, as in tables of other tools, the best value is the best."""
    sign = {"lower": 1, "higher": -1}.get(some[0].direction or "")
    if sign is None:
        return None
    first, *others = sorted(some, key=lambda each: sign * each.value)
    if all(each.interval is None for each in some):
        return first.value if first.value != others[0].value else None
    worst_of_first = _end(first, sign)
    apart = worst_of_first is not None and all(
        (near := _end(each, -sign)) is not None and sign * near > sign * worst_of_first for each in others
    )
    return first.value if apart else None


def _end(each: Quantity, side: int) -> float | None:
    """The upper end of the interval, or the lower one; None where it is not known."""
    return None if each.interval is None else each.interval[1 if side > 0 else 0]


def _value_cell(each: Quantity | None, best: float | None) -> Cell:
    if each is None:
        return Cell("-")
    spread = spread_text(each.value, each.interval, each.unit)
    text = f"{value_text(each.value, each.unit)} {spread}".strip()
    return Cell(text, "good" if each.value == best else "")
