"""CI summaries of runs: safe for any names, and within the limits of the CI system."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import made_run
from msgspec import structs
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from inferometer.judge.check import check
from inferometer.plan.stored import StoredPlan
from inferometer.record.encoding import environment_from
from inferometer.record.environment import Environment
from inferometer.record.run import Run
from inferometer.record.sanitize import harmless
from inferometer.record.summary import LimitResult, Summary, Value
from inferometer.show.ci import github
from inferometer.show.ci.github import fitting, plain, summary
from inferometer.show.ci.outcome import CiReport, Problem, junit, metrics, outcome
from inferometer.show.notify import posting
from inferometer.show.notify.news import of_check, of_run
from inferometer.show.report.content import run_report
from lined_runs import environment_of, line_of, lined_run
from plain_data import at

HOSTILE = "<script>alert(1)</script>|`x`\n::error::no [a](http://x) @all\x00\x1b[31m #1 www.x.org \ud800\u202e"
NAME = HOSTILE.replace("\ud800", "")  # a plan refuses what is no text; results of other tools may have it


@pytest.fixture
def worse():
    history = line_of([20.0, 20.1, 19.9, 20.05, 19.95, 20.1, 20.0, 19.9])
    run = lined_run(9, 24.0)
    return outcome(run, check(history, run))


def hostile():
    run = made_run(limits=["ttft p99 < 1ms"], name=NAME)
    return outcome(replace(run, environment=environment_from({"target": {"model": HOSTILE}})), label=HOSTILE)


def test_a_worse_run_is_said_to_be_worse(worse):
    report = CiReport((worse,))
    text = summary(report)
    assert text.startswith("## 📉 Inferometer: worse\n")
    assert "TPOT mean is 20" in text and "### Against history" in text
    assert "🔴 worse" in text
    assert (report.exit_code, report.status, report.worse) == (1, "worse", True)


def test_a_summary_has_a_line_per_finding_the_cause_once_and_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEROMETER_PAGES_URL", "https://perf.example.org/")
    history = line_of([20.0, 20.1, 19.9, 20.05, 19.95, 20.1, 20.0, 19.9])
    runs = {
        name: lined_run(9, after, environment_of(commit="b" * 40)) for name, after in (("chat", 24.0), ("code", 25.0))
    }
    checks = {name: check(history, run) for name, run in runs.items()}
    report = CiReport(tuple(outcome(run, checks[name], label=name) for name, run in runs.items()))
    head, _, _ = summary(report).partition("\n\n|")
    lines = [line for line in head.splitlines() if line.startswith("- ")]
    assert [line.count("worse") for line in lines] == [1, 1, 1, 1] and head.count("changed at the same time") == 1
    assert "m · vLLM 0.24.0 · x · 256 in, 64 out · 8 in flight" in head  # hardware and workload
    assert all("](https://perf.example.org/run.html?id=" in line for line in lines)
    told = of_check(runs["chat"], checks["chat"])
    assert told is not None and len(told.event.sentences) == 2
    assert sum("changed at the same time" in text for text in told.event.sentences) == 1
    assert {"hardware", "workload"} <= set(told.event.facts)
    assert "|page>" in json.dumps(posting.slack_message(told.event)) and '"page"' in json.dumps(
        posting.teams_message(told.event)
    )


def test_exit_codes_follow_the_worst() -> None:
    fine, limited = outcome(made_run()), outcome(made_run(limits=["ttft p99 < 1ms"]))
    invalid = outcome(lined_run(1, 20.0, verdict="invalid"))
    nothing = outcome(replace(lined_run(1, 20.0), summary=Summary(), state="failed"))
    codes = [CiReport(each).exit_code for each in ((fine,), (fine, limited), (limited, invalid), (invalid, nothing))]
    assert codes == [0, 1, 4, 3]
    assert CiReport((nothing,)).status == "failed"


def test_why_a_run_is_invalid_is_named_once_with_what_to_do() -> None:
    run = made_run(failed=0.5)
    assert run.status == "invalid" and run.verdict is not None
    text = summary(CiReport((outcome(run, check([], run)),)))
    assert text.count(plain(run.verdict.doubts[0].text)) == text.count(plain(run.verdict.doubts[0].sentence)) == 1, text


def test_unclear_is_a_warning_unless_strict() -> None:
    run = lined_run(1, 20.0)
    result = check([], run)
    assert CiReport((outcome(run, result),)).exit_code == 0
    strict = CiReport((outcome(run, result, strict=True),))
    assert (strict.exit_code, strict.status) == (4, "unclear")  # as `check --strict`


def test_names_are_shown_as_names() -> None:
    text = summary(CiReport((hostile(),), title=HOSTILE))
    assert "<script" not in text and "@all" not in text and not re.search(r"(?<!\\)\]\(", text)
    assert not re.search("[\x00\x1b\ud800\u202e]|www\\.", text)
    for row in (line for line in text.splitlines() if line.startswith("|")):
        assert len(re.findall(r"(?<!\\)\|", row)) in (3, 6), row


def test_names_of_parameters_and_of_measures_are_names_too() -> None:
    """Both are columns where there are several runs."""
    run = made_run()
    own = replace(
        run, kind="serving", summary=structs.replace(run.summary, values={"x": Value(value=1.0, title=HOSTILE)})
    )
    text = summary(CiReport(tuple(outcome(own, label=name, parameters={HOSTILE: HOSTILE}) for name in "ab")))
    assert "<script" not in text and "@all" not in text
    lines = text.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("| run "))
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines[at : at + 4]}) == 1


@pytest.mark.parametrize("write", [summary, junit, metrics, lambda report: "".join(github.annotations(report))])
def test_everything_can_be_written(write):
    assert write(CiReport((hostile(),), HOSTILE)).encode()


@given(st.text())
def test_text_stays_text(text):
    shown = plain(text)
    assert "\n" not in shown and "<" not in shown and "@" not in shown
    assert not re.search(r"(?<!\\)[|*`\[]", shown.replace("\\\\", ""))


def test_a_summary_is_never_larger_than_github_takes() -> None:
    each = outcome(made_run())
    report = CiReport(tuple(replace(each, label=f"case {at}") for at in range(300)))
    text = summary(report)
    assert len(text.encode()) <= 1_000_000
    assert len(summary(report, 20_000).encode()) <= 20_000


@given(st.lists(st.text(max_size=50)), st.integers(100, 400))
def test_parts_fit_whole_or_not_at_all(parts, room):
    text = fitting(parts, room)
    assert len(text.encode()) <= room
    if len("".join(parts).encode()) <= room - 100:
        assert text == "".join(parts)


def test_the_longest_of_texts_leave_room_for_what_matters() -> None:
    each = outcome(made_run(), label="x&" * 100_000)
    problem = Problem("error", 1, "worse", "worse", "@" * 3_000_000)
    text = summary(CiReport((replace(each, problems=(problem,) * 60),) * 2, title="t" * 3_000_000))
    assert text.startswith("## 📉 ttt") and "\n- ❌ " in text and len(text.encode()) <= 1_000_000


def test_where_there_is_no_room_nothing_is_written(tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    file.write_text("x" * 1_048_570)
    github.write_summary(CiReport((outcome(made_run()),)), file)
    assert file.stat().st_size == 1_048_570


def test_the_room_that_others_used_is_not_used_again(tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    file.write_text("x" * 999_500)
    github.write_summary(CiReport((outcome(made_run()),)), file)
    assert file.stat().st_size <= 1_000_000


def test_outputs_are_a_line_each(tmp_path: Path, worse):
    file = tmp_path / "out"
    github.write_outputs(CiReport((worse,)), file)
    said = dict(line.split("=", 1) for line in file.read_text().splitlines())
    assert said["worse"] == "true" and said["ok"] == "false" and said["status"] == "worse"
    assert float(said["tpot_mean"]) == json.loads(said["measures"])[worse.run.id]["tpot.mean"] == 0.024
    assert said["run"] == said["runs"] == worse.run.id


def test_outputs_of_very_many_runs_are_the_first_numbers_of_each() -> None:
    each = outcome(made_run())
    said = github.outputs(CiReport(tuple(replace(each, run=replace(each.run, id=f"r{at}")) for at in range(600))))
    assert len(said["measures"]) <= 900_000
    measures = json.loads(said["measures"])
    assert len(measures) == 600 and 0 < len(measures["r0"]) < len(each.quantities)


def test_a_case_without_a_run_has_no_id() -> None:
    failed = outcome(Run("", "2026", StoredPlan({}), Environment(), Summary(), state="failed"), label="b")
    report = CiReport((outcome(made_run()), failed))
    assert github.outputs(report)["runs"] == made_run().id and github.outputs(report)["ok"] == "false"
    assert [row["run"] for row in at(report.document(), "runs")] == [made_run().id, None]


def test_annotations_hold_what_they_say() -> None:
    lines = list(github.annotations(CiReport((hostile(),))))
    assert lines and all("\n" not in line and re.match(r"::(error|warning) title=[^:]*::", line) for line in lines)
    many = CiReport(tuple([hostile()] * 30))
    assert sum(line.startswith("::error") for line in github.annotations(many)) == github.MOST_ANNOTATIONS


def test_the_log_cannot_command_github() -> None:
    lines = github.guarded("::set-output name=x::y\n").splitlines()
    word = lines[0].removeprefix("::stop-commands::")
    assert lines[1:] == ["::set-output name=x::y", f"::{word}::"] and len(word) == 32


def test_junit_is_xml_and_counts(worse):
    root = ElementTree.fromstring(junit(CiReport((worse, hostile()), HOSTILE)))
    suites = root.findall("testsuite")
    assert len(suites) == 2
    assert float(suites[1].get("time")) == pytest.approx(hostile().run.summary.window.run_s, abs=0.001)
    failed = [case.get("name") for case in suites[0].iter("testcase") if case.find("failure") is not None]
    assert "check tpot.mean" in failed and suites[0].get("failures") == str(len(failed))
    assert [case.get("name") for case in suites[1] if case.find("failure") is not None] == ["limit ttft p99 < 1ms"]


def test_junit_fails_where_the_command_does() -> None:
    run = lined_run(1, 20.0)
    limit = LimitResult(limit="ttft p99 < 1s", value=None, met=None, text="ttft p99 < 1s: cannot be told")
    untold = outcome(replace(run, summary=structs.replace(run.summary, limits=[limit])))
    unclear = [outcome(run, check([], run), strict=strict) for strict in (False, True)]
    for each in (untold, *unclear):
        suite = ElementTree.fromstring(junit(CiReport((each,)))).find("testsuite")
        failed = int(suite.get("failures")) + int(suite.get("errors"))
        assert bool(failed) == bool(CiReport((each,)).exit_code)


def test_gitlab_metrics_have_no_comment_in_them() -> None:
    """Its parser cuts a line at the first #, also inside quotes."""
    lines = metrics(CiReport((hostile(),))).splitlines()
    assert all("#" not in line for line in lines if not line.startswith("# "))


