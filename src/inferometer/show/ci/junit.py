"""JUnit XML, which every CI shows: a suite per run, a case for its verdict, each limit and each measure checked."""

from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from inferometer.judge.wording import change_text
from inferometer.record.sanitize import harmless
from inferometer.show.ci.outcome import Outcome, Report
from inferometer.show.numbers import value_text

Case = tuple[str, str, str]  # name, what became of it ("" for passed), text


def junit(report: Report) -> str:
    root = Element("testsuites", name=harmless(report.title))
    for each in report.outcomes:
        cases = list(_cases(each))
        counts = {word: sum(became == word for _, became, _ in cases) for word in ("failure", "error", "skipped")}
        said = {"failures": counts["failure"], "errors": counts["error"], "skipped": counts["skipped"]}
        about = {name: str(number) for name, number in {"tests": len(cases), **said}.items()}
        about |= {"name": harmless(each.label), "timestamp": each.run.started_at[:19], "time": _time(each)}
        suite = SubElement(root, "testsuite", about)
        for name, became, text in cases:
            _add(suite, each, name, became, text)
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _add(suite: Element, each: Outcome, name: str, became: str, text: str) -> None:
    time = _time(each) if name == "verdict" else "0"
    case = SubElement(suite, "testcase", name=harmless(name), classname=harmless(each.label), time=time)
    if became:
        about = {"message": harmless(text)} | ({} if became == "skipped" else {"type": became})
        SubElement(case, became, about).text = harmless(text)
    elif text:
        SubElement(case, "system-out").text = harmless(text)


def _time(each: Outcome) -> str:
    """Seconds that the load took, where there was one."""
    duration = each.run.summary.window.run_s
    return "0" if duration is None else f"{duration:.3f}"


def _cases(each: Outcome) -> Iterator[Case]:
    own = [found for found in each.problems if found.code in (3, 4) and not found.what.startswith("limit ")]
    doubts = [found for found in each.problems if found.what == "doubtful"]
    yield "verdict", "error" if own else "", (own or doubts)[0].text if own or doubts else each.verdict
    for limit in each.run.summary.limits:
        became = "error" if limit.met is None else "" if limit.met else "failure"  # as the exit code says
        yield f"limit {limit.limit}", became, limit.text
    for problem in each.problems:
        if problem.what == "unclear":
            yield "check", "failure" if problem.level == "error" else "skipped", problem.text
    for found in (each.check or {}).get("measures", []):
        if found["class"] == "alert":
            yield f"check {found['key']}", _BECAME.get(found["word"], ""), _told(found)


_BECAME = {"worse": "failure", "unclear": "skipped"}


def _told(found: Mapping[str, Any]) -> str:
    before, after = (value_text(found[name], found["unit"]) for name in ("before", "after"))
    change = change_text(found["change"], found["relative"], found["unit"])
    return f"{found['title']}: {before} before, {after} now, {change}: {found['word']}"
