"""`Run`: what is known of one run. Startups and imported tables are runs too; those have no records."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from inferometer.record.columns import Records
from inferometer.record.encoding import environment_document, summary_document, verdict_document
from inferometer.record.environment import Environment
from inferometer.record.sample import Samples
from inferometer.record.schema import schema_of
from inferometer.record.subject import Subject, subject_of
from inferometer.record.summary import Summary
from inferometer.record.verdict import Reason, Status, Verdict
from inferometer.vocabulary import attribute_at

_DRAW = "inferometer.show.charts.registry:draw"  # above this room: found by name, when somebody looks
_TEXT = "inferometer.show.view:run_text"

State = Literal["complete", "partial", "interrupted", "failed"]
Kind = Literal["serving", "latency", "throughput", "startup", "benchmark"]

KINDS: dict[Kind, str] = {
    "serving": "load sent to a server",
    "latency": "batches of one size through an engine in this process",
    "throughput": "a whole dataset through an engine in this process",
    "startup": "a server from its start to its first answer",
    "benchmark": "a user's own command or function that reports its measurements",
}

STATES: dict[State, str] = {
    "complete": "ended as planned",
    "partial": "still running, or killed: only the logs exist",
    "interrupted": "stopped early by the user, and stored",
    "failed": "ended by an error, and stored",
}


@dataclass(frozen=True)
class Run:
    """Plan, environment, summary and verdict; records and samples are read when they are needed."""

    id: str
    started_at: str  # wall clock, ISO 8601 with its zone
    plan: dict[str, Any]
    environment: Environment
    summary: Summary
    verdict: Verdict | None = None  # None: it still runs, or it was killed
    state: State = "complete"
    kind: Kind = "serving"
    source: str | None = None  # the format that it was imported from; None: measured by us
    folder: Path | None = None
    by_older_rules: bool = False  # summary and verdict are of a version that measured and judged otherwise
    read_records: Callable[[], Records] | None = field(default=None, repr=False, compare=False)
    read_samples: Callable[[], Samples] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def subject(self) -> Subject:
        """Who it is about: model, engine, accelerators, workload and load in words."""
        is_own = self.kind == "serving" and self.source is None
        return subject_of(self.plan, self.environment, self.started_at, is_own)

    @property
    def status(self) -> Status | None:
        """Of its verdict; None of a run that has none yet."""
        return self.verdict.status if self.verdict else None

    @property
    def doubts(self) -> list[Reason]:
        return self.verdict.doubts if self.verdict else []

    @property
    def records(self) -> Records | None:
        """One row per request; None where the run has none, which is not the same as one in which nothing was sent."""
        return self.read_records() if self.read_records else None

    @property
    def samples(self) -> Samples | None:
        return self.read_samples() if self.read_samples else None

    def chart(self, name: str) -> Any:
        """A chart by its name, `ttft-cdf`, as `inferometer chart --list` has them; it draws itself in a notebook."""
        return attribute_at(_DRAW)(name.replace("-", "_"), self)

    def __str__(self) -> str:
        """The summary that the terminal shows."""
        return str(attribute_at(_TEXT)(self))


def document(run: Run) -> dict[str, Any]:
    """What `--json` prints: one document with everything but records and samples."""
    folder = str(run.folder) if run.folder else None
    about = {"id": run.id, "started": run.started_at, "folder": folder, "state": run.state, "kind": run.kind}
    return {
        "schema": schema_of("run"),
        "run": about if run.source is None else about | {"source": run.source},
        "verdict": verdict_document(run.verdict) if run.verdict else None,
        "summary": summary_document(run.summary),
        "plan": run.plan,
        "environment": environment_document(run.environment),
    }
