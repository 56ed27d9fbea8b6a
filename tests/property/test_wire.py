"""Events and ends of answers do not depend on how bytes are split, and every fast path equals the slow one."""

import json
from bisect import bisect_right
from itertools import accumulate

import numpy as np
import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from streams import HEAD, PLAIN_HEAD, chunked, cut, events, sse, texts, token_texts

from inferometer.load.answer import read_ends_of
from inferometer.wire.api import api_of, read_events
from inferometer.wire.apis.template import template_body
from inferometer.wire.client import Client
from inferometer.wire.compiled import compiled
from inferometer.wire.http1 import Chunks, body_of, parse_head, whole
from inferometer.wire.origin import origin_of
from inferometer.wire.reactor import Reactor, now
from inferometer.wire.server import HttpServer
from inferometer.wire.skeleton import learn
from inferometer.wire.sse import _one_event_per_chunk, _reading_lines, events_of, spans_of_chunks

pytestmark = pytest.mark.usefixtures("reader")

places = st.lists(st.integers(0, 5000), max_size=12)
line_texts = texts.map(lambda text: "".join(text.splitlines()))
data_lines = st.lists(line_texts, min_size=1, max_size=3)
line_ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
payloads = st.lists(st.sampled_from([b"\r", b"\n", b"data: ", b"0\r\n\r\n", b"a", "é".encode()]), max_size=4).map(
    b"".join
)
trailers = st.sampled_from([b"", b"X-Sum: 1\r\n"])


@st.composite
def bodies(draw):
    """A body of events in any form the standard allows; the data of each, and where each ends in the body."""
    body, data, ends = bytearray(), [], []
    end = draw(line_ends)
    for lines in draw(st.lists(data_lines, max_size=6)):
        body += draw(st.sampled_from([b"", b": a comment", b"event: token", b"id: 7", b"retry: 10"])) + end
        space = draw(st.sampled_from([b" ", b""])) if not any(line.startswith(" ") for line in lines) else b" "
        body += b"".join(b"data:" + space + line.encode() + end for line in lines) + end
        data.append("\n".join(lines).encode())
        ends.append(len(body))
    return bytes(body), data, ends


def plainly(events):
    """As lists, whatever they are kept in."""
    return tuple(map(list, events))


@given(bodies(), places, st.sampled_from([b"", b";a=b", b" ; x"]), trailers)
def test_events_do_not_depend_on_chunks(made, at, extension, trailer):
    body, data, ends = made
    raw, behind = chunked(cut(body, at), extension, trailer)
    head = parse_head(HEAD + raw)
    assert plainly(events_of(HEAD + raw, head)) == (data, [len(HEAD) + behind[end - 1] for end in ends])
    assert body_of(HEAD + raw, head)[0] == body
    plain = plainly(events_of(PLAIN_HEAD + body, parse_head(PLAIN_HEAD)))
    assert plain == (data, [len(PLAIN_HEAD) + end for end in ends])


@given(st.lists(payloads, max_size=8), st.booleans())
@example([b"a\na"], False)
@example([b"a\ra", b"b"], False)
@example([b"a\n"], False)
def test_the_quick_way_through_chunks_reads_as_the_slow_one(parts, spoiled):
    """One event per chunk, whatever stands in it; in one chunk with an extension it is read line by line."""
    pieces = [b"data: %b\n\n" % payload for payload in parts]
    if spoiled:
        pieces.append(b": a comment\n\n")
    raw, behind = chunked(pieces)
    in_one, all_behind = chunked([b"".join(pieces)] if pieces else [], b";slow")
    quick, slow = (plainly(events_of(HEAD + stream, parse_head(HEAD + stream))) for stream in (raw, in_one))
    assert quick[0] == slow[0]
    body_end = {raw_end: at for at, raw_end in enumerate(all_behind)}
    assert quick[1] == [len(HEAD) + behind[body_end[end - len(HEAD)]] for end in slow[1]]


@given(events())
def test_usual_streams_take_the_quick_way(row):
    pieces = [b"data: %b\n\n" % orjson.dumps(document) for document, _ in row] + [b"data: [DONE]\n\n"]
    raw, behind = chunked(pieces)
    ends = [len(HEAD) + behind[end - 1] for end in accumulate(map(len, pieces))]
    quick = whole(_one_event_per_chunk(HEAD + raw, len(HEAD)))
    assert quick == ([piece[6:-2] for piece in pieces], ends)
    if compiled() is not None:
        assert plainly(spans_of_chunks(compiled(), HEAD + raw, len(HEAD))) == quick


