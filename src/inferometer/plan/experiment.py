"""`Experiment`: one plan in many cases, typed and checked, with `Levels` of load between two ends. Which cases it makes
is in `plan.cases`; doing them is left to `conduct.sweep`."""

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, ValidationError

from inferometer.errors import PlanError
from inferometer.plan.fields import HUMAN, Count, Duration, Mistake, Number, Section, SectionError, one_or_several
from inferometer.plan.paths import written
from inferometer.plan.reading import read_mapping
from inferometer.plan.secrets import redacted_fields
from inferometer.plan.text import Dumper, as_written, parse_yaml
from inferometer.plan.writing import DIALECT

# -- levels ----------------------------------------------------------------------------------------------------------

LEVEL = "level"  # the parameter that tells these cases apart
LOW, HIGH = "low", "high"
DRAIN = re.compile(r"drain_rate p(\d{1,2}(?:\.\d+)?)")
Spacing = Literal["linear", "geometric", "narrowing"]
Ends = Literal["none", "low", "high", "both"]
End = dict[str, Any] | Number


class Levels(Section):
    """Two ends and what lies between: guidellm's and inference-perf's sweeps, vLLM's workload explorer."""

    path: Literal["load.rate", "load.concurrency"] = Field("load.rate", description="what the levels are of")
    low: End = Field(description="settings of a case that is done first, or a number")
    high: End = Field(description="settings of a case that is done second, or a number")
    count: Count = Field(ge=0, le=1000, description="levels beside these two cases")
    spacing: Spacing = Field(
        "linear", description="even steps, even factors, or steps that shrink by a factor towards the high end"
    )
    ends: Ends = Field("high", description="which of the two is a level too")
    measure: str = Field(
        "request_rate", description="of an end: answers per second of the whole run, or drain_rate p95"
    )
    set: dict[str, Any] = Field({}, description="settings of all levels by their paths")

    def disagreements(self) -> Iterator[Mistake]:
        if not isinstance(self.low, dict) and not isinstance(self.high, dict):
            yield Mistake((), "has two known ends: nothing is to be found, write the values as an axis")
        if self.measure != "request_rate" and not DRAIN.fullmatch(self.measure):
            yield Mistake(("measure",), f"must be request_rate or drain_rate with a percentile, got {self.measure}")
        elif self.measure != "request_rate" and self.path != "load.rate":
            yield Mistake(("measure",), "must be request_rate where the levels are of load.concurrency")
        if self.count == 1 and self.ends == "both":
            yield Mistake(("count",), "must be at least 2 where both ends are levels")

    @property
    def steps(self) -> list[str]:
        """The names of its cases in the order in which they are done."""
        ends = [name for name in (LOW, HIGH) if self.known_end(name) is None]
        return [*ends, *(f"{number} of {self.count}" for number in range(1, self.count + 1))]

    @property
    def measured(self) -> str:
        """`low and high`, or the one of them that is no number."""
        return " and ".join(name for name in (LOW, HIGH) if self.known_end(name) is None)

    def settings(self, step: str, value: float) -> dict[str, Any]:
        """What a case sets: an end its own, a level its value."""
        if step in (LOW, HIGH):
            return dict(getattr(self, step))
        return {**self.set, self.path: value}

    def known_end(self, name: str) -> float | None:
        end = getattr(self, name)
        return None if isinstance(end, dict) else float(end)


def number_of(step: str) -> int | None:
    """`3 of 8` is 3, an end None."""
    return None if step in (LOW, HIGH) else int(step.partition(" ")[0])


def values_between(low: float, high: float, levels: Levels) -> list[float]:
    """The levels in their order: rates with two decimals, small ones with four digits, concurrencies whole."""
    first, last = levels.ends in ("low", "both"), levels.ends in ("high", "both")
    gaps = levels.count + (not first) + (not last) - 1
    numbers = range(0 if first else 1, gaps + last)
    return [
        _tidy_levels(_at(low, high, number / gaps if gaps else 1.0, levels.spacing), levels.path) for number in numbers
    ]


