"""Runs for monitoring: OpenMetrics text with a gauge per measure, and OpenTelemetry's GenAI metrics as OTLP JSON."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from inferometer.exchange.exporting import (
    DocumentPiece,
    ExportRequest,
    duration_of,
    gpu_text,
    records_of,
    server_series,
    started,
    text_piece,
)
from inferometer.judge.identity import identity
from inferometer.measure.inputs import Answers
from inferometer.measure.quantiles import Floats
from inferometer.measure.registry import request_values
from inferometer.measure.server import histogram
from inferometer.measure.values import Quantity, quantities
from inferometer.record.record import OUTCOMES
from inferometer.record.run import Run
from inferometer.record.sanitize import json_text

UNITS = {
    "s": "seconds",
    "tokens": "tokens",
    "tokens/s": "tokens_per_second",
    "1/s": "per_second",
    "share": "ratio",
    "requests": "requests",
    "turns": "turns",
    "bytes": "bytes",
    "": "",
}
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]+")


def export_openmetrics(request: ExportRequest) -> list[DocumentPiece]:
    return [text_piece("inferometer.om", text(request.runs))]


def text(runs: Sequence[Run]) -> str:
    lines = [*_info(runs), *_families(runs), "# EOF"]
    return "".join(f"{line}\n" for line in lines)


def _info(runs: Sequence[Run]) -> Iterator[str]:
    """The description of a run, once; its numbers carry only id, model and identity."""
    yield "# TYPE inferometer_run info"
    yield "# HELP inferometer_run What was measured, and the verdict."
    for run in runs:
        about = _labels(run) | {
            "name": run.plan.name,
            "kind": run.kind,
            "verdict": run.status,
            "engine": run.subject.engine,
            "engine_version": run.subject.engine_version,
            "gpu": gpu_text(run),
            "started": run.started_at,
        }
        yield f"inferometer_run_info{_written(about)} 1"


def _families(runs: Sequence[Run]) -> Iterator[str]:
    """All samples of one name are grouped, over all runs."""
    samples = [(_name(quantity), run, quantity) for run in runs for quantity in quantities(run.summary).values()]
    for name, group in groupby(sorted(samples, key=lambda entry: entry[0]), key=lambda entry: entry[0]):
        entries = list(group)
        yield f"# TYPE {name} gauge"
        if unit := _unit(entries[0][2]):
            yield f"# UNIT {name} {unit}"
        yield f"# HELP {name} {_escaped(entries[0][2].title)}"
        for _, run, quantity in entries:
            labels = _labels(run) | {"statistic": quantity.statistic}
            yield f"{name}{_written(labels)} {_number(quantity.value)}"


def _labels(run: Run) -> dict[str, str | None]:
    return {"run": run.id, "identity": identity(run).key, "model": run.subject.model}


def _unit(quantity: Quantity) -> str:
    return UNITS.get(quantity.unit, _NOT_IN_NAMES.sub("_", quantity.unit).strip("_"))


def _name(quantity: Quantity) -> str:
    """`inferometer_ttft_seconds`: the name ends in the unit, without repeating it."""
    unit, name = _unit(quantity), _NOT_IN_NAMES.sub("_", quantity.name)
    return f"inferometer_{name}" if not unit or name.endswith(f"_{unit}") else f"inferometer_{name}_{unit}"


def _written(labels: dict[str, str | None]) -> str:
    pairs = (f'{name}="{_escaped(str(value))}"' for name, value in labels.items() if value is not None)
    return f"{{{','.join(pairs)}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


DURATION = tuple(0.01 * 2**n for n in range(14))  # 0.01 .. 81.92 s
FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
TOKENS = tuple(float(4**n) for n in range(14))  # 1 .. 67108864
SERVER = {"gen_ai.server.request.duration": "e2e", "gen_ai.server.time_to_first_token": "ttft"}
SERVER |= {"gen_ai.server.time_per_output_token": "itl"}
OPERATIONS = {"chat": "chat", "anthropic": "chat", "responses": "chat", "embeddings": "embeddings"}
DELTA = 1  # AGGREGATION_TEMPORALITY_DELTA: a run is over when it is exported

Attributes = dict[str, str | int]


def export_opentelemetry(request: ExportRequest) -> list[DocumentPiece]:
    """The format of a collector's `otlpjsonfile` receiver: one export request per line and run."""
    lines = (json_text({"resourceMetrics": [resource(run)]}).encode() for run in request.runs)
    return [DocumentPiece("gen_ai_metrics.otlp.json", b"".join(line + b"\n" for line in lines))]


def resource(run: Run) -> dict[str, Any]:
    about: Attributes = {"service.name": "inferometer", "inferometer.run.id": run.id}
    if run.status:
        about["inferometer.verdict"] = run.status
    scope = {"name": "inferometer", "version": run.environment.inferometer or ""}
    metrics = [metric for metric in (*_client(run), *_server(run)) if metric["histogram"]["dataPoints"]]
    return {
        "resource": {"attributes": _attributes(about)},
        "scopeMetrics": [{"scope": scope, "metrics": metrics}],
    }


