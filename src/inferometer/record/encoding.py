"""Encodes the typed parts of a run as JSON and decodes them. Documents of older schema versions are converted to the
present form here, and nowhere else."""

import functools
import re
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.errors import StoreError
from inferometer.record.environment import (
    Environment,
    EnvironmentPart,
    ImportOrigin,
    MeasuredTarget,
    ServerStart,
    ToolVersion,
    field_names,
)
from inferometer.record.files import schema_of
from inferometer.record.summary import (
    Adjusted,
    Backlog,
    Concurrency,
    Failures,
    Goal,
    Goodput,
    InputTokens,
    MeasureSummary,
    OutputTokens,
    PrecisionResult,
    Rate,
    Sessions,
    Startup,
    Steadiness,
    Summary,
    Trend,
    WindowSummary,
)
from inferometer.record.verdict import Reason, Verdict

T = TypeVar("T", bound=msgspec.Struct)
Known = TypeVar("Known")

WHERE_KNOWN: dict[type, tuple[str, ...]] = {  # fields omitted if unknown; others are null
    WindowSummary: ("clock_error_s",),
    Rate: ("clock_error",),
    Concurrency: ("clock_error",),
    MeasureSummary: ("tokens", "adjusted", "title", "direction", "formula"),
    Environment: Environment.__struct_fields__,
    MeasuredTarget: MeasuredTarget.__struct_fields__,
    ImportOrigin: ("part", "started_by"),
    ToolVersion: ToolVersion.__struct_fields__,
    ServerStart: ("container", "engine", "image", "image_id", "digest"),
}
_EMPTY = (WindowSummary, Concurrency, Failures)  # always present as a type; null in JSON if a run has none
FLAT: dict[type, str] = {  # types whose entries are written as fields of the parent
    MeasureSummary: "statistics",
    Adjusted: "statistics",
    Sessions: "measures",
}
_STATISTIC = re.compile(r"mean|std|min|max|p\d+(\.\d+)?")


# -- to JSON ---------------------------------------------------------------------------------------------------------


