"""llm-d's benchmark report, v0.2.1: seconds with their unit, percentiles under the schema's own names, computed
from the records if the summary has too few. The numbers use our definitions."""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

import orjson
import yaml

from inferometer.errors import StoreError
from inferometer.exchange.exporting import (
    DocumentPiece,
    ExportRequest,
    concurrency_of,
    duration_of,
    json_piece,
    lengths_of,
    rate_of,
    served_lengths,
    started,
    text_piece,
    traffic_of,
)
from inferometer.judge.identity import identity
from inferometer.measure import quantiles
from inferometer.measure.describe import share_of
from inferometer.measure.inputs import Answers, Facts
from inferometer.measure.registry import REGISTRY
from inferometer.measure.tally import Tally, gap_values
from inferometer.measure.values import Quantity, quantities
from inferometer.measure.window import whole_window
from inferometer.plan.model import Lengths
from inferometer.record.columns import Mask
from inferometer.record.record import CENSORED
from inferometer.record.run import Run
from inferometer.record.summary import MeasureSummary, Summary

# -- spread ----------------------------------------------------------------------------------------------------------

CONFIDENCE = 0.95
MORE = ("p0.1", "p1", "p5", "p10", "p25", "p75", "p99.9")


def spreads(run: Run, names: Collection[str]) -> dict[str, dict[str, float]]:
    """The statistics of our measures by name, as the summary has them, and more quantiles from the records. An unknown
    quantile of the summary stays unknown: there were too few values."""
    statistics = _summary_statistics(run.summary, names)
    records = run.records
    if records is None or run.source is not None:
        return statistics
    answers = Answers.of(records)
    chosen = _window(run, answers)
    if chosen is not None:
        for name, known in statistics.items():
            known |= _more(answers, chosen, name)
    return statistics


def _summary_statistics(summary: Summary, names: Collection[str]) -> dict[str, dict[str, float]]:
    statistics: dict[str, dict[str, float]] = {}
    for quantity in quantities(summary).values():
        if quantity.name in names and quantity.statistic is not None:
            statistics.setdefault(quantity.name, {})[quantity.statistic] = quantity.value
    return statistics


def _window(run: Run, answers: Answers) -> Mask | None:
    """The answered requests of the window; None if they do not match the summary."""
    if run.plan.checked is None:
        return None
    window = whole_window(answers, run.plan.checked, Facts())
    inside = window.holds(answers.records.scheduled_at)
    same = int(inside.sum()) == run.summary.window.requests
    return answers.ok & inside if same else None


def _more(answers: Answers, chosen: Mask, name: str) -> dict[str, float]:
    measure = REGISTRY.get(name)
    if measure is None:
        return {}
    sample: quantiles.Distribution
    if measure.gaps is not None:
        sample = gap_values(answers, chosen, measure).sample
        if isinstance(sample, Tally):
            sample.prepare([share_of(quantile) for quantile in MORE], CONFIDENCE)
    elif measure.per_request is not None:
        values = measure.per_request(answers)[chosen]
        sample = quantiles.sample(values[values == values])
    else:
        return {}
    estimates = (
        {quantile: quantiles.estimate(sample, share_of(quantile), CONFIDENCE).value for quantile in MORE}
        if len(sample)
        else {}
    )
    return {quantile: value for quantile, value in estimates.items() if value is not None}


# -- llmd ------------------------------------------------------------------------------------------------------------

VERSION = "0.2.1"
LATENCIES = {  # our measure, and its unit
    "time_to_first_token": ("ttft", "s"),
    "time_per_output_token": ("tpot", "s/token"),
    "inter_token_latency": ("itl", "s/token"),
    "normalized_time_per_output_token": ("ntpot", "s/token"),
    "request_latency": ("e2e", "s"),
}
LENGTHS = {"input_length": "input_tokens", "output_length": "output_tokens"}
RATES = {
    "input_token_rate": ("input_rate", "tokens/s"),
    "output_token_rate": ("output_rate", "tokens/s"),
    "total_token_rate": ("total_rate", "tokens/s"),
    "request_rate": ("request_rate", "queries/s"),
}
# The schema accepts any key in a statistic but reads only these: another spelling would be ignored silently.
STATISTICS = {
    **{name: name for name in ("mean", "min", "max", "p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99")},
    "std": "stddev",
    "p0.1": "p0p1",
    "p99.9": "p99p9",
}


def export(request: ExportRequest) -> list[DocumentPiece]:
    """The report v0.2.1 as YAML, or as JSON for such a path."""
    as_json = request.suffix == ".json"
    return [_piece(run, as_json) for run in request.runs]


