"""`Report`: what a report says, before it is HTML, Markdown or anything else. Sections of text, tables, charts."""

from dataclasses import dataclass, field
from typing import Literal

from inferometer.show.charts.chart import Chart

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
