"""The same for a log without any markup: the word, what is wrong, and the numbers."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from inferometer.record.sanitize import harmless
from inferometer.record.summary import Summary
from inferometer.show.ci.outcome import Outcome, Report, headline_keys
from inferometer.show.console import emit, facts_table, plain_table

MOST_COLUMNS = 3  # numbers of a run beside others: what 80 characters hold
STYLES = {"fine": "bold green", "unclear": "yellow", "doubtful": "yellow"}


def print_report(report: Report, to: Console) -> None:
    runs = f"{len(report.outcomes)} run{'' if len(report.outcomes) == 1 else 's'}"
    emit(Text.assemble((report.status.upper(), STYLES.get(report.status, "bold red")), f"  {runs}"), to)
    if report.about:
        emit(Text(harmless(report.about)), to)
    to.print()
    if findings := _findings_table(report):
        emit(findings, to)
        to.print()
    for group in _alike([outcome for outcome in report.outcomes if outcome.run.summary != Summary()]):
        emit(_numbers(group), to)
        to.print()


def _alike(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """Runs that have the same numbers stand in one table."""
    groups: dict[tuple[str, ...], list[Outcome]] = {}
    for outcome in outcomes:
        names = tuple(dict.fromkeys(key.partition(".")[0] for key in headline_keys([outcome])))
        groups.setdefault(names, []).append(outcome)
    return list(groups.values())


def _findings_table(report: Report) -> Table | None:
    """What is wrong, then what else the checks say."""
    table = facts_table(label=1, gap=1)
    for line in report.lines:
        mark = Text("✗", "bold red") if line.level == "error" else Text("•", "yellow")
        whose = f"{', '.join(outcome.label for outcome in line.outcomes)}: " if len(report.outcomes) > 1 else ""
        table.add_row(mark, harmless(f"{whose}{line.text}"))
    for outcome in report.outcomes:
        whose = f"{outcome.label}: " if len(report.outcomes) > 1 else ""
        mark = Text("✓", "green") if outcome.check and outcome.check.status in ("same", "better") else Text("•")
        for text in outcome.notes:
            table.add_row(mark, harmless(f"{whose}{text}"))
    return table if table.row_count else None


def _numbers(outcomes: Sequence[Outcome]) -> Table:
    """One run: a row per number. Several: a row per run, with the first few numbers."""
    keys = headline_keys(outcomes)
    if len(outcomes) == 1:
        table = plain_table("", outcomes[0].label, right=(outcomes[0].label,))
        for key in keys:
            table.add_row(_title(outcomes[0], key), _value(outcomes[0], key))
        return table
    titles = [
        _title(next(outcome for outcome in outcomes if key in outcome.quantities), key) for key in keys[:MOST_COLUMNS]
    ]
    table = plain_table("", *titles, "verdict", right=tuple(titles), wrap="", gap=1)
    for outcome in outcomes:
        table.add_row(outcome.label, *(_value(outcome, key) for key in keys[:MOST_COLUMNS]), outcome.verdict)
    return table


def _title(outcome: Outcome, key: str) -> str:
    quantity = outcome.quantities[key]
    return " ".join(filter(None, (quantity.title, quantity.statistic)))


def _value(outcome: Outcome, key: str) -> str:
    quantity = outcome.quantities.get(key)
    return "-" if quantity is None else quantity.text
