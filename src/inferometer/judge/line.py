"""`Line`: the history of one measure of one identity, with the run that is checked at its end."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from inferometer.judge.baseline import SETTLED, Baseline, baseline
from inferometer.judge.checked import Step
from inferometer.judge.comparable import axes_text
from inferometer.judge.effect import Sides
from inferometer.judge.evidence import from_intervals
from inferometer.judge.identity import identity
from inferometer.measure.values import Quantity, quantities
from inferometer.record.run import Run

LEAST_SPREAD = 0.0005  # relative: no number of a run is known better, however alike earlier ones were


@dataclass(frozen=True, eq=False, slots=True)
class Line:
    """The history of one measure, this run at its end."""

    now: Quantity
    runs: list[Run]
    values: list[float]
    accepted: frozenset[int]
    past: Baseline  # of the runs before this one
    whole: Baseline  # with it

    @classmethod
    def of(
        cls, key: str, past: Sequence[Run], run: Run, accepted: Collection[str], p_value: float, magnitude: float
    ) -> "Line":
        known = [(old, each) for old in (*past, run) if (each := quantities(old.summary).get(key)) is not None]
        values = [each.value for _, each in known]
        now, runs = known[-1][1], [old for old, _ in known]
        marks = frozenset(at for at, old in enumerate(runs) if old.id in accepted)
        found = [
            baseline(values[:end], now.direction, [at for at in marks if at < end], max_p=p_value, magnitude=magnitude)
            for end in (len(values) - 1, len(values))
        ]
        return cls(now, runs, values, marks, *found)

    @property
    def kept(self) -> tuple[int, ...]:
        """The baseline as the whole history shows it: a run that turned out to be worse is not in it."""
        last = len(self.values) - 1
        gone = {*self.whole.left_out, last}
        start = max((at for at in self.accepted if at <= last), default=0)
        return tuple(at for at in self.past.kept if at not in gone and at >= start)

    @property
    def known(self) -> int:
        """Earlier runs that tell how much runs differ; 0 where none is in the baseline."""
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
        )

    @property
    def title(self) -> str:
        return self.now.title if self.now.statistic is None else f"{self.now.title} {self.now.statistic}"

    def _others(self) -> tuple[tuple[float, ...], ...]:
        """Regimes that are not the baseline: they tell nothing of its level, but how much runs differ."""
        last, kept = len(self.values) - 1, set(self.kept)
        edges = sorted({0, last, *(point.index for point in self.whole.steps), *self.accepted})
        parts = [[at for at in range(start, end) if at not in kept] for start, end in pairwise(edges) if end <= last]
        return tuple(tuple(self.values[at] for at in part) for part in parts if len(part) > 1)

    def _least(self, before: tuple[float, ...]) -> float:
        """Variance below which the spread of runs is not believed, in the scale of `Sides`: that of the requests, as
        the runs' intervals tell it, where the baseline is so new that other regimes have to tell its spread."""
        ratio = self.now.unit != "share" and all(value > 0 for value in (*before, self.now.value))
        middle = 1.0 if ratio else sum(before) / max(len(before), 1)
        least = 2 * (LEAST_SPREAD * middle) ** 2
        if len(before) >= SETTLED:
            return least
        old = [quantities(self.runs[at].summary)[self.now.key] for at in self.kept]
        return max(least, from_intervals(old, [self.now], ratio) or 0.0)

    def steps(self) -> list[Step]:
        return [self._step(point.index, point.before, point.after, point.p) for point in self.whole.steps]

    def _step(self, index: int, before: float, after: float, p: float) -> Step:
        run, last = self.runs[index], self.runs[index - 1]
        better = (after < before) == (self.now.direction == "lower")
        word = "changed" if self.now.direction is None else "better" if better else "worse"
        return Step(
            key=self.now.key,
            title=self.title,
            word=word,
            run=run.id,
            at=run.started_at,
            before=before,
            after=after,
            change=after / before - 1 if before else None,
            p=p,
            accepted=any(at >= index for at in self.accepted),
            came_with=axes_text(identity(last), identity(run)),
        )

    def since(self) -> Step | None:
        """The step behind which this run stands too, worse than the baseline and not accepted."""
        start = self.whole.worse_since
        if start is None or len(self.values) - start < SETTLED:
            return None
        point = next((each for each in self.whole.steps if each.index == start), None)
        return None if point is None else self._step(point.index, point.before, point.after, point.p)

    def ids(self, indices: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.runs[at].id for at in indices)
