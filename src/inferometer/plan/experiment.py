"""`Experiment`: one plan in many cases, typed and checked, with `Levels` of load between two ends. `plan.cases`
makes its cases; `conduct.sweep` runs them."""

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, ValidationError

from inferometer.documents.document import JsonObject, JsonValue, settings_of
from inferometer.errors import PlanError
from inferometer.plan.fields import HUMAN, Count, Duration, Mistake, Number, Section, SectionError, one_or_several
from inferometer.plan.overrides import written
from inferometer.plan.reading import read_mapping
from inferometer.plan.secrets import redacted_fields
from inferometer.plan.text import DIALECT, Dumper, as_written, parse_yaml

# -- levels ----------------------------------------------------------------------------------------------------------

LEVEL = "level"  # the parameter that distinguishes these cases
LOW, HIGH = "low", "high"
DRAIN = re.compile(r"drain_rate p(\d{1,2}(?:\.\d+)?)")
Spacing = Literal["linear", "geometric", "narrowing"]
Ends = Literal["none", "low", "high", "both"]
End = dict[str, JsonValue] | Number


class Levels(Section):
    """Load levels between two measured ends, like the sweeps of guidellm, inference-perf and vLLM's explorer."""

    path: Literal["load.rate", "load.concurrency"] = Field("load.rate", description="setting that the levels vary")
    low: End = Field(description="lower end: settings of a case that is run first, or a number")
    high: End = Field(description="upper end: settings of a case that is run second, or a number")
    count: Count = Field(ge=0, le=1000, description="number of levels, without these two cases")
    spacing: Spacing = Field(
        "linear", description="spacing: equal steps, equal factors, or steps that shrink towards the high end"
    )
    ends: Ends = Field("high", description="which of the two ends is also a level")
    measure: str = Field(
        "request_rate", description="measure of an end: request throughput of the whole run, or drain_rate p95"
    )
    set: dict[str, JsonValue] = Field({}, description="settings of all levels, by path")

    def disagreements(self) -> Iterator[Mistake]:
        if not isinstance(self.low, dict) and not isinstance(self.high, dict):
            yield Mistake((), "has two known ends: write the values as an axis instead")
        if self.measure != "request_rate" and not DRAIN.fullmatch(self.measure):
            yield Mistake(("measure",), f"must be request_rate or drain_rate with a percentile, got {self.measure}")
        elif self.measure != "request_rate" and self.path != "load.rate":
            yield Mistake(("measure",), "must be request_rate where the levels are of load.concurrency")
        if self.count == 1 and self.ends == "both":
            yield Mistake(("count",), "must be at least 2 where both ends are levels")

    @property
    def steps(self) -> list[str]:
        """The names of its cases, in the order in which they run."""
        ends = [name for name in (LOW, HIGH) if self.known_end(name) is None]
        return [*ends, *(f"{number} of {self.count}" for number in range(1, self.count + 1))]

    @property
    def measured(self) -> str:
        """The measured ends: `low and high`, or the one that is not a number."""
        return " and ".join(name for name in (LOW, HIGH) if self.known_end(name) is None)

    def settings(self, step: str, value: float) -> dict[str, JsonValue]:
        """The settings of a case: those of its end, or the value of its level."""
        if step in (LOW, HIGH):
            return dict(getattr(self, step))
        return {**self.set, self.path: value}

    def known_end(self, name: str) -> float | None:
        end = getattr(self, name)
        return None if isinstance(end, dict) else float(end)


def number_of(step: str) -> int | None:
    """3 for `3 of 8`, None for an end."""
    return None if step in (LOW, HIGH) else int(step.partition(" ")[0])


