"""`Exchange`: one request and the bytes of its answer, each read with its timestamp. Nothing is parsed here."""

from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from inferometer.wire.http1 import Head, parse_head
from inferometer.wire.origin import Origin
from inferometer.wire.reactor import now
from inferometer.wire.skeleton import Skeleton
from inferometer.wire.sockets import MARK
from inferometer.wire.sse import Recognised

if TYPE_CHECKING:
    from inferometer.wire.connection import Connection


class Owner(Protocol):
    """The owner of an exchange, called when it is over: the client."""

    origin: Origin

    def finish(self, exchange: "Exchange", outcome: str, error: str | None = None) -> None: ...
    def learn_shape(self, exchange: "Exchange") -> None: ...


class Exchange:
    """One request and the bytes of its answer, each read with its timestamp."""

    __slots__ = (
        "bulk",
        "client",
        "connect_ns",
        "connection",
        "dropped",
        "ended_at",
        "error",
        "head",
        "head_read",
        "heard",
        "kernel",
        "learned",
        "left",
        "on_end",
        "on_read",
        "outcome",
        "own",
        "quiet_since",
        "reads",
        "recognise",
        "recognised",
        "request",
        "retry_ns",
        "sent_at",
        "shape",
        "since",
        "stamps",
        "started_at",
        "tls_ns",
    )

    def __init__(self, client: Owner, request: bytes, on_end: Callable[["Exchange"], None]) -> None:
        self.client = client
        self.request = request
        self.on_end = on_end
        self.on_read: Callable[[], None] | None = None  # called for every read; disables the compiled reader
        self.started_at = now()
        self.sent_at: int | None = None
        self.ended_at: int | None = None
        self.connect_ns = 0
        self.tls_ns = 0
        self.retry_ns = 0
        self.connection: Connection | None = None
        self.forget_answer()
        self.outcome: str | None = None  # set when it is over
        self.error: str | None = None
        self.heard = 0  # number of reads at the last check for silence
        self.quiet_since = 0
        self.recognise = False  # events may be recognised on arrival: their text is not needed
        self.learned: tuple[bytes, Skeleton] | None = None  # an event, and the shape learned when it was read

    def forget_answer(self) -> None:
        """Reset to the state before the first byte: at the start, and when a dead connection is replaced."""
        self.reads: list[bytes] = []
        self.stamps: list[bytes] = []  # kernel: struct timespec; our own are packed in the same form
        self.since: list[int] = []  # each read arrived after this instant; or UNPROVEN, or LEFT by the one before
        self.own: set[int] = set()  # the reads without a kernel timestamp
        self.bulk: tuple[bytes, bytes, int] | None = None  # all bytes, the compiled reader's list of reads, and
        # the number of reads with a timestamp of its own
        self.recognised: Recognised | None = None  # if set, the bytes are only those of headers and odd events
        self.shape = -1  # the event shape that the compiled reader expects
        self.kernel = False
        self.head: Head | None = None
        self.head_read = -1  # index of the read that completed the headers
        self.left = 0  # bytes of a body of known length not yet received
        self.dropped = 0  # bytes at the end of the received data that are not kept

    @property
    def received(self) -> int:
        """Bytes of the answer that were received and kept, or recognised."""
        if self.recognised is not None:
            return self.recognised.size
        return len(self.bulk[0]) if self.bulk else sum(map(len, self.reads))

    @property
    def raw(self) -> bytes:
        """All received bytes of the answer."""
        return self.bulk[0] if self.bulk else b"".join(self.reads)

    def find_head(self) -> Head | None:
        """The headers, once they are complete, and the read that completed them; ValueError if it is not an HTTP
        answer."""
        head = parse_head(b"".join(self.reads))
        if head is not None:
            self.head = head
            self.head_read = next(i for i, end in enumerate(accumulate(map(len, self.reads))) if end >= head.end)
        return head

    @property
    def reads_so_far(self) -> int:
        """Number of reads, including those that the compiled reader still holds."""
        return len(self.reads) + (self.connection.collected[0] if self.connection is not None else 0)

    @property
    def size(self) -> int:
        """Bytes of the answer so far, while it is in progress."""
        return 0 if self.connection is None else self.connection.size

    def keep_beginning(self) -> None:
        """Keep only the reads with the headers; for an answer collected by the compiled reader only the headers."""
        if self.bulk is not None and self.head is not None:
            data, marks, own = self.bulk
            kept = self.head.end
            self.dropped += (len(data) if self.recognised is None else self.recognised.size) - kept
            last = next((n for n, mark in enumerate(MARK.iter_unpack(marks), 1) if mark[0] >= kept), 0)
            self.bulk, self.recognised = (data[:kept], marks[: last * MARK.size], own), None
        else:
            kept = max(self.head_read, 0) + 1
            self.dropped += sum(map(len, self.reads[kept:]))
            del self.reads[kept:]
            self._drop_behind_reads()

    def drop_end(self, surplus: int) -> None:
        """Drop the last bytes that were read."""
        while surplus:
            last = self.reads[-1]
            if len(last) > surplus:
                self.reads[-1] = last[:-surplus]
                break
            surplus -= len(last)
            self.reads.pop()
        self._drop_behind_reads()

    def _drop_behind_reads(self) -> None:
        kept = len(self.reads)
        del self.stamps[kept:], self.since[kept:]
        self.own = {read for read in self.own if read < kept}

    def end(self, outcome: str, error: str | None = None) -> None:
        """End it early: cancel, time out, or report a failure. Does nothing if it is already over."""
        if self.outcome is None:
            connection, self.connection = self.connection, None
            if connection is not None:
                connection.drop()
            self.client.finish(self, outcome, error)
