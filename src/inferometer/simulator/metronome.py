"""A fast server with exact timing: each stream gets one token per interval by absolute deadlines, 150,000 to 200,000
events/s on one core, and the time before every send is logged. Calibration, benchmarks and tests compare with it.

    python -m inferometer.simulator.metronome --port 0 --first 50ms --interval 5.4ms

prints one JSON line with its ports, and ends on SIGTERM or when its stdin closes. Several may share a port, each on a
separate core: `metronome_process`. It does not simulate an engine; `engine` does.
"""

import argparse
import gc
import json
import os
import signal
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import compress
from operator import not_
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inferometer.simulator.metronome_process import MODEL, StreamRequest, score
from inferometer.vocabulary import NANOSECONDS, seconds
from inferometer.wire.compiled import compiled
from inferometer.wire.reactor import BATCH, Reactor, now
from inferometer.wire.server import HttpRequest, HttpServer, Reply, head

SLOT_NS = 100_000  # streams with deadlines this close are sent together
MOST_SLOTS = 1024
SLICE_NS = 300_000  # maximum time of sending between two checks for requests
HELD_NS = 50_000  # a send takes 3 to 10 us; a longer one is logged with its duration
Ints = NDArray[np.int64]
TRUTH_SCHEMA = "inferometer/metronome-truth/1"


@dataclass(frozen=True, slots=True)
class Beat:
    """When tokens are due. With `service_ns`, requests queue for one server with that service time until the first
    token: an M/D/1 queue if arrivals are Poisson."""

    first_ns: int
    interval_ns: int
    service_ns: int | None = None


