"""`Session` and `Request`: what a workload makes and the load sends; a single request is a session of one turn."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self


class Text(str):
    """Words with a space between, still known one by one: the simulator's tokens, which it need not look for again."""

    __slots__ = ("words",)
    words: tuple[str, ...]

    @classmethod
    def of(cls, words: Iterable[str]) -> Self:
        known = tuple(words)
        text = cls(" ".join(known))
        text.words = known
        return text


def words_of(text: str) -> Iterable[str]:
    return text.words if isinstance(text, Text) else text.split()


Prompt = str | list[int] | list[dict[str, Any]]  # text, token ids, or chat messages


@dataclass(slots=True)
class Request:
    """One request of a session: the prompt and what is asked of the answer."""

    prompt: Prompt
    output_tokens: int | None = None  # None: the server decides when to stop
    input_tokens: int | None = None  # how many tokens the prompt was made to have
    think_s: float = 0.0  # pause between the end of the turn before and this one
    body: dict[str, Any] = field(default_factory=dict)  # extra fields of the body, e.g. the model of this request
    headers: dict[str, str] = field(default_factory=dict)
    at_s: float | None = None  # in a replay: when it was recorded, after the start
    wire: bytes | None = field(default=None, compare=False, repr=False)  # its bytes, where they were made ahead


@dataclass(slots=True)
class Session:
    """The turns of one session. `at_s` is the recorded arrival in a replay. With `live`, each answer joins the
    next turn's messages in place of the recorded one."""

    turns: list[Request]
    at_s: float | None = None
    live: bool = False


Workload = Callable[[int], Session]
