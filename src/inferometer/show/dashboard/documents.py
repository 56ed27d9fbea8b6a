"""The API's answers as types: OpenAPI describes them, pages and the static site read them as JSON. Numbers are in
seconds, bytes, tokens and shares; a missing one is null."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.judge.compare import OBSERVED
from inferometer.measure.values import Quantity, quantities
from inferometer.record.encoding import document_of, environment_document, verdict_document
from inferometer.record.files import schema_of
from inferometer.record.run import KINDS, STATES, Run
from inferometer.record.summary import Summary
from inferometer.show.about import MOST_TILES, About, about_of, one_of_each
from inferometer.show.runs import PLAIN
from inferometer.store.entry import Entry
from inferometer.vocabulary import MEASURES

Cell = str | float | int | None


def plain(document: object) -> Any:
    """A document in JSON form: dictionaries, lists, texts and numbers."""
    return orjson.loads(orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS))


# -- a run -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeasureRow:
    """One number of a run."""

    key: str
    title: str
    unit: str
    direction: str | None
    value: float
    low: float | None
    high: float | None
    needed: int | None  # number of samples required; there are fewer: the percentile is weak
    observed: bool


@dataclass(frozen=True)
class FileRow:
    name: str
    bytes: int


@dataclass(frozen=True)
class RunAbout:
    id: str
    started: str
    state: str
    state_means: str
    kind: str
    kind_means: str
    source: str | None
    older_rules: bool  # numbers and verdict come from a version with other definitions, and can be recomputed


@dataclass(frozen=True)
class MarksDocument:
    tags: list[str] = field(default_factory=list)
    baselines: list[str] = field(default_factory=list)
    experiment: str | None = None
    case: str | None = None
    identity: str | None = None


@dataclass(frozen=True)
class RunDocument:
    schema: str
    run: RunAbout
    about: About
    marks: MarksDocument
    verdict: JsonObject | None
    limits: JsonValue
    headline: list[str]
    quantities: list[MeasureRow]
    outcomes: dict[str, int]
    plan: JsonObject
    environment: JsonObject
    files: list[FileRow] = field(default_factory=list)


@dataclass(frozen=True)
class LiveDocument:
    """A run in progress: the content of its logs so far."""

    running: bool
    quiet_s: float | None
    log_bytes: int
    too_large: bool
    elapsed_s: float | None
    planned_s: float | None  # None: the plan does not set its duration
    done: int  # requests that are over
    planned: int | None
    rate_planned: float | None
    rate_sent: float | None
    run: RunDocument


def run_document(run: Run, entry: Entry | None = None, baselines: list[str] | None = None) -> RunDocument:
    numbers = quantities(run.summary)
    return RunDocument(
        schema=schema_of("run"),
        run=RunAbout(
            run.id, run.started_at, run.state, STATES[run.state], run.kind, KINDS[run.kind], run.source, run.is_outdated
        ),
        about=about_of(run),
        marks=_marks(entry, baselines or []),
        verdict=verdict_document(run.verdict) if run.verdict else None,
        limits=document_of(run.summary.limits),
        headline=headline(numbers, run.summary),
        quantities=[measure_row(quantity) for quantity in numbers.values()],
        outcomes=dict(run.summary.outcomes),
        plan=run.plan.settings(),
        environment=environment_document(run.environment),
    )


def _marks(entry: Entry | None, baselines: list[str]) -> MarksDocument:
    if entry is None:
        return MarksDocument(baselines=baselines)
    return MarksDocument(list(entry.tags), baselines, entry.experiment, entry.case, entry.identity)


def late(summary: Summary) -> str:
    """The start of TTFT and E2E in a headline: the scheduled time in an open loop, else the send time."""
    return "_scheduled" if summary.loop in ("open", "mixed") else ""


def headline(numbers: Mapping[str, Quantity], summary: Summary) -> list[str]:
    """The keys of the headline numbers; for another kind of run, one number of each measure."""
    first = [f"ttft{late(summary)}.p50", f"ttft{late(summary)}.p99", "tpot.p50", f"e2e{late(summary)}.p50"]
    there = [key for key in (*first, "request_rate", "output_rate", "goodput", "failure_rate") if key in numbers]
    return there if len(there) > 1 else one_of_each(numbers)[:MOST_TILES]


def measure_row(quantity: Quantity) -> MeasureRow:
    low, high = quantity.interval or (None, None)
    return MeasureRow(
        key=quantity.key,
        title=title_of(quantity),
        unit=quantity.unit,
        direction=quantity.direction,
        value=quantity.value,
        low=low,
        high=high,
        needed=quantity.needed,
        observed=quantity.key in OBSERVED,
    )


def title_of(quantity: Quantity) -> str:
    return quantity.title if quantity.statistic is None else f"{quantity.title} {quantity.statistic}"


# -- charts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChartDocument:
    name: str
    title: str
    spec: JsonObject  # Vega-Lite


@dataclass(frozen=True)
class AbsentChart:
    title: str
    why: str


@dataclass(frozen=True)
class ChartsDocument:
    charts: list[ChartDocument]
    absent: list[AbsentChart] = field(default_factory=list)
    note: str = ""


# -- names -----------------------------------------------------------------------------------------------------------

OF_THE_MACHINE = ("folder", "location", "damage", "remedy")  # paths of files stay on the machine
USUAL = ("verdict", "what", "workload", "load", "hardware", "started", "tags")
NUMBERS = ("ttft.p50", "ttft.p99", "tpot.p50", "output_rate")
IN_WORDS = ("what", "workload", "load")  # columns that are not in the index, but derived from the plan


@dataclass(frozen=True)
class MeasureDocument:
    title: str
    unit: str
    direction: str | None


@dataclass(frozen=True)
class Names:
    """Names of columns, measures, kinds and states."""

    measures: dict[str, MeasureDocument]
    kinds: dict[str, str]
    states: dict[str, str]
    columns: list[str]  # default columns of a table of runs
    plain: list[str]


def names() -> Names:
    measures = {
        measure.name: MeasureDocument(measure.title, measure.unit, measure.direction) for measure in MEASURES.values()
    }
    known = [name for name in PLAIN if name not in (*OF_THE_MACHINE, "tag")]
    columns = [*USUAL, *NUMBERS]
    kinds: dict[str, str] = dict(KINDS.items())
    states: dict[str, str] = dict(STATES.items())
    return Names(measures, kinds, states, columns, [*IN_WORDS, *known])