def _client(run: Run) -> Iterator[dict[str, Any]]:
    answers = Answers.of(records_of(run))
    about = _about(run)
    ok = answers.ok
    yield _histogram(run, "gen_ai.client.operation.duration", "s", DURATION, _durations(answers, about))
    yield _histogram(run, "gen_ai.client.token.usage", "{token}", TOKENS, _tokens(answers, about))
    first = [(about, request_values("ttft", answers)[ok])]
    yield _histogram(run, "gen_ai.client.operation.time_to_first_chunk", "s", FIRST, first)
    yield _histogram(run, "gen_ai.client.operation.time_per_output_chunk", "s", PER_TOKEN, [(about, _gaps(answers))])


def _gaps(answers: Answers) -> Iterator[Floats]:
    """The gaps of the answered requests; in one batch if they are in memory."""
    if answers.records.held:
        yield answers.gaps.length_s[answers.ok[answers.gaps.owner]]
    else:
        yield from (gaps.length_s for gaps in answers.gap_batches(answers.ok))


def _durations(answers: Answers, about: Attributes) -> list[tuple[Attributes, Floats]]:
    """Durations until the end of the stream; failed requests separately by error."""
    length = request_values("done", answers)
    kinds = {outcome: answers.records.outcome.mask(outcome) for outcome in OUTCOMES if outcome != "ok"}
    failed = [(about | {"error.type": outcome}, length[mask]) for outcome, mask in kinds.items()]
    return [(about, length[answers.ok]), *failed]


def _tokens(answers: Answers, about: Attributes) -> list[tuple[Attributes, Floats]]:
    """Served tokens as counted by the server, never the requested ones."""
    sides = (("input", "input_tokens"), ("output", "output_tokens"))
    return [(about | {"gen_ai.token.type": side}, request_values(name, answers)[answers.ok]) for side, name in sides]


def _server(run: Run) -> Iterator[dict[str, Any]]:
    """The server's own histograms with its bucket bounds; the last bucket has no bound."""
    series = server_series(run)
    for name, ours in SERVER.items():
        observed = histogram(series, ours)
        if observed is not None and observed.counts:
            counts = [round(count) for count in np.diff(observed.counts, prepend=0.0)]
            bounds = [bound for bound in observed.bounds if math.isfinite(bound)]
            yield _metric(name, "s", [_point(run, _about(run), bounds, counts, observed.total)])


def _about(run: Run) -> Attributes:
    parts = urlsplit(run.subject.address or "")
    attributes: dict[str, str | int | None] = {
        "gen_ai.operation.name": OPERATIONS.get(run.plan.api, "text_completion"),
        "gen_ai.provider.name": (run.subject.engine or "_OTHER").lower(),
        "gen_ai.request.model": run.subject.model,
        "server.address": parts.hostname,
        "server.port": parts.port,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _histogram(
    run: Run,
    name: str,
    unit: str,
    bounds: Sequence[float],
    series: Sequence[tuple[Attributes, Floats | Iterator[Floats]]],
) -> dict[str, Any]:
    points = [
        _counted(run, about, bounds, [values] if isinstance(values, np.ndarray) else values) for about, values in series
    ]
    return _metric(name, unit, [point for point in points if point["count"] != "0"])


def _counted(run: Run, about: Attributes, bounds: Sequence[float], batches: Iterable[Floats]) -> dict[str, Any]:
    """Counts per bucket: values above the previous bound and at most its own."""
    counts, sums, ends = np.zeros(len(bounds) + 1, np.int64), [0.0], []
    for batch in batches:
        values = batch[~np.isnan(batch)]
        counts += np.bincount(np.searchsorted(bounds, values, side="left"), minlength=len(counts))
        sums.append(float(values.sum()))
        ends += [float(values.min()), float(values.max())] if len(values) else []
    point = _point(run, about, bounds, counts.tolist(), math.fsum(sums))
    return point | ({"min": min(ends), "max": max(ends)} if ends else {})


def _point(run: Run, about: Attributes, bounds: Sequence[float], counts: Sequence[int], total: float) -> dict[str, Any]:
    """64-bit whole numbers are strings in OTLP's JSON."""
    start = started(run)
    end = start + timedelta(seconds=duration_of(run) or 0.0)
    return {
        "attributes": _attributes(about),
        "startTimeUnixNano": str(round(start.timestamp() * 1e9)),
        "timeUnixNano": str(round(end.timestamp() * 1e9)),
        "count": str(sum(counts)),
        "sum": total,
        "bucketCounts": [str(count) for count in counts],
        "explicitBounds": list(bounds),
    }


def _metric(name: str, unit: str, points: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": name, "unit": unit, "histogram": {"dataPoints": points, "aggregationTemporality": DELTA}}


def _attributes(attributes: Attributes) -> list[dict[str, Any]]:
    return [
        {"key": name, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for name, value in attributes.items()
    ]
