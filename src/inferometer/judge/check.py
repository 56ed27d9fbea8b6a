"""`check`: is this run worse than the earlier ones? For CI: a status, what changed and when, and what else changed
then."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from msgspec import structs

from inferometer.errors import PlanError
from inferometer.judge.changes import MAGNITUDE, MAX_P, WINDOW, ChangePoint, change_points, student_p
from inferometer.judge.check_result import (
    CAUSE,
    Checked,
    CheckResult,
    CheckStatus,
    HistoryStep,
    cause_once,
    is_text,
    quiet_sentence,
    sentences,
    warnings,
)
from inferometer.judge.compare import Comparison, alerts, headline, named, observed
from inferometer.judge.effect import Change, Sides, changes
from inferometer.judge.evidence import RunSpread, from_intervals, weak_text
from inferometer.judge.identity import axes_text, identity
from inferometer.measure.quantiles import Floats
from inferometer.measure.values import Quantity, common_basis, quantities
from inferometer.record.run import Run
from inferometer.record.summary import Summary
from inferometer.vocabulary import Direction

# -- baseline --------------------------------------------------------------------------------------------------------

SETTLED = 4  # runs required on each side to report a step: two or three may be a bad day
OUTLIER = 5.0  # robust standard deviations: spikes do not count for the spread between runs
FEWEST_TO_TRIM = 8
MAD_TO_SD = 1.4826


@dataclass(frozen=True, slots=True)
class Baseline:
    """Indices into the history: the runs in the baseline, the runs left out as worse, and the start of the newest
    stretch that is worse and not accepted, if it has not ended."""

    kept: tuple[int, ...]
    left_out: tuple[int, ...]
    worse_since: int | None
    steps: tuple[ChangePoint, ...]
    drifts: bool


def baseline(
    values: Sequence[float],
    direction: Direction | None,
    accepted: Collection[int] = (),
    *,
    max_p: float = MAX_P,
    magnitude: float = MAGNITUDE,
    window: int = WINDOW,
) -> Baseline:
    """The baseline of values in order of time; `accepted` are indices from which on the measured level was accepted."""
    series = np.asarray(values, np.float64)
    points = change_points(series.tolist(), window=window, max_p=max_p, magnitude=magnitude)
    steps = _baseline_text(points, series, max_p)
    kept: list[int] = []
    left_out: list[int] = []
    worse_since: int | None = None
    for start, end in pairwise(sorted({0, len(series), *(point.index for point in steps), *accepted})):
        regime = list(range(start, end))
        status = "better" if not kept or start in accepted else _status(series[kept], series[regime], direction, max_p)
        if status == "worse":
            left_out += regime
            worse_since = start if worse_since is None else worse_since
            continue
        worse_since = None
        left_out = [] if start in accepted else left_out  # the runs before it are accepted too
        kept = regime if status == "better" else kept + regime
    return Baseline(
        kept=tuple(_without_spikes(series, kept)[-window:]),
        left_out=tuple(left_out),
        worse_since=worse_since,
        steps=tuple(steps),
        drifts=any(point.is_drift for point in points),
    )


def _baseline_text(points: Sequence[ChangePoint], series: Floats, max_p: float) -> list[ChangePoint]:
    """Steps with enough runs before them, and after them too unless they are the newest, that no single run causes."""
    steps = [point for point in points if not point.is_drift and point.index >= SETTLED]
    edges = [0, *(point.index for point in steps), len(series)]
    stretches = zip(steps, edges, edges[2:], strict=False)
    return [point for point, start, end in stretches if _holds(series, start, point.index, end, max_p)]


def _holds(series: Floats, start: int, index: int, end: int, max_p: float) -> bool:
    """Whether a step at `index` between its neighbours is real."""
    if end - index < SETTLED:
        return end == len(series)
    return not _is_spike(series[start:index], series[index:end], max_p)


def _is_spike(before: Floats, after: Floats, max_p: float) -> bool:
    """Whether a single run makes the step: without the run that is farthest from the earlier ones, there is none."""
    farthest = int(np.argmax(np.abs(after - before.mean())))
    return student_p(before, np.delete(after, farthest)) >= max_p


def _status(before: Floats, after: Floats, direction: Direction | None, max_p: float) -> str:
    """The status at the level of change points, divided by the number of possible places for this one, because the
    place was chosen."""
    if direction is None:
        return "better"
    if student_p(before, after) >= max_p / (len(before) + len(after)):
        return "same"
    return "worse" if (after.mean() > before.mean()) == (direction == "lower") else "better"


def _without_spikes(series: Floats, kept: list[int]) -> list[int]:
    """The runs close to the median, measured in median absolute deviations; with few runs none is excluded."""
    if len(kept) < FEWEST_TO_TRIM:
        return kept
    distance = np.abs(series[kept] - np.median(series[kept]))
    spread = MAD_TO_SD * float(np.median(distance))
    return [at for at, far in zip(kept, distance, strict=True) if not spread or far <= OUTLIER * spread]


# -- line ------------------------------------------------------------------------------------------------------------

LEAST_SPREAD = 0.0005  # relative: no number of a run is known more exactly, however close earlier ones were


@dataclass(frozen=True, eq=False, slots=True)
class MeasureHistory:
    """The history of one measure, with this run as the last."""

    now: Quantity
    runs: list[Run]
    values: list[float]
    accepted: frozenset[int]
    past: Baseline  # of the runs before this one
    whole: Baseline  # with this run
    spread: RunSpread
    weak: str | None  # set if it is a quantile of too few samples

    @classmethod
    def of(
        cls,
        key: str,
        past: Sequence[Run],
        run: Run,
        accepted: Collection[str],
        p_value: float,
        magnitude: float,
        spread: RunSpread,
    ) -> "MeasureHistory":
        basis = common_basis(old.summary for old in (*past, run))
        known = [
            (old, quantity) for old in (*past, run) if (quantity := quantities(old.summary, basis).get(key)) is not None
        ]
        values = [quantity.value for _, quantity in known]
        now, runs = known[-1][1], [old for old, _ in known]
        marks = frozenset(at for at, old in enumerate(runs) if old.id in accepted)
        baselines = [
            baseline(values[:end], now.direction, [at for at in marks if at < end], max_p=p_value, magnitude=magnitude)
            for end in (len(values) - 1, len(values))
        ]
        return cls(now, runs, values, marks, baselines[0], baselines[1], spread, weak_text([now]))

    @property
    def kept(self) -> tuple[int, ...]:
        """The baseline as the whole history shows it: without a run that turned out to be worse."""
        last = len(self.values) - 1
        gone = {*self.whole.left_out, last}
        start = max((at for at in self.accepted if at <= last), default=0)
        return tuple(at for at in self.past.kept if at not in gone and at >= start)

    @property
    def known(self) -> int:
        """The number of earlier runs that show the spread between runs; 0 if none is in the baseline."""
        return len(self.kept) + sum(len(part) for part in self._others()) if self.kept else 0

    def sides(self) -> Sides:
        quantity, before = self.now, tuple(self.values[at] for at in self.kept)
        return Sides(
            key=quantity.key,
            title=self.title,
            unit=quantity.unit,
            direction=quantity.direction,
            before=before,
            after=(quantity.value,),
            noise=self._least(before),
            history=self._others(),
            assumed=self.spread.of(quantity) if self.known < FEWEST else None,
            weak=self.weak,
        )

    @property
    def title(self) -> str:
        return self.now.title if self.now.statistic is None else f"{self.now.title} {self.now.statistic}"

    def _others(self) -> tuple[tuple[float, ...], ...]:
        """Stretches outside of the baseline: they show the spread between runs, not its level."""
        last, kept = len(self.values) - 1, set(self.kept)
        edges = sorted({0, last, *(point.index for point in self.whole.steps), *self.accepted})
        parts = [[at for at in range(start, end) if at not in kept] for start, end in pairwise(edges) if end <= last]
        return tuple(tuple(self.values[at] for at in part) for part in parts if len(part) > 1)

    def _least(self, before: tuple[float, ...]) -> float:
        """The lower bound for the variance between runs, in the scale of `Sides`: if the baseline is so new that its
        spread comes from other stretches, the variance of the requests that the runs' intervals show."""
        ratio = self.now.unit != "share" and all(value > 0 for value in (*before, self.now.value))
        middle = 1.0 if ratio else sum(before) / max(len(before), 1)
        least = 2 * (LEAST_SPREAD * middle) ** 2
        if len(before) >= SETTLED:
            return least
        old = [quantities(self.runs[at].summary)[self.now.key] for at in self.kept]
        return max(least, from_intervals(old, [self.now], ratio) or 0.0)

    def steps(self) -> list[HistoryStep]:
        return [self._step(point.index, point.before, point.after, point.p) for point in self.whole.steps]

    def _step(self, index: int, before: float, after: float, p: float) -> HistoryStep:
        run, last = self.runs[index], self.runs[index - 1]
        better = (after < before) == (self.now.direction == "lower")
        status = "changed" if self.now.direction is None else "better" if better else "worse"
        return HistoryStep(
            key=self.now.key,
            title=self.title,
            status=status,
            run=run.id,
            at=run.started_at,
            before=before,
            after=after,
            change=after / before - 1 if before else None,
            p=p,
            accepted=any(at >= index for at in self.accepted),
            came_with=axes_text(identity(last), identity(run)),
        )

    def since(self) -> HistoryStep | None:
        """The step after which all runs including this one are worse than the baseline, if it was not accepted."""
        start = self.whole.worse_since
        if start is None or len(self.values) - start < SETTLED:
            return None
        point = next((step for step in self.whole.steps if step.index == start), None)
        return None if point is None else self._step(point.index, point.before, point.after, point.p)

    def ids(self, indices: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.runs[at].id for at in indices)


