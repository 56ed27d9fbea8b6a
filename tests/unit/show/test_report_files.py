"""Reports: the verdict first, self-contained, small, safe; for any run, in every format."""

import csv
import io
import re
import zipfile
from dataclasses import replace
from html import unescape as html_text
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import structs

from charted_runs import charted_run, samples_of
from inferometer.errors import MissingExtra, PlanError
from inferometer.judge.compare import compare
from inferometer.plan.stored import StoredPlan
from inferometer.record.environment import Environment
from inferometer.record.run import Run
from inferometer.record.summary import Summary, Value
from inferometer.record.verdict import Verdict
from inferometer.show.charts import registry
from inferometer.show.report import writing as html
from inferometer.show.report import writing as numbers
from inferometer.show.report.content import experiment_report, run_report, runs_report
from inferometer.show.report.document import (
    Bullets,
    Charts,
    Code,
    ReportBlock,
    ReportTable,
    ReportText,
    Tiles,
    runs_as_rows,
)
from inferometer.show.report.writing import ReportWithRuns, as_html, as_markdown, write_report
from inferometer.store.experiments import KeptExperiment, SweepDefinition, SweepResult
from inferometer.store.shapes import ExperimentCase
from lined_runs import line_of

EVIL = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'
ORDER = ["Setup", "Results", "Doubts and notes", "Reproduce"]


@pytest.fixture(scope="module")
def run() -> Run:
    return charted_run(300, samples=samples_of(), failed=0.02)


