"""Experiments and searches for people: the cases before and during the run, a line per load, the answer."""

import csv
import io
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from inferometer.documents.document import JsonObject
from inferometer.judge.search import Attained, Probe, SearchResult, SearchStep
from inferometer.measure.values import Quantity
from inferometer.plan.cases import CASE, short_names
from inferometer.plan.text import as_written
from inferometer.record.encoding import document_of
from inferometer.record.files import schema_of
from inferometer.record.sanitize import cell
from inferometer.show.console import VERDICT_STYLES, emit, first_that_fits, plain_table
from inferometer.store.experiments import CaseRow, KeptExperiment, StrategyChange
from inferometer.vocabulary import (
    WEAK_MARK,
    duration_text,
    interval_text,
    number_text,
    percent_text,
    spread_text,
    value_text,
)

# -- experiment ------------------------------------------------------------------------------------------------------

Columns = dict[str, str]  # key of a quantity to the heading of its column

_FIRST: tuple[tuple[str, str], ...] = (  # headline numbers, most important first
    ("throughput_per_gpu", "tok/s/GPU"),
    ("tokens_per_s_user", "tok/s/user"),
    ("cost_per_million_tokens", "$ per 1M"),
    ("latency.mean", "mean"),
    ("latency.p50", "p50"),
    ("latency.p90", "p90"),
    ("latency.p99", "p99"),
    ("output_rate", "tok/s"),
    ("ttft_scheduled.p50", "TTFT, scheduled"),
    ("ttft_scheduled.p99", "its p99"),
    ("ttft.p50", "TTFT"),
    ("ttft.p99", "its p99"),
    ("tpot.mean", "TPOT"),
    ("e2e.p50", "E2E"),
    ("request_rate", "requests/s"),
    ("goodput", "goodput"),
)
_OWN_MOST = 6  # columns for a user's own measures


def columns_of(rows: Sequence[CaseRow]) -> Columns:
    """The headline numbers that the cases have; of TTFTs the scheduled one if there is one."""
    known = {key for row in rows for key in row.values}
    columns: Columns = {}
    for key, heading in _FIRST:
        is_second_ttft = key.startswith("ttft.") and "ttft_scheduled.p50" in columns
        if key in known and not is_second_ttft:
            columns[key] = heading
    if columns:
        return columns
    own = dict.fromkeys(key for row in rows for key in row.values)
    return {key: key for key in list(own)[:_OWN_MOST]}


def cases_table(rows: Sequence[CaseRow], width: int) -> Table:
    """A line per case, repeats combined: as many columns as fit, without the least important ones."""
    columns = list(columns_of(rows).items())
    looks = (dict(columns[: len(columns) - less]) for less in range(len(columns) + 1))
    return first_that_fits((_table(rows, look) for look in looks), width)


def _table(rows: Sequence[CaseRow], columns: Columns) -> Table:
    grouped: dict[str, list[CaseRow]] = {}
    for row in rows:
        grouped.setdefault(row.label, []).append(row)
    several = ["done"] if any(len(group) > 1 for group in grouped.values()) else []
    varied = _varied(rows)
    heads = list(varied.values()) or ["case"]
    table = plain_table(*heads, *several, *columns.values(), "", right=("done", *varied.values(), *columns.values()))
    for label, group in grouped.items():
        done = [row for row in group if row.state == "complete"]
        counted = [f"{len(done)}/{len(group)}"] if several else []
        what = [_parameter_text(group[0].parameters.get(path)) for path in varied] or [label]
        table.add_row(*what, *counted, *(_cell(done, key) for key in columns), _verdict_text(group))
    return table


def _varied(rows: Sequence[CaseRow]) -> dict[str, str]:
    """A column per parameter, by its path; none for named cases, and for values that are not single words: their label
    contains them."""
    paths = list(dict.fromkeys(path for row in rows for path in row.parameters))
    plain = all(not isinstance(value, dict | list) for row in rows for value in row.parameters.values())
    return {} if CASE in paths or not plain else short_names(paths)


