"""The schemas of datasets by the type that a plan names: rows of chat messages, ShareGPT's and OpenAssistant's
conversations, questions and tables, as conversations."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from inferometer.vocabulary import attribute_at
from inferometer.workload.conversation import (
    Columns,
    Conversation,
    Json,
    Reader,
    at,
    exchange,
    joined,
    list_at,
    mapping,
    text_at,
    user,
)
from inferometer.workload.rows import RowError

# -- formats ---------------------------------------------------------------------------------------------------------

READERS = {
    "sharegpt": "inferometer.workload.formats:read_sharegpt",
    "messages": "inferometer.workload.formats:read_messages",
    "oasst": "inferometer.workload.formats:read_best",
    "oasst all": "inferometer.workload.formats:read_all",
    "mt_bench": "inferometer.workload.formats:mt_bench",
    "humaneval": "inferometer.workload.formats:humaneval",
    "prompts": "inferometer.workload.formats:line",
    "table": "inferometer.workload.formats:table",
}


def reader_of(kind: str) -> Reader:
    reader: Reader = attribute_at(READERS[kind])
    return reader


def looks_like(row: Any) -> str | None:
    """The type that a row seems to be of."""
    if isinstance(row, str):
        return "prompts"
    if not isinstance(row, Mapping):
        return "messages" if isinstance(row, list) else None
    if "conversations" in row or "items" in row:
        return "sharegpt"
    if "messages" in row:
        return "messages"
    if isinstance(row.get("prompt"), Mapping) and "replies" in row["prompt"]:
        return "oasst"
    if "turns" in row:
        return "mt_bench"
    if "canonical_solution" in row:
        return "humaneval"
    return "table" if isinstance(row.get("prompt"), str) else None


# -- tools -----------------------------------------------------------------------------------------------------------


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


# -- messages --------------------------------------------------------------------------------------------------------

_ROLES = ("system", "developer", "user", "assistant", "tool")


def read_messages(row: Any, columns: Columns) -> Iterator[Conversation]:
    """One list per row, sent as it is; the row may be the bare list."""
    whole = {columns.get("messages", "messages"): row} if isinstance(row, list) else mapping(row)
    messages = [_message(each, columns) for each in list_at(whole, columns, "messages")]
    if not any(message["role"] == "user" for message in messages):
        raise RowError("has no message of a user")
    yield Conversation(messages, as_tools(whole.get(columns.get("tools", "tools"))))


def _message(message: Any, columns: Columns) -> Json:
    role = at(message, columns, "role")
    if role not in _ROLES:
        raise RowError(f"has a message of the role {role!r}; known are {', '.join(_ROLES)}")
    content = at(message, columns, "content") if not message.get("tool_calls") else message.get("content")
    if content is not None and not isinstance(content, str | list):
        raise RowError(f"has a message of the {role} that is neither text nor parts")
    if content is None and not message.get("tool_calls"):
        raise RowError(f"has a message of the {role} without content")
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise RowError("has tool_calls that are not a list of calls")
    renamed = (columns.get("role"), columns.get("content"))
    kept = {name: value for name, value in message.items() if value is not None and name not in renamed}
    return kept | {"role": role, "content": content}


# -- oasst -----------------------------------------------------------------------------------------------------------

_OASST_ROLES = {"prompter": "user", "assistant": "assistant"}
_UNRANKED = 1_000_000


def read_best(row: Any, columns: Columns) -> Iterator[Conversation]:
    """The path that takes the best-ranked reply at every fork; without ranks the first."""
    yield next(_paths(_root(row, columns), [], columns))


def read_all(row: Any, columns: Columns) -> Iterator[Conversation]:
    """Every path from the root to a leaf, the best first."""
    yield from _paths(_root(row, columns), [], columns)


def _root(row: Any, columns: Columns) -> Json:
    root = mapping(at(row, columns, "prompt"))
    if root.get("deleted"):
        raise RowError("is a tree whose prompt was deleted")
    return root


def _paths(node: Json, above: list[Json], columns: Columns) -> Iterator[Conversation]:
    role = str(at(node, columns, "role"))
    if role not in _OASST_ROLES:
        raise RowError(f"has a message of the role {role!r}; known are {', '.join(_OASST_ROLES)}")
    path = [*above, {"role": _OASST_ROLES[role], "content": text_at(node, columns, "text")}]
    below = at(node, columns, "replies") or []
    if not isinstance(below, list):
        raise RowError("has replies that are not a list")
    replies = [each for each in below if not mapping(each).get("deleted")]
    if not replies:
        yield Conversation(path)
    for reply in sorted(replies, key=lambda each: _rank(each, columns)):
        yield from _paths(reply, path, columns)


def _rank(reply: Json, columns: Columns) -> int:
    rank = reply.get(columns.get("rank", "rank"))
    return rank if isinstance(rank, int) else _UNRANKED


# -- questions -------------------------------------------------------------------------------------------------------


def mt_bench(row: Any, columns: Columns) -> Iterator[Conversation]:
    """Questions that follow each other; no answers are recorded, so that a later one needs a live answer before it."""
    told: list[Json] = []
    for question in list_at(row, columns, "turns"):
        if not isinstance(question, str):
            raise RowError("has a turn that is not a text")
        if told:
            told.append({"role": "assistant", "content": ""})
        told.append(user(question))
    yield Conversation(told, unanswered=len(told) > 1)


def humaneval(row: Any, columns: Columns) -> Iterator[Conversation]:
    """The head of a function, with the canonical solution as the recorded answer."""
    answer = mapping(row).get(columns.get("answer", "canonical_solution"))
    yield exchange(text_at(row, columns, "prompt"), answer if isinstance(answer, str) else None)


def line(row: Any, _columns: Columns) -> Iterator[Conversation]:
    """A line is a prompt."""
    if not row.strip():
        raise RowError("is empty")
    yield exchange(row)


def table(row: Any, columns: Columns) -> Iterator[Conversation]:
    """A prompt, or a list of messages, in a column; what else is known of it in others."""
    if "messages" in columns:
        (made,) = read_messages(row, columns)
    else:
        system, answer = _optional(row, columns, "system"), _optional(row, columns, "answer")
        made = exchange(text_at(row, columns, "prompt"), answer, system)
        made.tools = as_tools(_optional_value(row, columns, "tools"))
    made.output_tokens = _length(_optional_value(row, columns, "output_tokens"), columns)
    yield made


def _optional_value(row: Any, columns: Columns, name: str) -> Any:
    """The value of a column that was named must be there; of one that was not, may be."""
    own = columns.get(name)
    if own is not None and own not in mapping(row):
        raise RowError(f"has no {own!r}, it has {', '.join(map(str, list(row)[:8]))}")
    return mapping(row).get(own or name)


def _optional(row: Any, columns: Columns, name: str) -> str | None:
    value = _optional_value(row, columns, name)
    if value is not None and not isinstance(value, str):
        raise RowError(f"has a {columns.get(name, name)!r} that is not a text")
    return value or None


def _length(value: Any, columns: Columns) -> int | None:
    if value is None or value == "":
        return None
    try:
        length = int(value)
    except (TypeError, ValueError):
        length = 0
    if length < 1 or isinstance(value, bool):
        raise RowError(f"has {value!r} as {columns.get('output_tokens', 'output_tokens')!r}, not a number of tokens")
    return length


# -- sharegpt --------------------------------------------------------------------------------------------------------

_SHAREGPT_ROLES = dict.fromkeys(("human", "user"), "user")
_SHAREGPT_ROLES |= dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "assistant", "model"), "assistant")
_SHAREGPT_ROLES |= dict.fromkeys(("observation", "tool", "function_response"), "tool")
_SHAREGPT_ROLES |= {"system": "system", "function_call": "function_call"}


def read_sharegpt(row: Any, columns: Columns) -> Iterator[Conversation]:
    """One conversation per row; `items` stands for `conversations` in the oldest files."""
    old = "items" in mapping(row) and "conversations" not in columns
    names = {**columns, "conversations": "items"} if old else columns
    told: list[Json] = []
    if system := row.get(columns.get("system", "system")):
        told.append({"role": "system", "content": str(system)})
    for message in list_at(row, names, "conversations"):
        told.append(_sharegpt_message(message, columns, told))
    messages = joined(told)
    if not any(message["role"] == "user" for message in messages):
        raise RowError("has no message of a user")
    yield Conversation(messages, as_tools(row.get(columns.get("tools", "tools"))))


def _sharegpt_message(message: Any, columns: Columns, before: list[Json]) -> Json:
    said, value = at(message, columns, "from"), at(message, columns, "value")
    role = _SHAREGPT_ROLES.get(said) if isinstance(said, str) else None
    if role is None:
        raise RowError(f"has a message from {said!r}; known are {', '.join(_SHAREGPT_ROLES)}")
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
