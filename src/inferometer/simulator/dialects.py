"""The simulator's answers in other APIs: Responses, Anthropic's messages, TGI, embeddings and rerank.

Each answer is one object with its progress; the engine is the same for all.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from inferometer.simulator.bodies import (
    AnthropicBlock,
    AnthropicMessage,
    AnthropicUsage,
    ChatChoice,
    ChatMessage,
    Delta,
    Envelope,
    MessageChoice,
    MessageItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    Response,
    ResponseUsage,
    TextChoice,
    TgiDetails,
    Usage,
)
from inferometer.simulator.tokens import fingerprint

# -- bodies of answers -------------------------------------------------------------------------------------------------

# The bytes of the simulator's answers, field for field as vLLM 0.24 writes them.

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
    """One chunk per event."""
    return b"".join(map(chunk, events))


@dataclass(slots=True)
class Answering:
    """The common fields of the events of one answer, and the requested options."""

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

    def _envelope(self, streamed: bool) -> Envelope:
        kind = ("chat.completion.chunk" if streamed else "chat.completion") if self.chat else "text_completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def usage(self, made: int) -> Usage:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + made,
            "completion_tokens": made,
        }

    def final_usage(self, made: int, cached: int) -> Usage:
        counts = self.usage(made)
        if self.usage_details:
            counts["prompt_tokens_details"] = {"cached_tokens": cached}
        return counts

    def token_event(self, index: int, text: str, made: int, finish_reason: str | None) -> bytes:
        """An event with text; `made` counts all tokens so far."""
        choice = self._chat_choice(index, text, finish_reason) if self.chat else _choice(index, text, finish_reason)
        usage = {"usage": self.usage(made)} if self.continuous_usage else {}
        return event({**self._envelope(True), "choices": [choice], **usage})

    def _chat_choice(self, index: int, text: str, finish_reason: str | None) -> ChatChoice:
        delta: Delta = {"content": text}
        if finish_reason is None:
            return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, "token_ids": None}
        return {
            "index": index,
            "delta": delta,
            "logprobs": None,
            "finish_reason": finish_reason,
            "stop_reason": None,
            "token_ids": None,
        }

    def role_event(self, index: int) -> bytes:
        """Chat's first event: a role and no content."""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        usage = {"usage": self.usage(0)} if self.continuous_usage else {}
        ending = {"prompt_token_ids": None, "prompt_text": None}
        return event({**self._envelope(True), "choices": [choice], **usage, **ending})

    def opening(self, index: int) -> list[bytes]:
        """The events before the first token."""
        return [self.role_event(index)] if self.chat else []

    def ending(self, made: int, cached: int, usage: bool = True, done: bool = True) -> list[bytes]:
        """The events after the last token, as far as requested."""
        counted = [self.usage_event(made, cached)] if usage and self.include_usage else []
        return [*counted, *([DONE] if done else [])]

    def frames(self, index: int) -> "Frames":
        return TokenFrames(self, index)

    def usage_event(self, made: int, cached: int) -> bytes:
        ending = {"choices": [], "usage": self.final_usage(made, cached), "system_fingerprint": FINGERPRINT}
        return event({**self._envelope(True), **ending})

    def whole(self, texts: list[str], reasons: list[str], made: int, cached: int) -> bytes:
        """The answer of a request that does not stream."""
        one: Callable[[int, str, str], MessageChoice | TextChoice] = _chat_message if self.chat else _whole_choice
        choices = [one(index, text, reasons[index]) for index, text in enumerate(texts)]
        ending = {"choices": choices, "system_fingerprint": FINGERPRINT, "usage": self.final_usage(made, cached)}
        return dumps({**self._envelope(False), **ending})


def _choice(index: int, text: str, finish_reason: str | None) -> TextChoice:
    return {
        "index": index,
        "text": text,
        "logprobs": None,
        "finish_reason": finish_reason,
        "stop_reason": None,
        "prompt_token_ids": None,
        "token_ids": None,
    }