# -- check -----------------------------------------------------------------------------------------------------------

DETECTABLE = 0.2  # a measure counts as same if a change of this size would have been detected
FEWEST = 3  # earlier runs; with fewer, the spread between runs is unknown


def check(
    history: Sequence[Run],
    run: Run,
    *,
    accepted: Collection[str] = (),
    measures: Sequence[str] = (),
    p_value: float = MAX_P,
    magnitude: float = MAGNITUDE,
    first_look: float | None = None,
    spread: RunSpread | None = None,
) -> CheckResult:
    """Checks a run against the earlier runs of its identity, oldest first. `accepted` are ids of runs from which on the
    level is as it should be. `first_look` is the level for this run alone if a second one has to confirm it. `spread`
    is assumed between runs if there are too few to show it."""
    if run.status == "invalid":
        return _invalid(run)
    past = usable(history, run)
    now = quantities(run.summary)
    fewest = min(FEWEST, max(1, len(past)))
    shared = {
        key: quantity for key, quantity in now.items() if sum(key in quantities(old.summary) for old in past) >= fewest
    }
    requested = named(measures, shared, now) if measures else headline(shared, now, _is_open(run))
    keys = [key for key in requested if key in now]
    observed_keys = [] if measures else [key for key in observed(shared, now) if key not in keys]
    assumed = spread or RunSpread()
    lines = [
        MeasureHistory.of(key, past, run, accepted, p_value, magnitude, assumed) for key in (*keys, *observed_keys)
    ]
    checked = _checked(lines, first_look or p_value, magnitude)
    result = CheckResult(
        run=run.id,
        against="history",
        status=_overall(checked),
        sentences=(),
        measures=tuple(checked),
        steps=tuple(step for line in lines for step in line.steps()),
        warnings=tuple(warnings(run, past, checked, FEWEST)),
        history=len(past),
        p_value=p_value,
        axes=identity(run).axes,
    )
    return replace(result, sentences=tuple(sentences(result, run, past)))


