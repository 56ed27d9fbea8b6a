"""Turns the bytes and timestamps of an exchange into a record: which read completed which tokens, and how certain that
is."""

import re
import signal
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, cast

import numpy as np
import orjson
from numpy.typing import NDArray

from inferometer.errors import MissingExtra
from inferometer.load.clock import Ticket
from inferometer.plan.structured import Structured
from inferometer.record.record import Outcome, Record
from inferometer.wire.api import (
    END_MARK,
    LONGEST_ERROR,
    Answer,
    Api,
    Json,
    count_in,
    error_text,
    read_events,
    read_whole,
    reading_events,
    reading_recognised,
)
from inferometer.wire.compiled import compiled
from inferometer.wire.exchange import Exchange
from inferometer.wire.http1 import Excessive, Piecewise, reading_body, whole
from inferometer.wire.pieces import reading_pieces
from inferometer.wire.sockets import LEFT, MARK, stamp_ns
from inferometer.wire.sse import events_of, parse_json, splitting_events

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Placed = tuple[bytes, bytes, bytes, int | None]
SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{0,9})?")  # of a Retry-After header; dates are not supported
ENOUGH_TO_LEARN = 16 * 1024  # bytes: some 40 events
MOST_COUNTED_EVENT = 1 << 20  # bytes; a longer event is not counted while it arrives
CRLF = b"\r\n"
FRAMING = 2  # bytes after an event that belong to its chunk: a carriage return and a line feed


def read_answer(record: Record, exchange: Exchange, api: Api, offset_ns: int, keep_text: bool = False) -> str:
    """`reading_answer` without pauses."""
    return whole(reading_answer(record, exchange, api, offset_ns, keep_text))


def reading_answer(
    record: Record, exchange: Exchange, api: Api, offset_ns: int, keep_text: bool = False
) -> Piecewise[str]:
    """Fill in everything that the exchange shows; returns the answer's text if it is to be kept.

    `offset_ns` is real time minus monotonic time: timestamps are on the real-time clock. Whatever a server sent, the
    result is a record and never an exception: other requests must not be affected. A large answer is read with pauses.
    """
    _note_exchange(record, exchange)
    try:
        return (yield from _note_response(record, exchange, api, offset_ns, keep_text))
    except Exception as error:
        _note_unreadable(record, error)
        return ""


def learn_early(exchange: Exchange, api: Api) -> None:
    """Learns the shape of an answer's events from its beginning, before the answer itself is read."""
    assert exchange.head is not None
    beginning = exchange.raw[: exchange.head.end + ENOUGH_TO_LEARN]
    with suppress(Exception):  # whatever is wrong is reported when the answer is read
        exchange.learned = read_events(api, events_of(beginning, exchange.head, complete=False)[0]).learned


def _note_response(record: Record, exchange: Exchange, api: Api, offset_ns: int, keep_text: bool) -> Piecewise[str]:
    record.bytes_received = exchange.received + exchange.dropped
    if exchange.outcome in {"ok", "status"}:
        record.ended_at = last_stamp(exchange, offset_ns) or exchange.ended_at
    head = exchange.head
    if head is None:
        return ""
    record.status = head.status
    record.headers_at = _head_stamp(exchange) - offset_ns
    if head.status != 200:
        yield from _note_status(record, exchange)
        return ""
    answer = yield from _note_tokens(record, exchange, api, offset_ns, keep_text)
    coding = head.headers.get("content-encoding", "identity")
    if record.outcome == "bad" and not answer.failed and coding.lower() != "identity":
        record.error = f"the answer is compressed ({coding[:40]}), which was not requested"
    return "".join(answer.text)


def _note_unreadable(record: Record, error: Exception) -> None:
    """An expired time limit, or a request that we ended, remains the reason; a received answer counts as bad."""
    if isinstance(error, MemoryError):
        record.outcome, record.error = "client", "out of memory while its answer was read"
    elif record.outcome in {"ok", "cut", "bad"}:
        record.outcome = "oversized" if isinstance(error, Excessive) else "bad"
        record.error = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    record.read_at = record.read_tokens = record.read_slack = b""
    record.visible_at = record.counted_tokens = record.tokens_by = None


