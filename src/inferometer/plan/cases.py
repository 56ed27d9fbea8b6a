"""The cases of an experiment: product, zip, names, exclusions and repeats, each with its own plan, or with an
offline measurement or benchmark, validated by its section."""

import difflib
import hashlib
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from inferometer.documents.document import Document, JsonObject, JsonValue, text_of
from inferometer.errors import PlanError
from inferometer.plan import short
from inferometer.plan.experiment import HIGH, LEVEL, LOW, Experiment, Order, Work, number_of, work_of
from inferometer.plan.fields import Section, SectionError
from inferometer.plan.load import Load
from inferometer.plan.model import Plan, Traffic
from inferometer.plan.offline import LatencyPlan, ThroughputPlan
from inferometer.plan.offline import written as offline_written
from inferometer.plan.opening import open_plan
from inferometer.plan.overrides import Override, override, parse_override, written
from inferometer.plan.reading import plan_from
from inferometer.plan.secrets import redacted_fields
from inferometer.plan.text import as_written, to_mapping
from inferometer.vocabulary import attribute_at

# -- other work ------------------------------------------------------------------------------------------------------

SECTIONS = {  # the section that validates each kind
    "latency": "inferometer.plan.offline:Latency",
    "throughput": "inferometer.plan.offline:Throughput",
    "benchmark": "inferometer.plan.benchmark:Benchmark",
}


def checked(work: Work, base: JsonObject, settings: JsonObject, where: str) -> tuple[Any, JsonObject, str]:
    """The plan of a case, the same without secrets, and its engine ("" if it needs none)."""
    section = _section(work)
    for path, value in settings.items():
        base = _with(base, path, value, section, f"{where}: {work}")
    made = _validated(section, base, f"{where}: {work}")
    plan = made.planned() if hasattr(made, "planned") else made
    if isinstance(plan, LatencyPlan | ThroughputPlan):
        return plan, offline_written(plan), str(plan.on)
    return plan, redacted_fields(made.model_dump(mode="json", exclude_defaults=True)), ""


def path_override(path: str, value: Any, origin: str) -> Override:
    try:
        return Override(parse_override(f"{path}=0").path, value, path)
    except PlanError:
        raise PlanError(f"{origin}: {path} is not a path such as load.rate or server.args.max-num-seqs") from None


def _section(work: Work) -> type[Section]:
    section: type[Section] = attribute_at(SECTIONS[work])
    return section


