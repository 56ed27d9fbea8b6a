"""An experiment by its file, ours or another tool's, or by another tool's command line; what has no counterpart is
said."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inferometer.errors import PlanError
from inferometer.plan.experiment import Experiment, experiment_from
from inferometer.plan.foreign import llmd_experiment, nm_vllm, recognise
from inferometer.plan.foreign.found import Foreign, ForeignExperiment, reading
from inferometer.plan.foreign.nm_vllm import Known
from inferometer.plan.opening import is_plan
from inferometer.plan.reading import file_text, nearby, read_mapping


@dataclass(frozen=True, slots=True)
class OpenedExperiment:
    """An experiment, and what a person should know about where it came from."""

    experiment: Experiment
    tool: str | None = None  # another tool's name, None for one of ours
    notes: list[str] = field(default_factory=list)


def open_experiment(
    named: str | Path | Sequence[str],
    overrides: Sequence[str] = (),
    known: Known | None = None,
    environ: Mapping[str, str] = os.environ,
    changes: Sequence[str] = (),
) -> OpenedExperiment:
    """The experiment in a file, or that another tool's command line means; `known` is what the machine tells that their
    files leave to it, `changes` are made in their own words (`-o`)."""
    said = _words(named)
    found = foreign_experiment(said, overrides, known, environ, changes)
    if found is None and changes:
        raise PlanError(
            f"-o {changes[0]}: changes another tool's file before it is read", "--set changes an experiment"
        )
    if found is None:
        return OpenedExperiment(_ours(said[0], overrides))
    where = said[0] if len(said) == 1 else found.tool
    return OpenedExperiment(experiment_from(found.experiment, overrides, where), found.tool, found.notes)


def _words(named: str | Path | Sequence[str]) -> list[str]:
    return [str(named)] if isinstance(named, str | Path) else list(named)


def _ours(name: str, overrides: Sequence[str]) -> Experiment:
    """An experiment is a file: without one there is nothing to guess."""
    if name != "-" and not Path(name).exists():
        hint = nearby(Path(name)) or "an experiment has a plan and axes: inferometer sweep --help shows examples"
        raise PlanError(f"{name}: there is no such file", hint)
    if Path(name).is_dir():
        raise PlanError(f"{name}: is a folder, not an experiment")
    mapping, twice = read_mapping(name)
    if is_plan(mapping):
        hint = f"{_run(name)}; an experiment names it and what varies: `plan: {name}` and `axes: {{load.rate: [1, 2]}}`"
        raise PlanError(f"{name}: is a plan, not an experiment", hint)
    return experiment_from(mapping, overrides, name, also=twice)


def foreign_experiment(
    named: str | Path | Sequence[str],
    overrides: Sequence[str] = (),
    known: Known | None = None,
    environ: Mapping[str, str] = os.environ,
    changes: Sequence[str] = (),
) -> ForeignExperiment | None:
    """None where the file is no other tool's."""
    words = _words(named)
    if len(words) > 1 or words[0].startswith("--"):
        recognise.refuse_changes(changes, "a command line")
        return _several(recognise.from_command(words), f"inferometer run -- {shlex.join(words)}")
    where = words[0]
    if where == "-" or not Path(where).is_file():
        return None
    if where.endswith(".txt"):
        text = file_text(Path(where))
        if not nm_vllm.is_list(text):
            raise PlanError(f"{where}: must list configs, a path ending in .json on each line")
        recognise.refuse_changes(changes, "a list of configs")
        with reading(where, "a list of configs of nm-vllm"):
            return nm_vllm.from_list(text, where, known)
    if recognise.is_template(where):
        return _several(recognise.from_template(file_text(Path(where)), where, changes, environ), _run(where))
    said, twice = read_mapping(where)
    found = _of_mapping(said, where, overrides, known, environ, changes)
    if found is not None and twice:
        raise PlanError(twice)
    return found


def _of_mapping(
    said: dict[str, Any],
    where: str,
    overrides: Sequence[str],
    known: Known | None,
    environ: Mapping[str, str],
    changes: Sequence[str],
) -> ForeignExperiment | None:
    if nm_vllm.is_it(said):
        recognise.refuse_changes(changes, "a config of nm-vllm")
        with reading(where, "a config of nm-vllm"):
            return nm_vllm.from_mapping(said, where, known)
    if llmd_experiment.is_it(said):
        recognise.refuse_changes(changes, "an experiment of llm-d")
        aimed = any(text.startswith(("target.url=", "target=")) for text in overrides)
        with reading(where, "an experiment of llm-d"):
            return llmd_experiment.from_mapping(said, where, environ, run_only=aimed)
    if recognise.is_foreign(said):
        return _several(recognise.from_mapping(said, where, changes, environ), _run(where))
    return None


def _several(found: Foreign, run: str) -> ForeignExperiment:
    if not found.experiment:
        raise PlanError(f"{found.tool}: is one run, a plan and not an experiment", run)
    return ForeignExperiment(found.tool, found.experiment, found.notes)


def _run(where: str) -> str:
    return shlex.join(["inferometer", "run", where])
