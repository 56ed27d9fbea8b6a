"""nm-vllm's BenchmarkResult, schema 0.0.0: every metric with its unit and whether bigger or smaller is better. Times
are milliseconds; tail percentiles are observed only. Fields: neuralmagic/nm-vllm,
neuralmagic/benchmarks/scripts/logging."""

import json
from collections.abc import Iterator

from inferometer.documents.document import JsonValue
from inferometer.exchange.exporting import (
    DocumentPiece,
    ExportRequest,
    duration_of,
    gpu_text,
    json_piece,
    label_of,
    of_kind,
    rate_of,
    started,
    traffic_of,
)
from inferometer.measure.values import Quantity, quantities
from inferometer.record.run import Run
from inferometer.record.sanitize import file_name_part

MS = 1000.0
BIGGER, SMALLER, OBSERVED = "BiggerIsBetter", "SmallerIsBetter", "Observation"
RATES = {
    "request_throughput": ("request_rate", "prompts/s"),
    "input_throughput": ("input_rate", "tokens/s"),
    "output_throughput": ("output_rate", "tokens/s"),
}
OFFLINE = {"request_throughput": ("request_rate", "prompts/s"), "token_throughput": ("total_rate", "tokens/s")}
TIMES = {"request_latency": "e2e", "ttft_ms": "ttft", "tpot_ms": "tpot"}
STATISTICS = {"mean": "mean", "median": "p50", "p90": "p90", "p99": "p99"}
STEADY = ("mean", "median")  # other statistics vary too much from run to run for an alert


def export(request: ExportRequest) -> list[DocumentPiece]:
    kinds = {"serving": "benchmark_serving", "throughput": "benchmark_throughput"}
    return [json_piece(file_name(run), result(run, of_kind(run, kinds, "nm-vllm's result"))) for run in request.runs]


def result(run: Run, script: str = "benchmark_serving") -> dict[str, JsonValue]:
    when = started(run)
    return {
        "json_schema_version": "0.0.0",
        "vllm_version": run.subject.engine_version,
        "benchmarking_context": _context(run),
        "description": label_of(run, run.plan.title),
        "gpu_description": gpu_text(run),
        "date": when.strftime("%Y-%m-%d %H:%M:%S UTC"),
        "epoch_time": when.timestamp(),
        "script_name": script,
        "tensor_parallel_size": run.plan.server_args.get("tensor_parallel_size"),
        "model": run.subject.model,
        "tokenizer": traffic_of(run).section("workload").text("tokenizer") or run.subject.model,
        "dataset": _dataset(run),
        "script_args": json.loads(json.dumps(dict(run.plan), default=str)),
        "metadata": _metadata(run),
        "metrics": {metric["key"]: metric for metric in _metrics(run)},
    }


def _context(run: Run) -> dict[str, JsonValue]:
    gpus = list(run.subject.accelerators)
    return {
        "vllm_version": run.subject.engine_version,
        "python_version": run.environment.python.version if run.environment.python else None,
        "torch_version": None,
        "torch_cuda_version": None,
        "cuda_devices": str(len(gpus)),
        "cuda_device_names": gpus,
    }


def _dataset(run: Run) -> str:
    return traffic_of(run).section("workload").text("type") or "synthetic"


def _metadata(run: Run) -> dict[str, JsonValue]:
    """Metadata with served lengths; an infinite rate is the text `inf`."""
    outcomes = run.summary.outcomes
    done = outcomes.get("ok", run.summary.requests)
    rate, values = rate_of(run), quantities(run.summary)
    return {
        "completed": done,
        "duration": duration_of(run),
        "total_input": _total(values.get("input_tokens.mean"), done),
        "total_output": _total(values.get("output_tokens.mean"), done),
        "num_prompts": sum(outcomes.values()) or done,
        "request_rate": "inf" if rate is None else rate,
    }


def _total(mean: Quantity | None, done: int | None) -> int | None:
    return None if mean is None or done is None else round(mean.value * done)


def _metrics(run: Run) -> Iterator[dict[str, JsonValue]]:
    values = quantities(run.summary)
    for key, (ours, unit) in (OFFLINE if run.kind == "throughput" else RATES).items():
        if quantity := values.get(ours):
            yield {"key": key, "unit": unit, "value": quantity.value, "type": BIGGER}
    for key, ours in TIMES.items():
        for name, statistic in STATISTICS.items():
            if quantity := values.get(f"{ours}.{statistic}"):
                kind = SMALLER if name in STEADY else OBSERVED
                yield {"key": f"{name}_{key}", "unit": "ms", "value": quantity.value * MS, "type": kind}


def file_name(run: Run) -> str:
    """The file name as in nm-vllm's scripts: `benchmark_serving-vllm-2.5qps-opt-125m-20240326-101112.json`."""
    when, model = started(run).strftime("%Y%m%d-%H%M%S"), run.subject.model or "unknown"
    backend = file_name_part((run.subject.engine or "vllm").lower())
    if run.kind == "throughput":
        return f"benchmark_throughput-{backend}-{file_name_part(model)}-{when}.json"
    rate = rate_of(run)
    pace = "inf" if rate is None else f"{rate:g}"
    return f"benchmark_serving-{backend}-{pace}qps-{file_name_part(model.rsplit('/', 1)[-1])}-{when}.json"
