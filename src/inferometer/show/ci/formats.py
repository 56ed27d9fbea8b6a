"""JUnit XML, GitLab's metrics report, and plain text for a log."""

import math
import re
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from rich.console import Console
from rich.table import Table
from rich.text import Text

from inferometer.judge.check_result import Checked
from inferometer.measure.values import Quantity
from inferometer.record.sanitize import harmless
from inferometer.record.summary import Summary
from inferometer.show.ci.outcome import CiReport, Outcome, headline_keys
from inferometer.show.console import emit, facts_table, plain_table
from inferometer.vocabulary import change_text, value_text

Case = tuple[str, str, str]  # name, what became of it ("" for passed), text


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


def _add(suite: Element, outcome: Outcome, name: str, became: str, text: str) -> None:
    time = _time(outcome) if name == "verdict" else "0"
    case = SubElement(suite, "testcase", name=harmless(name), classname=harmless(outcome.label), time=time)
    if became:
        about = {"message": harmless(text)} | ({} if became == "skipped" else {"type": became})
        SubElement(case, became, about).text = harmless(text)
    elif text:
        SubElement(case, "system-out").text = harmless(text)


def _time(outcome: Outcome) -> str:
    """Seconds that the load took, where there was one."""
    duration = outcome.run.summary.window.run_s
    return "0" if duration is None else f"{duration:.3f}"


def _cases(outcome: Outcome) -> Iterator[Case]:
    own = [entry for entry in outcome.problems if entry.code in (3, 4) and not entry.what.startswith("limit ")]
    doubts = [entry for entry in outcome.problems if entry.what == "doubtful"]
    yield "verdict", "error" if own else "", (own or doubts)[0].text if own or doubts else outcome.verdict
    for limit in outcome.run.summary.limits:
        became = "error" if limit.met is None else "" if limit.met else "failure"  # as the exit code has it
        yield f"limit {limit.limit}", became, limit.text
    for problem in outcome.problems:
        if problem.what == "unclear":
            yield "check", "failure" if problem.level == "error" else "skipped", problem.text
    for measure in outcome.check.measures if outcome.check else ():
        if measure.alert:
            yield f"check {measure.change.key}", _BECAME.get(measure.status, ""), _measure_text(measure)


_BECAME = {"worse": "failure", "unclear": "skipped"}


def _measure_text(measure: Checked) -> str:
    change = measure.change
    before, after = (value_text(value, change.unit) for value in (change.before, change.after))
    text = change_text(change.change, change.relative, change.unit)
    return f"{change.title}: {before} before, {after} now, {text}: {measure.status}"


_UNITS = {"s": "seconds", "tokens/s": "tokens_per_second", "1/s": "per_second", "share": "ratio"}
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]+")
_LEFT_OUT = ("std", "min", "max")  # too noisy to be read as a change


def metrics(report: CiReport) -> str:
    """All samples of a name are together; of runs with equal labels, the last."""
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


def _labels(outcome: Outcome, quantity: Quantity) -> str:
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
    """GitLab takes everything after a `#` for a comment, also inside quotes, and then refuses the whole file."""
    text = harmless(value).replace("#", "＃")
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


MOST_COLUMNS = 3  # numbers of a run among others: what 80 characters hold
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


def _alike(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """Runs that have the same numbers stand in one table."""
    groups: dict[tuple[str, ...], list[Outcome]] = {}
    for outcome in outcomes:
        names = tuple(dict.fromkeys(key.partition(".")[0] for key in headline_keys([outcome])))
        groups.setdefault(names, []).append(outcome)
    return list(groups.values())


def _findings_table(report: CiReport) -> Table | None:
    """What is wrong, then the other lines of the checks."""
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


def _numbers(outcomes: Sequence[Outcome]) -> Table:
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


def _title(outcome: Outcome, key: str) -> str:
    quantity = outcome.quantities[key]
    return " ".join(filter(None, (quantity.title, quantity.statistic)))


def _value(outcome: Outcome, key: str) -> str:
    quantity = outcome.quantities.get(key)
    return "-" if quantity is None else quantity.text