def document_of(value: object) -> JsonValue:
    """A part of a run as plain data, ready for JSON. The statistics of a measure are written as fields of the measure
    itself, `p99`, and likewise the measures of sessions."""
    if isinstance(value, _EMPTY) and value == type(value)():
        return None
    if isinstance(value, EnvironmentPart):
        return _environment_part(value)
    if isinstance(value, msgspec.Struct):
        return _struct_document(value)
    if isinstance(value, dict):
        return {name: document_of(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [document_of(part) for part in value]
    plain: JsonValue = value  # type: ignore[assignment] # what a part of a run holds is text, numbers, and these
    return plain


def _struct_document(value: msgspec.Struct) -> dict[str, JsonValue]:
    flat = FLAT.get(type(value))
    left_out: Collection[str] = WHERE_KNOWN.get(type(value), getattr(value, "WHERE_KNOWN", ()))
    document: dict[str, JsonValue] = {name: getattr(value, name) for name in getattr(value, "DERIVED", ())}
    for name, shown in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        part = getattr(value, name)
        if name == flat:
            document |= {key: document_of(entry) for key, entry in part.items()}
        elif part is not None or name not in left_out:
            document[shown] = document_of(part)
    return document


def result_document(kind: str, result: msgspec.Struct) -> dict[str, JsonValue]:
    """The `--json` document of a result: its fields, and the properties that its type lists as `DERIVED`. Fields that
    it lists as `WHERE_KNOWN` are omitted if they are null."""
    return {"schema": schema_of(kind), **_struct_document(result)}


def _environment_part(part: EnvironmentPart) -> dict[str, JsonValue]:
    """The fields of the document it was read from, in their order, then new ones."""
    known = {name: getattr(part, name) for name in field_names(type(part))} | part.more
    left_out = known.keys() if part.names else WHERE_KNOWN.get(type(part), ())
    new = [name for name, value in known.items() if not (name in left_out and value in (None, [], {}))]
    return {name: document_of(known[name]) for name in dict.fromkeys((*part.names, *new))}


def summary_document(summary: Summary) -> dict[str, JsonValue]:
    return result_document("summary", summary)


def verdict_document(verdict: Verdict) -> dict[str, JsonValue]:
    return result_document("verdict", verdict)


def environment_document(environment: Environment) -> dict[str, JsonValue]:
    return _environment_part(environment)


# -- from JSON -------------------------------------------------------------------------------------------------------


def summary_from(document: JsonObject) -> Summary:
    """Reads any version up to the present one. A `StoreError` names the field that cannot be read."""
    return _converted(document, Summary)


def verdict_from(document: JsonObject) -> Verdict:
    return _converted(document, Verdict)


def environment_from(document: JsonObject) -> Environment:
    """Reads this version, an older one or a foreign document: unknown fields are kept, and written again."""
    return _converted(document, Environment)


def with_texts(part: T, change: Callable[[JsonObject], JsonObject]) -> T:
    """A part of a run with its document changed, for example to remove secrets."""
    whole = _environment_part(part) if isinstance(part, EnvironmentPart) else _struct_document(part)
    return _converted(change(whole), type(part))


def _converted(document: JsonObject, kind: type[T]) -> T:
    present = _present(document, kind)
    try:
        return converted(present, kind)
    except msgspec.ValidationError:
        where, why = _wrong(present, kind)
        raise StoreError(f"its {kind.__name__.lower()} cannot be read: {where}: {why}") from None


_learned: set[Any] = set()
_learning = threading.Lock()


def converted(content: Any, kind: type[Known]) -> Known:
    """`msgspec.convert`, safe in any thread. msgspec builds its information on a type when the type is first used; a
    second thread that uses the type meanwhile reads a half-built structure, and the process ends with a segmentation
    fault."""
    if kind not in _learned:
        with _learning:
            with suppress(msgspec.ValidationError):
                msgspec.convert({}, kind)
            _learned.add(kind)
    return msgspec.convert(content, kind)


def _present(value: Any, kind: Any) -> Any:
    """A document in the form of its type, with the present names. Values of another type are left unchanged."""
    form, inner = _form(kind)
    if form is int and isinstance(value, float) and value.is_integer():  # some tools write counts as 8.0
        return int(value)
    if form is list and isinstance(value, list):
        return [_present(part, inner) for part in value]
    if form is dict and isinstance(value, Mapping):
        return {name: _present(part, inner) for name, part in value.items()}
    if not _is_struct(form) or not isinstance(value, Mapping):
        return value
    fields = _fields(form)
    named = _gathered(_upgraded(_renamed(value, form), form), form)
    if issubclass(form, EnvironmentPart):
        named = _own_and_more(named, form)
    return {
        name: _present(part, fields[name])
        for name, part in named.items()
        if name in fields and not (part is None and fields[name] in _EMPTY)
    }


def _own_and_more(document: JsonObject, kind: type[EnvironmentPart]) -> JsonObject:
    """The typed fields of an environment, and the others; null in place of a list or a mapping counts as missing."""
    fields = {name: _fields(kind)[name] for name in field_names(kind)}
    own = {
        name: part
        for name, part in document.items()
        if name in fields and not (part is None and _form(fields[name])[0] in (list, dict))
    }
    more = {name: part for name, part in document.items() if name not in fields}
    return {**own, "names": tuple(document), "more": more}


def _gathered(document: JsonObject, kind: type) -> JsonObject:
    """Collects the fields that `document_of` wrote flat back into their mapping. Fields of a newer version are not
    included."""
    flat = FLAT.get(kind)
    if flat is None or (kind is Sessions and flat in document):
        return document
    own = {name: part for name, part in document.items() if name in _fields(kind) and name != flat}
    rest = {name: part for name, part in document.items() if name not in own}
    inside = {name: part for name, part in rest.items() if kind is Sessions or _is_statistic(name, part)}
    return {**own, flat: inside}


def _is_statistic(name: str, value: JsonValue) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or number or _STATISTIC.fullmatch(name) is not None


# -- older versions --------------------------------------------------------------------------------------------------

_FORMER_STATUS = {"word": "status"}
_FORMER_REQUESTED = {"asked": "requested", "asked_against_reported": "requested_against_reported"}
_FORMER: dict[type, dict[str, str]] = {  # names of version 1
    Verdict: {"word": "status", "reasons": "doubts"},
    Reason: {"word": "status", "severity": "status"},  # a start wrote the second
    **dict.fromkeys((Trend, Steadiness, Backlog, Goal), _FORMER_STATUS),
    **dict.fromkeys((Concurrency, PrecisionResult, InputTokens, OutputTokens), _FORMER_REQUESTED),
    Startup: {"asked_sleep": "requested_sleep"},
    MeasureSummary: {"unknown": "weak"},  # its value was left out
    Adjusted: {"unknown": "weak"},
    Environment: {"said": "metadata"},
}


_ROWS = {"changes", "measures", "steps", "since", "objections"}  # parts of a result that also had a `word`


def result_from(value: JsonValue, status: str = "status") -> JsonValue:
    """The result of a comparison, a check or a search, as printed or stored, with the present names."""
    if isinstance(value, list):
        return [result_from(part, status) for part in value]
    if not isinstance(value, dict):
        return value
    present = {status if name == "word" else name: part for name, part in value.items()}
    for name in _ROWS & present.keys():
        present[name] = result_from(present[name], "severity" if name == "objections" else "status")
    return present


def _renamed(document: JsonObject, kind: type) -> JsonObject:
    former = _FORMER.get(kind)
    return {former.get(name, name): part for name, part in document.items()} if former else document


def _upgraded(document: JsonObject, kind: type) -> JsonObject:
    """Adds what version 1 did not have: the headline of a rate was its window's, also for an imported run."""
    if kind is Rate and "value" not in document:
        return {**document, "value": document.get("window"), "span": document.get("run")}
    if kind is Goodput and "value" not in document:
        return {**document, "value": document.get("window"), "span": None}
    if kind is Concurrency and "window" not in document:
        return {**document, "window": document.get("mean")}
    if kind is Summary and isinstance(reported := document.get("reported"), Mapping):
        return {**document, "rates": _stated(document.get("rates"), reported.get("rates"))}
    return document


def _stated(rates: JsonValue, stated: JsonValue) -> JsonValue:
    """Makes the rates that an imported file states the headline."""
    if not isinstance(rates, Mapping) or not isinstance(stated, Mapping):
        return rates
    values = {name: rate.get("value", rate.get("window")) for name, rate in stated.items() if isinstance(rate, Mapping)}
    return {
        name: {"span": rate.get("run"), **rate, "value": values[name], "basis": "file"}
        if isinstance(rate, Mapping) and values.get(name) is not None
        else rate
        for name, rate in rates.items()
    }


# -- types -----------------------------------------------------------------------------------------------------------


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


@functools.cache
def _fields(kind: type) -> Mapping[str, type]:
    return get_type_hints(kind)


@functools.cache
def _form(kind: Any) -> tuple[Any, Any]:
    """The type apart from None, and the element type of a list or a mapping."""
    kinds = [argument for argument in get_args(kind) if argument is not NoneType]
    if NoneType in get_args(kind):
        return _form(kinds[0]) if len(kinds) == 1 else (None, None)
    origin = get_origin(kind)
    if origin is UnionType:  # such as a GPU with its facts, or only its name
        return next(((part, None) for part in kinds if _is_struct(part)), (None, None))
    return (origin, kinds[-1]) if origin in (list, dict) else (kind, None)


def _wrong(value: Any, kind: Any, where: str = "") -> tuple[str, str]:
    """The first place in a document with a wrong type, `measures.ttft.p99`, and what is wrong there."""
    form, inner = _form(kind)
    parts: dict[str, tuple[JsonValue, Any]] = {}
    if form is list and isinstance(value, list):
        parts = {str(number): (part, inner) for number, part in enumerate(value)}
    elif isinstance(value, Mapping) and (form is dict or _is_struct(form)):
        fields = dict.fromkeys(value, inner) if form is dict else _fields(form)
        parts = {name: (part, fields[name]) for name, part in value.items()}
    for name, (part, of) in parts.items():
        try:
            msgspec.convert(part, of)
        except msgspec.ValidationError:
            flat = _is_struct(form) and FLAT.get(form) == name
            return _wrong(part, of, where if flat else f"{where}.{name}".lstrip("."))
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return where or "it", str(error).split(" - at ")[0]
    raise AssertionError(f"{where} is as it should be")
