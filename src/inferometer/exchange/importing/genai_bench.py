"""genai-bench: one JSON per scenario and concurrency, with `experiment_metadata.json` next to them. Times are in
`_time_unit`, by default seconds.

Fields: sgl-project/genai-bench, genai_bench/metrics/metrics.py, aggregated_metrics_collector.py and time_units.py.
"""

import re
from collections.abc import Mapping
from typing import Any

from inferometer.documents.files import text_in
from inferometer.documents.json_text import json_value
from inferometer.exchange.importing import fields
from inferometer.exchange.importing.source import ImportedPlan, ImportedRun, ImportFormat, ParsedFile, Source
from inferometer.exchange.importing.units import SECONDS, factor, known_rates, measure, number, statistics, whole
from inferometer.plan.draft import LoadDraft, WorkloadDraft
from inferometer.record.environment import Environment, ToolVersion
from inferometer.record.summary import MeasureSummary, Rate

TIMES = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2e_latency"}
AMOUNTS = {
    "input_tokens": "num_input_tokens",
    "output_tokens": "num_output_tokens",
    "reasoning_tokens": "num_reasoning_tokens",
    "user_speed": "output_inference_speed",
}
RATES = {
    "request_rate": "requests_per_second",
    "input_rate": "mean_input_throughput_tokens_per_s",
    "output_rate": "mean_output_throughput_tokens_per_s",
    "total_rate": "mean_total_tokens_throughput_tokens_per_s",
}
DEFINITIONS = {
    "ttft": "from just before the request is posted to the first content or reasoning, after its JSON is parsed",
    "tpot": "(E2E - TTFT) / (n - 1), E2E with [DONE] included",
    "e2e": "to the end of the stream, [DONE] and usage included",
    "quantiles": "linear interpolation, failed requests left out",
}
_DETERMINISTIC = re.compile(r"D\((\d+),\s*(\d+)\)")
_NORMAL = re.compile(r"N\((\d+),\s*(\d+)\)/\((\d+),\s*(\d+)\)")


def _fits(source: Source) -> bool:
    metrics = source.mapping().get("aggregated_metrics")
    return isinstance(metrics, Mapping) and "stats" in metrics and "num_concurrency" in metrics


def _read(source: Source) -> ParsedFile:
    metrics = source.mapping()["aggregated_metrics"]
    about = _experiment(source)
    unit = str(source.mapping().get("_time_unit") or "s")
    answered = whole(metrics.get("num_completed_requests"))
    run = ImportedRun(
        plan=_plan(metrics, about),
        environment=_environment(about),
        measures=_measures(metrics["stats"], factor(unit, SECONDS), answered),
        rates=_rates(metrics),
        answered=answered,
        failed=whole(metrics.get("num_error_requests")),
        duration_s=number(metrics.get("run_duration")) or None,
        definitions=DEFINITIONS,
        notes=_notes(metrics, about),
    )
    return ParsedFile([run])


def _measures(stats: Mapping[str, Any], scale: float, count: int | None) -> dict[str, MeasureSummary]:
    measures: dict[str, MeasureSummary] = {}
    for name, key in TIMES.items():
        measures |= measure(name, statistics(stats.get(key), scale), count)
    for name, key in AMOUNTS.items():
        measures |= measure(name, statistics(stats.get(key)), count)
    return measures


def _rates(metrics: Mapping[str, Any]) -> dict[str, Rate]:
    """Rates; older versions count per minute, and a rate of 0 was not computed."""
    per_minute = number(metrics.get("requests_per_minute"))
    rates = {name: number(metrics.get(key)) or None for name, key in RATES.items()}
    if rates["request_rate"] is None and per_minute is not None:
        rates["request_rate"] = per_minute / 60
    if not number(metrics.get("run_duration")):  # then its input rate is a mean over requests, not a rate of the run
        rates["input_rate"] = None
    return known_rates(rates)


def _experiment(source: Source) -> Mapping[str, Any]:
    content = source.sibling("experiment_metadata.json")
    try:
        metadata = json_value(text_in(content))[0] if content else {}
    except ValueError:
        return {}
    return metadata if isinstance(metadata, Mapping) else {}


def _plan(metrics: Mapping[str, Any], about: Mapping[str, Any]) -> ImportedPlan:
    return fields.plan_of(
        model=about.get("model") or about.get("api_model_name"),
        url=(about.get("auth_config") or {}).get("api_base") or about.get("api_base"),
        api="chat" if about.get("task") in ("text-to-text", "image-text-to-text") else None,
        workload=_workload(str(metrics.get("scenario") or "")),
        load=_load(metrics, about),
        requests=whole(about.get("max_requests_per_run")),
    )


def _load(metrics: Mapping[str, Any], about: Mapping[str, Any]) -> LoadDraft | None:
    level = metrics.get("num_concurrency")
    return fields.load(level, None, None) if _is_rate(metrics, about) else fields.closed(level)


def _is_rate(metrics: Mapping[str, Any], about: Mapping[str, Any]) -> bool:
    """Whether `num_concurrency` is the rate of an open loop (`--qps-level`), which the file does not state: if it is
    not among the concurrencies of the experiment, or not whole. Only runs with an arrival count may be open loops."""
    level, listed = number(metrics.get("num_concurrency")), about.get("num_concurrency")
    if level is None or metrics.get("arrival_requests_per_second") is None:
        return False
    return not level.is_integer() or (isinstance(listed, list) and level not in listed)


def _notes(metrics: Mapping[str, Any], about: Mapping[str, Any]) -> tuple[str, ...]:
    notes = []
    if _is_rate(metrics, about):
        notes.append("num_concurrency is read as the rate of an open loop: the experiment has no such concurrency")
    elif metrics.get("arrival_requests_per_second") is not None and not isinstance(about.get("num_concurrency"), list):
        notes.append("num_concurrency may be a rate (--qps-level): experiment_metadata.json, which has it, is missing")
    batch = whole(metrics.get("batch_size"))
    if batch is not None and batch > 1:
        notes.append(f"a request holds {batch} texts")
    return tuple(notes)


def _workload(scenario: str) -> WorkloadDraft | None:
    """The workload: `D(100,1000)` is fixed, `N(480,240)/(300,150)` mean and deviation of input and output."""
    if match := _DETERMINISTIC.fullmatch(scenario):
        return fields.lengths(match[1], match[2])
    if match := _NORMAL.fullmatch(scenario):
        return fields.lengths(match[1], match[3], match[2], match[4])
    return None


def _environment(about: Mapping[str, Any]) -> Environment:
    gpu, count = about.get("server_gpu_type"), about.get("server_gpu_count")
    return fields.environment_of(
        engine=about.get("server_engine"),
        version=about.get("server_version"),
        gpus=fields.gpus(gpu, count) if gpu else None,
        tool=ToolVersion(name="genai-bench", version=about.get("benchmark_version") or None),
    )


RUN = ImportFormat("genai-bench", _fits, _read)
