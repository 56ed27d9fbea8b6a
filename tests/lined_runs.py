"""Runs of one identity with given numbers, without records: a history to compare a run with."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from inferometer.plan.stored import StoredPlan
from inferometer.record.encoding import environment_from
from inferometer.record.environment import Environment
from inferometer.record.run import Run
from inferometer.record.summary import MeasureSummary, Rate, Summary
from inferometer.record.verdict import Reason, Status, judged

START = datetime(2026, 10, 1, 3, 0, tzinfo=UTC)
PLAN: dict[str, Any] = {"target": {"url": ["http://127.0.0.1:8000"], "model": "m"}, "load": {"concurrency": 8}}


def summary_of(tpot: float, **more: float) -> Summary:
    """Milliseconds of TPOT, and what follows from it."""
    measures = {
        "tpot": MeasureSummary(unit="s", statistics={"mean": tpot / 1e3}),
        "ttft": MeasureSummary(unit="s", statistics={"p50": more.get("ttft", 100.0) / 1e3}),
        "output_tokens": MeasureSummary(unit="tokens", statistics={"mean": more.get("tokens", 64.0)}),
    }
    rates = {"output_rate": Rate(unit="tokens/s", value=more.get("rate", 8000 / tpot))}
    return Summary(loop="closed", measures=measures, rates=rates)


def environment_of(version: str = "0.24.0", commit: str = "a" * 40) -> Environment:
    target = {"urls": ["http://127.0.0.1:8000"], "model": "m", "server": "vLLM", "version": version}
    return environment_from({"target": target, "git": {"commit": commit}, "machine": {"cpu": "x", "cores": 8}})


def lined_run(
    number: int,
    tpot: float,
    environment: Environment | None = None,
    verdict: Status = "valid",
    **more: float,
) -> Run:
    started = START + timedelta(days=number)
    return Run(
        id=f"{started:%Y%m%d-%H%M%S}-run-{number}",
        started_at=started.isoformat(),
        plan=StoredPlan(PLAN),
        environment=environment or environment_of(),
        summary=summary_of(tpot, **more),
        verdict=judged([] if verdict == "valid" else [Reason(status=verdict, code="late", text="Late.")]),
    )


def line_of(values: Sequence[float], first: int = 0, environment: Environment | None = None) -> list[Run]:
    return [lined_run(first + at, value, environment) for at, value in enumerate(values)]