def _parameter_text(value: Any) -> str:
    return "-" if value is None else as_written(value)


def _cell(rows: Sequence[CaseRow], key: str) -> str:
    """The mean of the repeats, and the largest deviation from it."""
    quantities = [row.values[key] for row in rows if key in row.values]
    if not quantities:
        return "-"
    values = [quantity.value for quantity in quantities]
    unit = "" if quantities[0].unit in ("tokens/s", "1/s") else quantities[0].unit
    mean = fmean(values)
    text = f"{WEAK_MARK if any(quantity.needed for quantity in quantities) else ''}{value_text(mean, unit)}"
    return f"{text} {spread_text(mean, (min(values), max(values)), unit)}" if len(values) > 1 else text


def _verdict_text(group: Sequence[CaseRow]) -> Text:
    """The worst of the repeats: how it ended if it did not complete, else its verdict."""
    if wrong := next((row for row in group if row.state != "complete"), None):
        return Text(wrong.state, style="bold red" if wrong.state == "failed" else "yellow")
    verdicts = [row.verdict or "" for row in group]
    verdict = next((status for status in ("invalid", "doubtful", "valid") if status in verdicts), "")
    return Text(verdict, style=VERDICT_STYLES.get(verdict, ""))


def print_cases(rows: Sequence[CaseRow], to: Console, errors: bool = True) -> None:
    emit(cases_table(rows, to.width), to)
    if any(row.repeat > 1 for row in rows):
        emit(Text("± is the largest deviation of a repeat from the mean", style="dim"), to)
    for row in rows if errors else ():
        if row.error:
            emit("", to)
            emit(Text.assemble((f"{row.name} failed: ", "red"), row.error), to)


# -- before it begins ----------------------------------------------------------------------------------------------


def print_dry_run(
    labels: Sequence[tuple[str, float | None, bool]], starts: int, to: Console, in_virtual_time: bool = False
) -> None:
    """The cases in the order in which they will run, each with the duration of its load, as far as known."""
    table = plain_table("", "case", "load", "", right=("", "load"))
    for at, (name, expected, done) in enumerate(labels, 1):
        table.add_row(str(at), name, "-" if expected is None else duration_text(expected), "done" if done else "")
    emit(table, to)
    emit("", to)
    expected_s = [expected for _, expected, done in labels if not done]
    virtual = "; in virtual time, which takes a fraction of that" if in_virtual_time and expected_s else ""
    emit(f"{time_text(expected_s, starts)}{virtual}", to)


def dry_run_document(
    expected: Sequence[tuple[str, float | None, bool]], parameters: Sequence[JsonObject], starts: int
) -> JsonObject:
    """The same for `--json`; seconds, null if the target determines it."""
    cases = [
        {"name": name, "parameters": dict(varied), "expected_s": load_s, "done": done}
        for (name, load_s, done), varied in zip(expected, parameters, strict=True)
    ]
    return {"schema": schema_of("experiment"), "dry_run": True, "server_starts": starts, "cases": cases}


def time_text(expected: Sequence[float | None], starts: int) -> str:
    """`24 cases, 2 starts of a server: about 12m 30s`, with a note on what is not known."""
    known = [seconds for seconds in expected if seconds is not None]
    count = f"{len(expected)} case{'s' if len(expected) != 1 else ''}"
    server = f", {starts} start{'s' if starts > 1 else ''} of a server" if starts else ""
    unknown = len(expected) - len(known)
    total = math.fsum(known)
    if not expected:
        return "all cases are done"
    if not known:
        return f"{count}{server}: the duration depends on the target"
    rest = f", plus {unknown} whose duration depends on the target" if unknown else ""
    before = " plus server starts" if starts else ""
    return f"{count}{server}: about {duration_text(total)}{before}{rest}"


# -- files ---------------------------------------------------------------------------------------------------------


