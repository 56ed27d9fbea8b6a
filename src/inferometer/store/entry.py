"""`Entry`: a run as one line of a list, with everything that the index stores about it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inferometer.errors import StoreError
from inferometer.judge.identity import Identity, identity
from inferometer.measure.values import Quantity, indexed
from inferometer.plan.stored import StoredPlan
from inferometer.record.run import Run
from inferometer.store.folder import load_run
from inferometer.store.manifest import Marks, read_marks
from inferometer.store.shapes import Damaged, DamagedError, damaged_by
from inferometer.vocabulary import MEASURES, number, percent, seconds

DAMAGED = "damaged"
CHANGING = (DAMAGED, "partial")  # states in which a run is read again for each query
_MEASURES = ("ttft", "ttft_scheduled", "tpot", "itl", "e2e", "e2e_scheduled")
HEADLINE = tuple(f"{name}.{statistic}" for name in _MEASURES for statistic in ("p50", "p99"))


@dataclass(frozen=True)
class Entry:
    id: str
    started_at: str
    state: str  # of the run, or "damaged"
    folder: Path  # its location, or the one after it is fetched
    kind: str = "serving"
    source: str | None = None
    verdict: str | None = None
    name: str | None = None
    model: str | None = None
    target: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    commit: str | None = None
    hardware: str | None = None  # as text
    requests: int | None = None
    workload_id: str | None = None
    stack_id: str | None = None
    hardware_id: str | None = None
    values: dict[str, float] = field(default_factory=dict)  # "ttft.p50": 0.12; the headline, and requested keys
    weak: str | None = None  # keys of percentiles of too few samples, separated by blanks
    parameters: dict[str, str] = field(default_factory=dict)  # requested settings of the plan
    tags: tuple[str, ...] = ()
    experiment: str | None = None
    case: str | None = None
    location: str = ""  # `runs/<id>` in the store, file://host/path, s3://bucket/path
    damage: str | None = None  # why it cannot be read
    remedy: str | None = None  # how to fix that

    @property
    def weak_keys(self) -> frozenset[str]:
        return frozenset((self.weak or "").split())

    @property
    def is_predicted(self) -> bool:
        """Predicted by a model of a server instead of measured: `SimulatorSettings.predicts` is part of the name."""
        return self.engine is not None and ", predicted by " in self.engine

    @property
    def identity(self) -> str | None:
        """The key of `judge.identity`: entries with the same key form one line of history."""
        parts = (self.workload_id, self.stack_id, self.hardware_id)
        return None if None in parts else "-".join(map(str, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow:
    """A run in the table of runs, column by column."""

    id: str
    started: str = ""  # UTC, so that it sorts
    started_as: str = ""  # as stored in the run, with its time zone
    state: str
    kind: str = "serving"
    source: str | None = None
    verdict: str | None = None
    name: str | None = None
    model: str | None = None
    target: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    commit: str | None = None
    hardware: str | None = None
    requests: int | None = None
    workload_id: str | None = None
    stack_id: str | None = None
    hardware_id: str | None = None
    headline: dict[str, float] = field(default_factory=dict)
    weak: str | None = None
    location: str
    damage: str | None = None
    remedy: str | None = None
    imported_from: str | None = None


@dataclass(frozen=True)
class Listing:
    """Everything that the index stores about a run."""

    row: IndexRow
    quantities: dict[str, Quantity]
    parameters: dict[str, str]
    marks: Marks


def listing_of(run: Run, location: str) -> Listing:
    """Raises `StoreError` if numbers of a run are invalid."""
    folder = run.folder or Path(run.id)
    try:
        values = indexed(run.summary)
        row = _row(run, identity(run), values, location)
        marks = read_marks(run.folder) if run.folder else Marks()
        return Listing(row, values, flat(run.plan), marks)
    except StoreError as error:
        raise damaged_by(error, folder).error from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise damaged_by(StoreError(f"cannot be read as a run: {error}"), folder).error from error


def damaged_listing(damaged: Damaged, location: str) -> Listing:
    """A damaged run is not lost: it is listed as damaged."""
    row = IndexRow(id=damaged.id, state=DAMAGED, location=location, damage=damaged.cause, remedy=damaged.remedy)
    return Listing(row, {}, {}, Marks())


def listing_at(folder: Path, location: str) -> Listing | None:
    """For a run folder. None for a folder that was just created and is still empty."""
    try:
        return listing_of(load_run(folder), location)
    except DamagedError as error:
        return damaged_listing(error.damaged, location)
    except StoreError as error:
        return None if _is_empty(folder) else damaged_listing(damaged_by(error, folder), location)


def _is_empty(folder: Path) -> bool:
    try:
        return folder.is_dir() and not any(folder.glob("[!.]*"))
    except OSError:
        return False


def flat(plan: Any, path: tuple[str | int, ...] = ()) -> dict[str, str]:
    """A plan as paths and values: `{"load.rate": "10"}`."""
    from inferometer.plan.overrides import written  # imports the whole plan, which lists do not need

    if isinstance(plan, Mapping):
        return {at: text for name, part in plan.items() for at, text in flat(part, (*path, str(name))).items()}
    if isinstance(plan, list | tuple):
        return {at: text for index, part in enumerate(plan) for at, text in flat(part, (*path, index)).items()}
    return {} if plan is None else {written(path): text_of(plan)}


def text_of(value: object) -> str:
    """As written in YAML: `true`, and 10 for 10.0."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def number_of(text: str) -> float | None:
    """A setting as a number if it is one: `10`, `60s`, `2k`, `1%`."""
    if text[:1] not in "0123456789.+-":
        return None
    for read in (seconds, number, percent):
        try:
            value = read(text)
        except (ValueError, OverflowError):
            continue
        return value if math.isfinite(value) else None
    return None


