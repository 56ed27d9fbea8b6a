"""The compiled part of the wire equals the Python part on any input."""

import socket
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams import HEAD as STREAM
from streams import cut

from inferometer.load.answer import FRAMING, _placed_in_c, place_tokens
from inferometer.wire.api import added_up
from inferometer.wire.compiled import compiled
from inferometer.wire.exchange import Exchange
from inferometer.wire.http1 import Chunks, whole
from inferometer.wire.reactor import COMPLETE, LOOK, READ
from inferometer.wire.skeleton import Skeleton
from inferometer.wire.sockets import STAMP
from inferometer.wire.sse import Spans, _one_event_per_chunk, spans_of_chunks
from inferometer.workload.writer import Lexicon, text_writer

pytestmark = pytest.mark.skipif(compiled() is None, reason="the compiled reader was not built here")

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"
odd_bytes = st.binary(max_size=12) | st.sampled_from([b"data: x\n\n", b"\r\n", b"\n\n", b"0", b"8\r\n", b"data: ", b""])
payloads = st.lists(odd_bytes, max_size=4).map(b"".join) | odd_bytes.map(lambda line: b"data: %b\n\n" % line)
sizes = st.sampled_from([b"%x", b"%X", b"0%x", b"%x ", b"+%x", b"%x;a=b", b"000000000000000%x"])


@st.composite
def bodies(draw):
    """Chunked bodies, most of them sound, some of them not."""
    body = b""
    for payload in draw(st.lists(payloads, max_size=5)):
        lie = draw(st.sampled_from([0] * 8 + [1, -1]))
        body += draw(sizes | st.just(b"%x")) % max(len(payload) + lie, 0) + b"\r\n" + payload + b"\r\n"
    return body + draw(st.sampled_from([b"0\r\n\r\n"] * 6 + [b"", b"0\r\nt: x\r\n\r\n", b"0\r\n\r\nmore"]))


@given(bodies())
def test_events_are_split_alike(body):
    raw = HEAD + body
    quick, python = spans_of_chunks(compiled(), raw, len(HEAD)), whole(_one_event_per_chunk(raw, len(HEAD)))
    assert (quick and tuple(map(list, quick))) == python


@given(bodies(), st.lists(st.integers(0, 200), max_size=6))
def test_chunks_are_followed_alike(body, places):
    """The compiled reader says that an answer is complete where Python does, and leaves to it what it cannot say."""
    raw = STREAM + body
    with closing(compiled().Poller()) as poller:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            poller.register(ours.fileno(), READ)
            poller.attach(ours.fileno(), -1, 0, 1 << 30)
            told = []
            for piece in cut(raw, places):
                theirs.send(piece)
                told += poller.poll(0, 8)
                if told:
                    break
            taken = poller.take(ours.fileno(), b"")[0]
    chunks, plain = Chunks(), taken[len(STREAM) :]
    if not told:
        assert chunks.feed(plain) == -1
    elif told[0][1] & COMPLETE:
        assert chunks.feed(plain) == 0
    else:
        assert told[0][1] == LOOK


numbers = st.sampled_from([b"1", b"23", b"123456789012345", b"1234567890123456", b"-1"])
pieces = numbers | st.sampled_from([b"", b'"', b"a", b"}", b"}}", b'{"t":"', b'","u":', b',"c":', b"\\"])
events = st.lists(pieces, max_size=7).map(b"".join)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(-5, 30), st.integers(-1, 120)), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=12),
    st.integers(-50, 50),
    st.integers(0, 12),
    st.data(),
)
def test_tokens_are_placed_alike(reads, events, sent_at, first, data):
    """Reads of so many bytes so long after each other, proven by a poll or not, the first of them by Python; events
    that end there, with so many tokens each."""
    sizes, waits, since = (np.array([read[column] for read in reads]) for column in (0, 1, 2))
    first = min(first, len(reads))
    exchange = Exchange.__new__(Exchange)
    exchange.sent_at, exchange.since, exchange.own = sent_at, since[:first].tolist(), set()
    exchange.reads = [bytes(size) for size in sizes[:first]]
    exchange.stamps = [STAMP.pack(*divmod(at, 10**9)) for at in waits.cumsum()[:first].tolist()]
    behind = sizes[first:].cumsum(), waits.cumsum()[first:], np.zeros(len(reads) - first), since[first:]
    exchange.bulk = (b"", np.stack(behind, 1).astype(np.int64).tobytes(), 0)
    kept = [each for each in sorted(events) if each[0] <= sizes.sum()]
    ends, tokens = [end for end, _ in kept], [amount for _, amount in kept]
    visible = data.draw(st.none() | st.integers(0, len(kept) - 1)) if kept else None
    given = exchange, 7, ends, tokens, visible
    assert _placed_in_c(*given) == place_tokens(*given)


