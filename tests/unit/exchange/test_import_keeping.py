"""Imported files: recognised, stored once, found again; and files that are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from imported_files import SWEEP_HEADER, SWEEP_POW2, VLLM, VLLM_DETAILED
from test_import_formats import CI_LATENCY, LIFECYCLE, LOADGEN  # type: ignore[import-not-found]

from inferometer.cli import execute
from inferometer.errors import DataError
from inferometer.exchange.importing.importer import import_file
from inferometer.exchange.importing.recognise import FORMATS, format_named
from inferometer.store.folder import load_run
from inferometer.store.store import open_store


def write(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_result_becomes_a_run_with_its_file_beside_it(tmp_path: Path) -> None:
    file = write(tmp_path, "r.json", VLLM_DETAILED)
    done = import_file(file, tmp_path / "store", tags=["ci"])
    (run,) = done.runs
    assert run.folder is not None
    again = load_run(run.folder)
    assert (again.source, again.kind, again.started_at) == (
        *("vllm-bench-serve", "serving", "2025-09-04T23:28:30.000+00:00"),
    )
    assert (run.folder / "source.json").read_bytes() == file.read_bytes()
    records = again.records
    assert records is not None and len(records) == 2
    entry = open_store(tmp_path / "store").entry(run.id)
    assert (entry.source, entry.verdict, entry.model, entry.tags) == (
        *("vllm-bench-serve", "valid", "meta-llama/Llama-3.1-8B-Instruct", ("ci",)),
    )
    assert [each.id for each in open_store(tmp_path / "store").runs(where=["load.rate=12.5"])] == [run.id]


def test_the_same_file_is_kept_once_unless_asked(tmp_path: Path) -> None:
    store = tmp_path / "store"
    first = import_file(write(tmp_path, "a.json", VLLM), store)
    copy = write(tmp_path, "copy.json", VLLM)
    second = import_file(copy, store)
    assert (second.runs, second.before) == ([], [first.runs[0].id])
    assert len(import_file(copy, store, again=True).runs) == 1
    assert len(open_store(store).runs()) == 2


def test_a_file_whose_run_was_deleted_is_new(tmp_path: Path) -> None:
    import shutil

    store, file = tmp_path / "store", write(tmp_path, "a.json", VLLM)
    shutil.rmtree(import_file(file, store).runs[0].folder or "")
    assert len(import_file(file, store).runs) == 1


def test_every_point_of_a_history_keeps_its_part_and_the_file_is_kept_once(tmp_path: Path) -> None:
    file = write(tmp_path, "data.json", CI_LATENCY)
    done = import_file(file, tmp_path / "store")
    assert [run.started_at[:10] for run in done.runs] == ["2025-09-04", "2025-09-05"]
    parts = [json.loads((run.folder / "source.json").read_bytes()) for run in done.runs if run.folder]
    assert parts == CI_LATENCY
    (kept,) = (tmp_path / "store" / "imports").glob("*/source.json")
    assert kept.read_bytes() == file.read_bytes()


def test_of_a_file_that_is_imported_half_way_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from inferometer.exchange.importing import importer as conduct

    kept: list[Any] = []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        if kept:
            raise KeyboardInterrupt
        kept.append(keep(*arguments, **options))
        return kept[0]

    keep = conduct.keep  # type: ignore[attr-defined]
    file = write(tmp_path, "data.json", CI_LATENCY)
    monkeypatch.setattr(conduct, "keep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        import_file(file, tmp_path / "store")
    monkeypatch.undo()
    assert open_store(tmp_path / "store").runs() == []
    assert len(import_file(file, tmp_path / "store").runs) == 2


def test_arrays_of_different_lengths_are_named(tmp_path: Path) -> None:
    file = write(tmp_path, "r.json", VLLM_DETAILED | {"ttfts": [0.1]})
    with pytest.raises(DataError, match="arrays differ in length: start_times 2, ttfts 1"):
        import_file(file, tmp_path / "store")


def test_a_dry_run_keeps_nothing(tmp_path: Path) -> None:
    done = import_file(write(tmp_path, "data.json", CI_LATENCY), tmp_path / "store", dry_run=True)
    assert (done.results, done.runs, done.format) == (2, [], "ci-bench-latency")
    assert not (tmp_path / "store" / "runs").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", {"a": 1, "b": 2}, "JSON with the keys a, b, which is not a supported result"),
        ("x.csv", "a,b,c,d\n1,2,3,4\n", "a table with the columns a, b, c, d"),
        ("x.txt", "hello there", "text that begins with 'hello there'"),
        ("x.json", '{"completed": 3, "dura', "it ends early, was it"),
        ("x.json", "{'a': 1}\n", "is not JSON: line 1 column 2"),
        ("x.yaml", "a: [1\nb: 2", "is not YAML: line 2"),
        ("x.json", "", "is empty"),
        ("x.json", [{"conversations": []}], "conversations in ShareGPT's schema"),
        ("x.txt", "# HELP vllm:x\n# TYPE vllm:x gauge\nvllm:x 1\n", "Prometheus"),
        ("x.json", {"schema": "inferometer/run/1"}, "a file of an Inferometer run"),
        ("x.json", {"$defs": {}, "properties": {}, "title": "report"}, "a JSON schema"),
        ("x.yaml", "null\n", "YAML that holds only None"),
        ("x.yaml", "version: '0.3'\nscenario: {}\nresults: {request_performance: {}}\n", "of version 0.3; known are"),
        ("x.json", VLLM | {"completed": {"a": 1}, "model_id": ["x"], "itls": 3, "duration": []}, ""),
    ],
)
def test_a_foreign_file_is_told_what_it_looks_like(tmp_path: Path, name: str, content: Any, message: str) -> None:
    file = write(tmp_path, name, content)
    if not message:  # wrong throughout, and still nothing but a result without numbers
        assert import_file(file, tmp_path / "store").runs
        return
    with pytest.raises(DataError) as caught:
        import_file(file, tmp_path / "store")
    assert message in caught.value.message
    assert str(file.name) in caught.value.message


def test_binary_files_are_named(tmp_path: Path) -> None:
    for content, word in (
        (b"PAR1\xff\xfe", "Parquet"),
        (b"\x1f\x8b\xff", "gzip"),
        (b"\xff\xfe\x00", "UTF-16"),
        (b"\xff\xfe\n\x00", "is empty"),
    ):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(DataError, match=word):
            import_file(tmp_path / "x", tmp_path / "store")


def test_a_format_that_does_not_fit_says_so(tmp_path: Path) -> None:
    file = write(tmp_path, "r.json", VLLM)
    with pytest.raises(DataError, match="is no result of an MLPerf LoadGen summary"):
        import_file(file, tmp_path / "store", format="mlperf")
    with pytest.raises(DataError, match="no format 'mlperv'"):
        import_file(file, tmp_path / "store", format="mlperv")


def test_every_format_is_there() -> None:
    titles = [format_named(name).title for name in FORMATS]
    assert len(set(titles)) == len(FORMATS)


def test_a_folder_is_imported_whole_and_what_is_no_result_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "results/a.json", VLLM)
    write(tmp_path, "results/deep/s.txt", LOADGEN)
    write(tmp_path, "results/notes.txt", "buy milk")
    write(tmp_path, "results/.hidden.json", VLLM | {"duration": 3.0})
    store = ["--store", str(tmp_path / "store")]
    assert execute(["import", str(tmp_path / "results"), *store]) == 0
    shown = capsys.readouterr()
    assert "vllm-bench-serve" in shown.out and "mlperf" in shown.out
    assert "not a result: notes.txt: text that begins with 'buy milk'" in shown.err
    assert len(open_store(tmp_path / "store").runs()) == 2
    assert execute(["import", str(tmp_path / "results"), *store]) == 0
    assert "already imported" in capsys.readouterr().out
    assert len(open_store(tmp_path / "store").runs()) == 2


@pytest.mark.parametrize("folder", ["..", "../.cache"])
def test_a_folder_may_be_above_or_hidden_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write(Path(folder), "results/a.json", VLLM)
    assert execute(["import", folder, "--store", str(tmp_path / ".store")]) == 0
    assert len(open_store(tmp_path / ".store").runs()) == 1


def test_a_file_that_was_named_and_is_no_result_is_an_error_and_the_others_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = write(tmp_path, "a.json", VLLM), write(tmp_path, "b.json", {"a": 1})
    assert execute(["import", str(bad), str(good), "--store", str(tmp_path / "store")]) == 2
    shown = capsys.readouterr()
    assert "error: b.json: JSON with the keys a" in shown.err and "there are vllm-bench-serve" in shown.err
    assert len(open_store(tmp_path / "store").runs()) == 1


def test_json_is_one_document_and_names_broken_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "serve_x_sweep_results.csv", f"{SWEEP_HEADER}\n{SWEEP_POW2}\nL4,half a row\n")
    assert execute(["import", str(file), "--json", "--store", str(tmp_path / "store")]) == 0
    said = json.loads(capsys.readouterr().out)
    (each,) = said["files"]
    assert (each["format"], len(each["runs"])) == ("ray-serve-sweep", 1)
    assert each["broken"] == ["line 3: 2 fields, but there are 35 columns"]


def test_patterns_and_wrong_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "a.json", VLLM)
    write(tmp_path, "b.json", VLLM | {"duration": 5.0})
    store = ["--store", str(tmp_path / "store")]
    assert execute(["import", str(tmp_path / "*.json"), *store]) == 0
    assert len(open_store(tmp_path / "store").runs()) == 2
    assert execute(["import", str(tmp_path / "*.nothing"), *store]) == 2
    assert execute(["import", *store]) == 2
    assert execute(["import", str(tmp_path / "gone.json"), *store]) == 2
    assert "no such file" in capsys.readouterr().err


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize(
    ("name", "content", "shown"),
    [
        ("r.json", VLLM_DETAILED, "The numbers above are computed"),
        ("r.json", VLLM, "Definitions of the tool"),
        ("s.txt", LOADGEN, "TTFT limit"),
        ("stage_1_lifecycle_metrics.json", LIFECYCLE, "stage 1"),
        ("latency_bs4.json", {"avg_latency": 1.0, "latencies": [1.0], "percentiles": {"50": 1.0}}, "batch of 4"),
        ("startup.json", {"avg_cold_startup_time": 60.0}, "Startup, cold"),
    ],
)
def test_an_imported_run_is_shown_and_listed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: str,
    name: str,
    content: Any,
    shown: str,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    store = ["--store", str(tmp_path / "store")]
    assert execute(["import", str(write(tmp_path, name, content)), *store]) == 0
    assert execute(["show", *store, "--more", "--measures", "--slices", "--slowest", "2"]) == 0
    assert execute(["list", *store]) == 0
    assert execute(["show", *store, "--json"]) == 0
    said = capsys.readouterr().out
    assert shown in said and "are not known" in " ".join(said.split())
    assert all(len(line) <= int(columns) for line in said.splitlines() if str(tmp_path) not in line and '"' not in line)
