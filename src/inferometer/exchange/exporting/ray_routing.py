"""The files that Ray's prefix-aware scheduler keeps of itself, second by second: load and tree of every replica, match
rate and decision of every request, the cost of looking at queues and of evictions, and what the engines told."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from inferometer.errors import StoreError
from inferometer.exchange.exporting.facts import strategy_of
from inferometer.exchange.exporting.registry import ExportRequest, Piece, json_piece, of_kind, text_piece
from inferometer.measure.routing import ByReplica, Decisions, decisions_of, load_by_replica, router_series
from inferometer.measure.server import all_series, is_server
from inferometer.record.run import Run
from inferometer.record.sample import Samples
from inferometer.record.sanitize import file_name_part
from inferometer.vocabulary import NANOSECONDS

DIGITS = 3  # of elapsed seconds


def export(request: ExportRequest) -> list[Piece]:
    """Of every run a set of files, named by its plan, or by its strategy, and its seed."""
    made: list[Piece] = []
    for run in request.runs:
        of_kind(run, {"serving": run}, "the router's own files")
        samples = run.samples
        if samples is None or not len(samples):
            raise StoreError(f"{run.id}: nothing was sampled during the load, so there are no files of a router")
        label = file_name_part(str(run.plan.get("name") or strategy_of(run) or "routing"))
        made += _of_run(samples, f"{label}_seed{run.plan.get('seed') or 0}", request, run)
    return made


def _of_run(samples: Samples, prefix: str, request: ExportRequest, run: Run) -> list[Piece]:
    start_at = int(samples.at.min())
    decisions = decisions_of(samples)
    files = [
        json_piece(f"{prefix}_load_distribution.json", _over_time(load_by_replica(samples), start_at)),
        json_piece(f"{prefix}_char_count_over_time.json", _over_time(router_series(samples, "tree_chars"), start_at)),
        json_piece(f"{prefix}_metrics.json", _metrics(samples, start_at)),
        json_piece(f"{prefix}_eviction_times.json", _eviction_times(samples)),
    ]
    if decisions is None:
        request.notes.append(f"{run.id}: the router told no decisions, so there are no files of them")
        return files
    return [*files, *_of_decisions(decisions, prefix, start_at)]


def _of_decisions(decisions: Decisions, prefix: str, start_at: int) -> list[Piece]:
    elapsed = _elapsed(decisions.at, start_at)
    rates = zip(elapsed, decisions.replica, decisions.match_rate.tolist(), strict=True)
    searches = zip(decisions.searched.tolist(), decisions.search_s.tolist(), strict=True)
    # Ray may give a replica that was found for one request to another that waits longer.
    matched = zip(decisions.session.tolist(), decisions.given_to.tolist(), decisions.kind, strict=True)
    heads = ("original_request_id", "matched_replica_request_id", "scheduling_decision")
    return [
        _table(f"{prefix}_prefix_match_rate.csv", ("time", "replica_id", "match_rate"), rates),
        _table(f"{prefix}_scheduling_mismatches.csv", heads, matched),
        _table(f"{prefix}_queue_overhead.csv", ("num_searched", "search_duration"), searches),
    ]


def _table(name: str, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Piece:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(rows)
    return text_piece(name, lines.getvalue())


def _elapsed(at: Any, start_at: int) -> list[float]:
    rounded: list[float] = np.round((at - start_at) / NANOSECONDS, DIGITS).tolist()
    return rounded


def _over_time(series: ByReplica, start_at: int) -> dict[str, dict[str, float]]:
    """`{elapsed: {replica: value}}`."""
    table: dict[str, dict[str, float]] = {}
    for replica, (at, values) in series.items():
        for elapsed, value in zip(_elapsed(at, start_at), values.tolist(), strict=True):
            table.setdefault(f"{elapsed:g}", {})[replica] = value
    return table


def _metrics(samples: Samples, start_at: int) -> dict[str, dict[str, dict[str, float]]]:
    """`{elapsed: {worker: {metric: value}}}`, with the names that this project gives what engines tell."""
    sources = [source for source in samples.source.counts() if source is not None and is_server(source)]
    table: dict[str, dict[str, dict[str, float]]] = {}
    for series in all_series(samples, sources):
        name = f"{series.name}{_label_text(series.labels)}"
        worker = series.source.rpartition("://")[2]
        for elapsed, value in zip(_elapsed(series.at, start_at), series.value.tolist(), strict=True):
            table.setdefault(f"{elapsed:g}", {}).setdefault(worker, {})[name] = value
    return table


def _label_text(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{name}={value}" for name, value in sorted(labels.items())) + "}" if labels else ""


def _eviction_times(samples: Samples) -> dict[str, float | int | None]:
    """How often the tree was cut back, how much went, and how long a pass took on this machine."""
    took = samples.series("eviction_s")[1]
    chars = samples.series("evicted_chars")[1]
    known = len(took) > 0
    return {
        "passes": len(took),
        "chars": float(chars.sum()),
        "mean_s": float(took.mean()) if known else None,
        "max_s": float(took.max()) if known else None,
    }
