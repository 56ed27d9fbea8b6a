"""`Session` and `Request`, which a workload generates and the load sends; the target's properties for a workload; and
a buffer of sessions generated ahead, so that generating one never delays a request that is due."""

import os
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Self

from inferometer.errors import PlanError
from inferometer.plan import model
from inferometer.plan.secrets import key_of, resolve_headers
from inferometer.plan.target import Target, Tls
from inferometer.vocabulary import attribute_at

# -- session ---------------------------------------------------------------------------------------------------------


class TokenText(str):
    """Text joined from words with spaces that keeps its words: the simulator's tokens, so it need not split the
    text."""

    __slots__ = ("words",)
    words: tuple[str, ...]

    @classmethod
    def of(cls, words: Iterable[str]) -> Self:
        known = tuple(words)
        text = cls(" ".join(known))
        text.words = known
        return text


def words_of(text: str) -> Iterable[str]:
    return text.words if isinstance(text, TokenText) else text.split()


Prompt = str | list[int] | list[dict[str, Any]]  # text, token ids, or chat messages


@dataclass(slots=True)
class Request:
    """One request of a session: the prompt and the requested output."""

    prompt: Prompt
    output_tokens: int | None = None  # None: the server decides when to stop
    input_tokens: int | None = None  # intended number of tokens of the prompt
    think_s: float = 0.0  # pause after the end of the previous turn
    body: dict[str, Any] = field(default_factory=dict)  # extra fields of the body, e.g. the model of this request
    headers: dict[str, str] = field(default_factory=dict)
    at_s: float | None = None  # in a replay: recorded time after the start
    due_s: float | None = None  # due this long after the session's start, or after the previous answer if later
    after: tuple[int, ...] | None = None  # the turns that it waits for; None: the previous one
    fills: list[dict[str, Any]] = field(
        default_factory=list, compare=False, repr=False
    )  # messages its answer goes into
    wire: bytes | None = field(default=None, compare=False, repr=False)  # its encoded bytes, if generated ahead

    @property
    def model(self) -> str | None:
        """The model or adapter that this request names; None if the target's model is used."""
        return self.body.get("model")


@dataclass(slots=True)
class Session:
    """The turns of one session. `at_s` is the recorded arrival in a replay. With `live`, each answer joins the
    next turn's messages in place of the recorded one."""

    turns: list[Request]
    at_s: float | None = None
    live: bool = False

    @property
    def is_graph(self) -> bool:
        """Whether turns depend on turns other than the previous one."""
        turns = self.turns  # nearly always one
        return turns[0].after is not None if len(turns) == 1 else any(turn.after is not None for turn in turns)


Workload = Callable[[int], Session]


# -- context ---------------------------------------------------------------------------------------------------------


def _nobody(_text: str) -> None:
    """Ignores all events."""


@dataclass(frozen=True, slots=True)
class WorkloadContext:
    """The target's properties for a workload. Everything may be missing: a dry run has no server. `note` prints a
    message for the user once, before the load."""

    model: str | None = None
    models: tuple[str, ...] = ()  # all served models, if the server lists them
    api: str = "completions"
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: Tls = field(default_factory=Tls)
    proxy: str | None = field(default=None, repr=False)
    max_model_len: int | None = None
    note: Callable[[str], None] = _nobody
    keep_words: bool = False  # the receiver of the prompts needs their separate words


NOWHERE = WorkloadContext()


def context_of(
    target: Target,
    model: str | None = None,
    models: Sequence[str] = (),
    max_model_len: int | None = None,
    note: Callable[[str], None] = _nobody,
) -> WorkloadContext:
    """The context of a plan's target, with what the probe found."""
    headers = resolve_headers(target.headers, os.environ)
    key = key_of(target, os.environ)
    if key and "authorization" not in {name.lower() for name in headers}:
        headers["Authorization"] = f"Bearer {key}"
    url = target.url[0] if target.url else None
    return WorkloadContext(
        model, tuple(models), target.api, url, headers, target.tls, target.proxy, max_model_len, note
    )


MOST = 2048  # sessions in the buffer: a second of a fast load


MOST_BYTES = 64 << 20  # maximum size of the buffer: images are large


ENOUGH = 0.25  # share of the maximum: below it, generating sessions has priority over other idle work
ENOUGH_BYTES = ENOUGH * MOST_BYTES


When = tuple[int, int, int]  # the index of a session, and the other parts of its arrival


