"""Reports and charts of real results of another tool."""

from pathlib import Path

import numpy as np
import pytest

from inferometer.conduct.startup import startup_from_log
from inferometer.exchange.importing.importer import import_file
from inferometer.record.run import Run
from inferometer.show.charts import charts_of, charts_of_runs, draw
from inferometer.show.report.content import run_report, runs_report
from inferometer.show.report.writing import as_html

pytestmark = pytest.mark.golden


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    store = tmp_path_factory.mktemp("store")
    names = ("300_100_5", "1000_200_8")
    return [
        run for name in names for run in import_file(data / f"vllm-0.24-h200/vllm_bench_serve_{name}.json", store).runs
    ]


def test_requests_of_vllm_on_an_h200_as_charts(runs: list[Run]) -> None:
    names = {chart.name for chart in charts_of(runs[0])}
    assert {"ttft_cdf", "itl_histogram", "tokens_over_time", "requests"} <= names
    rows = draw("ttft_cdf", runs[0]).spec["data"]["values"]
    said = runs[0].summary.measures["ttft"]["p50"] * 1e3
    assert np.interp(0.5, [row["share"] for row in rows], [row["value"] for row in rows]) == pytest.approx(
        said, rel=0.05
    )
    assert {"latency_by_rate", "ttft_cdfs"} <= {chart.name for chart in charts_of_runs(runs)}


def test_its_report_says_whose_definitions_these_are(runs: list[Run]) -> None:
    page = as_html(run_report(runs[0]))
    assert "imported from" in page and "Definitions of the tool that measured this:" in page and len(page) < 3_000_000
    assert runs[1].id in as_html(runs_report(runs))


def test_a_start_of_vllm_as_phases(data: Path, tmp_path: Path) -> None:
    run = startup_from_log(data / "vllm-0.24-h200/vllm_server.log", store=tmp_path)
    assert [chart.name for chart in charts_of(run)] == ["startup_phases"]
