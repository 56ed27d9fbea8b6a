"""The result of a check: `CheckResult`, with each measure and each step in its history."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from inferometer.judge.changes import MAX_P
from inferometer.judge.effect import Change, Status, change_from
from inferometer.record.schema import schema_of

Verdict = Literal["worse", "better", "same", "unclear", "invalid"]


@dataclass(frozen=True, slots=True)
class Step:
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
    since: Step | None = None  # it has been worse since then, this run with the others
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
    steps: tuple[Step, ...] = ()
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
        """Worse by this run alone, which nothing has confirmed: it may be a spike, the next run tells."""
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
    since = None if row.get("since") is None else msgspec.convert(row["since"], Step)
    baseline, left_out = (msgspec.convert(row.get(name, ()), tuple[str, ...]) for name in ("baseline", "left_out"))
    return Checked(change_from(row), row.get("class") == "alert", baseline, left_out, since, bool(row.get("drifts")))
