"""What the files of a site say: the same documents as the API's answers, less what is nobody's business."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import orjson

from inferometer.record.harmless import json_text
from inferometer.show.dashboard.documents import row
from inferometer.show.dashboard.families import Family, summary_of
from inferometer.store.entry import Entry

AT_ONCE = 500  # runs a file: 100 KB
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
PRIVATE = {"host", "hosts", "command", "argv", "env", "environ", "log", "url", "urls", "headers", "pid", "cwd", "user"}


def script(name: str, content: object) -> bytes:
    """Data that a page loads by a script element: unlike `fetch`, that also works for files opened from a disk."""
    return b'inferometer.put("' + name.encode() + b'",' + json_text(content, _OPTIONS).encode() + b");\n"


def public(value: Any) -> Any:
    """Plain data without places, commands and names of machines: a site is for everybody."""
    if isinstance(value, Mapping):
        return {name: public(each) for name, each in value.items() if str(name).lower() not in PRIVATE}
    return [public(each) for each in value] if isinstance(value, list | tuple) else value


def file_of(key: str) -> str:
    """A key as the name of a file; one of somebody's own may have anything in it."""
    return key if _SAFE.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()[:16]


def lists(entries: Sequence[Entry]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The table of runs in files of a month each, so that a new run changes one of them and moves no other."""
    ordered = sorted(entries, key=lambda entry: entry.id)
    for month, group in groupby(ordered, lambda entry: file_of(entry.id[:6].lower())):
        own = [row(entry) for entry in group]
        for start in range(0, len(own), AT_ONCE):
            yield f"list/{month}-{start // AT_ONCE}", columnar(own[start : start + AT_ONCE])


def columnar(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows with the names of their columns once: a fifth of the size."""
    plain = _names(rows, but=("values", "more", "target"))
    numbers = list(dict.fromkeys(key for each in rows for key in each["values"]))
    lines = [
        [*(each.get(name) for name in plain), *(_rounded(each["values"].get(key)) for key in numbers)] for each in rows
    ]
    return {"plain": plain, "numbers": numbers, "rows": lines}


def _rounded(value: float | None) -> float | None:
    """To eight digits: conditions are checked on it, and find the same runs as `inferometer list`."""
    return None if value is None else float(f"{value:.8g}")


def _names(rows: Sequence[Mapping[str, Any]], but: Sequence[str]) -> list[str]:
    return [name for name in dict.fromkeys(name for each in rows for name in each) if name not in but]


def family_of(family: Family) -> dict[str, Any]:
    said = summary_of(family)
    return said | {"measures": [each | {"file": file_of(each["key"])} for each in said["measures"]]}
