"""The files of Ray's prefix-aware sweep: one line per run with client metrics and one with engine metrics; and the
per-second files of its scheduler."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from inferometer.documents.document import Document
from inferometer.errors import StoreError
from inferometer.exchange.exporting import (
    DocumentPiece,
    ExportRequest,
    concurrency_of,
    json_piece,
    label_of,
    lengths_of,
    of_kind,
    rate_of,
    records_of,
    seen_by_others,
    server_of,
    server_series,
    strategy_of,
    text_piece,
    traffic_of,
)
from inferometer.measure.rosetta import (
    MS,
    SeenRequests,
    Some,
    defined,
    input_lengths,
    output_lengths,
    per_second,
    posted_to_first,
    statistic,
    total,
    vllm,
)
from inferometer.measure.rosetta import vllm as sglang
from inferometer.measure.server import (
    ByReplica,
    Decisions,
    all_series,
    decisions_of,
    histogram,
    is_server,
    load_by_replica,
    pooled,
    router_series,
)
from inferometer.plan.server import ROUTED
from inferometer.record.record import Samples
from inferometer.record.run import Run
from inferometer.record.sanitize import cell, file_name_part
from inferometer.vocabulary import NANOSECONDS

Row = dict[str, Any]

CLIENT_DIGITS, SERVER_DIGITS = 4, 7
STATISTICS = {"mean": None, "median": 0.5, "std": None, "p99": 0.99}
COUNTERS = {
    "ray_vllm:prompt_tokens_total": "prompt_tokens",
    "ray_vllm:generation_tokens_total": "generation_tokens",
    "ray_vllm:request_success_total": "requests_ok",
}
HISTOGRAMS = {
    "ray_vllm:time_to_first_token_seconds": ("ttft",),
    "ray_vllm:time_per_output_token_seconds": ("itl", "tpot"),
    "ray_vllm:e2e_request_latency_seconds": ("e2e",),
    "ray_vllm:request_queue_time_seconds": ("queue_time",),
    "ray_vllm:request_inference_time_seconds": ("inference_time",),
    "ray_vllm:request_prefill_time_seconds": ("prefill_time",),
    "ray_vllm:request_decode_time_seconds": ("decode_time",),
}


def export_sweep(request: ExportRequest) -> list[DocumentPiece]:
    rows: dict[str, list[Row]] = {}
    for run in request.runs:
        of_kind(run, {"serving": run}, "the sweep")
        name = file_name_part(_dataset(run))
        rows.setdefault(f"serve_{name}_sweep_results.csv", []).append(_parameters(run) | client_metrics(run))
        metrics = server_metrics(run)
        if any(value is not None for value in metrics.values()):
            rows.setdefault(f"vllm_{name}_sweep_results.csv", []).append(_parameters(run) | metrics)
        else:
            request.notes.append(f"{run.id}: no engine metrics were sampled, so the vllm CSV has no line for it")
    return [text_piece(name, _appended(request.there(name), lines)) for name, lines in rows.items()]


def _parameters(run: Run) -> Row:
    """The requested settings under the sweep's names; unknown ones are empty."""
    plan, gpus = traffic_of(run), list(run.subject.accelerators)
    server = server_of(run)
    engine = server.section("of") if server.text("type") in ROUTED else server
    arguments = engine.section("args")
    if engine.text("type") == "simulator":
        arguments = Document({**_SIMULATOR, **arguments})
    outputs = lengths_of(run, "output_tokens")
    row = {
        "gpu_type": gpus[0] if gpus else _simulated_gpu(arguments),
        "model_name": run.subject.model,
        "num_servers": _servers(run),
        "enable_prefix_caching": arguments.get("enable_prefix_caching"),
        "enable_chunked_prefill": arguments.get("enable_chunked_prefill"),
        "benchmark_label": label_of(run, run.plan.name),
        "scheduler_strategy": strategy_of(run),
        "min_output_len": None if outputs is None else outputs.min or outputs.value,
        "max_output_len": None if outputs is None else outputs.max or outputs.value,
        "max_concurrency": concurrency_of(run),
        "request_rate": "inf" if rate_of(run) is None else rate_of(run),
        "with_warmup": run.plan.warms_up_with_tape,
        "disable_ignore_eos": plan.section("sampling").flag("ignore_eos") is False,
        "disable_stream": run.plan.section("target").flag("stream") is False,
    }
    return row | _of_dataset(run)


