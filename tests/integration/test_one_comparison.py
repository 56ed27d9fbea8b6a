"""The same two sides in terminal, dashboard, site and report: the same measures, order, statuses, numbers and
sentences."""

import io
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from inferometer.cli import main
from inferometer.conduct.compare import compare_runs
from inferometer.conduct.report import answers_of, build_report
from inferometer.show.comparison import print_comparison
from inferometer.show.report.document import ReportTable
from inferometer.show.site import build_site
from inferometer.store.store import Store
from shown_stores import shown_store

ONE_LINE = 2000  # columns: nothing is folded


@dataclass(frozen=True)
class Read:
    """What a reader sees of a comparison."""

    status: str
    counts: str
    objections: list[str]
    rows: list[list[str]]
    facts: list[list[str]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return shown_store(tmp_path_factory.mktemp("shown") / "store")


def sides_of(store: Store, kind: str) -> tuple[str, str]:
    """One run a side with earlier ones of its kind, several a side, and sides that differ in more than a version."""
    long = [entry.id for entry in store.runs(where=["plan.workload.input_tokens=2000"], sort="started")]
    short = [entry.id for entry in store.runs(where=["plan.workload.input_tokens=300"], sort="started")]
    return {
        "with a history": (long[-2], long[-1]),
        "without one": (long[0], long[1]),
        "repeats": (",".join(long[:3]), ",".join(long[-3:])),
        "other lengths": (short[-1], long[-1]),
        "the same run": (long[0], long[0]),
    }[kind]


def in_terminal(before: str, after: str, store: Store) -> Read:
    text = io.StringIO()
    print_comparison(compare_runs(before, after, store.home), Console(file=text, width=ONE_LINE, no_color=True))
    head, *parts = text.getvalue().rstrip().split("\n\n")
    status, _, counts = head.partition("  ")
    lines = [[line.split("  ") for line in part.splitlines()] for part in parts]
    cells = [[[cell.strip() for cell in line if cell.strip()] for line in part] for part in lines]
    objections = [line[0].lstrip("✗• ") for line in cells[0]] if parts[0][0] in "✗•" else []
    rows, facts = cells[-2][1:], cells[-1]
    return Read(status.lower(), counts, objections, rows, facts)


def in_dashboard(before: str, after: str, store: Store) -> Read:
    whole = answers_of(store.home).comparison(before.split(","), after.split(","), [], False)
    view = json.loads(json.dumps(whole.view))
    rows = [[row["title"], *row["cells"], row["status"]] for row in view["rows"]]
    return Read(view["status"], view["counts"], view["objections"], rows, view["facts"])


def in_report(before: str, after: str, store: Store) -> Read:
    report = build_report([before, after], store.home).report
    measured = next(section for section in report.sections if section.title == "Results")
    changes, facts = (
        [[cell.text for cell in row] for row in block.rows]
        for block in measured.blocks[:2]
        if isinstance(block, ReportTable)
    )
    verdict = report.verdict
    return Read(verdict.status, verdict.text, list(verdict.reasons), changes, facts)


@pytest.mark.parametrize("kind", ["with a history", "without one", "repeats", "other lengths"])
def test_every_reader_sees_the_same_comparison(store: Store, kind: str) -> None:
    before, after = sides_of(store, kind)
    terminal = in_terminal(before, after, store)
    assert terminal == in_dashboard(before, after, store)
    assert terminal == in_report(before, after, store)
    comparison = compare_runs(before, after, store.home)
    assert [row[-1] for row in terminal.rows] == [change.status for change in comparison.changes]
    assert terminal.rows and terminal.facts[0] == ["before", *terminal.facts[0][1:]]


def test_what_is_refused_is_refused_everywhere(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = sides_of(store, "the same run")
    with pytest.raises(SystemExit) as end:
        main(["compare", before, after, "--store", str(store.home)])
    assert end.value.code == 2
    error = capsys.readouterr().err
    view = in_dashboard(before, after, store)
    assert view.status == "not comparable" and view.objections and all(text in error for text in view.objections)


def test_the_site_shows_what_the_dashboard_shows(store: Store, tmp_path: Path) -> None:
    build_site(answers_of(store.home), tmp_path / "public")
    file = next((tmp_path / "public" / "data" / "compare").iterdir())
    content = json.loads(file.read_text(encoding="utf-8").partition(",")[2].rstrip().removesuffix(");"))
    ids = [content["runs"][side][0]["id"] for side in ("before", "after")]
    view = in_dashboard(ids[0], ids[1], store)
    assert [row["cells"] for row in content["view"]["rows"]] == [row[1:-1] for row in view.rows]
    assert content["view"]["facts"] == view.facts
