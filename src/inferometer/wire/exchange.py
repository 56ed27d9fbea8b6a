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
    """One request and the bytes of its answer, each read with its stamp."""

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
        self.on_read: Callable[[], None] | None = None  # called for every read; keeps the compiled reader out
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
        self.heard = 0  # reads at the last look for silence
        self.quiet_since = 0
        self.recognise = False  # events may be recognised as they come: their text is not needed
        self.learned: tuple[bytes, Skeleton] | None = None  # an event, and the shape that was learned when it was read

    def forget_answer(self) -> None:
        """As before the first byte came: at the start, and when a dead connection is replaced."""
        self.reads: list[bytes] = []
        self.stamps: list[bytes] = []  # kernel: struct timespec; otherwise packed by us in the same form
        self.since: list[int] = []  # of each read: it came after this instant; or UNPROVEN, or LEFT by the one before
        self.own: set[int] = set()  # the reads without a stamp of the kernel
        self.bulk: tuple[bytes, bytes, int] | None = None  # all bytes, the compiled reader's list of reads, and
        # how many of them it had to stamp itself
        self.recognised: Recognised | None = None  # then the bytes are only those of the headers and of odd events
        self.shape = -1  # that the compiled reader expects of its events
        self.kernel = False
        self.head: Head | None = None
        self.head_read = -1  # index of the read that completed the headers
        self.left = 0  # bytes of a body of known length still to come
        self.dropped = 0  # bytes at the end of what was read that are not kept

    @property
    def received(self) -> int:
        """Bytes of the answer that came and were kept, or recognised."""
        if self.recognised is not None:
            return self.recognised.size
        return len(self.bulk[0]) if self.bulk else sum(map(len, self.reads))

    @property
    def raw(self) -> bytes:
        """All bytes of the answer that came."""
        return self.bulk[0] if self.bulk else b"".join(self.reads)

    def find_head(self) -> Head | None:
        """The headers, once enough was read, and which read completed them; ValueError where it is no answer."""
        head = parse_head(b"".join(self.reads))
        if head is not None:
            self.head = head
            self.head_read = next(i for i, end in enumerate(accumulate(map(len, self.reads))) if end >= head.end)
        return head

    @property
    def reads_so_far(self) -> int:
        """Reads there have been, those included that the compiled reader still holds."""
        return len(self.reads) + (self.connection.collected[0] if self.connection is not None else 0)

    @property
    def size(self) -> int:
        """Bytes of the answer so far, while it is under way."""
        return 0 if self.connection is None else self.connection.size

    def keep_beginning(self) -> None:
        """Keep only the reads that brought the headers; of an answer that the compiled reader collected only these."""
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
        """Do not keep the last bytes that were read."""
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
        """Give it up: cancel, time out, or report a failure. Nothing happens when it is over already."""
        if self.outcome is None:
            connection, self.connection = self.connection, None
            if connection is not None:
                connection.drop()
            self.client.finish(self, outcome, error)