class Ahead:
    """A buffer of sessions, generated in the order of their indices; if it is empty, a session is generated on demand.

    `polish` encodes a session and returns its size in bytes; `most` is the number of sessions needed.
    """

    def __init__(
        self,
        workload: Workload,
        indices: Iterator[When],
        polish: Callable[[int, Session], int],
        most: int | None = None,
    ) -> None:
        self._workload, self._indices = workload, indices
        self._polish = polish
        self._most = MOST if most is None else min(most, MOST)
        self._enough = ENOUGH * self._most
        self._ready: deque[tuple[When, Session | None, int]] = deque()
        self._bytes = 0
        self._ended = False  # no more indices, or a session that failed: reported when it is taken

    @property
    def short(self) -> bool:
        """Whether the buffer is nearly empty."""
        return not self._ended and len(self._ready) < self._enough and self._bytes < ENOUGH_BYTES

    def take(self) -> tuple[When, Session] | None:
        """The next session, None after the last."""
        if not self._ready:
            when = next(self._indices, None)
            return None if when is None else (when, self._workload(when[0]))
        when, session, size = self._ready.popleft()
        self._bytes -= size
        return when, session if session is not None else self._workload(when[0])

    def make_one(self) -> bool:
        """Generate one more session in idle time; False if the buffer is full or there are no more."""
        if self._ended or len(self._ready) >= self._most or self._bytes >= MOST_BYTES:
            return False
        when = next(self._indices, None)
        if when is None:
            self._ended = True
            return False
        try:
            session = self._workload(when[0])
            size = self._polish(when[0], session)
        except Exception:  # not needed yet: it fails again, and is reported, when it is taken
            self._ended = True
            self._ready.append((when, None, 0))
            return False
        self._ready.append((when, session, size))
        self._bytes += size
        return True


# -- the workload of a plan --------------------------------------------------------------------------------------------

# Workloads by type, imported on use.

WORKLOADS = {
    "synthetic": "inferometer.workload.synthetic:synthetic",
    "conversation_pieces": "inferometer.workload.benchmark_prompts:conversation_pieces",
    "azure": "inferometer.workload.traces:trace",
    "mooncake": "inferometer.workload.traces:trace",
    "burstgpt": "inferometer.workload.traces:trace",
    "trace": "inferometer.workload.traces:trace",
    "sharegpt": "inferometer.workload.dataset:dataset",
    "messages": "inferometer.workload.dataset:dataset",
    "oasst": "inferometer.workload.dataset:dataset",
    "mt_bench": "inferometer.workload.dataset:dataset",
    "humaneval": "inferometer.workload.dataset:dataset",
    "prompts": "inferometer.workload.dataset:dataset",
    "table": "inferometer.workload.dataset:dataset",
    "huggingface": "inferometer.workload.dataset:dataset",
    "otel": "inferometer.workload.otel:otel",
    "weka": "inferometer.workload.otel:weka",
    "text": "inferometer.workload.synthetic:fixed_text",
    "sonnet": "inferometer.workload.benchmark_prompts:sonnet",
}


def workload_of(
    spec: model.Workload, seed: int, traffic: int, nonce: str, context: WorkloadContext = NOWHERE
) -> Workload:
    """The workload of a plan: a function from a session's index to the session. Workloads that depend on the target
    have the keyword argument `context`."""
    place = WORKLOADS.get(spec.type)
    if place is None:
        raise PlanError(f"workload.type must be one of {', '.join(WORKLOADS)}, got {spec.type}")
    _check_models(spec, context)
    make: Callable[..., Workload] = attribute_at(place)
    knows = {"context": context} if "context" in signature(make).parameters else {}
    return make(spec, seed, traffic, nonce, **knows)


def _check_models(spec: model.Workload, context: WorkloadContext) -> None:
    """Check that the server has all models and adapters: an unknown one would fail every request."""
    models: Mapping[str, Any] = getattr(spec, "models", {})  # name: weight, or recorded name: replacement
    named = [name if isinstance(other, int | float) else str(other) for name, other in models.items()]
    if not named and (single := getattr(spec, "model", None)):
        named = [single]
    missing = [name for name in dict.fromkeys(named) if context.models and name not in context.models]
    if missing:
        served, setting = ", ".join(context.models[:8]), "models" if models else "model"
        raise PlanError(
            f"workload.{setting}: the server does not serve {', '.join(missing)}, it serves {served}",
            f"start it with these models or adapters (a simulator: server.args.adapters: [{', '.join(missing)}]), "
            "or remove them",
        )


def new_nonce() -> str:
    """A nonce, which makes the prompts of a run new. It is stored with the run: two runs with one nonce share a
    tape."""
    return secrets.token_hex(8)
