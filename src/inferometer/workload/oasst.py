"""OpenAssistant's trees: a prompt, its replies, theirs, and so on. A conversation is a path from the root to a leaf."""

from collections.abc import Iterator
from typing import Any

from inferometer.workload.conversation import Columns, Conversation, Json, at, mapping, text_at
from inferometer.workload.rows import RowError

_ROLES = {"prompter": "user", "assistant": "assistant"}
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
    if role not in _ROLES:
        raise RowError(f"has a message of the role {role!r}; known are {', '.join(_ROLES)}")
    path = [*above, {"role": _ROLES[role], "content": text_at(node, columns, "text")}]
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
