"""A comparison as people read it: the word first, then one line per measure."""

from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from inferometer.judge.comparable import Objection
from inferometer.judge.compare import Comparison
from inferometer.judge.judgement import Change
from inferometer.judge.telling import change_text
from inferometer.show.console import emit, facts_table, first_that_fits, plain_table
from inferometer.show.values import value_text

WORD_STYLES = {
    "better": "bold green",
    "worse": "bold red",
    "same": "green",
    "unclear": "yellow",
    "changed": "cyan",
    "invalid": "bold red",
}
_NUMBERS = ("before", "after", "change", "interval", "could see")
LEAST_TITLE = 16  # letters of a title on one line
_DESIGNS = {
    "one tape": "the same requests at the same times in all runs, paired one by one",
    "paired tapes": "run by run the same requests at the same times, paired",
    "independent": "requests of their own in each run",
}


def print_comparison(found: Comparison, to: Console) -> None:
    """Everything worth a glance, in the order a person asks for it."""
    emit(head(found), to)
    to.print()
    if found.objections:
        emit(objections_table(found.objections), to)
        to.print()
    if found.changes:
        emit(changes_table(found.changes, to.width), to)
        to.print()
    emit(_facts(found), to)


def head(found: Comparison) -> Text:
    """`WORSE  1 of 7 measures is worse, 2 are the same, 4 unclear`."""
    word = "NOT COMPARABLE" if found.refused else found.word.upper()
    style = WORD_STYLES.get(found.word, "bold") if not found.refused else "bold red"
    text = Text(word, style=style)
    counts = [(each, sum(change.word == each for change in found.changes)) for each in WORD_STYLES]
    told = ", ".join(f"{n} {each}" for each, n in counts if n)
    return text.append(f"  of {len(found.changes)} measures {told}", style="not bold default") if told else text


def objections_table(objections: Iterable[Objection]) -> Table:
    table = facts_table(label=1, gap=1)
    for each in objections:
        mark = Text("✗", "bold red") if each.word == "refuse" else Text("•", "yellow")
        table.add_row(mark, each.text)
    return table


def changes_table(changes: Sequence[Change], width: int) -> Table:
    """With all columns where there is room, if need be closer together; titles are broken over lines, numbers never."""
    looks = ((_NUMBERS, 2), (_NUMBERS, 1), (_NUMBERS[:-1], 1), (_NUMBERS[:-2], 1), (("change",), 1))
    longest = max((len(_title(change)) for change in changes), default=0)
    return first_that_fits((_table(changes, *look) for look in looks), width + max(0, longest - LEAST_TITLE))


def _table(changes: Sequence[Change], columns: Sequence[str], gap: int) -> Table:
    table = plain_table("", *columns, " ", right=tuple(columns), wrap="", gap=gap)
    for change in changes:
        cells = _cells(change)
        word = Text(change.word, style=WORD_STYLES[change.word])
        table.add_row(_title(change), *(cells[column] for column in columns), word)
    return table


def _title(change: Change) -> str:
    """With the unit of a rate, which is then not repeated in every column."""
    return f"{change.title.removesuffix(' per second')}/s" if _has_unit(change) else change.title


def _has_unit(change: Change) -> bool:
    return change.title.endswith(" per second") or change.unit == "1/s"


def _cells(change: Change) -> dict[str, str]:
    unit = "" if _has_unit(change) else change.unit
    smallest = change_text(change.smallest, change.relative, change.unit).lstrip("+") if change.smallest else "-"
    return {
        "before": value_text(change.before, unit),
        "after": value_text(change.after, unit),
        "change": change_text(change.change, change.relative, change.unit),
        "interval": interval_cell(change),
        "could see": smallest,
    }


def interval_cell(change: Change) -> str:
    """`+1.2 .. +4.9%`; in brackets where it tells of the noise within the runs only."""
    if change.interval is None or change.interval == (0.0, 0.0):
        return "-"
    low, high = (change_text(end, change.relative, change.unit) for end in change.interval)
    tail = "%" if change.relative else " pt" if change.unit == "share" else ""
    text = f"{low.removesuffix(tail) if tail and high.endswith(tail) else low} .. {high}"
    return f"({text})" if change.within_only else text


def _facts(found: Comparison) -> RenderableType:
    table = facts_table()
    table.add_row("before", _ids(found.before))
    table.add_row("after", _ids(found.after))
    if found.axes:
        table.add_row("came with", found.axes)
    table.add_row("requests", _DESIGNS[found.design] if found.records else "no records: compared by the runs' values")
    table.add_row("spread", _spread_text(found))
    if found.changes:
        table.add_row("intervals", _intervals_text(found))
    return table


def _ids(ids: Sequence[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{len(ids)} runs: {', '.join(ids)}"


def _spread_text(found: Comparison) -> str:
    bases = {change.basis for change in found.changes}
    if "none" in bases or not bases:
        return (
            "not known: one run a side cannot tell how much runs differ; repeat them (inferometer rerun) and name "
            "several on each side, a1,a2,a3, or keep more runs of the same plan"
        )
    told = {
        "repeats": "from the repeats",
        "pairs": "from pairs of runs on the same tape",
        "history": f"from {found.history} other runs of the same workload, stack and hardware",
        "repeats and history": f"from the repeats and {found.history} other runs of the same identity",
    }
    return "; ".join(told[basis] for basis in sorted(bases))


def _intervals_text(found: Comparison) -> str:
    if any(change.within_only for change in found.changes):
        return "in brackets: the noise of the requests within these two runs alone, which is too little"
    return f"{1 - found.alpha:.0%}, corrected for {len(found.changes)} measures at once (Holm)"
