"""Conditions of `list --where`, and index queries in SQL: which runs match, in which order. Regular expressions are
matched by RE2, in time linear in the text; the command line falls back to Python's own engine."""

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Select, and_, exists, func, not_, or_, select
from sqlalchemy.sql import operators

from inferometer.documents.document import JsonValue
from inferometer.errors import PlanError
from inferometer.measure.values import canonical
from inferometer.store.entry import number_of, utc_text
from inferometer.store.tables import baselines, experiments, parameters, quantities, runs, tags
from inferometer.vocabulary import MEASURES

Matches = Callable[[str], bool]


def linear(pattern: str) -> Matches | None:
    """A function that returns whether a text contains the pattern, in linear time; None if RE2 is not installed or does
    not support the pattern (look-around, references to a group)."""
    try:
        import re2
    except ImportError:
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error:
        return None
    return lambda text: compiled.search(text) is not None


@lru_cache(256)
def matcher(pattern: str) -> Matches:
    """In linear time if possible."""
    own = linear(pattern)
    if own is not None:
        return own
    compiled = re.compile(pattern)
    return lambda text: compiled.search(text) is not None


def regexp(pattern: str, text: object) -> bool:
    """SQLite's operator REGEXP."""
    return text is not None and matcher(pattern)(str(text))


# -- where -----------------------------------------------------------------------------------------------------------

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "=~", "!~"]


_CONDITION = re.compile(r"\s*(.+?)\s*(=~|!~|!=|==|<=|>=|=|<|>)\s*(.*?)\s*", re.DOTALL)


_PER_SECOND = re.compile(r"\s*/\s*s$")


EXAMPLES = "write NAME OPERATOR VALUE, such as model=~llama, 'ttft.p99 < 500ms' or plan.load.rate=10"


@dataclass(frozen=True)
class Condition:
    name: str
    operator: Operator
    value: str

    @property
    def key(self) -> str:
        """Named like quantities: `TTFT p99` is `ttft.p99`."""
        return canonical(self.name)

    @property
    def number(self) -> float | None:
        """The value as a number in the stored unit, if it is one: 0.5 for `500ms`, 0.01 for `1%`, 2000 for `2k/s`."""
        return number_of(_PER_SECOND.sub("", self.value))

    def __str__(self) -> str:
        return f"{self.name} {self.operator} {self.value}"


def condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise PlanError(f"--where: {text!r} is not a condition", EXAMPLES)
    name, operator, value = match.groups()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    parsed = Condition(name, "=" if operator == "==" else operator, value)  # type: ignore[arg-type]
    if operator in ("=~", "!~"):
        _check_pattern(parsed)
    return parsed


def instant(text: str) -> str:
    """A date or a time in the form in which the index sorts it; a day starts at local midnight."""
    try:
        return datetime.fromisoformat(text).astimezone().isoformat(timespec="milliseconds")
    except ValueError:
        raise PlanError(f"--where: not a date: {text!r}", "write 2026-11-15 or 2026-11-15T03:12") from None


def _check_pattern(condition: Condition) -> None:
    try:
        re.compile(condition.value)
    except re.error as error:
        raise PlanError(f"--where: {condition}: not a regular expression: {error}") from None


# -- versions --------------------------------------------------------------------------------------------------------

Version = tuple[tuple[int, ...], int, int]  # the release without trailing zeros, its stage, the number of the stage


_STAGES = {"dev": 0, "a": 1, "alpha": 1, "b": 2, "beta": 2, "rc": 3, "": 4, "post": 5}


_STAGE = "|".join(sorted(filter(None, _STAGES), reverse=True))


_VERSION = re.compile(rf"v?(\d+(?:\.\d+)*)(?:[._-]?({_STAGE})[._-]?(\d*))?(?:\.dev\d+)?(?:\+.*)?", re.IGNORECASE)


def version_of(text: str) -> Version | None:
    """None if it does not look like one: a commit, a date, a word. Build labels (`+cu128`) are ignored."""
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        return None
    release, stage, number = match.groups()
    parts = [int(part) for part in release.split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts), _STAGES[(stage or "").lower()], int(number or 0)


# -- query -----------------------------------------------------------------------------------------------------------

Clause = ColumnElement[bool]


COLUMNS = {
    name: runs.c[name]
    for name in (
        *("id", "started", "state", "kind", "source", "verdict", "name", "model", "target", "engine"),
        *("engine_version", "commit", "hardware", "requests", "workload_id", "stack_id", "hardware_id"),
    )
}


MARKS = {
    "tag": (tags.c.run, tags.c.tag),
    "baseline": (baselines.c.run, baselines.c.name),
    "experiment": (experiments.c.run, experiments.c.experiment),
    "case": (experiments.c.run, experiments.c.case),
}


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}


_NEAR = 1e-9  # relative: a number that was written and read again counts as equal


@dataclass(frozen=True)
class Name:
    """The meaning of a name in a filter, an order or a list of columns."""

    kind: str  # "column", "mark", "quantity", "parameter"
    name: str  # "model", "tag", "ttft.p99", "load.rate"


