"""More results in other tools' formats, written by hand: the minimal file of each tool."""

from typing import Any

from imported_files import stats

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
