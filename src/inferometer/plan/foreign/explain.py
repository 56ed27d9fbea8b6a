"""Where each key of another tool's plan went: the source is read again without it, or with another value, and what
differs in the plan is what the key decides. A key that decides nothing and has no note was lost."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inferometer.documents.json_text import json_value
from inferometer.errors import PlanError
from inferometer.plan.foreign import recognise, templates
from inferometer.plan.foreign.account import Entry
from inferometer.plan.foreign.common import Foreign
from inferometer.plan.reading import file_text
from inferometer.plan.text import parse_json, parse_yaml

Read = Callable[[], Foreign]
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_MOST_PLACES = 4
_ALIKE = 4
REQUIRED = "required"  # where without a key, and with any other value tried, the source is refused
KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """The source without one of its parts, and with another value in its place. `name` is the part's own name."""

    name: str
    without: Read
    changed: Read | None = None


@dataclass(frozen=True, slots=True)
class Explained:
    """A plan of another tool, and the account of its source; `lost` names keys that were read and decide nothing."""

    foreign: Foreign
    entries: list[Entry]
    lost: list[str]


def explained(read: Read, variants: Iterator[Variant]) -> Explained:
    """Read the source once for each of its parts."""
    whole = read()
    before = _settings(whole)
    values = {entry.source: entry.value for entry in whole.entries}
    places: dict[str, dict[str, None]] = {}
    checked: set[str] = set()
    for variant in variants:
        touched, paths, required = _effect(variant.without, values, before)
        raised = required
        if not paths and variant.changed is not None:
            again, paths, failed = _effect(variant.changed, values, before)
            touched, raised = touched | again, raised or failed
        if raised and not paths:
            touched = touched or _named(variant.name, values)
            checked |= touched
            paths = [REQUIRED] if required else []
        for source in touched:
            places.setdefault(source, {}).update(dict.fromkeys(paths))
    entries = [replace(entry, where=tuple(places.get(entry.source, ()))) for entry in whole.entries]
    lost = [
        entry.source
        for entry in entries
        if entry.outcome == "translated" and not entry.where and entry.source in places and entry.source not in checked
    ]
    return Explained(whole, entries, lost)


def _named(name: str, values: Mapping[str, str]) -> set[str]:
    """The keys of a part without which nothing can be read, so that nothing can be compared: those of its name. A suite
    or a template may have it below another key."""
    same = {source for source in values if source == name}
    return same or {source for source in values if source.endswith(f".{name}") or name.endswith(f".{source}")}


def _effect(read: Read, values: Mapping[str, str], before: Mapping[str, str]) -> tuple[set[str], list[str], bool]:
    """The keys that differ, the settings that differ, and whether it could not be read at all."""
    try:
        other = read()
    except PlanError:
        return set(), [], True
    after = {entry.source: entry.value for entry in other.entries}
    touched = {source for source, value in values.items() if after.get(source) != value}
    settings = _settings(other)
    paths = [path for path in {**before, **settings} if before.get(path) != settings.get(path)]
    return touched, _short(paths), False


def _short(paths: Sequence[str]) -> list[str]:
    """Without the numbers of cases and stages, so that one key is one line."""
    plain = dict.fromkeys(re.sub(r"^cases\.\d+\.(plan|throughput|latency|set)\.", "", path) for path in paths)
    kept = [path for path in plain if not path.startswith("cases.")]
    return kept[:_MOST_PLACES] or list(plain)[:_MOST_PLACES]


def _settings(foreign: Foreign) -> dict[str, str]:
    return dict(_leaves(foreign.plan or foreign.experiment, ""))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
        for at, inner in enumerate(value):
            yield from _leaves(inner, f"{path}.{at}")
    else:
        yield path, json.dumps(value, sort_keys=True, default=str)


# -- what can be read again ------------------------------------------------------------------------------------------


def explain_command(argv: Sequence[str]) -> Explained:
    """The account of a command line."""
    words = list(argv)
    return explained(lambda: recognise.from_command(words), _of_command(words))


def explain_file(
    path: Path, changes: Sequence[str] = (), around: recognise.Surroundings | None = None
) -> Explained | None:
    """The account of a file; None where it is no other tool's."""
    around = around or recognise.Surroundings()
    foreign = recognise.from_file(path, changes, around)
    if foreign is None:
        return None
    where = str(path)
    if where.endswith(".txt"):
        return Explained(foreign, foreign.entries, [])
    value = _document(path, changes, around)

    def read(other: Any) -> Read:
        def once() -> Foreign:
            made = recognise.from_value(other, where, (), around)
            if made is None:
                raise PlanError(f"{where}: is no other tool's plan any more")
            return made

        return once

    result = explained(read(value), _of_document(value, read))
    return replace(result, foreign=replace(result.foreign, notes=foreign.notes))


def _document(path: Path, changes: Sequence[str], around: recognise.Surroundings) -> Any:
    text, where = file_text(path), str(path)
    if recognise.is_template(where) or templates.has_variables(text):
        value, _ = templates.rendered(text, around.environ, where)
    else:
        is_json = where.endswith(".json")
        value, _ = (parse_json if is_json else parse_yaml)(text, where)
    return recognise.changed(value, changes, where)


