"""What an experiment's folder says of it: how it was defined, and what came of it, a type for each kind. Those that do
an experiment make them, everybody else reads attributes; JSON is their encoding."""

from typing import ClassVar, Literal

import msgspec

from inferometer.documents.document import JsonObject
from inferometer.judge.compare import Comparison, PairedChange
from inferometer.judge.pacing import Probe
from inferometer.judge.search import Outcome, SearchResult, SearchStep

Kind = Literal["sweep", "search", "ab"]
Side = Literal["a", "b"]

# -- definitions -------------------------------------------------------------------------------------------------------


class PlannedCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case that the experiment was begun with."""

    name: str
    label: str = ""
    repeat: int = 1
    key: str = ""
    parameters: JsonObject = {}  # settings by path


class SweepDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment with all its cases, so that a reader knows which are missing; without secrets."""

    file: str | None = None  # None: it was made in Python
    overrides: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()  # made in another tool's file before it was read
    experiment: JsonObject = {}  # settings, as in its file
    cases: list[PlannedCase] = []


class SearchDefinition(msgspec.Struct, frozen=True, kw_only=True):
    axis: str = "rate"
    bounds: dict[str, float | bool | None] = {}  # null: no bound
    step_s: float | None = None
    plan: JsonObject = {}  # settings


class AbDefinition(msgspec.Struct, frozen=True, kw_only=True):
    blocks: int = 0
    block_s: float = 0.0
    measures: tuple[str, ...] = ()
    a: JsonObject = {}  # settings of a plan
    b: JsonObject = {}


Definition = SweepDefinition | SearchDefinition | AbDefinition
DEFINITIONS: dict[Kind, type[Definition]] = {"sweep": SweepDefinition, "search": SearchDefinition, "ab": AbDefinition}

# -- results -----------------------------------------------------------------------------------------------------------


class StrategyChange(PairedChange, frozen=True, kw_only=True):
    """How a number of a case differs from the baseline's under the same other settings."""

    case: str
    baseline: str
    settings: JsonObject  # of the axes
    measure: str
    text: str = ""  # the change as a person reads it


class ClassEffect(msgspec.Struct, frozen=True, kw_only=True):
    """How the measures of a traffic class changed when another was switched off."""

    off: str
    of: str
    comparison: Comparison


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    WHERE_KNOWN: ClassVar = ("effects", "changes")

    cases: dict[str, int] = {}  # how many ended in which state
    effects: list[ClassEffect] | None = None  # of classes that were switched off
    changes: list[StrategyChange] | None = None  # against the baseline


class SearchOutcome(SearchResult, frozen=True, kw_only=True):
    """A search with its steps; `search --json` prints the same."""

    outcome: Outcome = "unresolved"
    low: float | None = None
    high: float | None = None
    text: str = ""
    axis: str = "rate"
    limits: tuple[str, ...] = ()
    steps: tuple[SearchStep, ...] = ()
    probe: Probe | None = None
    id: str | None = None
    interrupted: bool = False


class Pairs(msgspec.Struct, frozen=True):
    planned: int
    compared: int


class LeftOutPair(msgspec.Struct, frozen=True):
    pair: int
    why: str


class DoneBlock(msgspec.Struct, frozen=True):
    pair: int  # from 1
    side: Side
    run: str


class AbResult(Comparison, frozen=True, kw_only=True):
    """A comparison with the blocks that it was made of; `ab --json` prints the same."""

    id: str | None = None
    pairs: Pairs | None = None
    left_out: tuple[LeftOutPair, ...] = ()
    blocks: tuple[DoneBlock, ...] = ()


Result = SweepResult | SearchOutcome | AbResult
RESULTS: dict[Kind, type[Result]] = {"sweep": SweepResult, "search": SearchOutcome, "ab": AbResult}
