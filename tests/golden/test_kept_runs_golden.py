"""Stored runs of users: their identity, index columns and documents stay unchanged."""

import json
from pathlib import Path

import pytest

from inferometer.judge.identity import identity
from inferometer.record.encoding import environment_document, environment_from
from inferometer.store.entry import listing_of
from inferometer.store.folder import load_run

# of runs that are in people's stores: history lines and comparisons go by these
KEYS = {
    "8b/a-512-128-r20": "52735f1dffe4-18f4ca02baf1-c6065534efc8",
    "8b/c-128-512-r5": "c371f1ac0e15-18f4ca02baf1-c6065534efc8",
    "8b/e-1000-200-c16": "4a1a9d8fae2a-18f4ca02baf1-c6065534efc8",
    "32b/k-2000-200-r2": "318e9c58776a-8b893d90448d-c6065534efc8",
}
COLUMNS = ("name", "model", "engine", "engine_version", "commit", "hardware", "target")


@pytest.mark.parametrize("name", KEYS)
def test_a_kept_run_keeps_its_identity_and_its_columns(name: str, data: Path) -> None:
    run = load_run(data / "vllm-0.24-h200-sweep" / name)
    assert identity(run).key == KEYS[name]
    size, _, case = name.partition("/")
    row = listing_of(run, "x").row
    assert tuple(getattr(row, column) for column in COLUMNS) == (
        *(case, f"model{size}", "vLLM", "0.24.0", None, "1x NVIDIA H200", "http://localhost:8000"),
    )


def test_one_line_tells_who_it_is_about(data: Path) -> None:
    run = load_run(data / "vllm-0.24-h200-sweep" / "8b" / "a-512-128-r20")
    assert run.subject.line == "model8b · vLLM 0.24.0 · 1 x H200 · 512 in, 128 out · 20 req/s Poisson"


def test_what_a_run_folder_holds_is_written_again_as_it_was_read(data: Path) -> None:
    files = sorted(data.glob("vllm-0.24-h200-sweep/*/*/environment.json"))
    assert files
    for file in files:
        document = json.loads(file.read_text(encoding="utf-8"))
        del document["schema"]
        assert json.dumps(environment_document(environment_from(document))) == json.dumps(document), file
