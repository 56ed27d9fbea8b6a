"""What a person names on the command line, opened as a plan: a file of ours or of another tool, a profile by its
name, or another tool's command line."""

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from inferometer.errors import PlanError
from inferometer.plan.foreign.account import Entry
from inferometer.plan.foreign.common import Foreign, IsExperiment
from inferometer.plan.model import Plan
from inferometer.plan.overrides import Flags
from inferometer.plan.profiles import find_profile, hint_of, profiles
from inferometer.plan.reading import file_text, mapping_in, plan_from, read_mapping, stdin_text

FILES = (".yaml", ".yml", ".json", ".in", ".txt")
_OF_EXPERIMENTS = {"plan", "axes", "zip", "cases", "levels", "latency", "throughput", "benchmark"}
_OF_PLANS = {"workload", "load", "traffic", "target", "stop", "sampling", "limits"}


@dataclass(frozen=True, slots=True)
class PlanSource:
    """What a plan says before it is checked, where it stands, and whose it was; notes are for a person to read."""

    mapping: dict[str, Any]
    where: str
    tool: str | None = None  # another tool's name, `None` for a plan of ours
    notes: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)  # of the other tool's source


@dataclass(frozen=True, slots=True)
class Opened:
    """A plan, and what a person should know about where it came from."""

    plan: Plan
    tool: str | None
    notes: list[str]
    mapping: dict[str, Any] = field(default_factory=dict)  # before our own flags changed it


def open_plan(
    argv: Sequence[str],
    overrides: Iterable[str] = (),
    flags: Flags | None = None,
    changes: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> Opened:
    """The plan that the words mean; `changes` are made in another tool's own words (`-o`), the rest in ours."""
    source = _source_of(argv, changes, environ)
    if source.tool is None and changes:
        raise PlanError(f"-o {changes[0]}: changes another tool's file before it is read", "--set changes a plan")
    plan = plan_from(source.mapping, overrides, source.where, flags, also=source.twice)
    return Opened(plan, source.tool, source.notes, source.mapping)


def is_experiment(mapping: Mapping[str, Any]) -> bool:
    """Whether it is one of ours, by what only these have."""
    return bool(_OF_EXPERIMENTS & set(mapping)) and not _OF_PLANS & set(mapping)


def is_plan(mapping: Mapping[str, Any]) -> bool:
    """Whether it is one of ours, by what only these have."""
    return bool(_OF_PLANS & set(mapping)) and not _OF_EXPERIMENTS & set(mapping)


def _source_of(argv: Sequence[str], changes: Sequence[str], environ: Mapping[str, str]) -> PlanSource:
    if not argv:
        return PlanSource({}, "command line")
    if is_command(argv):
        from inferometer.plan.foreign.recognise import from_command, refuse_changes

        refuse_changes(changes, "a command line")
        foreign = from_command(argv)
        return _foreign(foreign, foreign.tool, f"inferometer sweep -- {shlex.join(argv)}")
    name = argv[0]
    if name == "-" or _is_read(Path(name)) or name.endswith(FILES):
        return _file(name, changes, environ)
    return _profile(name, environ)


def is_command(argv: Sequence[str]) -> bool:
    """Whether these are the words of another tool's command line, not a file."""
    return len(argv) > 1 or argv[0].endswith((".sh", ".py")) or argv[0].startswith("--")


def _is_read(path: Path) -> bool:
    """Also what a shell makes of `<(command)`, which is no ordinary file."""
    return path.exists() and not path.is_dir()


def _profile(name: str, environ: Mapping[str, str]) -> PlanSource:
    if Path(name).exists():
        raise PlanError(f"{name}: is a folder, not a plan")
    try:
        profile = find_profile(name, environ)
    except PlanError as error:
        if "no such profile" not in error.message:
            raise
        text = f"{name}: no such file or profile"
        raise PlanError(text, hint_of(name, profiles(environ))) from None
    mapping, twice = read_mapping(profile.path)
    return PlanSource(mapping, f"profile {profile.name}", twice=twice)


def _file(name: str, changes: Sequence[str], environ: Mapping[str, str]) -> PlanSource:
    from inferometer.plan.foreign import recognise

    where = "stdin" if name == "-" else name
    text = stdin_text() if name == "-" else file_text(Path(name))  # once: a pipe cannot be read again
    foreign = recognise.from_text(text, where, changes, recognise.Surroundings(environ))
    if foreign is not None:
        return _foreign(foreign, where, _sweep(name, changes))
    mapping, twice = mapping_in(text, where)
    if is_experiment(mapping):
        raise IsExperiment(f"{where}: is an experiment, not a plan", _sweep(name))
    return PlanSource(mapping, where, twice=twice)


def _foreign(foreign: Foreign, where: str, sweep: str) -> PlanSource:
    if foreign.is_experiment:
        raise IsExperiment(f"{where}: is several runs, an experiment and not a plan", sweep)
    written = cast(dict[str, Any], foreign.plan)  # from here on like one that a person wrote
    return PlanSource(written, where, foreign.tool, foreign.notes, entries=foreign.entries)


def _sweep(name: str, changes: Sequence[str] = ()) -> str:
    """The command that does it."""
    return shlex.join(["inferometer", "sweep", name, *(arg for change in changes for arg in ("-o", change))])