def values_between(low: float, high: float, levels: Levels) -> list[float]:
    """The levels in order: rates have two decimals (small ones four digits), concurrencies are whole numbers."""
    first, last = levels.ends in ("low", "both"), levels.ends in ("high", "both")
    gaps = levels.count + (not first) + (not last) - 1
    numbers = range(0 if first else 1, gaps + last)
    return [
        _tidy_levels(_at(low, high, number / gaps if gaps else 1.0, levels.spacing), levels.path) for number in numbers
    ]


def _at(low: float, high: float, share: float, spacing: Spacing) -> float:
    """The value at a share of the distance; `narrowing` is geometric spacing that starts at the high end."""
    match spacing:
        case "linear":
            return float(low + (high - low) * share)
        case "geometric":
            return float(low * (high / low) ** share)
    return float(low + high - high * (low / high) ** share)


def _tidy_levels(value: float, path: str) -> float:
    if path == "load.concurrency":
        return max(1, round(value))
    return round(value, 2) if value >= 10 else float(f"{value:.4g}")


# -- experiment ------------------------------------------------------------------------------------------------------

Order = Literal["sequential", "shuffled", "abba"]
Work = Literal["plan", "latency", "throughput", "benchmark"]
WORKS: tuple[Work, ...] = ("plan", "latency", "throughput", "benchmark")


def _values(value: Any) -> Any:
    """One value stands for a list of one."""
    return value if isinstance(value, list) else [value]


Values = Annotated[list[Any], BeforeValidator(_values), Field(min_length=1)]
Axes = dict[str, Values]


class NamedCase(Section):
    """A named case: its settings, or its own plan or benchmark instead of the experiment's."""

    name: str = Field(min_length=1, description="unique in the experiment")
    set: dict[str, JsonValue] = Field({}, description="settings, by path")
    plan: str | dict[str, JsonValue] | None = Field(None, description="its own plan: settings, a file or a profile")
    latency: dict[str, JsonValue] | None = Field(None, description="batches through an engine in this process")
    throughput: dict[str, JsonValue] | None = Field(None, description="a workload through an engine in this process")
    benchmark: str | dict[str, JsonValue] | None = Field(None, description="your own command or function")

    def disagreements(self) -> Iterator[Mistake]:
        yield from _one_work(self)


class Budget(Section):
    """Limits after which the experiment stops early; it can be resumed with larger ones."""

    time: Duration | None = Field(None, gt=0, description="time budget: no case starts that would exceed it")
    failures: Count = Field(10, ge=1, description="stop after this number of failed cases")


class ServerUse(Section):
    """When a started server is restarted."""

    restart: Literal["when-changed", "each-case"] = Field(
        "when-changed", description="only if a server setting changes, or before every case"
    )


