"""`Conversation`, the common form of dataset rows, and readers for the dataset types of plans: chat messages,
ShareGPT's and OpenAssistant's conversations, questions and tables."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import orjson

from inferometer.plan.workloads.recorded import MEDIA
from inferometer.vocabulary import attribute_at
from inferometer.workload.media import media_parts
from inferometer.workload.rows import MISSING, RowError, reached

Json = dict[str, Any]


Columns = dict[str, str]  # our name of a field -> the file's


RowReader = Callable[[Any, Columns], Iterable["Conversation"]]  # raises `RowError` if a row does not fit the schema


@dataclass(slots=True)
class Conversation:
    """Recorded chat messages including answers. `output_tokens` are the requested lengths, if the file has them."""

    messages: list[Json]
    tools: list[Json] = field(default_factory=list)
    output_tokens: int | None = None
    unanswered: bool = False  # its answers are empty, to be replaced by live ones

    def turn_ends(self) -> list[int]:
        """The number of messages in each request: up to each message that an answer follows, or the last one."""
        roles = [message["role"] for message in self.messages] + ["assistant"]
        return [at + 1 for at in range(len(self.messages)) if roles[at] in _ASKING and roles[at + 1] == "assistant"]


_ASKING = ("user", "tool")


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def exchange(prompt: str, answer: str | None = None, system: str | None = None) -> Conversation:
    """A conversation of a single question, with its recorded answer if there is one."""
    before = [{"role": "system", "content": system}] if system else []
    after = [{"role": "assistant", "content": answer}] if answer else []
    return Conversation([*before, user(prompt), *after])


def joined(messages: list[Json]) -> list[Json]:
    """Messages as chat templates require them: no answer before the first question, consecutive texts of a role
    joined."""
    kept: list[Json] = []
    for message in messages:
        if message["role"] == "assistant" and not any(earlier["role"] in _ASKING for earlier in kept):
            continue
        if kept and _is_text(message) and _is_text(kept[-1]) and kept[-1]["role"] == message["role"]:
            kept[-1] = {**kept[-1], "content": f"{kept[-1]['content']}\n\n{message['content']}"}
        else:
            kept.append(message)
    return kept


def _is_text(message: Json) -> bool:
    return isinstance(message.get("content"), str) and message["role"] != "tool" and "tool_calls" not in message


# -- looking into rows ---------------------------------------------------------------------------------------


def mapping(row: Any) -> Json:
    if not isinstance(row, dict):
        raise RowError(f"is {_kind(row)}, not a mapping")
    return row


def at(row: Any, columns: Columns, name: str) -> Any:
    """The value of a field by our name for it."""
    own = columns.get(name, name)
    value = reached(mapping(row), own)
    if value is MISSING:
        raise RowError(f"has no {own!r}, it has {_listed(row)}")
    return value


def text_at(row: Any, columns: Columns, name: str) -> str:
    value = at(row, columns, name)
    if not isinstance(value, str):
        raise RowError(f"has {_kind(value)} as {columns.get(name, name)!r}, not a text")
    if not value.strip():
        raise RowError(f"has an empty {columns.get(name, name)!r}")
    return value


def list_at(row: Any, columns: Columns, name: str) -> list[Any]:
    value = at(row, columns, name)
    if not isinstance(value, list):
        raise RowError(f"has {_kind(value)} as {columns.get(name, name)!r}, not a list")
    if not value:
        raise RowError(f"has an empty list of {columns.get(name, name)!r}")
    return value


def _listed(row: Json) -> str:
    return ", ".join(map(str, list(row)[:8])) or "nothing"


_KINDS = {str: "a text", list: "a list", dict: "a mapping", bool: "true or false", type(None): "null"}


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "a number")


# -- formats ---------------------------------------------------------------------------------------------------------

TEMPLATE = "template"  # in addition to the columns: combines several of them to a prompt
_FIELD = re.compile(r"\{([^{}]+)\}")

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


def reader_of(kind: str, turns: str = "single") -> RowReader:
    reader: RowReader = attribute_at(READERS[kind])
    return partial(_questions, reader) if turns == "questions" else reader


def _questions(reader: RowReader, row: Any, columns: Columns) -> Iterator[Conversation]:
    """The questions of a conversation as one, without their answers."""
    for conversation in reader(row, columns):
        texts: dict[str, list[str]] = {"system": [], "user": []}
        for message in conversation.messages:
            if message["role"] in texts and isinstance(message["content"], str):
                texts[message["role"]].append(message["content"])
        system, user = (" ".join(texts[role]) for role in ("system", "user"))
        yield replace(exchange(user, None, system), tools=conversation.tools, output_tokens=conversation.output_tokens)


def looks_like(row: Any) -> str | None:
    """The likely type of a row."""
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
    """Tools from a list of functions or of tools, or from its JSON text."""
    if isinstance(value, str):
        value = _parsed(value)
    if not value:
        return []
    if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
        raise RowError("has 'tools' that are not a list of functions")
    return [_tool(tool) for tool in value]


def _tool(tool: Json) -> Json:
    """A tool in the format of chat completions, also from the flat format of the Responses API and GenAI spans."""
    if "function" in tool:
        return tool
    flat = {name: value for name, value in tool.items() if (name, value) != ("type", "function")}
    return {"type": "function", "function": flat}


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
    messages = [_message(message, columns) for message in list_at(whole, columns, "messages")]
    if not any(message["role"] == "user" for message in messages):
        raise RowError("has no user message")
    tools = reached(whole, columns.get("tools", "tools"))
    yield Conversation(messages, as_tools(None if tools is MISSING else tools))


def _message(message: Any, columns: Columns) -> Json:
    role = at(message, columns, "role")
    if role not in _ROLES:
        raise RowError(f"has a message with role {role!r}; known are {', '.join(_ROLES)}")
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
    """The path with the best-ranked reply at every fork; without ranks the first."""
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
        raise RowError(f"has a message with role {role!r}; known are {', '.join(_OASST_ROLES)}")
    path = [*above, {"role": _OASST_ROLES[role], "content": text_at(node, columns, "text")}]
    below = at(node, columns, "replies") or []
    if not isinstance(below, list):
        raise RowError("has replies that are not a list")
    replies = [reply for reply in below if not mapping(reply).get("deleted")]
    if not replies:
        yield Conversation(path)
    for reply in sorted(replies, key=lambda reply: _rank(reply, columns)):
        yield from _paths(reply, path, columns)


def _rank(reply: Json, columns: Columns) -> int:
    rank = reply.get(columns.get("rank", "rank"))
    return rank if isinstance(rank, int) else _UNRANKED


# -- questions -------------------------------------------------------------------------------------------------------


def mt_bench(row: Any, columns: Columns) -> Iterator[Conversation]:
    """Consecutive questions without recorded answers, so a later question needs a live answer before it."""
    messages: list[Json] = []
    for question in list_at(row, columns, "turns"):
        if not isinstance(question, str):
            raise RowError("has a turn that is not a text")
        if messages:
            messages.append({"role": "assistant", "content": ""})
        messages.append(user(question))
    yield Conversation(messages, unanswered=len(messages) > 1)


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
    """A prompt or a list of messages in a column, with further data in others. A column with an image, sound or a
    video makes the prompt a message of several parts."""
    if "messages" in columns:
        (made,) = read_messages(row, columns)
    else:
        system, answer = _optional(row, columns, "system"), _optional(row, columns, "answer")
        made = exchange(_prompt(row, columns), answer, system)
        if media := media_parts(row, columns):
            question = made.messages[1 if system else 0]
            question["content"] = [
                *media,
                *([{"type": "text", "text": question["content"]}] if question["content"] else []),
            ]
        made.tools = as_tools(_optional_value(row, columns, "tools"))
    made.output_tokens = _length(_optional_value(row, columns, "output_tokens"), columns)
    yield made


def _prompt(row: Any, columns: Columns) -> str:
    """The text of a column or of several; empty if only media are sent."""
    template = columns.get(TEMPLATE)
    if template is not None:
        return _FIELD.sub(lambda match: text_at(row, {match[1]: match[1]}, match[1]), template)
    if "prompt" not in columns and any(name in columns for name in MEDIA):
        return ""
    return text_at(row, columns, "prompt")


def _optional_value(row: Any, columns: Columns, name: str) -> Any:
    """The value of a column: required if the plan names the column, else optional."""
    own = columns.get(name)
    value = reached(mapping(row), own or name)
    if own is not None and value is MISSING:
        raise RowError(f"has no {own!r}, it has {', '.join(map(str, list(row)[:8]))}")
    return None if value is MISSING else value


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
    turns: list[Json] = []
    if system := row.get(columns.get("system", "system")):
        turns.append({"role": "system", "content": str(system)})
    for message in list_at(row, names, "conversations"):
        turns.append(_sharegpt_message(message, columns, turns))
    messages = joined(turns)
    if not any(message["role"] == "user" for message in messages):
        raise RowError("has no user message")
    yield Conversation(messages, as_tools(row.get(columns.get("tools", "tools"))))


def _sharegpt_message(message: Any, columns: Columns, before: list[Json]) -> Json:
    sender, value = at(message, columns, "from"), at(message, columns, "value")
    role = _SHAREGPT_ROLES.get(sender) if isinstance(sender, str) else None
    if role is None:
        raise RowError(f"has a message from {sender!r}; known are {', '.join(_SHAREGPT_ROLES)}")
    if not isinstance(value, str):
        raise RowError(f"has a message from {sender} that is not a text")
    if role == "user":
        return user(value)
    if role == "function_call":
        return {"role": "assistant", "content": None, "tool_calls": _calls(value, len(before))}
    return {"role": role, "content": value} | ({"tool_call_id": _answered(before)} if role == "tool" else {})


def _calls(value: str, place: int) -> list[Json]:
    """The recorded tool calls in the format of chat APIs: the arguments are a JSON text."""
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
    """The call that an observation answers: the first of the latest calls without an answer."""
    answered = {message["tool_call_id"] for message in before if message["role"] == "tool"}
    calls: list[Json] = next((message["tool_calls"] for message in reversed(before) if "tool_calls" in message), [])
    for call in calls:
        if call["id"] not in answered:
            return str(call["id"])
    raise RowError("has an observation that no function_call asked for")
