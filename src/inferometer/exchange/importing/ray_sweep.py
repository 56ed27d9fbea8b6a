"""The two tables of Ray Serve's prefix-aware routing sweep (`_benchmarking_scripts/sweep_strategies.py`): one strategy
a line, with the header repeated by every append, and older files with other column names.

`serve_*_sweep_results.csv` is what the client saw, in milliseconds; its TPOT and output rate count the lengths that
were *asked*. `vllm_*_sweep_results.csv` is what the engines counted, in seconds, pooled over the replicas.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from inferometer.exchange.importing import fields
from inferometer.exchange.importing.fields import run_per_row
from inferometer.exchange.importing.sglang import DEFINITIONS, TIMES
from inferometer.exchange.importing.source import Format, ImportedPlan, ImportedRun, ParsedFile, Source
from inferometer.exchange.importing.units import (
    SECONDS,
    known_rates,
    measure,
    number,
    prefixed,
    statistics,
    value,
    whole,
    without_none,
)
from inferometer.plan.draft import WorkloadDraft
from inferometer.record.environment import Environment
from inferometer.record.summary import MeasureSummary

STRATEGY = ("scheduler_strategy", "routing_strategy", "router_strategy")  # the newest name first
STACK = ("num_servers", "enable_prefix_caching", "enable_chunked_prefill", "benchmark_label", "with_warmup")
ENGINE_TIMES = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "e2e": "e2e_request_latency",
    "queue": "request_queue_time",
    "inference": "request_inference_time",
    "prefill": "request_prefill_time",
    "decode": "request_decode_time",
}
TITLES = {
    "queue": "Queue time in the engine",
    "inference": "Inference time in the engine",
    "prefill": "Prefill time in the engine",
    "decode": "Decode time in the engine",
}
_ENGINE = re.compile(r"(?:ray_)?vllm[:_]")
_NAME = re.compile(r"(?:serve|vllm)_(.+)_sweep_results")


def _is_sweep(source: Source) -> bool:
    columns = set(source.columns())
    return {"gpu_type", "model_name"} <= columns and bool(columns & set(STRATEGY))


def _is_serve(source: Source) -> bool:
    return _is_sweep(source) and "mean_ttft_ms" in source.columns()


def _is_engine(source: Source) -> bool:
    return _is_sweep(source) and any(_ENGINE.match(column) for column in source.columns())


def _read_serve(source: Source) -> ParsedFile:
    return run_per_row(source, lambda row: _client(row.fields, source.name))


def _client(row: Mapping[str, Any], name: str) -> ImportedRun:
    answered = whole(row.get("completed"))
    measures: dict[str, MeasureSummary] = {}
    for measured, ending in TIMES.items():
        measures |= measure(measured, prefixed(row, ending, SECONDS["ms"]), answered)
    rates = {"request_rate": "request_throughput", "input_rate": "input_throughput", "output_rate": "output_throughput"}
    return ImportedRun(
        plan=_plan(row, name),
        environment=_environment(row),
        measures=measures,
        rates=known_rates({measured: number(row.get(column)) for measured, column in rates.items()}),
        answered=answered,
        duration_s=number(row.get("duration")),
        definitions=DEFINITIONS | {"output_rate": "tokens *asked* of all answers / duration"},
        doubts=tuple(_length_doubts(row)),
    )


def _length_doubts(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """With ignore_eos on, what is asked is what comes; with it off, nobody counted."""
    if _is_on(row.get("disable_ignore_eos")):
        text = "Its TPOT and output rate use the requested lengths, but answers could end earlier"
        yield "asked_lengths", f"{text} (disable_ignore_eos): they are too optimistic by that amount."


def _is_on(value: Any) -> bool:
    return str(value).strip().lower() in ("true", "1", "yes")


def _read_engine(source: Source) -> ParsedFile:
    return run_per_row(source, lambda row: _engine(row.fields, source.name))


def _engine(row: Mapping[str, Any], name: str) -> ImportedRun:
    """Means of the engines' own histograms: nothing of the way to the client is in them."""
    bare = {_ENGINE.sub("", column): cell for column, cell in row.items() if _ENGINE.match(column)}
    answered = whole(bare.get("request_success_total"))
    measures: dict[str, MeasureSummary] = {}
    for short, column in ENGINE_TIMES.items():
        title = TITLES.get(short, f"{short.upper()} by the server")
        mean = statistics({"mean": bare.get(f"{column}_seconds")})
        measures |= measure(f"server_{short}", mean, answered, unit="s", direction="lower", title=title)
    totals = {"prompt_tokens": "Prompt tokens in all", "generation_tokens": "Output tokens in all"}
    values = {key: value(number(bare.get(f"{key}_total")), "tokens", None, title) for key, title in totals.items()}
    return ImportedRun(
        plan=_plan(row, name),
        environment=_environment(row),
        measures=measures,
        values=without_none(values),
        answered=answered,
        definitions={"server": "sum / count of the engines' histograms since their start, pooled over the replicas"},
    )


def _plan(row: Mapping[str, Any], name: str) -> ImportedPlan:
    requests = whole(row.get("num_prompts"))
    strategy = next((row[column] for column in STRATEGY if row.get(column)), None)
    return fields.plan_of(
        name=" ".join(filter(None, [row.get("benchmark_label"), strategy])) or None,
        model=row.get("model_name"),
        stream=not _is_on(row.get("disable_stream")),
        workload=_workload(row, name),
        load=fields.load(row.get("request_rate"), row.get("max_concurrency"), requests),
        requests=requests,
    )


def _workload(row: Mapping[str, Any], name: str) -> WorkloadDraft | None:
    least, most = whole(row.get("min_output_len")), whole(row.get("max_output_len"))
    outputs: WorkloadDraft = {}
    if least and most:
        outputs["output_tokens"] = least if least == most else f"{least}-{most}"
    if (prefix := whole(row.get("prefix_len"))) is not None:
        shared = {"tokens": prefix, "suffix_tokens": whole(row.get("suffix_len"))}
        shared |= {"groups": whole(row.get("num_prefixes")), "prompts": whole(row.get("suffixes_per_prefix"))}
        return {"type": "synthetic", "prefix": without_none(shared), **outputs}
    match = _NAME.search(name)
    workload = fields.dataset(match[1] if match else None)
    if not workload and not outputs:
        return None
    return {**(workload or WorkloadDraft(type="synthetic")), **outputs}


def _environment(row: Mapping[str, Any]) -> Environment:
    strategy = next((row[column] for column in STRATEGY if row.get(column)), None)
    return fields.environment_of(
        engine="vllm",
        gpus=fields.gpus(row["gpu_type"], row.get("num_servers")) if row.get("gpu_type") else None,
        stack={"strategy": strategy, **{name: row[name] for name in STACK if row.get(name) not in (None, "")}},
    )


SERVE = Format("the client's table of a Ray Serve sweep", _is_serve, _read_serve)
ENGINE = Format("the engines' table of a Ray Serve sweep", _is_engine, _read_engine)