def _of_document(value: Any, read: Callable[[Any], Read]) -> Iterator[Variant]:
    for path in _paths(value):
        other = another(_at(value, path))
        changed = None if other is None else read(_with(value, path, other))
        yield Variant(".".join(map(str, path)), read(_without(value, path)), changed)


def _paths(value: Any, above: KeyPath = ()) -> Iterator[KeyPath]:
    entries: Any = value.items() if isinstance(value, Mapping) else ()
    if isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
        entries = enumerate(value)
    for step, inner in _some(list(entries)):
        below = list(_paths(inner, (*above, step)))
        yield from below
        if not below:
            yield (*above, step)


def _some(entries: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """All of them; of a long list of the same the first, the second and the last."""
    alike = len(entries) > _ALIKE and isinstance(entries[0][0], int)
    return [*entries[:2], entries[-1]] if alike else entries


def _at(value: Any, path: KeyPath) -> Any:
    for step in path:
        value = value[step]
    return value


def _without(value: Any, path: KeyPath) -> Any:
    first, *rest = path
    if rest:
        return _replaced(value, first, _without(value[first], tuple(rest)))
    if isinstance(value, list):
        return [entry for at, entry in enumerate(value) if at != first]
    return {name: entry for name, entry in value.items() if name != first}


def _with(value: Any, path: KeyPath, new: Any) -> Any:
    first, *rest = path
    return _replaced(value, first, _with(value[first], tuple(rest), new) if rest else new)


def _replaced(value: Any, step: str | int, new: Any) -> Any:
    if isinstance(value, list):
        return [new if at == step else entry for at, entry in enumerate(value)]
    return {name: new if name == step else entry for name, entry in value.items()}


def another(value: Any) -> Any:
    """Another value of the same kind; None where there is none to try."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value * 2 + 1
    if isinstance(value, float):
        return value * 2 + 1
    if isinstance(value, list):
        return [*value, another(value[-1])] if value and another(value[-1]) is not None else None
    if isinstance(value, str):
        return _other_text(value)
    return None


def _other_text(text: str) -> str:
    if text in ("inf", "none", "true", "false"):
        return {"inf": "7", "none": "false", "true": "false", "false": "true"}[text]
    if _NUMBER.fullmatch(text):
        return str(int(text) * 2 + 1) if text.lstrip("-").isdigit() else str(float(text) / 2 + 0.001)
    return f"{text}x"


# -- command lines -------------------------------------------------------------------------------------------------


def _of_command(argv: list[str]) -> Iterator[Variant]:
    """Each flag with its values; of `kind=NAME,key=value` and JSON each key."""
    for begin, end in _groups(argv):
        inner = list(_inner(argv, begin, end))
        if inner:
            yield from inner
            continue
        without = argv[:begin] + argv[end:]
        changed = _changed(argv, begin, end)
        yield Variant(_flag(argv[begin]), _command(without), _command(changed) if changed else None)


def _flag(word: str) -> str:
    return word.partition("=")[0]


def _command(argv: list[str]) -> Read:
    return lambda: recognise.from_command(argv)


def _groups(argv: list[str]) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(argv) and not (argv[at].startswith("-") and len(argv[at]) > 1 and argv[at] not in ("-m", "-u")):
        at += 1
    while at < len(argv):
        end = at + 1
        while end < len(argv) and (not argv[end].startswith("-") or _NUMBER.fullmatch(argv[end])):
            end += 1
        yield at, end
        at = end


def _changed(argv: list[str], begin: int, end: int) -> list[str] | None:
    if end > begin + 1:
        return [*argv[: end - 1], _other_text(argv[end - 1]), *argv[end:]]
    name, sign, value = argv[begin].partition("=")
    return [*argv[:begin], f"{name}={_other_text(value) if sign else 'false'}", *argv[end:]]


def _inner(argv: list[str], begin: int, end: int) -> Iterator[Variant]:
    for at in range(begin + 1, end):
        text = argv[at]
        if text.startswith("kind="):
            parts = text.split(",")
            for number, part in enumerate(parts[1:], 1):
                key, sign, value = part.partition("=")
                if not sign:
                    return
                without = ",".join(parts[:number] + parts[number + 1 :])
                changed = ",".join([*parts[:number], f"{key}={_other_text(value)}", *parts[number + 1 :]])
                name = f"{_flag(argv[begin])}.{key}"
                yield Variant(name, _command(_put(argv, at, without)), _command(_put(argv, at, changed)))
        elif text.startswith("{"):
            try:
                value = json_value(text)[0]
            except ValueError:
                return
            for path in _paths(value):
                if path == ("kind",):
                    continue
                new = another(_at(value, path))
                other = None if new is None else _command(_put(argv, at, json.dumps(_with(value, path, new))))
                name = ".".join(map(str, (_flag(argv[begin]), *path)))
                yield Variant(name, _command(_put(argv, at, json.dumps(_without(value, path)))), other)


def _put(argv: list[str], at: int, text: str) -> list[str]:
    return [*argv[:at], text, *argv[at + 1 :]]
