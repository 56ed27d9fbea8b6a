"""From an experiment's file to its ordered cases, and to the folder that stores them: a new one, or that of an
interrupted experiment."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from inferometer.conduct.offline import known_context
from inferometer.documents.document import JsonObject
from inferometer.errors import InferometerError, PlanError, StoreError, TargetError
from inferometer.measure.window import InFlight
from inferometer.observe.environment import gpu_facts
from inferometer.plan.cases import MOST_CASES, Case, cases_of, expected_s, ordered
from inferometer.plan.experiment import DRAIN, HIGH, LOW, Experiment, Levels, experiment_from, values_between
from inferometer.plan.foreign.nm_vllm import Known
from inferometer.plan.foreign.recognise import open_experiment
from inferometer.plan.offline import EngineChoice
from inferometer.plan.redactor import REDACTED
from inferometer.plan.secrets import redacted_fields
from inferometer.record.columns import MISSING
from inferometer.record.environment import GpuDriver
from inferometer.record.run import Run
from inferometer.store.entry import flat
from inferometer.store.experiments import (
    CaseRow,
    ExperimentFolder,
    KeptExperiment,
    PlannedCase,
    SweepDefinition,
    experiments_of,
    find_experiment,
    new_experiment,
)
from inferometer.store.shapes import ExperimentCase
from inferometer.store.store import Place, Store, open_store
from inferometer.target.offline import (
    EngineFacts,
    EngineSettings,
    OfflineEngine,
    Prompt,
    PromptTokens,
    open_engine,
)
from inferometer.target.server import StartedServer, running
from inferometer.vocabulary import NANOSECONDS, number_text

MOST_DIFFERENCES = 6
DONE = ("complete", "failed")  # states of cases that are not run again


@dataclass(frozen=True)
class Prepared:
    """An experiment that is ready to run."""

    experiment: Experiment
    cases: list[Case]  # in the order in which they are run
    cases_written: list[Case]  # in the order of the file
    file: str | None = None  # None: created in Python
    overrides: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # settings of another tool's file that have no counterpart
    changes: tuple[str, ...] = ()  # changes made to that file before it was read

    @property
    def definition(self) -> SweepDefinition:
        """The definition that is stored."""
        cases = [
            PlannedCase(
                name=case.name, label=case.label, repeat=case.repeat, key=case.key, parameters=dict(case.parameters)
            )
            for case in self.cases
        ]
        return SweepDefinition(
            file=self.file,
            overrides=self.overrides,
            changes=self.changes,
            experiment=redacted_fields(self.experiment.model_dump(mode="json", exclude_defaults=True)),
            cases=cases,
        )


def prepare(
    source: str | Path | Sequence[str] | Mapping[str, object] | Experiment,
    overrides: Sequence[str] = (),
    most: int = MOST_CASES,
    changes: Sequence[str] = (),
) -> Prepared:
    """From a file, another tool's command line, a mapping or an experiment created in Python; all mistakes are reported
    at once. `changes` are changes to another tool's file, in that tool's terms."""
    where, file, notes = "experiment", None, []
    if isinstance(source, Experiment):
        experiment = source
    elif isinstance(source, Mapping):
        experiment = experiment_from(source, overrides, where)
    else:
        opened = open_experiment(source, overrides, _known(), changes=changes)
        experiment, notes = opened.experiment, opened.notes
        where, file = _place(source, opened.tool or "")
    cases = cases_of(experiment, where, most)
    in_order = ordered(cases, experiment.order, experiment.shuffle_seed)
    return Prepared(experiment, in_order, cases, file, tuple(overrides), tuple(notes), tuple(changes))


def _place(source: str | Path | Sequence[str], tool: str) -> tuple[str, str | None]:
    """The text that locates it in messages, and the file that can be read again."""
    args = [str(source)] if isinstance(source, str | Path) else source
    if len(args) > 1 or args[0].startswith("--"):
        return tool, None
    return args[0], None if args[0] == "-" else str(Path(args[0]).resolve())


def _known() -> Known:
    """What other tools' files leave to the machine."""
    gpus = len((gpu_facts() or GpuDriver()).gpus)
    return Known(gpus or None, lambda model: known_context(EngineChoice("vllm", model)))


