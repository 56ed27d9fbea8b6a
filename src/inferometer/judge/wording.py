"""Checks and changes in sentences, for a terminal, a CI summary or a chat: what changed, when, by how much, and which
version or commit it came with."""

from collections.abc import Sequence
from datetime import datetime

from inferometer.judge.check_result import Checked, CheckResult
from inferometer.judge.effect import Change
from inferometer.judge.identity import axes_text, identity
from inferometer.record.run import Run
from inferometer.vocabulary import change_size_text, value_text

# -- wording ---------------------------------------------------------------------------------------------------------


def is_text(change: Change) -> str:
    """`TTFT p99 is 12.3% worse (412 ms to 463 ms)`."""
    span = f"{value_text(change.before, change.unit)} to {value_text(change.after, change.unit)}"
    size = change_size_text(change.change, change.relative, change.unit)
    status = change.status if change.status in ("better", "worse") else "more" if change.change > 0 else "less"
    return f"{change.title} is {size} {status} ({span})"


def day_of(started: str) -> str:
    try:
        return f"{datetime.fromisoformat(started):%Y-%m-%d}"
    except ValueError:
        return "an unknown date"


CAUSE = "; changed at the same time: "


# -- sentences -------------------------------------------------------------------------------------------------------

LARGE = 0.5  # a change that anybody would see


def warnings(run: Run, past: Sequence[Run], checked: Sequence[Checked], fewest: int) -> list[str]:
    texts = []
    if len(past) < fewest:
        earlier = "no earlier runs" if not past else f"only {len(past)} earlier run{'s' if len(past) > 1 else ''}"
        text = (
            f"{earlier} of the same workload, stack and hardware: {fewest} are needed to estimate run-to-run variation"
        )
        texts.append(text if not past else f"{text}; a typical run-to-run variation is assumed until then")
    if run.status == "doubtful" and run.doubts:
        first, *others = [reason.sentence for reason in run.doubts]
        more = f" {len(others)} more with inferometer show {run.id}" if others else ""
        texts.append(f"the run is doubtful as a measurement: {first}{more}")
    drifting = [measure.change.title for measure in checked if measure.alert and measure.drifts]
    if drifting:
        texts.append(f"gradual drift from run to run: {', '.join(drifting)}")
    return texts


def sentences(result: CheckResult, run: Run, past: Sequence[Run]) -> list[str]:
    texts = cause_once([_worse_text(measure, run, past) for measure in result.with_status("worse")])
    texts += [
        f"{is_text(measure.change)} than its baseline of {_runs(measure)}." for measure in result.with_status("better")
    ]
    texts += [f"Observed: {is_text(measure.change)} than before." for measure in _observed(result)]
    return texts or [quiet_sentence(result, "its baseline")]


def cause_once(texts: Sequence[str]) -> list[str]:
    """What changed at the same time, in the first sentence that has it only."""
    seen: set[str] = set()
    shorter = []
    for text in texts:
        finding, _, cause = text.partition(CAUSE)
        shorter.append(f"{finding}." if cause in seen else text)
        seen |= {cause} - {""}
    return shorter


def _observed(result: CheckResult) -> list[Checked]:
    return [
        measure for measure in result.measures if not measure.alert and measure.status in ("better", "worse", "changed")
    ]


def _worse_text(measure: Checked, run: Run, past: Sequence[Run]) -> str:
    """What changed, when, by how much, and what it came with."""
    step, change = measure.since, measure.change
    if step is not None:
        by = "" if step.change is None else f" by {change_size_text(step.change, True, change.unit)}"
        span = f"{value_text(step.before, change.unit)} to {value_text(step.after, change.unit)}"
        with_ = f"{CAUSE}{step.came_with}" if step.came_with else ""
        return f"{step.title} got worse{by} ({span}) on {day_of(step.at)} with run {step.run}{with_}."
    last = next((old for old in reversed(past) if old.id in measure.baseline), None)
    came_with = None if last is None else axes_text(identity(last), identity(run))
    with_ = f"{CAUSE}{came_with}" if came_with else ""
    return f"{is_text(change)} than its baseline of {_runs(measure)}{with_}."


def _runs(measure: Checked) -> str:
    n = len(measure.baseline)
    return f"{n} run{'' if n == 1 else 's'}"


def quiet_sentence(result: CheckResult, against: str) -> str:
    if not result.measures:
        few = "1 earlier run is" if result.history == 1 else f"{result.history} earlier runs are"
        what = f"{few} too few to check" if result.history else "there is no earlier run to check"
        return f"No result yet: {what} this run against."
    if unclear := [measure.change for measure in result.with_status("unclear")]:
        first = unclear[0]
        why = f": {first.why}" if first.why else ""
        more = f" (and {len(unclear) - 1} more)" if len(unclear) > 1 else ""
        return f"Unclear whether this run is worse than {against}: {first.title}{more}{why}."
    seen = [measure.change.smallest for measure in result.measures if measure.alert and measure.change.relative]
    sizes = [size for size in seen if size is not None]
    if not sizes:
        return f"No regression against {against}."
    seen_for_sure = change_size_text(max(sizes))
    if max(sizes) > LARGE:
        return f"No regression against {against}, but only changes of {seen_for_sure} or more can be detected."
    return f"No regression against {against}; a change of {seen_for_sure} would be detected in every measure."
