"""An answer in progress: receives tokens from the engine, writes them to the client and logs the true times. Plain
tokens of a step are sent by one call of the compiled reader."""

import io
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from inferometer.documents.document import JsonValue
from inferometer.simulator.dialects import Answering, EventFrames, Frames, TokenFrames, chunk, chunks
from inferometer.simulator.engine import Batch, Sequence
from inferometer.simulator.requests import Question
from inferometer.simulator.settings import Faults
from inferometer.simulator.tokens import answer_text
from inferometer.wire.compiled import compiled
from inferometer.wire.reactor import Reactor, now
from inferometer.wire.server import Reply

# -- the truth about what was sent -------------------------------------------------------------------------------------

# The true times of the server: when each request arrived, and the time just before each write of tokens.
#
# Times are on the machine's monotonic clock, so they can be compared with a client on the same machine.


@dataclass(slots=True)
class TruthOfRequest:
    """`written_tokens` is None if every write carried one token."""

    id: str
    received_at: int
    headers_at: int = 0
    written_at: "array[int]" = field(default_factory=lambda: array("q"))
    written_tokens: "array[int] | None" = None
    ending: str = ""  # ok, left (the client disconnected), cut, status; empty while in progress

    def tokens(self) -> list[int]:
        return [1] * len(self.written_at) if self.written_tokens is None else list(self.written_tokens)


class TruthLog:
    """The latest requests, up to a number of writes, and the lateness of the engine's steps."""

    def __init__(self, most_events: int) -> None:
        self._most_events = most_events
        self._events = 0
        self.requests: deque[TruthOfRequest] = deque()
        self.first_late_ns: deque[int] = deque(maxlen=1 << 18)  # per step: deadline to the first write
        self.last_late_ns: deque[int] = deque(maxlen=1 << 18)  # the same to after the last write

    def add(self, request: TruthOfRequest) -> None:
        self.requests.append(request)

    def ended(self, request: TruthOfRequest, ending: str) -> None:
        request.ending = ending
        self._events += len(request.written_at)
        while self._events > self._most_events and len(self.requests) > 1 and self.requests[0].ending:
            self._events -= len(self.requests.popleft().written_at)

    def stepped(self, first_late: int, last_late: int) -> None:
        self.first_late_ns.append(first_late)
        self.last_late_ns.append(last_late)

    def lateness(self) -> dict[str, JsonValue]:
        """Seconds after the deadline of a step, over the latest steps."""
        return {
            "steps": len(self.first_late_ns),
            "first_write_s": _spread(self.first_late_ns),
            "last_write_s": _spread(self.last_late_ns),
        }

    def to_json(self) -> bytes:
        requests = [
            {
                "id": request.id,
                "received_at": request.received_at,
                "headers_at": request.headers_at or None,
                "ending": request.ending or None,
                "written_at": request.written_at.tolist(),
                "written_tokens": request.tokens(),
            }
            for request in self.requests
        ]
        return orjson.dumps({"clock": "monotonic_ns", "lateness": self.lateness(), "requests": requests})

    def to_npz(self) -> bytes:
        """Columns; the writes of request i are `written_at[offsets[i]:offsets[i + 1]]`."""
        buffer = io.BytesIO()
        requests = list(self.requests)
        tokens = [np.array(request.tokens(), np.int64) for request in requests]
        np.savez(
            buffer,
            id=np.array([request.id for request in requests], dtype=np.str_),
            received_at=np.array([request.received_at for request in requests], np.int64),
            headers_at=np.array([request.headers_at for request in requests], np.int64),
            ending=np.array([request.ending for request in requests], dtype=np.str_),
            offsets=np.cumsum([0, *(len(part) for part in tokens)]).astype(np.int64),
            written_at=_joined([np.array(request.written_at, np.int64) for request in requests]),
            written_tokens=_joined(tokens),
            first_late_ns=np.array(self.first_late_ns, np.int64),
            last_late_ns=np.array(self.last_late_ns, np.int64),
        )
        return buffer.getvalue()

    def write(self, path: Path) -> None:
        path.write_bytes(self.to_json() if path.suffix == ".json" else self.to_npz())