_SIMULATOR = {"enable_prefix_caching": True, "enable_chunked_prefill": True}  # its defaults


def _simulated_gpu(arguments: Mapping[str, Any]) -> str | None:
    """The accelerator that the simulator is configured for: `L4 (simulated)`."""
    preset = arguments.get("preset")
    return f"{str(preset).rpartition('/')[2].upper()} (simulated)" if preset else None


def _servers(run: Run) -> int | None:
    replicas = server_of(run).get("replicas")
    if isinstance(replicas, int):
        return replicas
    return len(run.environment.known_target.urls) or (1 if run.subject.address else None)


def _dataset(run: Run) -> str:
    workload = traffic_of(run).section("workload")
    if workload.get("prefix"):
        return "generated-shared-prefix"
    return {"synthetic": "random"}.get(str(workload.get("type")), str(workload.get("type") or "random"))


def _of_dataset(run: Run) -> Row:
    workload = traffic_of(run).section("workload")
    prefix = workload.section("prefix")
    if prefix:
        names = {"num_prefixes": "groups", "suffixes_per_prefix": "prompts"}
        names |= {"prefix_len": "tokens", "suffix_len": "suffix_tokens"}
        return {theirs: prefix.get(ours) for theirs, ours in names.items()}
    sent = sum(run.summary.outcomes.values())
    if run.plan.warms_up_with_tape:
        sent -= run.plan.section("warmup").count("requests") or sent // 2
    return {"max_conversations": workload.get("conversations", workload.get("groups")), "num_prompts": sent or None}


def client_metrics(run: Run) -> Row:
    """Nineteen numbers: the run, its rates, and TTFT, TPOT, ITL and E2E in milliseconds."""
    seen = seen_by_others(run, records_of(run))
    lengths = {"input_throughput": input_lengths(seen.good), "output_throughput": output_lengths(seen.good)}
    row: Row = {
        "duration": seen.duration_s,
        "completed": len(seen.good),
        "request_throughput": per_second(len(seen.good), seen.duration_s),
        **{name: per_second(total(tokens), seen.duration_s) for name, tokens in lengths.items()},
    }
    for name, series in _series(seen).items():
        for stat in STATISTICS if name != "e2e_latency_ms" else ("mean", "median"):
            value = statistic(series, stat, STATISTICS[stat], vllm.VLLM.quantile)
            row[f"{stat}_{name}"] = None if value is None else value * MS
    return _rounded(row, CLIENT_DIGITS)


def _series(seen: SeenRequests) -> dict[str, Some]:
    itl = next(spread for spread in sglang.SGLANG.spreads if spread.name == "ITL")
    return {
        "ttft_ms": defined(posted_to_first(seen)),
        "tpot_ms": defined(vllm.tpot(seen)),  # by the served length
        "itl_ms": itl.series(seen),
        "e2e_latency_ms": defined(sglang.latency(seen)),
    }


def server_metrics(run: Run) -> Row:
    """Over the run, all engines together: sum of sums by sum of counts, in seconds. The sweep uses counters since the
    engines' start, which are equal if the engines were started for it."""
    series = server_series(run)
    row: Row = {}
    for theirs, ours in COUNTERS.items():
        grown = pooled(series, ours)
        row[theirs] = None if grown is None else grown.grown
    for theirs, names in HISTOGRAMS.items():
        observed = next((candidate for name in names if (candidate := histogram(series, name)) is not None), None)
        row[theirs] = None if observed is None else observed.mean
    return _rounded(row, SERVER_DIGITS)