def _whole_choice(index: int, text: str, finish_reason: str) -> TextChoice:
    return {**_choice(index, text, finish_reason), "prompt_logprobs": None}


def _chat_message(index: int, text: str, finish_reason: str) -> MessageChoice:
    message: ChatMessage = {
        "role": "assistant",
        "content": text,
        "refusal": None,
        "tool_calls": [],
        "reasoning": None,
    }
    return {
        "index": index,
        "message": message,
        "logprobs": None,
        "finish_reason": finish_reason,
        "stop_reason": None,
        "token_ids": None,
    }


class Frames(Protocol):
    """Makes the chunks of tokens that are neither the first nor the last."""

    def frame(self, word: bytes, made: int) -> bytes: ...


class TokenFrames:
    """Chunks of one-token events, made from a template in a hundredth of the time of encoding each."""

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
    """Chunks made event by event: for APIs in which more than the text changes, and for words that need JSON
    escapes."""

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


# -- dialects ----------------------------------------------------------------------------------------------------------

DIMENSIONS = 64


def named_event(kind: str, **fields: Any) -> bytes:
    """A server-sent event whose name is the type of its data."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), dumps({"type": kind, **fields}))


@dataclass(slots=True)
class Dialect(Answering):
    """An answer with one choice whose first `reasoning` tokens are reasoning."""

    reasoning: int = 0
    reason: str = "stop"
    thoughts: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def frames(self, index: int) -> Frames:
        return EventFrames(self, index)

    def role_event(self, index: int) -> bytes:
        return b": nothing to say yet\n\n"

    def note(self, text: str, made: int, finish_reason: str | None) -> bool:
        """Count a token; returns whether it is reasoning. The last token never is, so that there is an answer."""
        self.reason = finish_reason or self.reason
        thought = made <= self.reasoning and finish_reason is None
        (self.thoughts if thought else self.texts).append(text)
        return thought

    @property
    def begins_text(self) -> bool:
        """Whether the token just counted is the first visible one after the reasoning."""
        return len(self.texts) == 1 and bool(self.thoughts)


class ResponsesAnswering(Dialect):
    """OpenAI's Responses API."""

    _number = 0

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        return named_event(f"response.{kind}", sequence_number=self._number - 1, **fields)

    def opening(self, index: int) -> list[bytes]:
        begun = self._response("in_progress", [])
        first = self._begin_thoughts() if self.reasoning else self._begin_text()
        return [self._event("created", response=begun), self._event("in_progress", response=begun), *first]

    def _begin_thoughts(self) -> list[bytes]:
        item = {"id": f"rs_{self.id}", "type": "reasoning", "summary": [], "content": [], "status": "in_progress"}
        return [self._event("output_item.added", output_index=0, item=item)]

    def _begin_text(self) -> list[bytes]:
        where = {"output_index": 1 if self.thoughts else 0, "item_id": f"msg_{self.id}"}
        item = {"id": f"msg_{self.id}", "type": "message", "role": "assistant", "content": [], "status": "in_progress"}
        part = {"type": "output_text", "text": "", "annotations": []}
        return [
            self._event("output_item.added", output_index=where["output_index"], item=item),
            self._event("content_part.added", content_index=0, part=part, **where),
        ]

    def token_event(self, index: int, text: str, made: int, finish_reason: str | None) -> bytes:
        if self.note(text, made, finish_reason):
            return self._event("reasoning_text.delta", item_id=f"rs_{self.id}", output_index=0, delta=text)
        before = [*self._end_thoughts(), *self._begin_text()] if self.begins_text else []
        where = {"item_id": f"msg_{self.id}", "output_index": 1 if self.thoughts else 0, "content_index": 0}
        return b"".join([*before, self._event("output_text.delta", delta=text, logprobs=[], **where)])

    def _end_thoughts(self) -> list[bytes]:
        return [self._event("output_item.done", output_index=0, item=self._thought())]

    def _thought(self) -> ReasoningItem:
        content: list[ReasoningText] = [{"type": "reasoning_text", "text": "".join(self.thoughts)}]
        return {"id": f"rs_{self.id}", "type": "reasoning", "summary": [], "content": content, "status": "completed"}

    def _message(self) -> MessageItem:
        part: OutputText = {"type": "output_text", "text": "".join(self.texts), "annotations": []}
        return {
            "id": f"msg_{self.id}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }

    def ending(self, made: int, cached: int, usage: bool = True, done: bool = True) -> list[bytes]:
        where = {"output_index": 1 if self.thoughts else 0}
        message = self._message()
        last = self._final(made, cached, usage)
        kind = "completed" if last["status"] == "completed" else "incomplete"
        events = [
            self._event("output_text.done", item_id=message["id"], text="".join(self.texts), **where),
            self._event("output_item.done", item=message, **where),
            self._event(kind, response=last),
        ]
        return events if done else events[:-1]

    def _final(self, made: int, cached: int, usage: bool = True) -> Response:
        cut = self.reason == "length"
        thoughts: list[ReasoningItem] = [self._thought()] if self.thoughts else []
        output: list[ReasoningItem | MessageItem] = [*thoughts, self._message()]
        counts: ResponseUsage = {
            "input_tokens": self.prompt_tokens,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": len(self.thoughts)},
            "total_tokens": self.prompt_tokens + made,
        }
        response = self._response("incomplete" if cut else "completed", output)
        response["incomplete_details"] = {"reason": "max_output_tokens"} if cut else None
        response["usage"] = counts if usage else None
        return response

    def _response(self, status: str, output: list[ReasoningItem | MessageItem]) -> Response:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "model": self.model,
            "output": output,
            "error": None,
            "usage": None,
        }

    def whole(self, texts: list[str], reasons: list[str], made: int, cached: int) -> bytes:
        _share_out(self, texts[0], reasons[0])
        return dumps(self._final(made, cached))