def meaning(db: Connection, text: str) -> Name:
    """Columns and marks first, then quantities, then settings of the plan; the prefix `plan.` marks a setting."""
    name = text.strip()
    if name.startswith("plan."):
        return _parameter(db, name.removeprefix("plan.")) or _unknown(db, name)
    if name in COLUMNS:
        return Name("column", name)
    if name in MARKS or name == "tags":
        return Name("mark", name.removesuffix("s") if name == "tags" else name)
    return _quantity(db, name) or _parameter(db, name) or _unknown(db, name)


def _quantity(db: Connection, text: str) -> Name | None:
    key = canonical(text)
    if db.execute(select(quantities.c.key).where(quantities.c.key == key).limit(1)).first():
        return Name("quantity", key)
    name, _, statistic = key.partition(".")
    measure = MEASURES.get(name)
    if measure is None:
        return None
    if not measure.scalar and not statistic:
        kept = [candidate for candidate in _keys(db) if candidate.startswith(f"{name}.")]
        raise PlanError(f"{text} has several values: name one", f"write {' or '.join(kept[-3:] or [name + '.p99'])}")
    from inferometer.plan.limit import Limit

    try:
        Limit.model_validate({"measure": name, "stat": statistic or None, "value": 1})
    except ValueError:
        return None
    return Name("quantity", key)


def _parameter(db: Connection, path: str) -> Name | None:
    from inferometer.plan.overrides import known_paths

    named = select(parameters.c.path).where(parameters.c.path == path).limit(1)
    inside = select(parameters.c.path).where(parameters.c.path.startswith(f"{path}[", autoescape=True)).limit(1)
    known = db.execute(named).first() or db.execute(inside).first() or path in known_paths()
    return Name("parameter", path) if known else None


def _unknown(db: Connection, name: str) -> Any:
    from inferometer.plan.overrides import known_paths

    paths = {*db.execute(select(parameters.c.path).distinct()).scalars(), *known_paths()}
    known = [*COLUMNS, *MARKS, *_keys(db), *MEASURES, *paths, *(f"plan.{path}" for path in paths)]
    near = difflib.get_close_matches(name if name.startswith("plan.") else canonical(name), known, n=4, cutoff=0.6)
    hint = (
        f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join([*COLUMNS, *MARKS])}, measures such as"
    )
    raise PlanError(
        f"no column, measure or setting {name!r}", hint if near else f"{hint} ttft.p99, settings such as plan.load.rate"
    )


def _keys(db: Connection) -> list[str]:
    return list(db.execute(select(quantities.c.key).distinct()).scalars())


def clause(db: Connection, condition: Condition) -> Clause:
    name = meaning(db, condition.name)
    match name.kind:
        case "column" if name.name == "started":
            return _when(condition)
        case "column" if name.name == "requests":
            return _compared(runs.c.requests, condition, _number(condition))
        case "column" if name.name == "engine_version" and condition.operator in _OPERATORS:
            return _newer_or_older(db, condition)
        case "column":
            return _text(COLUMNS[name.name], condition)
        case "mark":
            return _marked(name.name, condition)
        case "quantity":
            return runs.c.number.in_(_having(name.name, condition))
        case _:
            return _set(name.name, condition)


def _having(key: str, condition: Condition) -> Select[tuple[int]]:
    """Runs with such a quantity: a missing value is neither less, nor greater, nor different."""
    value = quantities.c.value
    wanted = _compared(value, condition, _in_unit(key, condition))
    return select(quantities.c.run).where(quantities.c.key == key, wanted)


def _in_unit(key: str, condition: Condition) -> float:
    """`500ms` cannot be compared with a rate: known measures parse values as limits do."""
    name = key.partition(".")[0]
    if name not in MEASURES:
        return _number(condition)
    from inferometer.plan.limit import Limit

    try:
        stat = None if MEASURES[name].scalar else "p50"
        plain = _plain(condition.value)  # a filter, not a decision: a bare number is in the measure's unit
        return Limit.model_validate({"measure": name, "stat": stat, "value": plain}).value
    except ValueError as error:
        errors: list[dict[str, JsonValue]] = getattr(error, "errors", list)()
        why = str(errors[0].get("msg", "")).removeprefix("Value error, ") if errors else str(error)
        raise PlanError(f"--where: {condition}: {why}") from None


