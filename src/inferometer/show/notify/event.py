"""`Event`: what people are told, in words of its own and without markup; each channel sets it in its own form."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from inferometer.record.schema import schema_of

Kind = Literal["failure", "regression", "recovery", "test"]

MARKS: dict[Kind, str] = {"failure": "❌", "regression": "📉", "recovery": "✅", "test": "🔔"}


@dataclass(frozen=True)
class Event:
    kind: Kind
    subject: str  # what it is about: two events about the same are told apart by it
    title: str
    sentences: tuple[str, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)  # label to value
    run: str | None = None
    link: str | None = None  # to the CI job
    at: str = ""
    page: str | None = None  # of the run or the experiment

    @property
    def heading(self) -> str:
        return f"{MARKS[self.kind]} {self.title}"

    @property
    def id(self) -> str:
        """The same for every attempt to tell it, so that a receiver can drop a second one."""
        text = "\n".join((self.kind, self.subject, self.run or "", self.at))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def document(self) -> dict[str, Any]:
        """As the generic webhook gets it; stable."""
        plain = ("id", "kind", "subject", "title", "run", "link", "page", "at")
        return {
            "schema": schema_of("event"),
            **{name: getattr(self, name) for name in plain},
            "sentences": list(self.sentences),
            "facts": dict(self.facts),
        }


def first_of(texts: Sequence[str], most: int) -> list[str]:
    """Those that say anything, at most so many; the others are counted."""
    nonempty = [text for text in texts if text.strip()]
    return nonempty if len(nonempty) <= most else [*nonempty[: most - 1], f"… and {len(nonempty) - most + 1} more"]
