"""A plan from a file, from standard input or from Python, with every mistake said at once."""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from inferometer.documents.files import file_bytes, stdin_bytes, text_in
from inferometer.documents.refused import RefusedError
from inferometer.errors import PlanError
from inferometer.plan import paths
from inferometer.plan.fields import Mistake
from inferometer.plan.flags import Flags, with_flags
from inferometer.plan.mistakes import mistakes_in
from inferometer.plan.model import Plan
from inferometer.plan.overrides import Override, override, parse_override
from inferometer.plan.text import as_written, parse_json, parse_yaml, refused


def read_plan(path: str | Path, overrides: Iterable[str] = (), flags: Flags | None = None) -> Plan:
    """The plan in a YAML or JSON file; `-` is standard input."""
    where = "stdin" if str(path) == "-" else str(path)
    mapping, twice = read_mapping(path)
    return plan_from(mapping, overrides, where, flags, also=twice)


def read_mapping(path: str | Path) -> tuple[dict[str, Any], list[str]]:
    """What a plan's file says, not yet checked, and the keys that it gives twice."""
    where = "stdin" if str(path) == "-" else str(path)
    text = stdin_text() if where == "stdin" else file_text(Path(path))
    is_json = where.endswith(".json") or (where == "stdin" and text.lstrip().startswith("{"))
    value, twice = (parse_json if is_json else parse_yaml)(text, where)
    if value is None:
        raise PlanError(f"{where}: is empty", "a plan has settings such as `load: {concurrency: 8}`")
    if not isinstance(value, dict):
        raise PlanError(f"{where}: must be settings by name such as `load: ...`, got {as_written(value)}")
    return value, twice


def file_text(path: Path) -> str:
    """The text of a plan's file; what keeps it from being read is said."""
    try:
        return text_in(file_bytes(path))
    except FileNotFoundError:
        hint = nearby(path) or "without a plan: inferometer run --url http://localhost:8000"
        raise PlanError(f"{path}: there is no such file", hint) from None
    except IsADirectoryError:
        raise PlanError(f"{path}: is a folder, not a plan") from None
    except OSError as error:
        raise PlanError(f"{path}: could not be read: {error.strerror}") from None
    except RefusedError as error:
        raise refused(error, str(path)) from None
    except ValueError as error:  # a zero byte in a path
        raise PlanError(f"{str(path)!r}: cannot be the name of a file: {error}") from None


def stdin_text() -> str:
    """The plan that comes on standard input."""
    try:
        return text_in(stdin_bytes())
    except RefusedError as error:
        raise refused(error, "stdin") from None


def nearby(path: Path) -> str | None:
    """The file of a name like this one, where there is one."""
    try:
        names = [each.name for each in path.parent.iterdir() if each.suffix in (".yaml", ".yml", ".json")]
    except OSError:
        names = []
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {path.parent / close[0]}?" if close else None


def plan_from(
    mapping: Mapping[str, Any],
    overrides: Iterable[str | Override] = (),
    where: str = "plan.yaml",
    flags: Flags | None = None,
    also: Iterable[str] = (),
) -> Plan:
    """The plan that a mapping says, changed by flags, then by overrides; `also` are mistakes found before."""
    mistakes, hints, typed = list(also), [], list(overrides)
    changed: Mapping[str, Any] = mapping
    try:
        changed = with_flags(changed, flags) if flags is not None else changed
    except PlanError as error:
        mistakes, hints = [*mistakes, *error.mistakes], [error.hint]
    for each in typed:
        try:
            changed = override(changed, [each])
        except PlanError as error:
            mistakes += error.mistakes
            hints.append(error.hint)
    plan, found = mistakes_in(changed)
    mistakes += [f"{_origin(mistake, typed) or where}: {_line(mistake)}" for mistake in found]
    if plan is None or mistakes:
        raise PlanError(mistakes, next((hint for hint in hints if hint), None))
    return plan


def _line(mistake: Mistake) -> str:
    return f"{paths.written(mistake.path)} {mistake.text}".lstrip()


def _origin(mistake: Mistake, typed: Iterable[str | Override]) -> str | None:
    """`--set`, where that and not the file holds the mistake."""
    for each in typed:
        try:
            steps = (parse_override(each) if isinstance(each, str) else each).path
        except PlanError:
            continue
        if [str(step) for step in mistake.path[: len(steps)]] == [str(step) for step in steps]:
            return "--set"
    return None
