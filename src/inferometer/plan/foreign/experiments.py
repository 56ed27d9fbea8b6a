"""An experiment by its file, ours or another tool's, or by another tool's command line; what has no counterpart is
said."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from inferometer.errors import PlanError
from inferometer.plan.experiment import Experiment, experiment_from
from inferometer.plan.foreign import recognise
from inferometer.plan.foreign.common import AccountEntry, Foreign
from inferometer.plan.foreign.nm_vllm import Known
from inferometer.plan.opening import is_command, is_plan
from inferometer.plan.reading import nearby, read_mapping


@dataclass(frozen=True, slots=True)
class OpenedExperiment:
    """An experiment, and what a person should know about where it came from."""

    experiment: Experiment
    tool: str | None = None  # another tool's name, None for one of ours
    notes: list[str] = field(default_factory=list)
    entries: list[AccountEntry] = field(default_factory=list)  # the account of its source


def open_experiment(
    named: str | Path | Sequence[str],
    overrides: Sequence[str] = (),
    known: Known | None = None,
    environ: Mapping[str, str] = os.environ,
    changes: Sequence[str] = (),
) -> OpenedExperiment:
    """The experiment in a file, or that another tool's command line means; `known` are facts of the machine that their
    files leave to it, `changes` are made in their own words (`-o`)."""
    argv = _argv(named)
    foreign = foreign_experiment(argv, overrides, known, environ, changes)
    if foreign is None and changes:
        raise PlanError(
            f"-o {changes[0]}: changes another tool's file before it is read", "--set changes an experiment"
        )
    if foreign is None:
        return OpenedExperiment(_ours(argv[0], overrides))
    where = argv[0] if len(argv) == 1 else foreign.tool
    return OpenedExperiment(
        experiment_from(foreign.experiment, overrides, where), foreign.tool, foreign.notes, foreign.entries
    )


def _argv(named: str | Path | Sequence[str]) -> list[str]:
    return [str(named)] if isinstance(named, str | Path) else list(named)


def _ours(name: str, overrides: Sequence[str]) -> Experiment:
    """An experiment is a file, or the name of one that comes with Inferometer."""
    if name != "-" and not Path(name).exists():
        if name in (ready := ready_experiments()):
            return experiment_from(read_mapping(ready[name])[0], overrides, name)
        usual = "an experiment has a plan and axes: inferometer sweep --help shows examples"
        hint = nearby(Path(name)) or f"{usual}; ready ones: {', '.join(ready)}"
        raise PlanError(f"{name}: file not found", hint)
    if Path(name).is_dir():
        raise PlanError(f"{name}: is a folder, not an experiment")
    mapping, twice = read_mapping(name)
    if is_plan(mapping):
        hint = f"{_run(name)}; an experiment names it and what varies: `plan: {name}` and `axes: {{load.rate: [1, 2]}}`"
        raise PlanError(f"{name}: is a plan, not an experiment", hint)
    return experiment_from(mapping, overrides, name, also=twice)


def ready_experiments() -> dict[str, Path]:
    """The experiments that come with Inferometer, by name."""
    folder = Path(str(files("inferometer.plan"))) / "experiments"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def foreign_experiment(
    named: str | Path | Sequence[str],
    overrides: Sequence[str] = (),
    known: Known | None = None,
    environ: Mapping[str, str] = os.environ,
    changes: Sequence[str] = (),
) -> Foreign | None:
    """None where the file is no other tool's."""
    argv = _argv(named)
    if is_command(argv):
        recognise.refuse_changes(changes, "a command line")
        return _several(recognise.from_command(argv), f"inferometer run -- {shlex.join(argv)}")
    where = argv[0]
    if where == "-" or not Path(where).is_file():
        return None
    aimed = any(text.startswith(("target.url=", "target=")) for text in overrides)
    foreign = recognise.from_file(Path(where), changes, recognise.Surroundings(environ, known or Known(), aimed))
    return None if foreign is None else _several(foreign, _run(where))


def _several(foreign: Foreign, run: str) -> Foreign:
    if not foreign.experiment:
        raise PlanError(f"{foreign.tool}: is one run, a plan and not an experiment", run)
    return foreign


def _run(where: str) -> str:
    return shlex.join(["inferometer", "run", where])
