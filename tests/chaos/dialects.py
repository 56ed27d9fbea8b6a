"""Right answers of every API, written out here once more so that a mistake of the product is not repeated: events of a
stream, or one document. Attacks change a field or the bytes around them."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Content:
    """What an answer is made of. Attacks put things here that no server should send."""

    id: Any = "answer-1"
    text: Any = "x "
    tokens: int = 5  # events that carry text
    reason: Any = "length"
    input_tokens: Any = 11
    output_tokens: Any = 5
    running: Callable[[int], Any] | None = None  # usage so far, in every event


@dataclass(frozen=True, slots=True)
class Dialect:
    name: str
    events: Callable[[Content], Iterator[Json | str]] | None  # None: it has no streams
    whole: Callable[[Content], Json]
    settings: tuple[str, ...] = ()


def event_bytes(event: Json | str) -> bytes:
    """As a server-sent event."""
    if isinstance(event, str):
        return b"data: " + event.encode() + b"\n\n"
    name = b"event: " + event["type"].encode() + b"\n" if "type" in event else b""
    return name + b"data: " + json.dumps(event).encode() + b"\n\n"


def _usage(content: Content) -> Json:
    return {"prompt_tokens": content.input_tokens, "completion_tokens": content.output_tokens}


def _openai_events(choice: Callable[[Any], Json]) -> Callable[[Content], Iterator[Json | str]]:
    def events(content: Content) -> Iterator[Json | str]:
        for number in range(1, content.tokens + 1):
            reason = content.reason if number == content.tokens else None
            event = {"id": content.id, "choices": [choice(content.text) | {"index": 0, "finish_reason": reason}]}
            if content.running is not None:
                event["usage"] = {"prompt_tokens": content.input_tokens, "completion_tokens": content.running(number)}
            yield event
        yield {"id": content.id, "choices": [], "usage": _usage(content)}
        yield "[DONE]"

    return events


def _openai_whole(choice: Callable[[Any], Json]) -> Callable[[Content], Json]:
    def whole(content: Content) -> Json:
        text = content.text * content.tokens if isinstance(content.text, str) else content.text
        choices = [choice(text) | {"index": 0, "finish_reason": content.reason}]
        return {"id": content.id, "choices": choices, "usage": _usage(content)}

    return whole


def _responses_usage(content: Content) -> Json:
    return {"input_tokens": content.input_tokens, "output_tokens": content.output_tokens}


def _responses_whole(content: Content) -> Json:
    return {
        "id": content.id,
        "status": "incomplete",
        "incomplete_details": {"reason": content.reason},
        "output": [{"type": "message", "content": [{"type": "output_text", "text": content.text}]}],
        "usage": _responses_usage(content),
    }


def _responses_events(content: Content) -> Iterator[Json | str]:
    yield {"type": "response.created", "response": {"id": content.id}}
    for _ in range(content.tokens):
        yield {"type": "response.output_text.delta", "delta": content.text}
    yield {"type": "response.incomplete", "response": _responses_whole(content)}


def _anthropic_whole(content: Content) -> Json:
    return {
        "type": "message",
        "id": content.id,
        "content": [{"type": "text", "text": content.text}],
        "stop_reason": content.reason,
        "usage": _responses_usage(content),
    }


def _anthropic_events(content: Content) -> Iterator[Json | str]:
    begun = {"input_tokens": content.input_tokens, "output_tokens": 1}
    yield {"type": "message_start", "message": {"id": content.id, "usage": begun}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for _ in range(content.tokens):
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": content.text}}
    yield {"type": "content_block_stop", "index": 0}
    usage = {"output_tokens": content.output_tokens}
    yield {"type": "message_delta", "delta": {"stop_reason": content.reason}, "usage": usage}
    yield {"type": "message_stop"}


def _tgi_details(content: Content) -> Json:
    return {
        "finish_reason": content.reason,
        "input_length": content.input_tokens,
        "generated_tokens": content.output_tokens,
    }


def _tgi_events(content: Content) -> Iterator[Json | str]:
    for number in range(1, content.tokens + 1):
        last = number == content.tokens
        yield {
            "token": {"id": number, "text": content.text, "special": False},
            "generated_text": "x" if last else None,
            "details": _tgi_details(content) if last else None,
        }


def _tgi_whole(content: Content) -> Json:
    return {"generated_text": content.text, "details": _tgi_details(content)}


def _embeddings_whole(content: Content) -> Json:
    usage = {"prompt_tokens": content.input_tokens, "total_tokens": content.input_tokens}
    return {"id": content.id, "data": [{"embedding": [0.5, 0.25], "index": 0}], "usage": usage}


def _rerank_whole(content: Content) -> Json:
    results = [{"index": 0, "relevance_score": 0.5}]
    return {"id": content.id, "results": results, "usage": {"total_tokens": content.input_tokens}}


def _text(text: Any) -> Json:
    return {"text": text}


def _delta(text: Any) -> Json:
    return {"delta": {"content": text}}


def _message(text: Any) -> Json:
    return {"message": {"role": "assistant", "content": text}}


DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect("completions", _openai_events(_text), _openai_whole(_text)),
        Dialect("chat", _openai_events(_delta), _openai_whole(_message)),
        Dialect("responses", _responses_events, _responses_whole),
        Dialect("anthropic", _anthropic_events, _anthropic_whole),
        Dialect("tgi", _tgi_events, _tgi_whole),
        Dialect("embeddings", None, _embeddings_whole),
        Dialect("rerank", None, _rerank_whole),
        Dialect(
            "template", _openai_events(_text), _openai_whole(_text), ('target.body={"q": "{prompt}"}', "target.path=/q")
        ),
    )
}