def utc_text(started: str) -> str:
    """An instant in a form in which texts sort by time; empty if unknown."""
    try:
        return datetime.fromisoformat(started).astimezone(UTC).isoformat(timespec="milliseconds")
    except ValueError:
        return ""


def _row(run: Run, identified: Identity, values: Mapping[str, Quantity], location: str) -> IndexRow:
    subject, outcomes, imported = run.subject, run.summary.outcomes, run.environment.imported
    return IndexRow(
        id=run.id,
        started=utc_text(run.started_at),
        started_as=run.started_at,
        state=run.state,
        kind=run.kind,
        source=run.source,
        verdict=run.status,
        name=subject.name,
        model=subject.model,
        target=_target(run.plan),
        engine=subject.engine,
        engine_version=subject.engine_version,
        commit=subject.commit,
        hardware=_hardware(run),
        requests=sum(outcomes.values()) if outcomes else None,
        workload_id=identified.workload,
        stack_id=identified.stack,
        hardware_id=identified.hardware,
        imported_from=imported.sha256 if imported else None,
        headline={key: quantity.value for key, quantity in values.items() if _is_headline(quantity, run)},
        weak=" ".join(key for key, quantity in values.items() if quantity.needed) or None,
        location=location,
    )


def _is_headline(quantity: Quantity, run: Run) -> bool:
    """Numbers of the whole run, the common quantiles of per-request measures, and the mean of a run's own measures (the
    latency of a batch). Scheduled latencies only if they are the run's headline, as in an open loop."""
    if quantity.name.endswith("_scheduled") and quantity.name not in run.summary.headline:
        return False
    own_mean = quantity.statistic == "mean" and quantity.name not in MEASURES
    return quantity.statistic is None or quantity.key in HEADLINE or own_mean


def _target(plan: StoredPlan) -> str | None:
    return ", ".join(plan.urls) or plan.server.text("type")


def _hardware(run: Run) -> str | None:
    """Accelerators with their number; else what was reported, else the machine if the target runs on it, else its
    hosts."""
    subject, machine = run.subject, run.environment.machine
    if subject.accelerators:
        return ", ".join(f"{count}x {name}" for name, count in sorted(subject.accelerator_counts.items()))
    hosts = subject.hosts_elsewhere
    return subject.hardware or (machine.cpu if machine and not hosts else None) or ", ".join(hosts) or None