def new_record(ticket: Ticket) -> Record:
    """A record with everything known before the request is sent."""
    return Record(
        session=ticket.session,
        turn=ticket.turn,
        turns=ticket.turns,
        traffic=ticket.traffic,
        stage=ticket.stage,
        shard=ticket.shard,
        scheduled_at=ticket.scheduled_at,
        ready_at=ticket.ready_at,
    )


def stamps_of(exchange: Exchange, offset_ns: int) -> Ints:
    """The instant of every read on the monotonic clock."""
    pairs = np.frombuffer(b"".join(exchange.stamps), np.int64).reshape(-1, 2)
    stamps = pairs[:, 0] * 1_000_000_000 + pairs[:, 1]
    if exchange.bulk is not None:
        stamps = np.concatenate([stamps, _marks(exchange.bulk[1])[:, 1]])
    return stamps - offset_ns


def read_ends_of(exchange: Exchange) -> Ints:
    """The number of bytes received up to and including each read."""
    ends = np.fromiter(map(len, exchange.reads), np.int64, len(exchange.reads)).cumsum()
    if exchange.bulk is None:
        return ends
    return np.concatenate([ends, _marks(exchange.bulk[1])[:, 0] + (ends[-1] if len(ends) else 0)])


def last_stamp(exchange: Exchange, offset_ns: int) -> int | None:
    """The instant of the last read, if there was one."""
    if exchange.bulk is not None and exchange.bulk[1]:
        _end, stamp, _own, _since = MARK.unpack_from(exchange.bulk[1], len(exchange.bulk[1]) - MARK.size)
        return int(stamp) - offset_ns
    return stamp_ns(exchange.stamps[-1]) - offset_ns if exchange.stamps else None


def _head_stamp(exchange: Exchange) -> int:
    """The instant of the read that completed the headers, on the real-time clock."""
    if exchange.stamps:
        return stamp_ns(exchange.stamps[exchange.head_read])
    assert exchange.bulk is not None and exchange.head is not None
    behind = exchange.head.end
    return int(next(stamp for end, stamp, _own, _since in MARK.iter_unpack(exchange.bulk[1]) if end >= behind))


def kernel_stamped(exchange: Exchange) -> bool:
    """Whether every read has a kernel timestamp."""
    return not exchange.own and (exchange.bulk is None or not exchange.bulk[2])


def _marks(packed: bytes) -> Ints:
    """What the compiled reader reports for each read, in the form of `wire.sockets.MARK`."""
    return np.frombuffer(packed, np.int64).reshape(-1, 4)


def _note_exchange(record: Record, exchange: Exchange) -> None:
    record.sent_at = exchange.sent_at
    record.ended_at = exchange.ended_at
    record.connect_ns = exchange.connect_ns
    record.tls_ns = exchange.tls_ns
    record.retry_ns = exchange.retry_ns
    record.outcome = cast(Outcome, exchange.outcome)
    record.error = exchange.error
    record.bytes_sent = len(exchange.request)


def _note_status(record: Record, exchange: Exchange) -> Piecewise[None]:
    """For an answer with a status other than 200: its message, and its retry time."""
    assert exchange.head is not None
    after = exchange.head.headers.get("retry-after", "")
    record.retry_after_s = float(after) if SECONDS.fullmatch(after) else None
    body, _, _ = yield from reading_body(exchange.raw, exchange.head)
    try:
        record.error = error_text(body)
    except ValueError:
        record.error = body[:LONGEST_ERROR].decode("utf-8", "replace").strip() or None


def _note_tokens(record: Record, exchange: Exchange, api: Api, offset_ns: int, keep_text: bool) -> Piecewise[Answer]:
    ends: Sequence[int]
    assert exchange.head is not None
    complete = exchange.outcome == "ok"
    if exchange.recognised is not None:
        answer = yield from reading_recognised(api, exchange.recognised)
        ends = exchange.recognised.ends
    elif exchange.head.sse:
        data, ends = yield from splitting_events(exchange.raw, exchange.head, complete)
        answer = yield from reading_events(api, data, keep_text)
        exchange.learned = answer.learned
    elif api.in_pieces:
        answer, ends = yield from reading_pieces(api, exchange.reads, exchange.head, complete, keep_text)
    elif complete:
        raw = exchange.raw
        body, _, _ = yield from reading_body(raw, exchange.head)
        answer, ends = read_whole(api, body, keep_text), [len(raw)]
    else:
        return Answer()
    record.events = len(ends)
    _note_answer(record, answer)
    if len(ends):
        _note_reads(record, exchange, offset_ns, ends, answer)
    if complete:
        _check(record, api, answer)
        _check_end(record, exchange, api, answer)
    elif answer.failed and record.outcome == "cut":  # the server sent the reason and then closed the connection
        record.outcome, record.error = "bad", answer.error
    if complete and not api.generates and record.outcome == "ok":
        _note_whole_read(record, exchange, offset_ns)
    return answer


