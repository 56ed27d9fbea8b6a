"""Lists of chat messages as OpenAI writes them: `messages` of `role` and `content`, tool calls and tools included."""

from collections.abc import Iterator
from typing import Any

from inferometer.workload.conversation import Columns, Conversation, Json, at, list_at, mapping
from inferometer.workload.rows import RowError
from inferometer.workload.tools import as_tools

_ROLES = ("system", "developer", "user", "assistant", "tool")


def read(row: Any, columns: Columns) -> Iterator[Conversation]:
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
