"""The three databases of the vLLM CI benchmark (`fake_db/*.json` of cquil11/cam-ci-challenge): every point of their
histories becomes a run at its original time. Latencies are seconds in `data.json`, milliseconds in the others.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from inferometer.errors import DataError
from inferometer.exchange.importing import fields
from inferometer.exchange.importing.fields import run_per_row
from inferometer.exchange.importing.source import ImportedRun, ImportFormat, ParsedFile, ResultRow, Source
from inferometer.exchange.importing.units import (
    SECONDS,
    known_rates,
    measure,
    number,
    statistics,
    value,
    whole,
    without_none,
)
from inferometer.exchange.importing.vllm import DEFINITIONS, RATES, TIMES, latency_measure, latency_plan, measures_of
from inferometer.record.summary import MeasureSummary

CONCURRENCY_LENGTHS = (1000, 200)  # the fixed lengths of the concurrency sweep
TOKENS_PER_S = 5000  # its rates are 5000 / (input + output)


def _entries(source: Source) -> list[dict[str, Any]]:
    if source.form == "json" and isinstance(source.value, list):
        return [entry for entry in source.value if isinstance(entry, dict)]
    return [dict(source.mapping())] if source.mapping() else []


def _is_latency(source: Source) -> bool:
    entries = _entries(source)
    return bool(entries) and {"timestamp", "results"} <= entries[0].keys() and _has_batches(entries[0])


def _has_batches(entry: Mapping[str, Any]) -> bool:
    results = entry["results"]
    return isinstance(results, list) and bool(results) and "batch_size" in results[0]


def _read_latency(source: Source) -> ParsedFile:
    rows = [ResultRow(f"point {at}", entry) for at, entry in enumerate(_entries(source))]
    return run_per_row(source, _latency_point, rows)


def _latency_point(row: ResultRow) -> ImportedRun:
    measures: dict[str, MeasureSummary] = {}
    for result in row.fields["results"]:
        times = {"mean": result.get("avg_latency")} | {name: result.get(name) for name in ("p50", "p90", "p99")}
        measures |= latency_measure(int(result["batch_size"]), statistics(times))
    sizes = [int(result["batch_size"]) for result in row.fields["results"]]
    return ImportedRun(
        kind="latency",
        started=_when(row.fields),
        plan=latency_plan(sizes, None),
        environment=fields.environment_of(engine="vllm"),
        measures=measures,
    )


def _when(point: Mapping[str, Any]) -> Any:
    moment = fields.instant(point.get("timestamp"))
    if moment is None:
        raise DataError(f"timestamp must be an instant in ISO 8601, got {point.get('timestamp')!r}")
    return moment


def _is_online(source: Source) -> bool:
    first = next(iter(source.mapping().values()), None)
    return isinstance(first, Mapping) and {"input_len", "output_len", "history"} <= first.keys()


def _read_online(source: Source) -> ParsedFile:
    return run_per_row(source, _online_point, list(_history(source)))


def _history(source: Source) -> Iterator[ResultRow]:
    for pair, content in source.mapping().items():
        for at, point in enumerate(content.get("history") or []):
            lengths = {"input_len": content["input_len"], "output_len": content["output_len"]}
            yield ResultRow(f"{pair}, point {at}", lengths | point)


def _online_point(row: ResultRow) -> ImportedRun:
    point = row.fields
    inputs, outputs = int(point["input_len"]), int(point["output_len"])
    return ImportedRun(
        started=_when(point),
        plan=fields.plan_of(
            workload=fields.lengths(inputs, outputs),
            load=fields.load(round(TOKENS_PER_S / (inputs + outputs), 2), None, None),
        ),
        environment=fields.environment_of(engine="vllm"),
        measures=measures_of(point, None),
        rates=known_rates({name: number(point.get(key)) for name, key in RATES.items()}),
        definitions=DEFINITIONS,
    )


def _is_concurrency(source: Source) -> bool:
    entries = _entries(source)
    return bool(entries) and {"max_concurrency", "tokens_per_sec_user", "mean_tpot_ms"} <= entries[0].keys()


def _read_concurrency(source: Source) -> ParsedFile:
    rows = [ResultRow(f"point {at}", entry) for at, entry in enumerate(_entries(source))]
    return run_per_row(source, _concurrency_point, rows)


def _concurrency_point(row: ResultRow) -> ImportedRun:
    point = row.fields
    slots = whole(point["max_concurrency"])
    measures: dict[str, MeasureSummary] = {}
    for name in ("ttft", "tpot"):
        measures |= measure(name, statistics({"mean": point.get(f"mean{TIMES[name]}")}, SECONDS["ms"]))
    speed = value(number(point.get("tokens_per_sec_user")), "tokens/s", "higher", "Tokens per second and user")
    cost = value(number(point.get("cost_per_million_toks")), "$", "lower", "Cost of a million tokens")
    return ImportedRun(
        started=_when(point),
        plan=fields.plan_of(
            workload=fields.lengths(*CONCURRENCY_LENGTHS),
            load=fields.closed(slots),
            requests=10 * slots if slots else None,
        ),
        environment=fields.environment_of(engine="vllm"),
        measures=measures,
        rates=known_rates({"total_rate": number(point.get("total_token_throughput"))}),
        values=without_none({"tokens_per_s_user": speed, "cost_per_million_tokens": cost}),
        definitions=DEFINITIONS,
    )


LATENCY = ImportFormat("the CI benchmark's latency database", _is_latency, _read_latency)
ONLINE = ImportFormat("the CI benchmark's online database", _is_online, _read_online)
CONCURRENCY = ImportFormat("the CI benchmark's concurrency database", _is_concurrency, _read_concurrency)