def _rounded(row: Mapping[str, Any], digits: int) -> Row:
    return {name: round(value, digits) if isinstance(value, float) else value for name, value in row.items()}


def _appended(there: bytes | None, rows: list[Row]) -> str:
    """The file with new lines appended; existing content is unchanged."""
    text = (there or b"").decode("utf-8", "replace")
    text += "\n" if text and not text.endswith("\n") else ""
    header = list(rows[0])
    known = next((line for line in reversed(list(csv.reader(io.StringIO(text)))) if line[:1] == ["gpu_type"]), None)
    lines = io.StringIO()
    writer = csv.DictWriter(lines, header, lineterminator="\n")
    if known != header:
        writer.writeheader()
    writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    return text + lines.getvalue()


DIGITS = 3  # of elapsed seconds


def export_routing(request: ExportRequest) -> list[DocumentPiece]:
    """A set of files per run, named by its plan or strategy, and its seed."""
    made: list[DocumentPiece] = []
    for run in request.runs:
        of_kind(run, {"serving": run}, "the router's own files")
        samples = run.samples
        if samples is None or not len(samples):
            raise StoreError(f"{run.id}: nothing was sampled during the load, so there are no files of a router")
        label = file_name_part(str(run.plan.name or strategy_of(run) or "routing"))
        made += _of_run(samples, f"{label}_seed{run.plan.seed}", request, run)
    return made


def _of_run(samples: Samples, prefix: str, request: ExportRequest, run: Run) -> list[DocumentPiece]:
    start_at = int(samples.at.min())
    decisions = decisions_of(samples)
    files = [
        json_piece(f"{prefix}_load_distribution.json", _over_time(load_by_replica(samples), start_at)),
        json_piece(f"{prefix}_char_count_over_time.json", _over_time(router_series(samples, "tree_chars"), start_at)),
        json_piece(f"{prefix}_metrics.json", _metrics(samples, start_at)),
        json_piece(f"{prefix}_eviction_times.json", _eviction_times(samples)),
    ]
    if decisions is None:
        request.notes.append(f"{run.id}: the router recorded no decisions, so there are no files of them")
        return files
    return [*files, *_of_decisions(decisions, prefix, start_at)]


def _of_decisions(decisions: Decisions, prefix: str, start_at: int) -> list[DocumentPiece]:
    elapsed = _elapsed(decisions.at, start_at)
    rates = zip(elapsed, decisions.replica, decisions.match_rate.tolist(), strict=True)
    searches = zip(decisions.searched.tolist(), decisions.search_s.tolist(), strict=True)
    # Ray may give a replica that was chosen for one request to another that has waited longer.
    matched = zip(decisions.session.tolist(), decisions.given_to.tolist(), decisions.kind, strict=True)
    heads = ("original_request_id", "matched_replica_request_id", "scheduling_decision")
    return [
        _table(f"{prefix}_prefix_match_rate.csv", ("time", "replica_id", "match_rate"), rates),
        _table(f"{prefix}_scheduling_mismatches.csv", heads, matched),
        _table(f"{prefix}_queue_overhead.csv", ("num_searched", "search_duration"), searches),
    ]


def _table(name: str, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> DocumentPiece:
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
    """`{elapsed: {worker: {metric: value}}}`, with this project's names for the engines' metrics."""
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
    """Number of evictions of the tree, evicted characters, and the time of an eviction on this machine."""
    took = samples.series("eviction_s")[1]
    chars = samples.series("evicted_chars")[1]
    known = len(took) > 0
    return {
        "passes": len(took),
        "chars": float(chars.sum()),
        "mean_s": float(took.mean()) if known else None,
        "max_s": float(took.max()) if known else None,
    }