def _at(low: float, high: float, share: float, spacing: Spacing) -> float:
    """The value at a share of the way; `narrowing` is a geometric way that is walked from the high end."""
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
    """A case by its name: what is set in it, or work of its own in place of the experiment's."""

    name: str = Field(min_length=1, description="unique in the experiment")
    set: dict[str, Any] = Field({}, description="settings by their paths")
    plan: str | dict[str, Any] | None = Field(None, description="a plan of its own: settings, a file or a profile")
    latency: dict[str, Any] | None = Field(None, description="batches through an engine in this process")
    throughput: dict[str, Any] | None = Field(None, description="a workload through an engine in this process")
    benchmark: str | dict[str, Any] | None = Field(None, description="a command or function of one's own")

    def disagreements(self) -> Iterator[Mistake]:
        yield from _one_work(self)


class Budget(Section):
    """After what the experiment ends, whatever is left; it can be resumed with a larger one."""

    time: Duration | None = Field(None, gt=0, description="for the whole: no case begins that would not fit any more")
    failures: Count = Field(10, ge=1, description="so many failed cases end it")


class ServerUse(Section):
    """When a started server is ended and started again."""

    restart: Literal["when-changed", "each-case"] = Field(
        "when-changed", description="only where a setting of the server changes, or before every case"
    )


class Experiment(Section):
    """Axes are multiplied with each other, with the zipped groups and with the named cases; every case is a run."""

    name: str | None = Field(None, description="what people call it")
    about: str | None = Field(None, description="what it is for")
    plan: str | dict[str, Any] | None = Field(None, description="what each case does: settings, a file or a profile")
    latency: dict[str, Any] | None = Field(None, description="or: batches through an engine in this process")
    throughput: dict[str, Any] | None = Field(None, description="or: a workload through an engine in this process")
    benchmark: str | dict[str, Any] | None = Field(None, description="or: a command or function of one's own")
    set: dict[str, Any] = Field({}, description="settings of all cases by their paths, over those of the plan")
    axes: Axes = Field({}, description="paths with the values that each takes, all with all")
    zip: Annotated[list[Axes], one_or_several(Axes)] = Field(
        [], description="groups of paths whose values go together, the first with the first"
    )
    cases: list[NamedCase] = Field([], description="cases by their names")
    levels: Levels | None = Field(None, description="loads between two ends that are measured first")
    classes: Literal["switch-off"] | None = Field(
        None, description="switch-off: all traffic classes together, then with each of them left out"
    )
    exclude: Annotated[list[dict[str, Any]], one_or_several(dict[str, Any])] = Field(
        [], description="cases with all of these values are left out; `case` is the name of one"
    )
    repeats: Count = Field(1, ge=1, le=1_000_000, description="how often each case is done")
    order: Order = Field(
        "sequential", description="as written, at random, or to and fro so that a drift cancels (from 2 repeats on)"
    )
    shuffle_seed: Count = Field(0, ge=0, description="of the order shuffled")
    server: ServerUse = Field(ServerUse(), description="when it is restarted")
    budget: Budget = Field(Budget(), description="when it is enough")
    price_per_gpu_hour: Number | None = Field(None, gt=0, description="from which the cost of tokens follows")
    gpus: Count | None = Field(
        None, ge=1, le=1_000_000, description="that the server uses; with a price and not said: 1"
    )

    def disagreements(self) -> Iterator[Mistake]:
        yield from _one_work(self)
        yield from self._of_zip()
        yield from self._named_twice()
        if self.classes and not self.is_of("plan"):
            yield Mistake(("classes",), "needs a plan: only that has traffic classes")
        if self.levels and not self.is_of("plan"):
            yield Mistake(("levels",), "needs a plan: only that has a load")

    def is_of(self, work: Work) -> bool:
        return self.work[0] == work

    @property
    def work(self) -> tuple[Work, str | dict[str, Any]]:
        """What each case does that has no work of its own; a plan by default."""
        return work_of(self) or ("plan", {})

    def _of_zip(self) -> Iterator[Mistake]:
        for at, group in enumerate(self.zip):
            lengths = {path: len(values) for path, values in group.items()}
            if len({*lengths.values()}) > 1:
                told = ", ".join(f"{path} has {n}" for path, n in lengths.items())
                yield Mistake(("zip", at), f"must have lists of one length: {told}")

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


