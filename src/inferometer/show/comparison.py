"""Comparisons in every output: terminal, dashboard, static site and report show the same rows and sentences."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from msgspec import structs
from rich.console import Console
from rich.table import Table
from rich.text import Text

from inferometer.documents.document import JsonObject
from inferometer.judge.check_result import Checked, CheckResult
from inferometer.judge.compare import Comparison
from inferometer.judge.effect import Change
from inferometer.judge.identity import Objection
from inferometer.measure.values import quantities
from inferometer.record.run import Run
from inferometer.show.console import emit, facts_table, first_that_fits, plain_table
from inferometer.vocabulary import (
    RATE_UNITS,
    change_interval_text,
    change_size_text,
    change_text,
    duration_text,
    number_text,
    percent_text,
    value_text,
)

STATUSES = ("better", "worse", "same", "unclear", "changed", "invalid")  # in the order in which they are counted
NOT_DECIDED = "not decided"  # the status of every measure if the sides must not be compared
COLUMNS = ("before", "after", "change", "interval", "detectable")
_DESIGNS = {
    "one tape": "the same requests at the same times in all runs, paired request by request",
    "paired tapes": "the same requests at the same times in each pair of runs",
    "independent": "different requests in each run",
}


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One measure as texts."""

    key: str
    title: str
    before: str
    after: str
    change: str
    interval: str  # in brackets if it covers only the noise within the runs
    could_see: str  # the smallest change that these runs could have detected
    status: str

    @property
    def cells(self) -> dict[str, str]:
        """By the headings of `COLUMNS`."""
        texts = (self.before, self.after, self.change, self.interval, self.could_see)
        return dict(zip(COLUMNS, texts, strict=True))


@dataclass(frozen=True, slots=True)
class ComparisonView:
    status: str  # of all measures, or "not comparable"
    counts: str  # `1 worse, 2 same, 4 unclear (7 measures)`; empty without measures
    objections: tuple[Objection, ...]
    rows: tuple[ChangeRow, ...]
    facts: tuple[tuple[str, str], ...]

    def document(self) -> JsonObject:
        """The document for pages."""
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
    measures = "1 measure" if len(changes) == 1 else f"{len(changes)} measures"
    return f"{listed} ({measures})" if listed else ""


def _gravest_first(objections: Sequence[Objection]) -> tuple[Objection, ...]:
    return tuple(sorted(objections, key=lambda objection: objection.severity != "refuse"))


def comparison_rows(comparison: Comparison) -> tuple[ChangeRow, ...]:
    """If the sides must not be compared, the numbers are shown, and no measure is called better or worse."""
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
    """The unit of a rate is in its title, and not repeated in every column."""
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
    for reason in dict.fromkeys(str(change.why) for change in unclear):
        titles = [change.title for change in unclear if change.why == reason]
        named = len(titles) == 1 and reason.startswith(titles[0])
        yield "unclear", reason if named else f"{', '.join(titles)}: {reason}"


