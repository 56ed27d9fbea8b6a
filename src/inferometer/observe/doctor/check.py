"""`Check`: what was looked at, its status, the result and what to do; and the check of what is installed."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from typing import Literal

# -- check -----------------------------------------------------------------------------------------------------------

Word = Literal["ok", "warning", "error", "not applicable"]
WORDS: dict[Word, str] = {
    "ok": "nothing to do",
    "warning": "it will work, and cost accuracy or be in the way",
    "error": "a run will fail, or measure something else than it should",
    "not applicable": "there is nothing of the kind here, or it was not asked for",
}


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    word: Word
    found: str
    remedy: str | None = None  # also of an ok check, where more could be had


def warned_if(bad: bool, name: str, found: str, remedy: str) -> Check:
    """A warning with its remedy, or what was found and nothing to do."""
    return Check(name, "warning", found, remedy) if bad else Check(name, "ok", found)


def not_told(name: str) -> Check:
    return Check(name, "not applicable", "not told by this system")


def worst(checks: Sequence[Check]) -> Word:
    """The word for all of them together."""
    words = {check.word for check in checks}
    return "error" if "error" in words else "warning" if "warning" in words else "ok"


# -- software --------------------------------------------------------------------------------------------------------

_OURS = ("test", "check")  # for whoever works on the program itself
_NEED = re.compile(r"(?P<package>[A-Za-z0-9._-]+).*?;.*extra *== *['\"](?P<extra>[^'\"]+)['\"]")


def extras_installed(name: str = "inferometer") -> dict[str, bool]:
    """Each extra, and whether all that it needs is there."""
    try:
        ours = distribution(name)
    except PackageNotFoundError:
        return {}
    packages: dict[str, list[str]] = {extra: [] for extra in ours.metadata.get_all("Provides-Extra") or []}
    for need in ours.requires or []:
        if found := _NEED.match(need):
            packages.setdefault(found["extra"], []).append(found["package"])
    return {extra: all(map(_is_there, names)) for extra, names in packages.items() if extra not in _OURS}


def extras(installed: Mapping[str, bool]) -> Check:
    """None of them is needed by default: a missing one is told where it would be used."""
    there, missing = _sorted(installed, True), _sorted(installed, False)
    found = f"installed: {', '.join(there) or 'none'}; not installed: {', '.join(missing) or 'none'}"
    return Check("extras", "ok", found, f"pip install 'inferometer[{','.join(missing)}]'" if missing else None)


def _sorted(installed: Mapping[str, bool], is_there: bool) -> list[str]:
    return sorted(name for name, there in installed.items() if there is is_there)


def _is_there(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False
