"""The compiled part of the wire says what the Python part says, on anything."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.load.answer import FRAMING, place_tokens
from inferometer.wire.compiled import compiled
from inferometer.wire.exchange import Exchange
from inferometer.wire.skeleton import Skeleton
from inferometer.wire.sse import _one_event_per_chunk

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
    assert compiled().split_events(raw, len(HEAD)) == _one_event_per_chunk(raw, len(HEAD))


pieces = st.sampled_from([b"", b'"', b"a", b"1", b"23", b"}", b"}}", b'{"t":"', b'","u":', b',"c":', b"\\", b"-1"])
events = st.lists(pieces, max_size=7).map(b"".join)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(-5, 30)), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=12),
    st.integers(-50, 50),
)
def test_tokens_are_placed_alike(reads, events, sent_at):
    """Reads of so many bytes so long after each other; events that end there, with so many tokens."""
    read_ends, stamps = (np.cumsum([each[column] for each in reads]) for column in (0, 1))
    ends, tokens = ([each[column] for each in sorted(events) if each[0] <= read_ends[-1]] for column in (0, 1))
    exchange = Exchange.__new__(Exchange)
    exchange.sent_at, exchange.bulk, exchange.reads, exchange.since = sent_at, None, [], []
    python = place_tokens(exchange, stamps, read_ends, np.array(ends, np.int64), np.array(tokens, np.int64))
    assert compiled().place_tokens(stamps, read_ends, ends, tokens, sent_at, FRAMING) == python


def test_an_event_behind_the_last_read_is_refused():
    reads = np.array([10])
    with pytest.raises(ValueError, match="behind the last read"):
        compiled().place_tokens(reads, reads, [11], [1], 0, FRAMING)
    with pytest.raises(ValueError, match="lengths differ"):
        compiled().place_tokens(reads, reads, [10], [], 0, FRAMING)


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
)
def test_runs_are_read_alike(shape, row, start):
    fitting = [b'{"t":"%b","u":1,"c":2}}' % text for text in row if b'"' not in text]
    for data in (row, fitting, fitting + row):
        python = shape._running_run(data, start) if shape.running else shape._plain_run(data, start)
        assert shape.read_run(data, start) == python
