"""`check`: is this run worse than those before it? For CI: a word, what changed when, and what it came with.

A run is held against the rolling baseline of its own identity (`judge.baseline`), each measure by Student's t for one
new value, corrected for how many measures alert (Holm). What is too small to see in one run is seen when several have
come together: then the history has a change point, and the run is worse with the others since then. Both at the level
of Otava's change points, 0.001, so that a thousand checks of nothing raise one alarm.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from inferometer.errors import PlanError
from inferometer.judge.asked import alerts, headline, named, observed
from inferometer.judge.changes import MAGNITUDE, MAX_P
from inferometer.judge.checked import Checked, CheckResult, Verdict
from inferometer.judge.compare import Comparison
from inferometer.judge.identity import identity
from inferometer.judge.judgement import Change, changes
from inferometer.judge.line import Line
from inferometer.judge.sentences import quiet_sentence, sentences, warnings
from inferometer.judge.telling import is_text
from inferometer.measure.values import Quantity, quantities
from inferometer.record.run import Run

COULD_SEE = 0.2  # a measure is called same where a change of this size would have been seen
FEWEST = 3  # earlier runs without which nothing is known of how much they differ


def check(
    history: Sequence[Run],
    run: Run,
    *,
    accepted: Collection[str] = (),
    measures: Sequence[str] = (),
    p_value: float = MAX_P,
    magnitude: float = MAGNITUDE,
    first_look: float | None = None,
) -> CheckResult:
    """A run against the earlier runs of its identity, oldest first. `accepted` are ids of runs from which on things
    are as they should be. `first_look` is the level for this run alone where a second one will have to agree."""
    if run.verdict.get("word") == "invalid":
        return _invalid(run)
    past = usable(history, run)
    now = quantities(run.summary)
    shared = {key: each for key, each in now.items() if sum(key in quantities(old.summary) for old in past) >= FEWEST}
    asked = named(measures, shared, now) if measures else headline(shared, now, _is_open(run))
    keys = [key for key in asked if key in now]
    beside = [] if measures else [key for key in observed(shared, now) if key not in keys]
    lines = [Line.of(key, past, run, accepted, p_value, magnitude) for key in (*keys, *beside)]
    found = _checked(lines, first_look or p_value, magnitude)
    result = CheckResult(
        run=run.id,
        against="history",
        word=_overall(found),
        sentences=(),
        measures=tuple(found),
        steps=tuple(step for line in lines for step in line.steps()),
        warnings=tuple(warnings(run, past, found, FEWEST)),
        history=len(past),
        p_value=p_value,
        axes=identity(run).axes,
    )
    return replace(result, sentences=tuple(sentences(result, run, past)))


def check_against(comparison: Comparison, run: Run, against: str, magnitude: float = MAGNITUDE) -> CheckResult:
    """A run against one that was named, or pinned as a baseline: a comparison, read as a check."""
    if run.verdict.get("word") == "invalid":
        return replace(_invalid(run), against=against)
    if refused := [each.text for each in comparison.objections if each.word == "refuse"]:
        raise PlanError(f"{run.id} cannot be checked against {against}: {' '.join(refused)}")
    told = [_large(change, magnitude) for change in comparison.changes]
    found = [Checked(change, _alerts(change), comparison.before, ()) for change in told]
    result = CheckResult(
        run=run.id,
        against=against,
        word=_overall(found),
        sentences=(),
        measures=tuple(found),
        warnings=tuple(each.text for each in comparison.objections),
        history=comparison.history,
        p_value=comparison.alpha,
        axes=identity(run).axes,
    )
    came_with = f"; it came with {comparison.axes}" if comparison.axes else ""
    worse = [f"{is_text(each.change)} than in {against}{came_with}." for each in result.of_word("worse")]
    return replace(result, sentences=tuple(worse or [quiet_sentence(result, against)]))


def confirm(first: CheckResult, second: CheckResult) -> CheckResult:
    """Of a run that looked worse and one more of the same plan: worse only where both say so. Two runs that agree by
    chance at a level p each do so with p²."""
    if first.word != "worse":
        return first
    if not {each.change.key for each in first.of_word("worse")} & {each.change.key for each in second.measures}:
        why = "it is not valid as a measurement" if second.word == "invalid" else "it has no history of its own"
        text = f"a second run, {second.run}, can neither confirm it nor not: {why}"
        return replace(first, warnings=(*first.warnings, text))
    again = {each.change.key for each in second.of_word("worse")}
    if any(each.change.key in again for each in first.of_word("worse")):
        text = f"A second run, {second.run}, says the same."
        return replace(first, confirmed=True, confirmed_by=second.run, sentences=(*first.sentences, text))
    text = f"A second run, {second.run}, does not confirm it: that was noise."
    measures = tuple(_doubted(each) if each.alert and each.word == "worse" else each for each in first.measures)
    told = (*first.sentences, text)
    return replace(first, word="same", confirmed=False, confirmed_by=second.run, measures=measures, sentences=told)


def _doubted(found: Checked) -> Checked:
    why = "a second run did not confirm it"
    return replace(found, change=replace(found.change, word="unclear", why=why), since=None)


def usable(history: Sequence[Run], run: Run) -> list[Run]:
    """Earlier runs that were measurements."""
    return [old for old in history if old.id != run.id and old.verdict.get("word") != "invalid" and old.summary]


def _checked(lines: Sequence[Line], level: float, magnitude: float) -> list[Checked]:
    """Those that alert are corrected for each other; what is only observed does not make them harder to tell."""
    found: list[Checked] = []
    for alert in (True, False):
        part = [line for line in lines if alerts(line.now) == alert and line.known >= FEWEST]
        told = changes([line.sides() for line in part], level)
        found += [_one(line, _told(change, magnitude), alert) for line, change in zip(part, told, strict=True)]
    return found


def _told(change: Change, magnitude: float) -> Change:
    """A change that was not found is none where it could have been."""
    seen = change.smallest is not None and change.smallest <= COULD_SEE
    return replace(change, word="same", why=None) if seen and change.word == "unclear" else _large(change, magnitude)


def _large(change: Change, magnitude: float) -> Change:
    """A change too small to matter is none."""
    small = change.relative and abs(change.change) <= magnitude
    return replace(change, word="same") if small and change.word in ("better", "worse", "changed") else change


def _one(line: Line, change: Change, alert: bool) -> Checked:
    return Checked(
        change=change,
        alert=alert,
        baseline=line.ids(line.kept),
        left_out=line.ids([at for at in line.whole.left_out if at < len(line.values) - 1]),
        since=line.since(),
        drifts=line.whole.drifts,
    )


def _overall(found: Sequence[Checked]) -> Verdict:
    words = {each.word for each in found if each.alert}
    if not words:
        return "unclear"
    if "worse" in words:
        return "worse"
    return "better" if "better" in words else "unclear" if "unclear" in words else "same"


def _alerts(change: Change) -> bool:
    name, _, statistic = change.key.partition(".")
    return alerts(Quantity(name, statistic or None, change.after, change.unit, change.direction, change.title))


def _is_open(run: Run) -> bool:
    return run.summary.get("loop") in ("open", "mixed")


def _invalid(run: Run) -> CheckResult:
    reasons = [str(reason.get("text", "")) for reason in run.verdict.get("reasons", [])]
    text = f"{run.id} is not valid as a measurement: {' '.join(reasons)}".rstrip()
    return CheckResult(run.id, "history", "invalid", (text,), axes=identity(run).axes)
