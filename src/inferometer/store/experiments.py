"""The folder of an experiment, `<store>/experiments/<id>`: its definition, a line per finished case, and the result.
Its runs are ordinary runs. Any prefix of the lines is valid, so an experiment can be resumed."""

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Literal

import msgspec
import orjson
from msgspec import structs

from inferometer.documents.document import Document, JsonObject
from inferometer.errors import UNREACHABLE, StoreError
from inferometer.judge.compare import Comparison, PairedChange
from inferometer.judge.limits import exit_code
from inferometer.judge.search import Probe, SearchEnd, SearchResult, SearchStep
from inferometer.measure.values import Quantity, common_basis, quantities
from inferometer.record.encoding import document_of, result_document, result_from
from inferometer.record.files import replacing, schema_of, translated_errors
from inferometer.record.run import Run
from inferometer.record.summary import Basis
from inferometer.store.folder import read_json, run_id
from inferometer.store.shapes import (
    Damaged,
    ExperimentCase,
    ExperimentFile,
    damaged_by,
    decoded,
    file_bytes,
    is_there,
)
from inferometer.store.store import Store

# -- definitions and results -------------------------------------------------------------------------------------------

# The content of an experiment's folder: its definition and its result, a type for each kind. The conductors of
# experiments create them, everything else reads their attributes; JSON is their encoding.

ExperimentKind = Literal["sweep", "search", "ab"]
Side = Literal["a", "b"]

# -- definitions -------------------------------------------------------------------------------------------------------


class PlannedCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case of the experiment when it was started."""

    name: str
    label: str = ""
    repeat: int = 1
    key: str = ""
    parameters: JsonObject = {}  # settings by path


class SweepDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment with all its cases, so that a reader knows which are missing; without secrets."""

    file: str | None = None  # None: created in Python
    overrides: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()  # changes made to another tool's file before it was read
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


ExperimentDefinition = SweepDefinition | SearchDefinition | AbDefinition
DEFINITIONS: dict[ExperimentKind, type[ExperimentDefinition]] = {
    "sweep": SweepDefinition,
    "search": SearchDefinition,
    "ab": AbDefinition,
}

# -- results -----------------------------------------------------------------------------------------------------------


class StrategyChange(PairedChange, frozen=True, kw_only=True):
    """The difference of a case's number from the baseline's with otherwise equal settings."""

    case: str
    baseline: str
    settings: JsonObject  # of the axes
    measure: str
    text: str = ""  # the change as text


class ClassEffect(msgspec.Struct, frozen=True, kw_only=True):
    """How the measures of a traffic class changed when another was switched off."""

    off: str
    of: str
    comparison: Comparison


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    WHERE_KNOWN: ClassVar = ("effects", "changes")

    cases: dict[str, int] = {}  # number of cases by final state
    effects: list[ClassEffect] | None = None  # of classes that were switched off
    changes: list[StrategyChange] | None = None  # against the baseline


class SearchOutcome(SearchResult, frozen=True, kw_only=True):
    """A search with its steps; `search --json` prints the same."""

    outcome: SearchEnd = "unresolved"
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
    """A comparison with its blocks; `ab --json` prints the same."""

    id: str | None = None
    pairs: Pairs | None = None
    left_out: tuple[LeftOutPair, ...] = ()
    blocks: tuple[DoneBlock, ...] = ()


ExperimentResult = SweepResult | SearchOutcome | AbResult
RESULTS: dict[ExperimentKind, type[ExperimentResult]] = {"sweep": SweepResult, "search": SearchOutcome, "ab": AbResult}


# -- stored experiments ------------------------------------------------------------------------------------------------

ABOUT, CASES, RESULT, LOCK = "experiment.json", "cases.jsonl", "result.json", ".lock"


@dataclass(frozen=True)
class KeptExperiment:
    """A stored experiment. A case that failed before there was a run has none."""

    id: str
    kind: ExperimentKind
    name: str | None
    started_at: str
    definition: ExperimentDefinition
    cases: list[ExperimentCase] = field(default_factory=list)
    result: ExperimentResult | None = None  # None: it has not finished
    folder: Path | None = None

    @property
    def sweep(self) -> SweepDefinition:
        """The definition of a sweep."""
        assert isinstance(self.definition, SweepDefinition)
        return self.definition

    @property
    def latest(self) -> list[ExperimentCase]:
        """The latest attempt at each case: an interrupted one may have been repeated."""
        return list({case.name: case for case in self.cases}.values())


