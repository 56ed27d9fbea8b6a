"""`compare`: two groups of runs, measure by measure, with a status for each and what speaks against
comparing at all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inferometer.errors import PlanError
from inferometer.judge.changes import change_points, regimes
from inferometer.judge.effect import ALPHA, MARGIN, Change, Sides, changes
from inferometer.judge.evidence import Pair, evidence, from_intervals, noise, on_one_tape
from inferometer.judge.identity import Objection, axes_text, identity, objections
from inferometer.measure.registry import REGISTRY
from inferometer.measure.values import Quantity, canonical, quantities
from inferometer.record.run import Run
from inferometer.record.schema import schema_of

# -- asked -----------------------------------------------------------------------------------------------------------

Quantities = Mapping[str, Quantity]

# Few, because every measure more makes all of them harder to tell. TPOT by its mean: that is known best.
_CLOSED = ("ttft.p50", "ttft.p99", "tpot.mean", "e2e.p50", "output_rate")
_OPEN = ("ttft_scheduled.p50", "ttft_scheduled.p99", "tpot.mean", "e2e_scheduled.p50", "output_rate")
_BESIDE = ("goodput", "failure_rate")
OBSERVED = (
    *("input_tokens.mean", "output_tokens.mean", "cached_tokens.mean"),
    *("queue_wait.p99", "send_delay.p99", "connect.p50", "concurrency"),
)
_NOT_COMPARED = ("std", "min", "max")  # of how many requests there were, not of how they went


def headline(before: Quantities, after: Quantities, open_loop: bool) -> list[str]:
    """What both sides have of what a person looks at first; of a run of another kind, everything that can be better
    or worse."""
    first = [_known(*pair, before, after) for pair in zip(_OPEN if open_loop else _CLOSED, _CLOSED, strict=True)]
    found = [key for key in (*first, *_BESIDE) if key in before and key in after]
    return found if any(key in first for key in found) else everything(before, after)


def _known(scheduled: str, sent: str, before: Quantities, after: Quantities) -> str:
    """Other tools do not keep when a request was due: their open loops are compared from when it was sent."""
    return scheduled if scheduled in before and scheduled in after else sent


def everything(before: Quantities, after: Quantities) -> list[str]:
    """All that both have and that can be better or worse."""
    return [
        key
        for key, each in before.items()
        if key in after and each.direction is not None and each.statistic not in _NOT_COMPARED
    ]


def observed(before: Quantities, after: Quantities) -> list[str]:
    """What is told where it changed, and fails nothing."""
    return [key for key in OBSERVED if key in before and key in after]


def alerts(quantity: Quantity) -> bool:
    """Whether a change for the worse fails a check. One of somebody's own does, if it says which way is better."""
    known = REGISTRY.get(quantity.name)
    return quantity.direction is not None if known is None else known.alerts


def named(said: Sequence[str], before: Quantities, after: Quantities) -> list[str]:
    """Keys as people write them; one that a side does not have is an error."""
    keys = list(dict.fromkeys(canonical(each) for text in said for each in text.split(",") if each.strip()))
    missing = [key for key in keys if key not in before or key not in after]
    if missing:
        sides = [
            word for word, side in (("before", before), ("after", after)) if any(key not in side for key in missing)
        ]
        near = [key for key in before if key.partition(".")[0] == missing[0].partition(".")[0] and key in after]
        hint = f"there are {', '.join(near)}" if near else "inferometer show RUN --measures lists those a run has"
        raise PlanError(f"--measure: {', '.join(missing)} is not known of the runs {' and '.join(sides)}", hint)
    return keys


# -- compare ---------------------------------------------------------------------------------------------------------

APART = "independent"
MOST_DRAWN = 2  # pairs of runs whose requests are drawn again: the noise within runs is much the same in all

Tape = str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Before and after by their ids, every measure's `Change`, and what a reader has to know."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    changes: tuple[Change, ...]
    objections: tuple[Objection, ...]
    design: str  # "independent", "one tape", "paired tapes"
    records: bool  # whether both sides have them
    history: int  # earlier runs that told how much runs differ
    axes: str | None  # versions and commits that differ
    alpha: float

    @property
    def refused(self) -> bool:
        return any(each.word == "refuse" for each in self.objections)

    @property
    def word(self) -> str:
        """Of all measures: worse if one is, else better if one is, else same if all are."""
        found = {change.word for change in self.changes}
        if not found:
            return "unclear"
        return next((word for word in ("worse", "better", "unclear", "changed") if word in found), "same")

    def document(self) -> dict[str, Any]:
        """As `--json` prints it; stable."""
        return {
            "schema": schema_of("comparison"),
            "word": self.word,
            "before": list(self.before),
            "after": list(self.after),
            "design": self.design,
            "records": self.records,
            "history": self.history,
            "axes": self.axes,
            "alpha": self.alpha,
            "objections": [{"word": each.word, "code": each.code, "text": each.text} for each in self.objections],
            "changes": [change.document() for change in self.changes],
        }


