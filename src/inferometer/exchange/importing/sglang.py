"""`sglang.bench_serving --output-file`: one JSON object per line, appended by each run; derived tools write the same.

Fields: sgl-project/sglang, python/sglang/bench_serving.py. Times of the summary are milliseconds, those of
`--output-details` seconds. Output lengths are the server's; if it sends no usage, the requested ones.
`total_output_tokens_retokenized` (the text counted again with a tokenizer) reveals that.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TypedDict

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.exchange.importing import fields
from inferometer.exchange.importing.fields import run_per_row
from inferometer.exchange.importing.requests import NOT_CONNECTED, NOT_SCHEDULED, records_of
from inferometer.exchange.importing.source import ImportedPlan, ImportedRun, ImportFormat, ParsedFile, Source
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
from inferometer.exchange.importing.vllm import ARRAYS, UNKNOWN_ARRIVALS, CommonResult, failed_of, requests_of
from inferometer.plan.draft import PrefixDraft, WorkloadDraft
from inferometer.plan.foreign.common import without_missing
from inferometer.record.environment import Environment
from inferometer.record.summary import MeasureSummary, Rate, Value

TIMES = {"ttft": "_ttft_ms", "tpot": "_tpot_ms", "itl": "_itl_ms", "e2e": "_e2e_latency_ms"}
DEFINITIONS = {
    "ttft": "from just before the request is posted to the first non-empty content or reasoning",
    "tpot": "(E2E - TTFT) / (n - 1), n as requested where the server sends no usage",
    "itl": "gaps between chunks, however many tokens each brings",
    "e2e": "to the last line, [DONE] included",
    "output_rate": "tokens / time from the first send to the last answer, the drain included",
    "concurrency": "sum of E2E / duration",
    "quantiles": "linear interpolation, failed requests left out",
}
RECOUNT_TOLERANCE = 0.05  # a tokenizer counts 1 or 2% less for the same text; beyond that answers ended early


class ServerInfo(TypedDict, total=False):
    model_path: JsonValue


class ServingResult(CommonResult, total=False):
    model: JsonValue
    server_info: ServerInfo | None
    dataset_name: JsonValue
    random_input_len: JsonValue
    random_output_len: JsonValue
    random_range_ratio: JsonValue
    total_output_tokens_retokenized: JsonValue
    input_throughput: JsonValue
    concurrency: JsonValue
    accept_length: JsonValue


SweepRow = Mapping[str, str]  # a row of the CSV of a Ray sweep, by column


def is_serving(result: JsonObject) -> bool:
    timed = {"mean_ttft_ms", "median_ttft_ms"} & result.keys()  # files of 2024 have only medians
    return {"completed", "duration", "output_throughput"} <= result.keys() and bool(timed) and "model_id" not in result


def _fits(source: Source) -> bool:
    return source.form != "csv" and bool(source.rows()) and is_serving(source.rows()[0].fields)


def _read(source: Source) -> ParsedFile:
    return run_per_row(source, lambda row: imported(row.typed(ServingResult)))


def imported(result: ServingResult) -> ImportedRun:
    answered = whole(result.get("completed"))
    detailed = all(isinstance(result.get(array), list) for array in ARRAYS)
    timed = isinstance(result.get("start_times"), list)
    return ImportedRun(
        started=fields.instant(result.get("date")),
        plan=_plan(result),
        environment=fields.environment_of(engine=result.get("backend"), stack=_stack(result)),
        measures=measures_of(result, answered),
        rates=rates_of(result),
        values=_values(result),
        concurrency=number(result.get("concurrency")),
        answered=answered,
        duration_s=number(result.get("duration")),
        definitions=DEFINITIONS,
        records=records_of(requests_of(result)) if detailed else None,
        failed=failed_of(result),
        underivable=(*NOT_SCHEDULED, *NOT_CONNECTED),
        arrivals_known=timed or not detailed,
        doubts=tuple(_length_doubts(result)),
        notes=() if timed or not detailed else (UNKNOWN_ARRIVALS,),
    )


def measures_of(result: ServingResult, count: int | None) -> dict[str, MeasureSummary]:
    measures: dict[str, MeasureSummary] = {}
    for name, ending in TIMES.items():
        measures |= measure(name, prefixed(result, ending, SECONDS["ms"]), count)
    for name, total in (("input_tokens", number(result.get("total_input_tokens"))), ("output_tokens", _came(result))):
        if total is not None and count:
            measures |= measure(name, {"mean": total / count}, count)
    return measures


def _came(result: ServingResult) -> float | None:
    """Output tokens of the file, unless the text has far fewer: then the file's number is the requested one."""
    again = number(result.get("total_output_tokens_retokenized"))
    return again if _requested_only(result) else number(result.get("total_output_tokens"))


def _requested_only(result: ServingResult) -> bool:
    stated, again = (number(result.get(f"total_output_tokens{end}")) for end in ("", "_retokenized"))
    return bool(stated and again and again < stated * (1 - RECOUNT_TOLERANCE))


def rates_of(result: ServingResult) -> dict[str, Rate]:
    """The rates of the file; files of 2024 have only the output token rate. Rates of requested tokens are replaced by
    those of received tokens."""
    duration, came = number(result.get("duration")), _came(result)

    def rate(name: str, total: float | None) -> float | None:
        stated = number(result.get(name))
        return total / duration if stated is None and total is not None and duration else stated

    output = rate("output_throughput", came)
    if _requested_only(result):
        output = came / duration if came is not None and duration else None
    rates = {
        "request_rate": rate("request_throughput", number(result.get("completed"))),
        "input_rate": rate("input_throughput", number(result.get("total_input_tokens"))),
        "output_rate": output,
    }
    both = (rates["input_rate"], rates["output_rate"])
    return known_rates(rates | {"total_rate": None if None in both else sum(part or 0.0 for part in both)})


