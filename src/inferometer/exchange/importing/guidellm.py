"""GuideLLM's `benchmarks.json`: every benchmark of it a run. Times in `*_ms` are milliseconds, `request_latency` is
seconds.

Fields: vllm-project/guidellm (report versions 1 and 2), as llm-d-benchmark's guidellm_native.py reads them. Since 0.7
the arguments stand in `config.spec`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypedDict

from inferometer.documents.document import JsonObject, JsonValue, settings_of
from inferometer.documents.json_text import json_value
from inferometer.exchange.importing import fields
from inferometer.exchange.importing.fields import run_per_row
from inferometer.exchange.importing.requests import (
    NOT_CONNECTED,
    NOT_SCHEDULED,
    WITHOUT_READS,
    ImportedRequest,
    records_of,
    status_in,
)
from inferometer.exchange.importing.source import ImportedPlan, ImportedRun, ImportFormat, ParsedFile, ResultRow, Source
from inferometer.exchange.importing.units import SECONDS, known_rates, measure, number, statistics, whole
from inferometer.plan.draft import LoadDraft, WorkloadDraft
from inferometer.record.environment import Environment, ToolVersion
from inferometer.record.summary import MeasureSummary

TIMES = {  # our name: their name and unit
    "ttft": ("time_to_first_token_ms", "ms"),
    "ttfo": ("time_to_first_output_token_ms", "ms"),
    "ntpot": ("time_per_output_token_ms", "ms"),  # it includes the first token: E2E / n
    "tpot": ("inter_token_latency_ms", "ms"),  # (last - first) / (n - 1), a mean per request
    "e2e": ("request_latency", "s"),
}
COUNTS = {"input_tokens": "prompt_token_count", "output_tokens": "output_token_count"}
RATES = {
    "request_rate": "requests_per_second",
    "input_rate": "prompt_tokens_per_second",
    "output_rate": "output_tokens_per_second",
    "total_rate": "tokens_per_second",
}
DEFINITIONS = {
    "ttft": "from the first byte of the request written to the first iteration with tokens, reasoning included",
    "ntpot": "guidellm's time_per_output_token: E2E / n, the first token included",
    "tpot": "guidellm's inter_token_latency: (last - first) / (n - 1), a mean per request",
    "e2e": "until the stream is closed",
    "output_rate": "time-weighted over a window without warm-up and cool-down",
    "quantiles": "of a weighted distribution",
}


class RequestTotals(TypedDict, total=False):
    successful: JsonValue
    errored: JsonValue
    incomplete: JsonValue


class ByOutcome(TypedDict, total=False):
    """The statistics of a metric, by the outcome of the requests."""

    successful: JsonObject | None


class RequestTimes(TypedDict, total=False):
    request_start: JsonValue
    request_end: JsonValue
    first_token_iteration: JsonValue
    last_token_iteration: JsonValue
    targeted_start: JsonValue


class SchedulerInfo(TypedDict, total=False):
    timings: RequestTimes | None
    request_timings: RequestTimes | None  # its name before 0.5
    error: JsonValue


class TokenCounts(TypedDict, total=False):
    text_tokens: JsonValue
    total_tokens: JsonValue


class GuidellmRequest(RequestTimes, total=False):
    """In version 1 the request itself has the instants."""

    request_id: str | None
    info: SchedulerInfo | None
    scheduler_info: SchedulerInfo | None
    request_start_time: JsonValue
    input_metrics: TokenCounts | None
    output_metrics: TokenCounts | None
    prompt_tokens: JsonValue
    output_tokens: JsonValue


class GuidellmRequests(TypedDict, total=False):
    successful: list[GuidellmRequest] | None
    errored: list[GuidellmRequest] | None
    incomplete: list[GuidellmRequest] | None


class GuidellmStrategy(TypedDict, total=False):
    type_: str
    kind: str
    rate: JsonValue
    streams: JsonValue
    max_concurrency: JsonValue


class BenchmarkConfig(TypedDict, total=False):
    strategy: GuidellmStrategy | None
    backend: JsonValue
    constraints: Mapping[str, JsonValue] | None


class RunStats(TypedDict, total=False):
    duration: JsonValue


class GuidellmBenchmark(TypedDict, total=False):
    metrics: Mapping[str, ByOutcome | None]
    request_totals: RequestTotals | None
    config: BenchmarkConfig | None
    args: BenchmarkConfig | None
    start_time: JsonValue
    end_time: JsonValue
    duration: JsonValue
    warmup_duration: JsonValue
    cooldown_duration: JsonValue
    run_stats: RunStats
    requests: GuidellmRequests | None


class GuidellmSpec(TypedDict, total=False):
    backend: JsonValue
    data: JsonValue


class ReportConfig(TypedDict, total=False):
    spec: GuidellmSpec | None


class GuidellmMetadata(TypedDict, total=False):
    guidellm_version: str | None


class GuidellmReport(TypedDict, total=False):
    metadata: GuidellmMetadata | None
    config: ReportConfig | None
    args: JsonValue  # the flags of the command, before 0.7
    benchmarks: list[GuidellmBenchmark]


RequestOutcome = Literal["successful", "errored", "incomplete"]
OUTCOMES: tuple[RequestOutcome, ...] = ("successful", "errored", "incomplete")
_TIMED = ("constant", "poisson", "async", "replay")  # strategies that send by the clock


def _fits(source: Source) -> bool:
    entries = source.mapping().get("benchmarks")
    return isinstance(entries, list) and bool(entries) and isinstance(entries[0], dict) and "metrics" in entries[0]


def _read(source: Source) -> ParsedFile:
    report = source.typed(GuidellmReport)
    rows = [ResultRow(f"benchmark {at}", settings_of(benchmark)) for at, benchmark in enumerate(report["benchmarks"])]
    return run_per_row(source, lambda row: imported(row.typed(GuidellmBenchmark), report), rows)


def imported(benchmark: GuidellmBenchmark, report: GuidellmReport) -> ImportedRun:
    metrics = benchmark["metrics"]
    totals = metrics.get("request_totals") or benchmark.get("request_totals") or {}
    answered = whole(totals.get("successful"))
    every = list(_requests(benchmark, _strategy(benchmark) in _TIMED))
    requests = _measured(every, benchmark)
    left_out = len(every) - len(requests)
    return ImportedRun(
        started=fields.instant(benchmark.get("start_time")),
        plan=_plan(benchmark, report),
        environment=_environment(report),
        measures=_measures(metrics, answered),
        rates=known_rates({name: _of(metrics, key).get("mean") for name, key in RATES.items()}),
        concurrency=_of(metrics, "request_concurrency").get("mean"),
        answered=answered,
        failed=whole(totals.get("errored")),
        unfinished=whole(totals.get("incomplete")),
        duration_s=number(benchmark.get("duration", benchmark.get("run_stats", {}).get("duration"))),
        definitions=DEFINITIONS,
        records=records_of(requests) if requests else None,
        underivable=(*NOT_CONNECTED, *WITHOUT_READS, *(() if _scheduled(requests) else NOT_SCHEDULED)),
        notes=(f"{left_out} requests of warm-up and cool-down are left out, as in the file's numbers",)
        * bool(left_out),
    )


def _measured(requests: list[ImportedRequest], benchmark: GuidellmBenchmark) -> list[ImportedRequest]:
    """Those that were in flight between warm-up and cool-down: the file's numbers are of these."""
    begin, end = (number(benchmark.get(name)) for name in ("start_time", "end_time"))
    if begin is None or end is None or not (benchmark.get("warmup_duration") or benchmark.get("cooldown_duration")):
        return requests
    return [request for request in requests if request.sent_s < end and (request.ended_s or end) > begin]


