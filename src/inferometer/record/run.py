"""`Run`: everything that is known about a run. Startups and imported tables are runs too, without records."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from inferometer.documents.document import JsonObject
from inferometer.plan.stored import StoredPlan, stored
from inferometer.record.columns import Records
from inferometer.record.encoding import environment_document, summary_document, verdict_document
from inferometer.record.environment import Environment, host_of, is_loopback
from inferometer.record.files import schema_of
from inferometer.record.record import Samples
from inferometer.record.summary import Summary
from inferometer.record.verdict import Reason, Status, Verdict
from inferometer.vocabulary import attribute_at

SIMULATOR = "inferometer"  # what the built-in simulator's server calls itself
_ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "tgi": "TGI", "tensorrt_llm": "TensorRT-LLM"}  # as they call themselves
_VENDORS = ("NVIDIA ", "AMD Instinct ")  # in the names of their own accelerators


def engine_name(engine: str | None, version: str | None) -> str:
    """`vLLM 0.24.0`, whatever the spelling in its source; the simulator only by its name, because its version is that
    of the engine it imitates."""
    if engine == SIMULATOR:
        return "simulator"
    return " ".join(filter(None, (_ENGINES.get(engine or "", engine), version)))


@dataclass(frozen=True)
class Subject:
    """What a run is about; see `Run.subject`."""

    name: str | None  # of the plan
    model: str | None
    engine: str | None  # as it reported itself, else as in the plan
    engine_version: str | None
    commit: str | None  # of the engine, else of the working directory of the command
    urls: tuple[str, ...]  # the addresses that answered, else those of the plan
    accelerators: tuple[str, ...]  # names, one per device
    hardware: str | None  # as in its source
    started_at: str
    _plan: StoredPlan = field(repr=False, compare=False)
    _is_own: bool = field(repr=False, compare=False)  # a plan of ours, with defaults filled in

    @cached_property
    def workload(self) -> str:
        """`512 in, 128 out`: tokens of prompts and answers; empty if unknown."""
        return self._texts[0]

    @cached_property
    def load(self) -> str:
        """`20 req/s Poisson`, `16 in flight`; empty if unknown."""
        return self._texts[1]

    @cached_property
    def _texts(self) -> tuple[str, str]:
        from inferometer.plan.wording import plan_texts  # imports pydantic, which a list of runs does not need

        return plan_texts(self._plan, self._is_own)

    @property
    def address(self) -> str | None:
        """The first of its addresses."""
        return self.urls[0] if self.urls else None

    @property
    def hosts_elsewhere(self) -> list[str]:
        """Hosts of its addresses other than this machine."""
        return sorted({host for url in self.urls if not is_loopback(host := host_of(url))})

    @property
    def engine_text(self) -> str:
        return engine_name(self.engine, self.engine_version)

    @property
    def accelerator_counts(self) -> Counter[str]:
        """Number of each kind, in the order of the environment."""
        return Counter(self.accelerators)

    @property
    def accelerators_text(self) -> str:
        """`2 x NVIDIA H200`; a mix lists every kind."""
        return ", ".join(f"{count} x {name}" for name, count in self.accelerator_counts.items())

    @property
    def line(self) -> str:
        """`Llama-3.1-8B · vLLM 0.24.0 · 1 x H200 · 512 in, 128 out · 20 req/s Poisson`, as far as known."""
        model = self.model.rstrip("/").rpartition("/")[2] if self.model else None
        hardware = self.accelerators_text or self.hardware or ""
        for vendor in _VENDORS:
            hardware = hardware.replace(vendor, "")
        return " · ".join(filter(None, (model, self.engine_text, hardware, self.workload, self.load)))


def subject_of(plan: JsonObject, environment: Environment, started_at: str = "", is_own: bool = False) -> Subject:
    """From a stored plan and its environment; both may come from another tool."""
    plan, answered, git = stored(plan), environment.known_target, environment.git
    return Subject(
        name=plan.name or (environment.imported.label if environment.imported else None),
        model=plan.model or answered.model or environment.model or None,
        engine=answered.shown_engine or plan.engine or None,
        engine_version=answered.version or environment.engine_version or None,
        commit=answered.commit or environment.commit or (git.commit if git else None) or None,
        urls=tuple(answered.urls or plan.urls),
        accelerators=tuple(environment.accelerators),
        hardware=environment.hardware,
        started_at=started_at,
        _plan=plan,
        _is_own=is_own,
    )


_DRAW = "inferometer.show.charts.registry:draw"  # above this room in the import order: imported by name, on use
_TEXT = "inferometer.show.summary:run_text"

State = Literal["complete", "partial", "interrupted", "failed"]
RunKind = Literal["serving", "latency", "throughput", "startup", "benchmark"]

KINDS: dict[RunKind, str] = {
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


@dataclass(frozen=True, repr=False)
class Run:
    """Plan, environment, summary and verdict; records and samples are read when they are needed."""

    id: str
    started_at: str  # wall clock, ISO 8601 with its zone
    plan: StoredPlan
    environment: Environment
    summary: Summary
    verdict: Verdict | None = None  # None: still running, or killed
    state: State = "complete"
    kind: RunKind = "serving"
    source: str | None = None  # format it was imported from; None: measured by us
    folder: Path | None = None
    by_older_rules: bool = False  # summary and verdict come from a version with other rules
    read_records: Callable[[], Records] | None = field(default=None, compare=False)
    read_samples: Callable[[], Samples] | None = field(default=None, compare=False)

    @cached_property
    def subject(self) -> Subject:
        """What the run is about: model, engine, accelerators, workload and load as text."""
        is_own = self.kind == "serving" and self.source is None
        return subject_of(self.plan, self.environment, self.started_at, is_own)

    @property
    def status(self) -> Status | None:
        """The status of its verdict; None if it has no verdict yet."""
        return self.verdict.status if self.verdict else None

    @property
    def is_outdated(self) -> bool:
        """Whether it was measured by us under older rules and has the records to recompute its numbers."""
        return self.by_older_rules and self.read_records is not None and self.source is None

    @property
    def doubts(self) -> list[Reason]:
        return self.verdict.doubts if self.verdict else []

    @property
    def records(self) -> Records | None:
        """One row per request; None if the run has no records, which differs from a run that sent no requests."""
        return self.read_records() if self.read_records else None

    @property
    def samples(self) -> Samples | None:
        return self.read_samples() if self.read_samples else None

    def chart(self, name: str) -> Any:
        """A chart by its name, such as `ttft-cdf`, from `inferometer chart --list`; it draws itself in a notebook."""
        return attribute_at(_DRAW)(name.replace("-", "_"), self)

    def __repr__(self) -> str:
        """One line; `print` shows the summary."""
        return f"<run {self.id}: {self.status or self.state}, {self.subject.line or self.kind}>"

    def __str__(self) -> str:
        """The summary that the terminal shows."""
        return str(attribute_at(_TEXT)(self))


def document(run: Run) -> JsonObject:
    """The `--json` document: everything except records and samples."""
    folder = str(run.folder) if run.folder else None
    about = {"id": run.id, "started": run.started_at, "folder": folder, "state": run.state, "kind": run.kind}
    return {
        "schema": schema_of("run"),
        "run": about if run.source is None else about | {"source": run.source},
        "verdict": verdict_document(run.verdict) if run.verdict else None,
        "summary": summary_document(run.summary),
        "plan": run.plan.settings(),
        "environment": environment_document(run.environment),
    }
