"""Small results in other tools' formats, written by hand; each has a name and its content."""

import json
from typing import Any

from inferometer.exchange.importing.recognise import format_named, parse, recognise
from inferometer.exchange.importing.source import ImportedRun, ParsedFile, Source


def source(name: str, content: Any, **beside: Any) -> Source:
    """A file; `beside` are others, with `__` for the dot in their names."""
    others = {each.replace("__", "."): _bytes(said) for each, said in beside.items()}
    return parse(name, _bytes(content), sibling=others.get)


def _bytes(content: Any) -> bytes:
    return content.encode() if isinstance(content, str) else json.dumps(content).encode()


def found_in(name: str, content: Any, **beside: Any) -> tuple[str, ParsedFile]:
    file = source(name, content, **beside)
    format_ = recognise(file)
    return format_, format_named(format_).read(file)


def only(name: str, content: Any, **beside: Any) -> ImportedRun:
    _, found = found_in(name, content, **beside)
    assert not found.broken
    (run,) = found.runs
    return run


VLLM: dict[str, Any] = {
    "date": "20250904-232830",
    "endpoint_type": "vllm",
    "backend": "vllm",
    "label": None,
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "tokenizer_id": "meta-llama/Llama-3.1-8B-Instruct",
    "num_prompts": 2,
    "request_rate": 12.5,
    "burstiness": 1.0,
    "max_concurrency": None,
    "duration": 2.0,
    "completed": 2,
    "failed": 0,
    "total_input_tokens": 600,
    "total_output_tokens": 6,
    "request_throughput": 1.0,
    "request_goodput": None,
    "output_throughput": 3.0,
    "total_token_throughput": 303.0,
    "mean_ttft_ms": 150.0,
    "median_ttft_ms": 150.0,
    "std_ttft_ms": 50.0,
    "p25_ttft_ms": 125.0,
    "p99.9_ttft_ms": 199.9,
    "mean_tpot_ms": 20.0,
    "mean_itl_ms": 20.0,
    "mean_e2el_ms": 190.0,
}
VLLM_DETAILED = VLLM | {
    "input_lens": [300, 300],
    "output_lens": [3, 3],
    "ttfts": [0.1, 0.2],
    "itls": [[0.02, 0.02], [0.02, 0.02]],
    "start_times": [1000.0, 1001.0],
    "generated_texts": ["", ""],
    "errors": ["", ""],
}
SGLANG: dict[str, Any] = {
    "backend": "sglang",
    "dataset_name": "sharegpt",
    "request_rate": 100.0,
    "max_concurrency": 40,
    "duration": 10.0,
    "completed": 100,
    "total_input_tokens": 5000,
    "total_output_tokens": 2000,
    "total_output_tokens_retokenized": 1000,
    "request_throughput": 10.0,
    "input_throughput": 500.0,
    "output_throughput": 200.0,
    "mean_e2e_latency_ms": 300.0,
    "median_e2e_latency_ms": 290.0,
    "mean_ttft_ms": 100.0,
    "median_ttft_ms": 90.0,
    "p99_ttft_ms": 180.0,
    "mean_tpot_ms": 10.0,
    "mean_itl_ms": 11.0,
    "max_itl_ms": 44.0,
    "concurrency": 3.0,
}


def stats(mean: float, **more: float) -> dict[str, float]:
    return {"mean": mean, **more}


def report_v0_1(tool: str, units: str, latency_units: str | None = None, scale: float = 1.0) -> dict[str, Any]:
    """A report of version 0.1 with a TTFT of 200 ms, a TPOT of 20 ms and an E2E of 820 ms, written in `units`."""

    def time(mean_s: float, unit: str, p25: float | None = None) -> dict[str, Any]:
        said: dict[str, Any] = {"units": unit, "mean": mean_s * scale}
        return said if p25 is None else said | {"P25": p25 * scale, "p99p9": 2 * p25 * scale}

    return {
        "version": "0.1",
        "scenario": {
            "host": {"accelerator": [{"model": "H100", "count": 2, "memory": 80}], "type": ["replica"]},
            "platform": {"engine": [{"name": "vllm", "version": "0.9.0"}]},
            "model": {"name": "m"},
            "load": {"name": tool, "args": {}},
        },
        "metrics": {
            "time": {"duration": 10.0, "start": 1749570583.5},
            "requests": {
                "total": 12,
                "failures": 2,
                "input_length": {"units": "count", "mean": 100},
                "output_length": {"units": "count", "mean": 32},
            },
            "latency": {
                "time_to_first_token": time(0.2, units, p25=0.1),
                "time_per_output_token": time(0.02, f"{units}/token"),
                "request_latency": time(0.82, latency_units or units),
            },
            "throughput": {"total_tokens_per_sec": 132.0, "output_tokens_per_sec": 32.0},
        },
    }


