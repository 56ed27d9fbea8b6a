"""inference-perf's reports: `*_lifecycle_metrics.json`, a stage or the whole, and `per_request_lifecycle_metrics.json`.
All times are seconds.

Fields: kubernetes-sigs/inference-perf, inference_perf/reportgen/base.py. `config.yaml` and the server-side
`*_prometheus_metrics.json` are read with the report if they are next to it.
"""

import re
from collections.abc import Mapping
from typing import Literal, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from inferometer.documents.document import JsonValue
from inferometer.documents.files import release, text_in
from inferometer.documents.json_text import json_value
from inferometer.documents.yaml_text import yaml_value
from inferometer.exchange.importing import fields
from inferometer.exchange.importing.requests import (
    NOT_CONNECTED,
    NOT_SCHEDULED,
    WITHOUT_READS,
    ImportedRequest,
    Reads,
    records_of,
)
from inferometer.exchange.importing.requests import status_in as _status
from inferometer.exchange.importing.source import ImportedPlan, ImportedRun, ImportFormat, ParsedFile, Source
from inferometer.exchange.importing.units import known_rates, measure, number, statistics, value, whole, without_none
from inferometer.plan.draft import PrefixDraft, WorkloadDraft
from inferometer.plan.foreign.common import without_missing
from inferometer.record.environment import Environment
from inferometer.record.summary import MeasureSummary, Value

TIMES = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "ntpot": "normalized_time_per_output_token",
    "itl": "inter_token_latency",
    "e2e": "request_latency",
}
RATES = {
    "request_rate": "requests_per_sec",
    "input_rate": "input_tokens_per_sec",
    "output_rate": "output_tokens_per_sec",
    "total_rate": "total_tokens_per_sec",
}
LengthKey = Literal["prompt_len", "prompt_tokens", "output_len", "output_tokens"]
LENGTHS: dict[str, tuple[LengthKey, ...]] = {
    "input_tokens": ("prompt_len", "prompt_tokens"),
    "output_tokens": ("output_len", "output_tokens"),
}
DEFINITIONS = {
    "ttft": "from just before the request is posted to the first non-empty content; reasoning is ignored",
    "tpot": "(last - first) / (n - 1), n counted again by a tokenizer unless the server's count is requested",
    "itl": "every token of a chunk at the chunk's time, so that gaps inside a chunk are 0",
    "e2e": "until the response is processed, which tokenizes it",
    "request_rate": "answers / (last end - first start)",
    "quantiles": "linear interpolation, failed requests apart",
}


class PerfStatistics(TypedDict, total=False):
    """Statistics by name."""

    mean: JsonValue


class PerfGoodput(TypedDict, total=False):
    request_goodput: JsonValue
    goodput_percentage: JsonValue


class PerfSuccesses(TypedDict, total=False):
    count: JsonValue
    latency: Mapping[str, PerfStatistics]
    throughput: Mapping[str, JsonValue] | None
    goodput_metrics: PerfGoodput | None
    prompt_len: PerfStatistics | None
    output_len: PerfStatistics | None
    prompt_tokens: PerfStatistics | None  # newer names of prompt_len and output_len
    output_tokens: PerfStatistics | None


class PerfFailures(TypedDict, total=False):
    count: JsonValue


class LoadSummary(TypedDict, total=False):
    count: JsonValue
    schedule_delay: PerfStatistics
    send_duration: JsonValue
    requested_rate: JsonValue
    achieved_rate: JsonValue
    concurrency: JsonValue


class LifecycleReport(TypedDict, total=False):
    load_summary: LoadSummary | None
    successes: PerfSuccesses
    failures: PerfFailures | None
    goodput_metrics: PerfGoodput | None
    benchmark_time_seconds: JsonValue


class ServerConfig(TypedDict, total=False):
    type: JsonValue
    model_name: JsonValue
    base_url: JsonValue


class ApiConfig(TypedDict, total=False):
    type: JsonValue
    streaming: bool | None


class StageConfig(TypedDict, total=False):
    duration: JsonValue


class LoadConfig(TypedDict, total=False):
    stages: list[StageConfig] | None


class LengthConfig(TypedDict, total=False):
    mean: JsonValue
    std_dev: JsonValue
    std: JsonValue


class SharedPrefixConfig(TypedDict, total=False):
    system_prompt_len: JsonValue
    question_len: JsonValue
    output_len: JsonValue
    num_unique_system_prompts: JsonValue
    num_users_per_system_prompt: JsonValue
    num_groups: JsonValue  # older names of num_unique_system_prompts and num_users_per_system_prompt
    num_prompts_per_group: JsonValue


class DataConfig(TypedDict, total=False):
    type: JsonValue
    input_distribution: LengthConfig | None
    output_distribution: LengthConfig | None
    shared_prefix: SharedPrefixConfig | None


