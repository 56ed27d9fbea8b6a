"""`Report`: the content of a report, independent of HTML, Markdown or other formats: sections of text, tables,
charts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich import table as rich_table
from rich.text import Text as RichText

from inferometer.measure.values import Quantity, alike
from inferometer.record.run import Run
from inferometer.record.sanitize import harmless, json_text
from inferometer.show.charts.chart import Chart, config, labels_of
from inferometer.show.charts.registry import embeddable, vega_bundle
from inferometer.vocabulary import interval_text
from inferometer.vocabulary.formats import COUNTED

# -- the page ----------------------------------------------------------------------------------------------------------

# The frame of every page: style, light and dark, charts that draw themselves. Self-contained, and safe for any names
# and labels: the template escapes text, and this module escapes data in scripts.

LARGE = 300  # minimum height in pixels of a large chart

# Nothing is loaded from elsewhere and nothing is sent; Vega interprets its expressions, so that no eval is needed.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
)


def page(title: str, body: str, scripts: Sequence[str] = (), policy: str = POLICY) -> str:
    """A complete document. `body` is HTML of templates that escape; `scripts` are JavaScript and placed at its end."""
    return (
        templates()
        .get_template("page.html")
        .render(
            title=harmless(title),
            body=Markup(harmless(body)),
            policy=policy,
            style=Markup(asset("style.css")),
            theme=Markup(asset("theme.js")),
            scripts=[Markup(script) for script in scripts],
        )
    )


def chart_scripts() -> list[str]:
    """Scripts at the end of a page with figures: Vega and ours."""
    return [vega_bundle(), asset("charts.js")]


def chart_themes() -> Markup:
    """The colours used by the script; once per page with figures."""
    return json_script({theme: config(theme) for theme in ("light", "dark")}, id_="chart-themes")


def figure(chart: Chart, wide: bool = False) -> Markup:
    """A chart as an element of a page: it is drawn when it becomes visible."""
    return Markup(
        templates()
        .get_template("figure.html")
        .render(chart=chart, wide=wide or _is_large(chart), spec=json_script(compact(chart.spec)))
    )


def _is_large(chart: Chart) -> bool:
    """Several panels, or many lanes, need the full width."""
    return "vconcat" in chart.spec or chart.spec.get("height", 0) > LARGE


def json_script(content: object, id_: str | None = None) -> Markup:
    """Data for scripts. `<`, `>` and `&` are escaped, so that no text in it can end the element."""
    text = json_text(content, orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    name = Markup(' id="{}"').format(id_) if id_ else ""
    return Markup('<script type="application/json"{}>{}</script>').format(name, Markup(text))


def compact(value: Any) -> Any:
    """Numbers with five significant digits: more are not visible in a chart, and would make up most of the page."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: compact(child) for name, child in value.items()}
    if isinstance(value, list):
        return [compact(child) for child in value]
    return value


@cache
def asset(name: str) -> str:
    """A file in this folder."""
    text = files("inferometer.show.report").joinpath(name).read_text(encoding="utf-8")
    return embeddable(text) if name.endswith(".js") else text


@cache
def templates() -> Environment:
    return Environment(
        loader=PackageLoader("inferometer.show.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


# -- document --------------------------------------------------------------------------------------------------------

Tone = Literal["", "good", "doubt", "bad", "muted"]


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class ReportTable:
    """`right` are the columns of numbers. Facts have no heading: label and value."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    right: frozenset[int] = frozenset()

    @property
    def facts(self) -> bool:
        return not self.head


@dataclass(frozen=True, slots=True)
class ReportText:
    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """`fold` hides it behind its title until a reader opens it."""

    text: str
    title: str = ""
    fold: bool = False


@dataclass(frozen=True, slots=True)
class Charts:
    charts: tuple[Chart, ...]


@dataclass(frozen=True, slots=True)
class Tile:
    """A number shown prominently."""

    name: str
    value: str
    spread: str = ""


@dataclass(frozen=True, slots=True)
class Tiles:
    tiles: tuple[Tile, ...]


ReportBlock = ReportText | Bullets | ReportTable | Code | Charts | Tiles


@dataclass(frozen=True, slots=True)
class ReportSection:
    title: str
    blocks: tuple[ReportBlock, ...]


@dataclass(frozen=True, slots=True)
class ReportVerdict:
    """The status, its meaning here, and the first reasons for it."""

    status: str
    tone: Tone
    text: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    title: str
    subtitle: str
    verdict: ReportVerdict
    sections: tuple[ReportSection, ...] = field(default=())

    @property
    def charts(self) -> list[Chart]:
        blocks = [block for section in self.sections for block in section.blocks]
        return [chart for block in blocks if isinstance(block, Charts) for chart in block.charts]


# -- tables ----------------------------------------------------------------------------------------------------------

WIDE = 10_000  # a page scrolls: nothing has to be left out
_TONES: tuple[tuple[str, Tone], ...] = (("red", "bad"), ("yellow", "doubt"), ("green", "good"))


def from_rich(shown: rich_table.Table) -> ReportTable:
    columns = [[_cell(cell) for cell in column.cells] for column in shown.columns]
    head = tuple(str(column.header) for column in shown.columns) if shown.show_header else ()
    right = frozenset(at for at, column in enumerate(shown.columns) if column.justify == "right")
    return ReportTable(head, tuple(zip(*columns, strict=True)), right)


def _cell(cell: object) -> Cell:
    if not isinstance(cell, RichText):
        return Cell(str(cell))
    styles = " ".join(map(str, (cell.style, *(span.style for span in cell.spans))))
    return Cell(cell.plain, next((tone for colour, tone in _TONES if colour in styles), ""))


def facts(rows: Iterable[tuple[str, str]]) -> ReportTable:
    return ReportTable((), tuple((Cell(name), Cell(text)) for name, text in rows))


def numbers_table(numbers: Mapping[str, Quantity]) -> ReportTable:
    """Every number with its interval."""
    rows = (
        (
            Cell(_title(quantity)),
            Cell(quantity.text),
            Cell(_interval(quantity)),
            Cell(_unit(quantity)),
        )
        for quantity in numbers.values()
    )
    return ReportTable(("measure", "value", "interval", "unit"), tuple(rows), frozenset({1, 2}))


def _title(quantity: Quantity) -> str:
    return quantity.title if quantity.statistic is None else f"{quantity.title} {quantity.statistic}"


def _interval(quantity: Quantity) -> str:
    return interval_text(quantity.interval, quantity.unit) or "-"


def _unit(quantity: Quantity) -> str:
    """The unit of counted things; other units are part of the number's text."""
    return quantity.unit if quantity.unit in COUNTED else ""


def runs_as_rows(runs: Sequence[Run], keys: Sequence[str]) -> ReportTable:
    """A row for each run, a column for each number that any of them has. Nothing is coloured: only a comparison shows
    which is better."""
    names, every = labels_of(runs), alike([run.summary for run in runs])
    known = {key: next((own[key] for own in every if key in own), None) for key in keys}
    shown = {key: quantity for key, quantity in known.items() if quantity is not None}
    rows = tuple(
        (Cell(names[run.id]), *(_value_cell(own.get(key)) for key in shown))
        for run, own in zip(runs, every, strict=True)
    )
    return ReportTable(("run", *map(_title, shown.values())), rows, frozenset(range(1, len(shown) + 1)))


def _value_cell(quantity: Quantity | None) -> Cell:
    if quantity is None:
        return Cell("-")
    return Cell(f"{quantity.text} {quantity.spread}".strip())
