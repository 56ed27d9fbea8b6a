"""Every format: what it is recognised as, and that its numbers arrive in our units under our names."""

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

from inferometer.exchange.importing.summing import summary_of, verdict_of
from inferometer.measure.values import quantities
from inferometer.plan.model import Plan

GUIDELLM = {
    "metadata": {"guidellm_version": "0.8"},
    "config": {"spec": {"backend": {"target": "http://h:1", "model": "m"}, "data": [{"prompt_tokens": 32}]}},
    "benchmarks": [
        {
            "config": {"strategy": {"type_": "poisson", "rate": rate}},
            "start_time": 1786678147.25,
            "duration": 5.0,
            "metrics": {
                "request_totals": {"successful": 8, "errored": 1, "incomplete": 1, "total": 10},
                "time_to_first_token_ms": {"successful": {"mean": 11.5, "percentiles": {"p001": 1.0, "p999": 30.0}}},
                "request_latency": {"successful": {"mean": 0.5, "median": 0.4}},
                "requests_per_second": {"successful": {"mean": 1.6}},
            },
        }
        for rate in (2.0, 4.0)
    ],
}
AIPERF = {
    "request_throughput": {"unit": "requests/sec", "avg": 4.0},
    "request_latency": {"unit": "ms", "avg": 500.0, "p50": 480.0, "p99": 900.0, "std": 10.0},
    "request_count": {"unit": "requests", "avg": 32},
    "time_to_first_token": {"unit": "ms", "avg": 61.9, "min": 27.6},
    "inter_token_latency": {"unit": "ms", "avg": 4.15},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 728.5},
    "output_sequence_length": {"unit": "tokens", "avg": 100.0},
    "benchmark_duration": {"unit": "sec", "avg": 8.0},
    "input_config": {
        "endpoint": {"model_names": ["m"], "type": "chat", "url": "localhost:8000", "streaming": True},
        "loadgen": {"concurrency": 4},
        "input": {"prompt": {"input_tokens": {"mean": 550, "stddev": 0}, "output_tokens": {"mean": 100}}},
    },
    "start_time": "2025-10-07T05:00:07",
}
GENAI_BENCH: dict[str, Any] = {
    "aggregated_metrics": {
        "scenario": "N(480,240)/(300,150)",
        "num_concurrency": 8,
        "requests_per_minute": 120.0,
        "mean_output_throughput_tokens_per_s": 54.9,
        "num_error_requests": 1,
        "num_completed_requests": 32,
        "stats": {"ttft": stats(0.05, p99=0.4, stddev=0.1), "e2e_latency": stats(1.8), "num_output_tokens": stats(100)},
    },
    "individual_request_metrics": [],
}
LLMPERF = {
    "version": "2023-08-31",
    "name": "m_550_150_summary",
    "model": "m",
    "mean_input_tokens": 550,
    "stddev_input_tokens": 150,
    "mean_output_tokens": 150,
    "stddev_output_tokens": 10,
    "num_concurrent_requests": 4,
    "results_ttft_s_quantiles_p50": 0.3,
    "results_ttft_s_quantiles_p99": 0.9,
    "results_ttft_s_mean": 0.35,
    "results_ttft_s_stddev": 0.1,
    "results_end_to_end_latency_s_mean": 4.0,
    "results_inter_token_latency_s_mean": 0.027,
    "results_number_output_tokens_mean": 148.0,
    "results_number_errors": 1,
    "results_mean_output_throughput_token_per_s": 140.0,
    "results_num_completed_requests": 20,
    "results_num_completed_requests_per_min": 60.0,
    "timestamp": 1711447200,
}
LOADGEN = """================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Scenario : Server
Completed samples per second    : 81.68
Result is : INVALID
Mean latency (ns)               : 43579602295
99.00 percentile latency (ns)   : 136069232834
Mean First Token latency (ns)               : 918456323
99.90 percentile first token latency (ns)   : 2562462764
Mean Time to Output Token (ns)               : 144594078
target_qps : 83.5
ttft_latency (ns): 2000000000
"""
FMPERF = """prompt_tokens,generation_tokens,ttft,generation_time,user_id,question_id,launch_time,finish_time
100,11,0.1,0.5,1,1,1749570583.0,1749570583.6
120,21,0.2,1.0,2,1,1749570584.0,1749570585.2
120,oops,nan,1.0,2,1,1749570584.0,1749570585.2
"""
INFERX = """request_id,enqueue_time,send_time,first_byte_time,end_time,\
prompt_tokens,resp_tokens,bytes_received,status,error
0,1749570583.0,1749570583.1,1749570583.3,1749570583.5,10,,120,200,
1,1749570584.0,1749570584.0,1749570584.2,1749570584.6,10,,130,200,
2,1749570585.0,1749570585.0,,1749570585.1,10,,0,503,Service Unavailable
"""
GPU = "ts,mem_used_mb,mem_total_mb,gpu_util,gpu_mem_util\n1749570583.5,1024,81920,50,10\n1749570584.0,None,,,\n"
CI_LATENCY = [
    {
        "timestamp": f"2025-09-0{day}T23:28:30.571673+00:00",
        "results": [
            {"batch_size": 1, "avg_latency": 1.36, "p50": 1.35, "p90": 1.37, "p99": 1.4},
            {"batch_size": 2, "avg_latency": 1.41, "p50": 1.40, "p90": 1.44, "p99": 1.5},
        ],
    }
    for day in (4, 5)
]
CI_ONLINE = {
    "300_100": {
        "input_len": 300,
        "output_len": 100,
        "total_tokens": 400,
        "history": [
            {"timestamp": "2025-09-05T17:38:37.416651Z", "output_throughput": 1203.7, "mean_ttft_ms": 38.0},
            {"timestamp": "2025-09-05T19:05:11.848084Z", "output_throughput": 1204.7, "p99.9_ttft_ms": 275.0},
            {"timestamp": "yesterday", "mean_ttft_ms": 38.0},
        ],
    }
}
CI_CONCURRENCY = [
    {
        "timestamp": "2025-09-05T22:59:47.082457Z",
        "max_concurrency": 2,
        "total_token_throughput": 1089.5,
        "tokens_per_sec_user": 92.5,
        "mean_tpot_ms": 10.8,
        "mean_ttft_ms": 43.8,
        "cost_per_million_toks": 0.51,
    }
]
LIFECYCLE = {
    "load_summary": {"count": 60, "schedule_delay": stats(0.0004, median=0.0005), "requested_rate": 1.0},
    "successes": {
        "count": 60,
        "latency": {
            "time_to_first_token": stats(0.031, median=0.03, **{"p99.9": 0.041}),
            "request_latency": stats(0.48),
        },
        "throughput": {"output_tokens_per_sec": 64.2, "requests_per_sec": 1.0},
        "prompt_len": stats(204.1),
        "output_len": stats(63.2),
    },
    "failures": {"count": 3},
}
IP_REQUESTS = [
    {
        "start_time": 100.0,
        "end_time": 100.5,
        "info": {
            "request_metrics": {"text": {"input_tokens": 7}},
            "input_tokens": 7,
            "response_metrics": {"output_tokens": 4, "output_token_times": [100.1, 100.2, 100.2, 100.4]},
        },
        "error": None,
    },
    {
        "start_time": 101.0,
        "end_time": 101.1,
        "info": {"input_tokens": 7},
        "error": {"error_type": "HTTP Error 503", "error_msg": "busy"},
    },
]
AIPERF_REQUEST = {
    "metadata": {
        "session_num": 0,
        "x_request_id": "a",
        "turn_index": 0,
        "request_start_ns": 1759813207532900363,
        "request_end_ns": 1759813207838764604,
        "benchmark_phase": "profiling",
        "was_cancelled": False,
    },
    "metrics": {
        "input_sequence_length": {"value": 550, "unit": "tokens"},
        "time_to_first_token": {"value": 255.0, "unit": "ms"},
        "inter_chunk_latency": {"value": [5.0, 6.0], "unit": "ms"},
        "request_latency": {"value": 266.0, "unit": "ms"},
        "output_sequence_length": {"value": 3, "unit": "tokens"},
    },
    "error": None,
}
TREATMENTS = (
    "treatment,source_file,ttft_mean_s,ttft_p99_s,tpot_mean_s,e2e_mean_s,output_tps,request_qps,total_tps,"
    "total_requests,failures,input_len_mean,output_len_mean,tool,rate_qps\n"
    "conc32,a.yaml,{},1,100,10,110,500,5,1000,200,{},4\n"
)


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
    assert summary["measures"]["ttft"]["mean"] == pytest.approx(0.15)
    assert summary["measures"]["tpot"]["mean"] == pytest.approx(0.02)
    assert summary["measures"]["e2e"]["mean"] == pytest.approx(0.19)
    assert summary["measures"]["output_tokens"]["mean"] == 3
    assert "ttft_scheduled" not in summary["measures"]  # nobody kept when they were due
    assert summary["reported"]["measures"]["ttft"]["p99.9"] == pytest.approx(0.1999)
    assert verdict_of(run, summary, "x")["word"] == "doubtful"


