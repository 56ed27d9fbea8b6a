"""`Foreign`: another tool's plan converted to ours, with an account of its source: every key and flag, and how it was
used."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from inferometer import vocabulary
from inferometer.documents.document import JsonObject, JsonValue
from inferometer.errors import PlanError
from inferometer.plan.draft import ExperimentDraft, PlanDraft
from inferometer.plan.text import as_written

KeyOutcome = Literal["translated", "noted", "no effect", "refused"]
_ON = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class AccountEntry:
    """One key or flag of the source. `where` lists the settings of the plan that depend on it."""

    source: str
    value: str
    outcome: KeyOutcome
    note: str = ""
    where: tuple[str, ...] = ()


class Account:
    """How each key of a source was used, recorded while it is read; `settle` raises all errors together."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.mistakes: list[str] = []
        self.general: list[str] = []  # notes that belong to no single key
        self._values: dict[str, JsonValue] = {}
        self._read: set[str] = set()
        self._notes: dict[str, tuple[KeyOutcome, str]] = {}

    def add(self, source: str, value: Any) -> None:
        """Add a key that must be accounted for."""
        self._values[source] = value

    def read(self, source: str) -> None:
        self._read.add(source)

    def was_read(self, source: str) -> bool:
        return source in self._read

    def note(self, source: str, text: str) -> None:
        """Note a difference in how a key was translated, for the user."""
        self._read.add(source)
        self._notes[source] = ("noted", text)

    def no_effect(self, source: str, text: str) -> None:
        """Record that a key does not affect the requests, with the reason."""
        self._read.add(source)
        self._notes[source] = ("no effect", text)

    def refuse(self, source: str, text: str) -> None:
        self._read.add(source)
        self._notes[source] = ("refused", text)
        self.mistakes.append(f"{self.tool}: {source} {text}")

    @property
    def notes(self) -> list[str]:
        """Notes for the user: one line per key with a difference, then the general notes."""
        lines = [
            f"{source}: {text}" for source, (outcome, text) in self._notes.items() if outcome != "refused" and text
        ]
        return list(dict.fromkeys([*lines, *self.general]))

    def entries(self) -> list[AccountEntry]:
        return [self._entry(source, value) for source, value in self._values.items()]

    def _entry(self, source: str, value: Any) -> AccountEntry:
        shown = "" if value is True and source.startswith("--") else as_written(value)
        if value is None or value in ({}, []):
            return AccountEntry(source, shown, "no effect", "empty")
        above = list(_above(source))
        noted = next((self._notes[place] for place in above if place in self._notes), None)
        if noted is not None:
            return AccountEntry(source, shown, *noted)
        if any(place in self._read for place in above):
            return AccountEntry(source, shown, "translated")
        return AccountEntry(source, shown, "refused", "is not understood")

    def settle(self) -> None:
        """Raise the errors; if there are none, refuse every key that was not read."""
        if self.mistakes:  # a reader that stopped early has not read all keys
            raise PlanError(list(dict.fromkeys(self.mistakes)))
        for entry in self.entries():
            if entry.outcome == "refused" and entry.source not in self._notes:
                got = f", got {entry.value}" if entry.value else ""
                self.mistakes.append(f"{self.tool}: {entry.source} is not understood{got}")
        if self.mistakes:
            raise PlanError(list(dict.fromkeys(self.mistakes)))


def _above(source: str) -> Iterator[str]:
    """The key and the sections that contain it: reading a whole section accounts for all its keys."""
    yield source
    while "." in source:
        source = source.rpartition(".")[0]
        yield source


