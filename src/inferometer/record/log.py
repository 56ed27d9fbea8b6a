"""The append-only log of one shard. Every prefix of it is valid: the log of a killed run can be reported.

A frame with a wrong schema or checksum is skipped and counted, and the following frames are still read. A file is
`MAGIC`, then frames of (length, crc32, kind, payload); the first frame is the header. The length counts the payload,
the checksum covers kind and payload, payloads are msgpack (docs/decisions/record-log-format.md).
"""

import os
import platform
import struct
import threading
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Queue
from typing import Any, Self
from zlib import crc32

import msgspec

from inferometer.documents.document import Document, JsonObject
from inferometer.errors import StoreError
from inferometer.record.files import check_schema, schema_of, store_error, translated_errors
from inferometer.record.record import Record, Sample, check_reads, without_response
from inferometer.wire.sockets import read_offset

MAGIC = b"inflog\r\n"  # the line ending reveals a file that went through a text conversion
FLUSH_BYTES = 256 * 1024  # with 64 KiB, waking the writer thread took a fiftieth of a load's time
MOST_QUEUED = 256  # maximum number of pieces queued for a stalled disk; after that the caller waits too
_FRAME = struct.Struct("<IIB")
_CHUNK = 1 << 20
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TIME_OFFSETS = Path("/proc/self/timens_offsets")
UNREADABLE = "unreadable entries"  # the note on entries that were skipped
LARGEST_FRAME = 1 << 30  # a larger length is damage and must not be allocated


class HostClock(msgspec.Struct, frozen=True, omit_defaults=True):
    """The clock of the instants in a log, and its offset to real time: all logs of one boot of one host share it. Older
    logs name no host."""

    host: str = ""
    boot: str = ""  # the id of the host's boot, if the system has one
    real_minus_monotonic_ns: int | None = None  # when the log was opened

    def is_clock_of(self, other: "HostClock") -> bool:
        return self.boot == other.boot if self.boot and other.boot else self.host == other.host

    def ahead_of(self, other: "HostClock") -> int:
        """Nanoseconds to add to an instant of this clock to convert it to the other; 0 within one host, whose real-time
        clock may have been set between two logs, and if an offset is unknown."""
        mine, theirs = self.real_minus_monotonic_ns, other.real_minus_monotonic_ns
        return 0 if mine is None or theirs is None or self.is_clock_of(other) else mine - theirs


def clock_here(offset_ns: int | None = None) -> HostClock:
    """This host's clock, with a given offset or the present one."""
    boot = ""
    with suppress(OSError):
        boot = _BOOT_ID.read_text().strip() + _time_namespace()
    return HostClock(platform.node(), boot, read_offset().ns if offset_ns is None else offset_ns)


def _time_namespace() -> str:
    """The offset of a container's monotonic clock from its host's, if there is one: `+86400.0`."""
    with suppress(OSError, ValueError):
        _, seconds, nanoseconds = _TIME_OFFSETS.read_text().splitlines()[0].split()
        if int(seconds) or int(nanoseconds):
            return f"+{seconds}.{nanoseconds}"
    return ""


class Header(msgspec.Struct, frozen=True):
    """The header of a log."""

    shard: int = 0
    clock: HostClock = HostClock()
    schema: str = schema_of("log")


class Note(msgspec.Struct, frozen=True):
    """A fact that does not concern a single request: `clock stepped`, `ended`."""

    what: str
    at: int | None = None
    facts: JsonObject = {}

    @property
    def known(self) -> Document:
        """Its facts, read with the expected types: a log may be of another version."""
        return Document(self.facts)


Entry = Record | Sample | Note

_KINDS: dict[type, int] = {Header: 0, Record: 1, Sample: 2, Note: 3}
_HEADER_KIND, _RECORD_KIND = _KINDS[Header], _KINDS[Record]
_UNREADABLE = (ValueError, TypeError, OverflowError, RecursionError)  # what encoding and decoding raise
_SEEDS = [crc32(bytes([kind])) for kind in range(256)]  # the checksum so far, once the kind is in it


class _Pen:
    """Writes bytes to a new file, directly or in a thread, because a system that writes back to its disk can block a
    writer for a quarter of a second. An error in the thread is raised by the next call."""

    def __init__(self, path: Path, in_background: bool) -> None:
        self._path = path
        self._error: OSError | None = None
        with translated_errors(path):
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._queue: Queue[bytes | None] | None = Queue(MOST_QUEUED) if in_background else None
        self._thread = threading.Thread(target=self._write_queued, name="log", daemon=True)
        if in_background:
            self._thread.start()

    def write(self, buffer: bytearray) -> None:
        """Writes all of the buffer and empties it. After an error the rest stays, to be retried."""
        self._raise()
        try:
            if self._queue is not None:
                self._queue.put(bytes(buffer))
                buffer.clear()
            while buffer:
                del buffer[: os.write(self._file, buffer)]
        except OSError as error:
            raise store_error(self._path, error) from error

    def close(self) -> None:
        """Wait until it is on disk."""
        try:
            if self._queue is not None:
                self._queue.put(None)
                self._thread.join()
            self._raise()
            with translated_errors(self._path):
                os.fsync(self._file)
        finally:
            os.close(self._file)

    def _write_queued(self) -> None:
        assert self._queue is not None
        while (piece := self._queue.get()) is not None:
            rest = memoryview(piece)
            try:
                while rest and self._error is None:  # nothing after a gap could be read
                    rest = rest[os.write(self._file, rest) :]
            except OSError as error:
                self._error = error

    def _raise(self) -> None:
        if self._error is not None:
            raise store_error(self._path, self._error) from self._error


