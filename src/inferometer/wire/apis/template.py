"""A custom server: the body is a template, and any text in the response is the answer.

Server-sent events, lines of JSON, one document or bare text. Tokens are counted from a usage with any known field
names; without one they are estimated, and marked so.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import orjson

from inferometer.wire.api import Answer, Api, Json, ServerError, as_text, count_in
from inferometer.wire.apis import openai as chat
from inferometer.wire.apis import openai as completions
from inferometer.wire.sse import parse_json

T = TypeVar("T")
TEXT_KEYS = ("text", "content", "response", "generated_text", "completion", "answer", "output", "token")
DEEPEST = 32  # levels of a document that are searched for a text
MOST_SEARCHED = 10_000  # values of a document
THINKING_KEYS = ("thinking", "reasoning", "reasoning_content")
_NO_TEXT = re.compile(
    r"(?:^|_)(?:id|model|object|type|role|reason|status|created|at|time|timestamp|date|version|fingerprint|event|name"
    r"|done|index|usage|error)$"
)
# Usage fields of several servers: the key that holds the counts ("" is the event itself), and their names for prompt,
# completion and cached tokens
_COUNTS = (
    ("usage", "prompt_tokens", "completion_tokens", "cached_tokens"),
    ("usage", "input_tokens", "output_tokens", "cached_tokens"),
    ("meta_info", "prompt_tokens", "completion_tokens", "cached_tokens"),  # SGLang
    ("details", "input_length", "generated_tokens", ""),  # Text Generation Inference
    ("usageMetadata", "promptTokenCount", "candidatesTokenCount", "cachedContentTokenCount"),  # Gemini
    ("", "prompt_eval_count", "eval_count", ""),  # Ollama
    ("", "tokens_evaluated", "tokens_predicted", "tokens_cached"),  # llama.cpp
    ("", "prompt_tokens", "completion_tokens", "cached_tokens"),
)


def template_body(template: str, prompt: str) -> bytes:
    """A custom body: `{prompt}` is replaced by the prompt, escaped as inside a JSON string."""
    return template.encode().replace(b"{prompt}", orjson.dumps(prompt)[1:-1])


def _parse(data: bytes) -> Json:
    """An event as a mapping: anything that is not JSON counts as text."""
    if data == b"[DONE]":
        raise KeyError("the end mark")
    try:
        value = parse_json(data)
    except orjson.JSONDecodeError:
        return {"text": data.decode("utf-8", "replace")}
    if isinstance(value, dict):
        return value
    return {"output": value} if isinstance(value, list | str) else {"text": data.decode()}


def _deltas(event: Json) -> tuple[str, bool]:
    if isinstance(event.get("choices"), list):
        text, other = chat.chat_deltas(event)
        return text or completions.completion_deltas(event)[0], other
    if "error" in (event.get("object"), event.get("type")):  # as in older vLLM and Anthropic
        raise ServerError
    text = _text_in(event)
    return text, any(event.get(key) or _inside(event, key) for key in THINKING_KEYS)


def _inside(event: Json, key: str) -> Any:
    message = event.get("message")
    return message.get(key) if isinstance(message, dict) else None


def _text_in(value: Any) -> str:
    """The text under a known name, at the top or deeper; else the longest text that could be one."""
    known = next(_known_texts(value, Search()), "")
    return known or max(_other_texts(value, Search()), key=len, default="")


class Search:
    """Limits for searching a document for a text: number of levels and number of values."""

    def __init__(self) -> None:
        self.left = MOST_SEARCHED

    def within(self, values: Iterable[T]) -> Iterator[T]:
        for value in values:
            if self.left <= 0:
                return
            self.left -= 1
            yield value


def _known_texts(value: Any, search: Search, deepest: int = DEEPEST) -> Iterator[str]:
    if not deepest:
        return
    if isinstance(value, list):
        for item in search.within(value):
            yield from [item] if isinstance(item, str) and item else _known_texts(item, search, deepest - 1)
    if not isinstance(value, dict):
        return
    if isinstance(token := value.get("token"), dict):
        yield from [token["text"]] if token.get("text") else []
    for key in TEXT_KEYS:
        if isinstance(value.get(key), str) and value[key]:
            yield value[key]
    for key, below in search.within(value.items()):
        if isinstance(below, dict | list) and not _NO_TEXT.search(key):
            yield from _known_texts(below, search, deepest - 1)


def _other_texts(value: Any, search: Search, deepest: int = DEEPEST) -> Iterator[str]:
    if not deepest:
        return
    if isinstance(value, str):
        yield value
    for item in search.within(value) if isinstance(value, list) else ():
        yield from _other_texts(item, search, deepest - 1)
    for key, below in search.within(value.items()) if isinstance(value, dict) else ():
        if not _NO_TEXT.search(key) and key not in THINKING_KEYS:
            yield from _other_texts(below, search, deepest - 1)


def _note(answer: Answer, event: Json) -> int | None:
    """Returns a running total only for an event that carries something: a last event with the counts is the usage."""
    answer.request_id = answer.request_id or as_text(event.get("id"))
    answer.finish_reason = as_text(_reason(event)) or answer.finish_reason
    usage = _usage_in(event)
    if usage is None:
        return None
    answer.usage = usage
    text, other = _deltas(event)
    return count_in(usage, "completion_tokens") if text or other else None


def _usage_in(event: Json) -> Json | None:
    for place, prompt, completion, cached in _COUNTS:
        counts = event.get(place) if place else event
        if isinstance(counts, dict) and (counts.get(prompt) is not None or counts.get(completion) is not None):
            details = counts.get("prompt_tokens_details") or {"cached_tokens": counts.get(cached)}
            return {
                "prompt_tokens": count_in(counts, prompt),
                "completion_tokens": count_in(counts, completion),
                "prompt_tokens_details": details,
            }
    return None


def _reason(event: Json) -> Any:
    places = (event, *(event.get("choices") or [])[:1], event.get("details"), event.get("meta_info"))
    for place in places:
        for key in ("finish_reason", "done_reason", "stop_reason") if isinstance(place, dict) else ():
            if reason := place.get(key):
                return reason.get("type") if isinstance(reason, dict) else reason
    return None


def _no_body(_model: str | None, _prompt: Any) -> Json:
    """Empty: the plan has the body."""
    return {}


API = Api(
    path="/generate",
    body=_no_body,
    deltas=_deltas,
    note=_note,
    parse=_parse,
    needs_model=False,
    in_pieces=True,
    templated=True,
)
