"""The two tables of Ray Serve's prefix-aware routing sweep (`_benchmarking_scripts/sweep_strategies.py`): one strategy
a line, with the header repeated by every append, and older files with other column names.

`serve_*_sweep_results.csv` is what the client saw, in milliseconds; its TPOT and output rate count the lengths that
were *asked*. `vllm_*_sweep_results.csv` is what the engines counted, in seconds, pooled over the replicas.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from inferometer.exchange.importing import fields as sayings
from inferometer.exchange.importing.fields import each_row
from inferometer.exchange.importing.sglang import DEFINITIONS, TIMES
from inferometer.exchange.importing.source import Format, Found, ImportedRun, Source
from inferometer.exchange.importing.units import (
    SECONDS,
    known_rates,
    measure,
    number,
    prefixed,
    statistics,
    told,
    value,
    whole,
)
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


def _read_serve(source: Source) -> Found:
    return each_row(source, lambda row: _client(row.said, source.name))


def _client(said: Mapping[str, Any], name: str) -> ImportedRun:
    answered = whole(said.get("completed"))
    found: dict[str, MeasureSummary] = {}
    for measured, ending in TIMES.items():
        found |= measure(measured, prefixed(said, ending, SECONDS["ms"]), answered)
    rates = {"request_rate": "request_throughput", "input_rate": "input_throughput", "output_rate": "output_throughput"}
    return ImportedRun(
        plan=_plan(said, name),
        environment=_environment(said),
        measures=found,
        rates=known_rates({measured: number(said.get(column)) for measured, column in rates.items()}),
        answered=answered,
        duration_s=number(said.get("duration")),
        definitions=DEFINITIONS | {"output_rate": "tokens *asked* of all answers / duration"},
        doubts=tuple(_asked_lengths(said)),
    )


def _asked_lengths(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """With ignore_eos on, what is asked is what comes; with it off, nobody counted."""
    if _is_on(said.get("disable_ignore_eos")):
        text = "Its TPOT and output rate count the lengths that were asked, and answers could end earlier"
        yield "asked_lengths", f"{text} (disable_ignore_eos): they are too good by as much."


def _is_on(said: Any) -> bool:
    return str(said).strip().lower() in ("true", "1", "yes")


def _read_engine(source: Source) -> Found:
    return each_row(source, lambda row: _engine(row.said, source.name))


def _engine(said: Mapping[str, Any], name: str) -> ImportedRun:
    """Means of the engines' own histograms: nothing of the way to the client is in them."""
    bare = {_ENGINE.sub("", column): each for column, each in said.items() if _ENGINE.match(column)}
    answered = whole(bare.get("request_success_total"))
    found: dict[str, MeasureSummary] = {}
    for short, column in ENGINE_TIMES.items():
        title = TITLES.get(short, f"{short.upper()} by the server")
        mean = statistics({"mean": bare.get(f"{column}_seconds")})
        found |= measure(f"server_{short}", mean, answered, unit="s", direction="lower", title=title)
    totals = {"prompt_tokens": "Prompt tokens in all", "generation_tokens": "Output tokens in all"}
    values = {key: value(number(bare.get(f"{key}_total")), "tokens", None, title) for key, title in totals.items()}
    return ImportedRun(
        plan=_plan(said, name),
        environment=_environment(said),
        measures=found,
        values=told(values),
        answered=answered,
        definitions={"server": "sum / count of the engines' histograms since their start, pooled over the replicas"},
    )


def _plan(said: Mapping[str, Any], name: str) -> dict[str, Any]:
    requests = whole(said.get("num_prompts"))
    strategy = next((said[column] for column in STRATEGY if said.get(column)), None)
    return sayings.plan_of(
        name=" ".join(filter(None, [said.get("benchmark_label"), strategy])) or None,
        model=said.get("model_name"),
        stream=not _is_on(said.get("disable_stream")),
        workload=_workload(said, name),
        load=sayings.load(said.get("request_rate"), said.get("max_concurrency"), requests),
        requests=requests,
    )


def _workload(said: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    least, most = whole(said.get("min_output_len")), whole(said.get("max_output_len"))
    outputs = {"output_tokens": least if least == most else f"{least}-{most}"} if least and most else {}
    if (prefix := whole(said.get("prefix_len"))) is not None:
        shared = {"tokens": prefix, "suffix_tokens": whole(said.get("suffix_len"))}
        shared |= {"groups": whole(said.get("num_prefixes")), "prompts": whole(said.get("suffixes_per_prefix"))}
        return {"type": "synthetic", "prefix": told(shared), **outputs}
    match = _NAME.search(name)
    found = sayings.dataset(match[1] if match else None)
    return {**(found or {"type": "synthetic"}), **outputs} if found or outputs else None


def _environment(said: Mapping[str, Any]) -> dict[str, Any]:
    strategy = next((said[column] for column in STRATEGY if said.get(column)), None)
    return sayings.environment_of(
        engine="vllm",
        gpus=sayings.gpus(said["gpu_type"], said.get("num_servers")) if said.get("gpu_type") else None,
        stack={"strategy": strategy, **{name: said[name] for name in STACK if said.get(name) not in (None, "")}},
    )


SERVE = Format("the client's table of a Ray Serve sweep", _is_serve, _read_serve)
ENGINE = Format("the engines' table of a Ray Serve sweep", _is_engine, _read_engine)
