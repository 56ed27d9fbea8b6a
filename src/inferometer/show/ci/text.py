"""The same for a log without any markup: the word, what is wrong, and the numbers."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from inferometer.record.sanitize import harmless
from inferometer.record.summary import Summary
from inferometer.show.ci.outcome import Outcome, Report, headline_keys
from inferometer.show.console import emit, facts_table, plain_table
from inferometer.show.numbers import value_text

MOST_COLUMNS = 3  # numbers of a run beside others: what 80 characters hold
STYLES = {"fine": "bold green", "unclear": "yellow", "doubtful": "yellow"}


def print_report(report: Report, to: Console) -> None:
    runs = f"{len(report.outcomes)} run{'' if len(report.outcomes) == 1 else 's'}"
    emit(Text.assemble((report.word.upper(), STYLES.get(report.word, "bold red")), f"  {runs}"), to)
    to.print()
    if said := _said(report):
        emit(said, to)
        to.print()
    for group in _alike([each for each in report.outcomes if each.run.summary != Summary()]):
        emit(_numbers(group), to)
        to.print()


def _alike(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """Runs that have the same numbers stand in one table."""
    groups: dict[tuple[str, ...], list[Outcome]] = {}
    for each in outcomes:
        names = tuple(dict.fromkeys(key.partition(".")[0] for key in headline_keys([each])))
        groups.setdefault(names, []).append(each)
    return list(groups.values())


def _said(report: Report) -> Table | None:
    """What is wrong; where nothing is, what the check says of it."""
    table = facts_table(label=1, gap=1)
    for each, problem in report.problems:
        mark = Text("✗", "bold red") if problem.level == "error" else Text("•", "yellow")
        whose = f"{each.label}: " if len(report.outcomes) > 1 else ""
        table.add_row(mark, harmless(f"{whose}{problem.text}"))
    for each in report.outcomes:
        if each.check and each.check.get("word") in ("same", "better"):
            for sentence in each.check.get("sentences", ()):
                table.add_row(Text("✓", "green"), str(sentence))
    return table if table.row_count else None


def _numbers(outcomes: Sequence[Outcome]) -> Table:
    """One run: a row per number. Several: a row per run, with the first few numbers."""
    keys = headline_keys(outcomes)
    if len(outcomes) == 1:
        table = plain_table("", outcomes[0].label, right=(outcomes[0].label,))
        for key in keys:
            table.add_row(_title(outcomes[0], key), _value(outcomes[0], key))
        return table
    titles = [_title(next(each for each in outcomes if key in each.quantities), key) for key in keys[:MOST_COLUMNS]]
    table = plain_table("", *titles, "verdict", right=tuple(titles), wrap="", gap=1)
    for each in outcomes:
        table.add_row(each.label, *(_value(each, key) for key in keys[:MOST_COLUMNS]), each.verdict)
    return table


def _title(each: Outcome, key: str) -> str:
    found = each.quantities[key]
    return " ".join(filter(None, (found.title, found.statistic)))


def _value(each: Outcome, key: str) -> str:
    found = each.quantities.get(key)
    return "-" if found is None else value_text(found.value, found.unit)