def begin(prepared: Prepared, store: Place = None) -> ExperimentFolder:
    """A new folder for the experiment."""
    return new_experiment(open_store(store).home, "sweep", prepared.experiment.name, prepared.definition)


def unfinished(prepared: Prepared, store: Place = None) -> KeptExperiment | None:
    """The newest unfinished experiment from the same file (or with the same name)."""
    for kept in experiments_of(open_store(store).home):
        if kept.result is None and isinstance(kept.definition, SweepDefinition) and _is_same(kept, prepared):
            return kept
    return None


def _is_same(kept: KeptExperiment, prepared: Prepared) -> bool:
    if prepared.file is not None:
        return kept.sweep.file == prepared.file
    if _keys(kept) == {case.key for case in prepared.cases}:  # from the same command line
        return True
    return prepared.experiment.name is not None and kept.name == prepared.experiment.name


def _keys(kept: KeptExperiment) -> set[str]:
    """The keys of the cases it was started with."""
    return {case.key for case in kept.sweep.cases}


def kept_experiment(wanted: str, store: Place = None) -> KeptExperiment:
    kept = find_experiment(open_store(store).home, wanted)
    if kept.kind != "sweep":
        raise StoreError(f"experiment {kept.id} is a {kept.kind}: that cannot be resumed")
    return kept


def prepare_kept(kept: KeptExperiment, most: int = MOST_CASES) -> Prepared:
    """An experiment from its file as it is now, or as it was stored if the file is gone."""
    definition = kept.sweep
    if definition.file and Path(definition.file).is_file():
        return prepare(definition.file, definition.overrides, most, definition.changes)
    if REDACTED in str(definition.experiment):
        text = f"experiment {kept.id} was started with a key or password, which is not stored"
        raise StoreError(text, f"give its file or command line again: inferometer sweep --resume {kept.id} -- ...")
    return prepare(definition.experiment, (), most)


def resume(prepared: Prepared, kept: KeptExperiment, *, force: bool = False) -> ExperimentFolder:
    """The folder to continue in. Refused if the cases differ from those it was started with, unless forced: then cases
    that are exactly the same stay done."""
    if kept.folder is None:
        raise StoreError(f"experiment {kept.id} has no folder here")
    folder = ExperimentFolder(kept.folder)
    if _keys(kept) == {case.key for case in prepared.cases}:
        return folder
    if not force:
        differences = "".join(f"\n  {line}" for line in _edited(kept.sweep.experiment, prepared.definition.experiment))
        hint = "--force continues with the new file and keeps unchanged cases; --fresh starts over"
        raise PlanError(f"experiment {kept.id} was started with another file:{differences}", hint)
    folder.redefine(prepared.definition)
    return folder


def _edited(before: JsonObject, after: JsonObject) -> list[str]:
    """`axes.load.rate[2]: was 4, is 8`."""
    old, new = flat(before), flat(after)
    lines = [
        f"{path}: was {old.get(path, 'not set')}, is {new.get(path, 'not set')}"
        for path in dict.fromkeys([*old, *new])
        if old.get(path) != new.get(path)
    ]
    rest = len(lines) - MOST_DIFFERENCES
    if not lines:  # a plan in its own file
        lines = [f"the plan {after.get('plan', '')} that it names has changed".replace("  ", " ")]
    return [*lines[:MOST_DIFFERENCES], *([f"and {rest} more"] if rest > 0 else [])]


def done_cases(kept: KeptExperiment, prepared: Prepared, *, retry_failed: bool = False) -> dict[str, ExperimentCase]:
    """The cases that need not be run again, by key."""
    wanted = {case.key for case in prepared.cases}
    states = ("complete",) if retry_failed else DONE
    lines = {case.key: case for case in kept.cases if case.key in wanted}
    return {key: case for key, case in lines.items() if case.state in states}