def test_a_failed_request_is_data_and_its_asked_length_is_not_its_length() -> None:
    said = VLLM_DETAILED | {"errors": ["", "HTTP 503: busy"], "ttfts": [0.1, 0.0], "itls": [[0.02, 0.02], []]}
    run = only("r.json", said)
    assert run.records is not None
    summary = summary_of(run)
    assert summary["outcomes"] == {"ok": 1, "status_503": 1}
    assert summary["measures"]["output_tokens"]["count"] == 1
    assert summary["errors"][0]["message"] == "HTTP 503: busy"


def test_chunks_with_several_tokens_share_them_out_and_keep_every_gap() -> None:
    said = VLLM_DETAILED | {"output_lens": [6, 1], "itls": [[0.02, 0.02], [0.01]], "total_output_tokens": 7}
    records = only("r.json", said).records
    assert records is not None
    assert [records.read_tokens[records.reads(at)].tolist() for at in range(2)] == [[1, 3, 2], [1, 0]]


def test_metadata_between_the_fields_tells_the_stack() -> None:
    run = only("r.json", VLLM | {"version": "0.10.1", "gpu": "H100", "tp": "2", "api_key": "sk-secret"})
    assert run.environment["target"] == {"server": "vllm", "version": "0.10.1"}
    assert (run.environment["hardware"], run.environment["said"]) == ("H100", {"tp": "2"})


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
    assert run.environment["gpus"] == ["H100"] * 4
    assert run.plan["workload"]["input_tokens"] == {"mean": 480, "std": 240}


