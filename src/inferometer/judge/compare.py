"""`compare`: two groups of runs, measure by measure, each with a status, and the objections to comparing them at
all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import msgspec
import numpy as np

from inferometer.documents.document import JsonObject
from inferometer.errors import PlanError
from inferometer.judge.changes import change_points, regimes
from inferometer.judge.effect import ALPHA, MARGIN, Change, Sides, changes
from inferometer.judge.evidence import EvidencePair, RunSpread, evidence, from_intervals, noise, on_one_tape, weak_text
from inferometer.judge.identity import Objection, axes_text, identity, objections
from inferometer.measure.quantiles import t_quantile
from inferometer.measure.registry import REGISTRY
from inferometer.measure.values import Quantity, canonical, common_basis, quantities
from inferometer.record.encoding import result_document
from inferometer.record.run import Run
from inferometer.vocabulary.formats import change_text

# -- requested -------------------------------------------------------------------------------------------------------

Quantities = Mapping[str, Quantity]

# Few, because every additional measure makes all of them harder to detect. TPOT by its mean, which is known best.
_CLOSED = ("ttft.p50", "ttft.p99", "tpot.mean", "e2e.p50", "output_rate")
_INSTEAD = {"p99": ("p99", "p95", "p90")}  # the highest percentile that is based on enough samples on both sides
_OPEN = ("ttft_scheduled.p50", "ttft_scheduled.p99", "tpot.mean", "e2e_scheduled.p50", "output_rate")
_ALSO_SHOWN = ("goodput", "failure_rate")
OBSERVED = (
    *("input_tokens.mean", "output_tokens.mean", "cached_tokens.mean"),
    *("queue_wait.p99", "send_delay.p99", "connect.p50", "concurrency"),
)
_NOT_COMPARED = ("std", "min", "max")  # these depend on how many requests there were, not on their speed


def headline(before: Quantities, after: Quantities, open_loop: bool) -> list[str]:
    """The headline measures that both sides have; for another kind of run, everything that has a better direction."""
    pairs = zip(_OPEN if open_loop else _CLOSED, _CLOSED, strict=True)
    first = list(dict.fromkeys(_firm(_known(*pair, before, after), before, after) for pair in pairs))
    shared = [key for key in (*first, *_ALSO_SHOWN) if key in before and key in after]
    return shared if any(key in first for key in shared) else everything(before, after)


def _known(scheduled: str, sent: str, before: Quantities, after: Quantities) -> str:
    """Other tools do not record when a request was scheduled: their open loops are compared from the send time."""
    return scheduled if scheduled in before and scheduled in after else sent


def _firm(key: str, before: Quantities, after: Quantities) -> str:
    """A tail based on too few samples shows nothing: the highest percentile with enough samples replaces it."""
    name, _, stat = key.partition(".")
    keys = [f"{name}.{instead}" for instead in _INSTEAD.get(stat, ())]
    known = [instead for instead in keys if instead in before and instead in after]
    firm = (one for one in known if before[one].needed is None and after[one].needed is None)
    return next(firm, known[-1] if known else key)


def everything(before: Quantities, after: Quantities) -> list[str]:
    """All measures that both sides have and that have a better direction."""
    return [
        key
        for key, quantity in before.items()
        if key in after and quantity.direction is not None and quantity.statistic not in _NOT_COMPARED
    ]


def observed(before: Quantities, after: Quantities) -> list[str]:
    """Measures that are reported if they changed, and never fail a check."""
    return [key for key in OBSERVED if key in before and key in after]


def alerts(quantity: Quantity) -> bool:
    """Whether a change for the worse fails a check. It does for a user's own measure if its direction is known."""
    known = REGISTRY.get(quantity.name)
    return quantity.direction is not None if known is None else known.alerts


def named(requested: Sequence[str], before: Quantities, after: Quantities) -> list[str]:
    """Keys as people write them; a key that one side does not have is an error."""
    keys = list(dict.fromkeys(canonical(name) for text in requested for name in text.split(",") if name.strip()))
    missing = [key for key in keys if key not in before or key not in after]
    if missing:
        sides = [
            label for label, side in (("before", before), ("after", after)) if any(key not in side for key in missing)
        ]
        near = [key for key in before if key.partition(".")[0] == missing[0].partition(".")[0] and key in after]
        hint = f"there are {', '.join(near)}" if near else "inferometer show RUN --measures lists the measures of a run"
        raise PlanError(f"--measure: {', '.join(missing)} was not measured in the runs {' and '.join(sides)}", hint)
    return keys