def _share_out(answering: Dialect, text: str, reason: str) -> None:
    """Split the words of a whole answer into reasoning and text, as in a stream."""
    words = text.split()
    for made, word in enumerate(words, 1):
        answering.note(f" {word}", made, reason if made == len(words) else None)


class AnthropicAnswering(Dialect):
    """Anthropic's Messages API."""

    def opening(self, index: int) -> list[bytes]:
        usage: AnthropicUsage = {"input_tokens": self.prompt_tokens, "output_tokens": 1}
        message = self._message([], None)
        message["usage"] = usage
        block: AnthropicBlock = (
            {"type": "thinking", "thinking": "", "signature": ""} if self.reasoning else {"type": "text", "text": ""}
        )
        return [
            named_event("message_start", message=message),
            named_event("content_block_start", index=0, content_block=block),
            named_event("ping"),
        ]

    def token_event(self, index: int, text: str, made: int, finish_reason: str | None) -> bytes:
        if self.note(text, made, finish_reason):
            delta = {"type": "thinking_delta", "thinking": text}
            return named_event("content_block_delta", index=0, delta=delta)
        before = self._between() if self.begins_text else b""
        delta = {"type": "text_delta", "text": text}
        block = 1 if self.thoughts else 0
        return before + named_event("content_block_delta", index=block, delta=delta)

    def _between(self) -> bytes:
        signature = {"type": "signature_delta", "signature": "c2lnbmF0dXJl"}
        return b"".join(
            [
                named_event("content_block_delta", index=0, delta=signature),
                named_event("content_block_stop", index=0),
                named_event("content_block_start", index=1, content_block={"type": "text", "text": ""}),
            ]
        )

    def ending(self, made: int, cached: int, usage: bool = True, done: bool = True) -> list[bytes]:
        delta = {"stop_reason": self._stop_reason(), "stop_sequence": None}
        counts = {"usage": self._usage(made, cached)} if usage else {}
        events = [
            named_event("content_block_stop", index=1 if self.thoughts else 0),
            named_event("message_delta", delta=delta, **counts),
            named_event("message_stop"),
        ]
        return events if done else events[:-1]

    def _stop_reason(self) -> str:
        return "max_tokens" if self.reason == "length" else "end_turn"

    def _usage(self, made: int, cached: int) -> AnthropicUsage:
        return {
            "input_tokens": self.prompt_tokens - cached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": made,
        }

    def _message(self, content: list[AnthropicBlock], stop_reason: str | None) -> AnthropicMessage:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
        }

    def whole(self, texts: list[str], reasons: list[str], made: int, cached: int) -> bytes:
        _share_out(self, texts[0], reasons[0])
        signed = "c2lnbmF0dXJl"
        thought: AnthropicBlock = {"type": "thinking", "thinking": "".join(self.thoughts), "signature": signed}
        answer: AnthropicBlock = {"type": "text", "text": "".join(self.texts)}
        message = self._message([thought, answer] if self.thoughts else [answer], self._stop_reason())
        message["usage"] = self._usage(made, cached)
        return dumps(message)


