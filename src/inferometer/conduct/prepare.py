"""From an experiment's file to its cases in the order in which they are done, and to the folder that keeps them: a new
one, or that of an experiment which was interrupted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inferometer.conduct.offline import known_context
from inferometer.documents.document import JsonObject
from inferometer.errors import PlanError, StoreError
from inferometer.observe.environment import gpu_facts
from inferometer.plan.cases import MOST_CASES, Case, cases_of
from inferometer.plan.experiment import Experiment, experiment_from
from inferometer.plan.foreign.experiments import open_experiment
from inferometer.plan.foreign.nm_vllm import Known
from inferometer.plan.offline import EngineChoice
from inferometer.plan.ordering import expected_s, ordered
from inferometer.plan.redactor import REDACTED
from inferometer.plan.secrets import redacted_fields
from inferometer.record.environment import GpuDriver
from inferometer.store.entry import flat
from inferometer.store.experiments import (
    ExperimentFolder,
    KeptExperiment,
    PlannedCase,
    SweepDefinition,
    experiments_of,
    find_experiment,
    new_experiment,
)
from inferometer.store.shapes import ExperimentCase
from inferometer.store.store import Place, open_store

MOST_DIFFERENCES = 6
DONE = ("complete", "failed")  # states of cases that are not done again


@dataclass(frozen=True)
class Prepared:
    """An experiment that can be done."""

    experiment: Experiment
    cases: list[Case]  # in the order in which they are done
    cases_written: list[Case]  # as the file has them
    file: str | None = None  # None: it was made in Python
    overrides: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what another tool's file has that has no counterpart
    changes: tuple[str, ...] = ()  # made in that file before it was read

    @property
    def definition(self) -> SweepDefinition:
        """What is kept of it."""
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
    """Of a file, another tool's command line, a mapping or an experiment made in Python; everything that is wrong is
    said at once. `changes` are made in another tool's file, in its own words."""
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
    """Where it stands, and the file that can be read again."""
    args = [str(source)] if isinstance(source, str | Path) else source
    if len(args) > 1 or args[0].startswith("--"):
        return tool, None
    return args[0], None if args[0] == "-" else str(Path(args[0]).resolve())


def _known() -> Known:
    """What other tools' files leave to the machine."""
    gpus = len((gpu_facts() or GpuDriver()).gpus)
    return Known(gpus or None, lambda model: known_context(EngineChoice("vllm", model)))


def begin(prepared: Prepared, store: Place = None) -> ExperimentFolder:
    """A folder of its own."""
    return new_experiment(open_store(store).home, "sweep", prepared.experiment.name, prepared.definition)


def unfinished(prepared: Prepared, store: Place = None) -> KeptExperiment | None:
    """The newest experiment of the same file (or name) that was not finished."""
    for kept in experiments_of(open_store(store).home):
        if kept.result is None and isinstance(kept.definition, SweepDefinition) and _is_same(kept, prepared):
            return kept
    return None


def _is_same(kept: KeptExperiment, prepared: Prepared) -> bool:
    if prepared.file is not None:
        return kept.sweep.file == prepared.file
    if _keys(kept) == {case.key for case in prepared.cases}:  # of the same command line
        return True
    return prepared.experiment.name is not None and kept.name == prepared.experiment.name


def _keys(kept: KeptExperiment) -> set[str]:
    """Of the cases that it was begun with."""
    return {case.key for case in kept.sweep.cases}


def kept_experiment(wanted: str, store: Place = None) -> KeptExperiment:
    kept = find_experiment(open_store(store).home, wanted)
    if kept.kind != "sweep":
        raise StoreError(f"experiment {kept.id} is a {kept.kind}: that cannot be resumed")
    return kept


def prepare_kept(kept: KeptExperiment, most: int = MOST_CASES) -> Prepared:
    """An experiment as its file is now, or as it was kept where the file is gone."""
    definition = kept.sweep
    if definition.file and Path(definition.file).is_file():
        return prepare(definition.file, definition.overrides, most, definition.changes)
    if REDACTED in str(definition.experiment):
        text = f"experiment {kept.id} was started with a key or password, which is not stored"
        raise StoreError(text, f"give its file or command line again: inferometer sweep --resume {kept.id} -- ...")
    return prepare(definition.experiment, (), most)


def resume(prepared: Prepared, kept: KeptExperiment, *, force: bool = False) -> ExperimentFolder:
    """The folder to go on in. Refused where the cases are not those that were begun with, unless forced: then cases
    that do exactly what they did stay done."""
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
    if not lines:  # a plan that is a file of its own
        lines = [f"the plan {after.get('plan', '')} that it names has changed".replace("  ", " ")]
    return [*lines[:MOST_DIFFERENCES], *([f"and {rest} more"] if rest > 0 else [])]


def done_cases(kept: KeptExperiment, prepared: Prepared, *, retry_failed: bool = False) -> dict[str, ExperimentCase]:
    """The cases that need not be done again, by key."""
    wanted = {case.key for case in prepared.cases}
    states = ("complete",) if retry_failed else DONE
    lines = {case.key: case for case in kept.cases if case.key in wanted}
    return {key: case for key, case in lines.items() if case.state in states}


def expectations(prepared: Prepared, kept: KeptExperiment | None) -> dict[str, float | None]:
    """Seconds that each case takes, by key: as it took, as its plan sets, or as repeats of it took."""
    lines = [case for case in (kept.cases if kept else []) if case.state == "complete"]
    took = {case.key: case.wall_s for case in lines}
    alike = {case.label: case.wall_s for case in lines}
    return {case.key: took.get(case.key) or expected_s(case) or alike.get(case.label) for case in prepared.cases}
