"""A comparison as every reader sees it: terminal, dashboard, static site and report render the same rows, sentences
and facts. What is better or worse was decided in `judge`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from inferometer.judge.compare import Comparison
from inferometer.judge.effect import Change
from inferometer.judge.identity import Objection
from inferometer.vocabulary import (
    RATE_UNITS,
    change_interval_text,
    change_size_text,
    change_text,
    percent_text,
    value_text,
)

STATUSES = ("better", "worse", "same", "unclear", "changed", "invalid")  # in the order in which they are counted
NOT_DECIDED = "not decided"  # of every measure where the sides must not be compared
COLUMNS = ("before", "after", "change", "interval", "detectable")
_DESIGNS = {
    "one tape": "the same requests at the same times in all runs, paired request by request",
    "paired tapes": "the same requests at the same times in each pair of runs",
    "independent": "different requests in each run",
}


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One measure in texts."""

    key: str
    title: str
    before: str
    after: str
    change: str
    interval: str  # in brackets where it tells of the noise within the runs only
    could_see: str  # the smallest change that these runs would have shown
    status: str

    @property
    def cells(self) -> dict[str, str]:
        """By the headings of `COLUMNS`."""
        texts = (self.before, self.after, self.change, self.interval, self.could_see)
        return dict(zip(COLUMNS, texts, strict=True))


@dataclass(frozen=True, slots=True)
class ComparisonView:
    status: str  # of all measures, or "not comparable"
    counts: str  # `of 7 measures 1 worse, 2 same, 4 unclear`; empty without measures
    objections: tuple[Objection, ...]
    rows: tuple[ChangeRow, ...]
    facts: tuple[tuple[str, str], ...]

    def document(self) -> dict[str, Any]:
        """As pages get it."""
        return {
            "status": self.status,
            "counts": self.counts,
            "objections": [objection.text for objection in self.objections],
            "columns": COLUMNS,
            "rows": [asdict(row) | {"cells": list(row.cells.values())} for row in self.rows],
            "facts": self.facts,
        }


def comparison_view(comparison: Comparison) -> ComparisonView:
    return ComparisonView(
        status="not comparable" if comparison.refused else comparison.status,
        counts="" if comparison.refused else counts_text(comparison.changes),
        objections=_gravest_first(comparison.objections),
        rows=comparison_rows(comparison),
        facts=tuple(_facts(comparison)),
    )


def counts_text(changes: Sequence[Change]) -> str:
    counts = [(status, sum(change.status == status for change in changes)) for status in STATUSES]
    listed = ", ".join(f"{count} {status}" for status, count in counts if count)
    return f"of {len(changes)} measures {listed}" if listed else ""


def _gravest_first(objections: Sequence[Objection]) -> tuple[Objection, ...]:
    return tuple(sorted(objections, key=lambda objection: objection.severity != "refuse"))


def comparison_rows(comparison: Comparison) -> tuple[ChangeRow, ...]:
    """Where the sides must not be compared the numbers are shown, and no measure is called better or worse."""
    rows = change_rows(comparison.changes)
    return tuple(replace(row, status=NOT_DECIDED) for row in rows) if comparison.refused else rows


def change_rows(changes: Iterable[Change]) -> tuple[ChangeRow, ...]:
    return tuple(map(_row, changes))


def _row(change: Change) -> ChangeRow:
    unit = "" if _has_unit(change) else change.unit
    interval = change_interval_text(change.interval, change.relative, change.unit)
    return ChangeRow(
        key=change.key,
        title=_title(change),
        before=value_text(change.before, unit),
        after=value_text(change.after, unit),
        change=change_text(change.change, change.relative, change.unit),
        interval=f"({interval})" if change.within_only and interval != "-" else interval,
        could_see=change_size_text(change.smallest, change.relative, change.unit) if change.smallest else "-",
        status=change.status,
    )


def _title(change: Change) -> str:
    return f"{change.title}, {RATE_UNITS[change.unit]}" if _has_unit(change) else change.title


def _has_unit(change: Change) -> bool:
    """The unit of a rate is in its title, and is then not repeated in every column."""
    return change.unit in RATE_UNITS


# -- facts -----------------------------------------------------------------------------------------------------------


def _facts(comparison: Comparison) -> Iterator[tuple[str, str]]:
    yield "before", _ids(comparison.before)
    yield "after", _ids(comparison.after)
    if comparison.axes:
        yield "changed", comparison.axes
    yield (
        "requests",
        _DESIGNS[comparison.design] if comparison.records else "no records: compared by the values of the runs",
    )
    yield "spread", _spread_text(comparison)
    if comparison.changes:
        yield "intervals", _intervals_text(comparison)
    unclear = [change for change in comparison.changes if change.why and not change.within_only]
    for reason in dict.fromkeys(change.why for change in unclear):
        titles = (change.title for change in unclear if change.why == reason)
        yield "unclear", f"{', '.join(titles)}: {reason}"


def _ids(ids: Sequence[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{len(ids)} runs: {', '.join(ids)}"


def _assumed_text(comparison: Comparison) -> str:
    """` (5.1% to 12.3% with each run's own uncertainty)`: what was assumed between runs is only a part of it."""
    spreads = [change.spread for change in comparison.changes if "assumed" in change.basis and change.relative]
    known = sorted({round(spread, 3) for spread in spreads if spread is not None})
    if not known:
        return ""
    most = f" to {percent_text(known[-1])}" if len(known) > 1 else ""
    return f" ({percent_text(known[0])}{most} with each run's own uncertainty)"


def _spread_text(comparison: Comparison) -> str:
    bases = {change.basis for change in comparison.changes}
    if "none" in bases or not bases:
        return (
            "unknown: one run per side does not show run-to-run variation; repeat them (inferometer rerun) and name "
            "several runs per side, a1,a2,a3, or store more runs of the same plan"
        )
    texts = {
        "repeats": "from the repeats",
        "pairs": "from pairs of runs on the same tape",
        "history": f"from {comparison.history} other runs of the same workload, stack and hardware",
        "repeats and history": f"from the repeats and {comparison.history} other runs of the same identity",
        "assumed": f"assumed, as one run per side does not show it{_assumed_text(comparison)}; repeat the runs",
        "repeats and assumed": f"mostly assumed{_assumed_text(comparison)}: there are few repeats",
    }
    return "; ".join(texts[basis] for basis in sorted(bases))


def _intervals_text(comparison: Comparison) -> str:
    if any(change.within_only for change in comparison.changes):
        return "in brackets: noise within these two runs only, which understates the real variation"
    count = len(comparison.changes)
    return f"{percent_text(1 - comparison.alpha)}, corrected for {count} measures at once (Holm)"
