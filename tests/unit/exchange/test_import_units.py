"""Files with wrong units, and how they are corrected."""

from typing import Any

import pytest
from imported_files import SGLANG, SWEEP_HEADER, SWEEP_POW2, VLLM, found_in, only, report_v0_1
from test_import_formats import AIPERF, TREATMENTS  # type: ignore[import-not-found]

from inferometer.errors import DataError
from inferometer.exchange.importing.importer import summary_of, verdict_of
from inferometer.exchange.importing.units import contradictions, factor, number, statistic, statistics
from inferometer.record.summary import MeasureSummary


@pytest.mark.parametrize("tool", ["inference-perf", "fmperf"])
def test_seconds_labelled_as_milliseconds_are_read_as_seconds_and_said(tool: str) -> None:
    run = only("r.yaml", report_v0_1(tool, "ms"))
    assert run.measures["ttft"]["mean"] == pytest.approx(0.2)
    assert run.measures["tpot"]["mean"] == pytest.approx(0.02)
    assert "read as seconds" in run.notes[0] and "time_per_output_token" in run.notes[0]


@pytest.mark.parametrize("tool", ["inference-perf", "fmperf", "vllm-benchmark", "guidellm"])
def test_labels_that_are_right_are_believed(tool: str) -> None:
    run = only("r.yaml", report_v0_1(tool, "ms", scale=1000))
    assert run.measures["ttft"]["mean"] == pytest.approx(0.2)
    assert run.measures["e2e"]["mean"] == pytest.approx(0.82)
    assert run.notes == ()
    run = only("r.yaml", report_v0_1(tool, "s"))
    assert run.measures["e2e"]["mean"] == pytest.approx(0.82)


def test_only_the_request_latency_of_guidellm_is_mislabelled() -> None:
    said = report_v0_1("guidellm", "ms", scale=1000)
    said["metrics"]["latency"]["request_latency"]["mean"] = 0.82  # seconds, where the rest is milliseconds
    run = only("r.yaml", said)
    assert run.measures["e2e"]["mean"] == pytest.approx(0.82)
    assert run.measures["ttft"]["mean"] == pytest.approx(0.2)
    assert "request_latency" in run.notes[0] and "time_to_first_token" not in run.notes[0]


def test_percentiles_that_others_drop_are_kept() -> None:
    run = only("r.yaml", report_v0_1("vllm-benchmark", "ms", scale=1000))
    assert run.measures["ttft"]["p25"] == pytest.approx(0.1)  # written P25, which is no field of the schema
    assert run.measures["ttft"]["p99.9"] == pytest.approx(0.2)
    every = {f"p{p}_ttft_ms": p for p in ("0.1", "1", "5", "10", "25", "75", "90", "95", "99", "99.9")}
    found = only("r.json", VLLM | {name: float(p) for name, p in every.items()}).measures["ttft"]
    assert {name for name in found.statistics if name[0] == "p"} == {f"p{p}" for p in every.values()} | {"p50"}


def test_served_lengths_are_taken_not_those_that_were_asked() -> None:
    run = only("r.jsonl", SGLANG)
    assert run.measures["output_tokens"]["mean"] == 10  # 1000 came, 2000 were asked
    assert run.rates["output_rate"].value == 100
    assert [code for code, _ in run.doubts] == ["asked_lengths"]
    same = only("r.jsonl", SGLANG | {"total_output_tokens_retokenized": 1960})
    assert same.doubts == ()  # the same text, counted by another tokenizer: the file's own numbers hold
    assert (same.measures["output_tokens"]["mean"], same.rates["output_rate"].value) == (20, 200)
    bare = {name: value for name, value in SGLANG.items() if not name.startswith(("request_th", "input_th"))}
    old = only("r.jsonl", bare).rates  # as sglang wrote in 2024
    assert (old["request_rate"].value, old["input_rate"].value) == (10, 500)
    row = SWEEP_POW2.replace("True,False,False", "True,True,False")
    _, found = found_in("serve_sharegpt_sweep_results.csv", f"{SWEEP_HEADER}\n{row}\n{SWEEP_POW2}\n")
    assert [len(run.doubts) for run in found.runs] == [1, 0]


@pytest.mark.parametrize(
    ("numbers", "tool"),
    [
        ("200,300,20", "vllm-benchmark"),  # milliseconds in columns that end in _s
        ("0.2,0.3,0.02", "inference-perf"),
        ("200,300,20", "a tool that is not known"),
        ("0.2,0.3,0.02", "a tool that is not known"),
    ],
)
def test_milliseconds_in_columns_named_s_are_milliseconds(numbers: str, tool: str) -> None:
    run = only("treatment_comparison.csv", TREATMENTS.format(numbers, tool))
    assert run.measures["ttft"]["mean"] == pytest.approx(0.2)
    assert run.measures["tpot"]["mean"] == pytest.approx(0.02)
    assert bool(run.notes) == numbers.startswith("200")


def test_guidellm_mixes_both_in_one_row() -> None:
    run = only("treatment_comparison.csv", TREATMENTS.format("200,300,20", "guidellm"))
    assert (run.measures["ttft"]["mean"], run.measures["e2e"]["mean"]) == (pytest.approx(0.2), 1.0)  # type: ignore[comparison-overlap]


def test_answers_that_end_before_they_begin_are_doubted() -> None:
    run = only("r.json", VLLM | {"mean_e2el_ms": 0.82})
    reasons = verdict_of(run, summary_of(run), "x").doubts
    assert [reason.code for reason in reasons] == ["units"]
    assert "before its first token" in reasons[0].text
    parts = {"ttft": of_mean(0.2), "tpot": of_mean(0.02), "output_tokens": of_mean(101)}
    assert contradictions({**parts, "e2e": of_mean(2.2)}) == []
    assert contradictions({**parts, "e2e": of_mean(2200.0)})[0][0] == "units"


def of_mean(value: float) -> MeasureSummary:
    return MeasureSummary(statistics={"mean": value})


def test_a_unit_that_is_not_known_is_refused() -> None:
    said: dict[str, Any] = AIPERF | {"time_to_first_token": {"unit": "fortnights", "avg": 1.0}}
    with pytest.raises(DataError, match="fortnights"):
        found_in("p.json", said)
    with pytest.raises(DataError, match="is not known"):
        factor("minutes of arc")


def test_times_that_are_0_throughout_were_not_measured() -> None:
    run = only("r.json", VLLM | {"mean_itl_ms": 0.0, "median_itl_ms": 0.0})
    assert "itl" not in run.measures


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        *(("mean", "mean"), ("avg", "mean"), ("median", "p50"), ("std_dev", "std"), ("P25", "p25"), ("p01", "p1")),
        *(("p0p1", "p0.1"), ("p00p1", "p0.1"), ("p99p9", "p99.9"), ("p001", "p0.1"), ("p999", "p99.9"), ("p5", "p5")),
        *(("p99.9", "p99.9"), ("p100", "max"), ("p0", "min"), ("count", None), ("total", None), ("mode", None)),
    ],
)
def test_statistics_have_one_name(name: str, ours: str | None) -> None:
    assert statistic(name) == ours


def test_missing_is_missing() -> None:
    assert statistics({"mean": None, "p50": float("nan"), "p99": "inf", "max": True, "min": "0.5"}) == {"min": 0.5}
    assert [number(value) for value in ("", "None", None, "1e3", [])] == [None, None, None, 1000.0, None]  # type: ignore[var-annotated]