@pytest.fixture
def no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its megabyte is tested with the pictures; here it is in the way."""
    monkeypatch.setattr(html, "chart_scripts", lambda: ["/* vega */"])


def test_verdict_first_then_the_four_parts(run: Run, no_bundle: None) -> None:
    page = as_html(run_report(run))
    assert re.findall(r'<h2 id="part-\d">([^<]*)', page) == ORDER
    assert page.index('aria-label="verdict"') < page.index(">Setup<")
    assert "inferometer rerun 20261101-120000-calm-otter" in page and "type: poisson" in page
    assert page.count("<figure") == 15 and "±" in page


def test_a_page_has_every_block_of_its_report(run: Run, no_bundle: None) -> None:
    """Each kind of block, and all of each: tables were once left out without a word, because a class had a new name."""
    report = run_report(run)
    page = html_text(as_html(report))
    blocks = [block for section in report.sections for block in section.blocks]
    assert {type(block) for block in blocks} == set(get_args(ReportBlock))
    for block in blocks:
        match block:
            case ReportText() | Code():
                assert block.text.strip() in page
            case Bullets():
                assert all(item in page for item in block.items)
            case Tiles():
                assert all(tile.name in page and tile.value in page for tile in block.tiles)
            case ReportTable():
                assert all(text in page for text in block.head)
                assert all(cell.text in page for row in block.rows for cell in row)
            case Charts():
                assert all(chart.title in page for chart in block.charts)


def test_nothing_comes_from_outside(run: Run, no_bundle: None) -> None:
    page = as_html(run_report(run))
    assert re.findall(r"""(?:src|href)=["']([^"']*)""", page) == ["data:,", "#content"]
    assert "default-src &#39;none&#39;" in page and "@import" not in page and "url(" not in page


def test_a_hundred_thousand_requests_are_a_small_page() -> None:
    page = as_html(run_report(charted_run(100_000, reads=3, rate=200, samples=samples_of(5000, 8, 500))))
    assert len(page) < 3_000_000
    assert page.count('"share":') < 5_000


def test_html_in_names_is_shown_and_not_run(no_bundle: None) -> None:
    evil = charted_run(50, name=EVIL, model=EVIL)
    evil = replace(evil, environment=structs.replace(evil.environment, command=EVIL))
    other = replace(evil, id="b", plan=StoredPlan(evil.plan.settings() | {"name": EVIL + "2"}))
    for report in (run_report(evil), runs_report([evil, other], compare([evil], [other]))):
        page = as_html(report)
        assert "<img" not in page and "alert(1)" in page
        opened, closed = page.count("<script"), page.count("</script>")
        assert opened == closed == page.count('<script type="application/json"') + 2  # the theme, and Vega
        text = as_markdown(report)
        fenced = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
        assert re.search(r"(?<!\\)<img", fenced) is None


@pytest.mark.parametrize(
    ("kind", "source"), [("serving", "vllm"), ("startup", None), ("latency", None), ("benchmark", None)]
)
def test_a_run_without_records_says_what_it_cannot_show(kind: Any, source: str | None, no_bundle: None) -> None:
    value = Value(value=2.0, unit="s", direction="lower", title="Time of <it>", interval=(1.5, 2.5))
    summary = Summary(values={"it": value})
    bare = Run(
        "a",
        "2026-11-01T12:00:00+00:00",
        StoredPlan({"name": "n"}),
        Environment(),
        summary,
        Verdict(status="valid"),
        kind=kind,
    )
    page = as_html(run_report(replace(bare, source=source)))
    assert "this run has no records of its requests" in page
    assert "Time of &lt;it&gt;" in page and "1.50..2.50 s" in page


def test_a_plan_of_another_version_is_told_word_by_word(run: Run, no_bundle: None) -> None:
    other = replace(run, plan=StoredPlan(run.plan.settings() | {"of_tomorrow": "yes"}))
    page = as_html(run_report(other))
    assert "of_tomorrow" in page and "TTFT p50" in page


def test_a_run_in_which_nothing_was_measured(no_bundle: None) -> None:
    empty = Run(
        "a", "2026-11-01T12:00:00+00:00", StoredPlan({}), Environment(), Summary(), state="failed", kind="startup"
    )
    page = as_html(run_report(empty))
    assert "NOT JUDGED" in page and "ended by an error" in page and "There are no measurements." in page


def test_two_runs_are_compared_and_more_are_shown_side_by_side(no_bundle: None) -> None:
    line = line_of([10.0, 11.0, 12.0])
    two = as_html(runs_report(line[:2], compare(line[:1], line[1:2])))
    assert "Changes with confidence intervals" in two and "UNCLEAR" in two
    three = runs_report(line)
    assert three.verdict.text == "3 runs: 3 valid" and line[2].id in as_html(three)


def test_plans_are_folded_and_say_whose_they_are() -> None:
    runs = [charted_run(50, rate=rate, id_=f"20261101-1200{rate:02.0f}-a-b", name=f"r{rate}") for rate in (10, 20, 40)]
    for report, titles in (
        (run_report(runs[0]), ["plan.yaml", "Full environment"]),
        (runs_report(runs), ["plan.yaml of r10", "plan.yaml of r20", "plan.yaml of r40"]),
    ):
        blocks = [block for section in report.sections for block in section.blocks if isinstance(block, Code)]
        assert [block.title for block in blocks if block.fold] == titles
        assert all("\n" not in block.text for block in blocks if not block.fold)


def test_runs_are_rows_and_no_winner_is_coloured_without_a_comparison() -> None:
    runs = line_of([10.0, 20.0, 30.0])
    table = runs_as_rows(runs, ["tpot.mean", "output_rate", "nothing"])
    assert table.head[0] == "run" and len(table.head) == 3 and len(table.rows) == 3
    assert {cell.tone for row in table.rows for cell in row} == {""}
    report = runs_report(runs)
    assert [section.title for section in report.sections][:2] == ["Results", "Setup"]


def test_an_experiment_as_a_report(no_bundle: None) -> None:
    line = line_of([10.0, 11.0])
    cases = [ExperimentCase(name=f"c{at}", parameters={"load.rate": at}, run=run.id) for at, run in enumerate(line)]
    kept = KeptExperiment(
        "e1", "sweep", None, "2026-11-01T12:00", SweepDefinition(), [*cases, ExperimentCase(name="x")], SweepResult()
    )
    report = experiment_report(kept, [({"load.rate": at}, run) for at, run in enumerate(line)])
    page = as_html(report)
    assert "Output token throughput by rate" in page and "1 of 3 cases have no run" in page
    assert as_html(experiment_report(replace(kept, cases=[]), [])).count("no case has a run") == 1


def test_csv_has_every_number_and_no_formula(run: Run) -> None:
    rows = list(
        csv.DictReader(
            io.StringIO(numbers.as_csv([replace(run, plan=StoredPlan(run.plan.settings() | {"name": "=cmd()"}))]))
        )
    )
    (p50,) = [row for row in rows if row["key"] == "ttft.p50"]
    assert float(p50["value"]) == run.summary.measures["ttft"].p50 and p50["unit"] == "s"
    assert float(p50["low"]) <= float(p50["value"]) <= float(p50["high"])
    assert {row["name"] for row in rows} == {"'=cmd()"}


def test_every_form_by_its_suffix(run: Run, tmp_path: Path, no_bundle: None) -> None:
    small = run_report(replace(run, read_samples=None))
    few = replace(small, sections=tuple(_with_two_charts(section) for section in small.sections))
    told = ReportWithRuns(few, [run])
    assert [path.name for path in write_report(told, tmp_path / "r.md")][:2] == ["r.md", "ttft_cdf.png"]
    assert "![TTFT" in (tmp_path / "r.md").read_text() and (tmp_path / "r_files" / "tpot_cdf.png").is_file()
    (sheet,) = write_report(told, tmp_path / "r.png")
    assert sheet.read_bytes().startswith(b"\x89PNG")
    write_report(told, tmp_path / "r.xlsx")
    with zipfile.ZipFile(tmp_path / "r.xlsx") as book:
        assert 'name="side by side"' in book.read("xl/workbook.xml").decode()
        assert b"<f>" not in book.read("xl/worksheets/sheet1.xml")
    assert {path.name for path in write_report(told, tmp_path / "folder")} == {"ttft_cdf.png", "tpot_cdf.png"}
    with pytest.raises(PlanError, match=r"format \.pdf"):
        write_report(told, tmp_path / "r.pdf")


def _with_two_charts(section: Any) -> Any:
    blocks = [replace(each, charts=each.charts[:2]) if hasattr(each, "charts") else each for each in section.blocks]
    return replace(section, blocks=tuple(blocks))


def test_without_the_extras_a_page_is_still_a_page(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(registry, "import_module", missing)
    monkeypatch.setattr(numbers, "import_module", missing)
    told = ReportWithRuns(run_report(run), [run])
    (page,) = write_report(told, tmp_path / "r.html")
    assert "need the extra &#39;charts&#39;" in page.read_text() and page.stat().st_size < 200_000
    assert len(write_report(told, tmp_path / "r.md")) == 1
    for name, extra in (("r.png", "charts"), ("r.xlsx", "xlsx")):
        with pytest.raises(MissingExtra, match=extra):
            write_report(told, tmp_path / name)
        assert not (tmp_path / name).exists()
