"""The bytes that the metronome sends, prepared so that an event costs one concatenation: vLLM's events with chunked
framing, of one size throughout a stream, because the token's text makes up for the digits of the counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Literal

import orjson

MODEL = "metronome"
CREATED = 1_700_000_000  # any instant will do, as long as its size does not change
LONGEST = 100_000  # tokens of an answer
_TEXT = b" perpendicularities"  # cut to the width that the counts leave
_WIDTH = 18  # of a token's text and the digits of its two counts


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """What a request asks for, as far as the metronome cares."""

    api: Literal["completions", "chat"]
    tokens: int
    prompt_tokens: int
    usage: bool  # a usage event at the end
    running_usage: bool  # counts in every event

    @classmethod
    def of(cls, path: str, body: bytes) -> "StreamRequest | str":
        """The request of a body, or what is wrong with it."""
        try:
            fields = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            return f"the body is not JSON: {error}"
        if not isinstance(fields, dict) or not fields.get("stream"):
            return "the metronome only streams: set stream to true"
        tokens = fields.get("max_completion_tokens") or fields.get("max_tokens") or 16
        if not isinstance(tokens, int) or not 1 <= tokens <= LONGEST:
            return f"max_tokens must be from 1 to {LONGEST}, got {tokens!r}"
        chat = path.endswith("/chat/completions")
        options = fields.get("stream_options") or {}
        return cls(
            api="chat" if chat else "completions",
            tokens=tokens,
            prompt_tokens=_prompt_tokens(fields.get("messages" if chat else "prompt")),
            usage=bool(options.get("include_usage")),
            running_usage=bool(options.get("continuous_usage_stats")),
        )


@dataclass(frozen=True, slots=True)
class Score:
    """All sends of one answer after its headers: one per token, the last of them with the end of the stream."""

    id: str
    payloads: Iterator[bytes]


def score(requested: StreamRequest, number: int) -> Score:
    """What to send for a request; `number` makes its id."""
    answer_id = _answer_id(requested, number)
    prefix, tails = _shape(requested)
    events: Iterator[bytes] = map(prefix.replace(_answer_id(requested, 0), answer_id).__add__, tails)
    last = chunk(_event(requested, answer_id, requested.tokens, b'"length"')) + _ending(requested, answer_id)
    payloads = chain(events, (last,))
    if requested.api == "chat":
        role = chunk(_role_event(requested, answer_id))  # carries no token: it goes out with the first one, as vLLM's
        payloads = chain((role + next(payloads),), payloads)
    return Score(answer_id.decode(), payloads)


def chunk(data: bytes) -> bytes:
    """A chunk of HTTP's chunked coding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@lru_cache(maxsize=64)
def _shape(requested: StreamRequest) -> tuple[bytes, list[bytes]]:
    """What answers to equal requests share: the event up to its text, and the rest of each but the last one."""
    events = [chunk(_event(requested, _answer_id(requested, 0), i, b"null")) for i in range(1, requested.tokens)]
    cut = events[0].index(_TEXT[:2]) if events else 0
    return events[0][:cut] if events else b"", [event[cut:] for event in events]


def _answer_id(requested: StreamRequest, number: int) -> bytes:
    return b"%s-%016x" % (b"chatcmpl" if requested.api == "chat" else b"cmpl", number)


def _event(requested: StreamRequest, answer_id: bytes, count: int, finish: bytes) -> bytes:
    """One token of the answer, its `count`-th."""
    usage = _usage(requested, count) if requested.running_usage else b""
    room = _WIDTH - len(b"%d%d" % (count, count + requested.prompt_tokens)) if requested.running_usage else _WIDTH // 2
    text = _TEXT[:room]
    if requested.api == "chat":
        choice = b'"delta":{"content":"%s"},"logprobs":null,"finish_reason":%s,"token_ids":null' % (text, finish)
    else:
        choice = (
            b'"text":"%s","logprobs":null,"finish_reason":%s,"stop_reason":null,"prompt_token_ids":null,'
            b'"token_ids":null' % (text, finish)
        )
    return b'data: %s"choices":[{"index":0,%s}]%s}\n\n' % (_opening(requested, answer_id), choice, usage)


def _role_event(requested: StreamRequest, answer_id: bytes) -> bytes:
    usage = _usage(requested, 0) if requested.running_usage else b""
    choice = b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null'
    return b'data: %s"choices":[{"index":0,%s}]%s}\n\n' % (_opening(requested, answer_id), choice, usage)


def _ending(requested: StreamRequest, answer_id: bytes) -> bytes:
    usage = b'data: %s"choices":[]%s}\n\n' % (_opening(requested, answer_id), _usage(requested, requested.tokens))
    return (chunk(usage) if requested.usage else b"") + chunk(b"data: [DONE]\n\n") + chunk(b"")


def _opening(requested: StreamRequest, answer_id: bytes) -> bytes:
    kind = b"chat.completion.chunk" if requested.api == "chat" else b"text_completion"
    return b'{"id":"%s","object":"%s","created":%d,"model":"%s",' % (answer_id, kind, CREATED, MODEL.encode())


def _usage(requested: StreamRequest, count: int) -> bytes:
    counts = (requested.prompt_tokens, requested.prompt_tokens + count, count)
    return b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}' % counts


def _prompt_tokens(prompt: Any) -> int:
    """Token ids are counted; of text every word is one token."""
    match prompt:
        case str():
            return len(prompt.split())
        case [{}, *_]:
            return sum(_prompt_tokens(message.get("content")) for message in prompt)
        case list():
            return len(prompt)
        case _:
            return 0
