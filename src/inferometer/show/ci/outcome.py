"""`Outcome`: a run and its check for CI: the problems, their severity, and the resulting exit code."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from rich.console import Console
from rich.table import Table
from rich.text import Text

from inferometer.documents.document import JsonObject
from inferometer.errors import INVALID, UNREACHABLE
from inferometer.judge.check_result import Checked, CheckResult, cause_once
from inferometer.judge.limits import exit_code, never_reached
from inferometer.measure.values import Quantity, quantities
from inferometer.measure.verdict import LISTED_FIRST
from inferometer.record.encoding import document_of
from inferometer.record.files import schema_of
from inferometer.record.run import STATES, Run
from inferometer.record.sanitize import harmless
from inferometer.record.summary import Summary
from inferometer.show.about import about_of
from inferometer.show.console import emit, facts_table, plain_table
from inferometer.show.notify.news import other_failures
from inferometer.vocabulary import change_text, value_text

Level = Literal["error", "warning"]
_NUMBERS = re.compile(r"[0-9][0-9,.]*(?: ?(?:%|µs|ms|s|m|h)(?![a-z]))?")
WORST_FIRST = (3, 4, 1)  # exit codes: nothing answered, not a measurement, a limit failed or worse


@dataclass(frozen=True)
class Problem:
    level: Level
    code: int  # resulting exit code; 0 for a warning
    what: str  # a text that stays the same from run to run: "limit ttft p99 < 500ms", "worse"
    title: str
    text: str


@dataclass(frozen=True)
class CiOutcome:
    run: Run
    label: str  # name of the run among the others
    check: CheckResult | None = None  # None: it was not checked
    problems: tuple[Problem, ...] = ()
    parameters: JsonObject = field(default_factory=dict)  # of a case of an experiment

    @property
    def is_kept(self) -> bool:
        """A case of an experiment may fail before there is a run: it then has a name, but no id."""
        return bool(self.run.id)

    @property
    def verdict(self) -> str:
        return (self.run.status if self.is_kept else None) or self.run.state

    @cached_property
    def quantities(self) -> dict[str, Quantity]:
        return quantities(self.run.summary)

    @property
    def notes(self) -> list[str]:
        """What a check reports besides problems; why an invalid run is invalid is already a problem of the run."""
        if self.check is None or self.check.status == "invalid":
            return []
        return _sentences(self.check)[1]


@dataclass(frozen=True)
class ReportLine:
    """A problem in one line, with all runs that have it."""

    level: Level
    text: str
    outcomes: tuple[CiOutcome, ...]


@dataclass(frozen=True)
class CiReport:
    """Everything that one `inferometer ci` reports."""

    outcomes: tuple[CiOutcome, ...]
    title: str = "Inferometer"

    @property
    def problems(self) -> list[tuple[CiOutcome, Problem]]:
        return [(outcome, problem) for outcome in self.outcomes for problem in outcome.problems]

    @property
    def about(self) -> str:
        """The parts of model, engine, hardware, workload and load that all runs share."""
        abouts = [about_of(outcome.run) for outcome in self.outcomes if outcome.is_kept]
        facets = [(about.model, about.engine, about.hardware, about.workload, about.load) for about in abouts]
        shared = [texts[0] for texts in zip(*facets, strict=True) if len(set(texts)) == 1]
        return " · ".join(filter(None, shared))

    @property
    def lines(self) -> list[ReportLine]:
        """Each problem once; what changed at the same time is only in the first line that mentions it. Runs that are
        invalid for the same reason, each with its own numbers, share a line."""
        texts = cause_once([problem.text for _, problem in self.problems])
        findings: dict[tuple[Level, str], list[tuple[CiOutcome, str]]] = {}
        for (outcome, problem), text in zip(self.problems, texts, strict=True):
            cause = _NUMBERS.sub("", text) if problem.what in ("invalid", "doubtful") else text
            findings.setdefault((problem.level, cause), []).append((outcome, text))
        return [_report_line(level, members) for (level, _), members in findings.items()]

    @property
    def exit_code(self) -> int:
        codes = {problem.code for _, problem in self.problems}
        return next((code for code in WORST_FIRST if code in codes), 0)

    @property
    def status(self) -> str:
        """`fine`, or the worst status: worse, failed, invalid, unclear, doubtful."""
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
        """The document that `--json` prints; stable."""
        return {
            "schema": schema_of("ci"),
            "status": self.status,
            "worse": self.worse,
            "exit_code": self.exit_code,
            "runs": [_document(outcome) for outcome in self.outcomes],
        }


def _report_line(level: Level, members: Sequence[tuple[CiOutcome, str]]) -> ReportLine:
    first, text = members[0]
    alike = len({other for _, other in members}) == 1
    own = "" if alike else f" (The numbers are those of {first.label}.)"
    return ReportLine(level, f"{text}{own}", tuple(outcome for outcome, _ in members))


def outcome(
    run: Run,
    check: CheckResult | None = None,
    *,
    strict: bool = False,
    label: str | None = None,
    parameters: JsonObject | None = None,
) -> CiOutcome:
    problems = (*_of_failures(run), *_of_run(run), *_of_limits(run), *_of_check(check, strict))
    return CiOutcome(run, harmless(label or label_of(run)), check, problems, parameters or {})


def label_of(run: Run) -> str:
    return str(run.plan.name or "-".join(run.id.split("-")[2:]) or run.id)


def problems_of(run: Run) -> list[Problem]:
    """Problems of the run itself, independent of other runs."""
    return [*_of_run(run), *_of_limits(run)]


def _of_failures(run: Run) -> Iterator[Problem]:
    """Failures that are no reason for doubt: a few, or as many as a limit of the plan judges."""
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
        code = exit_code(run) or INVALID  # 1 if a limit is broken because of the target
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
    """The failures, then the first reason of the verdict; the others are only counted: `inferometer show` lists them
    all."""
    reasons = run.doubts
    if not reasons:
        return ""
    decisive = next((reason for reason in reasons if reason.status == run.status), reasons[0])
    leading = next((reason for reason in reasons if reason.code in LISTED_FIRST), decisive)
    named = list(dict.fromkeys([leading.sentence, decisive.sentence]))
    left = len(reasons) - len(named)
    more = f" ({left} more {'reason' if left == 1 else 'reasons'})" if left else ""
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
    """The problems, a sentence for each measure that is worse, and further notes."""
    texts = list(check.sentences)
    if check.status == "unclear":
        return texts, []
    if check.status != "worse":
        return [], texts
    count = len(check.with_status("worse")) or len(texts)
    return texts[:count] or ["It is worse."], texts[count:]


def _document(outcome: CiOutcome) -> JsonObject:
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


def headline_keys(outcomes: Sequence[CiOutcome], most: int = 8) -> list[str]:
    """The headline numbers of all runs together."""
    from inferometer.judge.compare import headline

    keys: dict[str, None] = {}
    for outcome in outcomes:
        known = outcome.quantities
        is_open = outcome.run.summary.loop in ("open", "mixed")
        keys |= dict.fromkeys(headline(known, known, is_open))
    return list(keys)[:most]


# -- other formats of it -----------------------------------------------------------------------------------------------

# JUnit XML, GitLab's metrics report, and plain text for a log.

JUnitCase = tuple[str, str, str]  # name, result ("" for passed), text


def junit(report: CiReport) -> str:
    root = Element("testsuites", name=harmless(report.title))
    for outcome in report.outcomes:
        cases = list(_cases(outcome))
        counts = {kind: sum(became == kind for _, became, _ in cases) for kind in ("failure", "error", "skipped")}
        totals = {"failures": counts["failure"], "errors": counts["error"], "skipped": counts["skipped"]}
        about = {name: str(number) for name, number in {"tests": len(cases), **totals}.items()}
        about |= {"name": harmless(outcome.label), "timestamp": outcome.run.started_at[:19], "time": _time(outcome)}
        suite = SubElement(root, "testsuite", about)
        for name, became, text in cases:
            _add(suite, outcome, name, became, text)
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _add(suite: Element, outcome: CiOutcome, name: str, became: str, text: str) -> None:
    time = _time(outcome) if name == "verdict" else "0"
    case = SubElement(suite, "testcase", name=harmless(name), classname=harmless(outcome.label), time=time)
    if became:
        about = {"message": harmless(text)} | ({} if became == "skipped" else {"type": became})
        SubElement(case, became, about).text = harmless(text)
    elif text:
        SubElement(case, "system-out").text = harmless(text)


def _time(outcome: CiOutcome) -> str:
    """Duration of the load in seconds, if there was one."""
    duration = outcome.run.summary.window.run_s
    return "0" if duration is None else f"{duration:.3f}"


def _cases(outcome: CiOutcome) -> Iterator[JUnitCase]:
    own = [entry for entry in outcome.problems if entry.code in (3, 4) and not entry.what.startswith("limit ")]
    doubts = [entry for entry in outcome.problems if entry.what == "doubtful"]
    yield "verdict", "error" if own else "", (own or doubts)[0].text if own or doubts else outcome.verdict
    for limit in outcome.run.summary.limits:
        became = "error" if limit.met is None else "" if limit.met else "failure"  # consistent with the exit code
        yield f"limit {limit.limit}", became, limit.text
    for problem in outcome.problems:
        if problem.what == "unclear":
            yield "check", "failure" if problem.level == "error" else "skipped", problem.text
    for measure in outcome.check.measures if outcome.check else ():
        if measure.alert:
            yield f"check {measure.change.key}", _JUNIT_RESULTS.get(measure.status, ""), _measure_text(measure)


_JUNIT_RESULTS = {"worse": "failure", "unclear": "skipped"}


def _measure_text(measure: Checked) -> str:
    change = measure.change
    before, after = (value_text(value, change.unit) for value in (change.before, change.after))
    text = change_text(change.change, change.relative, change.unit)
    return f"{change.title}: {before} before, {after} now, {text}: {measure.status}"


_UNITS = {"s": "seconds", "tokens/s": "tokens_per_second", "1/s": "per_second", "share": "ratio"}
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]+")
_LEFT_OUT = ("std", "min", "max")  # too noisy to compare


def metrics(report: CiReport) -> str:
    """All samples of a name are grouped; of runs with equal labels, the last one."""
    families: dict[str, dict[str, float]] = {}
    for outcome in report.outcomes:
        for quantity in outcome.quantities.values():
            if quantity.statistic not in _LEFT_OUT and math.isfinite(quantity.value):
                families.setdefault(_name(quantity), {})[_labels(outcome, quantity)] = quantity.value
    return "".join(f"{line}\n" for line in _lines(families))


def _lines(families: dict[str, dict[str, float]]) -> Iterator[str]:
    for name, samples in sorted(families.items()):
        yield f"# TYPE {name} gauge"
        yield from (f"{name}{labels} {value!r}" for labels, value in samples.items())
    yield "# EOF"


def _name(quantity: Quantity) -> str:
    unit, name = (
        _UNITS.get(quantity.unit, _NOT_IN_NAMES.sub("_", quantity.unit).strip("_")),
        _NOT_IN_NAMES.sub("_", quantity.name),
    )
    return f"inferometer_{name}" if not unit or name.endswith(f"_{unit}") else f"inferometer_{name}_{unit}"


def _labels(outcome: CiOutcome, quantity: Quantity) -> str:
    labels = {
        "plan": outcome.run.plan.name,
        "kind": outcome.run.kind,
        "model": outcome.run.subject.model,
        **{_NOT_IN_NAMES.sub("_", str(name)): value for name, value in outcome.parameters.items()},
        "statistic": quantity.statistic,
    }
    written = (f'{name}="{_escaped(str(value))}"' for name, value in labels.items() if value is not None)
    return f"{{{','.join(written)}}}"


def _escaped(value: str) -> str:
    """GitLab takes everything after a `#` as a comment, even inside quotes, and then refuses the whole file."""
    text = harmless(value).replace("#", "＃")
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


MOST_COLUMNS = 3  # numbers per run in a table: as many as fit into 80 columns
STYLES = {"fine": "bold green", "unclear": "yellow", "doubtful": "yellow"}


def print_report(report: CiReport, to: Console) -> None:
    runs = f"{len(report.outcomes)} run{'' if len(report.outcomes) == 1 else 's'}"
    emit(Text.assemble((report.status.upper(), STYLES.get(report.status, "bold red")), f"  {runs}"), to)
    if report.about:
        emit(Text(harmless(report.about)), to)
    to.print()
    if findings := _findings_table(report):
        emit(findings, to)
        to.print()
    for group in _alike([outcome for outcome in report.outcomes if outcome.run.summary != Summary()]):
        emit(_numbers(group), to)
        to.print()


def _alike(outcomes: Sequence[CiOutcome]) -> list[list[CiOutcome]]:
    """Groups runs with the same set of numbers into one table."""
    groups: dict[tuple[str, ...], list[CiOutcome]] = {}
    for outcome in outcomes:
        names = tuple(dict.fromkeys(key.partition(".")[0] for key in headline_keys([outcome])))
        groups.setdefault(names, []).append(outcome)
    return list(groups.values())


def _findings_table(report: CiReport) -> Table | None:
    """The problems, then the other lines of the checks."""
    table = facts_table(label=1, gap=1)
    for line in report.lines:
        mark = Text("✗", "bold red") if line.level == "error" else Text("•", "yellow")
        whose = f"{', '.join(outcome.label for outcome in line.outcomes)}: " if len(report.outcomes) > 1 else ""
        table.add_row(mark, harmless(f"{whose}{line.text}"))
    for outcome in report.outcomes:
        whose = f"{outcome.label}: " if len(report.outcomes) > 1 else ""
        mark = Text("✓", "green") if outcome.check and outcome.check.status in ("same", "better") else Text("•")
        for text in outcome.notes:
            table.add_row(mark, harmless(f"{whose}{text}"))
    return table if table.row_count else None


def _numbers(outcomes: Sequence[CiOutcome]) -> Table:
    """One run: a row per number. Several: a row per run, with the first few numbers."""
    keys = headline_keys(outcomes)
    if len(outcomes) == 1:
        table = plain_table("", outcomes[0].label, right=(outcomes[0].label,))
        for key in keys:
            table.add_row(_title(outcomes[0], key), _value(outcomes[0], key))
        return table
    titles = [
        _title(next(outcome for outcome in outcomes if key in outcome.quantities), key) for key in keys[:MOST_COLUMNS]
    ]
    table = plain_table("", *titles, "verdict", right=tuple(titles), wrap="", gap=1)
    for outcome in outcomes:
        table.add_row(outcome.label, *(_value(outcome, key) for key in keys[:MOST_COLUMNS]), outcome.verdict)
    return table


def _title(outcome: CiOutcome, key: str) -> str:
    quantity = outcome.quantities[key]
    return " ".join(filter(None, (quantity.title, quantity.statistic)))


def _value(outcome: CiOutcome, key: str) -> str:
    quantity = outcome.quantities.get(key)
    return "-" if quantity is None else quantity.text
