"""Records for the tests of `measure`, written in milliseconds so that a person can check the arithmetic."""

from typing import Any

import numpy as np

from inferometer.plan.model import Plan
from inferometer.record.columns import Records
from inferometer.record.record import Record

MS = 1_000_000


def packed(values: list[int]) -> bytes:
    return np.array(values, "<i8").tobytes()


def row(
    scheduled: float = 0.0,
    sent: float | None = None,
    reads: list[float] | None = None,
    tokens: list[int] | None = None,
    ended: float | None = None,
    slack: list[float] | None = None,
    **fields: Any,
) -> Record:
    """Instants in ms. Without more said: sent when scheduled, one token a read, ended with the last read."""
    sent = scheduled if sent is None else sent
    reads = [sent + 100.0] if reads is None else reads
    tokens = [1] * len(reads) if tokens is None else tokens
    ended = (reads[-1] if reads else sent) if ended is None else ended
    defaults: dict[str, Any] = {
        "session": 0,
        "ready_at": _ns(scheduled),
        "output_tokens": sum(tokens) if reads else None,
        "visible_at": _ns(reads[0]) if reads else None,
        "events": len(reads),
        "status": 200,
        "finish_reason": "length",
        "tokens_by": "running usage",
    }
    return Record(
        scheduled_at=_ns(scheduled),
        sent_at=_ns(sent),
        ended_at=_ns(ended),
        read_at=packed([_ns(read) for read in reads]),
        read_tokens=packed(tokens),
        read_slack=packed([_ns(s) for s in slack or [0.0] * len(reads)]),
        **{**defaults, **fields},
    )


def _ns(ms: float) -> int:
    return round(ms * MS)


def failure(scheduled: float, outcome: str = "timeout", **fields: Any) -> Record:
    return row(scheduled, reads=[], ended=fields.pop("ended", scheduled + 50), outcome=outcome, **fields)


def many(rows: list[Record]) -> Records:
    """With a session of its own for each, in order."""
    for number, record in enumerate(rows):
        record.session = number
    return Records.of(rows)


def open_plan(rate: float = 10.0, **sections: Any) -> Plan:
    load = {"type": "poisson", "rate": rate} | sections.pop("load", {})
    return Plan.model_validate({"load": load, **sections})


def closed_plan(concurrency: int = 2, **sections: Any) -> Plan:
    return Plan.model_validate({"load": {"type": "concurrency", "concurrency": concurrency}, **sections})


def steady_load(n: int = 400, gap: float = 100.0, ttft: float = 50.0, pace: float = 10.0, k: int = 5) -> list[Record]:
    """An open loop at a constant rate in which every answer is alike."""
    return [row(i * gap, reads=[i * gap + ttft + pace * j for j in range(k)]) for i in range(n)]