class Settings:
    """One section of another tool's file, or its command line; every read is recorded in the account."""

    def __init__(self, values: JsonObject, account: Account, prefix: str = "", *, known: bool = False) -> None:
        self.values = dict(values)
        self.account = account
        self.prefix = prefix
        if not known:
            for name, value in self.values.items():
                _register(account, f"{prefix}{name}", value)

    @property
    def tool(self) -> str:
        return self.account.tool

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def source(self, name: str) -> str:
        """The key as the account names it."""
        return f"{self.prefix}{name}"

    def wrong(self, name: str, must: str) -> None:
        """Refuse a value."""
        got = f", got {as_written(self.values[name])}" if name in self else ""
        self.account.refuse(self.source(name), f"{must}{got}")

    def note(self, name: str, text: str) -> None:
        self.account.note(self.source(name), text)

    def no_effect(self, name: str, text: str = "") -> None:
        """Record why a key has no effect, if it is present."""
        if name in self.values:
            self.account.no_effect(self.source(name), text)

    def value(self, name: str, default: Any = None) -> Any:
        """The value of a key as it was written, including nested values."""
        self.account.read(self.source(name))
        value = self.values.get(name)
        return default if value is None else value

    def section(self, name: str) -> "Settings":
        """The settings below a key; empty if the key is missing."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, Mapping):
            self.wrong(name, "must be settings by name")
            value = None
        return Settings(value or {}, self.account, f"{self.prefix}{name}.", known=True)

    def sections(self, name: str) -> "list[Settings]":
        """The settings of each entry of a list."""
        value = self.values.get(name)
        entries = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(entry, Mapping) for entry in entries):
            self.wrong(name, "must be a list of settings by name")
            return []
        indexed = isinstance(value, list)
        places = [f"{self.prefix}{name}.{at}." if indexed else f"{self.prefix}{name}." for at in range(len(entries))]
        return [Settings(entry, self.account, place, known=True) for entry, place in zip(entries, places, strict=True)]

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self.value(name)
        return default if value is None else str(value)

    def number(self, name: str, default: float | None = None) -> float | None:
        """A number; `inf` is allowed."""
        text = self.text(name)
        if text is None:
            return default
        try:
            return math.inf if text.strip().lower() in ("inf", "infinity") else vocabulary.number(text)
        except ValueError:
            self.wrong(name, "must be a number")
            return default

    def count(self, name: str, default: int | None = None) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        try:
            return vocabulary.count(text.removesuffix(".0"))
        except ValueError:
            self.wrong(name, "must be a whole number")
            return default

    def on(self, name: str, default: bool = False) -> bool:
        """A switch: present or absent, or followed by true or false in any spelling."""
        value = self.value(name, default)
        if isinstance(value, bool):
            return value
        if str(value).lower() not in _ON:
            self.wrong(name, "must be true or false")
            return default
        return _ON[str(value).lower()]

    def was_read(self, name: str) -> bool:
        return self.account.was_read(self.source(name))

    def several(self, name: str) -> list[str]:
        value = self.value(name, [])
        return [str(entry) for entry in value] if isinstance(value, list) else str(value).split()

    def without(self, *names: str) -> Self:
        """A copy without some keys, which are accounted for elsewhere."""
        other = object.__new__(type(self))
        other.values = {name: value for name, value in self.values.items() if name not in names}
        other.account, other.prefix = self.account, self.prefix
        return other

    def settle(self) -> None:
        self.account.settle()


def _register(account: Account, source: str, value: Any) -> None:
    """Register every leaf of a document by its path."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            _register(account, f"{source}.{name}", inner)
    elif isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
        for at, entry in enumerate(value):
            _register(account, f"{source}.{at}", entry)
    else:
        account.add(source, value)


def with_places(entries: Sequence[AccountEntry], places: Mapping[str, Sequence[str]]) -> list[AccountEntry]:
    """The entries, each with the settings of the plan that depend on it."""
    return [replace(entry, where=tuple(places.get(entry.source, ()))) for entry in entries]


class IsExperiment(PlanError):
    """A plan was requested, but the source describes several runs: `recognise.open_experiment` reads it."""


class NoPlanError(PlanError):
    """The file or the command belongs to a known tool, but describes no measurement of a server or an engine."""


class NeedsFileError(PlanError):
    """A plan names a file that is not here."""


@dataclass(slots=True)
class Foreign:
    """The mapping is like a hand-written plan and is validated like any plan. `notes` list the differences.
    Several runs of the other tool become an experiment, or a plan if stages of one run can express them."""

    tool: str
    plan: PlanDraft
    notes: list[str] = field(default_factory=list)
    experiment: ExperimentDraft = field(default_factory=ExperimentDraft)
    entries: list[AccountEntry] = field(default_factory=list)

    @classmethod
    def of(cls, account: Account, plan: PlanDraft, experiment: ExperimentDraft | None = None) -> Self:
        """Settle the account: a key that was not read is an error."""
        account.settle()
        varied: ExperimentDraft = experiment or {}
        cases = [case["plan"] for case in varied.get("cases", ()) if "plan" in case]
        for made in (plan, varied.get("plan", {}), *cases):
            _leave_to_server(made)
        return cls(account.tool, plan, account.notes, varied, account.entries())

    @property
    def is_experiment(self) -> bool:
        """Whether no single plan can express it."""
        return bool(self.experiment) and not self.plan

    def noted(self, notes: Sequence[str]) -> Self:
        """A copy with more notes in front of its own."""
        return replace(self, notes=list(dict.fromkeys([*notes, *self.notes])))


@contextmanager
def reading(where: str, what: str, is_file: bool = True) -> Iterator[None]:
    """Context of the reader of another tool's file or command line. Such a file may contain anything: unexpected
    values are errors of the file, reported with its name."""
    try:
        yield
    except PlanError as error:
        if is_file:
            error.name(where)
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise PlanError(f"{where}: looks like {what}, but cannot be read as that ({reason})") from error


def _leave_to_server(plan: PlanDraft) -> None:
    """If the other tool requests no output length, request none: our default would set one."""
    for workload in (plan.get("workload"), *(traffic.get("workload") for traffic in plan.get("traffic") or ())):
        if workload and workload.get("type", "synthetic") == "synthetic" and "output_tokens" not in workload:
            workload["output_tokens"] = None


def without_missing(value: Any) -> Any:
    """A nested mapping without unset entries: `None`, and mappings that are empty without them."""
    if not isinstance(value, dict):
        return value
    kept = {name: without_missing(entry) for name, entry in value.items()}
    return {name: entry for name, entry in kept.items() if entry is not None and entry != {} and entry != []}
