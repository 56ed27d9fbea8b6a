"""`Foreign`: another tool's plan, said as ours, with what a person should know about the difference."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

from inferometer.errors import PlanError


class IsExperiment(PlanError):
    """A plan was asked for, and what was named is several runs: `experiments.open_experiment` reads it."""


@dataclass(slots=True)
class Foreign:
    """The mapping is as a person would write it; it is checked like any plan. `notes` say what has no counterpart.
    What is several runs there is an experiment here, and a plan only where stages of one run can say it."""

    tool: str
    plan: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    experiment: dict[str, Any] = field(default_factory=dict)

    @property
    def is_experiment(self) -> bool:
        """Whether no single plan says it."""
        return bool(self.experiment) and not self.plan

    def noted(self, notes: Sequence[str]) -> Self:
        """With more notes before its own."""
        return replace(self, notes=[*notes, *self.notes])


@dataclass(slots=True)
class ForeignExperiment:
    """Another tool's experiment as a mapping of ours, checked like any experiment; notes as above."""

    tool: str
    experiment: dict[str, Any]
    notes: list[str] = field(default_factory=list)


@contextmanager
def reading(where: str, what: str, is_file: bool = True) -> Iterator[None]:
    """Around the reader of another tool's file or command line. Such a file may hold anything: what a reader does not
    expect at some place is a mistake of the file, said with its name, like those that the reader says itself."""
    try:
        yield
    except PlanError as error:
        if is_file:
            error.name(where)
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise PlanError(f"{where}: looks like {what}, but cannot be read as that ({told})") from error


def without_missing(value: Any) -> Any:
    """A mapping, however deep, without the entries that were not said: `None`, and what is empty of them."""
    if not isinstance(value, dict):
        return value
    kept = {name: without_missing(each) for name, each in value.items()}
    return {name: each for name, each in kept.items() if each is not None and each != {} and each != []}
