"""What was sampled beside the load, as parts of a run's summary: server, gpu, host, and values made of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from inferometer.measure.answers import Answers
from inferometer.measure.conservation import conservation
from inferometer.measure.gpu import gpu_summary, gpu_values
from inferometer.measure.host import host_summary
from inferometer.measure.server import server_summary, server_values
from inferometer.plan.model import Plan
from inferometer.record.columns import Records
from inferometer.record.log import Note
from inferometer.record.sample import Samples
from inferometer.vocabulary import NANOSECONDS


def observed(
    samples: Samples, notes: Sequence[Note], records: Records, plan: Plan, summary: Mapping[str, Any], start_at: int
) -> dict[str, Any]:
    """To be joined to the summary; what was not watched is None."""
    window = summary["window"]
    edges = [start_at + round(window[name] * NANOSECONDS) for name in ("start_s", "end_s")]
    end_at = start_at + round(window["run_s"] * NANOSECONDS)
    gpu = gpu_summary(samples, edges[0], edges[1])
    server = server_summary(samples, notes, start_at, end_at)
    if server is not None and server["complete"] and _all_ended(notes):
        error_s = (summary["instrument"] or {}).get("ttft_error_p99")
        server["conservation"] = conservation(Answers.of(records), notes, server, plan, error_s)
    values = dict(summary.get("values") or {})
    values |= server_values(server) if server is not None else {}
    values |= gpu_values(gpu, *_work(summary)) if gpu is not None else {}
    return {
        "server": server,
        "gpu": gpu,
        "host": host_summary(samples, start_at, end_at),
        "observer": _observer(notes),
        "values": values,
    }


def _all_ended(notes: Sequence[Note]) -> bool:
    """Whether every worker came to its end: of one that was killed, requests under way have no records."""
    kinds = [note.what for note in notes]
    return kinds.count("start") == kinds.count("ended")


def _work(summary: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Output tokens and requests that arrived in the window."""
    length_s = summary["window"]["length_s"]
    found = (summary["rates"][name]["window"] for name in ("output_rate", "request_rate"))
    tokens, requests = (None if rate is None else rate * length_s for rate in found)
    return tokens, requests


def _observer(notes: Sequence[Note]) -> dict[str, Any] | None:
    """What the samplers themselves used, and what went wrong with those that are no servers."""
    ends = [note.facts for note in notes if note.what == "observer"]
    told = [note.facts for note in notes if note.what == "observed" and note.facts.get("problems")]
    if not ends and not told:
        return None
    problems = [
        {"source": facts["source"], "wanted": facts["wanted"], **problem}
        for facts in told
        for problem in facts["problems"]
    ]
    return {"cpu_s": sum(each.get("cpu_s", 0.0) for each in ends) if ends else None, "problems": problems}
