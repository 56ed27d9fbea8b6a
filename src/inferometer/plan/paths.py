"""Paths into a plan, `load.stages[1].rate`: how they are written, what is at their end, and what was meant."""

import difflib
import types
import typing
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any, Union

from inferometer.plan.fields import Section
from inferometer.plan.model import Plan
from inferometer.plan.workloads import section_of

PlanPath = tuple[str | int, ...]
ANYTHING = object()  # below `extra`, `args` and `headers` every key is right


def written(path: Sequence[str | int]) -> str:
    """`("load", "stages", 1, "rate")` as `load.stages[1].rate`; keys with dots are quoted."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (f'"{step}"' if not step or set(step) & set('.[]"=') else step)
    return text


def kind_at(path: Sequence[str | int]) -> Any:
    """The type at the end of a path, `ANYTHING` where keys are free, `None` where the plan has no such path."""
    kinds = _kinds_at(path)
    return next((kind for kind in kinds if kind is ANYTHING), kinds[0] if kinds else None)


def _kinds_at(path: Sequence[str | int]) -> list[Any]:
    """The types that may be at the end of a path: where one of several sections may stand, any of theirs."""
    kinds: list[Any] = [Plan]
    for step in path:
        kinds = [part for kind in kinds for part in _members(_below(kind, step))]
    return kinds


def _below(kind: Any, step: str | int) -> Any:
    if _is_section(kind):
        field = kind.model_fields.get(str(step))
        return None if field is None else field.annotation
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return inner[0] if isinstance(step, int) else None
    return ANYTHING if origin is dict or kind is ANYTHING else None


def _members(kind: Any) -> list[Any]:
    """The types that a union holds, without `Annotated` and `None`; of one that is no union, itself."""
    if kind is None or kind is types.NoneType:
        return []
    if typing.get_origin(kind) is Annotated:
        return _members(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (Union, types.UnionType):
        return [part for member in typing.get_args(kind) for part in _members(member)]
    return [kind]


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def sections_at(path: Sequence[str | int]) -> list[type[Section]]:
    """The sections that may stand at the end of a path."""
    return list(dict.fromkeys(kind for kind in _kinds_at(path) if _is_section(kind)))


def section_at(path: Sequence[str | int], plan: Any = None) -> type[Section] | None:
    """The section at the end of a path, where there is one; of several kinds, the one that the plan has there."""
    sections = sections_at(path)
    if len(sections) < 2:
        return sections[0] if sections else None
    try:
        section = section_of(value_at(plan, path))
    except KeyError:
        section = None
    return section if section in sections else sections[0]


def holds_list(path: Sequence[str | int]) -> bool:
    """Whether a list is, or with free keys may be, at the end of a path."""
    return any(kind is ANYTHING or typing.get_origin(kind) is list for kind in _kinds_at(path))


def holds_text(path: Sequence[str | int]) -> bool:
    """Whether text is at the end of a path, and nothing else can be."""
    kinds = _kinds_at(path)
    return bool(kinds) and all(kind is str for kind in kinds)


def meant(path: Sequence[str | int], plan: Any = None) -> list[str]:
    """Paths that a person may have meant by one that the plan does not have, best first."""
    above, last = path[:-1], str(path[-1])
    section = section_at(above, plan)
    sections = [section] if section and plan is not None else sections_at(above)
    siblings = list(dict.fromkeys(name for candidate in sections for name in candidate.model_fields))
    close = [written((*above, name)) for name in difflib.get_close_matches(last, siblings, n=3, cutoff=0.6)]
    elsewhere = [
        known
        for known in known_paths()
        if known.rpartition(".")[2] == last and "[" not in known and known != written(path)
    ]
    return (close + elsewhere)[:3] or difflib.get_close_matches(written(path), known_paths(), n=2, cutoff=0.7)


@cache
def known_paths() -> tuple[str, ...]:
    """Every path that the plan has, with `[0]` for the entries of a list."""
    return tuple(dict.fromkeys(written(path) for path in _walk(Plan, ())))


def _walk(kind: Any, path: PlanPath, above: tuple[Any, ...] = ()) -> Iterator[PlanPath]:
    """A section within itself, such as the server of a fleet's replicas, is not entered again."""
    if path:
        yield path
    for member in _members(kind):
        if member in above:
            continue
        if _is_section(member):
            for name, field in member.model_fields.items():
                yield from _walk(field.annotation, (*path, name), (*above, member))
        elif typing.get_origin(member) is list and section_at((*path, 0)):
            yield from _walk(typing.get_args(member)[0], (*path, 0), above)


def value_at(mapping: Any, path: Sequence[str | int]) -> Any:
    """What was written at a path; `KeyError` where nothing was."""
    for step in path:
        try:
            below = mapping[step]
        except (LookupError, TypeError):
            raise KeyError(written(path)) from None
        if isinstance(mapping, str):  # a text has letters, not settings
            raise KeyError(written(path))
        mapping = below
    return mapping
