"""The cases that an experiment makes: product, zip, names, exclusions and repeats, each with its own plan, or with an
offline measurement or benchmark that is checked by its section."""

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

SECTIONS = {  # what it is checked by
    "latency": "inferometer.plan.offline:Latency",
    "throughput": "inferometer.plan.offline:Throughput",
    "benchmark": "inferometer.plan.benchmark:Benchmark",
}


def checked(work: Work, base: JsonObject, settings: JsonObject, where: str) -> tuple[Any, JsonObject, str]:
    """Its plan, the same as it may be kept, and which engine it is on; none where it needs none."""
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
    """With the value at a path, the first step of which is a setting and the others free keys."""
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
_UNKNOWN = 1  # stands for a level in the plan of a case that waits, so that all else in it is checked


@dataclass(frozen=True, slots=True)
class Level:
    """Where a case lies between two ends of a load; cases of one block differ in nothing else."""

    step: str  # low, high or 3 of 8
    block: str
    make: Callable[[float], "Case"] = field(repr=False, compare=False)

    @property
    def number(self) -> int | None:
        """None for an end; the others wait for both of them."""
        return number_of(self.step)


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to do, and what distinguishes it from the others."""

    label: str  # the same for all repeats
    parameters: JsonObject
    work: Work
    plan: Any  # Plan, LatencyPlan, ThroughputPlan or Benchmark
    kept: JsonObject = field(repr=False)  # the plan as it may be kept, without secrets
    stack: str = ""  # cases with the same one can share a server or an engine
    repeat: int = 1
    repeats: int = 1
    level: Level | None = None
    begun_as: str = ""  # its key before its level was known
    vary_seed: bool = False  # every repeat has a seed of its own

    @property
    def waits(self) -> bool:
        """Whether its load is not known before other cases were measured."""
        return self.level is not None and self.level.number is not None and not self.begun_as

    def settled(self, value: float) -> "Case":
        """Itself with its level known."""
        assert self.level is not None
        return self.level.make(value).repeated(self.repeat, self.repeats, self.vary_seed, self.key)

    def repeated(self, repeat: int, repeats: int, vary_seed: bool, begun_as: str = "") -> "Case":
        """One of its repeats, with the seed that this one has."""
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
        """What makes it the same case after the experiment's file was edited: all that it does."""
        return self.begun_as or digest([self.work, self.parameters, self.kept, self.repeat])


def digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def cases_of(experiment: Experiment, where: str = "experiment.yaml", most: int = MOST_CASES) -> list[Case]:
    """Every case in the order written, the last axis fastest, then the repeats; or every mistake in them at once."""
    maker = _Maker(experiment, where)
    _check_count(experiment, maker.classes, where, most)
    cases = list(_made(maker, _combined(experiment, maker.classes)))
    if not cases:
        raise PlanError(f"{where}: exclude leaves no case")
    _check_apart(cases, where)
    repeats = range(1, experiment.repeats + 1)
    return [case.repeated(repeat, experiment.repeats, experiment.vary_seed) for case in cases for repeat in repeats]


def _check_apart(cases: Sequence[Case], where: str) -> None:
    """What was measured is found again by the name of its case: two of one name would be taken for each other."""
    labels = Counter(case.label for case in cases)
    twice = [f"{where}: case {label} appears {count} times" for label, count in labels.items() if count > 1]
    if twice:
        raise PlanError(twice, "to measure a case more than once: repeats: 2")


def _check_count(experiment: Experiment, classes: Sequence[str], where: str, most: int) -> None:
    """Before any is made: a product grows quickly."""
    sizes = [len(factor) for factor in _factors(experiment, classes)] + [experiment.repeats]
    count = math.prod(sizes)
    if count > most:
        product = " x ".join(map(str, sizes))
        text = f"{where}: makes {count:,} cases ({product}), the maximum is {most:,}"
        raise PlanError(text, f"remove values, zip lists instead of multiplying them, or allow it: --most {count}")


# -- factors ---------------------------------------------------------------------------------------------------


def _factors(experiment: Experiment, classes: Sequence[str]) -> list[list[Step]]:
    """What is multiplied: the named cases, each axis, each zipped group, the classes that are switched off, the levels
    of a load."""
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
    """Of all combinations those that are not excluded."""
    for steps in product(*_factors(experiment, classes)):
        whole: Step = {path: value for step in steps for path, value in step.items()}
        if not any(_matches(whole, excluded) for excluded in experiment.exclude):
            yield whole


def _matches(parameters: Step, excluded: JsonObject) -> bool:
    return all(path in parameters and parameters[path] == value for path, value in excluded.items())


# -- plans -----------------------------------------------------------------------------------------------------


class _Maker:
    """Makes the plan of a case; what is wrong is raised as `PlanError`."""

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
        """With the value of its level, where it has one and that is known."""
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
        """A plan by its file, next to the experiment or relative to the working folder, or by its name."""
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
        """A mistake of a setting, `--set load.rat: load.rat is not ...`, with the part of the file that it is in."""
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
    """With neither address nor server, the simulator is what is measured."""
    from inferometer.plan.model import Server

    if plan.target.url or plan.server is not None:
        return plan
    return plan.model_copy(update={"server": Server(type="simulator")})


def _stack(plan: Plan) -> str:
    """Cases in which all that the server was started with is the same can share it."""
    return "" if plan.server is None else digest([plan.server.model_dump(mode="json"), plan.target.model])


def _without(plan: dict[str, JsonValue], name: str | None) -> dict[str, JsonValue]:
    """The plan with a traffic class left out; what the others inherit is settled before, their names too."""
    if name is None:
        return plan
    whole = Document(short.inherited(short.long(plan)))
    return {**whole, "traffic": [dict(one) for one in whole.sections("traffic") if one.text("name") != name]}


def _made(maker: _Maker, combinations: Iterator[Step]) -> Iterator[Case]:
    """All of them; a mistake that several have is reported once, with the first that has it."""
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
    """An exclusion that nothing can match is a mistake: a typing error would let cases through."""
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
    """The last step of each path, or all of it where two end alike."""
    last = [path.rpartition(".")[2] for path in paths]
    return {path: end if last.count(end) == 1 else path for path, end in zip(paths, last, strict=True)}


# -- the order of the cases --------------------------------------------------------------------------------------------

# In which order the cases of an experiment are done, and how long they will take. Pure.


def ordered(cases: Sequence[Case], order: Order, seed: int = 0) -> list[Case]:
    """As in `_ordered`; cases whose load waits for others come after these, with every server where one follows the
    other and after all where servers alternate anyway."""
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
    """Sequential: all cases of one server, again for every repeat, then those of the next. Shuffled: all at random.
    ABBA: there and back again and again, so that what drifts with time meets all cases alike."""
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
    """How often a server is started when they are done in this order."""
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