class Experiment(Section):
    """Axes are multiplied with each other, with the zipped groups and with the named cases; every case is a run."""

    name: str | None = Field(None, description="name")
    about: str | None = Field(None, description="purpose")
    plan: str | dict[str, JsonValue] | None = Field(
        None, description="plan of every case: settings, a file or a profile"
    )
    latency: dict[str, JsonValue] | None = Field(None, description="or: batches through an engine in this process")
    throughput: dict[str, JsonValue] | None = Field(
        None, description="or: a workload through an engine in this process"
    )
    benchmark: str | dict[str, JsonValue] | None = Field(None, description="or: your own command or function")
    set: dict[str, JsonValue] = Field({}, description="settings of all cases, by path; they override the plan")
    axes: Axes = Field({}, description="values by path; every combination is a case")
    zip: Annotated[list[Axes], one_or_several(Axes)] = Field(
        [], description="groups of paths whose values are combined pairwise: first with first"
    )
    cases: list[NamedCase] = Field([], description="named cases")
    levels: Levels | None = Field(None, description="load levels between two ends that are measured first")
    classes: Literal["switch-off"] | None = Field(
        None, description="switch-off: all traffic classes together, then with each of them left out"
    )
    exclude: Annotated[list[dict[str, JsonValue]], one_or_several(dict[str, JsonValue])] = Field(
        [], description="cases to leave out, by values; `case` is the case name"
    )
    repeats: Count = Field(1, ge=1, le=1_000_000, description="runs per case")
    vary_seed: bool = Field(
        False, description="repeat k of every case has the plan's seed plus k - 1, so that repeats send different tapes"
    )
    baseline: str | None = Field(
        None, description="named case that the others are compared with, repeat by repeat, with intervals"
    )
    time: Literal["real", "virtual"] = Field(
        "real", description="virtual: cases are simulated (server simulator, or a fleet of it) and stored like runs"
    )
    order: Order = Field(
        "sequential",
        description="as written, shuffled, or back and forth (ABBA) so that drift cancels (needs 2 repeats)",
    )
    shuffle_seed: Count = Field(0, ge=0, description="seed of the shuffled order")
    server: ServerUse = Field(ServerUse.usual(), description="when the server is restarted")
    budget: Budget = Field(Budget.usual(), description="time and failure budget")
    price_per_gpu_hour: Number | None = Field(None, gt=0, description="hourly price, used for the cost of tokens")
    gpus: Count | None = Field(
        None, ge=1, le=1_000_000, description="number of GPUs of the server; default with a price: 1"
    )

    def disagreements(self) -> Iterator[Mistake]:
        yield from _one_work(self)
        yield from self._of_zip()
        yield from self._named_twice()
        if self.classes and not self.is_of("plan"):
            yield Mistake(("classes",), "needs a plan: only plans have traffic classes")
        if self.levels and not self.is_of("plan"):
            yield Mistake(("levels",), "needs a plan: only plans have a load")
        if self.baseline is not None and self.baseline not in (names := [case.name for case in self.cases]):
            known = f"; there are {', '.join(names)}" if names else ", and the experiment has none"
            yield Mistake(("baseline",), f"must be the name of a case, got {self.baseline}{known}")

    def is_of(self, work: Work) -> bool:
        return self.work[0] == work

    @property
    def work(self) -> tuple[Work, str | dict[str, JsonValue]]:
        """What a case runs if it does not define it itself; a plan by default."""
        return work_of(self) or ("plan", {})

    def _of_zip(self) -> Iterator[Mistake]:
        for at, group in enumerate(self.zip):
            lengths = {path: len(values) for path, values in group.items()}
            if len({*lengths.values()}) > 1:
                text = ", ".join(f"{path} has {n}" for path, n in lengths.items())
                yield Mistake(("zip", at), f"must have lists of one length: {text}")

    def _named_twice(self) -> Iterator[Mistake]:
        names: set[str] = set()
        for at, case in enumerate(self.cases):
            if case.name in names:
                yield Mistake(("cases", at, "name"), f"must be unique in the experiment, got {case.name}")
            names.add(case.name)
        paths = Counter([*self.axes, *(path for group in self.zip for path in group)])
        for path in (path for path, count in paths.items() if count > 1):
            yield Mistake(("axes",), f"and zip have {path} more than once")
        for path in (self.levels.path, "load") if self.levels else ():
            if path in paths:
                yield Mistake(("levels",), f"and axes cannot both vary {path}")


def work_of(part: Experiment | NamedCase) -> tuple[Work, str | dict[str, JsonValue]] | None:
    return next(((name, source) for name in WORKS if (source := getattr(part, name)) is not None), None)


def _one_work(part: Experiment | NamedCase) -> Iterator[Mistake]:
    works = [name for name in WORKS if getattr(part, name) is not None]
    for name in works[1:]:
        yield Mistake((name,), f"cannot be combined with {works[0]}")


def json_schema() -> dict[str, JsonValue]:
    """The JSON schema of an experiment's file, for editors."""
    return {"$schema": DIALECT, **Experiment.model_json_schema(), "title": "Inferometer experiment"}


def to_yaml(experiment: Experiment) -> str:
    """The settings that differ from the defaults, as YAML that reads back as the same; secrets are starred."""
    mapping = _tidy(redacted_fields(experiment.model_dump(context=HUMAN, exclude_defaults=True)))
    return yaml.dump(mapping, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110)