def _scheduled(requests: list[ImportedRequest]) -> bool:
    return bool(requests) and all(request.scheduled_s is not None for request in requests)


def _requests(benchmark: GuidellmBenchmark, timed: bool) -> Iterator[ImportedRequest]:
    """The requests that the report keeps: all, or a sample of `--sample-requests`. Only where the clock decides when
    they are sent is `targeted_start` that instant; else it is the start of the benchmark."""
    kept = benchmark.get("requests")
    if not isinstance(kept, Mapping):
        return
    for outcome in OUTCOMES:
        for entry in kept.get(outcome) or []:
            request = _request(entry, outcome, timed)
            if request is not None:
                yield request


def _request(entry: GuidellmRequest, outcome: RequestOutcome, timed: bool) -> ImportedRequest | None:
    info = entry.get("info") or entry.get("scheduler_info") or {}
    times = info.get("timings") or info.get("request_timings") or entry
    sent = number(times.get("request_start", entry.get("request_start_time")))
    if sent is None:
        return None
    first, last = number(times.get("first_token_iteration")), number(times.get("last_token_iteration"))
    reads = [instant for instant in (first, last if last != first else None) if instant is not None]
    inputs, outputs = entry.get("input_metrics") or {}, entry.get("output_metrics") or {}
    error = info.get("error") if outcome == "errored" else None
    return ImportedRequest(
        sent,
        reads if outcome == "successful" else (),
        ended_s=number(times.get("request_end")),
        scheduled_s=number(times.get("targeted_start")) if timed else None,
        input_tokens=whole(inputs.get("text_tokens", inputs.get("total_tokens", entry.get("prompt_tokens")))),
        output_tokens=whole(outputs.get("text_tokens", outputs.get("total_tokens", entry.get("output_tokens")))),
        status=200 if outcome == "successful" else status_in(error),
        error=str(error or "failed")[:500] if outcome == "errored" else None,
        cancelled=outcome == "incomplete",
        request_id=entry.get("request_id"),
    )


