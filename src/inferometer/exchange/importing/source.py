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

FormatT = TypeVar("FormatT")  # a TypedDict with the fields of a format


class SiblingError(DataError):
    """The file is not a result itself, but belongs to one."""


class BrokenResult(DataError):
    """The file is a result of a known tool, but cannot be read."""


Form = Literal["json", "jsonl", "yaml", "csv", "text"]


class ResultRow(NamedTuple):
    """One of possibly several results of a file, and its place: `line 7`."""

    where: str
    fields: JsonObject

    def typed(self, kind: type[FormatT]) -> FormatT:
        """The fields with the type of a format. Nothing is checked: `number` and `whole` check values later."""
        return cast(FormatT, self.fields)

    def texts(self) -> Mapping[str, str]:
        """The cells of a row of a CSV file."""
        return cast(Mapping[str, str], self.fields)


@dataclass(frozen=True, slots=True)
class Source:
    """A file: its bytes, its content, and companion files of the same tool."""

    name: str
    content: bytes | mmap  # a large file is mapped and read on demand
    form: Form
    value: Any  # JSON and YAML: what was parsed; JSONL and CSV: a list of `Row`; text: str
    broken: tuple[str, ...] = ()  # names of unreadable rows
    sibling: Callable[[str], bytes | None] = lambda _name: None

    def mapping(self) -> JsonObject:
        """The object in the file; empty if it contains something else."""
        return self.value if isinstance(self.value, Mapping) else {}

    def typed(self, kind: type[FormatT]) -> FormatT:
        """The object in the file with the type of a format. Nothing is checked."""
        return cast(FormatT, self.mapping())

    def rows(self) -> list[ResultRow]:
        """All objects in the file: one, those of a list, or one per line."""
        if self.form in ("jsonl", "csv"):
            rows: list[ResultRow] = self.value
            return rows
        if isinstance(self.value, Entries):
            return self.value.as_rows(ResultRow)
        if isinstance(self.value, list):
            return [ResultRow(f"entry {at}", entry) for at, entry in enumerate(self.value) if isinstance(entry, dict)]
        return [ResultRow("", self.value)] if isinstance(self.value, dict) else []

    def columns(self) -> tuple[str, ...]:
        """The columns of a table; empty if there is no table."""
        return tuple(self.value[0].fields) if self.form == "csv" and self.value else ()


class ImportedPlan(PlanDraft, total=False):
    """The plan settings of a file: for a load on a server, or for an engine without a server."""

    model: str | None
    num_prompts: int | None
    batch_sizes: list[int]
    input_lens: list[int]
    output_lens: list[int]


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """All values in seconds, tokens and shares. Unknown values are missing: never 0, never a default."""

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
    unfinished: int | None = None  # cancelled by the tool itself
    empty: int = 0  # answers without a token, whose TTFT of 0 is in the tool's mean
    duration_s: float | None = None
    definitions: dict[str, str] = field(default_factory=dict)  # the tool's definitions of its measures
    records: Records | None = None
    samples: Samples | None = None
    underivable: tuple[str, ...] = ()  # measures that cannot be computed from these records
    arrivals_known: bool = True  # whether send times are known; else records follow each other
    doubts: tuple[tuple[str, str], ...] = ()  # (code, text): why its numbers may be wrong
    notes: tuple[str, ...] = ()  # remarks on how values were read
    part: str = ""  # which part of a file with several runs
    original: bytes | memoryview | None = None  # the text of that part; None: the whole file is this run


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The content of a file: its runs, and the rows that are not runs, each with its error."""

    runs: list[ImportedRun]
    broken: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ImportFormat:
    """A format: its name, how to recognise it, and how to read it."""

    title: str
    fits: Callable[[Source], bool]
    read: Callable[[Source], ParsedFile]
