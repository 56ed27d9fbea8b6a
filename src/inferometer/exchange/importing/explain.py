"""How every field of a result was used: read into the run, stored with it, or ignored. The file is read again without
the field, and the runs are compared."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from inferometer.errors import DataError
from inferometer.exchange.importing.recognise import check_format, format_named, read_source, recognise
from inferometer.exchange.importing.source import ImportedRun, ImportFormat, ResultRow, Source
from inferometer.plan.foreign.explain import another
from inferometer.record.columns import Records

Use = Literal["read", "kept", "ignored"]
DEEPEST = 4
MOST_FIELDS = 600
_KEPT = "environment.metadata"
KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class FieldUse:
    """One field of a file, how it was used, and the parts of the run that depend on it."""

    name: str
    use: Use
    where: tuple[str, ...] = ()


def explain_result(path: Path, format: str | None = None) -> list[FieldUse]:  # noqa: A002 - the word that users know
    """The account of a result. The list of fields is not maintained by hand: each field is removed or changed, the file
    is read again, and the runs are compared. A field without effect is ignored. Of several results in one file only
    the first is explained."""
    source = read_source(path)
    name = format or recognise(source)
    check_format(name, source)
    chosen = format_named(name)
    one = _first_only(source)
    whole = _run(chosen, one)
    return [_use(chosen, one, whole, place) for place in _some(_paths(_document(one)))]


def _first_only(source: Source) -> Source:
    """Only the first row; the others have the same fields."""
    if source.form in ("jsonl", "csv") and source.value:
        return replace(source, value=source.value[:1])
    return source


def _document(source: Source) -> Any:
    return source.value[0].fields if source.form in ("jsonl", "csv") and source.value else source.value


def _with_document(source: Source, value: Any) -> Source:
    if source.form in ("jsonl", "csv"):
        return replace(source, value=[ResultRow(source.value[0].where, value)])
    return replace(source, value=value)


def _run(chosen: ImportFormat, source: Source) -> ImportedRun:
    runs = chosen.read(source).runs
    if not runs:
        raise DataError(f"{source.name}: {chosen.title}, but there is no result in it")
    return runs[0]


def _use(chosen: ImportFormat, source: Source, whole: ImportedRun, place: KeyPath) -> FieldUse:
    name, document = ".".join(map(str, place)), _document(source)
    parts = _effect(chosen, source, whole, _without(document, place))
    new = another(_at(document, place))
    if not parts and new is not None:  # without the field the result may still be valid
        parts = _effect(chosen, source, whole, _with(document, place, new))
    if not parts:
        return FieldUse(name, "ignored")
    return FieldUse(name, "kept" if parts == (_KEPT,) else "read", parts)


def _effect(chosen: ImportFormat, source: Source, whole: ImportedRun, document: Any) -> tuple[str, ...]:
    """The parts of the run that differ for a changed document; `required` if it is no longer a result."""
    try:
        other = _run(chosen, _with_document(source, document))
    except (ArithmeticError, AttributeError, DataError, LookupError, TypeError, ValueError):
        return ("required",)
    return tuple(_differing(whole, other))


def _differing(one: ImportedRun, other: ImportedRun) -> Iterator[str]:
    for part in fields(ImportedRun):
        if part.name == "original":
            continue
        before, after = getattr(one, part.name), getattr(other, part.name)
        if part.name == "records":
            before, after = (None if side is None else _fingerprint(side) for side in (before, after))
        if part.name == "environment":
            yield from _of_environment(before, after)
        elif isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from (f"{part.name}.{key}" for key in {**before, **after} if before.get(key) != after.get(key))
        elif before != after:
            yield part.name


def _fingerprint(records: Records) -> list[Any]:
    """Every value of every request, for the comparison."""
    columns = (getattr(records, column.name) for column in fields(records))
    return [column.tobytes() if hasattr(column, "tobytes") else repr(list(column)) for column in columns]


def _of_environment(before: Any, after: Any) -> Iterator[str]:
    one, other = msgspec.to_builtins(before), msgspec.to_builtins(after)
    for key in {**one, **other}:
        if one.get(key) != other.get(key):
            yield f"environment.{key}"


def _some(paths: Iterator[KeyPath]) -> Iterator[KeyPath]:
    for number, path in enumerate(paths):
        if number == MOST_FIELDS:
            return
        yield path


def _paths(value: Any, above: KeyPath = ()) -> Iterator[KeyPath]:
    """Paths of fields up to a depth; in a list of objects those of the first."""
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        yield from _paths(value[0], (*above, 0))
        return
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        below = list(_paths(inner, (*above, name))) if len(above) < DEEPEST else []
        yield from below or [(*above, name)]


def _at(value: Any, place: KeyPath) -> Any:
    for step in place:
        value = value[step]
    return value


def _with(value: Any, place: KeyPath, new: Any) -> Any:
    first, *rest = place
    inner = _with(value[first], tuple(rest), new) if rest else new
    if isinstance(value, list):
        return [inner if number == first else entry for number, entry in enumerate(value)]
    return {name: inner if name == first else entry for name, entry in value.items()}


def _without(value: Any, place: KeyPath) -> Any:
    first, *rest = place
    if isinstance(value, list):
        at = int(first)
        return [_without(entry, tuple(rest)) if number == at else entry for number, entry in enumerate(value)]
    if not rest:
        return {name: entry for name, entry in value.items() if name != first}
    return {name: _without(entry, tuple(rest)) if name == first else entry for name, entry in value.items()}