class PerfConfig(TypedDict, total=False):
    """The part of `config.yaml` that goes into the plan."""

    server: ServerConfig | None
    api: ApiConfig | None
    load: LoadConfig | None
    data: DataConfig | None


class ServerUsage(TypedDict, total=False):
    prompt_tokens: JsonValue
    completion_tokens: JsonValue


class ResponseMetrics(TypedDict, total=False):
    server_usage: ServerUsage | None
    output_tokens: JsonValue
    output_token_times: list[float] | None


class RequestInfo(ResponseMetrics, total=False):
    """Older versions have the metrics of the response here."""

    response_metrics: ResponseMetrics | None
    input_tokens: JsonValue


class PerfError(TypedDict, total=False):
    error_type: JsonValue
    error_msg: JsonValue


class RequestEntry(TypedDict, total=False):
    start_time: float
    end_time: float
    info: RequestInfo | None
    error: PerfError | None


_STAGE = re.compile(r"stage_(\d+)_")


def _is_lifecycle(source: Source) -> bool:
    report = source.typed(LifecycleReport)
    return {"load_summary", "successes", "failures"} <= report.keys() and "latency" in (report["successes"] or {})


def _read_lifecycle(source: Source) -> ParsedFile:
    report, config = source.typed(LifecycleReport), _config(source)
    good = report["successes"]
    load: LoadSummary = report["load_summary"] or {}
    bad: PerfFailures = report["failures"] or {}
    answered = whole(good.get("count"))
    stage = _STAGE.search(source.name)
    staged = source.name.startswith("summary_") and source.sibling("stage_1_lifecycle_metrics.json") is not None
    plan = _plan(config, load, good, int(stage[1]) if stage else None)
    if staged:  # of several loads together: no point between them
        plan.pop("load", None)
    run = ImportedRun(
        plan=plan,
        environment=_environment(config),
        measures=_measures(good, load, answered) | _server_side(source),
        rates=known_rates({name: number((good.get("throughput") or {}).get(key)) for name, key in RATES.items()})
        | known_rates({"offered_rate": number(load.get("requested_rate"))}),
        values=_values(report, load),
        answered=answered,
        failed=whole(bad.get("count")),
        duration_s=number(report.get("benchmark_time_seconds")) or number(load.get("send_duration")),
        definitions=DEFINITIONS,
        part=f"stage {stage[1]}" if stage else "all stages together" if staged else "",
    )
    return ParsedFile([run])


def _measures(good: PerfSuccesses, load: LoadSummary, count: int | None) -> dict[str, MeasureSummary]:
    latency = good["latency"]
    measures: dict[str, MeasureSummary] = {}
    for name, key in TIMES.items():
        measures |= measure(name, statistics(latency.get(key)), count)
    for name, keys in LENGTHS.items():
        measures |= measure(name, statistics(next((good[key] for key in keys if good.get(key)), None)), count)
    delay, title = statistics(load.get("schedule_delay")), "Late by its own schedule"
    return measures | measure(
        "schedule_delay", delay, whole(load.get("count")), unit="s", direction="lower", title=title
    )


def _values(report: LifecycleReport, load: LoadSummary) -> dict[str, Value]:
    goodput = report.get("goodput_metrics") or (report.get("successes") or {}).get("goodput_metrics") or {}
    share = number(goodput.get("goodput_percentage"))
    values = {
        "achieved_rate": value(number(load.get("achieved_rate")), "1/s", None, "Requests sent per second"),
        "request_goodput": value(number(goodput.get("request_goodput")), "1/s", "higher", "Goodput, as reported"),
        "goodput_share_reported": value(
            None if share is None else share / 100, "share", "higher", "Goodput share, as reported"
        ),
    }
    return without_none(values)


def _server_side(source: Source) -> dict[str, MeasureSummary]:
    """What the server itself counted in the same stage, under names of its own."""
    content = source.sibling(source.name.replace("lifecycle", "prometheus"))
    if content is None or "lifecycle" not in source.name:
        return {}
    try:
        successes = json_value(text_in(content))[0].get("successes") or {}
    except (ValueError, AttributeError):
        return {}
    measures: dict[str, MeasureSummary] = {}
    for name, key in TIMES.items():
        title = f"{name.upper()} by the server"
        measures |= measure(f"server_{name}", statistics(successes.get(key)), unit="s", direction="lower", title=title)
    return measures


def _config(source: Source) -> PerfConfig:
    """The configuration next to the report, or above it."""
    content = source.sibling("config.yaml") or source.sibling("../config.yaml")
    try:
        config = yaml_value(text_in(content))[0] if content else None
    except ValueError:
        return {}
    return cast(PerfConfig, config) if isinstance(config, Mapping) else {}