def _spread(values_ns: deque[int]) -> dict[str, float] | None:
    if not values_ns:
        return None
    values = np.array(values_ns, np.int64) / 1e9
    p50, p99, highest = np.quantile(values, [0.5, 0.99, 1.0])
    return {"p50": float(p50), "p99": float(p99), "max": float(highest)}


def _joined(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


# -- answers -----------------------------------------------------------------------------------------------------------

# -- answers ---------------------------------------------------------------------------------------------------------

_SPLIT_GAP_NS = 1_000_000  # between two halves of a chunk: long enough for two reads


class SimulatedAnswer:
    """One request. Its parts, one per choice, share the connection; the usage is sent when all are done."""

    def __init__(
        self,
        question: Question,
        answering: Answering,
        reply: Reply,
        truth: TruthOfRequest,
        on_end: Callable[["SimulatedAnswer", str], None],
    ) -> None:
        self.question = question
        self.answering = answering
        self.reply = reply
        self.truth = truth
        self.joined_at = 0  # when it reached the engine
        self.parts: list[AnswerChoice] = []
        self.left = 0  # parts not yet finished
        self._on_end = on_end

    def add_part(self, part: "AnswerChoice") -> None:
        self.parts.append(part)
        self.left += 1

    def start(self) -> None:
        """Send the headers of a stream; an answer in one piece sends them with its body."""
        if self.question.stream:
            self.truth.headers_at = now()
            self.reply.start(200)

    def part_done(self) -> None:
        self.left -= 1
        if self.left == 0:
            self._finish()

    def _finish(self) -> None:
        if self.question.stream:
            self.reply.end(self.ending())
        else:
            self.truth.headers_at = now()
            self.truth.written_at.append(self.truth.headers_at)
            self.truth.written_tokens = array("q", [self.made])
            texts = [answer_text(part.sequence.answer) for part in self.parts]
            reasons = [part.reason for part in self.parts]
            self.reply.respond(200, self.answering.whole(texts, reasons, self.made, self.cached))
        self.over("ok")

    def ending(self) -> bytes:
        return chunks(self.answering.ending(self.made, self.cached))

    def over(self, ending: str) -> None:
        """Whether nothing more will be written."""
        self._on_end(self, ending)

    @property
    def made(self) -> int:
        return sum(part.given for part in self.parts)

    @property
    def cached(self) -> int:
        return sum(part.sequence.cached or 0 for part in self.parts)


class AnswerChoice:
    """One choice of an answer; called for each token, 50,000 times a second on a busy server."""

    __slots__ = (
        "_frames",
        "_last",
        "_noted",
        "_plain",
        "_raw",
        "_stream",
        "_words",
        "answer",
        "given",
        "index",
        "reason",
        "sequence",
    )

    def __init__(self, answer: SimulatedAnswer, index: int, sequence: Sequence, reason: str) -> None:
        self.answer = answer
        self.index = index
        self.sequence = sequence
        self.reason = reason
        self.given = 0
        free = answer.question.generations[index].structured is None
        self._frames: Frames = answer.answering.frames(index) if free else EventFrames(answer.answering, index)
        self._last = len(sequence.answer)
        self._noted = answer.truth.written_at.append
        self._raw = answer.reply.raw
        self._stream = answer.question.stream
        self._plain = self._stream and isinstance(self._frames, TokenFrames)
        self._words = sequence.answer
        answer.add_part(self)

    def token(self) -> None:
        """The engine made one more."""
        given = self.given
        self.given = made = given + 1
        if not self._stream:
            pass
        elif made == self._last or given == 0:
            self._end_token(made)
        else:
            frame = self._frames.frame(self._words[given].encode(), made)
            self._noted(now())
            self._raw(frame)
        if made == self._last:
            self.answer.part_done()

    def plain_chunk(self) -> bytes | None:
        """The bytes of the next token, if sending them is all that is needed; call `written` when they are sent.
        Parts that share a connection must not overtake each other if the socket accepts only a piece."""
        given = self.given
        if not self._plain or given + 1 == self._last or len(self.answer.parts) > 1:
            return None
        chunk = self._frames.frame(self._words[given].encode(), given + 1)
        return chunk if given else chunks(self.answer.answering.opening(self.index)) + chunk

    def written(self, at: int) -> None:
        self.given += 1
        self._noted(at)

    def _end_token(self, made: int) -> None:
        """The first token, which most APIs precede with another event, or the last, which has the finish reason."""
        reason = self.reason if made == self._last else None
        answering = self.answer.answering
        data = chunk(answering.token_event(self.index, f" {self._words[made - 1]}", made, reason))
        if made == 1:
            data = chunks(answering.opening(self.index)) + data
        self._noted(now())
        self._raw(data)


class FaultyAnswer(SimulatedAnswer):
    """Writes with its injected faults; delayed writes keep their order."""

    def __init__(
        self,
        question: Question,
        answering: Answering,
        reply: Reply,
        truth: TruthOfRequest,
        on_end: Callable[[SimulatedAnswer, str], None],
        faults: Faults,
        reactor: Reactor,
    ) -> None:
        super().__init__(question, answering, reply, truth, on_end)
        self.faults = faults
        self._reactor = reactor
        self._waiting: list[Callable[[], None]] | None = None
        truth.written_tokens = array("q")

    def start(self) -> None:
        super().start()
        if self.faults.role_only and self.question.stream:
            self.reply.raw(chunks(self.answering.opening(0)) or chunk(self.answering.role_event(0)))
        if self.faults.cut == 0:
            self.cut()

    def cut(self) -> None:
        """End the connection in the middle of the answer."""
        self.reply.close()
        self.over("cut")

    def do(self, action: Callable[[], None]) -> None:
        """Run an action now, or after the delayed ones."""
        if self._waiting is None:
            action()
        else:
            self._waiting.append(action)

    def hold(self, span_ns: int) -> None:
        """Delay all further writes."""
        self._waiting = []
        self._reactor.call_at(now() + span_ns, self._go_on)

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        while waiting:
            waiting.pop(0)()
            if self._waiting is not None:  # delayed again: the rest follows the actions that wait already
                self._waiting += waiting
                return

    def write(self, data: bytes, tokens: int) -> None:
        """Write one chunk, in two sends if a fault requires it."""
        at = self._split_at(data)
        if at:
            self.reply.raw(data[:at])
            self.hold(_SPLIT_GAP_NS)
            self.do(lambda: self._note_and_send(data[at:], tokens))
        else:
            self._note_and_send(data, tokens)

    def _note_and_send(self, data: bytes, tokens: int) -> None:
        if self.truth.written_tokens is not None:
            self.truth.written_tokens.append(tokens)
        self.truth.written_at.append(now())
        self.reply.raw(data)

    def _split_at(self, data: bytes) -> int:
        """Where to split: after the first byte of a two-byte character, or inside the first line; 0 means nowhere."""
        if self.faults.split_utf8:
            return next((at + 1 for at, byte in enumerate(data) if byte >= 0xC0), 0)
        return data.find(b"data:") + 3 if self.faults.split_line else 0

    def part_done(self) -> None:
        self.do(super().part_done)

    def ending(self) -> bytes:
        wanted = {"usage": not self.faults.no_usage, "done": not self.faults.no_done}
        return chunks(self.answering.ending(self.made, self.cached, **wanted))


class FaultyPart(AnswerChoice):
    """A part with faults: collects, stalls and cuts. It is slower than the plain one, which does not matter."""

    __slots__ = ("_collected", "_faulty")

    def __init__(self, answer: FaultyAnswer, index: int, sequence: Sequence, reason: str) -> None:
        super().__init__(answer, index, sequence, reason)
        self._faulty = answer
        self._collected = 0

    def plain_chunk(self) -> None:
        """Always None: faulty parts are not written in bulk."""

    def token(self) -> None:
        self.given += 1
        self._collected += 1
        faults = self._faulty.faults
        if not self._stream and faults.cut is not None and self.given == faults.cut:
            self._faulty.cut()
        elif not self._stream:
            pass
        elif self._collected == faults.tokens_per_chunk or self.given == self._last:
            self._faulty.do(self._flush(self.given - self._collected, self.given))
            self._collected = 0
        if self.given == self._last and not self.answer.reply.done:
            self.answer.part_done()

    def _flush(self, start: int, end: int) -> Callable[[], None]:
        """Write the tokens from `start` to `end`, then run the actions due after them."""
        faults = self._faulty.faults
        answering = self.answer.answering
        reason = self.reason if end == self._last else None
        text = answer_text(self._words[start:end])
        data = chunk(answering.token_event(self.index, text, end, reason))
        if start == 0 and not faults.role_only:
            data = chunks(answering.opening(self.index)) + data

        def write() -> None:
            if self.answer.reply.done:
                return
            self._faulty.write(data, end - start)
            if faults.cut is not None and end >= faults.cut:
                self._faulty.do(self._faulty.cut)
            elif faults.stall_s and start <= self._last // 2 < end:
                self._faulty.do(lambda: self._faulty.hold(round(faults.stall_s * 1e9)))

        return write


# -- stepwriter ------------------------------------------------------------------------------------------------------


class StepRow(NamedTuple):
    """The receivers of a step's tokens: `parts` with their sockets and chunks, and those that need more than a send."""

    batch: Batch
    step: int  # of the batch
    parts: list[AnswerChoice]
    fds: "array[int]"
    chunks: list[bytes]
    others: list[AnswerChoice]


class StepWriter:
    """Prepares the row of the next step, unless a sequence ends."""

    def __init__(self) -> None:
        self._reader = compiled()
        self._ahead: StepRow | None = None

    def write(self, batch: Batch, index: int) -> int:
        """Write one token per decoding sequence, and the first token of each finished prefill; returns the time of the
        first write."""
        row, self._ahead = self._ahead, None
        if row is None or row.batch is not batch or row.step != index:
            row = self._row(batch, index)
        first_at = now()
        if row.parts:
            first_at = self._send(row)
        for part in row.others:
            if not part.sequence.aborted:  # its client may have just disconnected
                part.token()
        return first_at

    def prepare(self, batch: Batch, index: int) -> None:
        """At the start of a step, prepare the bytes to send at its end."""
        if self._reader is not None:
            self._ahead = self._row(batch, index)

    def forget(self) -> None:
        """Drop the row after a disconnect, because the descriptor may be reused."""
        self._ahead = None

    def _row(self, batch: Batch, index: int) -> StepRow:
        row = StepRow(batch, index, [], array("i"), [], [])
        for part in _parts(batch):
            chunk = part.plain_chunk() if self._reader is not None else None
            fd = -1 if chunk is None else part.answer.reply.fileno()
            if chunk is None or fd < 0:
                row.others.append(part)
            else:
                row.parts.append(part)
                row.fds.append(fd)
                row.chunks.append(chunk)
        return row

    def _send(self, row: StepRow) -> int:
        assert self._reader is not None
        stamps, sizes = self._reader.send_each(row.fds, row.chunks)
        instants = memoryview(stamps).cast("q")
        for part, at in zip(row.parts, instants, strict=False):  # the last time is after all sends
            part.written(at)
        if sizes:
            self._send_rest(row, memoryview(sizes).cast("q"))
        return instants[0]

    def _send_rest(self, row: StepRow, sizes: "memoryview[int]") -> None:
        """Bytes that a socket did not accept wait in the reply's buffer, which also notices disconnects."""
        for part, data, size in zip(row.parts, row.chunks, sizes, strict=True):
            if size < len(data):
                part.answer.reply.raw(data[size:])


def _parts(batch: Batch) -> list[AnswerChoice]:
    parts = [sequence.waiter for sequence in batch.decodes if not sequence.aborted]
    parts += [
        sequence.waiter
        for sequence, tokens in batch.chunks
        if sequence.computed + tokens == sequence.length and not sequence.aborted
    ]
    return parts
