"""`Source`: a file as it was read; `ImportedRun`: a run of another tool, in our names and units."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from mmap import mmap
from typing import Any, Literal, NamedTuple, TypeVar, cast

from inferometer.documents.document import JsonObject
from inferometer.documents.json_text import Entries
from inferometer.errors import DataError
from inferometer.plan.draft import PlanDraft
from inferometer.record.columns import Records
from inferometer.record.environment import Environment
from inferometer.record.record import Samples
from inferometer.record.run import RunKind
from inferometer.record.summary import MeasureSummary, Rate, Value

FormatT = TypeVar("FormatT")  # a TypedDict: the names that a format has, and what is below them


class SiblingError(DataError):
    """The file is no result of its own, but belongs to one."""


class BrokenResult(DataError):
    """The file is a result of a known tool, but cannot be read."""


Form = Literal["json", "jsonl", "yaml", "csv", "text"]


class ResultRow(NamedTuple):
    """One result of a file that may hold several, and where it stands: `line 7`."""

    where: str
    fields: JsonObject

    def typed(self, kind: type[FormatT]) -> FormatT:
        """Its fields under the names of a format, which are not checked; numbers are, when they are read."""
        return cast(FormatT, self.fields)

    def texts(self) -> Mapping[str, str]:
        """The cells of a table's row."""
        return cast(Mapping[str, str], self.fields)


@dataclass(frozen=True, slots=True)
class Source:
    """A file: its bytes, its content, and the files next to it that a tool wrote with it."""

    name: str
    content: bytes | mmap  # of a large file its pages, which are read when they are needed
    form: Form
    value: Any  # JSON and YAML: what was parsed; JSONL and CSV: a list of `Row`; text: str
    broken: tuple[str, ...] = ()  # rows that could not be read, named
    sibling: Callable[[str], bytes | None] = lambda _name: None

    def mapping(self) -> JsonObject:
        """The object in the file; empty where it holds something else."""
        return self.value if isinstance(self.value, Mapping) else {}

    def typed(self, kind: type[FormatT]) -> FormatT:
        """The object in the file under the names of a format, which are not checked."""
        return cast(FormatT, self.mapping())

    def rows(self) -> list[ResultRow]:
        """Every object in the file: one, those of a list, or one a line."""
        if self.form in ("jsonl", "csv"):
            rows: list[ResultRow] = self.value
            return rows
        if isinstance(self.value, Entries):
            return self.value.as_rows(ResultRow)
        if isinstance(self.value, list):
            return [ResultRow(f"entry {at}", entry) for at, entry in enumerate(self.value) if isinstance(entry, dict)]
        return [ResultRow("", self.value)] if isinstance(self.value, dict) else []

    def columns(self) -> tuple[str, ...]:
        """The columns of a table; none where it is no table, or an empty one."""
        return tuple(self.value[0].fields) if self.form == "csv" and self.value else ()


class ImportedPlan(PlanDraft, total=False):
    """What a file has of a plan: of a load on a server, or of an engine in a process of its own."""

    model: str | None
    num_prompts: int | None
    batch_sizes: list[int]
    input_lens: list[int]
    output_lens: list[int]


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """Seconds, tokens and shares throughout. What the file does not have is missing: never 0, never a default."""

    kind: RunKind = "serving"
    started: datetime | None = None
    plan: ImportedPlan = field(default_factory=ImportedPlan)
    environment: Environment = field(default_factory=Environment)
    measures: dict[str, MeasureSummary] = field(default_factory=dict)
    rates: dict[str, Rate] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    concurrency: float | None = None  # requests in flight, on average
    answered: int | None = None
    failed: int | None = None
    unfinished: int | None = None  # ended by the tool itself
    empty: int = 0  # answers without a token, whose TTFT of 0 is in the tool's mean
    duration_s: float | None = None
    definitions: dict[str, str] = field(default_factory=dict)  # how that tool defines what it measures
    records: Records | None = None
    samples: Samples | None = None
    underivable: tuple[str, ...] = ()  # measures that cannot be computed from these records
    arrivals_known: bool = True  # whether records have their own instants; else they follow each other
    doubts: tuple[tuple[str, str], ...] = ()  # (code, text): why its numbers may be wrong
    notes: tuple[str, ...] = ()  # how something was read
    part: str = ""  # which part of a file with several runs
    original: bytes | memoryview | None = None  # that part as it stands in the file; None: the whole file is this run


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """All that a file holds: its runs, and the rows that are none, each named with what is wrong."""

    runs: list[ImportedRun]
    broken: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ImportFormat:
    """A format: what it is called, how it is recognised, and how it is read."""

    title: str
    fits: Callable[[Source], bool]
    read: Callable[[Source], ParsedFile]
