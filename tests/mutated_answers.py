"""Answers that no server should send: real ones of every dialect, mutated. The same seed makes the same answers.

`mutated_answer(random, dialect)` is one of them, as bytes of HTTP and as the reads in which they came. Documents get
values of other types, numbers beyond 64 bits, nesting and odd characters; events are lost, doubled and exchanged; bytes
are cut, flipped and inserted; the framing is any that HTTP has.
"""

import copy
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

import orjson

Json = Any

_USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 14,
    "total_tokens": 21,
    "prompt_tokens_details": {"cached_tokens": 4},
}
_ID = "cmpl-8cd4333b78565b95"


def _running(number: int) -> Json:
    return {"prompt_tokens": 7, "total_tokens": 8 + number, "completion_tokens": 1 + number}


def _completion(number: int, running: bool, last: bool) -> Json:
    choice = {"index": 0, "text": f" w{number}", "logprobs": None, "finish_reason": "length" if last else None}
    event = {"id": _ID, "object": "text_completion", "model": "m", "choices": [choice]}
    return event | ({"usage": _running(number)} if running else {})


def _chat(number: int, running: bool, last: bool) -> Json:
    delta = {"content": f" w{number}"} if number % 5 else {"content": "", "reasoning_content": "hm"}
    choice = {"index": 0, "delta": delta, "finish_reason": "stop" if last else None}
    event = {"id": _ID, "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return event | ({"usage": _running(number)} if running else {})


def _openai(make: Any, running: bool) -> list[Json]:
    return [*(make(number, running, number == 13) for number in range(14)), {"id": _ID, "choices": [], "usage": _USAGE}]


_ITEM = {"type": "message", "content": [{"type": "output_text", "text": "Hello there"}]}
_RESPONSE_USAGE = {
    "input_tokens": 36,
    "input_tokens_details": {"cached_tokens": 32},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 6},
}
_RESPONSE = {"id": "r", "status": "completed", "error": None, "output": [_ITEM], "usage": _RESPONSE_USAGE}
_RESPONSES = [
    {"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": [], "usage": None}},
    {"type": "response.output_item.added", "item": {"id": "f", "type": "function_call", "name": "f"}},
    {"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "delta": "Let me"},
    *({"type": "response.output_text.delta", "item_id": "msg_1", "delta": f" w{number}"} for number in range(5)),
    {"type": "response.completed", "response": _RESPONSE},
]
_BLOCKS = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hi!"}]
_ANTHROPIC = [
    {"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 25, "cache_read_input_tokens": 9}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Let me"}},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    *({"type": "content_block_delta", "delta": {"type": "text_delta", "text": f" w{number}"}} for number in range(5)),
    {"type": "content_block_start", "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}},
    {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": '{"a":'}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 8}},
    {"type": "message_stop"},
]
_MESSAGE = {"id": "msg_1", "type": "message", "stop_reason": "end_turn", "content": _BLOCKS}
_DETAILS = {"finish_reason": "eos_token", "generated_tokens": 6, "input_length": 17, "prefill": [{"id": 1}]}
_TGI = [
    *({"index": n, "token": {"id": 264, "text": f" w{n}", "special": False}, "details": None} for n in range(5)),
    {"token": {"id": 2, "text": "</s>", "special": True}, "generated_text": " w0", "details": _DETAILS},
]
_OLLAMA = [
    *({"model": "m", "response": f" w{number}", "done": False} for number in range(5)),
    {"model": "m", "response": "", "done": True, "done_reason": "stop", "prompt_eval_count": 26, "eval_count": 5},
]
_SGLANG = [{"text": "a" * n, "meta_info": {"id": "a", "prompt_tokens": 5, "completion_tokens": n}} for n in range(1, 8)]
_SCORES = [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]

# Of each dialect the documents of some answers: several are a stream, one is an answer in one piece.
DIALECTS: dict[str, list[list[Json]]] = {
    "completions": [
        _openai(_completion, False),
        _openai(_completion, True),
        [{"id": "c", "choices": [{"text": "Hello", "finish_reason": "stop"}], "usage": _USAGE}],
    ],
    "chat": [
        _openai(_chat, False),
        _openai(_chat, True),
        [{"id": "c", "choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}], "usage": _USAGE}],
    ],
    "responses": [_RESPONSES, [_RESPONSE], [_RESPONSE | {"status": "failed", "error": {"message": "Broken"}}]],
    "anthropic": [_ANTHROPIC, [_MESSAGE | {"usage": {"input_tokens": 10, "output_tokens": 6}}]],
    "tgi": [_TGI, [{"generated_text": " a test", "details": _DETAILS}]],
    "embeddings": [[{"data": [{"embedding": [0.1, -0.2]}, {"embedding": [0.5]}], "usage": {"prompt_tokens": 8}}]],
    "embeddings_chat": [[{"data": [{"embedding": [0.1, -0.2]}], "usage": {"prompt_tokens": 8}}]],
    "transcriptions": [
        _openai(_chat, True),
        [{"type": "transcript.text.delta", "delta": "Hello"}, {"type": "transcript.text.done", "text": "Hello"}],
        [{"text": "Hello there", "usage": _USAGE}],
    ],
    "translations": [_openai(_chat, False), [{"text": "Hello there"}]],
    "rerank": [
        [{"id": "r", "results": _SCORES, "usage": {"total_tokens": 56}}],
        [{"id": "r", "results": _SCORES, "meta": {"tokens": {"input_tokens": 56}}}],
    ],
    "template": [_OLLAMA, _SGLANG, _TGI, _openai(_chat, True), [{"candidates": [{"content": {"parts": ["Hello"]}}]}]],
}

_DEEP = (100, 300, 1000, 1500)
_ODD_VALUES = [
    *(b"null", b"true", b"false", b"0", b"-1", b"1.5", b"1e30", b"1e400", b"-0.0", b"NaN", b"007"),
    *(b"999999999999999", b"1000000000000000", b"9007199254740993", b"9223372036854775807", b"9223372036854775808"),
    *(b"18446744073709551615", b"18446744073709551616", b"-9223372036854775809", b"9" * 400),
    *(b"[]", b"{}", b"[1]", b'["a"]', b'{"a":1}', b"[[]]", b'[{"text":["x"]}]', b"[null]", b'{"message":[1]}'),
    *(b'""', b'"x"', b'"error"', b'"[DONE]"', b'"\\u0000"', b'"\\ud800"', b'"\\ud83d\\ude42"', b'"\xff\xfe"'),
    *('"\u2028\u202e\u200b\u0301"'.encode(), b'"\\n\\r\\t\\b"', b'"\x00"', b'"\\q"', b'"' + b"x" * 5000 + b'"'),
    *(b"[" * deep + b"]" * deep for deep in _DEEP),
    *(b'{"a":' * deep + b"1" + b"}" * deep for deep in _DEEP),
    *(b"[" * 300, b"x", b""),
]
_ODD_KEYS = ("error", "usage", "choices", "id", "type", "output", "token", "text", "delta", "message", "\u202e", "")
_ODD_EVENTS = [
    *(b"[DONE]", b"", b" ", b"null", b"[]", b"{}", b'"x"', b"7", b"hello", b"<html>busy</html>", b"\xef\xbb\xbf{}"),
    *(b'{"error":{"message":"out of memory","code":500}}', b'{"error":"gone"}', b'{"error":["gone"]}', b'{"error":1}'),
    *(b'{"object":"error","message":"gone"}', b'{"type":"error","message":"gone"}', b'{"type":"error"}'),
    *(b'{"id":"a","error":{"message":"no"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}',),
    *(b"[" * deep + b"]" * deep for deep in _DEEP),
    *(b'{"error":' + b"[" * deep + b"]" * deep + b"}" for deep in _DEEP),
    *(
        b'{"choices":[{"text":"x","index":0}],"usage":{"completion_tokens":%d}}' % count
        for count in (10**15 - 1, 2**63)
    ),
]
_KINDS = (
    *(b"text/event-stream", b"Text/Event-Stream; charset=utf-8", b"TEXT/EVENT-STREAM", b"application/json"),
    *(b"application/x-ndjson", b"text/plain", b""),
)


@dataclass(frozen=True, slots=True)
class MutatedAnswer:
    """An answer as bytes of HTTP, in the reads in which it came, and how the exchange with it ended."""

    dialect: str
    reads: list[bytes]
    outcome: str

    @property
    def raw(self) -> bytes:
        return b"".join(self.reads)


def mutated_answer(random: Random, dialect: str) -> MutatedAnswer:
    documents = copy.deepcopy(random.choice(DIALECTS[dialect]))
    odd = {random.randrange(len(documents)) for _ in range(random.choice((0, 1, 1, 3)))}
    payloads = [_mutated_document(random, each, number in odd) for number, each in enumerate(documents)]
    payloads = _mutated_events(random, payloads)
    streams = len(documents) > 1 or random.random() < 0.1
    body = _body(random, payloads, streams)
    for _ in range(random.choice((0, 0, 0, 0, 1, 3))):
        body = _mutated_bytes(random, body)
    raw = _framed(random, body, streams)
    outcome = random.choice(("ok", "ok", "ok", "cut", "timeout", "cancelled"))
    if outcome != "ok":
        raw = raw[: random.randint(raw.index(b"\r\n\r\n") + 4, len(raw))]
    return MutatedAnswer(dialect, _cut(random, raw, random.choice((0, 0, 1, 5, 40))), outcome)


def _mutated_document(random: Random, document: Json, odd: bool) -> bytes:
    """The document as JSON, with odd values at some of its places."""
    values: dict[bytes, bytes] = {}
    for _ in range(random.choice((1, 1, 3)) if odd else 0):
        mark = f"@{len(values)}@"
        values[mark.encode()] = random.choice(_ODD_VALUES)
        _put(random, document, mark)
    text = orjson.dumps(document)
    for name, value in values.items():
        text = text.replace(b'"' + name + b'"', value)
    return text


def _put(random: Random, document: Json, value: str) -> None:
    """The value at any place of the document: instead of what is there, instead of nothing, or as a new key."""
    while True:
        places = list(document) if isinstance(document, dict) else list(range(len(document)))
        if isinstance(document, dict) and (not places or random.random() < 0.1):
            document[random.choice(_ODD_KEYS)] = value
            return
        if not places:
            document.append(value)
            return
        place = random.choice(places)
        below = document[place]
        if not isinstance(below, dict | list) or random.random() < 0.25:
            if random.random() < 0.15:
                del document[place]
            else:
                document[place] = value
            return
        document = below


def _mutated_events(random: Random, events: list[bytes]) -> list[bytes]:
    for _ in range(random.choice((0, 0, 0, 1, 3))):
        at = random.randrange(len(events) + 1)
        match random.randrange(4):
            case 0:
                events.insert(at, random.choice(_ODD_EVENTS))
            case 1 if at < len(events) > 1:
                del events[at]
            case 2 if at < len(events):
                events[at:at] = [events[at]] * random.choice((1, 30))
            case 3:
                random.shuffle(events)
    if random.random() < 0.7:
        events.append(b"[DONE]")
    return events


def _body(random: Random, payloads: list[bytes], streams: bool) -> bytes:
    if not streams:
        return random.choice((b"", b"", b"\xef\xbb\xbf")) + payloads[0]
    end = random.choice((b"\n", b"\n", b"\r\n", b"\r"))
    names = random.choice((b"", b"", b"event: token", b"id: 7", b": a comment"))
    if random.random() < 0.1:
        return b"\n".join(payloads)  # lines of JSON
    lines = bytearray(random.choice((b"", b"", b"", b"\xef\xbb\xbf")))
    for payload in payloads:
        name = random.choice((b"event: error", b"event:error", b"error: {}")) if random.random() < 0.02 else names
        lines += (name + end if name else b"") + b"data: " + payload + end + end
    return bytes(lines)


def _mutated_bytes(random: Random, data: bytes) -> bytes:
    at, to = sorted((random.randrange(len(data) + 1), random.randrange(len(data) + 1)))
    match random.randrange(4):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[at:to] * 2 + data[to:]
        case 2:
            return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
    return data[:at] + random.choice((b"\xff", b"\x00", b'"', b"\\", b"\n\n", b"\r", b"{", "é🙂".encode())) + data[at:]


def _framed(random: Random, body: bytes, streams: bool) -> bytes:
    """With a head: in chunks of one event, in chunks cut anywhere, of known length, or until the connection closes."""
    kind = random.choice(_KINDS[:3] if streams and random.random() < 0.9 else _KINDS)
    status = random.choice((b"500 Oh", b"429 Slow")) if random.random() < 0.05 else b"200 OK"
    head = b"HTTP/1.1 %b\r\ncontent-type: %b\r\n" % (status, kind)
    match random.randrange(5):
        case 0:
            return head + b"content-length: %d\r\n\r\n" % len(body) + body
        case 1:
            return head + b"retry-after: \xb2\r\n\r\n" + body
        case 2:
            pieces = _cut(random, body, 6)
        case _:
            events = body.split(b"\n\n")
            pieces = [event + b"\n\n" for event in events[:-1]] + [events[-1]]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece)
    return head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def _cut(random: Random, data: bytes, places: int) -> list[bytes]:
    """In pieces, none of them empty."""
    at = sorted({0, len(data), *(random.randrange(len(data) + 1) for _ in range(places))})
    return [data[start:stop] for start, stop in pairwise(at)]