class TgiAnswering(Dialect):
    """Text Generation Inference: an event per token, `data:` without a space."""

    def token_event(self, index: int, text: str, made: int, finish_reason: str | None) -> bytes:
        self.note(text, made, finish_reason)
        token = {"id": fingerprint([text], 0) % 32_000, "text": text, "logprob": -0.5, "special": False}
        ended = finish_reason is not None
        last = {"generated_text": "".join(self.texts) if ended else None, "details": self._details() if ended else None}
        return b"data:%b\n\n" % dumps({"index": made, "token": token} | last)

    def _details(self) -> TgiDetails:
        return {
            "finish_reason": "length" if self.reason == "length" else "eos_token",
            "seed": None,
            "generated_tokens": len(self.texts),
            "input_length": self.prompt_tokens,
        }

    def ending(self, made: int, cached: int, usage: bool = True, done: bool = True) -> list[bytes]:
        return []

    def whole(self, texts: list[str], reasons: list[str], made: int, cached: int) -> bytes:
        _share_out(self, texts[0], reasons[0])
        return dumps({"generated_text": texts[0], "details": {**self._details(), "prefill": [], "tokens": []}})


class TranscriptAnswering(Answering):
    """Speech to text: chat events in a stream, otherwise only the text."""

    def whole(self, texts: list[str], reasons: list[str], made: int, cached: int) -> bytes:
        return dumps({"text": "".join(texts), "usage": self.final_usage(made, cached)})


class EmbeddingsAnswering(Dialect):
    """A vector for each input, derived from the words that the engine would generate."""

    def whole(self, texts: list[str], reasons: list[str], made: int, cached: int) -> bytes:
        data = [{"object": "embedding", "index": index, "embedding": _vector(text)} for index, text in enumerate(texts)]
        usage = {"prompt_tokens": self.prompt_tokens, "total_tokens": self.prompt_tokens}
        return dumps({"id": self.id, "object": "list", "model": self.model, "data": data, "usage": usage})


def _vector(text: str) -> list[float]:
    return [fingerprint([text, place], 0) / 2**31 - 1 for place in range(DIMENSIONS)]


class RerankAnswering(Dialect):
    """A score for each document, the best first."""

    def whole(self, texts: list[str], reasons: list[str], made: int, cached: int) -> bytes:
        scores = [
            {"index": index, "relevance_score": fingerprint([text], 0) / 2**32} for index, text in enumerate(texts)
        ]
        results = sorted(scores, key=lambda score: -score["relevance_score"])
        return dumps(
            {"id": self.id, "model": self.model, "results": results, "usage": {"total_tokens": self.prompt_tokens}}
        )