def _with(settings: JsonObject, path: str, value: Any, section: type[Section], where: str) -> dict[str, JsonValue]:
    """A copy with the value set at a path; the first step is a setting, the others are free keys."""
    first, *below = (str(step) for step in path_override(path, value, where).path)
    known = section.model_fields
    if first not in known:
        close = difflib.get_close_matches(first, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        raise PlanError(f"{where}: {path} is not a setting; {hint}")
    if not below:
        return {**settings, first: value}
    there = settings.get(first, known[first].default)
    return {**settings, first: _deep(dict(there) if isinstance(there, Mapping) else {}, below, value)}


def _deep(settings: JsonObject, steps: list[str], value: Any) -> dict[str, JsonValue]:
    first, *below = steps
    there = settings.get(first)
    return {**settings, first: _deep(there if isinstance(there, Mapping) else {}, below, value) if below else value}


def _validated(section: type[Section], settings: JsonObject, where: str) -> Any:
    try:
        return section.model_validate(dict(settings))
    except ValidationError as error:
        raise PlanError([f"{where}: {text}" for text in _mistakes(error, section)]) from None


def _mistakes(error: ValidationError, section: type[Section]) -> Iterator[str]:
    for detail in error.errors(include_url=False):
        cause, loc = detail.get("ctx", {}).get("error"), detail["loc"]
        if isinstance(cause, SectionError):
            yield from (f"{written((*loc, *mistake.path))} {mistake.text}".strip() for mistake in cause.mistakes)
        elif detail["type"] == "extra_forbidden":
            close = difflib.get_close_matches(str(loc[-1]), section.model_fields, n=1)
            yield f"{written(loc)} is not a setting" + (f"; did you mean {close[0]}?" if close else "")
        else:
            message = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
            yield f"{written(loc)} {message}, got {as_written(detail['input'])}"


# -- cases -----------------------------------------------------------------------------------------------------------

MOST_CASES = 1000
WITHOUT = "without"  # the parameter of a case in which a traffic class is switched off
CASE = "case"  # the parameter that distinguishes named cases
Step = dict[str, JsonValue]  # parameters of one value of one factor
_UNKNOWN = 1  # placeholder for an unknown level, so that the rest of the case's plan can be validated


@dataclass(frozen=True, slots=True)
class Level:
    """The position of a case between the two ends of a load; cases of one block differ only in this."""

    step: str  # low, high or 3 of 8
    block: str
    make: Callable[[float], "Case"] = field(repr=False, compare=False)

    @property
    def number(self) -> int | None:
        """The number of the level; None for an end. Levels wait for both ends."""
        return number_of(self.step)


@dataclass(frozen=True, slots=True)
class Case:
    """One combination of settings to measure, and the parameters that distinguish it."""

    label: str  # the same for all repeats
    parameters: JsonObject
    work: Work
    plan: Any  # Plan, LatencyPlan, ThroughputPlan or Benchmark
    kept: JsonObject = field(repr=False)  # the plan as stored, without secrets
    stack: str = ""  # cases with the same value can share a server or an engine
    repeat: int = 1
    repeats: int = 1
    level: Level | None = None
    begun_as: str = ""  # the key of the case before its level was known
    vary_seed: bool = False  # every repeat has a different seed

    @property
    def waits(self) -> bool:
        """Whether its load depends on cases that are measured first."""
        return self.level is not None and self.level.number is not None and not self.begun_as

    def settled(self, value: float) -> "Case":
        """A copy of the case with its level filled in."""
        assert self.level is not None
        return self.level.make(value).repeated(self.repeat, self.repeats, self.vary_seed, self.key)

    def repeated(self, repeat: int, repeats: int, vary_seed: bool, begun_as: str = "") -> "Case":
        """One repeat of the case, with the seed of that repeat."""
        plan, kept = self.plan, self.kept
        if vary_seed and isinstance(plan, Plan) and repeat > 1:
            plan = plan.model_copy(update={"seed": plan.seed + repeat - 1})
            kept = to_mapping(plan)
        return replace(
            self, plan=plan, kept=kept, repeat=repeat, repeats=repeats, vary_seed=vary_seed, begun_as=begun_as
        )

    @property
    def name(self) -> str:
        return self.label if self.repeats == 1 else f"{self.label} #{self.repeat}"

    @property
    def key(self) -> str:
        """Identifies the case after the experiment's file was edited: a hash of everything it does."""
        return self.begun_as or digest([self.work, self.parameters, self.kept, self.repeat])


def digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def cases_of(experiment: Experiment, where: str = "experiment.yaml", most: int = MOST_CASES) -> list[Case]:
    """All cases in the order written, the last axis fastest, then the repeats; all errors are raised together."""
    maker = _Maker(experiment, where)
    _check_count(experiment, maker.classes, where, most)
    cases = list(_made(maker, _combined(experiment, maker.classes)))
    if not cases:
        raise PlanError(f"{where}: exclude leaves no case")
    _check_apart(cases, where)
    repeats = range(1, experiment.repeats + 1)
    return [case.repeated(repeat, experiment.repeats, experiment.vary_seed) for case in cases for repeat in repeats]


def _check_apart(cases: Sequence[Case], where: str) -> None:
    """Refuse two cases with the same name: results are looked up by the name of their case."""
    labels = Counter(case.label for case in cases)
    twice = [f"{where}: case {label} appears {count} times" for label, count in labels.items() if count > 1]
    if twice:
        raise PlanError(twice, "to measure a case more than once: repeats: 2")


def _check_count(experiment: Experiment, classes: Sequence[str], where: str, most: int) -> None:
    """Check the number of cases before making them: a product grows quickly."""
    sizes = [len(factor) for factor in _factors(experiment, classes)] + [experiment.repeats]
    count = math.prod(sizes)
    if count > most:
        product = " x ".join(map(str, sizes))
        text = f"{where}: makes {count:,} cases ({product}), the maximum is {most:,}"
        raise PlanError(text, f"remove values, zip lists instead of multiplying them, or allow it: --most {count}")


# -- factors ---------------------------------------------------------------------------------------------------


def _factors(experiment: Experiment, classes: Sequence[str]) -> list[list[Step]]:
    """The factors that are multiplied: named cases, axes, zipped groups, switched-off classes, load levels."""
    factors: list[list[Step]] = (
        [[{CASE: case.name, **case.set} for case in experiment.cases]] if experiment.cases else []
    )
    factors += [[{path: value} for value in values] for path, values in experiment.axes.items()]
    for group in experiment.zip:
        factors.append([dict(zip(group, values, strict=True)) for values in zip(*group.values(), strict=True)])
    if classes:
        factors.append([{WITHOUT: name} for name in (None, *classes)])
    if experiment.levels:
        factors.append([{LEVEL: step} for step in experiment.levels.steps])
    return factors


def _combined(experiment: Experiment, classes: Sequence[str]) -> Iterator[Step]:
    """All combinations that are not excluded."""
    for steps in product(*_factors(experiment, classes)):
        whole: Step = {path: value for step in steps for path, value in step.items()}
        if not any(_matches(whole, excluded) for excluded in experiment.exclude):
            yield whole


def _matches(parameters: Step, excluded: JsonObject) -> bool:
    return all(path in parameters and parameters[path] == value for path, value in excluded.items())


# -- plans -----------------------------------------------------------------------------------------------------


class _Maker:
    """Makes the plan of a case; raises errors as `PlanError`."""

    def __init__(self, experiment: Experiment, where: str) -> None:
        self.experiment, self.where = experiment, where
        self._named = {case.name: case for case in experiment.cases}
        self._opened: dict[str, dict[str, JsonValue]] = {}
        self.short = short_names(self._varied())
        self.classes = self._classes()

    def _varied(self) -> list[str]:
        return [*self.experiment.axes, *(path for group in self.experiment.zip for path in group)]

    def _classes(self) -> list[str]:
        """The traffic classes that are switched off one by one."""
        if self.experiment.classes is None:
            return []
        mapping = self._base("plan", self.experiment.work[1])
        names = [traffic.name for traffic in self.checked_plan(mapping).classes]
        if len(names) < 2:
            text = f"{self.where}: classes: switch-off needs at least two traffic classes, the plan has {len(names)}"
            raise PlanError(text, "list them under traffic")
        return names

    def checked_plan(self, mapping: JsonObject) -> Plan:
        return plan_from(mapping, self._overrides(self.experiment.set), self.where)

    def case(self, parameters: Step, value: float | None = None) -> Case:
        """The case, with the value of its level if that is known."""
        named = self._named.get(str(parameters.get(CASE, "")))
        work, source = (work_of(named) if named else None) or self.experiment.work
        base = self._base(work, source)
        own = {path: setting for path, setting in parameters.items() if path not in (CASE, WITHOUT, LEVEL)}
        label = self.label(parameters)
        if work != "plan":
            if LEVEL in parameters:
                raise PlanError(f"{self.where}: levels: case {parameters[CASE]} does {work}, which has no load")
            return self._other(work, base, own, parameters, label)
        level = self._level(parameters)
        if level is not None and self.experiment.levels is not None:
            own |= self.experiment.levels.settings(level.step, _UNKNOWN if value is None else value)
        whole = override(base, self._overrides({**self.experiment.set, **own}))
        plan = aimed(plan_from(_without(whole, text_of(parameters.get(WITHOUT))), where=self.where))
        shown = parameters if value is None or level is None else {**parameters, self._level_path: value}
        return Case(label, shown, work, plan, to_mapping(plan), _stack(plan), level=level)

    @property
    def _level_path(self) -> str:
        return self.experiment.levels.path if self.experiment.levels else ""

    def _level(self, parameters: Step) -> Level | None:
        if LEVEL not in parameters:
            return None
        block = digest({path: value for path, value in parameters.items() if path != LEVEL})
        return Level(str(parameters[LEVEL]), block, lambda value: self.case(parameters, value))

    def _other(self, work: Work, base: dict[str, JsonValue], own: Step, parameters: Step, label: str) -> Case:
        plan, kept, on = checked(work, base, {**self.experiment.set, **own}, self.where)
        return Case(label, parameters, work, plan, kept, digest([work, on]) if on else "")

    def _base(self, work: Work, source: str | dict[str, JsonValue]) -> dict[str, JsonValue]:
        if isinstance(source, dict):
            return source
        if work == "benchmark":
            return {"command": source}
        if source not in self._opened:
            self._opened[source] = self._read(source)
        return self._opened[source]

    def _read(self, name: str) -> dict[str, JsonValue]:
        """Read a plan from a file, next to the experiment or relative to the working folder, or by profile name."""
        sibling = Path(self.where).parent / name
        try:
            return open_plan([str(sibling) if sibling.is_file() else name]).mapping
        except OSError as error:  # a name that is too long
            raise PlanError(f"{self.where}: plan {name[:80]}: {(error.strerror or str(error)).lower()}") from None
        except PlanError as error:
            is_missing = "file not found" in error.message
            mistakes = [f"{self.where}: plan {text}" for text in error.mistakes] if is_missing else error.mistakes
            hint = (
                "name a file in the experiment's folder, or a profile (inferometer profiles)"
                if is_missing
                else error.hint
            )
            raise PlanError(mistakes, hint) from None

    def _overrides(self, settings: JsonObject) -> list[Override]:
        return [path_override(path, value, f"{self.where}: {self._origin(path)}") for path, value in settings.items()]

    def located(self, text: str) -> str:
        """The error of a setting, `--set load.rat: load.rat is not ...`, with the part of the file that contains it."""
        if not text.startswith("--set "):
            return text
        path, _, rest = text.removeprefix("--set ").partition(": ")
        return f"{self.where}: {self._origin(path)}: {rest}"

    def _origin(self, path: str) -> str:
        if path in self.experiment.axes:
            return "axes"
        if path in self._varied():
            return "zip"
        return "set" if path in self.experiment.set else "levels" if self.experiment.levels else "cases"

    def label(self, parameters: Step) -> str:
        shown = [f"{name}={as_written(parameters[path])}" for path, name in self.short.items() if path in parameters]
        if WITHOUT in parameters:
            shown.append("all classes" if parameters[WITHOUT] is None else f"without {parameters[WITHOUT]}")
        if LEVEL in parameters:
            of = "" if parameters[LEVEL] in (LOW, HIGH) else f"{self._level_path.rpartition('.')[2]} "
            shown.append(f"{of}{parameters[LEVEL]}")
        return " ".join([*([str(parameters[CASE])] if CASE in parameters else []), *shown]) or "plan"


def aimed(plan: Plan) -> Plan:
    """Without an address and a server, the target is the simulator."""
    from inferometer.plan.model import Server

    if plan.target.url or plan.server is not None:
        return plan
    return plan.model_copy(update={"server": Server(type="simulator")})


def _stack(plan: Plan) -> str:
    """A key for sharing a server: cases whose server is started with the same settings have the same key."""
    return "" if plan.server is None else digest([plan.server.model_dump(mode="json"), plan.target.model])


def _without(plan: dict[str, JsonValue], name: str | None) -> dict[str, JsonValue]:
    """The plan without a traffic class; inherited settings and names of the others are resolved first."""
    if name is None:
        return plan
    whole = Document(short.inherited(short.long(plan)))
    return {**whole, "traffic": [dict(one) for one in whole.sections("traffic") if one.text("name") != name]}


def _made(maker: _Maker, combinations: Iterator[Step]) -> Iterator[Case]:
    """Make all cases; an error that several cases share is reported once, for the first of them."""
    mistakes: dict[str, list[str]] = {}
    cases: list[Case] = []
    hint = None
    for parameters in combinations:
        try:
            cases.append(maker.case(parameters))
        except PlanError as error:
            hint = hint or error.hint
            for text in error.mistakes:
                label = maker.label(parameters)
                mistakes.setdefault(maker.located(text), []).append(label)
    total = len(cases) + len({label for labels in mistakes.values() for label in labels})
    wrong = [_with_cases(text, labels, total) for text, labels in mistakes.items()]
    wrong += _of_exclude(maker)
    if wrong:
        raise PlanError(wrong, hint)
    yield from cases


def _with_cases(text: str, labels: list[str], total: int) -> str:
    if len(labels) == total:
        return text
    more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
    return f"{text} (in case {labels[0]}{more})"


def _of_exclude(maker: _Maker) -> Iterator[str]:
    """An exclusion that matches no case is an error: with a typo, the cases would run."""
    steps = [step for factor in _factors(maker.experiment, maker.classes) for step in factor]
    known = list(dict.fromkeys(path for step in steps for path in step))
    for at, excluded in enumerate(maker.experiment.exclude):
        where = f"{maker.where}: exclude[{at}]"
        for path, value in excluded.items():
            if path not in known:
                close = difflib.get_close_matches(path, known, n=1)
                yield f"{where}: {path} is not varied" + (f"; did you mean {close[0]}?" if close else "")
            elif not any(step.get(path, _NOTHING) == value for step in steps):
                yield f"{where}: {path} never is {as_written(value)}"


_NOTHING = object()


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """The last step of each path, or the whole path if two have the same last step."""
    last = [path.rpartition(".")[2] for path in paths]
    return {path: end if last.count(end) == 1 else path for path, end in zip(paths, last, strict=True)}


# -- the order of the cases --------------------------------------------------------------------------------------------

# The order of the cases, and how long they will take. Pure functions.


def ordered(cases: Sequence[Case], order: Order, seed: int = 0) -> list[Case]:
    """The order of `_ordered`, with waiting cases after the cases that they depend on: per server in sequential
    order, at the end if servers alternate."""
    if not any(case.waits for case in cases):
        return _ordered(cases, order, seed)
    stacks = dict.fromkeys(case.stack for case in cases) if order == "sequential" else [None]
    parts = [
        [case for case in cases if stack in (None, case.stack) and case.waits is waits]
        for stack in stacks
        for waits in (False, True)
    ]
    return [case for part in parts if part for case in _ordered(part, order, seed)]


def _ordered(cases: Sequence[Case], order: Order, seed: int) -> list[Case]:
    """Sequential: all cases of one server with all repeats, then those of the next. Shuffled: random order.
    ABBA: forwards and backwards in turn, so that a drift affects all cases equally."""
    if order == "shuffled":
        drawn = list(cases)
        random.Random(seed).shuffle(drawn)
        return drawn
    stacks = list(dict.fromkeys(case.stack for case in cases))
    if order == "sequential":
        return sorted(cases, key=lambda case: (stacks.index(case.stack), case.repeat))
    grouped = sorted(cases, key=lambda case: stacks.index(case.stack))
    repeats = max(case.repeat for case in cases)
    passes = [[case for case in grouped if case.repeat == repeat] for repeat in range(1, repeats + 1)]
    return [case for at, group in enumerate(passes) for case in (group if at % 2 == 0 else reversed(group))]


def server_starts(cases: Sequence[Case], *, restart_every_case: bool) -> int:
    """How often a server is started if the cases run in this order."""
    starts, running = 0, ""
    for case in cases:
        if case.stack and case.work == "plan" and (restart_every_case or case.stack != running):
            starts += 1
        running = case.stack
    return starts


def expected_s(case: Case) -> float | None:
    """How long its load lasts, as far as the plan determines it; None if the target decides."""
    if not isinstance(case.plan, Plan):
        return None
    if case.waits:  # its rate is not known: only a duration is an upper bound
        lasts = case.plan.stop.duration
        return None if lasts is None else lasts + case.plan.warmup.duration
    spans = [_span(traffic, case.plan) for traffic in case.plan.classes]
    return None if any(span is None for span in spans) else max(span or 0.0 for span in spans)


def _span(traffic: Traffic, plan: Plan) -> float | None:
    load, stop = traffic.load, traffic.stop
    known = [
        seconds for seconds in (stop.duration, _of_count(load, stop.requests or stop.sessions)) if seconds is not None
    ]
    if load.type == "stages":
        known.append(sum(stage.duration for stage in load.stages))
    if not known:
        return None
    warm = plan.warmup.duration + (_of_count(load, plan.warmup.requests) or 0.0)
    return min(known) + warm


def _of_count(load: Load, requests: int | None) -> float | None:
    return None if not requests or load.type == "ramp" or not load.rate else requests / load.rate
