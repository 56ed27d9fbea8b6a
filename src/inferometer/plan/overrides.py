"""`--set path=value`: one setting of a plan changed from the command line, wherever it is."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from inferometer.errors import PlanError
from inferometer.plan import paths, short
from inferometer.plan.text import parse_yaml

APPEND: Final = "[+]"
_STEP = re.compile(r'\.?(?:"((?:[^"\\]|\\.)*)"|\[(\d+|\+)\]|([^.\[\]"=\s]+))')


@dataclass(frozen=True, slots=True)
class Override:
    """Where, and what; a step is a key, an index or `[+]`: one more entry."""

    path: paths.Path
    value: Any
    name: str  # the path as it was typed


def parse_override(text: str) -> Override:
    """`load.stages[0].rate=5`, `outputs[+]={format: csv, path: x.csv}`, `target.headers."x.y"=1`."""
    path, at = _parse_path(text)
    if not path or text[at : at + 1] != "=":
        raise PlanError(f"--set {text}: must be path=value, such as load.rate=5")
    return Override(path, _value(path, text[at + 1 :], f"--set {text[:at]}"), text[:at])


def _value(path: paths.Path, text: str, where: str) -> Any:
    """As YAML reads it; where the plan has nothing but text, what YAML would read as something else is the text."""
    wants_text = paths.holds_text(tuple(0 if step == APPEND else step for step in path))
    try:
        value, twice = parse_yaml(text, where)
    except PlanError:
        if wants_text:
            return text.strip()
        raise
    if wants_text and not isinstance(value, str | None):
        return text.strip()
    if twice:
        raise PlanError(twice)
    return value


def _parse_path(text: str) -> tuple[paths.Path, int]:
    steps: list[str | int] = []
    at = 0
    while match := _STEP.match(text, at):
        if bool(steps) != match[0].startswith((".", "[")):
            break
        quoted, index, plain = match.groups()
        if index is not None:
            steps.append(APPEND if index == "+" else int(index))
        else:
            steps.append(plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = match.end()
    return tuple(steps), at


def override(plan: Mapping[str, Any], overrides: Iterable[str | Override]) -> dict[str, Any]:
    """The plan with each override made, the last one winning; every one that cannot be made is named."""
    changed, mistakes = short.long(plan), []
    for each in overrides:
        try:
            made = parse_override(each) if isinstance(each, str) else each
            changed = short.long(_with(changed, made.path, (), made))
        except PlanError as error:
            mistakes += error.mistakes
    if mistakes:
        raise PlanError(mistakes)
    return changed


def _with(there: Any, steps: paths.Path, above: paths.Path, made: Override) -> Any:
    """A copy of what is there, with the value at the end of the steps."""
    if not steps:
        return made.value
    if _is_list(there, above, steps[0]):
        return _with_entry([] if there is None else there, steps, above, made)
    if isinstance(steps[0], int) or steps[0] == APPEND:
        raise PlanError(f"--set {made.name}: {paths.written(above) or 'the plan'} is not a list")
    if there is not None and not isinstance(there, Mapping):
        raise PlanError(f"--set {made.name}: {paths.written(above)} has nothing below it")
    name = steps[0]
    path = (*above, name)
    if paths.kind_at(path) is None:
        raise PlanError(f"--set {made.name}: {paths.written(path)} is not a setting{_meant(path)}")
    return {**(there or {}), name: _with((there or {}).get(name), steps[1:], path, made)}


def _is_list(there: Any, above: paths.Path, step: str | int) -> bool:
    """Free keys may be digits, so below them only `[0]` and `[+]` make a list."""
    if there is not None:
        return isinstance(there, list)
    numbered = (
        isinstance(step, int) or step == APPEND or (step.isdigit() and paths.kind_at(above) is not paths.ANYTHING)
    )
    return numbered and paths.holds_list(above)


def _with_entry(entries: list[Any], steps: paths.Path, above: paths.Path, made: Override) -> list[Any]:
    at = _index(entries, steps[0], above, made)
    present = entries[at] if at < len(entries) else None
    return [*entries[:at], _with(present, steps[1:], (*above, at), made), *entries[at + 1 :]]


def _index(entries: list[Any], step: str | int, above: paths.Path, made: Override) -> int:
    """The entry that is meant: by number, by `[+]` for one more, or by its name."""
    if step == APPEND:
        return len(entries)
    named = [at for at, each in enumerate(entries) if isinstance(each, Mapping) and each.get("name") == step]
    if named:
        return named[0]
    if isinstance(step, int) or step.isdigit():
        if int(step) < len(entries):
            return int(step)
        has = f"has {len(entries)} entries, the first is [0]" if entries else "has no entries"
        raise PlanError(f"--set {made.name}: {paths.written(above)} {has}; [+] adds one")
    raise PlanError(f"--set {made.name}: {paths.written(above)} is a list: write {paths.written(above)}[0]")


def _meant(path: paths.Path) -> str:
    close = paths.meant(path)
    return f"; did you mean {' or '.join(close)}?" if close else ""
