"""Numbers too large for an index or file: refused with file and field, or stored safely; the store stays intact."""

import json
from pathlib import Path
from typing import Any

import pytest

from inferometer.errors import DataError
from inferometer.exchange.importing.importer import import_file
from inferometer.store.store import open_store

RESULT: dict[str, Any] = {
    "backend": "vllm",
    "model_id": "m",
    "date": "20261101-031200",
    "completed": 10,
    "num_prompts": 10,
    "duration": 5.0,
    "total_input_tokens": 100,
    "total_output_tokens": 200,
    "request_throughput": 2.0,
    "output_throughput": 40.0,
    "mean_ttft_ms": 30.0,
    "median_ttft_ms": 29.0,
}


def imported(tmp_path: Path, **fields: Any) -> list[str]:
    file = tmp_path / "result.json"
    file.write_text(json.dumps(RESULT | fields))
    return [run.id for run in import_file(file, tmp_path / "store", again=True).runs]


@pytest.mark.parametrize(
    ("field", "value"),
    [("completed", 2**63), ("completed", 2**64), ("completed", 10**40), ("mean_ttft_ms", 1e300)],
)
def test_a_number_out_of_range_is_refused_with_its_field(tmp_path: Path, field: str, value: float) -> None:
    fine = imported(tmp_path)
    with pytest.raises(DataError, match=rf"result\.json: .*({field}|beyond 64 bits|too large)"):
        imported(tmp_path, **{field: value})
    store = open_store(tmp_path / "store")
    store.reindex()
    assert [entry.id for entry in store.runs()] == fine
    assert store.load("latest").id == fine[0]


DETAILED: dict[str, Any] = {
    "start_times": [100.0 + at / 2 for at in range(10)],
    "ttfts": [0.03] * 10,
    "itls": [[0.01] * 19] * 10,
    "input_lens": [10] * 10,
    "output_lens": [20] * 10,
    "errors": [""] * 10,
}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, ""),
        ({"ttfts": [0.03] * 9 + [-0.03]}, "1 requests have a read before"),
        ({"itls": [[0.01] * 19] * 9 + [[0.01] * 18 + [-0.5]]}, "1 requests have a read before"),
        ({"completed": -10}, "-10 requests were answered as stated"),
        ({"completed": 8}, "8 requests were answered as stated in the file, but 10 "),
        ({"failed": -1}, "number of failed requests is negative"),
        ({"median_ttft_ms": -29.0}, "ttft is negative"),
        ({"std_ttft_ms": -1.0}, "ttft is negative"),
        ({"max_concurrent_requests": -4}, "Requests in the busiest second is negative"),
    ],
)
def test_numbers_that_no_run_can_have_make_a_result_doubtful(tmp_path: Path, fields: dict[str, Any], text: str) -> None:
    (kept,) = imported(tmp_path, **(DETAILED | fields))
    verdict = open_store(tmp_path / "store").load(kept).verdict
    assert verdict is not None and verdict.status == ("doubtful" if fields else "valid")
    assert not text or any(text in doubt.text for doubt in verdict.doubts)


def test_a_length_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="output tokens"):
        imported(tmp_path, **(DETAILED | {"output_lens": [20] * 9 + [float("nan")]}))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 2**53 + 1])
def test_what_is_kept_can_be_listed_and_loaded(tmp_path: Path, value: float) -> None:
    (kept,) = imported(tmp_path, mean_ttft_ms=value)
    store = open_store(tmp_path / "store")
    store.reindex()
    assert store.entry(kept).damage is None
    assert store.load(kept).summary.outcomes == {"ok": 10}


def test_a_negative_duration_makes_a_result_doubtful(tmp_path: Path) -> None:
    (kept,) = imported(tmp_path, duration=-5)
    verdict = open_store(tmp_path / "store").load(kept).verdict
    assert verdict is not None and verdict.status == "doubtful" and "out_of_range" in verdict.codes


@pytest.mark.parametrize(
    "content", ['{"completed": ' + "9" * 5000 + "}", "[" * 100_000 + "]" * 100_000, "{}\n" + "[" * 100_000]
)
def test_digits_and_brackets_without_end_are_refused_with_the_file(tmp_path: Path, content: str) -> None:
    file = tmp_path / "endless.json"
    file.write_text(content)
    with pytest.raises(DataError, match=r"endless\.json: "):
        import_file(file, tmp_path / "store")
