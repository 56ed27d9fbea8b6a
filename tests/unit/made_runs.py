"""Runs of generated records, for code that only reads runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from inferometer.judge.limits import judge_plan
from inferometer.measure.inputs import Facts
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import verdict
from inferometer.plan.reading import plan_from
from inferometer.plan.stored import StoredPlan
from inferometer.record.columns import Records
from inferometer.record.environment import Environment
from inferometer.record.record import Record
from inferometer.record.run import Run, State

TOKENS = 16


def made_run(
    requests: int = 500,
    failed: float = 0.0,
    state: State = "complete",
    error: str = "429 Too Many Requests",
    lost: str | None = None,
    **plan: Any,
) -> Run:
    """Poisson arrivals, 10 a second; a share of them is refused. The server is `lost` for the reason given."""
    asked: dict[str, Any] = {"target": {"url": "http://localhost:8000", "model": "m"}, "load": {"rate": 10}}
    effective = plan_from(asked | {"stop": {"requests": requests}} | plan)
    records = Records.of(list(_records(requests, failed, error)))
    facts = Facts(interrupted=state == "interrupted", lost_server=lost)
    summary = summarize(records, effective, facts)
    summary = structs.replace(summary, limits=judge_plan(effective, summary))
    return Run(
        id="20261115-031207-plum-otter",
        started_at="2026-11-15T03:12:07.000+00:00",
        plan=StoredPlan(effective.model_dump(mode="json")),
        environment=Environment(),
        summary=summary,
        verdict=verdict(summary, facts, effective),
        state=state,
        folder=Path("runs") / "20261115-031207-plum-otter",
        read_records=lambda: records,
    )


def _records(requests: int, failed: float, error: str) -> Iterator[Record]:
    draw = np.random.default_rng(1)
    due_at = 10**12 + np.cumsum(draw.exponential(1e8, requests)).astype(int)
    for number, at in enumerate(due_at.tolist()):
        sent_at = at + int(draw.exponential(5e4))
        first_at = sent_at + int(draw.gamma(4, 1e7))
        reads = first_at + np.cumsum(draw.gamma(50, 2e5, TOKENS)).astype("<i8")
        common = {"session": number, "scheduled_at": at, "ready_at": at, "sent_at": sent_at}
        if failed and number % round(1 / failed) == 0:
            yield Record(**common, ended_at=first_at, outcome="status", status=429, error=error)
            continue
        yield Record(
            **common,
            headers_at=first_at,
            visible_at=int(reads[0]),
            ended_at=int(reads[-1]),
            read_at=reads.tobytes(),
            read_tokens=np.ones(TOKENS, "<i8").tobytes(),
            read_slack=bytes(8 * TOKENS),
            requested_output=TOKENS,
            input_tokens=256,
            output_tokens=TOKENS,
            tokens_by="usage",
            events=TOKENS,
            status=200,
            finish_reason="length",
            request_id=f"cmpl-{number}",
        )
