"""An experiment by its file, ours or another tool's; what has no counterpart is said."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inferometer.errors import PlanError
from inferometer.plan.experiment import Experiment, experiment_from, read_experiment
from inferometer.plan.foreign import llmd_experiment, nm_vllm
from inferometer.plan.foreign.found import ForeignExperiment
from inferometer.plan.foreign.nm_vllm_config import Known
from inferometer.plan.reading import file_text, read_mapping


@dataclass(frozen=True, slots=True)
class OpenedExperiment:
    """An experiment, and what a person should know about where it came from."""

    experiment: Experiment
    tool: str | None = None  # another tool's name, None for one of ours
    notes: list[str] = field(default_factory=list)


def open_experiment(
    path: str | Path,
    overrides: Sequence[str] = (),
    known: Known | None = None,
    environ: Mapping[str, str] = os.environ,
) -> OpenedExperiment:
    """The experiment in a file; `known` is what the machine tells that their files leave to it."""
    found = foreign_experiment(path, overrides, known, environ)
    if found is None:
        return OpenedExperiment(read_experiment(path, overrides))
    return OpenedExperiment(experiment_from(found.experiment, overrides, str(path)), found.tool, found.notes)


def foreign_experiment(
    path: str | Path,
    overrides: Sequence[str] = (),
    known: Known | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ForeignExperiment | None:
    """None where the file is no other tool's."""
    where = str(path)
    if where == "-" or not Path(where).is_file():
        return None
    if where.endswith(".txt"):
        text = file_text(Path(where))
        if not nm_vllm.is_list(text):
            raise PlanError(f"{where}: must list configs, a path ending in .json on each line")
        return nm_vllm.from_list(text, where, known)
    said, twice = read_mapping(where)
    found = _of_mapping(said, where, overrides, known, environ)
    if found is not None and twice:
        raise PlanError(twice)
    return found


def _of_mapping(
    said: Mapping[str, Any], where: str, overrides: Sequence[str], known: Known | None, environ: Mapping[str, str]
) -> ForeignExperiment | None:
    if nm_vllm.is_it(said):
        return nm_vllm.from_mapping(said, where, known)
    if llmd_experiment.is_it(said):
        aimed = any(text.startswith(("target.url=", "target=")) for text in overrides)
        return llmd_experiment.from_mapping(said, where, environ, run_only=aimed)
    return None