def _plain(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _number(condition: Condition) -> float:
    if condition.number is None:
        raise PlanError(f"--where: {condition}: must compare with a number, got {condition.value!r}")
    return condition.number


def _compared(column: Any, condition: Condition, value: float) -> Clause:
    if condition.operator in _OPERATORS:
        return _ordered(column, condition.operator, value)
    span = abs(value) * _NEAR
    equal: Clause = column.between(value - span, value + span)
    match condition.operator:
        case "=":
            return equal
        case "!=":
            return not_(equal)
    raise PlanError(
        f"--where: {condition}: a number cannot be matched with a pattern", "compare it with = != < <= > >="
    )


def _ordered(column: Any, operator: str, value: object) -> Clause:
    compared: Clause = _OPERATORS[operator](column, value)
    return compared


def _text(column: Any, condition: Condition) -> Clause:
    """A missing value is different from any text."""
    equal: Clause = column == condition.value if condition.value else column.is_(None)
    match condition.operator:
        case "=":
            return equal
        case "!=":
            return or_(column.is_(None), not_(equal)) if condition.value else not_(equal)
        case "=~":
            return _matches(column, condition.value)
        case "!~":
            return or_(column.is_(None), not_(_matches(column, condition.value)))
    return _ordered(column, condition.operator, condition.value)


def _newer_or_older(db: Connection, condition: Condition) -> Clause:
    """If both look like versions they are compared as such, 0.10 after 0.9; else as texts. Neither database supports
    versions, but a store has few different ones."""
    column, wanted = runs.c.engine_version, version_of(condition.value)
    compare = _OPERATORS[condition.operator]

    def fits(kept: str) -> bool:
        version = version_of(kept)
        if wanted is None or version is None:
            return bool(compare(kept, condition.value))
        return bool(compare(version, wanted))

    known = db.execute(select(column).where(column.is_not(None)).distinct()).scalars()
    return column.in_([version for version in known if fits(version)])


def _matches(column: Any, pattern: str) -> Clause:
    """Anywhere in the text, ignoring case; both SQLite's function (Python) and PostgreSQL understand `(?i)`."""
    matched: Clause = column.regexp_match(f"(?i){pattern}")
    return matched


def _when(condition: Condition) -> Clause:
    started, wanted = runs.c.started, utc_text(instant(condition.value))
    if condition.operator in _OPERATORS:
        return and_(started != "", _ordered(started, condition.operator, wanted))
    if condition.operator in ("=~", "!~"):
        raise PlanError(f"--where: {condition}: a time cannot be matched with a pattern", "write started>2026-11-01")
    day = datetime.fromisoformat(condition.value) + timedelta(days=1)
    within = and_(started >= wanted, started < utc_text(day.isoformat()))
    same = within if len(condition.value) == len("2026-11-15") else started == wanted
    return same if condition.operator == "=" else not_(same)


def _marked(mark: str, condition: Condition) -> Clause:
    run, mark_column = MARKS[mark]
    positive = {"!=": "=", "!~": "=~"}.get(condition.operator)
    wanted = Condition(condition.name, positive or condition.operator, condition.value)  # type: ignore[arg-type]
    matches = runs.c.id.in_(select(run).where(_text(mark_column, wanted)))
    return not_(matches) if positive else matches


def _set(path: str, condition: Condition) -> Clause:
    """Runs whose plan has this setting. A missing setting is different from any value."""
    positive = {"!=": "=", "!~": "=~"}.get(condition.operator)
    wanted = Condition(condition.name, positive or condition.operator, condition.value)  # type: ignore[arg-type]
    there = or_(parameters.c.path == path, parameters.c.path.startswith(f"{path}[", autoescape=True))
    matches = runs.c.number.in_(select(parameters.c.run).where(there, _setting(wanted)))
    return not_(matches) if positive else matches


def _setting(condition: Condition) -> Clause:
    if condition.operator in _OPERATORS:
        return _ordered(parameters.c.number, condition.operator, _number(condition))
    text = _text(parameters.c.text, condition)
    if condition.operator == "=" and condition.number is not None:
        return or_(text, _compared(parameters.c.number, condition, condition.number))
    return text


def ordering(db: Connection, sort: str | None) -> list[Any]:
    """`-output_rate`: largest first; runs without a value come last. Default: newest first."""
    newest = runs.c.id.desc()
    if sort is None:
        return [newest]
    name, falls = sort.removeprefix("-"), sort.startswith("-")
    columns = _sorted_by(meaning(db, name))
    return [*((column.desc() if falls else column.asc()).nulls_last() for column in columns), newest]


def _sorted_by(name: Name) -> list[Any]:
    match name.kind:
        case "column":
            column = COLUMNS[name.name]
            return [column if name.name in ("id", "started", "requests") else func.lower(column)]
        case "quantity":
            wanted = select(quantities.c.value).where(quantities.c.run == runs.c.number, quantities.c.key == name.name)
            return [wanted.scalar_subquery()]
        case "parameter":
            there = (parameters.c.run == runs.c.number, parameters.c.path == name.name)
            return [select(parameters.c[field]).where(*there).scalar_subquery() for field in ("number", "text")]
    run, mark_column = MARKS[name.name]
    return [select(mark_column).where(run == runs.c.id).order_by(mark_column).limit(1).scalar_subquery()]


def tagged(tag: str) -> Clause:
    return exists().where(tags.c.run == runs.c.id, tags.c.tag == tag)


def of_identity(identity: str) -> Clause:
    """By the key of `judge.identity`: workload, stack and hardware."""
    parts = identity.split("-")
    if len(parts) != 3:
        raise PlanError(f"not the identity of a run: {identity!r}", "it has three parts: workload-stack-hardware")
    columns = (runs.c.workload_id, runs.c.stack_id, runs.c.hardware_id)
    return and_(*(column == part for column, part in zip(columns, parts, strict=True)))


def names_of(db: Connection, texts: Sequence[str]) -> Iterator[Name]:
    return (meaning(db, text) for text in texts)
