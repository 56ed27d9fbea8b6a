"""llm-d's benchmark report of version 0.1, which its older tools read: the numbers of version 0.2.1 in the units and
places of 0.1. Its list of load generators is closed and lacks us: `metadata.tool` says who measured."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import orjson
import yaml

from inferometer.errors import StoreError
from inferometer.exchange.exporting import llmd
from inferometer.exchange.exporting.facts import duration_of, section, started
from inferometer.exchange.exporting.registry import ExportRequest, Piece, json_piece, text_piece
from inferometer.measure.values import quantities
from inferometer.record.run import Run

VERSION = "0.1"
GENERATORS = ("fmperf", "guidellm", "inference-perf", "vllm-benchmark", "nop")
NEAREST = "inference-perf"  # of those that the schema allows
RATES = {
    "input_tokens_per_sec": "input_rate",
    "output_tokens_per_sec": "output_rate",
    "total_tokens_per_sec": "total_rate",
    "requests_per_sec": "request_rate",
}
_PER_TOKEN = 1000.0  # s/token to ms/token, the only unit for it there


def export(request: ExportRequest) -> list[Piece]:
    """YAML, or JSON where the path says so."""
    made = []
    for run in request.runs:
        name = f"benchmark_report_v{VERSION}_{run.id}"
        plain = orjson.loads(orjson.dumps(report(run), option=orjson.OPT_SERIALIZE_NUMPY))
        text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
        made.append(
            json_piece(f"{name}.json", plain) if request.suffix == ".json" else text_piece(f"{name}.yaml", text)
        )
    return made


def report(run: Run) -> dict[str, Any]:
    """What the schema requires must be there: TTFT, total tokens per second, the requests, the duration."""
    newer = llmd.report(run)["results"]["request_performance"]["aggregate"]
    latency, requests = newer.get("latency") or {}, newer.get("requests")
    if "time_to_first_token" not in latency or requests is None or duration_of(run) is None:
        raise StoreError(f"{run.id}: a benchmark report of version {VERSION} needs the times to first token of a run")
    return {
        "version": VERSION,
        "scenario": _scenario(run),
        "metrics": {
            "time": _time(run),
            "requests": requests,
            "latency": {name: _in_ms(statistics) for name, statistics in latency.items()},
            "throughput": _throughput(run),
            "metadata": {"verdict": run.status},
        },
    }


def _scenario(run: Run) -> dict[str, Any]:
    gpus, args = list(run.subject.accelerators), dict(section(run.plan, "server", "args"))
    engine = {"name": run.subject.engine or "unknown", "version": run.subject.engine_version, "args": args or None}
    host = {
        "accelerator": [{"model": gpus[0], "count": len(gpus)}] if gpus else None,
        "type": ["replica"] if gpus else None,
    }
    load = {
        "name": run.source if run.source in GENERATORS else NEAREST,
        "type": section(run.plan, "load").get("type"),
        "args": dict(run.plan),
        "metadata": {"tool": run.source or "inferometer", "tool_version": run.environment.inferometer},
    }
    whole = {
        "description": run.plan.get("about") or run.plan.get("name"),
        "host": _known(host) or None,
        "platform": {"engine": [_known(engine)]},
        "model": {"name": run.subject.model or "unknown"},
        "load": _known(load),
    }
    return _known(whole)


def _time(run: Run) -> dict[str, Any]:
    start, length_s = started(run), duration_of(run) or 0.0
    stop = start + timedelta(seconds=length_s)
    return {"duration": length_s, "start": start.timestamp(), "stop": stop.timestamp()}


def _in_ms(statistics: Mapping[str, Any]) -> dict[str, Any]:
    """Times per token in ms/token, the others in seconds as they are."""
    if statistics["units"] != "s/token":
        return dict(statistics)
    scaled = {name: value * _PER_TOKEN for name, value in statistics.items() if name != "units"}
    return {"units": "ms/token", **scaled}


def _throughput(run: Run) -> dict[str, float]:
    values = quantities(run.summary)
    return {theirs: values[ours].value for theirs, ours in RATES.items() if ours in values}


def _known(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value is not None}