@dataclass(frozen=True)
class CaseRow:
    """A finished case with all its numbers: the input of an experiment's tables, charts and files."""

    name: str
    label: str  # without the number of the repeat
    parameters: JsonObject
    repeat: int
    state: str  # of its run; "failed" if there is none
    run: str | None = None
    verdict: str | None = None
    error: str | None = None
    wall_s: float | None = None
    limits_missed: tuple[str, ...] = ()
    exit_code: int = 0  # exit code for this run alone
    values: dict[str, Quantity] = field(default_factory=dict)


@dataclass(frozen=True)
class ExperimentFolder:
    """A running experiment."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    def add(self, case: ExperimentCase) -> None:
        """Adds a finished case, written completely and to disk before the next one starts."""
        line = orjson.dumps(structs.asdict(case), option=orjson.OPT_SERIALIZE_NUMPY) + b"\n"
        with translated_errors(self.path), (self.path / CASES).open("ab", buffering=0) as file:
            whole = _whole(self.path / CASES)
            file.truncate(whole)  # an incomplete line of a killed writer
            try:
                written = file.write(line)
                if written < len(line):  # the disk became full during the write; the next one reports it
                    file.write(line[written:])
                os.fsync(file.fileno())
            except OSError:
                file.truncate(whole)
                raise

    def redefine(self, definition: ExperimentDefinition) -> None:
        """The file of the experiment was edited, and it continues with the new version; the old one is kept next to
        it."""
        about = Document(read_json(self.path / ABOUT, "experiment"))
        earlier = [*about.values_of("earlier"), about.get("definition")]
        _write(self.path / ABOUT, {**about, "definition": document_of(definition), "earlier": earlier})

    @contextmanager
    def held(self) -> Iterator[None]:
        """For a single process: two that resume it would run the same cases."""
        with translated_errors(self.path), (self.path / LOCK).open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(
                    f"experiment {self.id} is being run by another process", "wait until it ends"
                ) from None
            yield

    def finish(self, result: ExperimentResult) -> None:
        _write(self.path / RESULT, result_document("experiment", result))

    def load(self) -> KeptExperiment:
        return load_experiment(self.path)


def new_experiment(
    store: Path, kind: ExperimentKind, name: str | None, definition: ExperimentDefinition
) -> ExperimentFolder:
    """A new folder for an experiment that starts now."""
    started = datetime.now(UTC)
    path = store / "experiments" / run_id(started)
    about = {"kind": kind, "name": name, "started": started.isoformat(timespec="milliseconds")}
    with translated_errors(path):
        path.mkdir(parents=True)
    _write(path / ABOUT, {**about, "definition": document_of(definition)})
    return ExperimentFolder(path)


def _write(file: Path, content: JsonObject) -> None:
    with replacing(file) as draft:
        whole = {"schema": schema_of("experiment"), **content}
        draft.write_bytes(orjson.dumps(whole, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY))


def load_experiment(path: Path) -> KeptExperiment:
    """Raises a `DamagedError` that names the problem if it cannot be read."""
    read = read_experiment(path)
    if isinstance(read, Damaged):
        raise read.error
    return read


def read_experiment(path: Path) -> KeptExperiment | Damaged:
    """From its folder; this is the only place where such a folder is read."""
    try:
        if not is_there(path / ABOUT):
            raise StoreError(f"{path}: not an experiment folder", "create one with inferometer sweep")
        about = decoded(read_json(path / ABOUT, "experiment"), ExperimentFile, path / ABOUT)
        definition = decoded(about.definition, DEFINITIONS[about.kind], path / ABOUT)
        result = _read_result(path / RESULT, about.kind) if is_there(path / RESULT) else None
        cases = list(_cases(path / CASES))
    except StoreError as error:
        return damaged_by(error, path)
    return KeptExperiment(
        id=path.resolve().name,
        kind=about.kind,
        name=about.name,
        started_at=about.started,
        definition=definition,
        cases=cases,
        result=result,
        folder=path,
    )


def _read_result(file: Path, kind: ExperimentKind) -> ExperimentResult:
    return decoded(result_from(read_json(file, "experiment")), RESULTS[kind], file)


def experiments_of(store: Path, warn: Callable[[Damaged], None] = lambda _damaged: None) -> list[KeptExperiment]:
    """Newest first; other folders are skipped, and so are damaged ones, after a call of `warn`."""
    known = []
    for file in sorted((store / "experiments").glob(f"*/{ABOUT}"), reverse=True):
        read = read_experiment(file.parent)
        if isinstance(read, Damaged):
            warn(read)
        else:
            known.append(read)
    return known


def find_experiment(store: Path, wanted: str) -> KeptExperiment:
    """By its id, the start of its id, its name (the newest with that name) or `latest`."""
    damaged: list[Damaged] = []
    known = experiments_of(store, damaged.append)
    if named := [experiment for experiment in damaged if wanted and experiment.id.startswith(wanted)]:
        raise named[0].error
    matches = [experiment for experiment in known if wanted in ("latest", experiment.id, experiment.name)]
    if matches:
        return matches[0]
    matches = [
        experiment for experiment in known if experiment.id.startswith(wanted) or experiment.id.endswith(f"-{wanted}")
    ]
    if len(matches) > 1:
        some = ", ".join(experiment.id for experiment in matches[:3])
        raise StoreError(f"{wanted!r} means {len(matches)} experiments", f"give more of its id: {some}, ...")
    if not matches:
        hint = f"the latest is {known[0].id}" if known else "create one with inferometer sweep"
        raise StoreError(f"no experiment {wanted!r}", hint)
    return matches[0]


_OF_ONE_SIZE = re.compile(r"latency_bs\d+(_in\d+_out\d+)?")


def case_row(case: ExperimentCase, run: Run | None, basis: Basis | None = None) -> CaseRow:
    """A case as a line of an experiment, with the numbers of its run."""
    limits = run.summary.limits if run else []
    return CaseRow(
        name=case.name,
        label=case.label or case.name,
        parameters=dict(case.parameters or {}),
        repeat=case.repeat,
        state=case.state or (run.state if run else "failed"),
        run=case.run,
        verdict=run.status if run else None,
        error=case.error,
        wall_s=case.wall_s,
        limits_missed=tuple(limit.limit for limit in limits if limit.met is False),
        exit_code=exit_code(run) if run else UNREACHABLE,
        values=case_values(run, basis) if run else {},
    )


def case_values(run: Run, basis: Basis | None = None) -> dict[str, Quantity]:
    """Named as in `quantities`; the batch size of a latency run is a parameter, so that its number is `latency.p50` in
    all cases and they form one column."""
    values = quantities(run.summary, basis)
    if run.kind != "latency" or len({quantity.name for quantity in values.values()}) != 1:
        return values
    return {_OF_ONE_SIZE.sub("latency", key, count=1): quantity for key, quantity in values.items()}


def rows_of(kept: KeptExperiment, store: Store) -> list[CaseRow]:
    """The latest attempt at every case. If its run was deleted since, only its parameters remain."""
    runs = [_run_of(case, store) for case in kept.latest]
    basis = common_basis(run.summary for run in runs if run is not None)
    return [case_row(case, run, basis) for case, run in zip(kept.latest, runs, strict=True)]


def _run_of(case: ExperimentCase, store: Store) -> Run | None:
    try:
        return store.load(case.run) if case.run else None
    except StoreError:
        return None


def _whole(file: Path) -> int:
    """Bytes up to the end of the last complete line."""
    return file.read_bytes().rfind(b"\n") + 1


def _cases(file: Path) -> Iterator[ExperimentCase]:
    """Complete lines only; the last line of a killed writer may be incomplete."""
    lines = file_bytes(file).splitlines(keepends=True) if is_there(file) else []
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            return
        try:
            case = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise StoreError(f"{file}: line {number}: not JSON: {error}") from error
        if not isinstance(case, dict) or not isinstance(case.get("name"), str):
            raise StoreError(f"{file}: line {number}: not a case: it has no name")
        yield decoded(case, ExperimentCase, f"{file}: line {number}")