def test_what_cannot_be_is_refused() -> None:
    stamp, ends = STAMP.pack(0, 0), np.array([11])
    for reads, stamps, tokens, why in (
        ([b"0123456789"], [stamp], [1], "behind the last read"),
        ([b"0123456789"], [stamp], [], "do not fit"),
        ([b"0123456789"], [], [1], "do not fit"),
        ([b"0123456789"], [b"?"], [1], "do not fit"),
        (["0123456789ab"], [stamp], [1], "do not fit"),
    ):
        with pytest.raises(ValueError, match=why):
            packed = np.array(tokens, np.int64)
            compiled().place_tokens(reads, stamps, [0] * len(reads), b"", 0, ends, packed, 0, FRAMING, -1)
    outside = np.array([0, 99]).tobytes()
    with pytest.raises(ValueError, match="outside of the answer"):
        compiled().read_run(b"abc", outside, 0, 0, b"", b"", False, b"", b"", False)


@given(
    st.builds(
        Skeleton,
        prefix=st.just(b'{"t":"'),
        suffix=st.sampled_from([b'","u":', b'"}', b'"']),
        running=st.booleans(),
        between=st.sampled_from([b',"c":', b"}"]),
        after=st.sampled_from([b"}}", b"}"]),
        completion_first=st.booleans(),
    ),
    st.lists(events, max_size=6),
    st.integers(0, 3),
    st.integers(0, 30),
)
def test_runs_are_read_alike(shape, row, start, before):
    fitting = [b'{"t":"%b","u":1,"c":2}}' % text for text in row if b'"' not in text]
    for data in (row, fitting, fitting + row):
        by_hand = shape._running_run if shape.running else shape._plain_run
        ends = np.cumsum([len(event) for event in data], dtype=np.int64)
        spans = np.stack([ends - [len(event) for event in data], ends], 1) if data else ends
        packed = Spans(b"".join(data), spans.astype(np.int64).tobytes())
        assert shape.read_run(packed, start, len(data), before) == by_hand(data[start:], before)
        shorter = shape.read_run(packed, start, len(data) // 2, before)
        assert shorter == by_hand(data[start : len(data) // 2], before)


words_of_a_lexicon = st.lists(st.text(st.characters(max_codepoint=127), max_size=9), min_size=1, max_size=20).map(tuple)


@given(words_of_a_lexicon, words_of_a_lexicon, st.lists(st.integers(0, 2**32 - 1), max_size=40), st.integers(0, 3))
def test_texts_are_joined_alike(first, rest, numbers, skipped: int) -> None:
    random = np.array(numbers, "<u4")[skipped:]
    lexicon = Lexicon(first, rest)
    assert text_writer(lexicon)(random) == text_writer(lexicon, " ".join)(random)


def test_words_beyond_ascii_are_joined_in_python() -> None:
    lexicon = Lexicon(("über",), ("naïve", "a"))
    assert text_writer(lexicon)(np.array([5, 0, 1], "<u4")) == "über naïve a"
    with pytest.raises(TypeError, match="ASCII"):
        compiled().join_words(("a",), ("é",), np.zeros(2, "<u4"))


@given(st.lists(st.integers(0, 2**63 - 1), max_size=20))
def test_sums_are_alike(numbers) -> None:
    packed = memoryview(np.array(numbers, np.int64).tobytes()).cast("q")
    assert added_up(packed) == sum(numbers), "also where it is no int64 any more"
