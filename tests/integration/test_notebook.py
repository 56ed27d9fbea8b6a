"""The notebook in examples/ runs: its cells one after the other in one namespace, as a kernel does, without Jupyter."""

import ast
import json
from pathlib import Path

import pytest

from inferometer.record.run import Run
from inferometer.show.charts.chart import Chart
from inferometer.show.charts.registry import has_charts

NOTEBOOK = json.loads((Path(__file__).parents[2] / "examples" / "notebook.ipynb").read_text(encoding="utf-8"))
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
SHORTER = {'"10s"': '"1s"', '"60s"': '"20s"'}  # for less time


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """What the names stand for at the end, what each cell shows (the value of its last line), and where it wrote."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFEROMETER_STORE", str(tmp_path_factory.mktemp("store")))
        work = tmp_path_factory.mktemp("work")
        patch.chdir(work)
        namespace = {"__name__": "__main__"}
        return namespace, [shown_by(cell, namespace) for cell in CELLS], work


def shown_by(cell, namespace):
    for long, short in SHORTER.items():
        cell = cell.replace(long, short)
    lines = ast.parse(cell)
    last = ast.Expression(lines.body.pop().value) if isinstance(lines.body[-1], ast.Expr) else None
    exec(compile(lines, "a cell", "exec"), namespace)
    return None if last is None else eval(compile(last, "a cell", "eval"), namespace)


def test_cells_run_in_order(executed):
    namespace, _, work = executed
    run = namespace["run"]
    assert isinstance(run, Run) and run.state == "complete"
    assert namespace["table"].num_rows == sum(run.summary.outcomes.values())
    assert namespace["comparison"].changes
    assert (work / "report.html").exists()


def test_charts_draw_themselves(executed):
    charts = [shown for shown in executed[1] if isinstance(shown, Chart)]
    assert len(charts) == 2
    for chart in charts:
        drawn = chart._repr_mimebundle_(include=None, exclude=None)
        assert drawn["application/vnd.vegalite.v5+json"] == chart.spec
        assert drawn["text/plain"] == chart.title
        assert not has_charts() or drawn["image/svg+xml"].startswith("<svg")


def test_it_is_kept_without_outputs() -> None:
    code = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert NOTEBOOK["nbformat"] == 4
    assert not [cell for cell in code if cell["outputs"] or cell["execution_count"] is not None]
