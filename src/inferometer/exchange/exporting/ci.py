"""Benchmarks in CI: github-action-benchmark's arrays, the JSON databases of a CI benchmark with its history, and
records for the PyTorch HUD's database."""

from collections.abc import Sequence
from typing import Any

import orjson

from inferometer.errors import StoreError
from inferometer.exchange.exporting import (
    DocumentPiece,
    ExportRequest,
    concurrency_of,
    gpu_text,
    json_piece,
    load_of,
    of_kind,
    rate_of,
    requested_lengths,
    served_lengths,
    started,
    text_piece,
)
from inferometer.exchange.exporting.vllm import latency_document, latency_documents, serve_document, throughput_document
from inferometer.judge.identity import identity
from inferometer.measure.values import Quantity, quantities
from inferometer.record.run import Run
from inferometer.record.summary import BatchCase

LATENCY, SERVING, TRADE_OFF = (
    f"fake_db/{name}.json" for name in ("data", "e2e_benchmark_data", "max_concurrency_benchmark_data")
)
COLUMNS = ("batch_size", "avg_latency", "p50", "p90", "p99")
STATISTICS = ("mean", "median", "std", "p25", "p50", "p75", "p90", "p99", "p99.9")
HISTORY = (
    *("total_token_throughput", "request_throughput", "output_throughput"),
    *(f"{stat}_{name}_ms" for name in ("ttft", "tpot", "itl") for stat in STATISTICS),
)


def export_ci_bench(request: ExportRequest) -> list[DocumentPiece]:
    kinds = {"latency": "latency", "serving": "serving"}
    groups: dict[str, list[Run]] = {"latency": [], "serving": []}
    for run in request.runs:
        if run.environment.known_target.is_predicted:
            text = f"{run.id}: {run.subject.engine_text}; the CI benchmark keeps a history of measured numbers only"
            raise StoreError(text)
        groups[of_kind(run, kinds, "the CI benchmark")].append(run)
    return [*_latency(groups["latency"], request), *_serving(groups["serving"], request)]


def data_point(run: Run) -> dict[str, Any]:
    """The data point of one run, with a row per batch size; its timestamp is the time of the measurement."""
    rows = [_row(case) for case in run.summary.cases if case.latencies]
    if not rows:
        raise StoreError(f"{run.id}: no latencies by batch size in it")
    return {"timestamp": started(run).isoformat(), "results": sorted(rows, key=lambda row: row["batch_size"])}


def _row(case: BatchCase) -> dict[str, Any]:
    document = latency_document(case.latencies)
    quantiles = {f"p{share}": document["percentiles"][str(share)] for share in (50, 90, 99)}
    return {"batch_size": case.batch_size, "avg_latency": document["avg_latency"], **quantiles}


def _latency(runs: Sequence[Run], request: ExportRequest) -> list[DocumentPiece]:
    if not runs:
        return []
    points = sorted((data_point(run) for run in runs), key=lambda point: point["timestamp"])
    names = [f"benchmark_history/data_point_{point['timestamp'].replace(':', '-')}.json" for point in points]
    known = _database(request, LATENCY, list)
    fresh = [point for point in points if point not in known]
    return [
        *(json_piece(name, point) for name, point in zip(names, points, strict=True)),
        json_piece(LATENCY, known + fresh),
        text_piece("table_markdown.md", markdown_table(points[-1]["results"])),
    ]


