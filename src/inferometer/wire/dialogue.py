"""Chat messages as one text, for the APIs that take only text."""

from typing import Any

_NAMES = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant", "tool": "Tool"}


def as_text(messages: list[dict[str, Any]]) -> str:
    """`User: ...`, `Assistant: ...`, a line for each, as the prefix-aware benchmark of Ray Serve writes them."""
    return "".join(map(line_of, messages))


def line_of(message: dict[str, Any]) -> str:
    """A message with the name of its role before it."""
    return f"{_NAMES.get(message.get('role', ''), 'User')}: {message_text(message)}\n"


def message_text(message: dict[str, Any]) -> str:
    """The text of a message: of its parts where it has several, of its tool calls where it has no text."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if content is not None:
        return str(content)
    calls = [call.get("function") for call in message.get("tool_calls") or () if isinstance(call, dict)]
    return "\n".join(f"{call.get('name')}({call.get('arguments')})" for call in calls if isinstance(call, dict))
