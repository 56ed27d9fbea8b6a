"""Experiments and searches as people read them: the cases before and while they are done, a line per
load, the answer."""

import csv
import io
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from inferometer.judge.search import Attained, Found, Step
from inferometer.measure.values import Quantity
from inferometer.plan.cases import CASE, short_names
from inferometer.plan.text import as_written
from inferometer.record.sanitize import cell
from inferometer.record.schema import schema_of
from inferometer.show.console import emit, first_that_fits, plain_table
from inferometer.show.numbers import VERDICT_STYLES, spread_text, value_text
from inferometer.store.experiments import CaseRow, KeptExperiment
from inferometer.vocabulary import duration_text, number_text

# -- experiment ------------------------------------------------------------------------------------------------------

Columns = dict[str, str]  # key of a quantity to the heading of its column

_FIRST: tuple[tuple[str, str], ...] = (  # what a person looks at, the most important first
    ("throughput_per_gpu", "tokens/s/GPU"),
    ("tokens_per_s_user", "tokens/s/user"),
    ("cost_per_million_tokens", "$ per 1M"),
    ("latency.mean", "mean"),
    ("latency.p50", "p50"),
    ("latency.p90", "p90"),
    ("latency.p99", "p99"),
    ("output_rate", "tokens/s"),
    ("ttft_scheduled.p50", "TTFT"),
    ("ttft_scheduled.p99", "its p99"),
    ("ttft.p50", "TTFT"),
    ("ttft.p99", "its p99"),
    ("tpot.mean", "TPOT"),
    ("e2e.p50", "E2E"),
    ("request_rate", "requests/s"),
    ("goodput", "goodput"),
)
_OWN_MOST = 6  # columns of measures that nobody here knows


def columns_of(rows: Sequence[CaseRow]) -> Columns:
    """What the cases have of what people look at; of TTFTs the scheduled one where there is one."""
    known = {key for row in rows for key in row.values}
    found: Columns = {}
    for key, heading in _FIRST:
        if key in known and heading not in found.values():
            found[key] = heading
    if found:
        return found
    own = dict.fromkeys(key for row in rows for key in row.values)
    return {key: key for key in list(own)[:_OWN_MOST]}


def cases_table(rows: Sequence[CaseRow], width: int) -> Table:
    """A line per case, repeats together: as many columns as fit, the least important left out."""
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
        what = [_said(group[0].parameters.get(path)) for path in varied] or [label]
        table.add_row(*what, *counted, *(_cell(done, key) for key in columns), _word(group))
    return table


def _varied(rows: Sequence[CaseRow]) -> dict[str, str]:
    """A column per parameter, by its path; of named cases, and of values that are no single words, none: their label
    tells."""
    paths = list(dict.fromkeys(path for row in rows for path in row.parameters))
    plain = all(not isinstance(value, dict | list) for row in rows for value in row.parameters.values())
    return {} if CASE in paths or not plain else short_names(paths)


def _said(value: Any) -> str:
    return "-" if value is None else as_written(value)


def _cell(rows: Sequence[CaseRow], key: str) -> str:
    """The mean of the repeats, and how far the farthest is from it."""
    found = [row.values[key] for row in rows if key in row.values]
    if not found:
        return "-"
    values = [each.value for each in found]
    unit = "" if found[0].unit in ("tokens/s", "1/s") else found[0].unit
    mean = fmean(values)
    text = value_text(mean, unit)
    return f"{text} {spread_text(mean, (min(values), max(values)), unit)}" if len(values) > 1 else text


def _word(group: Sequence[CaseRow]) -> Text:
    """The worst of the repeats: how it ended where it did not end well, else its verdict."""
    if wrong := next((row for row in group if row.state != "complete"), None):
        return Text(wrong.state, style="bold red" if wrong.state == "failed" else "yellow")
    words = [row.verdict or "" for row in group]
    word = next((each for each in ("invalid", "doubtful", "valid") if each in words), "")
    return Text(word, style=VERDICT_STYLES.get(word, ""))


