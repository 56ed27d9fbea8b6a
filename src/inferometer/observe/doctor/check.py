"""`Check`: what was looked at, the word for it, what was found and what to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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