SWEEP_HEADER = (
    "gpu_type,model_name,num_servers,enable_prefix_caching,enable_chunked_prefill,benchmark_label,scheduler_strategy,"
    "min_output_len,max_output_len,max_concurrency,request_rate,with_warmup,disable_ignore_eos,disable_stream,"
    "max_conversations,num_prompts,duration,completed,request_throughput,input_throughput,output_throughput,"
    "mean_ttft_ms,median_ttft_ms,std_ttft_ms,p99_ttft_ms,mean_tpot_ms,median_tpot_ms,std_tpot_ms,p99_tpot_ms,"
    "mean_itl_ms,median_itl_ms,std_itl_ms,p99_itl_ms,mean_e2e_latency_ms,median_e2e_latency_ms"
)
SWEEP_POW2 = (
    "L4,Qwen/Qwen2.5-1.5B-Instruct,4,True,True,label,pow_of_2,10,200,40,100,True,False,False,10000,1000,"
    "65.9,1000,15.2,50000,1600,193.9,180,40,400,23.96,23,2,30,23,0.0142,20,90,2569,2500"
)
SWEEP_PREFIX = SWEEP_POW2.replace("pow_of_2", "prefix_aware").replace("65.9", "56.4").replace("193.9", "136.7")
ENGINE_HEADER = (
    "gpu_type,model_name,num_servers,scheduler_strategy,num_prompts,ray_vllm:prompt_tokens_total,"
    "ray_vllm:generation_tokens_total,ray_vllm:request_success_total,ray_vllm:time_to_first_token_seconds,"
    "ray_vllm:request_queue_time_seconds,ray_vllm:request_prefill_time_seconds"
)


def benchmark_result(spelling: str = "type", script: str = "benchmark_serving") -> dict[str, Any]:
    """nm-vllm's, with the direction under `type`, or under `tool` as it was at first."""

    def metric(key: str, unit: str, value: float, way: str) -> dict[str, Any]:
        return {"key": key, "unit": unit, "value": value, spelling: f"Custom{way}" if spelling == "tool" else way}

    metrics = [
        metric("request_throughput", "prompts/s", 2.5, "BiggerIsBetter"),
        metric("mean_ttft_ms", "ms", 250.0, "SmallerIsBetter"),
        metric("median_request_latency", "ms", 900.0, "SmallerIsBetter"),
        metric("mean_tpot_ms", "ms", 12.0, "SmallerIsBetter"),
        metric("token_throughput", "tokens/s", 700.0, "BiggerIsBetter"),
        metric("gpu_hours", "h", 3.0, "SmallerIsBetter"),
    ]
    return {
        "json_schema_version": "0.0.0",
        "vllm_version": "0.4.0",
        "benchmarking_context": {"vllm_version": "0.4.0", "torch_version": "2.1", "cuda_device_names": ["A100"]},
        "description": "d",
        "gpu_description": "NVIDIA A100-SXM4-80GB x 2",
        "date": "2024-03-26 10:00:00 UTC",
        "epoch_time": 1711447200,
        "script_name": script,
        "tensor_parallel_size": 2,
        "model": "m",
        "tokenizer": "m",
        "dataset": "sharegpt",
        "script_args": {},
        "metadata": {
            "completed": 100,
            "duration": 40.0,
            "total_input": 20000,
            "total_output": 12000,
            "num_prompts": 100,
            "request_rate": "inf",
        },
        "metrics": {each["key"]: each for each in metrics},
    }