@given(st.booleans().flatmap(lambda chat: st.tuples(st.just(chat), events(chat=chat))), st.booleans(), st.booleans())
def test_the_learned_shape_reads_as_the_parser(made, ascii_only, broken):
    chat, row = made
    dumps = (lambda value: json.dumps(value, separators=(",", ":")).encode()) if ascii_only else orjson.dumps
    data = [dumps(document) for document, _ in row]
    if broken:
        data.insert(len(data) // 2, b'{"error":{"message":"out of memory","code":500}}')
    data.append(b"[DONE]")
    api = api_of("chat" if chat else "completions")
    quick, parsed = read_events(api, data), read_events(api, data, keep_text=True)
    for name in ("tokens", "counted", "running_usage", "visible_event", "finish_reason", "request_id", "done", "error"):
        assert getattr(quick, name) == getattr(parsed, name), name
    for name in ("prompt_tokens", "completion_tokens"):
        assert (quick.usage or {}).get(name) == (parsed.usage or {}).get(name)
    assert (quick.error is not None) == broken
    assert "".join(parsed.text) == "".join(_text(document) for document, _ in row)


@given(events(), st.integers(0, 12))
def test_a_cut_stream_is_counted_as_far_as_it_came(row, kept):
    """Whether the last event was parsed or only recognised."""
    data = [orjson.dumps(document) for document, _ in row][:kept]
    quick, parsed = (read_events(api_of("completions"), data, keep) for keep in (False, True))
    assert quick.tokens == parsed.tokens
    assert (quick.usage or {}).get("completion_tokens") == (parsed.usage or {}).get("completion_tokens")


@given(events())
def test_running_counts_are_the_tokens(row):
    answer = read_events(api_of("completions"), [orjson.dumps(document) for document, _ in row])
    if answer.running_usage:
        assert answer.tokens == [tokens for _, tokens in row]
    assert sum(answer.tokens) == sum(tokens for _, tokens in row)


@given(texts, texts)
def test_a_shape_is_recognised_again(first, second):
    """What is learned from one event reads another, unless its text needs escapes that the shape does not know."""
    usage = {"prompt_tokens": 3, "total_tokens": 1003, "completion_tokens": 1000}
    document = {"choices": [{"text": first, "finish_reason": None}], "usage": usage}
    shape = learn(orjson.dumps(document), b'"text":"', api_of("completions").deltas)
    document["choices"][0]["text"] = second  # type: ignore[index]
    bears, gains, _ = shape.read_run([orjson.dumps(document)], 0, 1, 0) if shape else ([], [], 0)
    if b"\\" not in orjson.dumps(first) and b"\\u" not in orjson.dumps(second):
        assert bears
    if bears:
        assert gains == [1000]
        assert bears == [1 if second else 0]


@given(st.integers(1, 100), st.lists(st.booleans(), max_size=40))
def test_scaled_tokens_add_up(reported, bears):
    data = [orjson.dumps({"choices": [{"text": "x" if bearing else ""}]}) for bearing in bears]
    data.append(orjson.dumps({"choices": [], "usage": {"completion_tokens": reported}}))
    answer = read_events(api_of("completions"), data)
    assert answer.counted == sum(bears)
    assert sum(answer.tokens) == (reported if any(bears) else 0)
    assert all(not tokens or bearing for tokens, bearing in zip(answer.tokens, bears, strict=False))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_template_carries_any_prompt(prompt):
    assert json.loads(template_body('{"a": "<{prompt}>", "{prompt}": 1}', prompt)) == {"a": f"<{prompt}>", prompt: 1}


@given(token_texts, places, trailers, st.sampled_from([b"", b"x", b"0\r\n\r\n", HEAD]))
def test_the_last_chunk_is_seen_with_its_last_byte(parts, at, trailer, behind):
    """However the body is cut into reads, and whatever comes behind it with its last read."""
    raw, _ = chunked([part.encode() for part in parts if part], b"", trailer)
    chunks, reads = Chunks(), cut(raw, at)
    assert [chunks.feed(read) for read in reads[:-1]] == [-1] * (len(reads) - 1)
    assert chunks.feed(reads[-1] + behind) == len(behind)


@given(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=6), st.integers(0, 200), st.data())
def test_what_is_left_of_a_chunk(pieces, at, data):
    """As the compiled reader is told when it goes on from there."""
    raw, _ = chunked(pieces)
    at %= len(raw) - len(b"0\r\n\r\n")
    chunks = Chunks()
    chunks.feed(raw[:at])
    if (left := chunks.left) is not None:
        rest = Chunks()
        assert rest.feed((b"%x\r\n" % (left - 2) + raw[at:]) if left > 2 else raw[at + left :]) == 0


