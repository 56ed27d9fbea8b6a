"""The result of a check: `CheckResult`, with each measure and each step in its history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import msgspec

from inferometer.judge.changes import MAX_P
from inferometer.judge.effect import Change, Status, change_from
from inferometer.judge.identity import axes_text, identity
from inferometer.record.files import schema_of
from inferometer.record.run import Run
from inferometer.vocabulary import change_size_text, value_text

Verdict = Literal["worse", "better", "same", "unclear", "invalid"]


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """A change in the history of a measure, with the run that it began with."""

    key: str
    title: str
    status: str  # "worse", "better" or "changed"
    run: str
    at: str
    before: float
    after: float
    change: float | None
    p: float
    accepted: bool
    came_with: str | None

    def document(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Checked:
    """One measure: how this run differs from its baseline, and whether that matters."""

    change: Change
    alert: bool
    baseline: tuple[str, ...]
    left_out: tuple[str, ...]
    since: HistoryStep | None = None  # it has been worse since then, this run with the others
    drifts: bool = False

    @property
    def status(self) -> Status:
        return "worse" if self.since is not None else self.change.status

    def document(self) -> dict[str, Any]:
        return {
            **self.change.document(),
            "status": self.status,
            "class": "alert" if self.alert else "observe",
            "baseline": list(self.baseline),
            "left_out": list(self.left_out),
            "since": None if self.since is None else self.since.document(),
            "drifts": self.drifts,
        }


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What CI needs: the word, sentences for people, and every measure for programs."""

    run: str
    against: str
    status: Verdict
    sentences: tuple[str, ...]
    measures: tuple[Checked, ...] = ()
    steps: tuple[HistoryStep, ...] = ()
    warnings: tuple[str, ...] = ()
    history: int = 0
    confirmed: bool | None = None  # by a second run; None: there was none
    confirmed_by: str | None = None
    p_value: float = MAX_P
    axes: Mapping[str, str | None] = field(default_factory=dict)

    def exit_code(self, strict: bool = False) -> int:
        """0 fine, 1 worse, 4 the run is not valid as a measurement, or with `strict` it is unclear."""
        if self.status == "invalid" or (strict and self.status == "unclear"):
            return 4
        return 1 if self.status == "worse" else 0

    @property
    def is_alone(self) -> bool:
        """Worse by this run alone, which nothing has confirmed: it may be a spike, the next run will show."""
        return self.confirmed is None and any(measure.since is None for measure in self.with_status("worse"))

    def with_status(self, status: str, *, alert: bool = True) -> list[Checked]:
        return [measure for measure in self.measures if measure.status == status and measure.alert == alert]

    def document(self) -> dict[str, Any]:
        """As `--json` prints it; stable."""
        plain = ("run", "against", "status", "history", "confirmed", "confirmed_by", "p_value")
        return {
            "schema": schema_of("check"),
            **{name: getattr(self, name) for name in plain},
            "sentences": list(self.sentences),
            "warnings": list(self.warnings),
            "alone": self.is_alone,
            "axes": dict(self.axes),
            "measures": [measure.document() for measure in self.measures],
            "steps": [step.document() for step in self.steps],
        }


def check_from(document: Mapping[str, Any]) -> CheckResult:
    """A check as `document` wrote it, under the present names. Raises `msgspec.ValidationError` where a field has a
    wrong type."""
    own = {name: document[name] for name in CheckResult.__dataclass_fields__ if name in document}
    measures = [_checked_from(row) for row in msgspec.convert(document.get("measures", []), list[dict[str, Any]])]
    return msgspec.convert(
        {"against": "", "sentences": (), **own, "measures": measures}, CheckResult, from_attributes=True
    )


def _checked_from(row: Mapping[str, Any]) -> Checked:
    since = None if row.get("since") is None else msgspec.convert(row["since"], HistoryStep)
    baseline, left_out = (msgspec.convert(row.get(name, ()), tuple[str, ...]) for name in ("baseline", "left_out"))
    return Checked(change_from(row), row.get("class") == "alert", baseline, left_out, since, bool(row.get("drifts")))


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
    if run.environment.known_target.is_predicted:
        texts.append(f"the run is of {run.subject.engine_text}: nothing was measured")
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
