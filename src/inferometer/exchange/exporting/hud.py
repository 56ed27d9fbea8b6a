"""Records for the PyTorch HUD's benchmark database, as vLLM's own benchmarks write them: a record per metric, under
the names that its dashboard knows."""

from typing import Any

from inferometer.exchange.exporting.facts import load_of, section
from inferometer.exchange.exporting.registry import ExportRequest, Piece, json_piece
from inferometer.exchange.exporting.vllm import latency_documents, serve_document, throughput_document
from inferometer.measure.values import quantities
from inferometer.record.run import Run

# the metrics of `vllm bench serve`; everything else that it says goes beside each of them
SERVE = (
    *(f"{stat}_{name}_ms" for name in ("ttft", "tpot", "itl", "e2el") for stat in ("mean", "median", "std", "p99")),
    *("request_throughput", "output_throughput", "total_token_throughput"),
)
THROUGHPUT = ("requests_per_second", "tokens_per_second")


def export(request: ExportRequest) -> list[Piece]:
    return [json_piece("inferometer.pytorch.json", [record for run in request.runs for record in records(run)])]


def records(run: Run) -> list[dict[str, Any]]:
    match run.kind:
        case "serving":
            return _of_document(run, serve_document(run), SERVE)
        case "throughput":
            return _of_document(run, throughput_document(run.summary), THROUGHPUT)
        case "latency":
            return [_latency(run, name, content) for name, content in latency_documents(run).items()]
    return [
        _record(run, key, [quantity.value], {"unit": quantity.unit})
        for key, quantity in quantities(run.summary).items()
    ]


def _of_document(run: Run, document: dict[str, Any], metrics: tuple[str, ...]) -> list[dict[str, Any]]:
    extra = {name: value for name, value in document.items() if name not in metrics}
    known = {name: document[name] for name in metrics if document.get(name) is not None}
    return [_record(run, name, [value], extra) for name, value in known.items()]


def _latency(run: Run, name: str, document: dict[str, Any]) -> dict[str, Any]:
    extra = {"avg_latency": document["avg_latency"], "percentiles": document["percentiles"], "case": name}
    return _record(run, "latency", document["latencies"], extra)


def _record(run: Run, name: str, values: list[float], extra: dict[str, Any]) -> dict[str, Any]:
    about = {
        "args": {**section(run.plan, "server", "args"), "load": dict(load_of(run))},
        "run": run.id,
        "verdict": run.status,
        "gpus": list(run.subject.accelerators),
        "engine_version": run.subject.engine_version,
    }
    return {
        "benchmark": {"name": run.plan.get("name") or "inferometer", "mode": run.kind, "extra_info": about},
        "model": {"name": run.subject.model},
        "metric": {"name": name, "benchmark_values": values, "extra_info": extra},
    }