def _ids(ids: Sequence[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{len(ids)} runs: {', '.join(ids)}"


def _assumed_text(changes: Iterable[Change]) -> str:
    """` (5.1% to 12.3% with each run's own uncertainty)`: the assumed spread between runs is only a part of it."""
    spreads = [change.spread for change in changes if "assumed" in change.basis and change.relative]
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
    earlier = f"{comparison.history} other runs of the same workload, stack and hardware"
    texts = {
        "repeats": "from the repeats",
        "pairs": "from pairs of runs with the same requests",
        "history": f"from {earlier}",
        "repeats and history": f"from the repeats and {earlier}",
        "assumed": f"assumed{_assumed_text(comparison.changes)}: one run per side does not show it; repeat the runs",
        "repeats and assumed": f"mostly assumed{_assumed_text(comparison.changes)}: there are few repeats",
    }
    return "; ".join(texts[basis] for basis in sorted(bases))


def _intervals_text(comparison: Comparison) -> str:
    if any(change.within_only for change in comparison.changes):
        return "in brackets: noise within these two runs only, which understates the real variation"
    count = len(comparison.changes)
    return f"{percent_text(1 - comparison.alpha)}, corrected for {count} measures at once (Holm)"


# -- comparison ------------------------------------------------------------------------------------------------------

STATUS_STYLES = {
    "better": "bold green",
    "worse": "bold red",
    "same": "green",
    "unclear": "yellow",
    "changed": "cyan",
    "invalid": "bold red",
    "not comparable": "bold red",
    NOT_DECIDED: "dim",
}
LEAST_TITLE = 16  # letters of a title on one line


def print_comparison(comparison: Comparison, to: Console) -> None:
    """The most important information, in the order of interest."""
    view = comparison_view(comparison)
    emit(_head(view.status, view.counts), to)
    to.print()
    if view.objections:
        emit(objections_table(view.objections), to)
        to.print()
    if view.rows:
        emit(changes_table(view.rows, to.width), to)
        to.print()
    table = facts_table()
    for label, text in view.facts:
        table.add_row(label, text)
    emit(table, to)


def _head(status: str, text: str) -> Text:
    """`WORSE  1 worse, 2 same, 4 unclear (7 measures)`."""
    head = Text(status.upper(), style=STATUS_STYLES.get(status, "bold"))
    return head.append(f"  {text}", style="not bold default") if text else head


def objections_table(objections: Iterable[Objection]) -> Table:
    table = facts_table(label=1, gap=1)
    for objection in objections:
        mark = Text("✗", "bold red") if objection.severity == "refuse" else Text("•", "yellow")
        table.add_row(mark, objection.text)
    return table


def changes_table(rows: Sequence[ChangeRow], width: int) -> Table:
    """With all columns if there is room, with narrower gaps if necessary; titles are wrapped, numbers never."""
    looks = ((COLUMNS, 2), (COLUMNS, 1), (COLUMNS[:-1], 1), (COLUMNS[:-2], 1), (("change",), 1))
    longest = max((len(row.title) for row in rows), default=0)
    return first_that_fits((_table(rows, *look) for look in looks), width + max(0, longest - LEAST_TITLE))


def _table(rows: Sequence[ChangeRow], columns: Sequence[str], gap: int) -> Table:
    table = plain_table("", *columns, " ", right=tuple(columns), wrap="", gap=gap)
    for row in rows:
        status = Text(row.status, style=STATUS_STYLES[row.status])
        table.add_row(row.title, *(row.cells[column] for column in columns), status)
    return table


# -- ab --------------------------------------------------------------------------------------------------------------

_MEANING = {
    "better": "B is better than A",
    "worse": "B is worse than A",
    "same": "A and B are the same",
    "unclear": "no difference was detected",
    "changed": "A and B differ",
}


def block_text(pair: int, pairs: int, side: str, run: Run) -> str:
    """`pair 3 of 10  a  TTFT 41.2 ms  1,204 tok/s  20261115-...`."""
    known = quantities(run.summary)
    ttft = next((known[key].value for key in ("ttft_scheduled.p50", "ttft.p50") if key in known), None)
    rate = known["output_rate"].value if "output_rate" in known else None
    status = run.status
    doubt = "" if status == "valid" else f"  {status}"
    numbers = f"TTFT {duration_text(ttft)}  {number_text(rate)} tok/s"
    return f"pair {pair} of {pairs}  {side}  {numbers}  {run.id}{doubt}"


def print_block(pair: int, pairs: int, side: str, run: Run) -> None:
    """On stderr, so that the result can be piped."""
    sys.stderr.write(f"{block_text(pair, pairs, side, run)}\n")
    sys.stderr.flush()


def print_ab(
    comparison: Comparison,
    names: Mapping[str, str],
    left_out: Mapping[int, str],
    planned: int,
    experiment: str,
    to: Console,
) -> None:
    emit(_ab_head(comparison), to)
    to.print()
    view = comparison_view(comparison)
    if view.objections:
        emit(objections_table(view.objections), to)
        to.print()
    emit(changes_table(view.rows, to.width), to)
    to.print()
    table = facts_table()
    table.add_row("before, A", names["a"])
    table.add_row("after, B", names["b"])
    table.add_row("pairs", _pairs_text(comparison, left_out, planned))
    for pair, why in left_out.items():
        table.add_row("left out", f"pair {pair}: {why}")
    table.add_row(
        "intervals",
        f"{percent_text(1 - comparison.alpha)}, of pairs, corrected for {len(comparison.changes)} measures (Holm)",
    )
    table.add_row("stored as", experiment)
    emit(table, to)


def _ab_head(comparison: Comparison) -> Text:
    if comparison.refused:
        return _head("not comparable", "not decided whether A or B is better")
    mixed = {change.status for change in comparison.changes} >= {"better", "worse"}
    meaning = "B is better in some measures and worse in others" if mixed else _MEANING[comparison.status]
    return _head(comparison.status, f"{meaning}: {counts_text(comparison.changes)}")


def _pairs_text(comparison: Comparison, left_out: Mapping[int, str], planned: int) -> str:
    done = len(comparison.before)
    of = "" if done == planned else f" of {planned} planned"
    return f"{done}{of}, in the order ABBA; the same requests at the same times within a pair"


# -- check -----------------------------------------------------------------------------------------------------------

MOST_STEPS = 8


def print_check(check: CheckResult, to: Console, *, every: bool = False) -> None:
    emit(_check_head(check), to)
    to.print()
    if shown := _shown(check, every):
        emit(changes_table(change_rows(shown), to.width), to)
        to.print()
    if check.steps:
        emit(_steps(check), to)
        to.print()
    emit(_check_facts(check), to)


def _check_head(check: CheckResult) -> Table:
    """The status, and next to it the sentences."""
    table = facts_table(label=1)
    status = Text(check.status.upper(), style=STATUS_STYLES[check.status])
    for at, sentence in enumerate(check.sentences):
        table.add_row(status if not at else "", Text(sentence))
    return table


def _shown(check: CheckResult, every: bool) -> list[Change]:
    """Measures that can fail a check; the others only if they changed, or if all are requested."""
    changed = ("worse", "better", "changed")
    return [_as_change(measure) for measure in check.measures if measure.alert or every or measure.status in changed]


def _as_change(measure: Checked) -> Change:
    title = measure.change.title if measure.alert else f"{measure.change.title} (observed)"
    return structs.replace(measure.change, title=title, status=measure.status)


def _steps(check: CheckResult) -> Table:
    """Where the history of a measure changed, newest first."""
    table = facts_table(label=7)
    ordered = sorted(check.steps, key=lambda step: step.at, reverse=True)
    for at, step in enumerate(ordered[:MOST_STEPS]):
        size = "" if step.change is None else f" by {change_size_text(step.change)}"
        came = f", with {step.came_with}" if step.came_with else ""
        accepted = ", accepted" if step.accepted and step.status == "worse" else ""
        text = f"{step.at[:10]} {step.title} {step.status}{size}{came}{accepted} ({step.run})"
        table.add_row("changes" if not at else "", text)
    return table


def _check_facts(check: CheckResult) -> Table:
    table = facts_table(label=7)
    table.add_row("run", check.run)
    if check.against != "history" or check.history:
        table.add_row("against", _against(check))
    left_out = {id_ for measure in check.measures if measure.alert for id_ in measure.left_out}
    if left_out:
        runs = "1 run" if len(left_out) == 1 else f"{len(left_out)} runs"
        table.add_row("left out", f"{runs} after a regression that was not accepted")
    changes = [measure.change for measure in check.measures if measure.alert]
    if any("assumed" in change.basis for change in changes):
        mostly = "assumed" if all("repeats" not in change.basis for change in changes) else "mostly assumed"
        table.add_row("spread", f"{mostly}{_assumed_text(changes)}: so few runs do not show it")
    if check.is_alone:
        table.add_row("confirm", f"inferometer check {check.run} --confirm: a single run may be an outlier")
    if check.status == "worse" and check.against == "history":
        table.add_row("accept", f"inferometer check {check.run} --accept, if the change is intended")
    return table


def _against(check: CheckResult) -> str:
    if check.against != "history":
        return check.against
    sizes = sorted({len(measure.baseline) for measure in check.measures if measure.alert})
    if not sizes:
        return f"{check.history} earlier runs of the same workload, stack and hardware"
    used = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    return f"the baseline: {used} of {check.history} earlier runs of the same workload, stack and hardware"


# -- switching -------------------------------------------------------------------------------------------------------


def print_effects(comparisons: Mapping[tuple[str, str], Comparison], to: Console) -> None:
    """Class by class: how its measures change when another class is switched off."""
    for (off, of), comparison in comparisons.items():
        emit("", to)
        emit(Text.assemble((of, "bold"), " without ", (off, "bold"), f": {_counts_text(comparison)}"), to)
        if comparison.changes:
            emit(changes_table(change_rows(comparison.changes), to.width), to)


def _counts_text(comparison: Comparison) -> str:
    runs = f"{len(comparison.before)} runs with it, {len(comparison.after)} without"
    return f"{counts_text(comparison.changes) or 'nothing to compare'}; {runs}"