def print_cases(rows: Sequence[CaseRow], to: Console) -> None:
    emit(cases_table(rows, to.width), to)
    if any(row.repeat > 1 for row in rows):
        emit(Text("± is the farthest repeat from the mean", style="dim"), to)
    for row in rows:
        if row.error:
            emit("", to)
            emit(Text.assemble((f"{row.name} failed: ", "red"), row.error), to)


# -- before it begins ----------------------------------------------------------------------------------------------


def print_dry_run(labels: Sequence[tuple[str, float | None, bool]], starts: int, to: Console) -> None:
    """The cases in the order in which they are done, each with the time that its load takes, as far as it is known."""
    table = plain_table("", "case", "load", "", right=("", "load"))
    for at, (name, expected, done) in enumerate(labels, 1):
        table.add_row(str(at), name, "-" if expected is None else duration_text(expected), "done" if done else "")
    emit(table, to)
    emit("", to)
    emit(time_text([expected for _, expected, done in labels if not done], starts), to)


def dry_run_document(
    expected: Sequence[tuple[str, float | None, bool]], parameters: Sequence[Mapping[str, Any]], starts: int
) -> dict[str, Any]:
    """The same as `--json` prints it; seconds, null where the target decides."""
    cases = [
        {"name": name, "parameters": dict(varied), "expected_s": load_s, "done": done}
        for (name, load_s, done), varied in zip(expected, parameters, strict=True)
    ]
    return {"schema": schema_of("experiment"), "dry_run": True, "server_starts": starts, "cases": cases}


def time_text(expected: Sequence[float | None], starts: int) -> str:
    """`24 cases, 2 starts of a server: about 12m 30s`, with what is not known said."""
    known = [each for each in expected if each is not None]
    count = f"{len(expected)} case{'s' if len(expected) != 1 else ''}"
    server = f", {starts} start{'s' if starts > 1 else ''} of a server" if starts else ""
    unknown = len(expected) - len(known)
    total = math.fsum(known)
    if not expected:
        return "nothing is left to do"
    if not known:
        return f"{count}{server}: how long they take is for the target to say"
    rest = f", and {unknown} whose time is for the target to say" if unknown else ""
    before = " beside these starts" if starts else ""
    return f"{count}{server}: about {duration_text(total)}{before}{rest}"


# -- files ---------------------------------------------------------------------------------------------------------


