"""`Outcome`: a run and its check as CI sees them: what is wrong, how bad that is, and the exit code it means."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from inferometer.documents.document import JsonObject
from inferometer.errors import INVALID, UNREACHABLE
from inferometer.judge.check_result import CheckResult, cause_once
from inferometer.judge.limits import exit_code, never_reached
from inferometer.measure.values import Quantity, quantities
from inferometer.measure.verdict import LEADING
from inferometer.record.encoding import document_of
from inferometer.record.files import schema_of
from inferometer.record.run import STATES, Run
from inferometer.record.sanitize import harmless
from inferometer.record.summary import Summary
from inferometer.show.about import about_of
from inferometer.show.notify.findings import other_failures

Level = Literal["error", "warning"]
WORST_FIRST = (3, 4, 1)  # exit codes: nothing answered, not a measurement, a limit failed or worse


@dataclass(frozen=True)
class Problem:
    level: Level
    code: int  # the exit code it means; 0 for a warning
    what: str  # a word that stays the same from run to run: "limit ttft p99 < 500ms", "worse"
    title: str
    text: str


@dataclass(frozen=True)
class Outcome:
    run: Run
    label: str  # the run's name among others
    check: CheckResult | None = None  # None: it was not checked
    problems: tuple[Problem, ...] = ()
    parameters: JsonObject = field(default_factory=dict)  # of a case of an experiment

    @property
    def is_kept(self) -> bool:
        """A case of an experiment may have failed before there was a run: it has a name, and no id."""
        return bool(self.run.id)

    @property
    def verdict(self) -> str:
        return (self.run.status if self.is_kept else None) or self.run.state

    @cached_property
    def quantities(self) -> dict[str, Quantity]:
        return quantities(self.run.summary)

    @property
    def notes(self) -> list[str]:
        """What a check reports besides what is wrong."""
        return _sentences(self.check)[1] if self.check else []


@dataclass(frozen=True)
class ReportLine:
    """A problem in a line, and all the runs that have it."""

    level: Level
    text: str
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True)
class CiReport:
    """All that one `inferometer ci` is about."""

    outcomes: tuple[Outcome, ...]
    title: str = "Inferometer"

    @property
    def problems(self) -> list[tuple[Outcome, Problem]]:
        return [(outcome, problem) for outcome in self.outcomes for problem in outcome.problems]

    @property
    def about(self) -> str:
        """What all runs share of model, engine, hardware, workload and load."""
        abouts = [about_of(outcome.run) for outcome in self.outcomes if outcome.is_kept]
        facets = [(about.model, about.engine, about.hardware, about.workload, about.load) for about in abouts]
        shared = [texts[0] for texts in zip(*facets, strict=True) if len(set(texts)) == 1]
        return " · ".join(filter(None, shared))

    @property
    def lines(self) -> list[ReportLine]:
        """Each once, and what changed at the same time in the first line that has it."""
        texts = cause_once([problem.text for _, problem in self.problems])
        runs: dict[tuple[Level, str], list[Outcome]] = {}
        for (outcome, problem), text in zip(self.problems, texts, strict=True):
            runs.setdefault((problem.level, text), []).append(outcome)
        return [ReportLine(level, text, tuple(outcomes)) for (level, text), outcomes in runs.items()]

    @property
    def exit_code(self) -> int:
        codes = {problem.code for _, problem in self.problems}
        return next((code for code in WORST_FIRST if code in codes), 0)

    @property
    def status(self) -> str:
        """`fine`, or what is worst: worse, failed, invalid, unclear, doubtful."""
        whats = {problem.what for _, problem in self.problems}
        if self.exit_code == 0:
            return next((status for status in ("unclear", "doubtful") if status in whats), "fine")
        if self.exit_code == INVALID:
            return (
                "unclear"
                if all(problem.what == "unclear" for _, problem in self.problems if problem.code)
                else "invalid"
            )
        return "worse" if self.exit_code == 1 and "worse" in whats else "failed"

    @property
    def worse(self) -> bool:
        return any(problem.what == "worse" for _, problem in self.problems)

    def document(self) -> JsonObject:
        """As `--json` prints it; stable."""
        return {
            "schema": schema_of("ci"),
            "status": self.status,
            "worse": self.worse,
            "exit_code": self.exit_code,
            "runs": [_document(outcome) for outcome in self.outcomes],
        }


def outcome(
    run: Run,
    check: CheckResult | None = None,
    *,
    strict: bool = False,
    label: str | None = None,
    parameters: JsonObject | None = None,
) -> Outcome:
    problems = (*_of_failures(run), *_of_run(run), *_of_limits(run), *_of_check(check, strict))
    return Outcome(run, harmless(label or label_of(run)), check, problems, parameters or {})


def label_of(run: Run) -> str:
    return str(run.plan.name or "-".join(run.id.split("-")[2:]) or run.id)


def problems_of(run: Run) -> list[Problem]:
    """Of the run itself, whatever others were."""
    return [*_of_run(run), *_of_limits(run)]


def _of_failures(run: Run) -> Iterator[Problem]:
    """What failed, where it is no reason for doubt: a few, or as many as a limit of the plan judges."""
    if text := other_failures(run):
        yield Problem("warning", 0, "failed requests", "failed requests", f"{text}.")


def _of_run(run: Run) -> Iterator[Problem]:
    if run.summary == Summary() and run.kind != "benchmark":
        yield Problem("error", 3, "no result", "no result", f"No numbers: it {_ended(run)}. {_reasons(run)}".strip())
    elif never_reached(run.summary.outcomes):
        yield Problem(
            "error", UNREACHABLE, "no answer", "no answer", f"No request was answered. {_reasons(run)}".strip()
        )
    elif run.status == "invalid":
        code = exit_code(run) or INVALID  # 1 where a limit is broken by what the target did
        yield Problem("error", code, "invalid", "not valid", f"Not valid as a measurement. {_reasons(run)}".strip())
    elif run.state == "failed":
        yield Problem("error", INVALID, "failed", "failed", f"It {_ended(run)}. {_reasons(run)}".strip())
    elif run.status == "doubtful":
        yield Problem("warning", 0, "doubtful", "doubtful", f"Doubtful as a measurement. {_reasons(run)}".strip())
    elif run.state != "complete":
        yield Problem("warning", 0, run.state, run.state, f"It {_ended(run)}.")


def _ended(run: Run) -> str:
    text = STATES[run.state]
    return f"is {text}" if run.state == "partial" else text


def _reasons(run: Run) -> str:
    """What failed, then the first that made the verdict what it is; the others are counted: `inferometer show` has
    them all."""
    reasons = run.doubts
    if not reasons:
        return ""
    decisive = next((reason for reason in reasons if reason.status == run.status), reasons[0])
    leading = next((reason for reason in reasons if reason.code in LEADING), decisive)
    named = list(dict.fromkeys([leading.text, decisive.text]))
    more = f" ({len(reasons) - len(named)} more)" if len(reasons) > len(named) else ""
    return f"{' '.join(named)}{more}"


def _of_limits(run: Run) -> Iterator[Problem]:
    for limit in run.summary.limits:
        what = f"limit {limit.limit}"
        if limit.met is False:
            yield Problem("error", 1, what, "a limit failed", f"{limit.text}.")
        elif limit.met is None:
            yield Problem("error", 4, what, "a limit is undecided", f"{limit.text}.")


def _of_check(check: CheckResult | None, strict: bool) -> Iterator[Problem]:
    if check is None:
        return
    findings, _ = _sentences(check)
    if check.status == "worse":
        yield from (Problem("error", 1, "worse", "worse", text) for text in findings)
    elif check.status == "unclear":
        level: Level = "error" if strict else "warning"
        why = " ".join(findings) or "Unclear whether it is worse."
        yield Problem(level, INVALID if strict else 0, "unclear", "unclear", why)


def _sentences(check: CheckResult) -> tuple[list[str], list[str]]:
    """What is wrong, a sentence for each measure that is worse, and further notes."""
    texts = list(check.sentences)
    if check.status == "unclear":
        return texts, []
    if check.status != "worse":
        return [], texts
    count = len(check.with_status("worse")) or len(texts)
    return texts[:count] or ["It is worse."], texts[count:]


def _document(outcome: Outcome) -> JsonObject:
    return {
        "run": outcome.run.id or None,
        "label": outcome.label,
        "kind": outcome.run.kind,
        "verdict": outcome.verdict,
        "parameters": dict(outcome.parameters),
        "problems": [
            {"level": problem.level, "what": problem.what, "title": problem.title, "text": problem.text}
            for problem in outcome.problems
        ],
        "measures": {key: quantity.value for key, quantity in outcome.quantities.items()},
        "limits": document_of(outcome.run.summary.limits),
        "check": None if outcome.check is None else outcome.check.document(),
    }


def headline_keys(outcomes: Sequence[Outcome], most: int = 8) -> list[str]:
    """The numbers that people look at first, of all the runs together."""
    from inferometer.judge.compare import headline

    keys: dict[str, None] = {}
    for outcome in outcomes:
        known = outcome.quantities
        is_open = outcome.run.summary.loop in ("open", "mixed")
        keys |= dict.fromkeys(headline(known, known, is_open))
    return list(keys)[:most]