class StreamTokens:
    """Counts the tokens of an event stream in progress, read by read: from the running usage if events contain one,
    else by the events that carry anything. Each byte is processed once, whatever a server sends, and only the
    incomplete event is kept."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._reads = 0  # number of the exchange's reads processed
        self._size_line = b""  # of a chunk, received only in part
        self._left = 0  # bytes of a chunk, and of its line end, not yet received
        self._carriage_return = b""  # at the end of a read: half of a line end, or all of it
        self._event = bytearray()  # after the last blank line
        self._answer = Answer()
        self._events = self._stated = 0

    def reaches(self, exchange: Exchange, most: int) -> bool:
        """Whether this many tokens have arrived and the answer is not over."""
        head = exchange.head
        if head is None or not head.sse or head.status != 200:
            return False
        new = exchange.reads[self._reads :]
        data = b"".join(new) if self._reads else b"".join(new)[head.end :]
        self._reads += len(new)
        self._take(self._unframed(data) if head.chunked else data)
        return max(self._events, self._stated) >= most and self._answer.finish_reason is None

    def _unframed(self, data: bytes) -> bytes:
        """The data of the chunks; their framing was checked on arrival."""
        data, self._size_line = self._size_line + data, b""
        parts, at = [], 0
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                parts.append(piece[: max(self._left - len(CRLF), 0)])
                self._left -= len(piece)
                at += len(piece)
            elif (line := data.find(CRLF, at)) < 0 or not (size := int(data[at:line].partition(b";")[0], 16)):
                self._size_line = data[at:]  # incomplete, or the size line of the last chunk
                break
            else:
                self._left, at = size + len(CRLF), line + len(CRLF)
        return b"".join(parts)

    def _take(self, data: bytes) -> None:
        data = self._carriage_return + data
        self._carriage_return = data[-1:] if data.endswith(b"\r") else b""
        looked = max(len(self._event) - 1, 0)
        self._event += data.removesuffix(b"\r").replace(CRLF, b"\n").replace(b"\r", b"\n")
        while (end := self._event.find(b"\n\n", looked)) >= 0:
            self._count(bytes(self._event[:end]))
            del self._event[: end + 2]
            looked = 0
        if len(self._event) > MOST_COUNTED_EVENT:
            del self._event[:-1]

    def _count(self, event: bytes) -> None:
        data = b"\n".join(line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:"))
        if not data or data == END_MARK:
            return
        try:
            document = self._api.parse(data)
            text, other = self._api.deltas(document)
            self._stated = max(self._stated, self._api.note(self._answer, document) or 0)
        except Exception:  # reading the whole answer later reports the error
            return
        self._events += bool(text or other)


def _note_answer(record: Record, answer: Answer) -> None:
    usage = answer.usage or {}
    record.input_tokens = count_in(usage, "prompt_tokens")
    record.output_tokens = count_in(usage, "completion_tokens")
    record.cached_tokens = count_in(_details(usage, "prompt_tokens_details"), "cached_tokens")
    record.reasoning_tokens = count_in(_details(usage, "completion_tokens_details"), "reasoning_tokens")
    record.counted_tokens = answer.counted
    record.finish_reason = answer.finish_reason
    record.request_id = answer.request_id
    record.tokens_by = _counted_by(record, answer)


def _counted_by(record: Record, answer: Answer) -> Literal["usage", "running usage", "events", "length"] | None:
    if not answer.counted:
        return None
    if answer.running_usage:
        return "running usage"
    if answer.by_length:
        return "length"
    return "events" if record.output_tokens is None else "usage"


def _details(usage: Json, name: str) -> Json:
    details = usage.get(name)
    return details if isinstance(details, dict) else {}


def _note_reads(record: Record, exchange: Exchange, offset_ns: int, ends: Sequence[int], answer: Answer) -> None:
    """Determines which read completed each event, the tokens of each read, and the uncertainty of each read."""
    reader = compiled() if kernel_stamped(exchange) else None
    place = place_tokens if reader is None else _placed_in_c
    placed = place(exchange, offset_ns, ends, answer.tokens, answer.visible_event)
    record.read_at, record.read_tokens, record.read_slack, record.visible_at = placed


def _placed_in_c(
    exchange: Exchange, offset_ns: int, ends: Sequence[int], tokens: Sequence[int], visible: int | None
) -> Placed:
    reader, marks = compiled(), b"" if exchange.bulk is None else exchange.bulk[1]
    assert reader is not None
    seen = -1 if visible is None else visible
    reads = exchange.reads, exchange.stamps, exchange.since, marks
    events = _packed(ends), _packed(tokens)
    placed: Placed = reader.place_tokens(*reads, offset_ns, *events, exchange.sent_at, FRAMING, seen)
    return placed


def _packed(numbers: Sequence[int]) -> "memoryview | array[int]":
    """As int64 in one piece, the format of the compiled reader."""
    return numbers if isinstance(numbers, memoryview) else array("q", numbers)


def place_tokens(
    exchange: Exchange, offset_ns: int, event_ends: Sequence[int], tokens: Sequence[int], visible: int | None
) -> Placed:
    """Instant, tokens and slack of every read with tokens, packed; and the instant of the first visible event."""
    stamps, read_ends = stamps_of(exchange, offset_ns), read_ends_of(exchange)
    ends, event_tokens = np.asarray(event_ends, np.int64), np.array(tokens, np.int64)
    completed_by = read_ends.searchsorted(ends)
    amounts = np.bincount(completed_by, event_tokens, len(stamps)).astype(np.int64)
    bearing, bears = amounts.nonzero()[0], event_tokens > 0
    slack = _slack(exchange, stamps, read_ends, ends[bears], completed_by[bears])
    packed = stamps[bearing].tobytes(), amounts[bearing].tobytes(), slack[bearing].tobytes()
    return *packed, None if visible is None else int(stamps[completed_by[visible]])


def _slack(exchange: Exchange, stamps: Ints, read_ends: Ints, ends: Ints, completed_by: Ints) -> Ints:
    """How much earlier than its stamp the tokens of a read may have arrived; `ends` are of token-bearing events.

    A kernel stamp is that of the newest byte: exact for a read that ends with its only token and left nothing,
    otherwise they may have arrived at any time since the instant of `_bounds`.
    """
    since, own = _since_and_own(exchange)
    slack: Ints = np.maximum(stamps - _bounds(exchange, stamps, since, own), 0)
    last_end = np.zeros(len(stamps), np.int64)
    last_end[completed_by] = ends  # the last event of a read is written last
    exact = (np.bincount(completed_by, minlength=len(stamps)) == 1) & (read_ends - last_end <= FRAMING) & ~own
    exact[:-1] &= since[1:] != LEFT  # else its timestamp may be that of the bytes it left
    slack[exact] = 0
    return slack


def _since_and_own(exchange: Exchange) -> tuple[Ints, Mask]:
    """For every read: the earliest time its bytes may have arrived, and whether its timestamp is our own."""
    since, own = np.array(exchange.since, np.int64), np.zeros(len(exchange.since), np.bool_)
    own[list(exchange.own)] = True
    if exchange.bulk is None:
        return since, own
    marks = _marks(exchange.bulk[1])
    return np.concatenate([since, marks[:, 3]]), np.concatenate([own, marks[:, 2] != 0])


def _bounds(exchange: Exchange, stamps: Ints, since: Ints, own: Mask) -> Ints:
    """The instant after which the bytes of each read arrived: the timestamp of the previous read, or a later poll that
    proves that the stream was empty. Bytes that a read left may have arrived as early as that read's own bytes; and a
    timestamp of our own is later than the bytes, so the bytes that follow may be older than it."""
    assert exchange.sent_at is not None
    after = np.empty_like(stamps)
    after[0] = exchange.sent_at
    after[1:] = stamps[:-1]
    proven = (since > 0) & (since <= stamps)  # an older timestamp: the kernel had the data, the socket did not
    irregular = since == LEFT
    irregular[1:] |= own[:-1]
    irregular[0] = False
    after[proven] = np.maximum(after, since)[proven]
    for read in irregular.nonzero()[0]:
        after[read] = max(after[read - 1], since[read] if proven[read] else after[read - 1])
    return after


def _note_whole_read(record: Record, exchange: Exchange, offset_ns: int) -> None:
    """An answer without tokens has arrived when all of it has: one read, with no token in it."""
    record.read_at = stamps_of(exchange, offset_ns)[-1:].tobytes()
    record.read_tokens = record.read_slack = bytes(8)
    record.counted_tokens = None


def _check(record: Record, api: Api, answer: Answer) -> None:
    """Checks that a complete response is also a complete answer."""
    if answer.error is not None:
        record.outcome, record.error = "bad", answer.error
    elif not record.read_at and api.generates:
        record.outcome, record.error = "bad", "the answer carries no token"


def _check_end(record: Record, exchange: Exchange, api: Api, answer: Answer) -> None:
    """If only the closed connection ends a stream, its end mark shows whether it is complete."""
    assert exchange.head is not None
    marked = answer.done or answer.finish_reason is not None or api.in_pieces
    if exchange.head.until_close and exchange.head.sse and not marked and record.outcome == "ok":
        record.outcome, record.error = "cut", "the connection was closed before the stream's end mark"


HasForm = Callable[[str], bool]
CHECK_S = 0.1  # of processor time for one answer
MOST_SLOW = 3  # after this many slower checks there are no more: every stream waits for a check


class FormCheck:
    """Checks whether answers have the structure that a traffic class requires. Some regular expressions take longer
    than the whole run on an answer that nearly matches, and a server may send exactly that: answers then stay
    unchecked."""

    def __init__(self, has_form: HasForm) -> None:
        self._has_form = has_form
        self._slow = 0

    def __call__(self, text: str) -> Literal["valid", "invalid", "unchecked"]:
        if self._slow >= MOST_SLOW:
            return "unchecked"
        try:
            with _limited(CHECK_S):
                return "valid" if self._has_form(text) else "invalid"
        except TimeoutError:
            self._slow += 1
        except Exception as error:  # the schema refers to something unavailable, or the answer is too large or too deep
            return "invalid" if isinstance(error, RecursionError) else "unchecked"
        return "unchecked"


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raises TimeoutError after this much processor time, also inside a regular expression, because the matcher checks
    for signals. Threads other than the main thread receive no signals and have no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        # Repeats: an exception raised in a callback of the garbage collector is not passed on.
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def form_check(structured: Structured | None) -> FormCheck | None:
    """Created once per traffic class; None if no structure is required, or only one that cannot be checked: a
    grammar."""
    if structured is None or structured.form == "grammar":
        return None
    if structured.json_schema is not None:
        return FormCheck(_schema_check(structured))
    if structured.regex is not None:
        matches = re.compile(structured.regex).fullmatch
        return FormCheck(lambda text: matches(text) is not None or matches(text.strip()) is not None)  # a last \n
    if structured.choice is not None:
        choices = {choice.strip() for choice in structured.choice}
        return FormCheck(lambda text: text.strip() in choices)
    return FormCheck(lambda text: isinstance(_json_in(text), dict))


def _schema_check(structured: Structured) -> HasForm:
    try:
        from jsonschema.validators import validator_for
        from jsonschema_specifications import REGISTRY
    except ImportError:
        raise MissingExtra("checking answers against a JSON schema", "structured") from None
    kind = validator_for(structured.json_schema)
    # Otherwise schemas that this one refers to would be fetched during the load, from a server that may not answer.
    # Only those of JSON schema itself are available; a schema that refers to others stays unchecked.
    validator = kind(structured.json_schema, registry=REGISTRY)

    def check(text: str) -> bool:
        value = _json_in(text)
        return value is not _NO_JSON and bool(validator.is_valid(value))

    return check


_NO_JSON = object()


def _json_in(text: str) -> object:
    try:
        return parse_json(text.encode("utf-8", "surrogatepass"))
    except orjson.JSONDecodeError:
        return _NO_JSON