def markdown_table(rows: Sequence[dict[str, Any]]) -> str:
    """A Markdown table with right-aligned numbers."""
    cells = [[str(row["batch_size"]), *(f"{row[name]:.6g}" for name in COLUMNS[1:])] for row in rows]
    widths = [max(len(name), *(len(line[at]) for line in cells)) for at, name in enumerate(COLUMNS)]
    ruler = "|".join(f"{'-' * (width + 1)}:" for width in widths)
    lines = [_line(COLUMNS, widths), f"|{ruler}|", *(_line(line, widths) for line in cells)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def _serving(runs: Sequence[Run], request: ExportRequest) -> list[DocumentPiece]:
    """A run with a rate is a point in the history of its length pair, one with a concurrency in the trade-off."""
    open_loop = [run for run in runs if rate_of(run) is not None or concurrency_of(run) is None]
    closed = [run for run in runs if run not in open_loop]
    pieces = []
    if open_loop:
        pieces.append(json_piece(SERVING, _history(open_loop, _database(request, SERVING, dict))))
    if closed:
        known = _database(request, TRADE_OFF, list)
        points = [trade_off_point(run) for run in closed]
        pieces.append(json_piece(TRADE_OFF, known + [point for point in points if point not in known]))
    return pieces


def _history(runs: Sequence[Run], database: dict[str, Any]) -> dict[str, Any]:
    """A pair is named by the requested lengths, which do not vary, else by the served ones. The numbers
    are based on served lengths."""
    for run in runs:
        inputs, outputs = (
            ask or got or 0 for ask, got in zip(requested_lengths(run), served_lengths(run), strict=True)
        )
        pair = {"input_len": inputs, "output_len": outputs, "total_tokens": inputs + outputs, "history": []}
        history = database.setdefault(f"{inputs}_{outputs}", pair)["history"]
        document = serve_document(run)
        point = {"timestamp": _stamp(run)} | {
            name: document[name] for name in HISTORY if document.get(name) is not None
        }
        if point not in history:
            history.append(point)
    return database


def trade_off_point(run: Run) -> dict[str, Any]:
    """Throughput against the speed of one user, 1 / TPOT; the cost only if the run has a price."""
    document = serve_document(run)
    pace = document.get("mean_tpot_ms")
    cost = quantities(run.summary).get("cost_per_million_tokens")
    return {
        "timestamp": _stamp(run),
        "max_concurrency": concurrency_of(run),
        "total_token_throughput": document.get("total_token_throughput"),
        "tokens_per_sec_user": 1000 / pace if pace else None,
        "mean_tpot_ms": pace,
        "mean_ttft_ms": document.get("mean_ttft_ms"),
        "cost_per_million_toks": None if cost is None else cost.value,
    }


def _stamp(run: Run) -> str:
    return started(run).replace(tzinfo=None).isoformat() + "Z"


def _database(request: ExportRequest, name: str, form: type) -> Any:
    """The existing database; another file with its name is not overwritten."""
    content = request.there(name)
    if not content:
        return form()
    try:
        database = orjson.loads(content)
    except orjson.JSONDecodeError:
        database = None
    if not isinstance(database, form):
        raise StoreError(f"{name}: not a database of the CI benchmark; nothing was added", "move it away")
    return database


FILES = {"higher": "bigger.json", "lower": "smaller.json", None: "observe.json"}
STEADY = (None, "mean", "p50")  # statistics that may alert
LEFT_OUT = ("std", "min", "max", "p99.9")  # too many charts
MS = 1000.0
DIGITS = 6  # of the hash for an unnamed workload


def export_action_benchmark(request: ExportRequest) -> list[DocumentPiece]:
    entries: dict[str, list[dict[str, Any]]] = {name: [] for name in FILES.values()}
    for run in request.runs:
        for quantity in quantities(run.summary).values():
            if quantity.statistic not in LEFT_OUT:
                entries[FILES[_direction(quantity)]].append(entry(run, quantity))
    return [json_piece(name, content) for name, content in entries.items() if content]


def _direction(quantity: Quantity) -> Any:
    return quantity.direction if quantity.statistic in STEADY else None


def entry(run: Run, quantity: Quantity) -> dict[str, Any]:
    """The name is the line in the chart: no version is part of it, so that an upgrade continues the line."""
    unit, scale = ("ms", MS) if quantity.unit == "s" else (quantity.unit or "1", 1.0)
    fields = {"name": f"{_subject(run)}: {quantity.key}", "unit": unit, "value": quantity.value * scale}
    if (range_ := _range(quantity, scale)) is not None:
        fields["range"] = range_
    return fields | {"extra": _extra(run, quantity)}


def _subject(run: Run) -> str:
    """The measured subject in constant words: plan, model, accelerators. Plans without a name are distinguished by a
    hash of their workload, so two workloads are two lines."""
    parts = (run.plan.name or f"{run.kind} {identity(run).workload[:DIGITS]}", run.subject.model, gpu_text(run))
    return ", ".join(str(part) for part in parts if part)


def _range(quantity: Quantity, scale: float) -> str | None:
    """`± 3.1`: the farther end of the interval."""
    if quantity.interval is None:
        return None
    ends = [abs(end - quantity.value) for end in quantity.interval if end is not None]
    return f"± {max(ends) * scale:.4g}" if len(ends) == 2 else None


def _extra(run: Run, quantity: Quantity) -> str:
    engine = run.subject.engine_text
    lines = (quantity.title, f"run {run.id}", engine, f"verdict {run.status}")
    return "\n".join(line for line in lines if line)


# the metrics of `vllm bench serve`; all its other fields are repeated in each record
SERVE = (
    *(f"{stat}_{name}_ms" for name in ("ttft", "tpot", "itl", "e2el") for stat in ("mean", "median", "std", "p99")),
    *("request_throughput", "output_throughput", "total_token_throughput"),
)
THROUGHPUT = ("requests_per_second", "tokens_per_second")


def export_hud(request: ExportRequest) -> list[DocumentPiece]:
    return [json_piece("inferometer.pytorch.json", [record for run in request.runs for record in records(run)])]


def records(run: Run) -> list[dict[str, Any]]:
    match run.kind:
        case "serving":
            return _of_document(run, serve_document(run), SERVE)
        case "throughput":
            return _of_document(run, throughput_document(run.summary), THROUGHPUT)
        case "latency":
            return [_hud_latency(run, name, content) for name, content in latency_documents(run).items()]
    return [
        _record(run, key, [quantity.value], {"unit": quantity.unit})
        for key, quantity in quantities(run.summary).items()
    ]


def _of_document(run: Run, document: dict[str, Any], metrics: tuple[str, ...]) -> list[dict[str, Any]]:
    extra = {name: value for name, value in document.items() if name not in metrics}
    known = {name: document[name] for name in metrics if document.get(name) is not None}
    return [_record(run, name, [value], extra) for name, value in known.items()]


def _hud_latency(run: Run, name: str, document: dict[str, Any]) -> dict[str, Any]:
    extra = {"avg_latency": document["avg_latency"], "percentiles": document["percentiles"], "case": name}
    return _record(run, "latency", document["latencies"], extra)


def _record(run: Run, name: str, values: list[float], extra: dict[str, Any]) -> dict[str, Any]:
    about = {
        "args": {**run.plan.server_args, "load": dict(load_of(run))},
        "run": run.id,
        "verdict": run.status,
        "gpus": list(run.subject.accelerators),
        "engine_version": run.subject.engine_version,
    }
    return {
        "benchmark": {"name": run.plan.name or "inferometer", "mode": run.kind, "extra_info": about},
        "model": {"name": run.subject.model},
        "metric": {"name": name, "benchmark_values": values, "extra_info": extra},
    }
