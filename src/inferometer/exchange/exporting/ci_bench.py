"""The files of a CI benchmark that keeps its history as JSON beside its pages: data points and a table of latencies by
batch size, and three databases, appended to: latencies, serving by length pair, the trade-off over concurrency.

Latencies are seconds and carry no unit in their name; what is named `_ms` is milliseconds. The layout is that of
cquil11/cam-ci-challenge; its databases are one file each, read whole by a page.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from inferometer.errors import StoreError
from inferometer.exchange.exporting.facts import concurrency_of, rate_of, requested_lengths, served_lengths, started
from inferometer.exchange.exporting.registry import ExportRequest, Piece, json_piece, of_kind, text_piece
from inferometer.exchange.exporting.vllm import latency_document, serve_document
from inferometer.measure.values import quantities
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


def export(request: ExportRequest) -> list[Piece]:
    kinds = {"latency": "latency", "serving": "serving"}
    groups: dict[str, list[Run]] = {"latency": [], "serving": []}
    for run in request.runs:
        groups[of_kind(run, kinds, "the CI benchmark")].append(run)
    return [*_latency(groups["latency"], request), *_serving(groups["serving"], request)]


def data_point(run: Run) -> dict[str, Any]:
    """Of one run, a row per batch size; the timestamp is when it was measured, not when it was exported."""
    rows = [_row(case) for case in run.summary.cases if case.latencies]
    if not rows:
        raise StoreError(f"{run.id}: no latencies by batch size in it")
    return {"timestamp": started(run).isoformat(), "results": sorted(rows, key=lambda row: row["batch_size"])}


def _row(case: BatchCase) -> dict[str, Any]:
    document = latency_document(case.latencies)
    quantiles = {f"p{share}": document["percentiles"][str(share)] for share in (50, 90, 99)}
    return {"batch_size": case.batch_size, "avg_latency": document["avg_latency"], **quantiles}


def _latency(runs: Sequence[Run], request: ExportRequest) -> list[Piece]:
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
    """With the colons that set numbers to the right."""
    cells = [[str(row["batch_size"]), *(f"{row[name]:.6g}" for name in COLUMNS[1:])] for row in rows]
    widths = [max(len(name), *(len(line[at]) for line in cells)) for at, name in enumerate(COLUMNS)]
    ruler = "|".join(f"{'-' * (width + 1)}:" for width in widths)
    lines = [_line(COLUMNS, widths), f"|{ruler}|", *(_line(line, widths) for line in cells)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def _serving(runs: Sequence[Run], request: ExportRequest) -> list[Piece]:
    """A rate makes a point of a length pair's history, a concurrency one of the trade-off."""
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
    """A pair is named by the lengths that were asked for, else by those served: it is what stays the same. The numbers
    are of what was served."""
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
    """Throughput against the speed of one user, 1 / TPOT; the cost only where the run has a price."""
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
    """What is there already; something else under its name is not overwritten."""
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
