"""What the servers said of themselves during the load: deltas, means and quantiles pooled over the replicas."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inferometer.measure.deltas import Series, all_series, histogram, pooled
from inferometer.measure.telemetry import GPU, HOST, SERVER, named
from inferometer.record.columns import Words
from inferometer.record.log import Note
from inferometer.record.sample import Samples

QUANTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
ENDED_OTHERWISE = ("abort", "error")  # finish reasons that are no answers
MEANS = ("ttft", "itl", "tpot", "e2e", "queue_time", "prefill_time", "decode_time", "inference_time")
CLIENT = "client"


def server_summary(samples: Samples, notes: Sequence[Note], start_at: int, end_at: int) -> dict[str, Any] | None:
    """Of all endpoints together; None where none was asked for. Deltas are from before the load to after it, gauges
    from its start to its end."""
    told = {note.facts["source"]: note.facts for note in notes if note.what in ("found", "observed")}
    told = {source: facts for source, facts in told.items() if is_server(source)}
    sources = [source for source in _sources(samples.source) if is_server(source)]
    if not told and not sources:
        return None
    series = all_series(samples, sources)
    return {
        "sources": [_source(source, told.get(source, {}), series) for source in dict.fromkeys([*sources, *told])],
        "counters": _counters(series),
        "finished": _finished(series),
        "histograms": _histograms(series),
        "gauges": _gauges(series, start_at, end_at),
        "prefix_hit_rate": _hit_rate(series),
        "complete": bool(series) and all(_is_whole(series, source, start_at, end_at) for source in sources),
        "restarted": any(_restarts(series, source) for source in sources),
    }


def is_server(source: str) -> bool:
    return source not in (HOST, CLIENT, "gpu") and not source.startswith(GPU)


def _is_whole(series: Sequence[Series], source: str, start_at: int, end_at: int) -> bool:
    """Whether it was read before the load and after it: what it counted in between is known then."""
    own = [each.at for each in series if each.source == source]
    return bool(own) and min(at[0] for at in own) <= start_at and max(at[-1] for at in own) >= end_at


def _sources(column: Words) -> list[str]:
    return [word for word in column.counts() if word is not None]


def _source(source: str, facts: Mapping[str, Any], series: Sequence[Series]) -> dict[str, Any]:
    own = [each for each in series if each.source == source]
    at = np.unique(np.concatenate([each.at for each in own])) if own else np.empty(0, np.int64)
    return {
        "url": source,
        "engine": facts.get("engine") or None,
        "names": facts.get("names", {}),
        "config": facts.get("config", {}),
        "scrapes": len(at),
        "failed": facts.get("failed"),
        "span_s": float(at[-1] - at[0]) / 1e9 if len(at) > 1 else None,
        "restarts": _restarts(series, source),
        "wanted": facts.get("wanted", False),
        "problems": facts.get("problems", []),
    }


def _restarts(series: Sequence[Series], source: str) -> int:
    """A process that started later, or counters that began anew together: one alone may be a mistake of its own."""
    own = [each for each in series if each.source == source]
    started = [each for each in own if each.name == "process_started"]
    if started:
        return max(int((np.diff(each.value) > 1.0).sum()) for each in started)
    anew = [pooled([each], each.name) for each in own if each.name in named("counter") or each.name.endswith("_count")]
    resets = sorted((each.resets for each in anew if each is not None), reverse=True)
    return resets[1] if len(resets) > 1 else 0


def _counters(series: Sequence[Series]) -> dict[str, Any]:
    found = {name: pooled(series, name, _left_out(name)) for name in named("counter")}
    return {
        name: {"grown": each.grown, "unit": SERVER[name].unit, "resets": each.resets, "by_source": each.by_source}
        for name, each in found.items()
        if each is not None
    }


def _left_out(name: str) -> tuple[str, ...]:
    return ENDED_OTHERWISE if name == "requests_ok" else ()


def _finished(series: Sequence[Series]) -> dict[str, float]:
    """Requests by finish reason, those that occurred."""
    own = [each for each in series if each.name == "requests_ok" and "finished_reason" in each.labels]
    reasons = sorted({each.labels["finished_reason"] for each in own})
    others = {reason: [each for each in reasons if each != reason] for reason in reasons}
    grown = {reason: pooled(own, "requests_ok", others[reason]) for reason in reasons}
    return {reason: each.grown for reason, each in grown.items() if each is not None and each.grown}


def _histograms(series: Sequence[Series]) -> dict[str, Any]:
    found = {}
    for name in named("histogram"):
        each = histogram(series, name)
        if each is None or not each.count:
            continue
        quantiles = {word: each.quantile(share) for word, share in QUANTILES.items()}
        found[name] = {
            "unit": SERVER[name].unit,
            "count": each.count,
            "sum": each.total,
            "mean": each.mean,
            **{word: None if said is None else said[0] for word, said in quantiles.items()},
            "buckets": {word: list(said[1]) for word, said in quantiles.items() if said is not None},
        }
    return found


def _gauges(series: Sequence[Series], start_at: int, end_at: int) -> dict[str, Any]:
    """Requests are added up over replicas, shares averaged, each at its own instants."""
    found = {}
    for name in ("running", "queued", "kv_usage", "hit_rate"):
        own = [each.value[(each.at >= start_at) & (each.at <= end_at)] for each in series if each.name == name]
        own = [values for values in own if len(values)]
        if own:
            shared = SERVER[name].unit == "share"
            means, tops = [float(each.mean()) for each in own], [float(each.max()) for each in own]
            together = float(np.mean(means)) if shared else sum(means)
            found[name] = {"unit": SERVER[name].unit, "mean": together, "max": max(tops) if shared else sum(tops)}
    return found


def _hit_rate(series: Sequence[Series]) -> float | None:
    hits, queries = pooled(series, "prefix_hits"), pooled(series, "prefix_queries")
    if hits is None or queries is None:
        hits, queries = pooled(series, "cached_prompt_tokens"), pooled(series, "prompt_tokens")
    return hits.grown / queries.grown if hits and queries and queries.grown > 0 else None


def server_values(server: Mapping[str, Any]) -> dict[str, Any]:
    """The server's numbers as quantities of the run: means of its histograms, and what else compares."""
    values = {
        f"server_{name}": _value(said["mean"], said["unit"], "lower", f"Server's {SERVER[name].title}, mean")
        for name, said in server["histograms"].items()
        if name in MEANS
    }
    if server["prefix_hit_rate"] is not None:
        title = "Prefix cache hit rate of the server"
        values["server_prefix_hit_rate"] = _value(server["prefix_hit_rate"], "share", "higher", title)
    if "preemptions" in server["counters"]:
        grown = server["counters"]["preemptions"]["grown"]
        values["server_preemptions"] = _value(grown, "requests", "lower", "Preemptions")
    if "kv_usage" in server["gauges"]:
        most = server["gauges"]["kv_usage"]["max"]
        values["server_kv_usage_max"] = _value(most, "share", None, "KV cache in use, at most")
    return values


def _value(value: float | None, unit: str, direction: str | None, title: str) -> dict[str, Any]:
    return {"value": value, "unit": unit, "direction": direction, "title": title, "interval": None}