def _length_doubts(result: ServingResult) -> Iterator[tuple[str, str]]:
    if _requested_only(result):
        requested, came = number(result.get("total_output_tokens")), _came(result)
        text = f"Its TPOT counts {requested:,.0f} output tokens, but {came:,.0f} were counted in the answers"
        yield "asked_lengths", f"{text}: the tool uses the requested length if the server reports none."


def _values(result: ServingResult) -> dict[str, Value]:
    accepted = number(result.get("accept_length"))
    return without_none({"accept_length": value(accepted, "tokens", "higher", "Speculated tokens accepted per step")})


def _plan(result: ServingResult) -> ImportedPlan:
    name = result.get("dataset_name")
    drawn = name in fields.MADE_UP
    lengths = fields.lengths(result.get("random_input_len"), result.get("random_output_len")) if drawn else None
    requests = whole(result.get("num_prompts"))
    return fields.plan_of(
        model=result.get("model") or (result.get("server_info") or {}).get("model_path"),
        workload=lengths or fields.dataset(name),
        load=fields.load(
            result.get("request_rate"), result.get("max_concurrency"), requests or whole(result["completed"])
        ),
        requests=requests,
    )


def _stack(result: ServingResult) -> dict[str, JsonValue] | None:
    ratio = number(result.get("random_range_ratio"))
    return {"random_range_ratio": ratio} if ratio is not None and result.get("dataset_name") in fields.MADE_UP else None


SERVING = ImportFormat("sglang bench_serving", _fits, _read)


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
    return run_per_row(source, lambda row: _client(row.texts(), source.name))


def _client(row: SweepRow, name: str) -> ImportedRun:
    answered = whole(row.get("completed"))
    measures: dict[str, MeasureSummary] = {}
    for measured, ending in TIMES.items():
        measures |= measure(measured, prefixed(row, ending, SECONDS["ms"]), answered)
    rates = {"request_rate": "request_throughput", "input_rate": "input_throughput", "output_rate": "output_throughput"}
    return ImportedRun(
        plan=_ray_plan(row, name),
        environment=_environment(row),
        measures=measures,
        rates=known_rates({measured: number(row.get(column)) for measured, column in rates.items()}),
        answered=answered,
        duration_s=number(row.get("duration")),
        definitions=DEFINITIONS | {"output_rate": "tokens *requested* of all answers / duration"},
        doubts=tuple(_ray_length_doubts(row)),
    )


def _ray_length_doubts(row: SweepRow) -> Iterator[tuple[str, str]]:
    """A doubt about output lengths: with ignore_eos they equal the requested ones, without it nothing counted them."""
    if _is_on(row.get("disable_ignore_eos")):
        text = "Its TPOT and output rate use the requested lengths, but answers could end earlier"
        yield "asked_lengths", f"{text} (disable_ignore_eos): they are too optimistic by that amount."


def _is_on(value: str | None) -> bool:
    return str(value).strip().lower() in ("true", "1", "yes")


def _read_engine(source: Source) -> ParsedFile:
    return run_per_row(source, lambda row: _engine(row.texts(), source.name))


def _engine(row: SweepRow, name: str) -> ImportedRun:
    """Means of the engines' own histograms, without the network path to the client."""
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
        plan=_ray_plan(row, name),
        environment=_environment(row),
        measures=measures,
        values=without_none(values),
        answered=answered,
        definitions={"server": "sum / count of the engines' histograms since their start, pooled over the replicas"},
    )


def _ray_plan(row: SweepRow, name: str) -> ImportedPlan:
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


def _workload(row: SweepRow, name: str) -> WorkloadDraft | None:
    least, most = whole(row.get("min_output_len")), whole(row.get("max_output_len"))
    outputs: WorkloadDraft = {}
    if least and most:
        outputs["output_tokens"] = least if least == most else f"{least}-{most}"
    if (prefix := whole(row.get("prefix_len"))) is not None:
        shared: PrefixDraft = {
            "tokens": prefix,
            "suffix_tokens": whole(row.get("suffix_len")),
            "groups": whole(row.get("num_prefixes")),
            "prompts": whole(row.get("suffixes_per_prefix")),
        }
        return {"type": "synthetic", "prefix": without_missing(shared), **outputs}
    match = _NAME.search(name)
    workload = fields.dataset(match[1] if match else None)
    if not workload and not outputs:
        return None
    return {**(workload or WorkloadDraft(type="synthetic")), **outputs}


def _environment(row: SweepRow) -> Environment:
    strategy = next((row[column] for column in STRATEGY if row.get(column)), None)
    return fields.environment_of(
        engine="vllm",
        gpus=fields.gpus(row["gpu_type"], row.get("num_servers")) if row.get("gpu_type") else None,
        stack={"strategy": strategy, **{name: row[name] for name in STACK if row.get(name) not in (None, "")}},
    )


SERVE = ImportFormat("the client's table of a Ray Serve sweep", _is_serve, _read_serve)
ENGINE = ImportFormat("the engines' table of a Ray Serve sweep", _is_engine, _read_engine)
