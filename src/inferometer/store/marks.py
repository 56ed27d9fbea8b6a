"""What people say of a run afterwards, kept in its folder beside what was measured: its tags, the names under which it
is a baseline, the experiment it is a case of. `marks.json` may change; every other file of a finished run stays.
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import orjson

from inferometer.errors import PlanError, StoreError
from inferometer.record.files import replacing
from inferometer.record.schema import check_schema, schema_of
from inferometer.store.damage import file_bytes, is_there
from inferometer.store.shapes import checked

MARKS = "marks.json"
_WORD = re.compile(r"[A-Za-z0-9][\w.:/+@-]{0,99}")


@dataclass(frozen=True)
class Marks:
    tags: frozenset[str] = frozenset()
    baselines: dict[str, str] = field(default_factory=dict)  # name to the instant at which it was set: the last counts
    experiment: str | None = None
    case: str | None = None

    def tagged(self, *more: str) -> Self:
        return replace(self, tags=self.tags | set(more))

    def untagged(self, *less: str) -> Self:
        return replace(self, tags=self.tags - set(less))

    def as_baseline(self, name: str, set_at: str) -> Self:
        return replace(self, baselines={**self.baselines, name: set_at})

    def not_baseline(self, name: str) -> Self:
        return replace(self, baselines={each: at for each, at in self.baselines.items() if each != name})

    def as_case(self, experiment: str, case: str | None) -> Self:
        return replace(self, experiment=experiment, case=case)


def checked_word(text: str, what: str) -> str:
    """A tag or a baseline's name as it can be written in commands and lists."""
    if _WORD.fullmatch(text):
        return text
    hint = "write letters, digits and . _ - : / + @, at most 100 of them, a letter or digit first"
    raise PlanError(f"{what} {text!r} cannot be used as one word", hint)


def read_marks(folder: Path) -> Marks:
    file = folder / MARKS
    if not is_there(file):
        return Marks()
    try:
        return marks_of(orjson.loads(file_bytes(file)), file)
    except orjson.JSONDecodeError as error:
        raise StoreError(f"{file}: not JSON: {error}") from error


def marks_of(content: Any, where: object) -> Marks:
    if not isinstance(content, dict):
        raise StoreError(f"{where}: expected a JSON object, got {type(content).__name__}")
    check_schema(where, "marks", content.get("schema"))
    marks = checked(content, "marks", where)
    return Marks(
        tags=frozenset(marks.get("tags") or ()),
        baselines=dict(marks.get("baselines") or {}),
        experiment=marks.get("experiment"),
        case=marks.get("case"),
    )


def marks_bytes(marks: Marks) -> bytes:
    said = {"tags": sorted(marks.tags), "baselines": marks.baselines}
    case = {} if marks.experiment is None else {"experiment": marks.experiment, "case": marks.case}
    return orjson.dumps({"schema": schema_of("marks"), **said, **case}, option=orjson.OPT_INDENT_2)


def write_marks(folder: Path, marks: Marks) -> None:
    with replacing(folder / MARKS) as draft:
        draft.write_bytes(marks_bytes(marks))