def csv_text(rows: Sequence[CaseRow]) -> str:
    """One line per case: its name and parameters, how it went, then every number; seconds and shares. What differs in
    no case stays a column: the next experiment may vary it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([cell(value) for value in row] for row in csv_rows(rows))
    return out.getvalue()


def csv_rows(rows: Sequence[CaseRow]) -> Iterator[list[Any]]:
    parameters = list(dict.fromkeys(path for row in rows for path in row.parameters))
    keys = list(dict.fromkeys(key for row in rows for key in row.values))
    yield ["name", "repeat", *parameters, "run", "state", "verdict", "error", "wall_s", *keys]
    for row in rows:
        said = [_plain(row.parameters.get(path)) for path in parameters]
        error = " ".join(row.error.split()) if row.error else None  # what a command printed has lines
        how = [row.run, row.state, row.verdict, error, row.wall_s]
        yield [row.label, row.repeat, *said, *how, *(_number(row.values.get(key)) for key in keys)]


def _plain(value: Any) -> Any:
    return as_written(value) if isinstance(value, dict | list | bool) else value


def _number(quantity: Quantity | None) -> float | None:
    return None if quantity is None else quantity.value


def experiment_document(kept: KeptExperiment, rows: Sequence[CaseRow], ended: str | None, left: int) -> dict[str, Any]:
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
        "result": kept.result,
    }


def rows_document(rows: Sequence[CaseRow]) -> list[dict[str, Any]]:
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
            "values": {key: each.value for key, each in row.values.items()},
        }
        for row in rows
    ]


# -- search ----------------------------------------------------------------------------------------------------------

UNITS = {"rate": "/s", "concurrency": " at once"}
STYLES = {"meets": "green", "misses": "red", "unclear": "yellow"}
CURVE: dict[str, tuple[Callable[[float | None], str], tuple[str, ...]]] = {  # heading, and the first that is known
    "tokens/s": (number_text, ("output_rate",)),
    "TTFT": (duration_text, ("ttft_scheduled.p50", "ttft.p50")),
    "its p99": (duration_text, ("ttft_scheduled.p99", "ttft.p99")),
    "TPOT": (duration_text, ("tpot.p50",)),
    "E2E": (duration_text, ("e2e.p50",)),
}


def step_text(step: Step, axis: str) -> str:
    """`8/s meets: 99.6% (99.1 to 99.9%) of 99% asked by ttft p99 < 500ms`."""
    worst = min(step.attained, key=_margin, default=None)
    why = "" if worst is None else f": {attained_text(worst)}"
    cut = f" (ended after {duration_text(step.length_s)})" if step.ended else ""
    return f"{step.load:g}{UNITS[axis]} {step.word}{why}{cut}"


def attained_text(each: Attained) -> str:
    if each.share is None or each.low is None or each.high is None or each.required is None:
        return f"{each.limit} is {'kept' if each.met else 'missed' if each.met is False else 'not to be told'}"
    interval = f"{100 * each.low:.3g} to {100 * each.high:.3g}%"
    return f"{100 * each.share:.4g}% ({interval}) keep {each.limit}, {100 * each.required:.4g}% must"


def _margin(each: Attained) -> float:
    if each.share is None or each.required is None:
        return {True: 1.0, None: 0.0, False: -1.0}[each.met]
    return each.share - each.required


def print_progress(step: Step, axis: str) -> None:
    """On stderr, so that the answer can be piped."""
    sys.stderr.write(f"tried: {step_text(step, axis)}\n")
    sys.stderr.flush()


def print_searched(found: Found, steps: Sequence[Step], axis: str, experiment: str, to: Console) -> None:
    emit(_headline(found, axis), to)
    emit("", to)
    if steps:
        emit(curve_table(steps, axis, to.width), to)
        emit("", to)
    if wrong := sum(not step.valid for step in steps):
        emit(f"{wrong} of {len(steps)} steps were not valid as measurements: our own sending was late there", to)
    emit(f"kept as     {experiment}", to)


def _headline(found: Found, axis: str) -> Text:
    style = "green" if found.outcome == "found" else "yellow" if found.low is not None else "red"
    word = found.outcome.upper()
    value = "" if found.low is None else f"  {found.low:.4g}{UNITS[axis]}"
    return Text.assemble((f"{word}{value}", f"bold {style}"), f"  {found.text}")


def curve_table(steps: Sequence[Step], axis: str, width: int) -> Table:
    """Every load that was tried, in order of load, with medians; of several tries the longest. As many columns as fit,
    the least important left out."""
    final = {step.load: step for step in steps}
    headings = list(CURVE)
    looks = (headings[: len(headings) - less] for less in range(len(headings) + 1))
    return first_that_fits(
        (_search_table([final[load] for load in sorted(final)], axis, look) for look in looks), width
    )


def _search_table(steps: Sequence[Step], axis: str, curve: Sequence[str]) -> Table:
    table = plain_table(axis, "limits", "kept by", *curve, "run", right=(axis, "kept by", *curve))
    for step in steps:
        table.add_row(*_cells(step, curve))
    return table


def _cells(step: Step, curve: Sequence[str]) -> list[str | Text]:
    worst = min(step.attained, key=_margin, default=None)
    kept = "-" if worst is None or worst.share is None else f"{100 * worst.share:.3g}%"
    word = Text(step.word if step.valid else "not valid", style=STYLES[step.word])
    numbers = [_load_number(step, *CURVE[heading]) for heading in curve]
    return [f"{step.load:.4g}", word, kept, *numbers, "-".join((step.run or "-").split("-")[2:])]


def _load_number(step: Step, text: Callable[[float | None], str], keys: Sequence[str]) -> str:
    return text(next((step.values[key] for key in keys if key in step.values), None))