MODELS = b'{"object":"list","data":[{"id":"%s","object":"model"}]}' % MODEL.encode()
STREAM_HEAD = head(200, {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"})
FAR = 1 << 62  # a slot that is never reached
NUMBER_BITS = 32  # bits of answer ids per process


class MetronomeStream:
    """One answer in progress, with its data for the truth."""

    __slots__ = ("due_at", "id", "last_slot", "received_at", "reply")

    def __init__(self, answer_id: str, received_at: int, due_at: int, last_slot: int, reply: Reply) -> None:
        self.id = answer_id
        self.received_at = received_at
        self.due_at = due_at  # of its first token; the others follow at the interval
        self.last_slot = last_slot
        self.reply: Reply | None = reply  # None: everything is sent, or the client disconnected

    def send_in_turn(self, data: bytes) -> int:
        """Sends through the reply's buffer, which is used once it has unsent bytes."""
        if self.reply is not None:
            self.reply.raw(data)
        return len(data)


class SentPage(NamedTuple):
    """The sends to an unchanged set of streams in a slot, turn by turn."""

    streams: list[MetronomeStream]
    turns: list[bytes]  # each with the times before its sends and after the last one, packed int64


class WheelSlot:
    """The streams of one slot, as columns for the sending loop."""

    def __init__(self, pages: list[SentPage]) -> None:
        self._pages = pages
        self._page: SentPage | None = None  # the current page; None: start a new one, because the streams have changed
        self.streams: list[MetronomeStream] = []
        self.sends: list[Callable[[bytes], int]] = []
        self.fds = array("i")  # -1 for streams that Python must send to
        self.payloads: list[Iterator[bytes]] = []
        self.ends_slot = FAR  # slot in which the first of them ends

    def add(self, stream: MetronomeStream, payloads: Iterator[bytes]) -> None:
        assert stream.reply is not None
        self.streams.append(stream)
        self.sends.append(stream.reply.send_now)
        self.fds.append(stream.reply.fileno())
        self.payloads.append(payloads)
        self.ends_slot = min(self.ends_slot, stream.last_slot)
        self.turn_page()

    def turn_page(self) -> None:
        self._page = None

    def play(self) -> None:
        """Send every stream its next event. This is the hot loop: after a system call instructions are slow and cache
        lines cold, so all possible work is done before the first send or after the last one."""
        payloads = [*map(next, self.payloads)]
        if self._page is None:
            self._page = SentPage(self.streams.copy(), [])
            self._pages.append(self._page)
        reader = compiled()
        if reader is None or -1 in self.fds:
            stamps, sizes = self._send(payloads)
        else:
            stamps, sizes = reader.send_each(self.fds, payloads)
        self._page.turns.append(stamps)
        if sizes:
            self._buffer_rest(payloads, memoryview(sizes).cast("q"))

    def _send(self, payloads: list[bytes]) -> tuple[bytes, bytes]:
        """Like `send_each` of the compiled reader: the times before each send and after the last one, and the accepted
        bytes per socket if one did not accept all."""
        stamps, sizes = array("q"), array("q")
        stamp, took, clock = stamps.append, sizes.append, now
        for send, payload in zip(self.sends, payloads, strict=True):
            stamp(clock())
            try:
                took(send(payload))
            except OSError:  # its buffer is full, or the client disconnected
                took(0)
        stamp(clock())
        whole = sizes.tolist() == [*map(len, payloads)]
        return stamps.tobytes(), b"" if whole else sizes.tobytes()

    def _buffer_rest(self, payloads: list[bytes], sizes: Iterable[int]) -> None:
        """Send bytes that a socket did not accept, and all later ones, through the reply's buffer."""
        for i, (payload, size) in enumerate(zip(payloads, sizes, strict=True)):
            if size < len(payload):
                self.fds[i] = -1
                self.sends[i] = self.streams[i].send_in_turn
                self.sends[i](payload[size:])

    def leave(self, stream: MetronomeStream) -> None:
        """Remove a stream whose client disconnected, because the descriptor may be reused."""
        if stream in self.streams:
            self.fds[self.streams.index(stream)] = -1
            self.ends_slot = min(self.ends_slot, stream.last_slot)

    def drop_ended(self, slot: int) -> int:
        """Finish the streams whose last event was sent; returns their number."""
        keeps = [stream.last_slot > slot for stream in self.streams]
        for stream in compress(self.streams, map(not_, keeps)):
            if stream.reply is not None:
                stream.reply.end()
                stream.reply = None
        self.streams[:] = compress(self.streams, keeps)
        self.sends[:] = compress(self.sends, keeps)
        self.fds[:] = array("i", compress(self.fds, keeps))
        self.payloads[:] = compress(self.payloads, keeps)
        self.ends_slot = min((stream.last_slot for stream in self.streams), default=FAR)
        self.turn_page()
        return len(keeps) - len(self.streams)


class Metronome:
    """Answers requests with exact timing. All streams have the same interval, so a wheel of slots that turns once per
    interval needs no sorting: a stream keeps its slot from its first token to its last."""

    def __init__(self, reactor: Reactor, beat: Beat, answered: int = 0) -> None:
        self._reactor = reactor
        self._beat = beat
        spokes = min(max(beat.interval_ns // SLOT_NS, 1), MOST_SLOTS)
        self._slot_ns = max(beat.interval_ns // spokes, 1)
        self._pages: list[SentPage] = []
        self._wheel = [WheelSlot(self._pages) for _ in range(spokes)]
        self._slot = 0  # the next slot; its time is slot * slot_ns, its spoke wheel[slot % spokes]
        self._playing = 0  # streams on the wheel
        self._fresh: list[tuple[int, int, MetronomeStream, Iterator[bytes]]] = []  # a heap: first slot, number, stream
        self._streams: list[MetronomeStream] = []
        self._answered = answered  # for the ids: processes that share the port start at other numbers
        self._free_at = 0  # when the queue for `service_ns` is empty
        self._ticking = False

    def answer(self, request: HttpRequest, reply: Reply) -> None:
        """The handler of `wire.server.Server`."""
        match request.method, request.path:
            case "POST", "/v1/completions" | "/v1/chat/completions":
                self._begin(request, reply)
            case "GET", "/v1/models":
                reply.respond(200, MODELS)
            case "GET", "/health":
                reply.respond(200, b"")
            case "GET", "/truth":
                reply.respond(200, self.truth(), {"content-type": "application/octet-stream"})
            case "DELETE", "/truth":
                self._forget()
                reply.respond(200, b"{}")
            case _:
                reply.respond(404, b'{"error":{"message":"the metronome has no such path","code":404}}')

    def truth(self) -> bytes:
        """A JSON line about every request since the truth was last deleted, then all send times as int64. The process
        may lose the CPU between a clock reading and its send: a long send happened at an unknown time before the next
        reading, so its duration is reported."""
        streams = self._streams
        sent_at, held = sent_in(self._pages, streams)
        facts = {
            "schema": TRUTH_SCHEMA,
            "interval_ns": self._slot_ns * len(self._wheel),
            "id": [stream.id for stream in streams],
            "received_at": [stream.received_at for stream in streams],
            "first_due_at": [stream.due_at for stream in streams],
            "sent": [sum(map(len, parts)) for parts in sent_at],
            "held": held,
        }
        return json.dumps(facts).encode() + b"\n" + b"".join(part.tobytes() for parts in sent_at for part in parts)

    def _forget(self) -> None:
        self._streams.clear()
        self._pages.clear()
        for spoke in self._wheel:
            spoke.turn_page()

    def _begin(self, request: HttpRequest, reply: Reply) -> None:
        requested = StreamRequest.of(request.path, request.body)
        if isinstance(requested, str):
            reply.respond(400, json.dumps({"error": {"message": requested, "code": 400}}).encode())
            return
        slot = max(-(-self._first_due_at(request.received_at) // self._slot_ns), self._slot)
        self._answered += 1
        part = score(requested, self._answered)
        last_slot = slot + (requested.tokens - 1) * len(self._wheel)
        stream = MetronomeStream(part.id, request.received_at, slot * self._slot_ns, last_slot, reply)
        reply.raw(STREAM_HEAD)
        reply.on_close = partial(self._leave, stream)
        self._streams.append(stream)
        heappush(self._fresh, (slot, self._answered, stream, part.payloads))  # arrival times may be out of order
        self._wake()

    def _leave(self, stream: MetronomeStream) -> None:
        """Handle a disconnect: the stream is removed from the wheel at its next turn, or in the current turn if this
        was its last event, because there is no later one."""
        stream.reply = None
        stream.last_slot = min(stream.last_slot, self._slot)
        for spoke in self._wheel:
            spoke.leave(stream)

    def _first_due_at(self, received_at: int) -> int:
        if self._beat.service_ns is None:
            return received_at + self._beat.first_ns
        self._free_at = max(self._free_at, received_at) + self._beat.service_ns
        return self._free_at

    def _wake(self) -> None:
        """Schedule the next slot, unless it is scheduled."""
        slot = self._next_slot()
        if slot is not None and not self._ticking:
            self._ticking = True
            self._reactor.call_at(slot * self._slot_ns, self._tick)

    def _next_slot(self) -> int | None:
        """The first slot with a due event."""
        fresh = self._fresh[0][0] if self._fresh else None
        if not self._playing:
            return fresh
        slot = self._slot
        while not self._wheel[slot % len(self._wheel)].streams:
            slot += 1
        return slot if fresh is None else min(slot, fresh)

    def _tick(self) -> None:
        """Send the due slots; if there are many, handle new requests in between."""
        self._ticking = False
        at = now()
        until = at + SLICE_NS
        while (slot := self._next_slot()) is not None and slot * self._slot_ns <= at < until:
            self._slot = slot + 1
            self._play(slot)
            at = now()
        self._wake()

    def _play(self, slot: int) -> None:
        """Send one event of every stream in the slot, including streams whose first token is due in it."""
        spoke = self._wheel[slot % len(self._wheel)]
        while self._fresh and self._fresh[0][0] <= slot:
            planned, _, stream, payloads = heappop(self._fresh)
            if stream.reply is not None:
                stream.last_slot += slot - planned  # a late stream ends later too: no event is skipped
                spoke.add(stream, payloads)
                self._playing += 1
        spoke.play()
        if spoke.ends_slot <= slot:
            self._playing -= spoke.drop_ended(slot)


def sent_in(
    pages: list[SentPage], streams: list[MetronomeStream]
) -> tuple[list[list[Ints]], list[tuple[int, int, int]]]:
    """The send times of each stream, part by part; and for long sends the stream, the event and the duration in
    nanoseconds."""
    number = {stream: i for i, stream in enumerate(streams)}
    sent_at: list[list[Ints]] = [[] for _ in streams]
    held: list[tuple[int, int, int]] = []
    for page in pages:
        stamps = np.frombuffer(b"".join(page.turns), np.int64).reshape(-1, len(page.streams) + 1)
        took = stamps[:, 1:] - stamps[:, :-1]
        for turn, column in np.argwhere(took > HELD_NS).tolist():
            if (i := number.get(page.streams[column])) is not None:
                held.append((i, sum(map(len, sent_at[i])) + turn, int(took[turn, column])))
        for column, stream in enumerate(page.streams):
            if (i := number.get(stream)) is not None:
                sent_at[i].append(stamps[:, column])
    return sent_at, held


def serve(beat: Beat, host: str, port: int, number: int = 0) -> None:
    """Run until SIGTERM, or until stdin closes; prints its address on stdout. The port may be shared
    with other processes; the second port belongs to this process, for its truth."""
    reactor = Reactor(turn=BATCH)  # overloaded, it would otherwise accept no requests
    metronome = Metronome(reactor, beat, number << NUMBER_BITS)
    server = HttpServer(reactor, metronome.answer, host, port, stamps=True, shared=True)
    alone = HttpServer(reactor, metronome.answer, host)
    for number in (signal.SIGTERM, signal.SIGINT):
        reactor.on_signal(number, reactor.stop)
    _stop_with_stdin(reactor)
    gc.disable()  # a collection would delay every stream; our data has no cycles
    print(json.dumps({"port": server.port, "own_port": alone.port, "pid": os.getpid()}), flush=True)
    reactor.run()
    server.close()
    alone.close()


def _stop_with_stdin(reactor: Reactor) -> None:
    """End with stdin, so that a metronome does not outlive its parent."""

    def drain(_events: int) -> None:
        if not os.read(stdin, 4096):
            reactor.stop()

    try:
        stdin = sys.stdin.fileno()
        reactor.watch(stdin, drain)
    except (AttributeError, ValueError, OSError):
        return  # no stdin, or a file: nothing to wait for


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="metronome", description="a server that sends tokens at exact times, for calibration"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 means a free port")
    parser.add_argument("--first", type=seconds, default=0.05, metavar="DURATION", help="until the first token")
    parser.add_argument("--interval", type=seconds, default=0.0054, metavar="DURATION", help="between tokens")
    parser.add_argument("--service", type=seconds, metavar="DURATION", help="one at a time, each takes this long")
    parser.add_argument("--number", type=int, default=0, help="of those that share the port")
    options = parser.parse_args()
    service_ns = None if options.service is None else round(options.service * NANOSECONDS)
    beat = Beat(round(options.first * NANOSECONDS), round(options.interval * NANOSECONDS), service_ns)
    serve(beat, options.host, options.port, options.number)


if __name__ == "__main__":
    main()
