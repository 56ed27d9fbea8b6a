"""Plain data of a document at a path, for tests that know what is there."""

from typing import Any

from inferometer.documents.document import JsonValue


def at(value: JsonValue, *path: str | int) -> Any:
    part: Any = value
    for step in path:
        part = part[step]
    return part
