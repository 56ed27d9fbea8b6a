"""JUnit XML, which every CI shows: a suite per run, a case for its verdict, each limit and each measure checked."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from inferometer.judge.check_result import Checked
from inferometer.record.sanitize import harmless
from inferometer.show.ci.outcome import Outcome, Report
from inferometer.vocabulary import change_text, value_text

Case = tuple[str, str, str]  # name, what became of it ("" for passed), text


def junit(report: Report) -> str:
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
        became = "error" if limit.met is None else "" if limit.met else "failure"  # as the exit code says
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