class LogWriter:
    """Writes one shard's log; instants are on this host's clock unless another is given. Call `flush` on a timer:
    buffered entries are lost with the process."""

    def __init__(
        self, path: Path, shard: int = 0, clock: HostClock | None = None, *, in_background: bool = False
    ) -> None:
        self.path = path
        self.records = 0
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Record)
        self._buffer = bytearray(MAGIC)
        self._pen: _Pen | None = _Pen(path, in_background)
        self._add(_HEADER_KIND, Header(shard=shard, clock=clock or clock_here()))
        self.flush()

    def append(self, record: Record) -> None:
        self._add_frame(_RECORD_KIND, self._readable(record))
        self.records += 1

    def add(self, entry: Sample | Note) -> None:
        """A sample or a note, between the records."""
        self._add(_KINDS[type(entry)], entry)

    def flush(self) -> None:
        """Hands all buffered entries to the system. After an error the rest stays, to be retried."""
        assert self._pen is not None, f"{self.path} is closed"
        if self._buffer:
            self._pen.write(self._buffer)

    def close(self) -> None:
        """Flush, and wait until it is on disk."""
        if self._pen is None:
            return
        try:
            self.flush()
        finally:
            pen, self._pen = self._pen, None
            pen.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(StoreError) if kind else nullcontext():  # the first error is the one to report
            self.close()

    def _readable(self, record: Record) -> bytes:
        """A record that can be read back (the check takes 1 µs): a response that cannot be stored counts as a bad
        one."""
        try:
            payload = self._encoder.encode(record)
            check_reads(self._decoder.decode(payload))
            return payload
        except _UNREADABLE as error:
            return self._encoder.encode(without_response(record, f"the response cannot be stored: {error}"))

    def _add(self, kind: int, entry: Any) -> None:
        self._add_frame(kind, self._encoder.encode(entry))

    def _add_frame(self, kind: int, payload: bytes) -> None:
        buffer = self._buffer
        buffer += _FRAME.pack(len(payload), crc32(payload, _SEEDS[kind]), kind)
        buffer += payload
        if len(buffer) >= FLUSH_BYTES:
            self.flush()


class LogReader:
    """The entries of a log, one by one. After the last, `truncated` is whether the log broke off, `skipped` the number
    of entries that could not be read, and `end` the end of the last complete entry: another reader may `start` there
    when the log has grown."""

    def __init__(self, path: Path, start: int = 0) -> None:
        self.path = path
        self.truncated = False
        self.skipped = 0
        self.end = len(MAGIC)
        with translated_errors(path):
            self._file = path.open("rb", buffering=_CHUNK)
        try:
            self.header = self._read_header()
            if start > self.end:
                self.end = self._file.seek(start)
        except BaseException:
            self._file.close()
            raise

    def __iter__(self) -> Iterator[Entry]:
        decoders: dict[int, msgspec.msgpack.Decoder[Any]] = {
            kind: msgspec.msgpack.Decoder(type_) for type_, kind in _KINDS.items()
        }
        with self._file, translated_errors(self.path):
            for kind, payload in self._frames():
                if kind not in decoders:  # kinds of newer versions are skipped
                    continue
                try:
                    entry = decoders[kind].decode(payload)
                    if kind == _RECORD_KIND:
                        check_reads(entry)
                except _UNREADABLE:
                    self.skipped += 1
                else:
                    yield entry

    def _read_header(self) -> Header:
        """If a log is truncated inside its header, only that fact is known; if only the header is damaged, the entries
        after it are still read."""
        magic = self._file.read(len(MAGIC))
        if not MAGIC.startswith(magic):
            raise StoreError(f"{self.path}: not an Inferometer log, it begins with {magic!r}")
        frame = next(self._frames(), None)
        if frame is None:
            self.truncated = True
            return Header()
        if frame[0] != _HEADER_KIND:
            self.end = self._file.seek(len(MAGIC))
            self.skipped = 0  # counted when the entries are read
            return Header()
        try:
            header = msgspec.msgpack.decode(frame[1], type=Header)
        except _UNREADABLE as error:
            raise StoreError(f"{self.path}: its header is complete but does not match its schema: {error}") from error
        check_schema(self.path, "log", header.schema)
        return header

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        """Complete frames, up to the end. A frame with a wrong checksum is damage inside the log if a complete one
        follows, and otherwise the point where the log is truncated."""
        read, size = self._file.read, _FRAME.size
        damaged, position = 0, self.end
        while len(head := read(size)) == size:
            length, checksum, kind = _FRAME.unpack(head)
            payload = read(length) if length <= LARGEST_FRAME else b""
            if len(payload) != length:
                self.truncated = True
                return
            position += size + length
            if crc32(payload, _SEEDS[kind]) != checksum:
                damaged += 1
                continue
            self.skipped += damaged
            damaged, self.end = 0, position
            yield kind, payload
        self.truncated = self.truncated or damaged > 0 or len(head) > 0


@dataclass(frozen=True)
class Log:
    """A whole log in memory."""

    header: Header
    records: list[Record] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    truncated: bool = False
    skipped: int = 0


def read_log(path: Path) -> Log:
    """All of a log up to its end or its first broken frame; `truncated` is whether there was one. Entries that are
    complete but unreadable are `skipped`."""
    reader = LogReader(path)
    log = Log(reader.header)
    lists: dict[type, list[Any]] = {Record: log.records, Sample: log.samples, Note: log.notes}
    for entry in reader:
        lists[type(entry)].append(entry)
    return replace(log, truncated=reader.truncated, skipped=reader.skipped)
