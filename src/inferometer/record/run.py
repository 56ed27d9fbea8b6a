"""`Run`: what is known of one run. Startups and imported tables are runs too; those have no records."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from inferometer.record.columns import Records
from inferometer.record.sample import Samples
from inferometer.record.schema import schema_of

State = Literal["complete", "partial", "interrupted", "failed"]
Kind = Literal["serving", "latency", "throughput", "startup", "benchmark"]

KINDS: dict[Kind, str] = {
    "serving": "requests driven at a server",
    "latency": "batches of one size through an engine in this process",
    "throughput": "a whole dataset through an engine in this process",
    "startup": "a server from its start to its first answer",
    "benchmark": "a command or function of somebody's own that says what it measured",
}

STATES: dict[State, str] = {
    "complete": "ended as planned",
    "partial": "still running, or it was killed: only its logs are there",
    "interrupted": "ended by the user before its time, and kept",
    "failed": "ended by an error, and kept",
}


@dataclass(frozen=True)
class Run:
    """Plan, environment, summary and verdict as plain data; records and samples are read when asked for."""

    id: str
    started_at: str  # wall clock, ISO 8601 with its zone
    plan: dict[str, Any]
    environment: dict[str, Any]
    summary: dict[str, Any]
    verdict: dict[str, Any]
    state: State = "complete"
    kind: Kind = "serving"
    source: str | None = None  # the format that it was imported from; None: measured by us
    folder: Path | None = None
    read_records: Callable[[], Records] | None = field(default=None, repr=False, compare=False)
    read_samples: Callable[[], Samples] | None = field(default=None, repr=False, compare=False)

    def records(self) -> Records | None:
        """None where the run has none, which is not the same as a run in which nothing was sent."""
        return self.read_records() if self.read_records else None

    def samples(self) -> Samples | None:
        return self.read_samples() if self.read_samples else None


def document(run: Run) -> dict[str, Any]:
    """What `--json` prints: one document with everything but records and samples."""
    folder = str(run.folder) if run.folder else None
    about = {"id": run.id, "started": run.started_at, "folder": folder, "state": run.state, "kind": run.kind}
    return {
        "schema": schema_of("run"),
        "run": about if run.source is None else about | {"source": run.source},
        "verdict": {name: run.verdict[name] for name in ("word", "reasons", "traffic") if name in run.verdict},
        "summary": run.summary,
        "plan": run.plan,
        "environment": run.environment,
    }