def test_gitlab_metrics_are_openmetrics_that_stay_the_same() -> None:
    text = metrics(CiReport((hostile(),)))
    families = {family.name: family for family in text_string_to_metric_families(text)}
    ttft = {sample.labels["statistic"]: sample for sample in families["inferometer_ttft_seconds"].samples}
    assert ttft["p50"].labels["plan"] == harmless(NAME).replace("#", "＃") and 0 < ttft["p50"].value < 1
    assert made_run().id not in text


def test_runs_that_are_invalid_for_one_reason_are_one_line() -> None:
    """Each has numbers of its own; a sweep of ten cases would say the same ten times."""
    failed = [outcome(made_run(failed=share), label=f"c{at}") for at, share in enumerate((0.2, 0.3, 0.4))]
    assert len({each.problems[0].text for each in failed}) == 3
    report = CiReport((*failed, outcome(made_run(failed=1 / 250), label="few")))
    line, few = report.lines
    assert [each.label for each in line.outcomes] == ["c0", "c1", "c2"] and few.outcomes[0].label == "few"
    assert "20% of requests failed" in line.text and line.text.endswith("(The numbers are those of c0.)")
    text = summary(report)
    assert text.count("first error: 429") == 2 and "**c0, c1, c2**: Not valid as a measurement." in text


