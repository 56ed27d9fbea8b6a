"""A connection from its opening to its end: it timestamps every read and keeps the bytes as received.

This is the hot path. A read costs one `recvmsg`, two appends and a step from chunk to chunk; all parsing waits until
the stream is over (`wire.http1`, `wire.sse`). Custom code, because no HTTP library keeps kernel receive timestamps.

Whatever a server sends can end only its own exchange: as "bad" if it is not HTTP, as "oversized" if it exceeds the
client's limits.
"""

import errno
import os
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from inferometer.wire.exchange import Exchange, Owner
from inferometer.wire.http1 import Chunks, parse_head
from inferometer.wire.origin import READ_SIZE, Address, TlsSession
from inferometer.wire.reactor import BROKEN, COMPLETE, READ, SURPLUS, TOO_LARGE, WRITE, Reactor, ReactorTimer, now
from inferometer.wire.sockets import (
    ANCILLARY_SIZE,
    LEFT,
    MARK,
    STAMP,
    UNPROVEN,
    Acknowledging,
    ask_for_stamps,
    send_at_once,
)
from inferometer.wire.sse import Recognised, Taken

OURS = frozenset(  # errors of calls for which this machine lacks resources, not the server
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
)
MOST_READS = 1 << 18  # of one answer, as in _reader.c: twice the tokens of the longest existing answers
READ_COST = 128  # memory of a read in addition to its data: two objects and their places in the lists


class Pool(Owner, Protocol):
    """The client that owns a connection."""

    reactor: Reactor
    addresses: list[Address]
    connect_timeout_s: float
    most_answer: int
    kernel_stamps: bool
    opened: int
    acks: Acknowledging
    shape: int
    number: int

    def delay_acks(self) -> int: ...
    def retry(self, exchange: Exchange) -> None: ...
    def rest(self, connection: "Connection") -> None: ...
    def add(self, connection: "Connection") -> None: ...
    def forget(self, connection: "Connection") -> None: ...


