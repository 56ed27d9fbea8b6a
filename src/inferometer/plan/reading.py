"""Reads a plan from a file, from standard input or from Python, and reports all errors together: a path, what is wrong
there, and the value as it was written."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from inferometer.documents.document import JsonObject, JsonValue, is_unicode, settings_of
from inferometer.documents.files import file_bytes, stdin_bytes, text_in, unpacked
from inferometer.documents.json_text import MOST_DEPTH, RefusedError
from inferometer.errors import PlanError
from inferometer.plan import overrides, short
from inferometer.plan.fields import Mistake, SectionError
from inferometer.plan.model import Plan
from inferometer.plan.overrides import Flags, Override, PlanPath, override, parse_override, with_flags
from inferometer.plan.secrets import is_secret, redacted_argv, redacted_fields, redacted_line, redacted_url
from inferometer.plan.text import as_written, parse_json, parse_yaml, refused

# -- mistakes --------------------------------------------------------------------------------------------------------

_NOTHING = object()
_GUESSED = 50  # unknown keys that get suggestions, which take 10 ms each
_MESSAGES = {
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be finite",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be settings by name (name: value)",
    "recursion_loop": "must not contain itself",
}
_STARTS = {
    "bool_": "must be true or false",
    "int_": "must be a whole number",
    "float_": "must be a number",
}


@dataclass(slots=True)
class _Written:
    """A plan as written. Short forms are expanded once for all errors: there may be one per traffic class."""

    plan: JsonObject
    _long: dict[str, JsonValue] | None = None
    _whole: dict[str, JsonValue] | None = None
    _guessed: int = 0

    def meant(self, path: PlanPath) -> list[str]:
        self._guessed += 1
        return overrides.meant(path, self.whole) if self._guessed <= _GUESSED else []

    @property
    def long(self) -> dict[str, JsonValue]:
        if self._long is None:
            self._long = short.long(self.plan)
        return self._long

    @property
    def whole(self) -> dict[str, JsonValue]:
        """The plan with inherited settings of its traffic classes."""
        if self._whole is None:
            self._whole = short.inherited(self.long)
        return self._whole


def mistakes_in(plan: JsonObject) -> tuple[Plan | None, list[Mistake]]:
    """The plan, or all errors in it.

    Checks between sections run only on valid sections. So invalid sections are removed and the rest is checked
    again; of this second check only errors that do not concern a removed section count.
    """
    written = _Written(plan)
    if broken := list(_broken_texts(plan, ())):
        return None, broken
    try:
        return Plan.model_validate(dict(plan)), []
    except ValidationError as error:
        mistakes = list(_mistakes(error, written))
    wrong = {_section(mistake.path) for mistake in mistakes}
    try:
        Plan.model_validate(_without(plan, wrong))
    except ValidationError as error:
        left_out = {str(path[-1]) for path in wrong if path}
        mistakes += [
            mistake for mistake in _mistakes(error, written) if mistake.about and not left_out & set(mistake.about)
        ]
    return None, list(dict.fromkeys(mistakes))


def _broken_texts(value: object, path: PlanPath) -> Iterator[Mistake]:
    if len(path) > MOST_DEPTH:  # a Python object may contain itself: the type check reports it
        return
    if isinstance(value, str):
        if not is_unicode(value):
            yield Mistake(path, f"must be text in UTF-8, got {ascii(value)[1:-1][:80]}")
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            key = str(name)
            if is_unicode(key):
                yield from _broken_texts(inner, (*path, key))
            else:
                yield Mistake(path, f"must have names in UTF-8, got {ascii(key)[1:-1][:80]}")
    elif isinstance(value, list | tuple):
        for at, inner in enumerate(value):
            yield from _broken_texts(inner, (*path, at))


def _section(path: PlanPath) -> PlanPath:
    """The section of the plan, or of a traffic class, that is removed for the second check."""
    return path[: 3 if path[:1] == ("traffic",) else 1]


def _without(plan: JsonObject, wrong: set[PlanPath]) -> dict[str, JsonValue]:
    rest = {name: value for name, value in plan.items() if (name,) not in wrong}
    classes = short.several(rest.get("traffic"))
    if not isinstance(classes, list) or any(path[:1] == ("traffic",) and len(path) < 3 for path in wrong):
        rest.pop("traffic", None)
        return rest
    rest["traffic"] = [_class_without(traffic, at, wrong) for at, traffic in enumerate(classes)]
    return rest


def _class_without(traffic: Any, at: int, wrong: set[PlanPath]) -> Any:
    if not isinstance(traffic, Mapping):
        return traffic
    return {name: value for name, value in traffic.items() if ("traffic", at, name) not in wrong}


def _mistakes(error: ValidationError, plan: _Written) -> Iterator[Mistake]:
    for detail in error.errors(include_url=False):
        path = _where_written(_plain(detail["loc"], detail["type"] in ("extra_forbidden", "invalid_key")), plan)
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, SectionError):
            for mistake in cause.mistakes:
                yield Mistake(_where_written((*path, *mistake.path), plan), mistake.text, mistake.about or _about(path))
        else:
            yield Mistake(_without_index(path, plan), _text(detail, path, plan))


def _about(path: PlanPath) -> tuple[str, ...]:
    return tuple(str(step) for step in _section(path)[-1:])


def _plain(loc: tuple[str | int, ...], is_key: bool) -> PlanPath:
    """Pydantic's location without its internal steps: the member of a union, the key of a mapping."""
    steps: PlanPath = ()
    for at, step in enumerate(loc):
        member = overrides.kind_at((*steps, step)) is None and not (is_key and at + 1 == len(loc))
        if step != "[key]" and not member:
            steps = (*steps, step)
    return steps