def test_settings_that_vary_together_are_one_column() -> None:
    run = replace(made_run(), kind="serving")
    settings = [{"case": name, "name": name, "load.rate": rate} for name in "ab" for rate in (1, 2)]
    text = summary(CiReport(tuple(outcome(run, label=f"c{at}", parameters=own) for at, own in enumerate(settings))))
    assert "| run | case | rate | " in text


def test_what_failed_stands_first() -> None:
    """Share, outcome and first message, whether or not it is a reason for doubt."""
    few = outcome(made_run(failed=1 / 250))
    assert few.run.status == "valid" and CiReport((few,)).exit_code == 0
    assert (
        few.problems[0].text == "0.4% of requests failed (2 of 500): 2 × HTTP 429; first error: 429 Too Many Requests."
    )
    judging = outcome(made_run(failed=0.2, limits=["failure_rate < 5%"]))
    assert judging.problems[0].text.startswith("20% of requests failed (100 of 500): 100 × HTTP 429; first error: 429")
    many = outcome(made_run(failed=0.2))
    assert "20% of requests failed (100 of 500)" in many.problems[0].text and many.problems[0].level == "error"
    for each in (few, judging, many):
        first = next(line for line in summary(CiReport((each,))).splitlines() if line.startswith("- "))
        assert "of requests failed" in first and "429 Too Many Requests" in first
        judged = run_report(each.run).verdict
        assert "of requests failed" in next(filter(None, (*judged.reasons, judged.text)))
    told = of_run(judging.run, [(each.what, each.text) for each in judging.problems if each.level == "error"])
    assert told.event.sentences[0].startswith("20% of requests failed")