def _of(metrics: Mapping[str, ByOutcome | None], key: str, scale: float = 1.0) -> dict[str, float]:
    """The statistics of successful requests."""
    return statistics((metrics.get(key) or {}).get("successful"), scale)


def _measures(metrics: Mapping[str, ByOutcome | None], count: int | None) -> dict[str, MeasureSummary]:
    measures: dict[str, MeasureSummary] = {}
    for name, (key, unit) in TIMES.items():
        measures |= measure(name, _of(metrics, key, SECONDS[unit]), count)
    for name, key in COUNTS.items():
        measures |= measure(name, _of(metrics, key), count)
    return measures


def _plan(benchmark: GuidellmBenchmark, report: GuidellmReport) -> ImportedPlan:
    spec = (report.get("config") or {}).get("spec") or {}
    own = benchmark.get("config") or benchmark.get("args") or {}
    given = _mapping(report.get("args"))  # the flags of the command, before 0.7
    backend = _mapping(spec.get("backend")) or _mapping(own.get("backend"))
    route = str(backend.get("request_format") or given.get("request_format") or "")
    stops = own.get("constraints") or {}
    return fields.plan_of(
        model=backend.get("model") or given.get("model"),
        url=backend.get("target") or given.get("target"),
        api="chat" if "chat" in route else None,
        stream=backend.get("stream"),
        workload=_workload(spec.get("data") or given.get("data")),
        load=_load(own.get("strategy") or {}),
        requests=_limit(stops, ("max_requests",), ("count", "max_num")),
        duration_s=_limit(stops, ("max_duration", "max_seconds"), ("seconds", "max_duration")),
    )


def _limit(stops: JsonObject, names: Sequence[str], keys: Sequence[str]) -> int | None:
    """What ended the benchmark, below `args` since 0.7."""
    stop = next((stops[name] for name in names if stops.get(name)), None)
    inner = _mapping(_mapping(stop).get("args")) or _mapping(stop)
    return next((amount for key in keys if (amount := whole(inner.get(key))) is not None), None)


def _mapping(value: JsonValue) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


def _strategy(benchmark: GuidellmBenchmark) -> str:
    strategy = (benchmark.get("config") or benchmark.get("args") or {}).get("strategy") or {}
    return str(strategy.get("type_") or strategy.get("kind") or "")


def _load(strategy: GuidellmStrategy) -> LoadDraft | None:
    kind = strategy.get("type_") or strategy.get("kind")
    if kind == "constant":
        return fields.constant(strategy.get("rate"))
    if kind in ("poisson", "async"):
        return fields.load(strategy.get("rate"), None, None)
    if kind == "synchronous":
        return fields.closed(1)
    return fields.closed(strategy.get("streams") or strategy.get("max_concurrency"))


def _workload(data: JsonValue) -> WorkloadDraft | None:
    first = data[0] if isinstance(data, list) and data else data
    if isinstance(first, str):
        first = _pairs(first) or first
    if not isinstance(first, Mapping):
        return fields.dataset(first)
    workload = fields.lengths(
        first.get("prompt_tokens"),
        first.get("output_tokens"),
        first.get("prompt_tokens_stdev"),
        first.get("output_tokens_stdev"),
    )
    turns = whole(first.get("turns"))
    return {**workload, "turns": turns} if workload and turns and turns > 1 else workload


def _pairs(text: str) -> dict[str, str]:
    """`prompt_tokens=256,output_tokens=128`, or JSON, as the command had it before 0.7."""
    if text.lstrip().startswith("{"):
        try:
            value = json_value(text)[0]
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}
    parts = [part.partition("=") for part in text.split(",")]
    return {key.strip(): value for key, sign, value in parts} if all(sign for _, sign, _ in parts) else {}


def _environment(report: GuidellmReport) -> Environment:
    about = report.get("metadata") or {}
    return fields.environment_of(tool=ToolVersion(name="guidellm", version=about.get("guidellm_version")))


REPORT = ImportFormat("guidellm", _fits, _read)