def test_fmperf_has_seconds_and_no_gaps() -> None:
    _, found = found_in("qps_output_2.5.csv", FMPERF)
    (run,) = found.runs
    summary = summary_of(run)
    assert summary["measures"]["ttft"]["mean"] == pytest.approx(0.15)
    assert summary["measures"]["tpot"]["mean"] == pytest.approx((0.5 / 10 + 1.0 / 20) / 2)
    assert not {"itl", "icl", "stall"} & summary["measures"].keys()
    assert len(found.broken) == 1 and found.broken[0].startswith("line 4: ttft must be a number")


def test_responses_of_llmperf_have_intervals_of_ours() -> None:
    rows = [{"ttft_s": 0.1 + at / 1000, "end_to_end_latency_s": 1.0, "error_code": None} for at in range(100)]
    run = only("m_individual_responses.json", [*rows, {"ttft_s": 0, "end_to_end_latency_s": 0, "error_code": 500}])
    assert (run.answered, run.failed) == (100, 1)
    assert run.measures["ttft"]["mean"] == pytest.approx(0.1495)
    assert run.measures["ttft"]["intervals"]["p50"][0] is not None


def test_a_result_that_loadgen_calls_invalid_is_invalid() -> None:
    run = only("s.txt", LOADGEN)
    assert verdict_of(run, summary_of(run), "x")["word"] == "invalid"


def test_requests_of_inference_perf_share_the_instant_of_their_chunk() -> None:
    name, found = found_in("per_request_lifecycle_metrics.json", IP_REQUESTS)
    assert name == "inference-perf-requests"
    records = found.runs[0].records
    assert records is not None
    assert records.read_tokens[records.reads(0)].tolist() == [1, 2, 1]
    summary = summary_of(found.runs[0])
    assert summary["outcomes"] == {"ok": 1, "status_503": 1}
    assert summary["measures"]["tpot"]["mean"] == pytest.approx(0.1)


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
    assert summary["measures"]["ttft"]["mean"] == pytest.approx(0.255, abs=1e-6)
    assert summary["measures"]["icl"]["max"] == pytest.approx(0.006, abs=1e-6)
    assert summary["outcomes"] == {"ok": 1, "cancelled": 1}


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
    assert [run.environment["stack"]["strategy"] for run in found.runs] == ["pow_of_2", "prefix_aware"]
    assert found.runs[1].measures["ttft"]["mean"] == pytest.approx(0.1367)
    assert found.runs[0].plan["workload"] == {"type": "sharegpt", "path": "sharegpt", "output_tokens": "10-200"}
    old = text.replace("scheduler_strategy", "routing_strategy")
    assert found_in("serve_x_sweep_results.csv", old)[1].runs[0].environment["stack"]["strategy"] == "pow_of_2"


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
    assert (run.kind, run.rates) == ("throughput", {"request_rate": 10.0, "total_rate": 500.0})
    run = only("startup.json", {"avg_cold_startup_time": 60.0, "cold_startup_percentiles": {"50": 59.0}})
    assert run.measures["startup_cold"]["p50"] == 59.0
    assert only("t.json", benchmark_result(script="benchmark_throughput")).kind == "throughput"


def test_inferx_without_token_counts_says_nothing_per_token() -> None:
    run = only("metrics.csv", INFERX, gpu_memory__csv=GPU)
    summary = summary_of(run)
    assert summary["measures"]["ttft"]["mean"] == pytest.approx(0.2)
    assert summary["measures"]["queue_wait"]["max"] == pytest.approx(0.1, abs=1e-6)
    assert not {"tpot", "output_tokens"} & summary["measures"].keys()
    assert "output_rate" not in summary["rates"]
    assert summary["outcomes"] == {"ok": 2, "status_503": 1}
    assert run.samples is not None
    at, values = run.samples.series("memory_used_bytes")
    assert (at.tolist(), values.tolist()) == ([500_000_000], [2.0**30])
