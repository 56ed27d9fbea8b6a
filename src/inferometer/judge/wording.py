"""Checks and changes in sentences, for a terminal, a CI summary or a chat: what changed, when, by how much, and which
version or commit it came with."""

from collections.abc import Sequence
from datetime import datetime

from inferometer.judge.check_result import Checked, CheckResult
from inferometer.judge.effect import Change
from inferometer.judge.identity import axes_text, identity
from inferometer.record.run import Run
from inferometer.vocabulary import duration_text, number_text

# -- telling ---------------------------------------------------------------------------------------------------------

_UNITS = {"1/s": "/s", "tokens/s": " tokens/s", "": "", "share": "%", "tokens": " tokens"}


def amount_text(value: float, unit: str) -> str:
    """`412 ms`, `638 tokens/s`, `1.2%`."""
    if unit == "s":
        return duration_text(value)
    shown = number_text(100 * value if unit == "share" else value)
    return f"{shown}{_UNITS.get(unit, f' {unit}')}"


def change_text(change: float, relative: bool, unit: str) -> str:
    """`+4.9%`; of a share in points, `+1.2 pt`; of what was 0 in its unit."""
    sign = "+" if change > 0 else "−" if change < 0 else "±"
    if relative and change > 9.995:
        return f"×{number_text(1 + change)}"
    if relative:
        return f"{sign}{_percent(abs(change))}%"
    if unit == "share":
        return f"{sign}{_percent(abs(change))} pt"
    return f"{sign}{amount_text(abs(change), unit)}"


def _percent(share: float) -> str:
    percent = 100 * share
    return (
        f"{percent:.0f}"
        if percent >= 99.5 or percent == 0
        else f"{percent:.1f}"
        if percent >= 0.95
        else f"{percent:.2f}"
    )


def is_text(change: Change) -> str:
    """`TTFT p99 is 12.3% worse (412 ms to 463 ms)`."""
    span = f"{amount_text(change.before, change.unit)} to {amount_text(change.after, change.unit)}"
    size = change_text(abs(change.change), change.relative, change.unit).lstrip("+−±")
    word = change.word if change.word in ("better", "worse") else "more" if change.change > 0 else "less"
    return f"{change.title} is {size} {word} ({span})"


def day_of(started: str) -> str:
    try:
        return f"{datetime.fromisoformat(started):%Y-%m-%d}"
    except ValueError:
        return "an unknown day"


# -- sentences -------------------------------------------------------------------------------------------------------

LARGE = 0.5  # a change that anybody would see


def warnings(run: Run, past: Sequence[Run], found: Sequence[Checked], fewest: int) -> list[str]:
    said = []
    if len(past) < fewest:
        told = "no earlier runs" if not past else f"only {len(past)} earlier run{'s' if len(past) > 1 else ''}"
        said.append(
            f"{told} of the same workload, stack and hardware: {fewest} are needed to know how much runs differ"
        )
    if run.status == "doubtful":
        reasons = [reason.text for reason in run.doubts]
        said.append(f"the run is doubtful as a measurement: {' '.join(reasons)}")
    drifting = [each.change.title for each in found if each.alert and each.drifts]
    if drifting:
        said.append(f"drifts, run by run: {', '.join(drifting)}")
    return said


def sentences(result: CheckResult, run: Run, past: Sequence[Run]) -> list[str]:
    said = [_worse_text(each, run, past) for each in result.of_word("worse")]
    said += [f"{is_text(each.change)} than its baseline of {_runs(each)}." for each in result.of_word("better")]
    said += [f"Observed: {is_text(each.change)} than before." for each in _observed(result)]
    return said or [quiet_sentence(result, "its baseline")]


def _observed(result: CheckResult) -> list[Checked]:
    return [each for each in result.measures if not each.alert and each.word in ("better", "worse", "changed")]


def _worse_text(found: Checked, run: Run, past: Sequence[Run]) -> str:
    """What changed, when, by how much, and what it came with."""
    step, change = found.since, found.change
    if step is not None:
        by = "" if step.change is None else f" by {abs(step.change):.1%}"
        span = f"{amount_text(step.before, change.unit)} to {amount_text(step.after, change.unit)}"
        with_ = f"; it came with {step.came_with}" if step.came_with else ""
        return f"{step.title} got worse{by} ({span}) on {day_of(step.at)} with run {step.run}{with_}."
    last = next((old for old in reversed(past) if old.id in found.baseline), None)
    came_with = None if last is None else axes_text(identity(last), identity(run))
    with_ = f"; it came with {came_with}" if came_with else ""
    return f"{is_text(change)} than its baseline of {_runs(found)}{with_}."


def _runs(found: Checked) -> str:
    n = len(found.baseline)
    return f"{n} run{'' if n == 1 else 's'}"


def quiet_sentence(result: CheckResult, against: str) -> str:
    if not result.measures:
        few = "1 earlier run is" if result.history == 1 else f"{result.history} earlier runs are"
        what = f"{few} too few to hold" if result.history else "there is nothing to hold"
        return f"Nothing can be said yet: {what} this run against."
    seen = [each.change.smallest for each in result.measures if each.alert and each.change.relative]
    sizes = [size for size in seen if size is not None]
    if not sizes:
        return f"Nothing is worse than {against}."
    if max(sizes) > LARGE:
        return f"Nothing is seen to be worse than {against}, but only a change of {max(sizes):.0%} surely would be."
    return f"Nothing is worse than {against}; a change of {max(sizes):.0%} would have been seen in every measure."
