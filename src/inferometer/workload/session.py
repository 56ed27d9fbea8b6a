"""`Session` and `Request`: what a workload makes and the load sends; and what a workload may want to know of the
target."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from inferometer.plan.secrets import key_of, resolve_headers
from inferometer.plan.target import Target, Tls

# -- session ---------------------------------------------------------------------------------------------------------


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

# -- context ---------------------------------------------------------------------------------------------------------


def _nobody(_text: str) -> None:
    """Where nobody listens."""


@dataclass(frozen=True, slots=True)
class WorkloadContext:
    """All of it may be missing: a rehearsal has no server. `note` tells a person something once, before the load."""

    model: str | None = None
    models: tuple[str, ...] = ()  # all that are served, where the server lists them
    api: str = "completions"
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: Tls = field(default_factory=Tls)
    proxy: str | None = field(default=None, repr=False)
    max_model_len: int | None = None
    note: Callable[[str], None] = _nobody
    keep_words: bool = False  # whoever reads the prompts wants their words one by one


NOWHERE = WorkloadContext()


def context_of(
    target: Target,
    model: str | None = None,
    models: Sequence[str] = (),
    max_model_len: int | None = None,
    note: Callable[[str], None] = _nobody,
) -> WorkloadContext:
    """The context of a plan's target, with what was found out about it."""
    headers = resolve_headers(target.headers, os.environ)
    key = key_of(target, os.environ)
    if key and "authorization" not in {name.lower() for name in headers}:
        headers["Authorization"] = f"Bearer {key}"
    url = target.url[0] if target.url else None
    return WorkloadContext(
        model, tuple(models), target.api, url, headers, target.tls, target.proxy, max_model_len, note
    )
