"""Events that the compiled reader recognises as they come amount to what the parser makes of them, whatever a server
sends. INFEROMETER_MUTATIONS=10000 tries as many answers of each dialect."""

import os
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from random import Random

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams import HEAD, chunked, cut

from inferometer.load.answer import read_answer
from inferometer.record.record import Record
from inferometer.wire import api as wire_api
from inferometer.wire.api import api_of, read_events
from inferometer.wire.compiled import compiled
from inferometer.wire.exchange import Exchange
from inferometer.wire.http1 import parse_head
from inferometer.wire.reactor import COMPLETE, READ
from inferometer.wire.skeleton import Shape, shape_of
from inferometer.wire.sockets import MARK, UNPROVEN
from inferometer.wire.sse import Recognised, events_of
from mutated_answers import DIALECTS, mutated_answer

pytestmark = pytest.mark.skipif(compiled() is None, reason="the compiled reader was not built here")

MUTATIONS = int(os.environ.get("INFEROMETER_MUTATIONS", "200"))
SEED = int(os.environ.get("INFEROMETER_SEED", "15"))
MOMENT, STEP_NS = 1_000_000_000, 1000
SHAPED = [name for name in DIALECTS if api_of(name).text_key is not None]


@pytest.fixture(autouse=True, scope="module")
def short_streams_too() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire_api, "WORTH_LEARNING", 0)
        yield


def shape_learned_from(documents: list[object], dialect: str) -> Shape | None:
    answer = read_events(api_of(dialect), [orjson.dumps(document) for document in documents])
    return None if answer.learned is None else shape_of(*answer.learned)


def test_a_document_too_deep_to_be_compared_has_no_shape() -> None:
    event = b'{"id":"a","object":"text_completion","created":1,"choices":[{"index":0,"text":"x","finish_reason":null}],'
    event += b'"more":' + b"[" * 1000 + b"]" * 1000 + b"}"
    answer = read_events(api_of("completions"), [event, event])
    assert answer.learned is not None
    assert shape_of(*answer.learned) is None


def collect(
    reads: list[bytes], shape: Shape | None, late: bool = False
) -> tuple[bytes, bytes, Recognised | None] | None:
    """What the compiled reader returns when the bytes arrived in these reads; None if it is no complete stream. `late`:
    the shape is known only when the answer is taken."""
    with closing(compiled().Poller()) as poller:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            poller.register(ours.fileno(), READ)
            number = -1 if shape is None else _expected(poller, shape)
            poller.attach(ours.fileno(), -1, 0, 1 << 30, -1 if late else number)
            for piece in reads:
                theirs.send(piece)
                if told := poller.poll(0, 8):
                    break
            else:
                return None
            held = poller.held
            data, marks, _own, _apart, taken, _boundary = poller.take(ours.fileno(), b"", number)
            assert held > 0 == poller.held
    if not told[0][1] & COMPLETE:
        return None
    return data, _with_stamps(marks), None if taken is None else Recognised(data, taken)


def _expected(poller: object, shape: Shape) -> int:
    number: int = poller.expect(  # type: ignore[attr-defined]
        *(shape.prefix, shape.prefix_holes, shape.suffix, shape.suffix_holes),
        *(shape.running, shape.between, shape.after, shape.completion_first),
    )
    return number


def _with_stamps(marks: bytes) -> bytes:
    """Those of the kernel, as if there were any: a read each microsecond."""
    ends = [end for end, _stamp, _own, _since in MARK.iter_unpack(marks)]
    return b"".join(MARK.pack(end, MOMENT + i * STEP_NS, 0, UNPROVEN) for i, end in enumerate(ends))


def record_of(collected: tuple[bytes, bytes, Recognised | None], dialect: str) -> Record:
    data, marks, recognised = collected
    exchange = Exchange(None, b"", lambda _exchange: None)
    exchange.sent_at, exchange.ended_at, exchange.outcome = MOMENT - STEP_NS, MOMENT * 2, "ok"
    exchange.kernel, exchange.head = True, parse_head(data)
    exchange.bulk, exchange.recognised = (data, marks, 0), recognised
    record = Record(session=0, scheduled_at=0)
    read_answer(record, exchange, api_of(dialect), 0)
    return record