def work_of(part: Experiment | NamedCase) -> tuple[Work, str | dict[str, Any]] | None:
    return next(((name, said) for name in WORKS if (said := getattr(part, name)) is not None), None)


def _one_work(part: Experiment | NamedCase) -> Iterator[Mistake]:
    said = [name for name in WORKS if getattr(part, name) is not None]
    for name in said[1:]:
        yield Mistake((name,), f"cannot be beside {said[0]}: a case does one or the other")


def json_schema() -> dict[str, Any]:
    """Of an experiment's file, for editors."""
    return {"$schema": DIALECT, **Experiment.model_json_schema(), "title": "Inferometer experiment"}


def to_yaml(experiment: Experiment) -> str:
    """What differs from the defaults, as text that reads back as the same; secrets are starred."""
    said = _tidy(redacted_fields(experiment.model_dump(context=HUMAN, exclude_defaults=True)))
    return yaml.dump(said, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110)


def _tidy(value: Any) -> Any:
    """2.0 as 2, however deep."""
    if isinstance(value, dict):
        return {name: _tidy(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_tidy(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


# -- reading ---------------------------------------------------------------------------------------------------

_OWN = {*Experiment.model_fields} - {"name", "about", "server", "plan"}  # what a plan has under these names is meant


def read_experiment(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment in a file; `--set` changes its own settings and those of its plan."""
    mapping, twice = read_mapping(path)
    return experiment_from(mapping, overrides, str(path), also=twice)


def experiment_from(
    mapping: Mapping[str, Any], overrides: Sequence[str] = (), where: str = "experiment.yaml", also: Sequence[str] = ()
) -> Experiment:
    """The experiment that a mapping says, or every mistake in it at once."""
    changed, mistakes = _changed(mapping, overrides)
    mistakes = [*also, *mistakes]
    try:
        made = Experiment.model_validate(changed)
    except ValidationError as error:
        raise PlanError([*mistakes, *(f"{where}: {text}" for text in _told(error, changed))]) from None
    if mistakes:
        raise PlanError(mistakes)
    return made


def _changed(mapping: Mapping[str, Any], overrides: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """With `repeats=3` and `budget.time=1h` as settings of its own, and all others as constants of its cases."""
    changed, mistakes = dict(mapping), []
    for text in overrides:
        path, equals, said = text.partition("=")
        if not equals or not path.strip():
            mistakes.append(f"--set {text}: must be path=value, such as load.rate=5")
            continue
        value, wrong = parse_yaml(said, f"--set {path}")
        mistakes += wrong
        first, _, below = path.strip().partition(".")
        if first in _OWN or path.strip() == "server.restart":
            changed[first] = _put(changed.get(first), below, value)
        else:
            changed["set"] = {**(changed.get("set") or {}), path.strip(): value}
    return changed, mistakes


def _put(there: Any, path: str, value: Any) -> Any:
    """`axes.load.rate` is a key of the axes: only what is no free key goes deeper."""
    return value if not path else {**(there if isinstance(there, Mapping) else {}), path: value}


def _told(error: ValidationError, said: Mapping[str, Any]) -> Iterator[str]:
    """Pydantic's errors in the words of a person."""
    for each in error.errors(include_url=False):
        loc = tuple(step for step in each["loc"] if step not in ("str", "dict[str,any]", "[key]"))
        cause = each.get("ctx", {}).get("error")
        if isinstance(cause, SectionError):
            yield from (f"{written((*loc, *found.path))} {found.text}".strip() for found in cause.mistakes)
        else:
            yield f"{written(loc)} {_text(each, loc)}".strip()


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
    said = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return f"{said.replace(chr(39), '')}, got {as_written(error['input'])}"


_SECTIONS: dict[str, type[Section]] = {"cases": NamedCase, "budget": Budget, "server": ServerUse, "levels": Levels}


def _unknown(loc: Sequence[str | int]) -> str:
    section = _SECTIONS.get(str(loc[0]), Experiment) if len(loc) > 1 else Experiment
    known = list(section.model_fields)
    close = difflib.get_close_matches(str(loc[-1]), known, n=1)
    return f"is not a setting; did you mean {close[0]}?" if close else f"is not a setting; there are {', '.join(known)}"
