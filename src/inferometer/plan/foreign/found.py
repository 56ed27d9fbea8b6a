"""`Foreign`: another tool's plan, said as ours, with what a person should know about the difference."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Foreign:
    """The mapping is as a person would write it; it is checked like any plan. `notes` say what has no counterpart."""

    tool: str
    plan: dict[str, Any]
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ForeignExperiment:
    """Another tool's experiment as a mapping of ours, checked like any experiment; notes as above."""

    tool: str
    experiment: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def without_missing(value: Any) -> Any:
    """A mapping, however deep, without the entries that were not said: `None`, and what is empty of them."""
    if not isinstance(value, dict):
        return value
    kept = {name: without_missing(each) for name, each in value.items()}
    return {name: each for name, each in kept.items() if each is not None and each != {} and each != []}
