"""Runs with records, samples and a summary, of any size, without a server: input for charts and reports."""

from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import structs

from inferometer.judge.limits import judge_plan
from inferometer.measure.inputs import Facts
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import verdict
from inferometer.plan.reading import plan_from
from inferometer.plan.stored import StoredPlan
from inferometer.record.columns import MISSING, Categorical, Records, offsets_of
from inferometer.record.encoding import environment_from
from inferometer.record.record import Record, Samples
from inferometer.record.run import Run

SECOND = 1_000_000_000
START = 5 * SECOND
PLAN: dict[str, Any] = {
    "target": {"url": ["http://127.0.0.1:8000"], "model": "m"},
    "load": {"type": "poisson", "rate": 100},
    "stop": {"duration": "10s"},
}


def records_of(n: int, reads: int = 8, rate: float = 100.0, failed: float = 0.0, seed: int = 1) -> Records:
    """Arrivals of a rate; TTFT grows with the input, gaps are drawn; a share fails after a while."""
    rng = np.random.default_rng(seed)
    due = START + np.round(np.cumsum(rng.exponential(1 / rate, n)) * SECOND).astype(np.int64)
    inputs, sent = rng.integers(100, 2000, n), due + 50_000
    ttft = 0.02 + inputs * 5e-5 + rng.exponential(0.005, n)
    gaps = rng.gamma(4, 0.0025, (n, reads - 1))
    after = np.concatenate((ttft[:, None], ttft[:, None] + np.cumsum(gaps, axis=1)), axis=1)
    read_at = sent[:, None] + np.round(after * SECOND).astype(np.int64)
    wrong = rng.random(n) < failed
    counts = np.where(wrong, 0, reads)
    blank = Records.of([Record(session=0, scheduled_at=0)]).take(np.zeros(n, np.int64))
    return replace(
        blank,
        session=np.arange(n),
        scheduled_at=due,
        ready_at=due,
        sent_at=sent,
        ended_at=read_at[:, -1] + 100_000,
        input_tokens=inputs,
        output_tokens=np.where(wrong, MISSING, reads),
        outcome=Categorical(wrong.astype(np.int32), ("ok", "timeout")),
        read_offsets=offsets_of(counts),
        read_at=read_at[~wrong].reshape(-1),
        read_tokens=np.ones(int(counts.sum()), np.int64),
        read_slack=np.zeros(int(counts.sum()), np.int64),
    )


def samples_of(n: int = 40, gpus: int = 2, length_s: float = 10.0) -> Samples:
    """What a server, some GPUs and the host were seen to do, all at the same instants."""
    at = START + np.round(np.linspace(0, length_s, n) * SECOND).astype(np.int64)
    server = "http://127.0.0.1:8000/metrics"
    lines = {(server, "running"): 8.0, (server, "queued"): 3.0, (server, "kv_usage"): 0.5, ("host", "cpu_share"): 0.4}
    for gpu in range(gpus):
        lines |= {(f"gpu:{gpu}", "utilization_share"): 0.9, (f"gpu:{gpu}", "memory_used_bytes"): 60e9}
        lines |= {(f"gpu:{gpu}", "power_w"): 600.0, (f"gpu:{gpu}", "temperature_c"): 61.0}
    wave = 1 + 0.1 * np.sin(np.arange(n) / 3)
    return Samples(
        source=Categorical.of([source for source, _ in lines for _ in range(n)]),
        name=Categorical.of([name for _, name in lines for _ in range(n)]),
        at=np.tile(at, len(lines)),
        value=np.concatenate([level * wave for level in lines.values()]),
        labels=Categorical.of(["{}"] * (n * len(lines))),
    )


def charted_run(
    n: int = 1000, *, samples: Samples | None = None, id_: str = "20261101-120000-calm-otter", **more: Any
) -> Run:
    """A serving run as it would have been kept; `name` and `model` go into its plan, the rest into its records."""
    said = {name: more.pop(name) for name in ("name", "model") if name in more}
    plan = PLAN | ({"name": said["name"]} if "name" in said else {})
    plan = plan | {"load": {"type": "poisson", "rate": more.get("rate", 100.0)}}
    plan = plan | ({"target": PLAN["target"] | {"model": said["model"]}} if "model" in said else {})
    records, typed, facts = records_of(n, **more), plan_from(plan, where="test"), Facts(start_at=START)
    summary = summarize(records, typed, facts)
    summary = structs.replace(summary, limits=judge_plan(typed, summary))
    return Run(
        id=id_,
        started_at="2026-11-01T12:00:00.000+00:00",
        plan=StoredPlan(plan),
        environment=environment_from({"command": "inferometer run", "target": {"model": plan["target"]["model"]}}),
        summary=summary,
        verdict=verdict(summary, facts, typed),
        read_records=lambda: records,
        read_samples=None if samples is None else lambda: samples,
    )
