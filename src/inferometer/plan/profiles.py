"""Ready plans by name: those that come with Inferometer, and folders of one's own, which are searched first."""

import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from inferometer.errors import PlanError
from inferometer.plan.reading import file_text
from inferometer.plan.text import parse_yaml

VARIABLE = "INFEROMETER_PROFILES"  # folders of one's own, separated as in PATH
ENDINGS = (".yaml", ".yml", ".json")
OURS = "inferometer"  # the origin of a profile that came with the package


@dataclass(frozen=True, slots=True)
class Profile:
    """A plan with a name: where it is, and what it says about itself."""

    name: str  # path below its folder without the ending: `chat`, `inference-perf/sanity_random`
    path: Path
    origin: str  # the folder it was found in, `inferometer` for our own

    @property
    def about(self) -> str:
        """The sentence of why; empty where the plan says none."""
        mapping, _ = parse_yaml(file_text(self.path), str(self.path))
        return " ".join(str(mapping.get("about") or "").split()) if isinstance(mapping, dict) else ""


def folders(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Folders of one's own, in the order in which they are searched."""
    named = [Path(folder).expanduser() for folder in environ.get(VARIABLE, "").split(os.pathsep) if folder]
    settings = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return [*named, Path("profiles"), settings / "inferometer" / "profiles"]


def profiles(environ: Mapping[str, str] = os.environ) -> list[Profile]:
    """All of them by name. Of several with one name the first found stands, so that one's own replaces ours."""
    by_name: dict[str, Profile] = {}
    for profile in _walk(environ):
        by_name.setdefault(profile.name, profile)
    return sorted(by_name.values(), key=lambda profile: ("/" in profile.name, profile.name))


def _walk(environ: Mapping[str, str]) -> Iterator[Profile]:
    for folder in folders(environ):
        yield from _in(folder, str(folder))
    yield from _in(our_folder(), OURS)


def our_folder() -> Path:
    """Where the profiles are that came with the package."""
    return Path(str(files("inferometer.plan"))) / "profiles"


def _in(folder: Path, origin: str) -> Iterator[Profile]:
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.suffix in ENDINGS and path.is_file():
            yield Profile(path.relative_to(folder).with_suffix("").as_posix(), path, origin)


def find_profile(name: str, environ: Mapping[str, str] = os.environ) -> Profile:
    """The profile of that name; the folder may be left out where only one has it."""
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
    """What may have been meant."""
    names = [candidate.name for candidate in known]
    short = {name.rpartition("/")[2]: name for name in names}
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.6)
    close += [short[candidate] for candidate in difflib.get_close_matches(name, list(short), n=2, cutoff=0.6)]
    if close:
        return f"did you mean {' or '.join(dict.fromkeys(close))}?"
    return "inferometer profiles lists them"