def _plan(config: PerfConfig, load: LoadSummary, good: PerfSuccesses, stage: int | None) -> ImportedPlan:
    server, api = config.get("server") or {}, config.get("api") or {}
    stages = (config.get("load") or {}).get("stages") or []
    duration = stages[stage].get("duration") if stage is not None and stage < len(stages) else None
    rate, slots = load.get("requested_rate"), load.get("concurrency")
    return fields.plan_of(
        model=server.get("model_name"),
        url=server.get("base_url"),
        api="chat" if api.get("type") == "chat" else None,
        stream=api.get("streaming"),
        workload=_workload(config.get("data") or {}, good),
        # "constant" draws exponential gaps and normalises them: it is Poisson in all but name
        load=fields.load(rate, None, None) if rate else fields.closed(slots),
        duration_s=number(duration),
    )


def _workload(data: DataConfig, good: PerfSuccesses) -> WorkloadDraft | None:
    """Lengths as requested, if the configuration has them; else those that were served, as means."""
    shared = data.get("shared_prefix")
    if data.get("type") == "shared_prefix" and isinstance(shared, Mapping):
        prefix: PrefixDraft = {
            "tokens": whole(shared.get("system_prompt_len")),
            "suffix_tokens": whole(shared.get("question_len")),
            "groups": whole(shared.get("num_unique_system_prompts") or shared.get("num_groups")),
            "prompts": whole(shared.get("num_users_per_system_prompt") or shared.get("num_prompts_per_group")),
        }
        workload: WorkloadDraft = {"type": "synthetic", "prefix": without_missing(prefix)}
        if (output := whole(shared.get("output_len"))) is not None:
            workload["output_tokens"] = output
        return workload
    inputs: LengthConfig = data.get("input_distribution") or {}
    outputs: LengthConfig = data.get("output_distribution") or {}
    requested = fields.lengths(inputs.get("mean"), outputs.get("mean"), _deviation(inputs), _deviation(outputs))
    means = [(part or {}).get("mean") for part in (good.get("prompt_len"), good.get("output_len"))]
    return requested or fields.dataset(str(data.get("type", "")).lower()) or fields.lengths(*means)


def _deviation(lengths: LengthConfig) -> JsonValue:
    """Profiles write std_dev, older ones std; a converter that reads only one of them loses the other."""
    return lengths.get("std_dev", lengths.get("std"))


def _environment(config: PerfConfig) -> Environment:
    return fields.environment_of(engine=(config.get("server") or {}).get("type"))


def _is_requests(source: Source) -> bool:
    rows = source.rows() if source.form == "json" and isinstance(source.value, list) else []
    return bool(rows) and {"start_time", "end_time", "info"} <= rows[0].fields.keys()


def _read_requests(source: Source) -> ParsedFile:
    config, broken, requests = _config(source), list[str](), list[ImportedRequest]()
    for row in source.rows():
        try:
            requests.append(_request(row.typed(RequestEntry)))
        except (KeyError, TypeError, ValueError) as error:
            broken.append(f"{row.where}: {type(error).__name__}: {error}")
    release(source.content)
    streamed = any(len(request.reads_s) > 1 for request in requests)
    lost = WITHOUT_READS if not streamed else ()
    run = ImportedRun(
        plan=_plan(config, {}, {}, None),
        environment=_environment(config),
        definitions=DEFINITIONS,
        records=records_of(requests),
        underivable=(*NOT_SCHEDULED, *NOT_CONNECTED, *lost),
    )
    return ParsedFile([run] if requests else [], broken)


def _request(entry: RequestEntry) -> ImportedRequest:
    info, error = entry.get("info") or {}, entry.get("error")
    answer = info.get("response_metrics") or info
    usage = answer.get("server_usage") or {}
    start, end = float(entry["start_time"]), float(entry["end_time"])
    message = f"{error.get('error_type')}: {error.get('error_msg')}"[:500] if error else None
    reads, tokens = _reads(answer, end, failed=error is not None)
    return ImportedRequest(
        start,
        reads,
        ended_s=end,
        input_tokens=whole(usage.get("prompt_tokens")) or whole(info.get("input_tokens")),
        output_tokens=whole(usage.get("completion_tokens")) or whole(answer.get("output_tokens")),
        read_tokens=tokens if not usage.get("completion_tokens") else None,
        status=_status(message) if message else 200,
        error=message,
    )


def _reads(answer: ResponseMetrics, end: float, failed: bool) -> tuple[Reads, NDArray[np.int32] | None]:
    """Tokens of one chunk share its instant there: here that is one read with so many tokens. Arrays, because those of
    all requests are held at once: 12 bytes for a token instead of 40 as Python's numbers."""
    if failed:
        return (), None
    written = answer.get("output_token_times") or []
    if not written:
        return (end,), None
    times = np.sort(np.fromiter(map(float, written), np.float64))
    begins = np.flatnonzero(np.append(True, times[1:] != times[:-1]))
    return times[begins], np.diff(begins, append=len(times)).astype(np.int32)


LIFECYCLE = ImportFormat("an inference-perf report", _is_lifecycle, _read_lifecycle)
REQUESTS = ImportFormat("inference-perf's requests", _is_requests, _read_requests)