def compare(
    before: Sequence[Run],
    after: Sequence[Run],
    *,
    history: Sequence[Run] = (),
    measures: Sequence[str] = (),
    every: bool = False,
    alpha: float = ALPHA,
    margin: float = MARGIN,
) -> Comparison:
    """Two groups of repeats, one run or more each. `history` are other runs of the same identity, oldest first."""
    if not before or not after:
        raise PlanError("compare: needs at least one run on each side")
    against = objections(before, after)
    cannot = {each.code for each in against if each.word == "refuse"} & {"units", "kind", "no_numbers"}
    past = [run for run in history if run.id not in {each.id for each in (*before, *after)}]
    requests = _Requests.of(before, after)
    keys = [] if cannot else _keys(before, after, measures, every)
    one, other, older = ([quantities(run.summary) for run in side] for side in (before, after, past))
    sides = [_sides(key, one, other, older, requests) for key in keys]
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
    """Of what every run of a side knows."""
    one, other = known_to_all(before), known_to_all(after)
    if measures:
        return named(measures, one, other)
    return everything(one, other) if every else headline(one, other, before[0].summary.loop in ("open", "mixed"))


def known_to_all(runs: Sequence[Run]) -> dict[str, Quantity]:
    found = [quantities(run.summary) for run in runs]
    return {key: each for key, each in found[0].items() if all(key in other for other in found[1:])}


def tape(run: Run) -> Tape:
    """Runs of the same workload and seed send the same requests at the same times. What the nonce changes, the first
    words of a prompt, is not seen in lengths and instants."""
    return f"{identity(run).workload}-{run.plan.get('seed', 0)}" if run.kind == "serving" and run.plan else None


@dataclass(frozen=True, eq=False, slots=True)
class _Requests:
    """The requests of runs of both sides, matched where they ran the same tapes; no pairs where a side has none."""

    pairs: list[Pair]
    design: str

    @classmethod
    def of(cls, before: Sequence[Run], after: Sequence[Run]) -> "_Requests":
        sides = zip(before[:MOST_DRAWN], after[:MOST_DRAWN], strict=False)
        found = [(one, other) for a, b in sides if (one := evidence(a)) and (other := evidence(b))]
        design = _design([tape(run) for run in before], [tape(run) for run in after])
        matched = [pair for one, other in found if (pair := on_one_tape(one, other))] if design != APART else []
        borne_out = bool(found) and len(matched) == len(found)
        return cls(matched, design) if borne_out else cls(found, APART)


def _design(before: list[Tape], after: list[Tape]) -> str:
    """`paired tapes` where each tape was run once a side, in the same order; the records have to bear it out."""
    if None in before or None in after:
        return APART
    if len({*before, *after}) == 1:
        return "one tape"
    return "paired tapes" if before == after and len({*before}) == len(before) else APART


Numbers = Sequence[Mapping[str, Quantity]]


def _sides(key: str, before: Numbers, after: Numbers, past: Numbers, requests: _Requests) -> Sides:
    one, other = ([each[key] for each in side] for side in (before, after))
    first = one[0]
    sides = Sides(
        key=key,
        title=_titled(first),
        unit=first.unit,
        direction=first.direction,
        before=tuple(each.value for each in one),
        after=tuple(each.value for each in other),
        pairs=requests.design == "paired tapes",
        history=stretches([each[key].value for each in past if key in each]),
    )
    made = noise(requests.pairs, first, sides.is_ratio, requests.design != APART)
    return replace(sides, noise=from_intervals(one, other, sides.is_ratio) if made is None else made)


def _titled(quantity: Quantity) -> str:
    return quantity.title if quantity.statistic is None else f"{quantity.title} {quantity.statistic}"


def stretches(values: Sequence[float]) -> tuple[tuple[float, ...], ...]:
    """A history, cut where it changed: how much runs differ is told by those of one regime."""
    return tuple(tuple(values[at] for at in part) for part in regimes(len(values), change_points(values)))