# -- compare ---------------------------------------------------------------------------------------------------------

INDEPENDENT = "independent"
MOST_DRAWN = 2  # pairs of runs whose requests are resampled: the noise within runs is similar in all

Tape = str | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Before and after by their ids, the `Change` of every measure, and the notes that a reader needs."""

    DERIVED: ClassVar = ("status",)

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    design: str = "independent"  # or "one tape", "paired tapes"
    records: bool = False  # whether both sides have records
    history: int = 0  # number of earlier runs that show the spread between runs
    axes: str | None = None  # versions and commits that differ
    alpha: float = ALPHA
    objections: tuple[Objection, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def refused(self) -> bool:
        return any(objection.severity == "refuse" for objection in self.objections)

    @property
    def status(self) -> str:
        """The overall status: worse if one measure is, else better if one is, else same if all are."""
        statuses = {change.status for change in self.changes}
        if not statuses:
            return "unclear"
        return next((status for status in ("worse", "better", "unclear", "changed") if status in statuses), "same")

    def document(self) -> JsonObject:
        """The document that `--json` prints; stable."""
        return result_document("comparison", self)


def compare(
    before: Sequence[Run],
    after: Sequence[Run],
    *,
    history: Sequence[Run] = (),
    measures: Sequence[str] = (),
    every: bool = False,
    alpha: float = ALPHA,
    margin: float = MARGIN,
    spread: RunSpread | None = None,
) -> Comparison:
    """Compares two groups of repeats, one or more runs each. `history` are other runs of the same identity, oldest
    first; `spread` is assumed between runs if neither they nor repeats show it."""
    if not before or not after:
        raise PlanError("compare: needs at least one run on each side")
    against = objections(before, after)
    cannot = {objection.code for objection in against if objection.severity == "refuse"} & {
        "units",
        "kind",
        "no_numbers",
    }
    past = [run for run in history if run.id not in {compared.id for compared in (*before, *after)}]
    requests = _Requests.of(before, after)
    keys = [] if cannot else _keys(before, after, measures, every)
    basis = common_basis(run.summary for run in (*before, *after, *past))
    one, other, older = ([quantities(run.summary, basis) for run in side] for side in (before, after, past))
    sides = [_sides(key, one, other, older, requests, spread or RunSpread()) for key in keys]
    return Comparison(
        before=tuple(run.id for run in before),
        after=tuple(run.id for run in after),
        changes=tuple(changes(sides, alpha, margin)),
        objections=tuple(against),
        design=requests.design,
        records=bool(requests.pairs),
        history=len(past),
        axes=axes_text(identity(before[0]), identity(after[0])),
        alpha=alpha,
    )


def _keys(before: Sequence[Run], after: Sequence[Run], measures: Sequence[str], every: bool) -> list[str]:
    """The keys of the numbers that every run of a side has."""
    one, other = known_to_all(before), known_to_all(after)
    if measures:
        return named(measures, one, other)
    return everything(one, other) if every else headline(one, other, before[0].summary.loop in ("open", "mixed"))


def known_to_all(runs: Sequence[Run]) -> dict[str, Quantity]:
    """For each number the quantity of the run in which it is weakest."""
    known = [quantities(run.summary) for run in runs]
    return {
        key: max((other[key] for other in known), key=lambda quantity: quantity.needed or 0)
        for key in known[0]
        if all(key in other for other in known[1:])
    }


def tape(run: Run) -> Tape:
    """Runs of the same workload and seed send the same requests at the same times. The nonce only changes the first
    words of a prompt, which lengths and instants do not show."""
    return f"{identity(run).workload}-{run.plan.seed}" if run.kind == "serving" and run.plan else None


@dataclass(frozen=True, eq=False, slots=True)
class _Requests:
    """The requests of runs of both sides, matched if they ran the same tapes; no pairs if a side has none."""

    pairs: list[EvidencePair]
    design: str

    @classmethod
    def of(cls, before: Sequence[Run], after: Sequence[Run]) -> "_Requests":
        sides = zip(before[:MOST_DRAWN], after[:MOST_DRAWN], strict=False)
        pairs = [(one, other) for a, b in sides if (one := evidence(a)) and (other := evidence(b))]
        design = _design([tape(run) for run in before], [tape(run) for run in after])
        matched = [pair for one, other in pairs if (pair := on_one_tape(one, other))] if design != INDEPENDENT else []
        borne_out = bool(pairs) and len(matched) == len(pairs)
        return cls(matched, design) if borne_out else cls(pairs, INDEPENDENT)


def _design(before: list[Tape], after: list[Tape]) -> str:
    """`paired tapes` if each tape was run once per side, in the same order; the records have to confirm it."""
    if None in before or None in after:
        return INDEPENDENT
    if len({*before, *after}) == 1:
        return "one tape"
    return "paired tapes" if before == after and len({*before}) == len(before) else INDEPENDENT


Numbers = Sequence[Mapping[str, Quantity]]


def _sides(key: str, before: Numbers, after: Numbers, past: Numbers, requests: _Requests, spread: RunSpread) -> Sides:
    one, other = ([numbers[key] for numbers in side] for side in (before, after))
    first = one[0]
    sides = Sides(
        key=key,
        title=_titled(first),
        unit=first.unit,
        direction=first.direction,
        before=tuple(quantity.value for quantity in one),
        after=tuple(quantity.value for quantity in other),
        pairs=requests.design == "paired tapes",
        history=stretches([numbers[key].value for numbers in past if key in numbers]),
        assumed=spread.of(first),
        weak=weak_text((*one, *other)),
    )
    made = noise(requests.pairs, first, sides.is_ratio, requests.design != INDEPENDENT)
    return replace(sides, noise=from_intervals(one, other, sides.is_ratio) if made is None else made)


def _titled(quantity: Quantity) -> str:
    return quantity.title if quantity.statistic is None else f"{quantity.title} {quantity.statistic}"


def stretches(values: Sequence[float]) -> tuple[tuple[float, ...], ...]:
    """A history, cut at its change points: the spread between runs is that within each stretch."""
    return tuple(tuple(values[at] for at in part) for part in regimes(len(values), change_points(values)))


CONFIDENCE = 0.95
NOTHING_SHOWN = "no difference shown"


class PairedChange(msgspec.Struct, frozen=True, kw_only=True):
    """How much a number of one strategy differs from another's, as a share of it: mean over seeds and interval."""

    change: float
    low: float
    high: float
    seeds: int

    @property
    def is_shown(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        if not self.is_shown:
            return f"{NOTHING_SHOWN} ({change_text(self.low)} to {change_text(self.high)})"
        return f"{change_text(self.change)} ({change_text(self.low)} to {change_text(self.high)})"


def paired_change(
    before: Sequence[float], after: Sequence[float], confidence: float = CONFIDENCE
) -> PairedChange | None:
    """The geometric mean of after / before over the seeds, minus 1, with Student's t on the logarithms; None with fewer
    than two seeds, or if a value is not above 0.

    Ratios are taken within a seed, so that costs which a tape adds to every strategy cancel.
    """
    old, new = np.asarray(before, float), np.asarray(after, float)
    if len(old) != len(new):
        raise ValueError("both strategies need the same seeds")
    if len(old) < 2 or not all(np.isfinite(values).all() and (values > 0).all() for values in (old, new)):
        return None
    ratios = np.log(new / old)
    mean, error = float(ratios.mean()), float(ratios.std(ddof=1)) / len(ratios) ** 0.5
    half = t_quantile(0.5 + confidence / 2, len(ratios) - 1) * error
    change, low, high = (float(np.expm1(value)) for value in (mean, mean - half, mean + half))
    return PairedChange(change=change, low=low, high=high, seeds=len(ratios))


@dataclass(frozen=True, slots=True)
class Winner:
    """The strategy with the lowest mean, and those that are not significantly worse."""

    best: str
    ties: tuple[str, ...]

    def __str__(self) -> str:
        return self.best if not self.ties else f"{self.best} ({NOTHING_SHOWN}: {', '.join(self.ties)})"


def winner(values: Mapping[str, Sequence[float]], confidence: float = CONFIDENCE) -> Winner:
    """The winner among strategies by their numbers over the same seeds; lower is better. With k strategies every
    comparison is made at a level of (1 - confidence) / (k - 1), so that all of them hold together."""
    best = min(values, key=lambda name: float(np.mean(values[name])))
    others = [name for name in values if name != best]
    level = 1 - (1 - confidence) / max(len(others), 1)
    changes = {name: paired_change(values[best], values[name], level) for name in others}
    ties = [name for name, change in changes.items() if change is None or change.low <= 0]
    return Winner(best, tuple(sorted(ties, key=lambda name: float(np.mean(values[name])))))