def check_against(comparison: Comparison, run: Run, against: str, magnitude: float = MAGNITUDE) -> CheckResult:
    """Checks a run against a named run or a pinned baseline: the result of a comparison as a check."""
    if run.status == "invalid":
        return replace(_invalid(run), against=against)
    if refused := [objection.text for objection in comparison.objections if objection.severity == "refuse"]:
        raise PlanError(f"{run.id} cannot be checked against {against}: {' '.join(refused)}")
    relevant = [_large(change, magnitude) for change in comparison.changes]
    checked = [Checked(change, _alerts(change), comparison.before, ()) for change in relevant]
    result = CheckResult(
        run=run.id,
        against=against,
        status=_overall(checked),
        sentences=(),
        measures=tuple(checked),
        warnings=tuple(objection.text for objection in comparison.objections),
        history=comparison.history,
        p_value=comparison.alpha,
        axes=identity(run).axes,
    )
    came_with = f"{CAUSE}{comparison.axes}" if comparison.axes else ""
    worse = [f"{is_text(measure.change)} than in {against}{came_with}." for measure in result.with_status("worse")]
    return replace(result, sentences=tuple(cause_once(worse) or [quiet_sentence(result, against)]))


def confirm(first: CheckResult, second: CheckResult) -> CheckResult:
    """Combines a run that looked worse with a repeat of the same plan: worse only if both show it. Two runs that agree
    by chance at a level p each do so with p²."""
    if first.status != "worse":
        return first
    if not {measure.change.key for measure in first.with_status("worse")} & {
        measure.change.key for measure in second.measures
    }:
        why = "it is not valid as a measurement" if second.status == "invalid" else "it has no history of its own"
        text = f"a second run, {second.run}, cannot decide it: {why}"
        return replace(first, warnings=(*first.warnings, text))
    again = {measure.change.key for measure in second.with_status("worse")}
    if any(measure.change.key in again for measure in first.with_status("worse")):
        text = f"A second run, {second.run}, confirms it."
        return replace(first, confirmed=True, confirmed_by=second.run, sentences=(*first.sentences, text))
    text = f"A second run, {second.run}, does not confirm it: the difference was noise."
    measures = tuple(
        _doubted(measure) if measure.alert and measure.status == "worse" else measure for measure in first.measures
    )
    texts = (*first.sentences, text)
    return replace(first, status="same", confirmed=False, confirmed_by=second.run, measures=measures, sentences=texts)


