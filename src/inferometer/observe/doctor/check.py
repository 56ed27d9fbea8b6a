"""`Check`: what was examined, its status, the result and what to do; and the checks of what is installed and of what a
user names: an endpoint and its model, a tokenizer, a store and its calibration."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from typing import Literal

from inferometer.vocabulary import duration_text, size_text

# -- check -----------------------------------------------------------------------------------------------------------

Status = Literal["ok", "warning", "error", "not applicable"]


STATUSES: dict[Status, str] = {
    "ok": "nothing to do",
    "warning": "it works, but reduces accuracy or may cause problems",
    "error": "a run will fail or give wrong numbers",
    "not applicable": "not present on this machine, or not requested",
}


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: Status
    finding: str
    remedy: str | None = None  # also of an ok check, where more could be had


def warned_if(bad: bool, name: str, finding: str, remedy: str) -> Check:
    """A warning with its remedy, or what was found and nothing to do."""
    return Check(name, "warning", finding, remedy) if bad else Check(name, "ok", finding)


def unknown(name: str) -> Check:
    return Check(name, "not applicable", "not reported by this system")


def worst(checks: Sequence[Check]) -> Status:
    """The word for all of them together."""
    statuses = {check.status for check in checks}
    return "error" if "error" in statuses else "warning" if "warning" in statuses else "ok"


# -- software --------------------------------------------------------------------------------------------------------

_OURS = ("test", "check")  # for work on Inferometer itself


_NEED = re.compile(r"(?P<package>[A-Za-z0-9._-]+).*?;.*extra *== *['\"](?P<extra>[^'\"]+)['\"]")


def extras_installed(name: str = "inferometer") -> dict[str, bool]:
    """Each extra, and whether all that it needs is there."""
    try:
        ours = distribution(name)
    except PackageNotFoundError:
        return {}
    packages: dict[str, list[str]] = {extra: [] for extra in ours.metadata.get_all("Provides-Extra") or []}
    for need in ours.requires or []:
        if match := _NEED.match(need):
            packages.setdefault(match["extra"], []).append(match["package"])
    return {extra: all(map(_is_there, names)) for extra, names in packages.items() if extra not in _OURS}


def extras(installed: Mapping[str, bool]) -> Check:
    """None of them is needed by default: a missing one is reported where it would be used."""
    there, missing = _sorted(installed, True), _sorted(installed, False)
    finding = f"installed: {', '.join(there) or 'none'}; not installed: {', '.join(missing) or 'none'}"
    return Check("extras", "ok", finding, f"pip install 'inferometer[{','.join(missing)}]'" if missing else None)


def _sorted(installed: Mapping[str, bool], is_there: bool) -> list[str]:
    return sorted(name for name, there in installed.items() if there is is_there)


def _is_there(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


LITTLE_DISK = 2**30  # bytes: some 40 runs of 10,000 requests


LEAST_DISK = 64 * 2**20


OLD_DAYS = 30


@dataclass(frozen=True, slots=True)
class Tried:
    """What was tried, and what was found; `trouble` and `remedy` where it failed."""

    finding: str = ""
    trouble: str | None = None
    remedy: str | None = None
    notes: tuple[str, ...] = ()


def endpoint(tried: Tried | None) -> Check:
    if tried is None:
        return Check("endpoint", "not applicable", "no URL given (--url)")
    if tried.trouble:
        return Check("endpoint", "error", tried.trouble, tried.remedy)
    if tried.notes:
        return Check("endpoint", "warning", f"{tried.finding}; {'; '.join(tried.notes)}", tried.remedy)
    return Check("endpoint", "ok", tried.finding)


def tokenizer(tried: Tried | None) -> Check:
    if tried is None:
        return Check("tokenizer", "not applicable", "no tokenizer given (--tokenizer)")
    if tried.trouble:
        return Check("tokenizer", "error", tried.trouble, tried.remedy)
    return Check("tokenizer", "ok", tried.finding)


def store(tried: Tried) -> Check:
    if tried.trouble:
        return Check("store", "error", tried.trouble, tried.remedy or "use another store: --store FOLDER")
    return Check("store", "ok", tried.finding)


def index(tried: Tried) -> Check:
    if tried.trouble:
        return Check("index", "error", tried.trouble, tried.remedy)
    return Check("index", "ok", tried.finding)


def disk(free_bytes: float | None, where: str) -> Check:
    name = "room on disk"
    if free_bytes is None:
        return Check(name, "not applicable", f"unknown for {where}")
    finding = f"{size_text(free_bytes)} free"
    remedy = "free disk space, or use another store: --store FOLDER"
    if free_bytes < LEAST_DISK:
        return Check(name, "error", f"{size_text(free_bytes)} free", remedy)
    if free_bytes < LITTLE_DISK:
        return Check(name, "warning", finding, remedy)
    return Check(name, "ok", finding)


def calibration(age_s: float | None) -> Check:
    """The error of the instrument depends on the machine, its kernel and Python: each has its own."""
    name = "calibration"
    if age_s is None:
        finding = "none yet for this machine, kernel and Python"
        return Check(
            name, "warning", finding, "inferometer calibrate (45 s); otherwise the first run does a short calibration"
        )
    days = age_s / 86400
    if days > OLD_DAYS:
        return Check(name, "warning", f"{days:.0f} days old", "inferometer calibrate")
    return Check(name, "ok", f"made {duration_text(age_s) if days < 1 else f'{days:.0f} days'} ago")
