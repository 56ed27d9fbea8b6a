"""aiperf's `profile_export_aiperf.json` and genai-perf's `*_genai_perf.json`, which share one format with a unit next
to every number; and aiperf's `profile_export.jsonl` with every request.

Fields: ai-dynamo/aiperf, aiperf/common/models/export_models.py and docs/tutorials/working-with-profile-exports.md;
triton-inference-server/perf_analyzer, genai-perf/genai_perf/export_data/json_exporter.py.
"""

import itertools
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from inferometer.documents.files import release
from inferometer.exchange.importing import fields
from inferometer.exchange.importing.requests import (
    NOT_CONNECTED,
    NOT_SCHEDULED,
    WITHOUT_READS,
    ImportedRequest,
    Reads,
    records_of,
)
from inferometer.exchange.importing.source import ImportedPlan, ImportedRun, ImportFormat, ParsedFile, Source
from inferometer.exchange.importing.units import (
    SECONDS,
    factor,
    known_rates,
    measure,
    number,
    statistics,
    value,
    whole,
    without_none,
)
from inferometer.plan.draft import LoadDraft
from inferometer.record.environment import ToolVersion
from inferometer.record.summary import MeasureSummary, Value
from inferometer.vocabulary import NANOSECONDS

TIMES = {
    "ttft": "time_to_first_token",
    "ttfo": "time_to_first_output_token",
    "tpot": "inter_token_latency",  # a mean per request: (E2E - TTFT) / (n - 1)
    "icl": "inter_chunk_latency",
    "e2e": "request_latency",
}
AMOUNTS = {
    "input_tokens": "input_sequence_length",
    "output_tokens": "output_sequence_length",
    "reasoning_tokens": "reasoning_token_count",
    "user_speed": "output_token_throughput_per_user",
}
RATES = {
    "request_rate": "request_throughput",
    "output_rate": "output_token_throughput",
    "total_rate": "total_token_throughput",
}
DEFINITIONS = {
    "ttft": "from the session object made to the first content response, reasoning included",
    "tpot": "its inter_token_latency: (E2E - TTFT) / (n - 1), a mean per request",
    "e2e": "to the last content chunk",
    "output_tokens": "counted again by a tokenizer unless --use-server-token-count",
    "output_rate": "tokens / (last response - first request)",
    "quantiles": "linear interpolation, failed requests left out",
}


def _is_profile(source: Source) -> bool:
    report = source.mapping()
    latency = report.get("request_latency")
    return isinstance(latency, Mapping) and {"unit", "avg"} <= latency.keys()


def _is_aiperf(source: Source) -> bool:
    """Whether it is aiperf's; genai-perf has no start_time, and names its analyzer."""
    return _is_profile(source) and "perf_analyzer" not in (source.mapping().get("input_config") or {})


def _read(source: Source) -> ParsedFile:
    report = source.mapping()
    config = report.get("input_config") or {}
    answered = whole(_mean(report, "request_count"))
    run = ImportedRun(
        started=fields.instant(report.get("start_time")),
        plan=_plan(config),
        environment=fields.environment_of(
            engine=_section(config, "endpoint").get("backend"),
            tool=ToolVersion(name="aiperf", version=report["aiperf_version"]) if report.get("aiperf_version") else None,
        ),
        measures=_measures(report, answered),
        rates=known_rates({name: _mean(report, key) for name, key in RATES.items()}),
        values=_values(report),
        answered=answered,
        failed=whole(_mean(report, "error_request_count")),
        duration_s=_mean(report, "benchmark_duration"),
        definitions=DEFINITIONS,
    )
    return ParsedFile([run])


def _of(report: Mapping[str, Any], key: str) -> dict[str, float]:
    """The statistics of a metric, converted by its unit."""
    metric = report.get(key)
    if not isinstance(metric, Mapping):
        return {}
    return statistics(metric, factor(str(metric.get("unit", ""))))


def _mean(report: Mapping[str, Any], key: str) -> float | None:
    return _of(report, key).get("mean")


def _measures(report: Mapping[str, Any], count: int | None) -> dict[str, MeasureSummary]:
    measures: dict[str, MeasureSummary] = {}
    for name, key in (TIMES | AMOUNTS).items():
        measures |= measure(name, _of(report, key), count)
    second = _of(report, "time_to_second_token")
    return measures | measure("ttst", second, count, unit="s", direction="lower", title="Time to the second token")


def _values(report: Mapping[str, Any]) -> dict[str, Value]:
    goodput = number((report.get("goodput") or report.get("request_goodput") or {}).get("avg"))
    return without_none({"request_goodput": value(goodput, "1/s", "higher", "Goodput, as reported")})


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name)
    return section if isinstance(section, Mapping) else {}


