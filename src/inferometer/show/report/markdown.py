"""A report as Markdown; charts are pictures beside it."""

import re
from collections.abc import Callable, Iterator

from inferometer.show.charts.chart import Chart
from inferometer.show.report.document import Block, Bullets, Charts, Code, Report, Table, Text, Tiles

Picture = Callable[[Chart], str | None]  # the path of a chart's picture, as it is linked; None: there is none

_SIGNS = re.compile(r"([\\`*_{}\[\]<>#|~])")


def as_markdown(report: Report, picture: Picture = lambda _chart: None) -> str:
    return "\n\n".join(part for part in _parts(report, picture) if part) + "\n"


def _parts(report: Report, picture: Picture) -> Iterator[str]:
    yield f"# {plain(report.title)}"
    yield plain(report.subtitle)
    yield " ".join(filter(None, [f"**{plain(report.verdict.word.upper())}**", plain(report.verdict.text)]))
    yield _bullets(report.verdict.reasons)
    for section in report.sections:
        yield f"## {plain(section.title)}"
        for block in section.blocks:
            yield _block(block, picture)


def _block(block: Block, picture: Picture) -> str:
    match block:
        case Text():
            return plain(block.text)
        case Bullets():
            return _bullets(block.items)
        case Table():
            return _table(block)
        case Code():
            return "\n\n".join(filter(None, [plain(block.title), _fenced(block.text)]))
        case Tiles():
            return ""  # the tables below have the same numbers
        case Charts():
            return "\n\n".join(_chart(chart, picture(chart)) for chart in block.charts)


def _bullets(items: tuple[str, ...]) -> str:
    return "\n".join(f"- {plain(item)}" for item in items)


def _chart(chart: Chart, path: str | None) -> str:
    return f"- {plain(chart.title)}" if path is None else f"![{plain(chart.title)}]({path})"


def _table(block: Table) -> str:
    """Markdown has no table without a head."""
    width = max((len(row) for row in block.rows), default=len(block.head))
    head = block.head or ("",) * width
    rule = ["--:" if at in block.right else ":--" for at in range(width)]
    rows = [[plain(name) for name in head], rule, *([_cell(cell.text) for cell in row] for row in block.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(text: str) -> str:
    return plain(text)


def _fenced(text: str) -> str:
    """A fence longer than any in the text, so that nothing in it can end it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def plain(text: str) -> str:
    """Text as text: nothing in it is markup, and it stays on its line."""
    return _SIGNS.sub(r"\\\1", " ".join(str(text).split()))