class Connection:
    """A socket from its opening to its end; carries one exchange at a time."""

    __slots__ = (
        "_attached",
        "_chunks",
        "_client",
        "_delay",
        "_exchange",
        "_fd",
        "_got",
        "_kernel",
        "_on_edges",
        "_on_open",
        "_opened_at",
        "_opening",
        "_outbox",
        "_reactor",
        "_recvmsg",
        "_refused",
        "_reused",
        "_socket",
        "_step",
        "_tls",
        "_tried",
        "_tunnel",
        "_unproven",
    )

    def __init__(self, client: Pool, exchange: Exchange | None, on_open: Callable[[], None] | None = None) -> None:
        self._client = client
        self._reactor = client.reactor
        self._exchange = exchange
        self._on_open = on_open
        self._tls: TlsSession | None = None
        self._tunnel = b""
        self._outbox = memoryview(b"")
        self._attached = False
        self._on_edges = False  # the kernel reports edge-triggered, as for the compiled reader
        self._reused = False
        self._chunks: Chunks | None = None  # of an answer that is read here, if it is chunked
        self._got = 0  # bytes of the answer that were read here
        self._unproven: int | None = (
            None  # None: the last read emptied the socket, so that a poll can prove that nothing arrived
        )
        # since; otherwise what is known of the next read: LEFT or UNPROVEN
        self._tried = 0
        self._refused = 0  # the error of an address that refused the connection
        self._opened_at = now()
        self._fd = -1
        if exchange is not None:
            exchange.connection = self
        self._opening: ReactorTimer | None = self._reactor.call_at(
            self._opened_at + int(client.connect_timeout_s * 1e9), self._too_slow
        )
        client.add(self)
        client.opened += 1
        self._connect()

    # -- opening ---------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        family, address = self._client.addresses[self._tried]
        self._tried += 1
        try:
            self._socket = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._fail_soon(_why(error), _is_ours(error))
            return
        self._fd = self._socket.fileno()
        self._socket.setblocking(False)
        send_at_once(self._socket)
        error_number = self._socket.connect_ex(address)
        if error_number not in {0, errno.EINPROGRESS}:
            self._next_address(error_number)
            return
        self._reactor.watch(self._fd, self._connected, WRITE)

    def _connected(self, _events: int) -> None:
        error_number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error_number:
            self._next_address(error_number)
            return
        self._kernel = self._client.kernel_stamps and ask_for_stamps(self._socket)
        self._reactor.stamps_itself |= not self._kernel
        self._recvmsg = self._socket.recvmsg
        if self._exchange is not None:
            self._exchange.connect_ns = now() - self._opened_at
        if self._client.origin.tunnelled:
            self._ask_for_tunnel()
        else:
            self._secure()

    def _next_address(self, error_number: int) -> None:
        if self._fd >= 0:
            self._reactor.unwatch(self._fd)
            self._socket.close()
            self._fd = -1
        if self._refused == 0 or self._refused in OURS:  # a server's error is more useful than our lack of resources
            self._refused = error_number
        if self._tried < len(self._client.addresses):
            self._connect()
        else:
            self._fail_soon(os.strerror(self._refused), self._refused in OURS)

    def _ask_for_tunnel(self) -> None:
        origin = self._client.origin
        key = f"Proxy-Authorization: {origin.proxy_key}\r\n" if origin.proxy_key else ""
        where = f"[{origin.host}]:{origin.port}" if ":" in origin.host else f"{origin.host}:{origin.port}"
        try:
            self._socket.send(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{key}\r\n".encode())
        except OSError as error:
            self._fail_to_open(f"the proxy: {_why(error)}")
            return
        self._reactor.watch(self._fd, self._read_tunnel)

    def _read_tunnel(self, _events: int) -> None:
        try:
            data = self._socket.recv(READ_SIZE)
            self._tunnel += data
            head = parse_head(self._tunnel)
        except BlockingIOError:
            return
        except (OSError, ValueError) as error:
            self._fail_to_open(f"the proxy: {_why(error)}")
            return
        if head is not None and 200 <= head.status < 300:
            self._secure()
        elif head is not None or not data:
            self._fail_to_open(f"the proxy answered {head.status}" if head else "the proxy closed the connection")

    def _secure(self) -> None:
        if self._client.origin.tls is None:
            self._opened()
            return
        self._tls = TlsSession(self._client.origin)
        self._step = now()
        self._reactor.watch(self._fd, self._handshake)
        self._handshake(READ)

    def _handshake(self, _events: int) -> None:
        assert self._tls is not None
        try:
            if self._step != 0 and self._tls.started:
                data = self._socket.recv(READ_SIZE)
                if not data:
                    self._fail_to_open("the server closed the connection during the TLS handshake")
                    return
                self._tls.feed(data)
            finished = self._tls.handshake()
            self._push(self._tls.outgoing.read())
        except BlockingIOError:
            return
        except (OSError, ssl.SSLError) as error:
            self._fail_to_open(f"TLS: {_why(error)}")
            return
        if finished:
            if self._exchange is not None:
                self._exchange.tls_ns += now() - self._step
            self._opened()

    def _opened(self) -> None:
        """The connection is open: send the waiting request, or keep the connection idle."""
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        self._reactor.watch(self._fd, self._reader())
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self.take(exchange, reused=False)
        else:
            self._client.rest(self)
        self._notify_open()

    def _too_slow(self) -> None:
        self._fail_to_open(f"no connection within {self._client.connect_timeout_s:g} s")

    def _fail_soon(self, error: str, ours: bool) -> None:
        """Fail from the loop, so that the caller does not receive the failure before it has the connection."""
        self._reactor.call_at(now(), lambda: self._fail_to_open(error, ours))

    def _fail_to_open(self, error: str, ours: bool = False) -> None:
        exchange, self._exchange = self._exchange, None
        self.drop()
        if exchange is not None:
            exchange.connect_ns = now() - self._opened_at
            self._client.finish(exchange, "client" if ours else "connect", error)
        self._notify_open()

    def _notify_open(self) -> None:
        on_open, self._on_open = self._on_open, None
        if on_open is not None:
            on_open()

    # -- an exchange -----------------------------------------------------------------------------------------

    def reuse(self, exchange: Exchange) -> bool:
        """Send another request on this connection. False if bytes arrived since the last answer: they would be taken
        for the answer to this request."""
        begin = self._reactor.begin
        if begin is not None and self._kernel and not (self._tls or self._outbox or exchange.on_read):
            delay, shape = self._client.delay_acks(), self._client.shape if exchange.recognise else -1
            request, most = exchange.request, self._client.most_answer
            try:
                begun = begin(self._fd, request, delay, most, shape, self._client.number)
            except OSError as error:  # out of memory, for example
                begun = now(), -(error.errno or errno.EIO)
            if begun is not None:
                exchange.sent_at, sent = begun
                exchange.shape = shape
                self._carry(exchange, reused=True)
                self._attached = self._on_edges = sent == len(request)
                if self._attached:
                    self._delay = delay
                else:
                    self._client.acks.learn(delay, False)
                    self._sent_in_part(exchange, sent)
                return True
            self._client.acks.learn(delay, False)
        if not self._is_quiet():
            return False
        self.take(exchange, reused=True)
        return True

    def _sent_in_part(self, exchange: Exchange, sent: int) -> None:
        if sent < 0:
            self._broken(os.strerror(-sent), -sent in OURS)
        else:
            self._push_later(exchange.request, sent)

    def _is_quiet(self) -> bool:
        """Whether nothing arrived. A connection that is not quiet is closed, unless only TLS itself sent something."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        self._reader()(READ)
        return self._fd >= 0

    def take(self, exchange: Exchange, reused: bool) -> None:
        """Send the request on this connection."""
        self._carry(exchange, reused)
        if self._on_edges:  # the next reader of the socket needs level-triggered events
            self._reactor.watch(self._fd, self._reader())
            self._on_edges = False
        request = exchange.request
        try:
            if self._tls is not None:
                request = self._tls.seal(request)
            exchange.sent_at = now()
            self._push(request)
            self._attach(exchange, -1)
        except OSError as error:
            self._broken(_why(error), _is_ours(error))

    def _carry(self, exchange: Exchange, reused: bool) -> None:
        self._exchange = exchange
        self._reused = reused
        self._chunks = None
        self._unproven = None if self._tls is None or self._tls.whole else UNPROVEN
        exchange.connection = self
        exchange.kernel = self._kernel

    def _push(self, data: bytes) -> None:
        """Hand bytes to the socket; the rest is sent when it has room."""
        if self._outbox:
            self._outbox = memoryview(bytes(self._outbox) + data)
            return
        if not data:
            return
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._push_later(data, sent)

    def _push_later(self, data: bytes, sent: int) -> None:
        self._outbox = memoryview(data)[sent:]
        reader = self._handshake if self._opening is not None else self._reader()
        self._reactor.watch(self._fd, lambda events: self._push_rest(events, reader), READ | WRITE)
        self._on_edges = False

    def _push_rest(self, events: int, reader: Callable[[int], None]) -> None:
        if events & WRITE:
            try:
                sent = self._socket.send(self._outbox)
            except BlockingIOError:
                sent = 0
            except OSError:  # the reader finds the answer that made the server stop reading, or the reason
                sent = len(self._outbox)
                events |= READ
            self._outbox = self._outbox[sent:]
            if not self._outbox:
                self._reactor.watch(self._fd, reader, READ)
        if events & (READ | BROKEN) and self._fd >= 0:
            reader(events)

    def _reader(self) -> Callable[[int], None]:
        if self._tls is not None:
            return self._read_tls
        return self._read_kernel if self._kernel else self._read_plain

    def _read_kernel(self, events: int) -> None:
        if self._attached and self._collected_all(events):
            return
        try:
            data, ancillary, _flags, _address = self._recvmsg(READ_SIZE, ANCILLARY_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(_why(error), _is_ours(error))
            return
        exchange = self._exchange
        if not data or exchange is None:
            self._closed_by_peer()
            return
        self._keep(exchange, data, ancillary[0][2] if ancillary else _own_stamp(exchange), len(data))

    def _collected_all(self, events: int) -> bool:
        """Query the compiled reader: whether there is nothing left to read here. A complete stream is taken over as it
        is; otherwise the bytes it collected become ordinary reads, and Python continues reading."""
        exchange = self._exchange
        if exchange is None:
            return True
        try:
            if events & TOO_LARGE:
                self._end_oversized(exchange)
            elif events & COMPLETE:
                self._take_whole(exchange, bool(events & SURPLUS))
            else:
                self._read_on(exchange)
        except Exception as error:
            self._refuse(exchange, error)
        return events >= COMPLETE or self._exchange is not exchange

    def _take_whole(self, exchange: Exchange, surplus: bool) -> None:
        """Take a complete event stream, in one piece."""
        before = b"".join(exchange.reads)
        known_now = self._client.shape if exchange.recognise and exchange.shape < 0 else -1
        data, marks, own, recognised, _boundary = self._take(before, known_now)
        head = exchange.head or parse_head(data)
        if head is None or not head.chunked:
            raise ValueError("not an HTTP answer: its headers contradict each other")
        if head.sse:
            exchange.head, exchange.bulk = head, (data, marks, own)
            exchange.recognised = None if recognised is None else Recognised(data, recognised)
        else:  # another header contains the name of an event stream
            self._unpack(exchange, data[len(before) :], marks)
            exchange.find_head()
        self._complete(exchange, surplus)

    def _take(self, before: bytes, shape: int = -1) -> tuple[bytes, bytes, int, Taken | None, int]:
        """What the compiled reader collected, after the earlier bytes; it is then detached."""
        data, marks, own, apart, recognised, boundary = self._reactor.take(self._fd, before, shape)
        self._attached = False
        self._client.acks.learn(self._delay, bool(apart))
        return data, marks, own, recognised, boundary

    def _read_on(self, exchange: Exchange) -> None:
        """Continue reading here an answer that the compiled reader hands back, from the chunk it had reached: an answer
        that becomes irregular after a million chunks is not processed again from its start."""
        data, marks, _own, _none, boundary = self._take(b"")
        self._unpack(exchange, data, marks)
        if not boundary:
            if data:
                self._heed(exchange, data)
            return
        begun = exchange.head is None
        if begun and ((head := exchange.find_head()) is None or not head.chunked):
            raise ValueError("not an HTTP answer: its headers contradict each other")
        self._chunks = Chunks()
        self._heed(exchange, data[boundary:])
        if begun:
            self._attach_rest(exchange)

    def _unpack(self, exchange: Exchange, data: bytes, marks: bytes) -> None:
        """Converts the data of the compiled reader into individual reads."""
        start = size = 0
        for end, stamp, own, since in MARK.iter_unpack(marks):
            if own:
                _note_own_stamp(exchange)
            exchange.reads.append(data[start:end])
            exchange.stamps.append(STAMP.pack(*divmod(stamp, 1_000_000_000)))
            exchange.since.append(since)
            start, size = end, end - start
        # data received before the handover was not read here, so polls prove nothing about it
        self._unproven = LEFT if size == READ_SIZE else UNPROVEN
        self._got += len(data)
        self._reactor.held += len(data) + len(marks) // MARK.size * READ_COST

    @property
    def collected(self) -> tuple[int, int]:
        """Number and bytes of the reads that the compiled reader holds."""
        return self._reactor.heard(self._fd) if self._attached else (0, 0)

    @property
    def size(self) -> int:
        """Bytes of the answer so far."""
        return self._got + self.collected[1]

    def _read_plain(self, _events: int) -> None:
        try:
            data = self._socket.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(_why(error), _is_ours(error))
            return
        exchange = self._exchange
        if not data or exchange is None:
            self._closed_by_peer()
            return
        self._keep(exchange, data, _own_stamp(exchange), len(data))

    def _read_tls(self, _events: int) -> None:
        assert self._tls is not None
        try:
            sealed, ancillary, _flags, _address = self._recvmsg(READ_SIZE, ANCILLARY_SIZE)
            own = b"" if ancillary else _stamp_now()  # before decryption, which takes time
            data = self._tls.open(sealed)
        except BlockingIOError:
            return
        except (OSError, ssl.SSLError) as error:
            self._broken(_why(error), _is_ours(error))
            return
        exchange = self._exchange
        if not sealed or (data and exchange is None):
            self._closed_by_peer()
            return
        if data and exchange is not None:
            if own:
                _note_own_stamp(exchange)
            self._keep(exchange, data, own or ancillary[0][2], len(sealed))
        elif sealed:
            self._took(len(sealed), kept=False)
        if self._tls.ended and self._fd >= 0:
            self._closed_by_peer()

    def _keep(self, exchange: Exchange, data: bytes, stamp: bytes, taken: int) -> None:
        """Stores a read that took this many bytes from the socket, and the data it returned."""
        exchange.reads.append(data)
        exchange.stamps.append(stamp)
        exchange.since.append(self._reactor.polled_at if self._unproven is None else self._unproven)
        self._took(taken)
        size = len(data)
        self._got += size
        self._reactor.held += size + READ_COST
        try:
            self._heed(exchange, data)
            if exchange.on_read is not None and exchange.outcome is None:
                exchange.on_read()
        except Exception as error:
            self._refuse(exchange, error)

    def _uncount(self, exchange: Exchange) -> None:
        """The answer is over, and no longer counts as held in memory."""
        if self._got:
            self._reactor.held -= self._got + len(exchange.stamps) * READ_COST
            self._got = 0

    def _refuse(self, exchange: Exchange, error: Exception) -> None:
        """Any error while bytes of a server are processed is caused by its answer, and ends only that exchange. Errors
        after the exchange is over are our own."""
        if exchange.outcome is not None:
            raise error
        if _is_ours(error):
            exchange.end("client", _why(error))
            return
        exchange.end("bad", str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}")

    def _took(self, size: int, kept: bool = True) -> None:
        """Record that a read took this many bytes from the socket, which determines what a poll can prove about the
        next read. A read of which nothing is kept, because it was part of a TLS record, counts as one with the next."""
        if size == READ_SIZE or (not kept and self._unproven == LEFT):
            self._unproven = LEFT
        else:
            self._unproven = None if self._tls is None or self._tls.whole else UNPROVEN

    def _heed(self, exchange: Exchange, data: bytes) -> None:
        """Process a read of headers or of a body; returns whether it ends the answer."""
        if self._got > self._client.most_answer or len(exchange.reads) > MOST_READS:
            self._end_oversized(exchange)
        elif self._chunks is not None:
            surplus = self._chunks.feed(data)
            if surplus >= 0:
                self._complete_without(exchange, surplus)
        elif exchange.head is None:
            self._read_head(exchange)
        elif exchange.head.length is not None:
            exchange.left -= len(data)
            if exchange.left <= 0:
                self._complete_without(exchange, -exchange.left)

    def _read_head(self, exchange: Exchange) -> None:
        head = exchange.find_head()
        if head is None:
            return
        behind = b"".join(exchange.reads)[head.end :]
        if not head.chunked:
            exchange.left = head.length or 0
            self._heed(exchange, behind)
            return
        self._chunks = Chunks()
        self._heed(exchange, behind)
        self._attach_rest(exchange)

    def _attach_rest(self, exchange: Exchange) -> None:
        """Hand the rest to the compiled reader if it is an event stream and no framing is incomplete."""
        head, chunks = exchange.head, self._chunks  # no chunks if the whole answer arrived with its head
        if head is not None and head.sse and chunks is not None and chunks.left is not None:
            self._attach(exchange, chunks.left)

    def _attach(self, exchange: Exchange, left: int) -> None:
        """Hand a timestamped, unencrypted answer to the compiled reader, if there is one: from its headers on (-1) or,
        if the headers were read here, from there on, with this many bytes left of a chunk."""
        attach = self._reactor.attach
        if attach is None or not self._kernel or self._tls or self._outbox or exchange.on_read is not None:
            return
        if exchange.outcome is None and self._exchange is exchange:
            self._delay = self._client.delay_acks()
            exchange.shape = self._client.shape if exchange.recognise else -1
            most = max(self._client.most_answer - self._got, 0)
            attach(self._fd, left, self._delay, most, exchange.shape, self._client.number)
            self._attached = self._on_edges = True

    def _end_oversized(self, exchange: Exchange) -> None:
        large = self.size > self._client.most_answer
        bound = f"larger than {self._client.most_answer:,} bytes" if large else f"in more than {MOST_READS:,} reads"
        exchange.end("oversized", f"answer {bound}")

    def _complete_without(self, exchange: Exchange, surplus: int) -> None:
        self._uncount(exchange)
        if surplus:
            exchange.drop_end(surplus)
        self._complete(exchange, surplus > 0)

    def _complete(self, exchange: Exchange, surplus: bool = False) -> None:
        """The answer is complete: the connection becomes idle, or closes if the server requested it or if surplus bytes
        arrived (they could not be separated from the next answer)."""
        assert exchange.head is not None
        self._exchange = None
        self._uncount(exchange)
        if exchange.head.keep_alive and not self._outbox and not surplus:
            self._client.rest(self)
        else:
            self.drop()
        self._client.finish(exchange, "ok" if exchange.head.status == 200 else "status")

    def _closed_by_peer(self) -> None:
        exchange = self._exchange
        if exchange is not None and exchange.head is not None and exchange.head.until_close:
            exchange.head.keep_alive = False
            self._complete(exchange)
            return
        self._broken("the server closed the connection")

    def _broken(self, error: str, ours: bool = False) -> None:
        """The connection is lost: its exchange fails, is cut, or is retried on a new connection."""
        exchange = self._exchange
        self.drop()
        if exchange is None:
            return
        exchange.connection = None
        if ours:
            self._client.finish(exchange, "client", error)
        elif exchange.received:
            outcome = "connect" if exchange.head is None else "cut"
            self._client.finish(exchange, outcome, error)
        elif self._reused and not exchange.retry_ns:
            self._client.retry(exchange)
        else:
            self._client.finish(exchange, "connect", error)

    def _give_up(self, exchange: Exchange) -> None:
        """Process the received part of an answer that will not be continued here."""
        if self._attached:
            self._take_part(exchange)
        if exchange.head is None:
            with suppress(ValueError):  # then it has none
                exchange.find_head()
        self._uncount(exchange)

    def _take_part(self, exchange: Exchange) -> None:
        """Take the received part of an event stream in one piece: if a thousand of them end at once, an object for each
        read would take seconds, and too much memory."""
        before = b"".join(exchange.reads)
        data, marks, own, _none, _boundary = self._take(before)
        head = exchange.head
        if head is None:
            with suppress(ValueError):
                head = parse_head(data)
        if head is not None and head.sse:
            exchange.head, exchange.bulk = head, (data, marks, own)
        else:
            self._unpack(exchange, data[len(before) :], marks)

    def drop(self) -> None:
        """Close the socket and remove the connection."""
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        if self._exchange is not None:
            self._give_up(self._exchange)
        self._exchange = None  # so that a later failure does not reach an exchange that is over
        self._client.forget(self)
        if self._fd >= 0:
            self._reactor.unwatch(self._fd)
            self._socket.close()
            self._fd = -1


def _own_stamp(exchange: Exchange) -> bytes:
    """Our own timestamp for the next read, which has none from the kernel."""
    stamp = _stamp_now()
    _note_own_stamp(exchange)
    return stamp


def _stamp_now() -> bytes:
    """In the kernel's format."""
    return STAMP.pack(*divmod(time.time_ns(), 1_000_000_000))


def _note_own_stamp(exchange: Exchange) -> None:
    """Mark the next read as having no kernel timestamp."""
    exchange.kernel = False
    exchange.own.add(len(exchange.reads))


def _is_ours(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in OURS)


def _why(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return os.strerror(errno.ENOMEM)
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)
    return str(error)