def _tidy(value: Any) -> Any:
    """2.0 as 2, however deep."""
    if isinstance(value, dict):
        return {name: _tidy(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_tidy(entry) for entry in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


# -- reading ---------------------------------------------------------------------------------------------------

_OWN = {*Experiment.model_fields} - {"name", "about", "server", "plan"}  # other names are settings of the plan


def read_experiment(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment in a file; `--set` changes its own settings and those of its plan."""
    mapping, twice = read_mapping(path)
    return experiment_from(mapping, overrides, str(path), also=twice)


def experiment_from(
    mapping: Mapping[str, object],
    overrides: Sequence[str] = (),
    where: str = "experiment.yaml",
    also: Sequence[str] = (),
) -> Experiment:
    """The experiment described by a mapping; all errors in it are raised together."""
    changed, mistakes = _changed(settings_of(mapping), overrides)
    mistakes = [*also, *mistakes]
    try:
        made = Experiment.model_validate(changed)
    except ValidationError as error:
        raise PlanError([*mistakes, *(f"{where}: {text}" for text in _mistakes(error, changed))]) from None
    if mistakes:
        raise PlanError(mistakes)
    return made


def _changed(mapping: JsonObject, overrides: Sequence[str]) -> tuple[dict[str, JsonValue], list[str]]:
    """Apply `--set`: `repeats=3` and `budget.time=1h` change the experiment, other settings are set in all cases."""
    changed, mistakes = dict(mapping), []
    for text in overrides:
        path, equals, raw = text.partition("=")
        if not equals or not path.strip():
            mistakes.append(f"--set {text}: must be path=value, such as load.rate=5")
            continue
        value, wrong = parse_yaml(raw, f"--set {path}")
        mistakes += wrong
        first, _, below = path.strip().partition(".")
        if first in _OWN or path.strip() == "server.restart":
            changed[first] = _put(changed.get(first), below, value)
        elif isinstance(there := changed.get("set") or {}, Mapping):  # otherwise the model reports the error
            changed["set"] = {**there, path.strip(): value}
    return changed, mistakes


def _put(there: JsonValue, path: str, value: JsonValue) -> JsonValue:
    """Set one setting; below free keys a path is one key: `axes.load.rate` sets `load.rate` of the axes."""
    return value if not path else {**(there if isinstance(there, Mapping) else {}), path: value}


def _mistakes(error: ValidationError, mapping: JsonObject) -> Iterator[str]:
    """Pydantic's errors as readable messages."""
    for detail in error.errors(include_url=False):
        loc = tuple(step for step in detail["loc"] if step not in ("str", "dict[str,any]", "[key]"))
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, SectionError):
            yield from (f"{written((*loc, *mistake.path))} {mistake.text}".strip() for mistake in cause.mistakes)
        else:
            yield f"{written(loc)} {_text(detail, loc)}".strip()


def _text(error: Any, loc: Sequence[str | int]) -> str:
    match error["type"]:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return _unknown(loc)
        case "too_short":
            return "must have at least one value"
        case "dict_type":
            return f"must be settings by name (name: value), got {as_written(error['input'])}"
    message = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return f"{message.replace(chr(39), '')}, got {as_written(error['input'])}"


_SECTIONS: dict[str, type[Section]] = {"cases": NamedCase, "budget": Budget, "server": ServerUse, "levels": Levels}


def _unknown(loc: Sequence[str | int]) -> str:
    section = _SECTIONS.get(str(loc[0]), Experiment) if len(loc) > 1 else Experiment
    known = list(section.model_fields)
    close = difflib.get_close_matches(str(loc[-1]), known, n=1)
    return f"is not a setting; did you mean {close[0]}?" if close else f"is not a setting; there are {', '.join(known)}"
