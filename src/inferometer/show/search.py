"""A search as a person reads it: a line per load while it goes on, then the answer and the curve found on the way."""

import sys
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from inferometer.judge.search import Attained, Found, Step
from inferometer.show.console import emit, first_that_fits, plain_table
from inferometer.vocabulary import duration_text, number_text

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
    return first_that_fits((_table([final[load] for load in sorted(final)], axis, look) for look in looks), width)


def _table(steps: Sequence[Step], axis: str, curve: Sequence[str]) -> Table:
    table = plain_table(axis, "limits", "kept by", *curve, "run", right=(axis, "kept by", *curve))
    for step in steps:
        table.add_row(*_cells(step, curve))
    return table


def _cells(step: Step, curve: Sequence[str]) -> list[str | Text]:
    worst = min(step.attained, key=_margin, default=None)
    kept = "-" if worst is None or worst.share is None else f"{100 * worst.share:.3g}%"
    word = Text(step.word if step.valid else "not valid", style=STYLES[step.word])
    numbers = [_number(step, *CURVE[heading]) for heading in curve]
    return [f"{step.load:.4g}", word, kept, *numbers, "-".join((step.run or "-").split("-")[2:])]


def _number(step: Step, text: Callable[[float | None], str], keys: Sequence[str]) -> str:
    return text(next((step.values[key] for key in keys if key in step.values), None))
