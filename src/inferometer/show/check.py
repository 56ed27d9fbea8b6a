"""A check as people read it in a CI log: the word, what happened in a sentence each, one line per measure."""

from dataclasses import replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from inferometer.judge.checked import Checked, CheckResult
from inferometer.judge.judgement import Change
from inferometer.show.comparison import WORD_STYLES, changes_table
from inferometer.show.console import emit, facts_table

MOST_STEPS = 8


def print_check(found: CheckResult, to: Console, *, every: bool = False) -> None:
    emit(_head(found), to)
    to.print()
    if shown := _shown(found, every):
        emit(changes_table(shown, to.width), to)
        to.print()
    if found.steps:
        emit(_steps(found), to)
        to.print()
    emit(_facts(found), to)


def _head(found: CheckResult) -> Table:
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


def _facts(found: CheckResult) -> Table:
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
