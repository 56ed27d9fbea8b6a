"""What a person names on the command line, opened as a plan: a file of ours or of another tool, a profile by its
name, or another tool's command line."""

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inferometer.errors import PlanError
from inferometer.plan.foreign.found import Foreign, IsExperiment
from inferometer.plan.model import Plan
from inferometer.plan.overrides import Flags
from inferometer.plan.profiles import find_profile, hint_of, profiles
from inferometer.plan.reading import file_text, plan_from, read_mapping

FILES = (".yaml", ".yml", ".json", ".in")
_OF_EXPERIMENTS = {"plan", "axes", "zip", "cases", "levels", "latency", "throughput", "benchmark"}
_OF_PLANS = {"workload", "load", "traffic", "target", "stop", "sampling", "limits"}


@dataclass(frozen=True, slots=True)
class Said:
    """What a plan says before it is checked, where it stands, and whose it was; notes are for a person to read."""

    mapping: dict[str, Any]
    where: str
    tool: str | None = None  # another tool's name, `None` for a plan of ours
    notes: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Opened:
    """A plan, and what a person should know about where it came from."""

    plan: Plan
    tool: str | None
    notes: list[str]
    said: dict[str, Any] = field(default_factory=dict)  # before our own flags changed it


def open_plan(
    words: Sequence[str],
    overrides: Iterable[str] = (),
    flags: Flags | None = None,
    changes: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> Opened:
    """The plan that the words mean; `changes` are made in another tool's own words (`-o`), the rest in ours."""
    said = _said(words, changes, environ)
    if said.tool is None and changes:
        raise PlanError(f"-o {changes[0]}: changes another tool's file before it is read", "--set changes a plan")
    plan = plan_from(said.mapping, overrides, said.where, flags, also=said.twice)
    return Opened(plan, said.tool, said.notes, said.mapping)


def is_experiment(mapping: Mapping[str, Any]) -> bool:
    """Whether it is one of ours, by what only these have."""
    return bool(_OF_EXPERIMENTS & set(mapping)) and not _OF_PLANS & set(mapping)


def is_plan(mapping: Mapping[str, Any]) -> bool:
    """Whether it is one of ours, by what only these have."""
    return bool(_OF_PLANS & set(mapping)) and not _OF_EXPERIMENTS & set(mapping)


def _said(words: Sequence[str], changes: Sequence[str], environ: Mapping[str, str]) -> Said:
    if not words:
        return Said({}, "command line")
    if len(words) > 1 or words[0].endswith((".sh", ".py")) or words[0].startswith("--"):
        from inferometer.plan.foreign.recognise import from_command, refuse_changes

        refuse_changes(changes, "a command line")
        found = from_command(words)
        return _foreign(found, found.tool, f"inferometer sweep -- {shlex.join(words)}")
    name = words[0]
    if name == "-" or _is_read(Path(name)) or name.endswith(FILES):
        return _file(name, changes, environ)
    return _profile(name, environ)


def _is_read(path: Path) -> bool:
    """Also what a shell makes of `<(command)`, which is no ordinary file."""
    return path.exists() and not path.is_dir()


def _profile(name: str, environ: Mapping[str, str]) -> Said:
    if Path(name).exists():
        raise PlanError(f"{name}: is a folder, not a plan")
    try:
        profile = find_profile(name, environ)
    except PlanError as error:
        if "no such profile" not in error.message:
            raise
        text = f"{name}: there is no such file, and no profile of this name"
        raise PlanError(text, hint_of(name, profiles(environ))) from None
    mapping, twice = read_mapping(profile.path)
    return Said(mapping, f"profile {profile.name}", twice=twice)


def _file(name: str, changes: Sequence[str], environ: Mapping[str, str]) -> Said:
    from inferometer.plan.foreign import recognise

    if recognise.is_template(name):
        found = recognise.from_template(file_text(Path(name)), name, changes, environ)
        return _foreign(found, name, _sweep(name, changes))
    mapping, twice = read_mapping(name)
    where = "stdin" if name == "-" else name
    if is_experiment(mapping):
        raise IsExperiment(f"{where}: is an experiment, not a plan", _sweep(name))
    if not recognise.is_foreign(mapping):
        return Said(mapping, where, twice=twice)
    found = recognise.from_mapping(mapping, where, changes, environ)
    return replace(_foreign(found, where, _sweep(name, changes)), twice=twice)


def _foreign(found: Foreign, where: str, sweep: str) -> Said:
    if found.is_experiment:
        raise IsExperiment(f"{where}: is several runs, an experiment and not a plan", sweep)
    return Said(found.plan, where, found.tool, found.notes)


def _sweep(name: str, changes: Sequence[str] = ()) -> str:
    """The command that does it."""
    return shlex.join(["inferometer", "sweep", name, *(word for each in changes for word in ("-o", each))])
