"""Many processes import the same files simultaneously: each file is stored once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from inferometer.store.store import open_store
from lengths import LONG

PROCESSES, FILES = (10, 14) if LONG else (4, 10)
IMPORT = """
import sys
from inferometer.cli import execute
print("ready", flush=True)
sys.stdin.readline()
sys.exit(execute(["import", sys.argv[1], "--json"]))
"""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    for number in range(FILES):
        content = {
            "backend": "vllm",
            "model_id": "m",
            "date": f"20261101-0312{number:02}",
            "completed": 10 + number,
            "num_prompts": 10 + number,
            "duration": 5.0,
            "total_input_tokens": 100,
            "total_output_tokens": 200,
            "request_throughput": 2.0,
            "output_throughput": 40.0,
            "total_token_throughput": 60.0,
            "mean_ttft_ms": 30.0,
            "median_ttft_ms": 29.0,
            "p99_ttft_ms": 50.0,
        }
        (folder / f"result-{number}.json").write_text(json.dumps(content))
    return folder


def import_at_once(results: Path, environments: list[dict[str, str]]) -> list[dict[str, list[dict[str, object]]]]:
    """All begin when the last is ready; what each of them says."""
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen([sys.executable, "-c", IMPORT, str(results)], env=each, stdin=pipe, stdout=pipe, text=True)
        for each in environments
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return [json.loads(each) for each in said]


def check_once_each(said: list[dict[str, list[dict[str, object]]]], kept: list[str]) -> None:
    files = [file for document in said for file in document["files"]]
    made = [run for file in files for run in file["runs"]]  # type: ignore[attr-defined]
    assert len(files) == PROCESSES * FILES
    assert sorted(made) == sorted(kept) and len(set(kept)) == FILES
    assert all(len(file["runs"]) + len(file["before"]) == 1 for file in files)  # type: ignore[arg-type]


def test_many_processes_keep_every_file_once(results: Path, tmp_path: Path) -> None:
    environment = os.environ | {"INFEROMETER_STORE": str(tmp_path / "store")}
    said = import_at_once(results, [environment] * PROCESSES)
    check_once_each(said, [entry.id for entry in open_store(tmp_path / "store").runs()])


def test_many_machines_that_share_an_index_keep_every_file_once(results: Path, tmp_path: Path, database: str) -> None:
    """Each with a disk of its own, so that only PostgreSQL can know."""
    environments = [
        os.environ | {"INFEROMETER_STORE": database, "INFEROMETER_RECORDS": str(tmp_path / f"disk-{number}")}
        for number in range(PROCESSES)
    ]
    said = import_at_once(results, environments)
    kept = [entry.id for entry in open_store(database, tmp_path / "disk-0").runs()]
    check_once_each(said, kept)