def _where_written(path: PlanPath, plan: _Written) -> PlanPath:
    """The path where a value was written: an inherited one is at the top of the plan."""
    if len(path) < 3 or path[0] != "traffic" or path[2] not in short.INHERITED:
        return path
    own = _written_at(path[:3], plan)
    if own is _NOTHING:
        return path[2:]
    inherits = path[2] in ("workload", "sampling", "stop") and isinstance(own, Mapping) and len(path) > 3
    return path[2:] if inherits and path[3] not in own and _written_at(path[2:4], plan) is not _NOTHING else path


def _without_index(path: PlanPath, plan: _Written) -> PlanPath:
    """`limits` instead of `limits[0]`, if one was written without a list."""
    if len(path) < 2 or not isinstance(path[-1], int):
        return path
    try:
        alone = not isinstance(overrides.value_at(plan.plan, path[:-1]), list | tuple)
    except KeyError:
        written = _written_at(path[:-1], plan)
        alone = path[-1] == 0 and isinstance(written, list) and len(written) == 1
    return path[:-1] if alone else path


def _written_at(path: PlanPath, plan: _Written) -> Any:
    """The value at a path as written; inside a short form, the short form itself."""
    try:
        return overrides.value_at(plan.plan, path)
    except KeyError:
        pass
    try:
        return overrides.value_at(plan.long, path)
    except KeyError:
        return _NOTHING


def _text(error: Any, path: PlanPath, plan: _Written) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return _unknown(path, plan)
    if kind == "invalid_key":
        return "must be a name (put it in quotes)"
    value = _written_at(path, plan)
    got = "" if value is _NOTHING else f", got {shown(value, path)}"
    if kind == "literal_error":
        return f"must be {_choices(context['expected'])}{got}{_closest(value, context['expected'])}"
    if kind == "value_error":
        text = str(context["error"])
        return f"{text}{got}" if text.startswith("must") else text
    if kind in ("model_type", "model_attributes_type"):
        return f"{_settings(path, plan)}{got}"
    template = _MESSAGES.get(kind) or next((text for start, text in _STARTS.items() if kind.startswith(start)), None)
    quoting = " (put it in quotes)" if kind == "string_type" and isinstance(value, int | float) else ""
    return f"{template.format(**_readable(context)) if template else error['msg']}{got}{quoting}"


def _readable(context: JsonObject) -> dict[str, JsonValue]:
    """Readable bounds: 1,000,000 and not 1e+06."""
    return {name: f"{value:,.15g}" if isinstance(value, int | float) else value for name, value in context.items()}


def _unknown(path: PlanPath, plan: _Written) -> str:
    whole = plan.whole
    section, several = overrides.section_at(path[:-1], whole), overrides.sections_at(path[:-1])
    of = f" of type {section.model_fields['type'].default}" if section and len(several) > 1 else ""
    if others := [
        candidate.model_fields["type"].default for candidate in several if str(path[-1]) in candidate.model_fields
    ]:
        return f"is not a setting{of}; it belongs to type {', '.join(others)}"
    if close := plan.meant(path):
        return f"is not a setting{of}; did you mean {' or '.join(close)}?"
    return f"is not a setting{of}; there are {', '.join(section.model_fields)}" if section else "is not a setting"


def _settings(path: PlanPath, plan: _Written) -> str:
    section = overrides.section_at(path, plan.plan)
    some = f" such as {', '.join(list(section.model_fields)[:3])}" if section else ""
    return f"must be settings by name{some}"


def _choices(expected: str) -> str:
    return expected.replace("'", "") if " or " not in expected else f"one of {expected.replace(chr(39), '')}"