def _first(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The first of a list of settings, the format since 0.10; also below `items`."""
    value = config.get(name)
    value = value.get("items", value) if isinstance(value, Mapping) else value
    first = next(iter(value), None) if isinstance(value, list) else None
    return first if isinstance(first, Mapping) else {}


def _phase(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The measured phase, with the names of older files."""
    phases = [phase for phase in config.get("phases") or [] if isinstance(phase, Mapping)]
    measured = [phase for phase in phases if "warm" not in str(phase.get("name") or phase.get("kind") or "").lower()]
    phase = measured[-1] if measured else {}
    names = {
        "concurrency": "concurrency",
        "rate": "request_rate",
        "request_rate": "request_rate",
        "requests": "request_count",
        "request_count": "request_count",
        "duration": "benchmark_duration",
        "type": "request_rate_mode",
    }
    return {ours: phase[theirs] for theirs, ours in names.items() if phase.get(theirs) is not None}


def _plan(config: Mapping[str, Any]) -> ImportedPlan:
    endpoint, load, tokens = (_section(config, name) for name in ("endpoint", "loadgen", "input"))
    load = load or _phase(config)
    dataset = _first(config, "datasets")
    tokens = tokens or _section(dataset, "prompts") or dataset
    known = _first(config, "models").get("name")
    stimulus = _section(_section(config, "perf_analyzer"), "stimulus")
    names = endpoint.get("model_names") or config.get("model_names") or ([known] if known else [])
    inputs, outputs = _lengths(tokens, "input_tokens", "isl"), _lengths(tokens, "output_tokens", "osl")
    url = endpoint.get("url") or next(iter(endpoint.get("urls") or []), None)
    address = url if url is None or "://" in str(url) else f"http://{url}"
    rate = load.get("request_rate") or stimulus.get("request_rate")
    return fields.plan_of(
        model=names[0] if isinstance(names, list) and names else names or None,
        url=address,
        api="chat" if endpoint.get("type") == "chat" else None,
        stream=endpoint.get("streaming"),
        workload=fields.lengths(inputs.get("mean"), outputs.get("mean"), inputs.get("stddev"), outputs.get("stddev")),
        load=_load(rate, load, stimulus),
        requests=whole(load.get("request_count")),
        duration_s=number(load.get("benchmark_duration")),
    )


def _load(rate: Any, load: Mapping[str, Any], stimulus: Mapping[str, Any]) -> LoadDraft | None:
    slots = load.get("concurrency") or stimulus.get("concurrency")
    if rate and load.get("request_rate_mode") == "constant":
        return fields.constant(rate, whole(slots))
    return fields.load(rate, slots, None) if rate else fields.closed(slots)


def _lengths(tokens: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    prompt = _section(tokens, "prompt")
    return next((lengths for part in (prompt, tokens) for name in names if (lengths := _section(part, name))), {})


def _is_requests(source: Source) -> bool:
    rows = source.rows() if source.form in ("jsonl", "json") else []
    return (
        bool(rows)
        and {"metadata", "metrics"} <= rows[0].fields.keys()
        and "request_start_ns" in rows[0].fields["metadata"]
    )


def _read_requests(source: Source) -> ParsedFile:
    requests, broken = [], []
    for row in source.rows():
        try:
            if row.fields["metadata"].get("benchmark_phase", "profiling") == "profiling":
                requests.append(_request(row.fields))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            broken.append(f"{row.where}: {type(error).__name__}: {error}")
    release(source.content)
    streamed = any(len(request.reads_s) > 2 for request in requests)
    first = min((request.sent_s for request in requests), default=None)
    run = ImportedRun(
        started=None if first is None else datetime.fromtimestamp(first, UTC),
        definitions=DEFINITIONS,
        records=records_of(requests),
        underivable=(*NOT_SCHEDULED, *NOT_CONNECTED, *(() if streamed else WITHOUT_READS)),
    )
    return ParsedFile([run] if requests else [], broken)


def _request(entry: Mapping[str, Any]) -> ImportedRequest:
    """One request. Epoch nanoseconds are integers; as seconds in floating point they are exact to a quarter of a µs."""
    about, metrics, error = entry["metadata"], entry.get("metrics") or {}, entry.get("error")
    sent_s, ended_s = (int(about[f"request_{name}_ns"]) / NANOSECONDS for name in ("start", "end"))
    common = {
        "ended_s": ended_s,
        "session": whole(about.get("session_num")),
        "turn": whole(about.get("turn_index")) or 0,
        "request_id": about.get("x_request_id"),
    }
    if error:
        cancelled = bool(about.get("was_cancelled"))
        text = f"{error.get('type')}: {error.get('message')}"[:500]
        code = whole(error.get("code"))
        return ImportedRequest(sent_s, error=text, status=None if cancelled else code, cancelled=cancelled, **common)
    tokens = whole(_metric(metrics, "output_sequence_length"))
    inputs = whole(_metric(metrics, "input_sequence_length"))
    return ImportedRequest(
        sent_s, _reads(sent_s, metrics), input_tokens=inputs, output_tokens=tokens, status=200, **common
    )


def _reads(sent_s: float, metrics: Mapping[str, Any]) -> Reads:
    """Reads from the first token and the gaps between chunks; without gaps only the first and the last. Gaps are an
    array, because those of all requests are in memory: 8 bytes each instead of 32 as Python numbers."""
    latency, ttft = _seconds(metrics, "request_latency"), _seconds(metrics, "time_to_first_token")
    ttft = ttft if ttft is not None else _seconds(metrics, "ttft")
    if ttft is None:
        return () if latency is None else (sent_s + latency,)
    gaps = metrics.get("inter_chunk_latency")
    if isinstance(gaps, Mapping) and isinstance(gaps.get("value"), list):
        scale = SECONDS[gaps["unit"]]
        instants = itertools.accumulate((gap * scale for gap in gaps["value"]), initial=sent_s + ttft)
        return np.fromiter(instants, np.float64, len(gaps["value"]) + 1)
    return (sent_s + ttft, sent_s + latency) if latency is not None and latency > ttft else (sent_s + ttft,)


def _metric(metrics: Mapping[str, Any], name: str) -> Any:
    return (metrics.get(name) or {}).get("value")


def _seconds(metrics: Mapping[str, Any], name: str) -> float | None:
    metric = metrics.get(name)
    return None if not metric else float(metric["value"]) * factor(metric["unit"], SECONDS)


AIPERF = ImportFormat("aiperf", _is_aiperf, _read)
REQUESTS = ImportFormat("aiperf's requests", _is_requests, _read_requests)
GENAI_PERF = ImportFormat("genai-perf", _is_profile, _read)