def _doubted(measure: Checked) -> Checked:
    why = "a second run did not confirm it"
    return replace(measure, change=structs.replace(measure.change, status="unclear", why=why), since=None)


def usable(history: Sequence[Run], run: Run) -> list[Run]:
    """Earlier runs with a valid measurement."""
    return [old for old in history if old.id != run.id and old.status != "invalid" and old.summary != Summary()]


def _checked(lines: Sequence[MeasureHistory], level: float, magnitude: float) -> list[Checked]:
    """Measures that can fail a check are corrected for each other; measures that are only reported do not make them
    harder to detect."""
    checked: list[Checked] = []
    for alert in (True, False):
        part = [line for line in lines if alerts(line.now) == alert and line.known]
        changed = changes([line.sides() for line in part], level)
        checked += [
            _one(line, _result_text(change, magnitude), alert) for line, change in zip(part, changed, strict=True)
        ]
    return checked


def _result_text(change: Change, magnitude: float) -> Change:
    """The status becomes `same` if a change of a relevant size would have been detected."""
    seen = change.smallest is not None and change.smallest <= DETECTABLE
    return (
        structs.replace(change, status="same", why=None)
        if seen and change.status == "unclear"
        else _large(change, magnitude)
    )


def _large(change: Change, magnitude: float) -> Change:
    """A change that is too small to matter becomes `same`."""
    small = change.relative and abs(change.change) <= magnitude
    return (
        structs.replace(change, status="same") if small and change.status in ("better", "worse", "changed") else change
    )


def _one(line: MeasureHistory, change: Change, alert: bool) -> Checked:
    return Checked(
        change=change,
        alert=alert,
        baseline=line.ids(line.kept),
        left_out=line.ids([at for at in line.whole.left_out if at < len(line.values) - 1]),
        since=line.since(),
        drifts=line.whole.drifts,
    )


def _overall(checked: Sequence[Checked]) -> CheckStatus:
    statuses = {measure.status for measure in checked if measure.alert}
    if not statuses:
        return "unclear"
    if "worse" in statuses:
        return "worse"
    return "better" if "better" in statuses else "unclear" if "unclear" in statuses else "same"


def _alerts(change: Change) -> bool:
    name, _, statistic = change.key.partition(".")
    return alerts(Quantity(name, statistic or None, change.after, change.unit, change.direction, change.title))


def _is_open(run: Run) -> bool:
    return run.summary.loop in ("open", "mixed")


def _invalid(run: Run) -> CheckResult:
    reasons = [reason.sentence for reason in run.doubts]
    text = f"{run.id} is not valid as a measurement: {' '.join(reasons)}".rstrip()
    return CheckResult(run.id, "history", "invalid", (text,), axes=identity(run).axes)
