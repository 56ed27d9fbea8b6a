"""`Foreign`: another tool's plan in our form, with the account of its source."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

from inferometer.errors import PlanError
from inferometer.plan.draft import ExperimentDraft, PlanDraft
from inferometer.plan.foreign.account import Account, Entry


class IsExperiment(PlanError):
    """A plan was requested, and what was named is several runs: `experiments.open_experiment` reads it."""


class NoPlanError(PlanError):
    """The file or the command belongs to a known tool, but describes no measurement of a server or an engine."""


class NeedsFileError(PlanError):
    """A plan names a file that is not here."""


@dataclass(slots=True)
class Foreign:
    """The mapping is as a person would write it; it is checked like any plan. `notes` list the differences.
    What is several runs there is an experiment here, and a plan only where stages of one run can express it."""

    tool: str
    plan: PlanDraft
    notes: list[str] = field(default_factory=list)
    experiment: ExperimentDraft = field(default_factory=ExperimentDraft)
    entries: list[Entry] = field(default_factory=list)

    @classmethod
    def of(cls, account: Account, plan: PlanDraft, experiment: ExperimentDraft | None = None) -> Self:
        """Settle the account: what nobody read is a mistake."""
        account.settle()
        return cls(account.tool, plan, account.notes, experiment or {}, account.entries())

    @property
    def is_experiment(self) -> bool:
        """Whether no single plan can express it."""
        return bool(self.experiment) and not self.plan

    def noted(self, notes: Sequence[str]) -> Self:
        """With more notes before its own."""
        return replace(self, notes=list(dict.fromkeys([*notes, *self.notes])))


@contextmanager
def reading(where: str, what: str, is_file: bool = True) -> Iterator[None]:
    """Around the reader of another tool's file or command line. Such a file may hold anything: what a reader does not
    expect at some place is a mistake of the file, reported with its name."""
    try:
        yield
    except PlanError as error:
        if is_file:
            error.name(where)
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise PlanError(f"{where}: looks like {what}, but cannot be read as that ({reason})") from error


def without_missing(value: Any) -> Any:
    """A mapping, however deep, without the entries that were not given: `None`, and what is empty of them."""
    if not isinstance(value, dict):
        return value
    kept = {name: without_missing(entry) for name, entry in value.items()}
    return {name: entry for name, entry in kept.items() if entry is not None and entry != {} and entry != []}
