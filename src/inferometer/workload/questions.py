"""Rows that are prompts: MT-Bench's questions, HumanEval's functions, lines of a file, tables with named columns."""

from collections.abc import Iterator
from typing import Any

from inferometer.workload import messages
from inferometer.workload.conversation import Columns, Conversation, Json, exchange, list_at, mapping, text_at, user
from inferometer.workload.rows import RowError
from inferometer.workload.tools import as_tools


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
        (made,) = messages.read(row, columns)
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