def expectations(prepared: Prepared, kept: KeptExperiment | None) -> dict[str, float | None]:
    """Expected seconds of each case, by key: its earlier duration, the one set in its plan, or that of its repeats."""
    lines = [case for case in (kept.cases if kept else []) if case.state == "complete"]
    took = {case.key: case.wall_s for case in lines}
    alike = {case.label: case.wall_s for case in lines}
    return {case.key: took.get(case.key) or expected_s(case) or alike.get(case.label) for case in prepared.cases}


# Resources that the cases of an experiment share: one started server at a time, one engine in this process, while their
# settings stay the same; and the loads between two ends, computed from measurements of the ends.

# -- resources -------------------------------------------------------------------------------------------------------

Notes = Callable[[str], None]


class NotStarted(TargetError):
    """The server of a case already failed to start for the previous case, and is not tried again."""


class Servers:
    """Starts a server when a case needs another one than the previous case. One that failed to start is not tried
    again."""

    def __init__(self, folder: Path, notify: Notes, *, restarts: bool) -> None:
        self._folder, self._notify, self._each_case = folder, notify, restarts
        self._open = ExitStack()
        self._server: StartedServer | None = None
        self._stack = ""
        self._failed: dict[str, str] = {}
        self.starts = len(list(folder.glob("server-*.log")))  # including those before an experiment was resumed

    def of(self, case: Case) -> StartedServer | None:
        """None if the plan has an address."""
        if case.plan.server is None:
            self.close()
            return None
        if case.stack in self._failed:
            raise NotStarted(f"not run: the server did not start for case {self._failed[case.stack]}")
        if self._server is None or self._each_case or self._stack != case.stack or self._server.ended():
            self._start(case)
        return self._server

    def _start(self, case: Case) -> None:
        self.close()
        self.starts += 1
        log = self._folder / f"server-{self.starts}.log"
        server = running(
            case.plan.server,
            self._folder,
            target=case.plan.target,
            notify=self._notify,
            holder=self._folder.name,
            log=log,
            shared=not self._each_case,
        )
        try:
            self._server, self._stack = self._open.enter_context(server), case.stack
        except InferometerError:
            self._failed[case.stack] = case.name
            raise

    def close(self) -> None:
        self._server, self._stack = None, ""
        self._open.close()


class Engines:
    """One offline engine for all cases with the same engine settings."""

    def __init__(self) -> None:
        self._opened_with: tuple[str, EngineSettings] | None = None
        self._engine: OfflineEngine | None = None

    def opener(self) -> Callable[[str, EngineSettings], OfflineEngine]:
        """For one case. A second call means that the engine has died: it gets a new one."""
        opened_before = False

        def opened(name: str, settings: EngineSettings) -> OfflineEngine:
            nonlocal opened_before
            if opened_before or self._engine is None or self._opened_with != (name, settings):
                self.close()
                self._engine, self._opened_with = open_engine(name, settings), (name, settings)
            opened_before = True
            return _Shared(self._engine)

        return opened

    def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            with suppress(Exception):  # it is given up in any case
                engine.close()


