"""Export destinations: a file, a folder, a stream; and plans have the same formats."""

import io
from pathlib import Path
from typing import get_args

import pytest
from made_runs import made_run

from inferometer.errors import PlanError, StoreError
from inferometer.exchange.exporting import FORMATS, format_named, stream, write, write_outputs
from inferometer.plan.model import Output, OutputFormat
from inferometer.plan.reading import plan_from
from inferometer.record.run import Run


@pytest.fixture(scope="module")
def run() -> Run:
    return made_run(60)


def test_a_plan_can_ask_for_every_format() -> None:
    assert set(get_args(OutputFormat)) == set(FORMATS)


def test_a_format_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(PlanError) as caught:
        format_named("xml")
    assert "'xml'" in caught.value.message
    assert "openmetrics" in caught.value.hint


def test_one_file_goes_where_it_is_asked_to(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "result.json"
    assert write("vllm", [run], path)[0] == [path]
    assert path.read_bytes().startswith(b"{")


def test_a_folder_that_is_there_takes_the_file_under_its_own_name(run: Run, tmp_path: Path) -> None:
    (written,), _ = write("vllm", [run], tmp_path)
    assert written == tmp_path / f"vllm_bench_serve_{run.id}.json"


def test_several_files_need_a_folder(run: Run, tmp_path: Path) -> None:
    other = made_run(60)
    object.__setattr__(other, "id", "another")
    with pytest.raises(StoreError, match="not one"):
        write("vllm", [run, other], tmp_path / "result.json")
    written, _ = write("vllm", [run, other], tmp_path / "results")
    assert len(written) == 2
    written, _ = write("github-action-benchmark", [run], tmp_path / "bench.d")
    assert {path.name for path in written} == {"bigger.json", "smaller.json", "observe.json"}


def test_databases_on_disk_are_appended_to(run: Run, tmp_path: Path) -> None:
    import orjson

    write("ci-bench", [run], tmp_path)
    later = made_run(60)
    object.__setattr__(later, "started_at", "2026-11-16T00:00:00+00:00")
    write("ci-bench", [later], tmp_path)
    (pair,) = orjson.loads((tmp_path / "fake_db/e2e_benchmark_data.json").read_bytes()).values()
    assert len(pair["history"]) == 2


def test_a_stream_takes_one_file(run: Run) -> None:
    to = io.BytesIO()
    stream("openmetrics", [run], to)
    assert to.getvalue().endswith(b"# EOF\n")
    with pytest.raises(StoreError, match="3 files"):
        stream("github-action-benchmark", [run], io.BytesIO())


def test_outputs_of_a_plan_are_all_tried_before_one_is_complained_of(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outputs = [
        Output(format="vllm", path=str(tmp_path / "file" / "below" / "x.json")),
        Output(format="openmetrics", path=str(tmp_path / "run.om")),
        Output(format="inferx", path=str(tmp_path / "inferx")),
    ]
    with pytest.raises(StoreError, match="file"):
        write_outputs(run, outputs)
    assert (tmp_path / "run.om").exists()
    assert (tmp_path / "inferx" / "metrics.csv").exists()


def test_a_plan_names_a_format_that_is_not_there() -> None:
    with pytest.raises(PlanError, match="outputs"):
        plan_from({"outputs": [{"format": "xml", "path": "x"}]})
