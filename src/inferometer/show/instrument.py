"""Results about the client itself: the curve of a calibration, and the doctor's checks."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from inferometer.observe.doctor import Check, DoctorStatus
from inferometer.record.environment import Curve
from inferometer.show.console import emit, plain_table
from inferometer.vocabulary import duration_text, number_text

# -- curve -----------------------------------------------------------------------------------------------------------

_COLUMNS = ("streams", "events/s", "TTFT error p50", "p99", "gap error p50", " p99", "CPU s/M")


def curve_table(curve: Curve) -> Table:
    """One line per point; errors are relative to the clock of the server that sent the tokens."""
    table = plain_table(*_COLUMNS, "stamps", right=_COLUMNS)
    table.columns[2].header, table.columns[4].header = "TTFT p50", "gap p50"
    for point in curve.points:
        table.add_row(
            number_text(point.streams),
            number_text(point.events_per_s) + ("*" if point.metronome_late else ""),
            *(duration_text(getattr(point, f"{what}_error_{q}")) for what in ("ttft", "read") for q in ("p50", "p99")),
            number_text(point.cpu_s_per_million),
            point.stamps,
        )
    return table


def ceiling_text(curve: Curve) -> str:
    """Up to which load the client can be trusted."""
    ceiling = curve.ceiling_events_per_s
    if ceiling is None:
        return "the client kept up with none of these loads: is something else running on this machine?"
    least = "at least " if curve.ceiling_is_at_least else ""
    late = any(point.metronome_late for point in curve.points)
    mark = "\n* the server itself was late: not a limit of the client" if late else ""
    return (
        f"the client kept up with {least}{number_text(ceiling)} events/s: errors stayed within a token interval{mark}"
    )


# -- doctor ----------------------------------------------------------------------------------------------------------

MARKS: dict[DoctorStatus, tuple[str, str]] = {
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
        mark, style = MARKS[check.status]
        quiet = "dim" if check.status == "not applicable" else ""
        table.add_row(Text(mark, style), Text(check.name, quiet), Text(check.finding, quiet))
        if check.remedy:
            table.add_row("", "", Text(f"→ {check.remedy}", "cyan" if check.status in ("warning", "error") else "dim"))
    return table


def summary_text(groups: Mapping[str, Sequence[Check]]) -> Text:
    statuses = [check.status for checks in groups.values() for check in checks]
    errors, warnings = statuses.count("error"), statuses.count("warning")
    if not errors and not warnings:
        return Text("no problems", "bold green")
    parts = [_count(errors, "error"), _count(warnings, "warning")]
    return Text(", ".join(filter(None, parts)), "bold red" if errors else "bold yellow")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}" if number else ""
