"""What is installed of this program: its extras, and with which line the rest is had."""

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution, version

from inferometer.observe.doctor.check import Check

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