def _piece(run: Run, as_json: bool) -> DocumentPiece:
    name = f"benchmark_report_v{VERSION}_{run.id}"
    plain = orjson.loads(orjson.dumps(report(run), option=orjson.OPT_SERIALIZE_NUMPY))
    if as_json:
        return json_piece(f"{name}.json", plain)
    return text_piece(f"{name}.yaml", yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


def report(run: Run) -> dict[str, Any]:
    return _known(
        {
            "version": VERSION,
            "run": _run(run),
            "scenario": _known({"stack": _stack(run), "load": _load(run)}),
            "results": {"request_performance": {"aggregate": _aggregate(run)}, **_sessions(run)},
        }
    )


def _run(run: Run) -> dict[str, Any]:
    start, length_s = started(run), duration_of(run)
    end = None if length_s is None else start + timedelta(seconds=length_s)
    return _known(
        {
            "uid": run.id,
            "eid": identity(run).key,
            "time": _known(
                {
                    "start": start.isoformat(),
                    "end": None if end is None else end.isoformat(),
                    "duration": None if length_s is None else f"PT{length_s:.6f}S",
                }
            ),
            "description": run.plan.title,
            "keywords": [f"verdict:{run.status}"] if run.status else None,
        }
    )


def _stack(run: Run) -> list[dict[str, Any]] | None:
    """The engine, if its model and version are known; without accelerators the component has no kind."""
    model, gpus = run.subject.model, list(run.subject.accelerators)
    engine = {"tool": run.subject.engine or "unknown", "tool_version": run.subject.engine_version or "unknown"}
    hashes = identity(run)
    metadata = {"schema_version": "0.0.1", "label": "engine-0", "cfg_id": hashes.stack}
    if model is None:
        return None
    if gpus:
        shape = {"model": gpus[0], "count": len(gpus), "parallelism": {"tp": _parallel(run) or len(gpus)}}
        standard = {"kind": "inference_engine", **engine, "role": "replica", "replicas": 1}
        standard |= {"model": {"name": model}, "accelerator": shape}
    else:
        standard = {"kind": "generic", **engine, "model": model}
    native = {"args": dict(run.plan.server_args)}
    return [{"metadata": metadata, "standardized": standard, "native": native}]


def _parallel(run: Run) -> int | None:
    args = run.plan.server_args
    return args.count("tensor_parallel_size") or args.count("tensor-parallel-size")


def _load(run: Run) -> dict[str, Any] | None:
    """The requested load; the results have the served lengths."""
    inputs = _length(lengths_of(run, "input_tokens"), served_lengths(run)[0])
    if inputs is None:
        return None
    cap = concurrency_of(run)
    standard = {
        "tool": run.source or "inferometer",
        "tool_version": run.environment.inferometer or "unknown",
        "parallelism": max(1, run.environment.workers or 1),
        "source": _source(run),
        "input_seq_len": inputs,
        "output_seq_len": _length(lengths_of(run, "output_tokens"), None),
        "rate_qps": rate_of(run) or None,
        "concurrency": cap if cap and cap >= 1 else None,
    }
    metadata = {"schema_version": "0.0.1", "cfg_id": identity(run).workload}
    return {"metadata": metadata, "standardized": _known(standard), "native": {"config": dict(run.plan)}}


def _source(run: Run) -> str:
    kind = traffic_of(run).section("workload").text("type")
    return "unknown" if kind is None else "random" if kind == "synthetic" else "sampled"


def _length(requested: Lengths | None, served: int | None) -> dict[str, Any] | None:
    """The length distribution of the plan; if it has none, the served lengths with an unknown distribution."""
    middle = None if requested is None else requested.mean_value
    if requested is None or middle is None:
        return None if served is None else {"distribution": "other", "value": served}
    kind = {"fixed": "fixed", "uniform": "uniform", "normal": "gaussian"}.get(requested.type, "other")
    return _known(
        {"distribution": kind, "value": middle, "std_dev": requested.std, "min": requested.min, "max": requested.max}
    )


def _aggregate(run: Run) -> dict[str, Any]:
    statistics = spreads(run, {name for name, _ in LATENCIES.values()} | set(LENGTHS.values()))
    values = quantities(run.summary)
    latency = {theirs: _statistics(statistics.get(ours), unit) for theirs, (ours, unit) in LATENCIES.items()}
    rates = {theirs: _rate(values.get(ours), unit) for theirs, (ours, unit) in RATES.items()}
    lengths = {theirs: _statistics(statistics.get(ours), "count") for theirs, ours in LENGTHS.items()}
    requests = _requests(run)
    return _known(
        {
            "requests": None if requests is None else _known(requests | lengths),
            "latency": _known(latency),
            "throughput": _known(rates),
        }
    )


def _requests(run: Run) -> dict[str, Any] | None:
    """Counts of requests. Failed and unfinished ones are separate; the total is the number sent."""
    outcomes = run.summary.outcomes
    if not outcomes:
        return None if run.summary.requests is None else {"total": run.summary.requests}
    cut = sum(outcomes.get(outcome, 0) for outcome in CENSORED)
    total = sum(outcomes.values())
    return {"total": total, "failures": total - outcomes.get("ok", 0) - cut, "incomplete": cut}


def _statistics(statistics: Mapping[str, float] | None, unit: str) -> dict[str, Any] | None:
    """A statistics object; None without a mean, which the schema requires."""
    if not statistics or "mean" not in statistics:
        return None
    return {"units": unit} | {theirs: statistics[ours] for ours, theirs in STATISTICS.items() if ours in statistics}


def _rate(quantity: Quantity | None, unit: str) -> dict[str, Any] | None:
    return None if quantity is None else {"units": unit, "mean": quantity.value}


def _sessions(run: Run) -> dict[str, Any]:
    """The session section, only for runs with sessions of several turns."""
    sessions = run.summary.sessions
    if sessions is None or not sessions.count:
        return {}
    fields = {
        "total": sessions.count,
        "succeeded": sessions.complete,
        "session_duration": _statistics(_numbers(sessions.measures.get("session_time")), "s"),
        "events_per_session": _statistics(_numbers(sessions.measures.get("session_turns")), "count"),
    }
    return {"session_performance": {"sessions": _known(fields)}}


def _numbers(measure: MeasureSummary | None) -> dict[str, float]:
    statistics = measure.statistics if measure else {}
    return {name: value for name, value in statistics.items() if value is not None}


def _known(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value is not None}


VERSION_V01 = "0.1"
GENERATORS = ("fmperf", "guidellm", "inference-perf", "vllm-benchmark", "nop")
NEAREST = "inference-perf"  # the most similar tool that the schema allows
RATES_V01 = {
    "input_tokens_per_sec": "input_rate",
    "output_tokens_per_sec": "output_rate",
    "total_tokens_per_sec": "total_rate",
    "requests_per_sec": "request_rate",
}
_PER_TOKEN = 1000.0  # s/token to ms/token, the only unit that the schema allows


def export_v01(request: ExportRequest) -> list[DocumentPiece]:
    """The report v0.1 as YAML, or as JSON for such a path."""
    made = []
    for run in request.runs:
        name = f"benchmark_report_v{VERSION_V01}_{run.id}"
        plain = orjson.loads(orjson.dumps(report_v01(run), option=orjson.OPT_SERIALIZE_NUMPY))
        text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
        made.append(
            json_piece(f"{name}.json", plain) if request.suffix == ".json" else text_piece(f"{name}.yaml", text)
        )
    return made


def report_v01(run: Run) -> dict[str, Any]:
    """The report; values required by the schema must exist: TTFT, total tokens per second, requests, duration."""
    newer = report(run)["results"]["request_performance"]["aggregate"]
    latency, requests = newer.get("latency") or {}, newer.get("requests")
    if "time_to_first_token" not in latency or requests is None or duration_of(run) is None:
        raise StoreError(
            f"{run.id}: a benchmark report of version {VERSION_V01} needs the times to first token of a run"
        )
    return {
        "version": VERSION_V01,
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
    gpus, args = list(run.subject.accelerators), dict(run.plan.server_args)
    engine = {"name": run.subject.engine or "unknown", "version": run.subject.engine_version, "args": args or None}
    host = {
        "accelerator": [{"model": gpus[0], "count": len(gpus)}] if gpus else None,
        "type": ["replica"] if gpus else None,
    }
    load = {
        "name": run.source if run.source in GENERATORS else NEAREST,
        "type": run.plan.section("load").text("type"),
        "args": dict(run.plan),
        "metadata": {"tool": run.source or "inferometer", "tool_version": run.environment.inferometer},
    }
    whole = {
        "description": run.plan.title,
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
    """Times per token in ms/token; other times stay in seconds."""
    if statistics["units"] != "s/token":
        return dict(statistics)
    scaled = {name: value * _PER_TOKEN for name, value in statistics.items() if name != "units"}
    return {"units": "ms/token", **scaled}


def _throughput(run: Run) -> dict[str, float]:
    values = quantities(run.summary)
    return {theirs: values[ours].value for theirs, ours in RATES_V01.items() if ours in values}
