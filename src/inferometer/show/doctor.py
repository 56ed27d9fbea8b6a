"""The doctor's findings at a glance: a line each, and below what is not well, what to do."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from inferometer.observe.doctor.check import Check, Word
from inferometer.show.console import emit

MARKS: dict[Word, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "warning": ("!", "bold yellow"),
    "error": ("✗", "bold red"),
    "not applicable": ("–", "dim"),
}


def print_checks(groups: Mapping[str, Sequence[Check]], to: Console) -> None:
    for group, checks in groups.items():
        to.print(Text(group, "bold"))
        emit(checks_table(checks), to)
        to.print()
    to.print(summary_text(groups))


def checks_table(checks: Sequence[Check]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, min_width=18)
    table.add_column(overflow="fold")
    for check in checks:
        mark, style = MARKS[check.word]
        quiet = "dim" if check.word == "not applicable" else ""
        table.add_row(Text(mark, style), Text(check.name, quiet), Text(check.found, quiet))
        if check.remedy:
            table.add_row("", "", Text(f"→ {check.remedy}", "cyan" if check.word in ("warning", "error") else "dim"))
    return table


def summary_text(groups: Mapping[str, Sequence[Check]]) -> Text:
    words = [check.word for checks in groups.values() for check in checks]
    errors, warnings = words.count("error"), words.count("warning")
    if not errors and not warnings:
        return Text("all well", "bold green")
    parts = [_count(errors, "error"), _count(warnings, "warning")]
    return Text(", ".join(filter(None, parts)), "bold red" if errors else "bold yellow")


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}" if number else ""
