"""Records for the PyTorch HUD's benchmark database, as vLLM's own benchmarks write them: a record per metric, under
the names that its dashboard knows."""

from typing import Any

from inferometer.exchange.exporting.facts import gpus_of, load_of, model_of, section, version_of
from inferometer.exchange.exporting.registry import Asked, Piece, json_piece
from inferometer.exchange.exporting.vllm import latency_documents, serve_document, throughput_document
from inferometer.measure.values import quantities
from inferometer.record.run import Run

# the metrics of `vllm bench serve`; everything else that it says goes beside each of them
SERVE = (
    *(f"{word}_{name}_ms" for name in ("ttft", "tpot", "itl", "e2el") for word in ("mean", "median", "std", "p99")),
    *("request_throughput", "output_throughput", "total_token_throughput"),
)
THROUGHPUT = ("requests_per_second", "tokens_per_second")


def export(asked: Asked) -> list[Piece]:
    return [json_piece("inferometer.pytorch.json", [each for run in asked.runs for each in records(run)])]


def records(run: Run) -> list[dict[str, Any]]:
    match run.kind:
        case "serving":
            return _of_document(run, serve_document(run), SERVE)
        case "throughput":
            return _of_document(run, throughput_document(run.summary), THROUGHPUT)
        case "latency":
            return [_latency(run, name, content) for name, content in latency_documents(run).items()]
    return [_record(run, key, [each.value], {"unit": each.unit}) for key, each in quantities(run.summary).items()]


def _of_document(run: Run, said: dict[str, Any], metrics: tuple[str, ...]) -> list[dict[str, Any]]:
    beside = {name: value for name, value in said.items() if name not in metrics}
    known = {name: said[name] for name in metrics if said.get(name) is not None}
    return [_record(run, name, [value], beside) for name, value in known.items()]


def _latency(run: Run, name: str, said: dict[str, Any]) -> dict[str, Any]:
    beside = {"avg_latency": said["avg_latency"], "percentiles": said["percentiles"], "case": name}
    return _record(run, "latency", said["latencies"], beside)


def _record(run: Run, name: str, values: list[float], beside: dict[str, Any]) -> dict[str, Any]:
    about = {
        "args": {**section(run.plan, "server", "args"), "load": dict(load_of(run))},
        "run": run.id,
        "verdict": run.status,
        "gpus": gpus_of(run),
        "engine_version": version_of(run),
    }
    return {
        "benchmark": {"name": run.plan.get("name") or "inferometer", "mode": run.kind, "extra_info": about},
        "model": {"name": model_of(run)},
        "metric": {"name": name, "benchmark_values": values, "extra_info": beside},
    }
