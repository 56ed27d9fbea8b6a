"""llmperf: `*_summary.json`, flattened with underscores, and `*_individual_responses.json`. All times are seconds.

A file may have several summaries, each under its concurrency. The leaderboard keeps summaries and responses of the same
name in two folders.

Fields: ray-project/llmperf, token_benchmark_ray.py and src/llmperf/common_metrics.py.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from inferometer.exchange.importing import fields
from inferometer.exchange.importing.source import (
    ImportedPlan,
    ImportedRun,
    ImportFormat,
    ParsedFile,
    ResultRow,
    SiblingError,
    Source,
)
from inferometer.exchange.importing.units import known_rates, measure, number, statistics, whole
from inferometer.measure.describe import ALWAYS, described
from inferometer.measure.registry import REGISTRY
from inferometer.record.summary import MeasureSummary

MEASURES = {
    "ttft": "ttft_s",
    "ntpot": "inter_token_latency_s",  # E2E / n, including the first token
    "e2e": "end_to_end_latency_s",
    "input_tokens": "number_input_tokens",
    "output_tokens": "number_output_tokens",
}
DEFINITIONS = {
    "ttft": "from just before the request is posted to the first chunk with content",
    "ntpot": "its inter_token_latency: the sum of all gaps, TTFT included, / chunks received",
    "e2e": "to the end of the stream",
    "output_tokens": "counted again by one fixed tokenizer, whatever the model",
    "output_rate": "tokens of answered requests / whole time of the test",
    "quantiles": "linear interpolation, failed requests left out",
}
CONFIDENCE = 0.95
PERCENTILES = (25, 50, 75, 90, 95, 99)
_OF_SUMMARY = re.compile("results_ttft_s")


def _is_summary(source: Source) -> bool:
    return bool(_summaries(source))


def _summaries(source: Source) -> list[ResultRow]:
    """The file itself, or its entries."""
    rows = [ResultRow("", dict(source.mapping())), *(ResultRow(str(key), row) for key, row in source.mapping().items())]
    return [row for row in rows if isinstance(row.fields, dict) and any(map(_OF_SUMMARY.match, map(str, row.fields)))]


def _read_summaries(source: Source) -> ParsedFile:
    return fields.run_per_row(source, lambda row: _summary(row.fields), _summaries(source))


def _summary(report: Mapping[str, Any]) -> ImportedRun:
    answered = whole(report.get("results_num_completed_requests"))
    per_minute = number(report.get("results_num_completed_requests_per_min"))
    measures: dict[str, MeasureSummary] = {}
    for name, key in MEASURES.items():
        measures |= measure(name, statistics(_named(report, f"results_{key}_")), answered)
    output = number(report.get("results_mean_output_throughput_token_per_s"))
    return ImportedRun(
        started=fields.instant(report.get("timestamp")),
        plan=_plan(report),
        measures=measures,
        rates=known_rates({"request_rate": None if per_minute is None else per_minute / 60, "output_rate": output}),
        answered=answered,
        failed=whole(report.get("results_number_errors")),
        definitions=DEFINITIONS,
    )


def _named(report: Mapping[str, Any], start: str) -> dict[str, Any]:
    parts = {name.removeprefix(start): value for name, value in report.items() if name.startswith(start)}
    return {name.removeprefix("quantiles_"): value for name, value in parts.items()}


def _plan(report: Mapping[str, Any]) -> ImportedPlan:
    return fields.plan_of(
        model=report.get("model"),
        api="chat",
        workload=fields.lengths(
            report.get("mean_input_tokens"),
            report.get("mean_output_tokens"),
            report.get("stddev_input_tokens"),
            report.get("stddev_output_tokens"),
        ),
        load=fields.closed(report.get("num_concurrent_requests")),
    )


def _is_responses(source: Source) -> bool:
    rows = source.rows() if isinstance(source.value, list) and source.form == "json" else []
    return bool(rows) and {"ttft_s", "end_to_end_latency_s", "error_code"} <= rows[0].fields.keys()


def _read_responses(source: Source) -> ParsedFile:
    """A run from individual responses. They have no timestamps, so there are only distributions and percentiles."""
    if (summary := _of_responses(source)) is not None:
        raise SiblingError(f"{source.name}: has the requests of {summary}", f"import {summary}")
    rows = [row.fields for row in source.rows()]
    good = [response for response in rows if response.get("error_code") is None]
    measures = {
        name: _described(name, [number(response.get(key)) for response in good]) for name, key in MEASURES.items()
    }
    run = ImportedRun(
        measures={name: measure for name, measure in measures.items() if measure.count},
        answered=len(good),
        failed=len(rows) - len(good),
        definitions=DEFINITIONS,
        notes=("no instants are in the file: rates are in llmperf's summary only",),
    )
    return ParsedFile([run])


def _of_responses(source: Source) -> str | None:
    """The summary of these responses, if it is in the same folder."""
    names = [source.name.replace("_individual_responses", "_summary"), f"../summary/{source.name}"]
    for name in names:
        content = source.sibling(name) if name != source.name else None
        if content is not None and b'"results_ttft_s' in content:
            return name
    return None


def _described(name: str, values: Sequence[float | None]) -> MeasureSummary:
    """Statistics with our intervals, and llmperf's percentiles: linear interpolation."""
    samples = np.array([np.nan if value is None else value for value in values], np.float64)
    ours = described(samples, REGISTRY[name], ALWAYS, CONFIDENCE)
    if not ours.count:
        return ours
    percentiles = {f"p{rank}": float(np.nanpercentile(samples, rank)) for rank in PERCENTILES}
    return replace(ours, statistics={**ours.statistics, **percentiles})


SUMMARY = ImportFormat("an llmperf summary", _is_summary, _read_summaries)
RESPONSES = ImportFormat("llmperf's responses", _is_responses, _read_responses)
