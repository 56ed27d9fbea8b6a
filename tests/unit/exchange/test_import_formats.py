"""Every format: how it is recognised, and that its numbers have our units and names."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from imported_files import (
    ENGINE_HEADER,
    SGLANG,
    SWEEP_HEADER,
    SWEEP_POW2,
    SWEEP_PREFIX,
    VLLM,
    VLLM_DETAILED,
    benchmark_result,
    found_in,
    only,
    report_v0_1,
    stats,
)
from imported_results import (
    AIPERF,
    AIPERF_REQUEST,
    CI_CONCURRENCY,
    CI_LATENCY,
    CI_ONLINE,
    FMPERF,
    GENAI_BENCH,
    GPU,
    GUIDELLM,
    INFERX,
    IP_REQUESTS,
    LIFECYCLE,
    LLMPERF,
    LOADGEN,
    TREATMENTS,
)

from inferometer.exchange.importing.importer import summary_of, verdict_of
from inferometer.measure.values import quantities
from inferometer.plan.model import Plan
from inferometer.record.environment import MeasuredTarget


@pytest.mark.parametrize(
    ("format_", "name", "content", "expected"),
    [
        (
            "vllm-bench-serve",
            "r.json",
            VLLM,
            {"ttft.mean": 0.15, "ttft.p50": 0.15, "ttft.p25": 0.125, "e2e.mean": 0.19},
        ),
        ("vllm-bench-serve", "r.json", VLLM, {"ttft.p99.9": 0.1999, "output_tokens.mean": 3, "input_rate": 300.0}),
        ("sglang-bench-serving", "r.jsonl", SGLANG, {"ttft.p99": 0.18, "itl.max": 0.044, "e2e.p50": 0.29}),
        ("aiperf", "profile_export_aiperf.json", AIPERF, {"e2e.p99": 0.9, "tpot.mean": 0.00415, "request_rate": 4.0}),
        ("genai-bench", "g.json", GENAI_BENCH, {"ttft.p99": 0.4, "request_rate": 2.0, "failure_rate": 1 / 33}),
        ("llmperf", "m_summary.json", LLMPERF, {"ttft.p99": 0.9, "ntpot.mean": 0.027, "request_rate": 1.0}),
        ("mlperf", "s.txt", LOADGEN, {"e2e_scheduled.p99": 136.069232834, "ttft_scheduled.p99.9": 2.562462764}),
        ("mlperf", "s.txt", LOADGEN, {"tpot.mean": 0.144594078, "ttft_latency_limit": 2.0, "request_rate": 81.68}),
        ("inference-perf", "stage_0_lifecycle_metrics.json", LIFECYCLE, {"ttft.p99.9": 0.041, "ttft.p50": 0.03}),
        ("inference-perf", "s.json", LIFECYCLE, {"schedule_delay.p50": 0.0005, "failure_rate": 3 / 63}),
        ("nm-vllm", "b.json", benchmark_result(), {"ttft.mean": 0.25, "e2e.p50": 0.9, "gpu_hours": 3.0}),
        ("nm-vllm", "b.json", benchmark_result("tool"), {"tpot.mean": 0.012, "request_rate": 2.5, "total_rate": 700.0}),
        ("ci-bench-concurrency", "d.json", CI_CONCURRENCY, {"tpot.mean": 0.0108, "cost_per_million_tokens": 0.51}),
        (
            "llm-d-report",
            "r.yaml",
            report_v0_1("vllm-benchmark", "ms", scale=1000),
            {"ttft.p25": 0.1, "tpot.mean": 0.02},
        ),
    ],
)
def test_numbers_arrive_in_our_units(format_: str, name: str, content: Any, expected: dict[str, float]) -> None:
    found, result = found_in(name, content)
    assert found == format_
    known = quantities(summary_of(result.runs[0]))
    assert {key: known[key].value for key in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.json", VLLM),
        ("r.jsonl", SGLANG),
        ("g.json", GUIDELLM),
        ("a.json", AIPERF),
        ("b.json", GENAI_BENCH),
        ("s.json", LLMPERF),
        ("s.txt", LOADGEN),
        ("f.csv", FMPERF),
        ("m.csv", INFERX),
        ("o.json", CI_ONLINE),
        ("c.json", CI_CONCURRENCY),
        ("l.json", LIFECYCLE),
        ("n.json", benchmark_result()),
        ("serve_sharegpt_sweep_results.csv", f"{SWEEP_HEADER}\n{SWEEP_POW2}\n"),
        ("t.csv", TREATMENTS.format("0.2,0.3,0.02", "inference-perf")),
    ],
)
def test_what_is_told_of_the_plan_is_a_plan(name: str, content: Any) -> None:
    _, found = found_in(name, content)
    for run in found.runs:
        Plan.model_validate(run.plan)
        assert run.kind == "serving"


def test_requests_of_vllm_are_rebuilt_with_every_instant() -> None:
    run = only("r.json", VLLM_DETAILED)
    assert run.records is not None
    summary = summary_of(run)
    assert summary.measures["ttft"]["mean"] == pytest.approx(0.15)
    assert summary.measures["tpot"]["mean"] == pytest.approx(0.02)
    assert summary.measures["e2e"]["mean"] == pytest.approx(0.19)
    assert summary.measures["output_tokens"]["mean"] == 3
    assert "ttft_scheduled" not in summary.measures  # nobody kept when they were due
    assert summary.reported.measures["ttft"]["p99.9"] == pytest.approx(0.1999)
    assert verdict_of(run, summary, "x").status == "valid"


def test_a_failed_request_is_data_and_its_asked_length_is_not_its_length() -> None:
    said = VLLM_DETAILED | {"errors": ["", "HTTP 503: busy"], "ttfts": [0.1, 0.0], "itls": [[0.02, 0.02], []]}
    run = only("r.json", said)
    assert run.records is not None
    summary = summary_of(run)
    assert summary.outcomes == {"ok": 1, "status_503": 1}
    assert summary.measures["output_tokens"].count == 1
    assert summary.errors[0].message == "HTTP 503: busy"


def test_chunks_with_several_tokens_share_them_out_and_keep_every_gap() -> None:
    said = VLLM_DETAILED | {"output_lens": [6, 1], "itls": [[0.02, 0.02], [0.01]], "total_output_tokens": 7}
    records = only("r.json", said).records
    assert records is not None
    assert [records.read_tokens[records.reads(at)].tolist() for at in range(2)] == [[1, 3, 2], [1, 0]]


def test_metadata_between_the_fields_tells_the_stack() -> None:
    run = only("r.json", VLLM | {"version": "0.10.1", "gpu": "H100", "tp": "2", "api_key": "sk-secret"})
    assert run.environment.target == MeasuredTarget(server="vllm", version="0.10.1")
    assert (run.environment.hardware, run.environment.metadata) == ("H100", {"tp": "2"})


def test_an_endless_rate_under_a_cap_is_a_closed_loop() -> None:
    assert only("r.json", VLLM | {"request_rate": "inf", "max_concurrency": 16}).plan["load"] == {
        "type": "concurrency",
        "concurrency": 16,
    }
    assert only("r.json", VLLM).plan["load"] == {"type": "poisson", "rate": 12.5}


def test_appended_results_are_a_run_each_and_broken_lines_are_named() -> None:
    lines = "\n".join(
        [json.dumps(VLLM), "{broken", json.dumps(VLLM | {"completed": None, "duration": "x"}), json.dumps(VLLM)]
    )
    name, found = found_in("r.json", lines)
    assert (name, len(found.runs)) == ("vllm-bench-serve", 3)
    assert [run.part for run in found.runs] == ["line 1", "line 3", "line 4"]


def test_each_benchmark_of_guidellm_is_a_run() -> None:
    _, found = found_in("g.json", GUIDELLM)
    assert [run.plan["load"]["rate"] for run in found.runs] == [2, 4]
    known = quantities(summary_of(found.runs[1]))
    assert known["ttft.mean"].value == pytest.approx(0.0115)
    assert known["e2e.mean"].value == 0.5  # seconds, where everything else is milliseconds
    assert known["ttft.p0.1"].value == pytest.approx(0.001)
    assert known["ttft.p99.9"].value == pytest.approx(0.03)
    assert found.runs[1].started == datetime.fromtimestamp(1786678147.25, UTC)


def test_genai_perf_is_told_from_aiperf() -> None:
    config = {"perf_analyzer": {"stimulus": {"request_rate": 5}}, "model_names": ["m"]}
    name, found = found_in("p.json", AIPERF | {"input_config": config})
    assert name == "genai-perf"
    assert found.runs[0].plan["load"] == {"type": "poisson", "rate": 5}


def test_genai_bench_in_milliseconds_with_its_metadata() -> None:
    metrics = GENAI_BENCH["aggregated_metrics"]
    metrics = metrics | {"stats": {"ttft": stats(50.0), "num_output_tokens": stats(100)}}
    about = {"server_engine": "SGLang", "server_version": "v0.6.0", "server_gpu_type": "H100", "server_gpu_count": "4"}
    run = only("g.json", {"aggregated_metrics": metrics, "_time_unit": "ms"}, experiment_metadata__json=about)
    assert run.measures["ttft"]["mean"] == pytest.approx(0.05)
    assert run.measures["output_tokens"]["mean"] == 100
    assert run.environment.gpus == ["H100"] * 4
    assert run.plan["workload"]["input_tokens"] == {"mean": 480, "std": 240}


def test_levels_of_genai_bench_are_rates_where_the_experiment_has_no_such_concurrency() -> None:
    metrics = GENAI_BENCH["aggregated_metrics"] | {"num_concurrency": 5.0, "arrival_requests_per_second": 4.9}
    about = {"num_concurrency": [1, 2, 4]}
    run = only("g.json", {"aggregated_metrics": metrics}, experiment_metadata__json=about)
    assert run.plan["load"] == {"type": "poisson", "rate": 5} and "rate of an open loop" in run.notes[0]
    closed = only("g.json", {"aggregated_metrics": metrics}, experiment_metadata__json={"num_concurrency": [5]})
    assert closed.plan["load"] == {"type": "concurrency", "concurrency": 5} and not closed.notes
    unknown = only("g.json", {"aggregated_metrics": metrics})
    assert unknown.plan["load"]["type"] == "concurrency" and "may be a rate" in unknown.notes[0]


def test_fmperf_has_seconds_and_no_gaps() -> None:
    _, found = found_in("qps_output_2.5.csv", FMPERF)
    (run,) = found.runs
    summary = summary_of(run)
    assert summary.measures["ttft"]["mean"] == pytest.approx(0.15)
    assert summary.measures["tpot"]["mean"] == pytest.approx((0.5 / 10 + 1.0 / 20) / 2)
    assert not {"itl", "icl", "stall"} & summary.measures.keys()
    assert len(found.broken) == 1 and found.broken[0].startswith("line 4: ttft must be a number")


def test_responses_of_llmperf_have_intervals_of_ours() -> None:
    rows = [
        {"ttft_s": 0.1 + at * 37 % 100 / 1000, "end_to_end_latency_s": 1.0, "error_code": None} for at in range(100)
    ]
    run = only("m_individual_responses.json", [*rows, {"ttft_s": 0, "end_to_end_latency_s": 0, "error_code": 500}])
    assert (run.answered, run.failed) == (100, 1)
    assert run.measures["ttft"]["mean"] == pytest.approx(0.1495)
    assert run.measures["ttft"].interval("p50")[0] is not None


def test_a_result_that_loadgen_calls_invalid_is_invalid() -> None:
    run = only("s.txt", LOADGEN)
    assert verdict_of(run, summary_of(run), "x").status == "invalid"


def test_requests_of_inference_perf_share_the_instant_of_their_chunk() -> None:
    name, found = found_in("per_request_lifecycle_metrics.json", IP_REQUESTS)
    assert name == "inference-perf-requests"
    records = found.runs[0].records
    assert records is not None
    assert records.read_tokens[records.reads(0)].tolist() == [1, 2, 1]
    summary = summary_of(found.runs[0])
    assert summary.outcomes == {"ok": 1, "status_503": 1}
    assert summary.measures["tpot"]["mean"] == pytest.approx(0.1)


def test_configuration_and_server_side_of_inference_perf_stand_beside_it() -> None:
    config = "server: {model_name: m, type: vllm}\ndata: {type: random, input_distribution: {mean: 50, std_dev: 10}}\n"
    served = {"load_summary": {}, "successes": {"time_to_first_token": stats(1.5)}, "failures": {}}
    run = only(
        "stage_2_lifecycle_metrics.json", LIFECYCLE, config__yaml=config, stage_2_prometheus_metrics__json=served
    )
    assert run.plan["target"]["model"] == "m"
    assert run.plan["workload"]["input_tokens"] == {"mean": 50, "std": 10}
    assert run.measures["server_ttft"]["mean"] == 1.5
    assert run.part == "stage 2"


def test_requests_of_aiperf_keep_their_chunks_and_cancellations() -> None:
    gone = {
        "metadata": AIPERF_REQUEST["metadata"] | {"was_cancelled": True},
        "metrics": {},
        "error": {"code": 499, "type": "RequestCancellationError", "message": "cancelled"},
    }
    name, found = found_in("profile_export.jsonl", f"{json.dumps(AIPERF_REQUEST)}\n{json.dumps(gone)}\n")
    assert name == "aiperf-requests"
    summary = summary_of(found.runs[0])
    assert summary.measures["ttft"]["mean"] == pytest.approx(0.255, abs=1e-6)
    assert summary.measures["icl"]["max"] == pytest.approx(0.006, abs=1e-6)
    assert summary.outcomes == {"ok": 1, "cancelled": 1}


def test_points_of_a_history_are_runs_at_their_times() -> None:
    name, found = found_in("data.json", CI_LATENCY)
    assert (name, [run.kind for run in found.runs]) == ("ci-bench-latency", ["latency", "latency"])
    assert found.runs[1].started == datetime(2025, 9, 5, 23, 28, 30, 571673, UTC)
    assert found.runs[0].measures["latency_bs2"]["p99"] == 1.5
    assert found.runs[0].plan == {"batch_sizes": [1, 2]}
    name, found = found_in("e2e_benchmark_data.json", CI_ONLINE)
    assert (name, len(found.runs)) == ("ci-bench-online", 2)
    assert found.runs[0].plan["load"] == {"type": "poisson", "rate": 12.5}
    assert found.runs[1].measures["ttft"]["p99.9"] == pytest.approx(0.275)
    assert found.broken == ["300_100, point 2: timestamp must be an instant in ISO 8601, got 'yesterday'"]


def test_repeated_headers_are_no_rows_and_old_column_names_are_known() -> None:
    text = f"{SWEEP_HEADER}\n{SWEEP_POW2}\n{SWEEP_HEADER}\n{SWEEP_PREFIX}\n{SWEEP_POW2},too many\n"
    name, found = found_in("serve_sharegpt_sweep_results.csv", text)
    assert (name, len(found.runs)) == ("ray-serve-sweep", 2)
    assert [run.environment.stack["strategy"] for run in found.runs] == ["pow_of_2", "prefix_aware"]
    assert found.runs[1].measures["ttft"]["mean"] == pytest.approx(0.1367)
    assert found.runs[0].plan["workload"] == {"type": "sharegpt", "path": "sharegpt", "output_tokens": "10-200"}
    old = text.replace("scheduler_strategy", "routing_strategy")
    assert found_in("serve_x_sweep_results.csv", old)[1].runs[0].environment.stack["strategy"] == "pow_of_2"


def test_the_engines_table_is_in_seconds() -> None:
    text = f"{ENGINE_HEADER}\nL4,m,4,pow_of_2,1000,2000000,100000,1001,0.11,0.0208,0.065\n"
    name, found = found_in("vllm_sharegpt_sweep_results.csv", text)
    assert name == "ray-vllm-sweep"
    assert found.runs[0].measures["server_queue"]["mean"] == 0.0208
    assert found.runs[0].answered == 1001


def test_offline_results_are_runs_of_their_kind() -> None:
    latency = {"avg_latency": 0.6, "latencies": [0.5, 0.7], "percentiles": {"50": 0.6, "99": 0.69}}
    run = only("latency_bs8.json", latency)
    assert (run.kind, run.plan) == ("latency", {"batch_sizes": [8]})
    assert run.measures["latency_bs8"]["p99"] == 0.69
    said = {"elapsed_time": 10.0, "num_requests": 100, "total_num_tokens": 5000, "requests_per_second": 10.0}
    run = only("throughput.json", said | {"tokens_per_second": 500.0})
    rates = {name: rate.value for name, rate in run.rates.items()}
    assert (run.kind, rates) == ("throughput", {"request_rate": 10.0, "total_rate": 500.0})
    run = only("startup.json", {"avg_cold_startup_time": 60.0, "cold_startup_percentiles": {"50": 59.0}})
    assert run.measures["startup_cold"]["p50"] == 59.0
    assert only("t.json", benchmark_result(script="benchmark_throughput")).kind == "throughput"


def test_inferx_without_token_counts_says_nothing_per_token() -> None:
    run = only("metrics.csv", INFERX, gpu_memory__csv=GPU)
    summary = summary_of(run)
    assert summary.measures["ttft"]["mean"] == pytest.approx(0.2)
    assert summary.measures["queue_wait"]["max"] == pytest.approx(0.1, abs=1e-6)
    assert not {"tpot", "output_tokens"} & summary.measures.keys()
    assert "output_rate" not in summary.rates
    assert summary.outcomes == {"ok": 2, "status_503": 1}
    assert run.samples is not None
    at, values = run.samples.series("memory_used_bytes")
    assert (at.tolist(), values.tolist()) == ([500_000_000], [2.0**30])
