"""The functions that a conversation offers to the model, as chat APIs want them in the body."""

from typing import Any

import orjson

from inferometer.workload.conversation import Json
from inferometer.workload.rows import RowError


def as_tools(value: Any) -> list[Json]:
    """From a list of functions or of tools, or from a text of either."""
    if isinstance(value, str):
        value = _parsed(value)
    if not value:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise RowError("has 'tools' that are not a list of functions")
    return [each if each.get("type") == "function" else {"type": "function", "function": each} for each in value]


def _parsed(text: str) -> Any:
    if not text.strip():
        return []
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise RowError("has 'tools' that are not JSON") from None
