"""GuideLLM's `benchmarks.json`: every benchmark of it a run. Times in `*_ms` are milliseconds, `request_latency` is
seconds.

Fields: vllm-project/guidellm (report versions 1 and 2), as llm-d-benchmark's guidellm_native.py reads them. Since 0.7
the arguments stand in `config.spec`.
"""

from collections.abc import Mapping
from typing import Any

from inferometer.exchange.importing import fields as sayings
from inferometer.exchange.importing.fields import each_row
from inferometer.exchange.importing.source import Format, Found, ImportedRun, Row, Source
from inferometer.exchange.importing.units import SECONDS, known_rates, measure, number, statistics, whole
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


def _fits(source: Source) -> bool:
    entries = source.mapping().get("benchmarks")
    return isinstance(entries, list) and bool(entries) and isinstance(entries[0], dict) and "metrics" in entries[0]


def _read(source: Source) -> Found:
    report = source.mapping()
    rows = [Row(f"benchmark {at}", each) for at, each in enumerate(report["benchmarks"])]
    return each_row(source, lambda row: imported(row.said, report), rows)


def imported(said: Mapping[str, Any], report: Mapping[str, Any]) -> ImportedRun:
    metrics = said["metrics"]
    totals = metrics.get("request_totals") or said.get("request_totals") or {}
    answered = whole(totals.get("successful"))
    return ImportedRun(
        started=sayings.instant(said.get("start_time")),
        plan=_plan(said, report),
        environment=_environment(report),
        measures=_measures(metrics, answered),
        rates=known_rates({name: _of(metrics, key).get("mean") for name, key in RATES.items()}),
        concurrency=_of(metrics, "request_concurrency").get("mean"),
        answered=answered,
        failed=whole(totals.get("errored")),
        unfinished=whole(totals.get("incomplete")),
        duration_s=number(said.get("duration", said.get("run_stats", {}).get("duration"))),
        definitions=DEFINITIONS,
    )


def _of(metrics: Mapping[str, Any], key: str, scale: float = 1.0) -> dict[str, float]:
    """The statistics of successful requests."""
    return statistics((metrics.get(key) or {}).get("successful"), scale)


def _measures(metrics: Mapping[str, Any], count: int | None) -> dict[str, MeasureSummary]:
    found: dict[str, MeasureSummary] = {}
    for name, (key, unit) in TIMES.items():
        found |= measure(name, _of(metrics, key, SECONDS[unit]), count)
    for name, key in COUNTS.items():
        found |= measure(name, _of(metrics, key), count)
    return found


def _plan(said: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    spec = (report.get("config") or {}).get("spec") or {}
    own = said.get("config") or said.get("args") or {}
    backend = spec.get("backend") or own.get("backend") or {}
    route = str(backend.get("request_format") or "")
    stops = own.get("constraints") or {}
    return sayings.plan_of(
        model=backend.get("model"),
        url=backend.get("target"),
        api="chat" if "chat" in route else None,
        stream=backend.get("stream"),
        workload=_workload(spec.get("data")),
        load=_load(own.get("strategy") or {}),
        requests=_limit(stops, "max_requests", "count"),
        duration_s=_limit(stops, "max_duration", "seconds"),
    )


def _limit(stops: Mapping[str, Any], name: str, field: str) -> Any:
    said = stops.get(name)
    inner = said.get("args") if isinstance(said, Mapping) else None
    return whole(inner.get(field)) if isinstance(inner, Mapping) else None


def _load(strategy: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = strategy.get("type_") or strategy.get("kind")
    if kind == "constant":
        return sayings.constant(strategy.get("rate"))
    if kind in ("poisson", "async"):
        return sayings.load(strategy.get("rate"), None, None)
    if kind == "synchronous":
        return sayings.closed(1)
    return sayings.closed(strategy.get("streams") or strategy.get("max_concurrency"))


def _workload(data: Any) -> dict[str, Any] | None:
    first = data[0] if isinstance(data, list) and data else data
    if not isinstance(first, Mapping):
        return None
    said = sayings.lengths(
        first.get("prompt_tokens"),
        first.get("output_tokens"),
        first.get("prompt_tokens_stdev"),
        first.get("output_tokens_stdev"),
    )
    turns = whole(first.get("turns"))
    return {**said, "turns": turns} if said and turns and turns > 1 else said


def _environment(report: Mapping[str, Any]) -> dict[str, Any]:
    about = report.get("metadata") or {}
    return sayings.environment_of(tool={"name": "guidellm", "version": about.get("guidellm_version")})


REPORT = Format("guidellm", _fits, _read)