def csv_text(rows: Sequence[CaseRow]) -> str:
    """One line per case: its name and parameters, how it ended, then every number; seconds and shares. Parameters that
    do not vary stay columns: the next experiment may vary them."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([cell(value) for value in row] for row in csv_rows(rows))
    return out.getvalue()


def csv_rows(rows: Sequence[CaseRow]) -> Iterator[list[Any]]:
    parameters = list(dict.fromkeys(path for row in rows for path in row.parameters))
    keys = list(dict.fromkeys(key for row in rows for key in row.values))
    yield ["name", "repeat", *parameters, "run", "state", "verdict", "error", "wall_s", *keys]
    for row in rows:
        settings = [_plain(row.parameters.get(path)) for path in parameters]
        error = " ".join(row.error.split()) if row.error else None  # output of a command may have several lines
        how = [row.run, row.state, row.verdict, error, row.wall_s]
        yield [row.label, row.repeat, *settings, *how, *(_number(row.values.get(key)) for key in keys)]


def _plain(value: Any) -> Any:
    return as_written(value) if isinstance(value, dict | list | bool) else value


def _number(quantity: Quantity | None) -> float | None:
    return None if quantity is None else quantity.value


def experiment_document(kept: KeptExperiment, rows: Sequence[CaseRow], ended: str | None, left: int) -> JsonObject:
    """An experiment as `--json` prints it."""
    return {
        "schema": schema_of("experiment"),
        "id": kept.id,
        "name": kept.name,
        "started": kept.started_at,
        "folder": str(kept.folder) if kept.folder else None,
        "ended": ended,
        "left": left,
        "cases": rows_document(rows),
        "result": document_of(kept.result),
    }


def rows_document(rows: Sequence[CaseRow]) -> list[JsonObject]:
    """As `--json` prints them; seconds and shares."""
    return [
        {
            "name": row.name,
            "repeat": row.repeat,
            "parameters": row.parameters,
            "run": row.run,
            "state": row.state,
            "verdict": row.verdict,
            "error": row.error,
            "wall_s": row.wall_s,
            "values": {key: quantity.value for key, quantity in row.values.items()},
        }
        for row in rows
    ]


def print_strategy_changes(changes: Sequence[StrategyChange], to: Console) -> None:
    """Every case against the baseline: mean change over the repeats, with its interval."""
    if not changes:
        return
    emit("", to)
    first = changes[0]
    against = f"against {first.baseline}"
    table = plain_table(against, "", f"change over {first.seeds} repeats, 95% interval", wrap=against)
    before = ""
    for entry in changes:
        if entry.measure in _COMPARED:
            where = ", ".join(f"{path} {as_written(value)}" for path, value in entry.settings.items())
            label = f"{entry.case} ({where})" if where else entry.case
            table.add_row("" if label == before else label, _COMPARED[entry.measure], entry.text)
            before = label
    emit(table, to)


_COMPARED = {"ttft.mean": "TTFT mean", "tpot.mean": "TPOT mean", "e2e.mean": "E2E mean", "run_time": "run time"}


# -- search ----------------------------------------------------------------------------------------------------------

UNITS = {"rate": "req/s", "concurrency": "in flight"}
STYLES = {"meets": "green", "misses": "red", "unclear": "yellow"}
CURVE: dict[str, tuple[Callable[[float | None], str], tuple[str, ...]]] = {  # heading, first known key
    "tok/s": (number_text, ("output_rate",)),
    "TTFT": (duration_text, ("ttft_scheduled.p50", "ttft.p50")),
    "its p99": (duration_text, ("ttft_scheduled.p99", "ttft.p99")),
    "TPOT": (duration_text, ("tpot.p50",)),
    "E2E": (duration_text, ("e2e.p50",)),
}


def step_text(step: SearchStep, axis: str) -> str:
    """`8 req/s meets: ttft p99 < 500ms met by 99.6% (99.1..99.9%), 99% needed`."""
    worst = min(step.attained, key=_margin, default=None)
    why = "" if worst is None else f": {attained_text(worst)}"
    cut = f" (ended after {duration_text(step.length_s)})" if step.ended else ""
    return f"{number_text(step.load)} {UNITS[axis]} {step.status}{why}{cut}"


def attained_text(attained: Attained) -> str:
    if attained.share is None or attained.low is None or attained.high is None or attained.required is None:
        return f"{attained.limit} is {'met' if attained.met else 'missed' if attained.met is False else 'undecided'}"
    interval = interval_text((attained.low, attained.high), "share")
    needed = percent_text(attained.required)
    return f"{attained.limit} met by {percent_text(attained.share)} ({interval}), {needed} needed"


def _margin(limit: Attained) -> tuple[int, float]:
    """Sort key: the limit that decides the status of a step comes first."""
    rank = ("misses", "unclear", "meets").index(limit.status)
    if limit.share is None or limit.required is None:
        return rank, {True: 1.0, None: 0.0, False: -1.0}[limit.met]
    return rank, limit.share - limit.required


def probe_text(probe: Probe, axis: str) -> str:
    """`16 in flight: 28.4 req/s, 563 ms per request; starting at 28 req/s`."""
    served = [level for level in probe.levels if level.served_per_s is not None]
    if not served:
        return "no request was answered in time; starting with little load"
    best = served[-1]
    rate, stay = number_text(best.served_per_s), duration_text(best.stay_s)
    seen = f"{best.concurrency} in flight: {rate} req/s, {stay} per request"
    if probe.start is None:
        return f"{seen}, {percent_text(best.failed)} failed; starting at the plan's own load"
    return f"{seen}; starting at {number_text(probe.start)} {UNITS[axis]}"


def print_probe(probe: Probe, axis: str) -> None:
    """On stderr, like the steps."""
    sys.stderr.write(f"probe: {probe_text(probe, axis)}\n")
    sys.stderr.flush()


def print_progress(step: SearchStep, axis: str) -> None:
    """On stderr, so that the answer can be piped."""
    sys.stderr.write(f"{step_text(step, axis)}\n")
    sys.stderr.flush()


def print_searched(result: SearchResult, steps: Sequence[SearchStep], axis: str, experiment: str, to: Console) -> None:
    emit(_headline(result, axis), to)
    emit("", to)
    if steps:
        emit(curve_table(steps, axis, to.width), to)
        emit("", to)
    if wrong := sum(not step.valid for step in steps):
        emit(f"{wrong} of {len(steps)} steps were not valid as measurements: the load generator sent late", to)
    emit(f"stored as   {experiment}", to)


def _headline(result: SearchResult, axis: str) -> Text:
    style = "green" if result.outcome == "found" else "yellow" if result.low is not None else "red"
    outcome = result.outcome.upper()
    value = "" if result.low is None else f"  {number_text(result.low)} {UNITS[axis]}"
    return Text.assemble((f"{outcome}{value}", f"bold {style}"), f"  {result.text}")


def curve_table(steps: Sequence[SearchStep], axis: str, width: int) -> Table:
    """Every load tried, in order of load, with medians; of several tries the longest. As many columns as fit, without
    the least important ones."""
    final = {step.load: step for step in steps}
    headings = list(CURVE)
    looks = (headings[: len(headings) - less] for less in range(len(headings) + 1))
    return first_that_fits(
        (_search_table([final[load] for load in sorted(final)], axis, look) for look in looks), width
    )


def _search_table(steps: Sequence[SearchStep], axis: str, curve: Sequence[str]) -> Table:
    table = plain_table(axis, "limits", "met by", *curve, "run", right=(axis, "met by", *curve))
    for step in steps:
        table.add_row(*_cells(step, curve))
    return table


def _cells(step: SearchStep, curve: Sequence[str]) -> list[str | Text]:
    worst = min(step.attained, key=_margin, default=None)
    kept = "-" if worst is None or worst.share is None else percent_text(worst.share)
    status = Text(step.status if step.valid else "not valid", style=STYLES[step.status])
    numbers = [_load_number(step, *CURVE[heading]) for heading in curve]
    return [number_text(step.load), status, kept, *numbers, "-".join((step.run or "-").split("-")[2:])]


def _load_number(step: SearchStep, text: Callable[[float | None], str], keys: Sequence[str]) -> str:
    return text(next((step.values[key] for key in keys if key in step.values), None))
