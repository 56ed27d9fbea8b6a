"""The bytes of the simulator's answers, field for field as vLLM 0.24 writes them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

VERSION = "0.24.0"
FINGERPRINT = "vllm-0.24.0-86b20d0f"
DONE = b"data: [DONE]\n\n"


def dumps(value: Any) -> bytes:
    return orjson.dumps(value)


def event(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: %b\n\n" % orjson.dumps(value)


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked HTTP body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunks(events: list[bytes]) -> bytes:
    """A chunk for each event."""
    return b"".join(map(chunk, events))


@dataclass(slots=True)
class Answering:
    """What all events of one answer share, and which of its parts were asked for."""

    chat: bool
    id: str
    model: str
    prompt_tokens: int
    include_usage: bool = False
    continuous_usage: bool = False
    usage_details: bool = False
    created: int = 0

    def __post_init__(self) -> None:
        self.created = int(time.time())

    def _envelope(self, streamed: bool) -> dict[str, Any]:
        kind = ("chat.completion.chunk" if streamed else "chat.completion") if self.chat else "text_completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def usage(self, made: int) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + made,
            "completion_tokens": made,
        }

    def final_usage(self, made: int, cached: int) -> dict[str, Any]:
        details = {"prompt_tokens_details": {"cached_tokens": cached}} if self.usage_details else {}
        return self.usage(made) | details

    def token_event(self, index: int, text: str, made: int, finish_reason: str | None) -> bytes:
        """An event with text; `made` counts all tokens so far."""
        choice = self._chat_choice(index, text, finish_reason) if self.chat else _choice(index, text, finish_reason)
        usage = {"usage": self.usage(made)} if self.continuous_usage else {}
        return event(self._envelope(True) | {"choices": [choice]} | usage)

    def _chat_choice(self, index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "delta": {"content": text}, "logprobs": None}
        choice["finish_reason"] = finish_reason
        if finish_reason is not None:
            choice["stop_reason"] = None
        return choice | {"token_ids": None}

    def role_event(self, index: int) -> bytes:
        """Chat's first event: a role and no content."""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        usage = {"usage": self.usage(0)} if self.continuous_usage else {}
        ending = {"prompt_token_ids": None, "prompt_text": None}
        return event(self._envelope(True) | {"choices": [choice]} | usage | ending)

    def opening(self, index: int) -> list[bytes]:
        """What goes before the first token."""
        return [self.role_event(index)] if self.chat else []

    def ending(self, made: int, cached: int, usage: bool = True, done: bool = True) -> list[bytes]:
        """What goes behind the last one, as far as it is wanted."""
        counted = [self.usage_event(made, cached)] if usage and self.include_usage else []
        return [*counted, *([DONE] if done else [])]

    def frames(self, index: int) -> "Frames":
        return TokenFrames(self, index)

    def usage_event(self, made: int, cached: int) -> bytes:
        ending = {"choices": [], "usage": self.final_usage(made, cached), "system_fingerprint": FINGERPRINT}
        return event(self._envelope(True) | ending)

    def whole(self, texts: list[str], reasons: list[str], made: int, cached: int) -> bytes:
        """The answer of a request that does not stream."""
        one = _chat_message if self.chat else _whole_choice
        choices = [one(index, text, reasons[index]) for index, text in enumerate(texts)]
        ending = {"choices": choices, "system_fingerprint": FINGERPRINT, "usage": self.final_usage(made, cached)}
        return dumps(self._envelope(False) | ending)


def _choice(index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
    return {
        "index": index,
        "text": text,
        "logprobs": None,
        "finish_reason": finish_reason,
        "stop_reason": None,
        "prompt_token_ids": None,
        "token_ids": None,
    }


def _whole_choice(index: int, text: str, finish_reason: str) -> dict[str, Any]:
    return _choice(index, text, finish_reason) | {"prompt_logprobs": None}


def _chat_message(index: int, text: str, finish_reason: str) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text,
        "refusal": None,
        "tool_calls": [],
        "reasoning": None,
    }
    ending = {"finish_reason": finish_reason, "stop_reason": None, "token_ids": None}
    return {"index": index, "message": message, "logprobs": None} | ending


class Frames(Protocol):
    """The chunks of tokens that are neither the first nor the last."""

    def frame(self, word: bytes, made: int) -> bytes: ...


class TokenFrames:
    """Frames of one-token events, made from a template: a hundredth of what encoding each would take."""

    __slots__ = ("_head", "_middle", "_prompt_tokens", "_size", "_tail")

    def __init__(self, answering: Answering, index: int) -> None:
        head, _, tail = answering.token_event(index, "\x01", 987_654_321, None).partition(b"\\u0001")
        self._head = head + b" "
        self._middle = None
        self._tail = tail
        self._prompt_tokens = answering.prompt_tokens
        if answering.continuous_usage:
            total = answering.prompt_tokens + 987_654_321
            middle, _, self._tail = tail.partition(b'%d,"completion_tokens":987654321' % total)
            self._middle = middle + b'%d,"completion_tokens":%d'
        self._size = len(self._head) + len(self._tail)

    def frame(self, word: bytes, made: int) -> bytes:
        """The chunk that carries one more word; `made` counts it."""
        if self._middle is None:
            return b"%x\r\n%b%b%b\r\n" % (self._size + len(word), self._head, word, self._tail)
        middle = self._middle % (self._prompt_tokens + made, made)
        size = self._size + len(word) + len(middle)
        return b"%x\r\n%b%b%b%b\r\n" % (size, self._head, word, middle, self._tail)


class EventFrames:
    """Chunks made event by event: for APIs in which more than the text changes, and for
    words that JSON escapes."""

    def __init__(self, answering: Answering, index: int) -> None:
        self._answering, self._index = answering, index

    def frame(self, word: bytes, made: int) -> bytes:
        return chunk(self._answering.token_event(self._index, f" {word.decode()}", made, None))


def error(status: int, message: str, kind: str, param: str | None = None) -> bytes:
    return dumps({"error": {"message": message, "type": kind, "param": param, "code": status}})


def models(model: str, max_model_len: int, started: int, adapters: Sequence[str] = ()) -> bytes:
    permission = {
        "id": "modelperm-84bb3652e2d67441",
        "object": "model_permission",
        "created": started,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    card = {"id": model, "object": "model", "created": started, "owned_by": "inferometer", "root": model}
    card |= {"parent": None, "max_model_len": max_model_len, "permission": [permission]}
    tuned = [card | {"id": name, "root": name, "parent": model} for name in adapters]
    return dumps({"object": "list", "data": [card, *tuned]})
