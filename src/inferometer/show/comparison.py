"""Comparisons as people read them: of two sides, of an A/B in blocks, of a run against its history, of
traffic classes."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from inferometer.judge.check_result import Checked, CheckResult
from inferometer.judge.compare import Comparison
from inferometer.judge.effect import Change
from inferometer.judge.identity import Objection
from inferometer.judge.wording import change_text
from inferometer.measure.values import quantities
from inferometer.record.run import Run
from inferometer.show.console import emit, facts_table, first_that_fits, plain_table
from inferometer.show.numbers import value_text
from inferometer.vocabulary import duration_text, number_text

# -- comparison ------------------------------------------------------------------------------------------------------

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


# -- ab --------------------------------------------------------------------------------------------------------------

_MEANING = {
    "better": "B is better than A",
    "worse": "B is worse than A",
    "same": "A and B are the same",
    "unclear": "no difference is shown",
    "changed": "A and B differ",
}


def block_text(pair: int, pairs: int, side: str, run: Run) -> str:
    """`pair 3 of 10  a  TTFT 41.2 ms  1,204 tokens/s  20261115-...`."""
    known = quantities(run.summary)
    ttft = next((known[key].value for key in ("ttft_scheduled.p50", "ttft.p50") if key in known), None)
    rate = known["output_rate"].value if "output_rate" in known else None
    word = run.status
    doubt = "" if word == "valid" else f"  {word}"
    numbers = f"TTFT {duration_text(ttft)}  {number_text(rate)} tokens/s"
    return f"pair {pair} of {pairs}  {side}  {numbers}  {run.id}{doubt}"


def print_block(pair: int, pairs: int, side: str, run: Run) -> None:
    """On stderr, so that the result can be piped."""
    sys.stderr.write(f"{block_text(pair, pairs, side, run)}\n")
    sys.stderr.flush()


def print_ab(
    found: Comparison, names: Mapping[str, str], left_out: Mapping[int, str], planned: int, experiment: str, to: Console
) -> None:
    emit(_ab_head(found), to)
    to.print()
    if found.objections:
        emit(objections_table(found.objections), to)
        to.print()
    emit(changes_table(found.changes, to.width), to)
    to.print()
    table = facts_table()
    table.add_row("before, A", names["a"])
    table.add_row("after, B", names["b"])
    table.add_row("pairs", _pairs_text(found, left_out, planned))
    for pair, why in left_out.items():
        table.add_row("left out", f"pair {pair}: {why}")
    table.add_row("intervals", f"{1 - found.alpha:.0%}, of pairs, corrected for {len(found.changes)} measures (Holm)")
    table.add_row("kept as", experiment)
    emit(table, to)


def _ab_head(found: Comparison) -> Text:
    counts = [(each, sum(change.word == each for change in found.changes)) for each in WORD_STYLES]
    told = ", ".join(f"{n} {each}" for each, n in counts if n)
    mixed = {change.word for change in found.changes} >= {"better", "worse"}
    meaning = "B is better in some and worse in others" if mixed else _MEANING[found.word]
    head = Text(found.word.upper(), style=WORD_STYLES[found.word])
    return head.append(f"  {meaning}: of {len(found.changes)} measures {told}", style="not bold default")


def _pairs_text(found: Comparison, left_out: Mapping[int, str], planned: int) -> str:
    done = len(found.before)
    of = "" if done == planned else f" of {planned} planned"
    return f"{done}{of}, in the order ABBA; the same requests at the same times within a pair"


# -- check -----------------------------------------------------------------------------------------------------------

MOST_STEPS = 8


def print_check(found: CheckResult, to: Console, *, every: bool = False) -> None:
    emit(_check_head(found), to)
    to.print()
    if shown := _shown(found, every):
        emit(changes_table(shown, to.width), to)
        to.print()
    if found.steps:
        emit(_steps(found), to)
        to.print()
    emit(_check_facts(found), to)


def _check_head(found: CheckResult) -> Table:
    """The word, and beside it the sentences."""
    table = facts_table(label=1)
    word = Text(found.word.upper(), style=WORD_STYLES[found.word])
    for at, sentence in enumerate(found.sentences):
        table.add_row(word if not at else "", Text(sentence))
    return table


def _shown(found: CheckResult, every: bool) -> list[Change]:
    """What alerts; what is observed only where it changed, or when all is asked for."""
    changed = ("worse", "better", "changed")
    return [_as_told(each) for each in found.measures if each.alert or every or each.word in changed]


def _as_told(each: Checked) -> Change:
    title = each.change.title if each.alert else f"{each.change.title} (observed)"
    return replace(each.change, title=title, word=each.word)


def _steps(found: CheckResult) -> Table:
    """Where the history of a measure changed, the newest first."""
    table = facts_table(label=7)
    ordered = sorted(found.steps, key=lambda step: step.at, reverse=True)
    for at, step in enumerate(ordered[:MOST_STEPS]):
        size = "" if step.change is None else f" by {abs(step.change):.1%}"
        came = f", with {step.came_with}" if step.came_with else ""
        accepted = ", accepted" if step.accepted and step.word == "worse" else ""
        said = f"{step.at[:10]} {step.title} {step.word}{size}{came}{accepted} ({step.run})"
        table.add_row("changes" if not at else "", said)
    return table


def _check_facts(found: CheckResult) -> Table:
    table = facts_table(label=7)
    table.add_row("run", found.run)
    table.add_row("against", _against(found))
    left_out = {id_ for each in found.measures if each.alert for id_ in each.left_out}
    if left_out:
        runs = "1 run" if len(left_out) == 1 else f"{len(left_out)} runs"
        table.add_row("left out", f"{runs} after a change for the worse that nobody accepted")
    if found.is_alone:
        table.add_row("confirm", f"inferometer check {found.run} --confirm: one run alone may be a spike")
    if found.word == "worse" and found.against == "history":
        table.add_row("accept", f"inferometer check {found.run} --accept, if it is meant to be so")
    return table


def _against(found: CheckResult) -> str:
    if found.against != "history":
        return found.against
    sizes = sorted({len(each.baseline) for each in found.measures if each.alert})
    if not sizes:
        return f"{found.history} earlier runs of the same workload, stack and hardware"
    used = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    return f"the baseline: {used} of {found.history} earlier runs of the same workload, stack and hardware"


# -- switching -------------------------------------------------------------------------------------------------------


def print_effects(found: Mapping[tuple[str, str], Comparison], to: Console) -> None:
    """Class by class: how it fares when another is switched off."""
    for (off, of), comparison in found.items():
        emit("", to)
        emit(Text.assemble((of, "bold"), " without ", (off, "bold"), f": {_told(comparison)}"), to)
        if comparison.changes:
            emit(changes_table(comparison.changes, to.width), to)


def _told(comparison: Comparison) -> str:
    words = [change.word for change in comparison.changes]
    counts = [f"{words.count(word)} {word}" for word in ("better", "worse", "same", "unclear") if word in words]
    runs = f"{len(comparison.before)} runs with it, {len(comparison.after)} without"
    return f"{', '.join(counts) or 'nothing to compare'} ({runs})"
