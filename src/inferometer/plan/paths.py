"""Paths into a plan, `load.stages[1].rate`: how they are written, what is at their end, and what was meant."""

import difflib
import types
import typing
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any, Union

from inferometer.plan.fields import Section
from inferometer.plan.model import Plan

Path = tuple[str | int, ...]
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
    kind: Any = Plan
    for step in path:
        kind = _below(kind, step)
        if kind is None or kind is ANYTHING:
            break
    return kind


def _below(kind: Any, step: str | int) -> Any:
    kind = _bare(kind)
    if isinstance(kind, type) and issubclass(kind, Section):
        field = kind.model_fields.get(str(step))
        return None if field is None else field.annotation
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return inner[0] if isinstance(step, int) else None
    return ANYTHING if origin is dict else None


def _bare(kind: Any) -> Any:
    """The type without `Annotated` and `| None`."""
    while typing.get_origin(kind) in (Annotated, Union, types.UnionType):
        kind = next(part for part in typing.get_args(kind) if part is not types.NoneType)
    return kind


def section_at(path: Sequence[str | int]) -> type[Section] | None:
    """The section at the end of a path, where there is one."""
    kind = _bare(kind_at(path))
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def holds_list(path: Sequence[str | int]) -> bool:
    """Whether a list is, or with free keys may be, at the end of a path."""
    kind = kind_at(path)
    return kind is ANYTHING or typing.get_origin(_bare(kind)) is list


def meant(path: Sequence[str | int]) -> list[str]:
    """Paths that a person may have meant by one that the plan does not have, best first."""
    above, last = path[:-1], str(path[-1])
    section = section_at(above)
    siblings = list(section.model_fields) if section else []
    close = [written((*above, name)) for name in difflib.get_close_matches(last, siblings, n=3, cutoff=0.6)]
    elsewhere = [known for known in known_paths() if known.rpartition(".")[2] == last and "[" not in known]
    return (close + elsewhere)[:3] or difflib.get_close_matches(written(path), known_paths(), n=2, cutoff=0.7)


@cache
def known_paths() -> tuple[str, ...]:
    """Every path that the plan has, with `[0]` for the entries of a list."""
    return tuple(written(path) for path in _walk(Plan, ()))


def _walk(kind: Any, path: Path) -> Iterator[Path]:
    kind = _bare(kind)
    if path:
        yield path
    if isinstance(kind, type) and issubclass(kind, Section):
        for name, field in kind.model_fields.items():
            yield from _walk(field.annotation, (*path, name))
    elif typing.get_origin(kind) is list and section_at((*path, 0)):
        yield from _walk(typing.get_args(kind)[0], (*path, 0))


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
