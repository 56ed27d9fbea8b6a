"""`Conversation`: what every dataset's row becomes; and the places in it at which a model is asked."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from inferometer.workload.rows import RowError

Json = dict[str, Any]
Columns = dict[str, str]  # our name of a field -> the file's
Reader = Callable[[Any, Columns], Iterable["Conversation"]]  # `RowError` where a row is not of the schema


@dataclass(slots=True)
class Conversation:
    """Chat messages as recorded, answers included. `output_tokens` is asked of the answers where the file says so."""

    messages: list[Json]
    tools: list[Json] = field(default_factory=list)
    output_tokens: int | None = None
    unanswered: bool = False  # its answers are blanks, to be filled by live ones

    def asks(self) -> list[int]:
        """How many messages are sent when the model is asked: all up to one that an answer follows, or to the last."""
        roles = [message["role"] for message in self.messages] + ["assistant"]
        return [at + 1 for at in range(len(self.messages)) if roles[at] in _ASKING and roles[at + 1] == "assistant"]


_ASKING = ("user", "tool")


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def exchange(prompt: str, answer: str | None = None, system: str | None = None) -> Conversation:
    """A conversation of a single question, with its answer where one is recorded."""
    before = [{"role": "system", "content": system}] if system else []
    after = [{"role": "assistant", "content": answer}] if answer else []
    return Conversation([*before, user(prompt), *after])


def joined(messages: list[Json]) -> list[Json]:
    """As chat templates want them: no answer before the first question, texts of one role in a row joined."""
    told: list[Json] = []
    for message in messages:
        if message["role"] == "assistant" and not any(each["role"] in _ASKING for each in told):
            continue
        if told and _is_text(message) and _is_text(told[-1]) and told[-1]["role"] == message["role"]:
            told[-1] = {**told[-1], "content": f"{told[-1]['content']}\n\n{message['content']}"}
        else:
            told.append(message)
    return told


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
    if own not in mapping(row):
        raise RowError(f"has no {own!r}, it has {_listed(row)}")
    return row[own]


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
