"""A check in sentences: what changed, when, by how much, and which version or commit it came with."""

from collections.abc import Sequence

from inferometer.judge.checked import Checked, CheckResult
from inferometer.judge.comparable import axes_text
from inferometer.judge.identity import identity
from inferometer.judge.telling import amount_text, day_of, is_text
from inferometer.record.run import Run

LARGE = 0.5  # a change that anybody would see


def warnings(run: Run, past: Sequence[Run], found: Sequence[Checked], fewest: int) -> list[str]:
    said = []
    if len(past) < fewest:
        told = "no earlier runs" if not past else f"only {len(past)} earlier run{'s' if len(past) > 1 else ''}"
        said.append(
            f"{told} of the same workload, stack and hardware: {fewest} are needed to know how much runs differ"
        )
    if run.verdict.get("word") == "doubtful":
        reasons = [str(reason.get("text", "")) for reason in run.verdict.get("reasons", [])]
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
