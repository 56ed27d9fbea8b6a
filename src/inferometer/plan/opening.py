"""Opens the PLAN argument of the command line: a plan file, another tool's file, a profile by name, or another tool's
command line."""

import difflib
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from inferometer.documents.document import JsonObject, JsonValue, settings_of
from inferometer.errors import PlanError
from inferometer.plan.foreign.common import AccountEntry, Foreign, IsExperiment
from inferometer.plan.model import Plan
from inferometer.plan.overrides import Flags
from inferometer.plan.reading import file_text, mapping_in, plan_from, read_mapping, stdin_text
from inferometer.plan.text import parse_yaml

VARIABLE = "INFEROMETER_PROFILES"  # the user's folders, separated as in PATH
ENDINGS = (".yaml", ".yml", ".json")
BUILT_IN = "inferometer"  # the origin of a profile that came with the package


@dataclass(frozen=True, slots=True)
class Profile:
    """A plan with a name: where it is, and its description."""

    name: str  # path below its folder without the ending: `chat`, `inference-perf/sanity_random`
    path: Path
    origin: str  # the folder it was found in, `inferometer` for our own

    @property
    def about(self) -> str:
        """Its description on one line; empty if it has none."""
        mapping, _ = parse_yaml(file_text(self.path), str(self.path))
        return " ".join(str(mapping.get("about") or "").split()) if isinstance(mapping, dict) else ""


def folders(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The user's folders, in search order."""
    named = [Path(folder).expanduser() for folder in environ.get(VARIABLE, "").split(os.pathsep) if folder]
    settings = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return [*named, Path("profiles"), settings / "inferometer" / "profiles"]


def profiles(environ: Mapping[str, str] = os.environ) -> list[Profile]:
    """All profiles by name. The first one found with a name wins, so the user's profiles replace built-in ones."""
    by_name: dict[str, Profile] = {}
    for profile in _walk(environ):
        by_name.setdefault(profile.name, profile)
    return sorted(by_name.values(), key=lambda profile: ("/" in profile.name, profile.name))


def _walk(environ: Mapping[str, str]) -> Iterator[Profile]:
    for folder in folders(environ):
        yield from _in(folder, str(folder))
    yield from _in(our_folder(), BUILT_IN)


def our_folder() -> Path:
    """The folder of the built-in profiles."""
    return Path(str(files("inferometer.plan"))) / "profiles"


def _in(folder: Path, origin: str) -> Iterator[Profile]:
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.suffix in ENDINGS and path.is_file():
            yield Profile(path.relative_to(folder).with_suffix("").as_posix(), path, origin)


def find_profile(name: str, environ: Mapping[str, str] = os.environ) -> Profile:
    """The profile of that name; the folder may be omitted if the name is unique."""
    known = profiles(environ)
    if exact := [profile for profile in known if profile.name == name]:
        return exact[0]
    below = [profile for profile in known if profile.name.rpartition("/")[2] == name]
    if len(below) == 1:
        return below[0]
    if below:
        text = f"{name}: several profiles have this name: {', '.join(profile.name for profile in below)}"
        raise PlanError(text, f"name one with its folder: inferometer run {below[0].name}")
    raise PlanError(f"{name}: no such profile", hint_of(name, known))


def hint_of(name: str, known: list[Profile]) -> str:
    """Similar names, as a hint."""
    names = [candidate.name for candidate in known]
    short = {name.rpartition("/")[2]: name for name in names}
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.6)
    close += [short[candidate] for candidate in difflib.get_close_matches(name, list(short), n=2, cutoff=0.6)]
    if close:
        return f"did you mean {' or '.join(dict.fromkeys(close))}?"
    return "inferometer profiles lists them"


FILES = (".yaml", ".yml", ".json", ".in", ".txt")
_OF_EXPERIMENTS = {"plan", "axes", "zip", "cases", "levels", "latency", "throughput", "benchmark"}
_OF_PLANS = {"workload", "load", "traffic", "target", "stop", "sampling", "limits"}


@dataclass(frozen=True, slots=True)
class PlanSource:
    """A plan before validation, its location, and the tool that it belongs to; notes are for the user."""

    mapping: dict[str, JsonValue]
    where: str
    tool: str | None = None  # another tool's name, `None` for a plan of ours
    notes: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    entries: list[AccountEntry] = field(default_factory=list)  # of the other tool's source


@dataclass(frozen=True, slots=True)
class Opened:
    """A plan, and notes about its source for the user."""

    plan: Plan
    tool: str | None
    notes: list[str]
    mapping: dict[str, JsonValue] = field(default_factory=dict)  # before our own flags changed it


def open_plan(
    argv: Sequence[str],
    overrides: Iterable[str] = (),
    flags: Flags | None = None,
    changes: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> Opened:
    """The plan that the arguments name; `changes` (`-o`) use another tool's keys, the rest ours."""
    source = _source_of(argv, changes, environ)
    if source.tool is None and changes:
        raise PlanError(f"-o {changes[0]}: changes another tool's file before it is read", "--set changes a plan")
    plan = plan_from(source.mapping, overrides, source.where, flags, also=source.twice)
    return Opened(plan, source.tool, source.notes, source.mapping)


def is_experiment(mapping: JsonObject) -> bool:
    """Whether a mapping is an experiment of ours, by keys that only experiments have."""
    return bool(_OF_EXPERIMENTS & set(mapping)) and not _OF_PLANS & set(mapping)


def is_plan(mapping: JsonObject) -> bool:
    """Whether a mapping is a plan of ours, by keys that only plans have."""
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
    """Whether the arguments are another tool's command line, not a file."""
    return len(argv) > 1 or argv[0].endswith((".sh", ".py")) or argv[0].startswith("--")


def _is_read(path: Path) -> bool:
    """Whether it can be read as a file, including a shell's `<(command)`, which is not an ordinary file."""
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
    return PlanSource(dict(settings_of(foreign.plan)), where, foreign.tool, foreign.notes, entries=foreign.entries)


def _sweep(name: str, changes: Sequence[str] = ()) -> str:
    """The sweep command for it."""
    return shlex.join(["inferometer", "sweep", name, *(arg for change in changes for arg in ("-o", change))])