@given(
    st.lists(st.sampled_from([b"data: a\n\n", b"data: \n\n", b": x\n\n", b"data: b\r\r", b"\n"]), max_size=6),
    st.integers(0, 200),
)
def test_a_cut_stream_is_read_the_quick_way_as_the_slow_one(pieces, length):
    raw = HEAD + chunked(pieces)[0]
    raw = raw[: max(length % (len(raw) + 1), len(HEAD))]
    body, starts, ahead = body_of(raw, parse_head(raw))
    data, ends = whole(_reading_lines(body, complete=False))
    placed = [end + ahead[bisect_right(starts, end - 1) - 1] for end in ends]
    assert plainly(events_of(raw, parse_head(raw), complete=False)) == (data, placed)


@given(st.lists(st.binary(min_size=1, max_size=9), max_size=6), st.sampled_from([b"-6", b"", b"xyz", b"+4", b"0x4"]))
def test_broken_framing_is_said_and_does_not_hang(pieces, size):
    raw = HEAD + chunked(pieces)[0][: -len(b"0\r\n\r\n")] + size + b"\r\nabcd\r\n"
    head = parse_head(raw)
    with pytest.raises(ValueError, match="broken chunk framing"):
        Chunks().feed(raw[head.end :])
    with pytest.raises(ValueError, match="broken chunk framing"):
        body_of(raw, head)


@given(st.binary(max_size=40), st.integers(0, 60))
def test_a_head_is_complete_or_not_an_answer(garbage, length):
    """Never anything but a head, `None` or ValueError, and no byte beyond the blank line is needed."""
    assert parse_head(HEAD[: min(length, len(HEAD) - 1)]) is None
    assert parse_head(HEAD + garbage).end == len(HEAD)
    if not b"HTTP/".startswith(garbage[:5]):
        with pytest.raises(ValueError, match="not an HTTP answer"):
            parse_head(garbage)


class Wire:
    """A client and a server that sends what it is told, piece by piece, each read before the next is sent."""

    def __init__(self, allow_compiled):
        self.reactor = Reactor(allow_compiled=allow_compiled)
        self.server = HttpServer(self.reactor, self._answer)
        self.client = Client(self.reactor, origin_of(f"http://127.0.0.1:{self.server.port}"))
        self.pieces, self.ends = [], 0

    def _answer(self, _request, reply):
        pieces = iter(self.pieces)

        def go_on(read_before: int) -> None:
            if self._read_so_far() < read_before:
                self.reactor.call_at(now(), lambda: go_on(read_before))
                return
            piece = next(pieces, None)
            if piece is None:
                reply.end()
            else:
                reply.raw(piece)
                self.reactor.call_at(now(), lambda: go_on(read_before + 1))

        self.reactor.call_at(now(), lambda: go_on(0))

    def _read_so_far(self) -> int:
        """A stream that ended is not asked any more: it may have been taken as a whole."""
        return 1 << 30 if self.ends else self.exchange.reads_so_far

    def carry(self, pieces):
        self.pieces, self.ends = pieces, 0
        self.exchange = self.client.fetch(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", self._ended)
        guard = self.reactor.call_at(now() + 10 * 10**9, self.reactor.stop)
        self.reactor.run()
        guard.cancel()
        return self.exchange

    def _ended(self, exchange):
        self.ends += 1
        self.reactor.call_at(now() + 300_000, self.reactor.stop)  # time for a second end, which must not come


@pytest.fixture(scope="module")
def wire(reader):
    wire = Wire(reader == "compiled")
    yield wire
    wire.client.close()
    wire.server.close()
    wire.reactor.close()


@settings(max_examples=60, deadline=None)
@given(row=events(), at=places, chunk_at=places, trailer=trailers, form=st.integers(0, 2))
def test_the_client_finds_the_end_once_at_any_cut(wire, row, at, chunk_at, trailer, form: int):
    body = sse([document for document, _ in row])
    if form == 0:
        raw = HEAD + chunked(cut(body, chunk_at), b"", trailer)[0]
    elif form == 1:
        raw = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    else:
        raw = b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + chunked(cut(body, chunk_at))[0]
    pieces = cut(raw, at)
    exchange = wire.carry(pieces)
    assert (exchange.outcome, wire.ends) == ("ok", 1)
    assert np.diff(read_ends_of(exchange), prepend=0).tolist() == [*map(len, pieces)]
    assert exchange.raw == raw
    assert exchange.retry_ns == 0
    assert wire.client.opened == 1, "kept alive from answer to answer"


def _text(document):
    return "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in document["choices"])
