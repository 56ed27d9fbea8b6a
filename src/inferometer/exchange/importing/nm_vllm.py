"""nm-vllm's BenchmarkResult (schema 0.0.0): metrics with key, unit and value, and the direction under `type` (in
the first version under `tool`).

Fields: neuralmagic/nm-vllm, neuralmagic/benchmarks/scripts/logging/benchmark_result.py.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from inferometer.errors import DataError
from inferometer.exchange.importing import fields
from inferometer.exchange.importing.source import ImportedPlan, ImportedRun, ImportFormat, ParsedFile, Source
from inferometer.exchange.importing.units import (
    SECONDS,
    factor,
    known_rates,
    measure,
    number,
    statistic,
    value,
    whole,
    without_none,
)
from inferometer.plan.foreign.common import without_missing
from inferometer.record.environment import Environment
from inferometer.record.summary import MeasureSummary, Rate, Value
from inferometer.vocabulary import Direction

BETTER: dict[str, Direction | None] = {  # both spellings
    **dict.fromkeys(("BiggerIsBetter", "CustomBiggerIsBetter"), "higher"),
    **dict.fromkeys(("SmallerIsBetter", "CustomSmallerIsBetter"), "lower"),
    "Observation": None,
}
RATES = {
    "request_throughput": "request_rate",
    "input_throughput": "input_rate",
    "output_throughput": "output_rate",
    "token_throughput": "total_rate",
}
DEFINITIONS = {
    "ttft": "from just before the request is posted to the first chunk",
    "tpot": "(E2E - TTFT) / (n - 1), n counted again by the tokenizer",
    "quantiles": "linear interpolation",
}
_TIME = re.compile(r"(mean|median|p\d+)_(ttft|tpot|request_latency)(?:_ms)?")
_NAMES = {"ttft": "ttft", "tpot": "tpot", "request_latency": "e2e"}
_GPUS = re.compile(r"(.+?)\s+x\s+(\d+)")


def _fits(source: Source) -> bool:
    return {"json_schema_version", "metrics", "script_name"} <= source.mapping().keys()


def _read(source: Source) -> ParsedFile:
    report = source.mapping()
    about = report.get("metadata") or {}
    script = str(report["script_name"])
    answered = whole(about.get("completed"))
    offline = "throughput" in script
    measures, rates, values = _sorted_out(report["metrics"], answered)
    run = ImportedRun(
        kind="throughput" if offline else "serving",
        started=fields.instant(report.get("epoch_time")) or fields.instant(report.get("date")),
        plan=_plan(report, about, offline),
        environment=_environment(report),
        measures=measures | _lengths(about, answered),
        rates=rates,
        values=values,
        answered=answered,
        duration_s=number(about.get("duration")),
        definitions={} if offline else DEFINITIONS,
    )
    return ParsedFile([run])


def _metrics(metrics: Any) -> Iterator[Mapping[str, Any]]:
    """The metrics, given by key or as a list."""
    for metric in metrics.values() if isinstance(metrics, Mapping) else metrics:
        way = metric.get("type", metric.get("tool"))
        if way not in BETTER:
            raise DataError(
                f"metric {metric.get('key')}: which way is better must be one of {', '.join(BETTER)}, got {way!r}"
            )
        yield metric


def _sorted_out(metrics: Any, count: int | None) -> tuple[dict[str, MeasureSummary], dict[str, Rate], dict[str, Value]]:
    """Metrics sorted into times (converted by their unit), rates and others."""
    times: dict[str, dict[str, float]] = {}
    rates: dict[str, float | None] = {}
    values: dict[str, Value | None] = {}
    for metric in _metrics(metrics):
        key, amount, unit = str(metric["key"]), number(metric.get("value")), str(metric.get("unit", ""))
        if amount is None:
            continue
        if match := _TIME.fullmatch(key):
            times.setdefault(_NAMES[match[2]], {})[str(statistic(match[1]))] = amount * factor(unit, SECONDS)
        elif key in RATES:
            rates[RATES[key]] = amount
        else:
            values[key] = value(amount, unit, BETTER[metric.get("type", metric.get("tool"))], key)
    measures = {
        name: metric for key, statistics in times.items() for name, metric in measure(key, statistics, count).items()
    }
    return measures, known_rates(rates), without_none(values)


def _lengths(about: Mapping[str, Any], count: int | None) -> dict[str, MeasureSummary]:
    measures: dict[str, MeasureSummary] = {}
    for name, key in (("input_tokens", "total_input"), ("output_tokens", "total_output")):
        total = number(about.get(key))
        if total is not None and count:
            measures |= measure(name, {"mean": total / count}, count)
    return measures


def _plan(report: Mapping[str, Any], about: Mapping[str, Any], offline: bool) -> ImportedPlan:
    args = report.get("script_args") or {}
    requests = whole(about.get("num_prompts"))
    lengths = fields.lengths(_first(args, "input"), _first(args, "output"))
    workload = lengths or fields.dataset(report.get("dataset"))
    if offline:
        offline_plan: ImportedPlan = {"model": report.get("model"), "num_prompts": requests, "workload": workload or {}}
        plan: ImportedPlan = without_missing(offline_plan)
        return plan
    return fields.plan_of(
        model=report.get("model"),
        workload=workload,
        load=fields.load(about.get("request_rate"), None, requests or whole(about.get("completed"))),
        requests=requests,
    )


def _first(args: Mapping[str, Any], side: str) -> Any:
    """The first value under any of its names, with dashes as on the command line or with underscores."""
    names = (f"num_{side}_tokens", f"num-{side}-tokens", f"{side}_len", f"{side}-len")
    return next((args[name] for name in names if args.get(name)), None)


def _environment(report: Mapping[str, Any]) -> Environment:
    context = report.get("benchmarking_context") or {}
    match = _GPUS.fullmatch(str(report.get("gpu_description") or ""))
    return fields.environment_of(
        engine="vllm",
        version=report.get("vllm_version") or context.get("vllm_version"),
        gpus=fields.gpus(match[1], match[2]) if match else context.get("cuda_device_names"),
        stack=without_none({"tensor_parallel_size": report.get("tensor_parallel_size")}),
        versions=without_none({name: context.get(f"{name}_version") for name in ("python", "torch", "torch_cuda")}),
        description=report.get("description"),
    )


RESULT = ImportFormat("an nm-vllm BenchmarkResult", _fits, _read)
