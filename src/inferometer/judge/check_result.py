"""The result of a check: `CheckResult`, with each measure and each step in its history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import structs

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.judge.changes import MAX_P
from inferometer.judge.effect import Change, ChangeStatus
from inferometer.judge.identity import axes_text, identity
from inferometer.record.encoding import converted, result_document
from inferometer.record.run import Run
from inferometer.vocabulary import change_size_text, value_text

CheckStatus = Literal["worse", "better", "same", "unclear", "invalid"]


class HistoryStep(msgspec.Struct, frozen=True):
    """A change in the history of a measure, with the first run after it."""

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


@dataclass(frozen=True, slots=True)
class Checked:
    """One measure: how this run differs from its baseline, and whether that difference matters."""

    change: Change
    alert: bool
    baseline: tuple[str, ...]
    left_out: tuple[str, ...]
    since: HistoryStep | None = None  # it has been worse since then, in all runs up to this one
    drifts: bool = False

    @property
    def status(self) -> ChangeStatus:
        return "worse" if self.since is not None else self.change.status

    def document(self) -> "CheckedDocument":
        change = {**structs.asdict(self.change), "status": self.status}
        return CheckedDocument(
            **change,
            class_="alert" if self.alert else "observe",
            baseline=self.baseline,
            left_out=self.left_out,
            since=self.since,
            drifts=self.drifts,
        )


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What CI needs: the status, sentences for people, and every measure for programs."""

    run: str
    against: str
    status: CheckStatus
    sentences: tuple[str, ...]
    measures: tuple[Checked, ...] = ()
    steps: tuple[HistoryStep, ...] = ()
    warnings: tuple[str, ...] = ()
    history: int = 0
    confirmed: bool | None = None  # by a second run; None: there was no second run
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
        """Worse in this run alone, and not confirmed: it may be a spike, which the next run will show."""
        return self.confirmed is None and any(measure.since is None for measure in self.with_status("worse"))

    def with_status(self, status: str, *, alert: bool = True) -> list[Checked]:
        return [measure for measure in self.measures if measure.status == status and measure.alert == alert]

    def document(self) -> JsonObject:
        """The document that `--json` prints; stable."""
        return result_document("check", self._as_printed())

    def _as_printed(self) -> "CheckDocument":
        return CheckDocument(
            run=self.run,
            against=self.against,
            status=self.status,
            history=self.history,
            confirmed=self.confirmed,
            confirmed_by=self.confirmed_by,
            p_value=self.p_value,
            sentences=self.sentences,
            warnings=self.warnings,
            alone=self.is_alone,
            axes=dict(self.axes),
            measures=[measure.document() for measure in self.measures],
            steps=list(self.steps),
        )


class CheckedDocument(Change, frozen=True, kw_only=True):
    """A measure as `--json` prints it: its change, with the status that follows from its history."""

    class_: Literal["alert", "observe"] = msgspec.field(default="observe", name="class")
    baseline: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    since: HistoryStep | None = None
    drifts: bool = False

    def checked(self) -> Checked:
        change = Change(**{name: getattr(self, name) for name in Change.__struct_fields__})
        return Checked(change, self.class_ == "alert", self.baseline, self.left_out, self.since, self.drifts)


class CheckDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A check as `--json` prints it; stable."""

    run: str
    against: str = ""
    status: CheckStatus
    history: int = 0
    confirmed: bool | None = None
    confirmed_by: str | None = None
    p_value: float = MAX_P
    sentences: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    alone: bool = False
    axes: dict[str, str | None] = {}
    measures: list[CheckedDocument] = []
    steps: list[HistoryStep] = []

    def result(self) -> CheckResult:
        return CheckResult(
            run=self.run,
            against=self.against,
            status=self.status,
            sentences=self.sentences,
            measures=tuple(measure.checked() for measure in self.measures),
            steps=tuple(self.steps),
            warnings=self.warnings,
            history=self.history,
            confirmed=self.confirmed,
            confirmed_by=self.confirmed_by,
            p_value=self.p_value,
            axes=self.axes,
        )


def check_from(document: JsonValue) -> CheckResult:
    """A check as `--json` printed it, converted to the present names. Raises `msgspec.ValidationError` if a field has a
    wrong type."""
    return converted(document, CheckDocument).result()


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

LARGE = 0.5  # a change that is obvious to everyone


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
    """Names what changed at the same time only in the first sentence that mentions it."""
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
    """What changed, when, by how much, and what else changed then."""
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