@pytest.mark.parametrize("dialect", SHAPED)
def test_mutated_answers_are_read_alike(dialect: str) -> None:
    random = Random(f"{SEED} {dialect}")
    tried: Counter[str] = Counter()
    shapes = [shape for row in DIALECTS[dialect] if (shape := shape_learned_from(row, dialect)) is not None]
    assert shapes
    for number in range(MUTATIONS):
        answer = mutated_answer(random, dialect)
        reads = answer.reads if number % 2 else in_plain_chunks(answer.raw, random)
        plain = collect(reads, None)
        for shape in shapes:
            known = collect(reads, shape)
            assert (plain is None) == (known is None)
            if plain is None or known is None:
                continue
            one, other = record_of(plain, dialect), record_of(known, dialect)
            assert one == other, reads
            late = collect(reads, shape, late=True)
            assert late is not None
            assert late[0] == known[0], "as if it had been known from the start"
            assert record_of(late, dialect) == one, reads
            tried["recognised" if known[2] is not None and known[2].runs else "parsed"] += 1
            tried[other.outcome] += 1
    assert tried["recognised"] and tried["parsed"] and tried["ok"] and tried["bad"], "all or nothing tries nothing"


def in_plain_chunks(raw: bytes, random: Random) -> list[bytes]:
    """The same events, each in a chunk of its own, as nearly all servers send them."""
    head = parse_head(raw)
    events = events_of(raw, head)[0] if head is not None and head.sse else [raw]
    body, _ = chunked([b"data: %b\n\n" % event for event in events])
    return cut(HEAD + body, [random.randrange(len(body)) for _ in range(random.randrange(30))])


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ['"', "\\", '\\"', "\n", "é漢🙂"]
)
totals = st.integers(0, 5) | st.sampled_from([10**14, 10**15, 10**16])


@given(
    st.lists(st.tuples(texts, totals), min_size=1, max_size=12),
    st.booleans(),
    st.sampled_from(["a-1", "b:2.c_3", "x" * 200, "x" * 201, 'q"', "é", ""]),
    st.integers(0, 10**16),
    st.integers(0, 10**16),
)
def test_other_ids_and_prompts_have_the_shape_too(
    row: list[tuple[str, int]], running: bool, name: str, created: int, prompt: int
) -> None:
    def document(text: str, total: int, name: str, created: int, prompt: int) -> dict[str, object]:
        usage = {"prompt_tokens": prompt, "total_tokens": prompt + total, "completion_tokens": total}
        event = {"id": name, "created": created, "choices": [{"text": text, "finish_reason": None}]}
        return event | ({"usage": usage} if running else {})

    shape = shape_learned_from([document(" w", 1, "first", 1, 7), document(" w", 2, "first", 1, 7)], "completions")
    assert shape is not None
    assert (shape.prefix_holes, shape.suffix_holes) == ("sn", "n" if running else "")
    documents = [document(text, total, name, created, prompt) for text, total in row]
    raw, _ = chunked([b"data: %b\n\n" % orjson.dumps(made) for made in documents] + [b"data: [DONE]\n\n"])
    known, plain = collect([HEAD + raw], shape), collect([HEAD + raw], None)
    assert known is not None and plain is not None
    assert record_of(known, "completions") == record_of(plain, "completions")
    late = collect([HEAD + raw], shape, late=True)
    assert late is not None and late[0] == known[0]
    assert record_of(late, "completions") == record_of(plain, "completions")
    usual = name in ("a-1", "b:2.c_3", "x" * 200) and created < 10**15 and prompt < 10**15
    fitting = sum(b"\\u" not in orjson.dumps(text) and total < 10**15 - prompt for text, total in row)
    if usual and all(b"\\u" not in orjson.dumps(text) and text and total + prompt < 10**15 for text, total in row):
        assert known[2] is not None
        assert sum(stop - start for start, stop, *_ in known[2].runs) == fitting - 1, "all but the first"


def test_a_value_that_is_there_twice_is_no_hole() -> None:
    document = {"id": "a", "choices": [{"text": "x", "finish_reason": None, "meta": {"id": "a"}}]}
    shape = shape_learned_from([document, document], "completions")
    assert shape is not None and shape.prefix_holes == ""


def test_what_cannot_be_a_shape_is_refused() -> None:
    with closing(compiled().Poller()) as poller:
        for prefix, holes in (((b"a",), "s"), ((), ""), ((b"a",) * 5, "ssss"), (("a",), "")):
            with pytest.raises(ValueError, match="one to four parts"):
                poller.expect(prefix, holes, (b"b",), "", False, b"", b"", False)
        numbers = [poller.expect((b"%d" % i,), "", (b"b",), "", False, b"", b"", False) for i in range(17)]
        assert numbers == [*range(16), -1]