def _closest(value: Any, expected: str) -> str:
    choices = expected.replace("'", "").replace(" or ", ", ").split(", ")
    close = difflib.get_close_matches(str(value), choices, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def shown(value: Any, path: PlanPath) -> str:
    """A value as written, without secrets."""
    if any(is_secret(step) for step in path if isinstance(step, str)):
        return "a hidden value"
    if isinstance(value, str):
        return as_written(redacted_line(redacted_url(value) if "//" in value else value))
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return as_written(redacted_argv(value))
    return as_written(redacted_fields({"": value})[""])


# -- reading ---------------------------------------------------------------------------------------------------------


def read_plan(path: str | Path, overrides: Iterable[str] = (), flags: Flags | None = None) -> Plan:
    """The plan in a YAML or JSON file; `-` is standard input."""
    where = "stdin" if str(path) == "-" else str(path)
    mapping, twice = read_mapping(path)
    return plan_from(mapping, overrides, where, flags, also=twice)


def read_mapping(path: str | Path) -> tuple[dict[str, JsonValue], list[str]]:
    """The content of a plan's file before validation, and its duplicate keys."""
    where = "stdin" if str(path) == "-" else str(path)
    return mapping_in(stdin_text() if where == "stdin" else file_text(Path(path)), where)


def mapping_in(text: str, where: str) -> tuple[dict[str, JsonValue], list[str]]:
    """The same for a text that has been read."""
    is_json = where.endswith(".json") or (where == "stdin" and text.lstrip().startswith("{"))
    value, twice = (parse_json if is_json else parse_yaml)(text, where)
    if value is None:
        raise PlanError(f"{where}: is empty", "a plan has settings such as `load: {concurrency: 8}`")
    if not isinstance(value, dict):
        raise PlanError(f"{where}: must be settings by name such as `load: ...`, got {as_written(value)}")
    return value, twice


def file_text(path: Path) -> str:
    """The text of a plan's file, or an error that says why it cannot be read."""
    try:
        return text_in(unpacked(file_bytes(path)))
    except FileNotFoundError:
        hint = nearby(path) or "without a plan: inferometer run --url http://localhost:8000"
        raise PlanError(f"{path}: file not found", hint) from None
    except IsADirectoryError:
        raise PlanError(f"{path}: is a folder, not a plan") from None
    except OSError as error:
        raise PlanError(f"{path}: could not be read: {error.strerror}") from None
    except RefusedError as error:
        raise refused(error, str(path)) from None
    except ValueError as error:  # a zero byte in a path
        raise PlanError(f"{str(path)!r}: cannot be the name of a file: {error}") from None


def stdin_text() -> str:
    """The plan on standard input."""
    try:
        return text_in(stdin_bytes())
    except RefusedError as error:
        raise refused(error, "stdin") from None


def nearby(path: Path) -> str | None:
    """A file with a similar name, if there is one."""
    try:
        names = [file.name for file in path.parent.iterdir() if file.suffix in (".yaml", ".yml", ".json")]
    except OSError:
        names = []
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {path.parent / close[0]}?" if close else None


def plan_from(
    mapping: Mapping[str, object],
    overrides: Iterable[str | Override] = (),
    where: str = "plan.yaml",
    flags: Flags | None = None,
    also: Iterable[str] = (),
) -> Plan:
    """The plan of a mapping, changed by flags, then by overrides; `also` are errors found before."""
    mistakes, hints, typed = list(also), [], list(overrides)
    changed = settings_of(mapping)
    try:
        changed = with_flags(changed, flags) if flags is not None else changed
    except PlanError as error:
        mistakes, hints = [*mistakes, *error.mistakes], [error.hint]
    for change in typed:
        try:
            changed = override(changed, [change])
        except PlanError as error:
            mistakes += error.mistakes
            hints.append(error.hint)
    plan, problems = mistakes_in(changed)
    mistakes += [f"{_origin(mistake, typed) or where}: {_line(mistake)}" for mistake in problems]
    if plan is None or mistakes:
        raise PlanError(mistakes, next((hint for hint in hints if hint), None))
    return plan


def _line(mistake: Mistake) -> str:
    return f"{overrides.written(mistake.path)} {mistake.text}".lstrip()


def _origin(mistake: Mistake, typed: Iterable[str | Override]) -> str | None:
    """`--set` if the error is in an override and not in the file."""
    for change in typed:
        try:
            steps = (parse_override(change) if isinstance(change, str) else change).path
        except PlanError:
            continue
        if [str(step) for step in mistake.path[: len(steps)]] == [str(step) for step in steps]:
            return "--set"
    return None