class _Shared:
    """An engine that stays open when a case closes it."""

    def __init__(self, engine: OfflineEngine) -> None:
        self._engine = engine
        self.facts: EngineFacts = engine.facts
        self.now = engine.now
        self.profiled = engine.profiled

    def generate(self, prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> list[PromptTokens]:
        return self._engine.generate(prompts, output_tokens)

    def close(self) -> None:
        """Done by `Engines` instead."""


@contextmanager
def shared(folder: Path, notify: Notes, *, restarts: bool) -> Iterator[tuple[Servers, Engines]]:
    """Ends everything that was started, whatever happens."""
    servers, engines = Servers(folder, notify, restarts=restarts), Engines()
    try:
        yield servers, engines
    finally:
        engines.close()
        servers.close()


# -- levels ----------------------------------------------------------------------------------------------------------

STEP_S = 0.5  # how often inference-perf checks the requests in flight


class NotMeasured(NotStarted):
    """A load level that is unknown, because an end was not measured or is not above the other one."""


@dataclass(frozen=True, slots=True)
class LevelLoads:
    """The loads of a block, and the ends they lie between."""

    low: float
    high: float
    values: list[float]


def loads_between(
    case: Case, levels: Levels, cases: Sequence[Case], rows: Sequence[CaseRow], store: Store
) -> LevelLoads:
    """The loads of a case's block. All repeats of an end count, so that each repeat of a level has the same load."""
    low, high = (
        _end(name, levels, [other.name for other in cases if _is_end(other, case, name)], rows, store)
        for name in (LOW, HIGH)
    )
    if high <= low:
        ends = f"the high end measured {number_text(high)} and the low end {number_text(low)}"
        raise NotMeasured(f"not run: {ends}, so there is no load in between")
    return LevelLoads(low, high, values_between(low, high, levels))


def _is_end(other: Case, case: Case, name: str) -> bool:
    """Whether it is the given end of the loads that a case lies between."""
    ours, theirs = case.level, other.level
    return ours is not None and theirs is not None and (theirs.block, theirs.step) == (ours.block, name)


def _end(name: str, levels: Levels, names: Sequence[str], rows: Sequence[CaseRow], store: Store) -> float:
    if (known_end := levels.known_end(name)) is not None:
        return known_end
    done = [row.run for row in rows if row.name in names and row.state == "complete" and row.run]
    values = [_measured(run, levels, store) for run in done]
    measured = [value for value in values if value is not None]
    if not measured:
        raise NotMeasured(f"not run: its {name} end was not measured")
    return fmean(measured)


def _measured(run: str, levels: Levels, store: Store) -> float | None:
    try:
        made = store.load(run)
    except StoreError:  # deleted since
        return None
    if drain := DRAIN.fullmatch(levels.measure):
        fell, reached = drain_rate(made, float(drain[1])), sessions_per_s(made)
        # a burst that did not fill the server hardly drains, but the server can handle what it answered
        return reached if fell is None or reached is None else max(fell / _turns(made), reached)
    return in_flight(made) if levels.path == "load.concurrency" else sessions_per_s(made)


def sessions_per_s(run: Run) -> float | None:
    """Answers per second from the first request to the last answer, divided by the turns of a session: rates count
    sessions."""
    answers = _answers_per_s(run)
    return None if answers is None else answers / _turns(run)


def in_flight(run: Run) -> float | None:
    """By Little's law over the same time: X * R [requests]."""
    answers, e2e = _answers_per_s(run), run.summary.measures.get("e2e")
    return None if answers is None or e2e is None or not e2e.mean else answers * e2e.mean


def _answers_per_s(run: Run) -> float | None:
    """Over the whole run: a burst has no window in which its load is held."""
    rate = run.summary.rates.get("request_rate")
    return rate.span or None if rate is not None else None


def _turns(run: Run) -> float:
    """Mean turns of a session as planned: a session that was cut short counts with all its turns."""
    records = run.records if run.summary.sessions else None
    if records is None:
        return 1.0
    return float(records.turns[records.turn == 0].mean())


def drain_rate(run: Run, percentile: float) -> float | None:
    """How fast the number of requests in flight fell [1/s]: sampled twice a second, over the steps in which it fell.
    Unanswered requests stay in flight: giving up is no speed of the server."""
    records = run.records
    answered = records.outcome.mask("ok") if records is not None else None
    if records is None or answered is None or not answered.any():
        return None
    flight = InFlight.of(records.sent_at, np.where(answered, records.ended_at, MISSING))
    looks = np.arange(flight.starts[0], records.ended_at[answered].max(), int(STEP_S * NANOSECONDS))
    fell = -np.diff(flight.count(looks)) / STEP_S
    fell = fell[fell > 0]
    return float(np.percentile(fell, percentile)) if len(fell) > 1 else None
