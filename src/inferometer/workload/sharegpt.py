"""ShareGPT's schema, `conversations` of `from` and `value`; with `function_call` and `observation` for tools."""

from collections.abc import Iterator
from typing import Any

import orjson

from inferometer.workload.conversation import Columns, Conversation, Json, at, joined, list_at, mapping, user
from inferometer.workload.rows import RowError
from inferometer.workload.tools import as_tools

_ROLES = dict.fromkeys(("human", "user"), "user")
_ROLES |= dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "assistant", "model"), "assistant")
_ROLES |= dict.fromkeys(("observation", "tool", "function_response"), "tool")
_ROLES |= {"system": "system", "function_call": "function_call"}


def read(row: Any, columns: Columns) -> Iterator[Conversation]:
    """One conversation per row; `items` stands for `conversations` in the oldest files."""
    old = "items" in mapping(row) and "conversations" not in columns
    names = {**columns, "conversations": "items"} if old else columns
    told: list[Json] = []
    if system := row.get(columns.get("system", "system")):
        told.append({"role": "system", "content": str(system)})
    for message in list_at(row, names, "conversations"):
        told.append(_message(message, columns, told))
    messages = joined(told)
    if not any(message["role"] == "user" for message in messages):
        raise RowError("has no message of a user")
    yield Conversation(messages, as_tools(row.get(columns.get("tools", "tools"))))


def _message(message: Any, columns: Columns, before: list[Json]) -> Json:
    said, value = at(message, columns, "from"), at(message, columns, "value")
    role = _ROLES.get(said) if isinstance(said, str) else None
    if role is None:
        raise RowError(f"has a message from {said!r}; known are {', '.join(_ROLES)}")
    if not isinstance(value, str):
        raise RowError(f"has a message from {said} that is not a text")
    if role == "user":
        return user(value)
    if role == "function_call":
        return {"role": "assistant", "content": None, "tool_calls": _calls(value, len(before))}
    return {"role": role, "content": value} | ({"tool_call_id": _answered(before)} if role == "tool" else {})


def _calls(value: str, place: int) -> list[Json]:
    """What the model called, as chat APIs write it: the arguments are a text of JSON."""
    try:
        calls = orjson.loads(value)
    except orjson.JSONDecodeError:
        raise RowError("has a function_call that is not JSON") from None
    made = []
    for number, call in enumerate(calls if isinstance(calls, list) else [calls]):
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            raise RowError("has a function_call without the name of a function")
        arguments = call.get("arguments", {})
        text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
        function = {"name": call["name"], "arguments": text}
        made.append({"id": f"call_{place}_{number}", "type": "function", "function": function})
    return made


def _answered(before: list[Json]) -> str:
    """The call that an observation answers: the first of the last calls that has no answer yet."""
    answered = {message["tool_call_id"] for message in before if message["role"] == "tool"}
    calls: list[Json] = next((message["tool_calls"] for message in reversed(before) if "tool_calls" in message), [])
    for call in calls:
        if call["id"] not in answered:
            return str(call["id"])
    raise RowError("has an observation that no function_call asked for")
