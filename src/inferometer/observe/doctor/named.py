"""What was asked for by name: an endpoint and its model, a tokenizer, a store and the calibration in it. Each is tried
by the conductor; here it is told what came of it."""

from dataclasses import dataclass

from inferometer.observe.doctor.check import Check
from inferometer.vocabulary import duration_text

LITTLE_DISK = 2**30  # bytes: some 40 runs of 10,000 requests
LEAST_DISK = 64 * 2**20
OLD_DAYS = 30


@dataclass(frozen=True, slots=True)
class Tried:
    """What was tried, and what was found; `trouble` and `remedy` where it failed."""

    found: str = ""
    trouble: str | None = None
    remedy: str | None = None
    notes: tuple[str, ...] = ()


def endpoint(tried: Tried | None) -> Check:
    if tried is None:
        return Check("endpoint", "not applicable", "none was named (--url)")
    if tried.trouble:
        return Check("endpoint", "error", tried.trouble, tried.remedy)
    if tried.notes:
        return Check("endpoint", "warning", f"{tried.found}; {'; '.join(tried.notes)}", tried.remedy)
    return Check("endpoint", "ok", tried.found)


def tokenizer(tried: Tried | None) -> Check:
    if tried is None:
        return Check("tokenizer", "not applicable", "none was named (--tokenizer)")
    if tried.trouble:
        return Check("tokenizer", "error", tried.trouble, tried.remedy)
    return Check("tokenizer", "ok", tried.found)


def store(tried: Tried) -> Check:
    if tried.trouble:
        return Check("store", "error", tried.trouble, tried.remedy or "keep runs elsewhere: --store FOLDER")
    return Check("store", "ok", tried.found)


def index(tried: Tried) -> Check:
    if tried.trouble:
        return Check("index", "error", tried.trouble, tried.remedy)
    return Check("index", "ok", tried.found)


def disk(free_bytes: float | None, where: str) -> Check:
    name = "room on disk"
    if free_bytes is None:
        return Check(name, "not applicable", f"not told for {where}")
    found = f"{free_bytes / 2**30:,.1f} GiB free"
    remedy = "make room, or keep runs elsewhere: --store FOLDER"
    if free_bytes < LEAST_DISK:
        return Check(name, "error", f"{free_bytes / 2**20:,.0f} MiB free", remedy)
    if free_bytes < LITTLE_DISK:
        return Check(name, "warning", found, remedy)
    return Check(name, "ok", found)


def calibration(age_s: float | None) -> Check:
    """The error of the instrument depends on the machine, its kernel and Python: each has its own."""
    name = "calibration"
    if age_s is None:
        found = "this machine, kernel and Python have none yet"
        return Check(name, "warning", found, "inferometer calibrate (45 s); else the first run makes a short one")
    days = age_s / 86400
    if days > OLD_DAYS:
        return Check(name, "warning", f"{days:.0f} days old", "inferometer calibrate")
    return Check(name, "ok", f"made {duration_text(age_s) if days < 1 else f'{days:.0f} days'} ago")
