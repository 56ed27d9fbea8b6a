"""Bytes and text of a file, within limits: no file, pipe or device can block us or fill the memory."""

import errno
import mmap
import os
import select
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path

from inferometer.documents.json_text import RefusedError

MOST_PLAN_BYTES = 32 << 20  # of a plan, an experiment, a scenario: 20,000 traffic classes take 4 MB
MOST_GROWTH = 200  # times its size: gzip data that grows more is a trap; text shrinks to a tenth or a fiftieth
SILENCE_S = 30.0  # a pipe without a writer for this long is given up
_PIECE = 1 << 20
_MAPPED = 8 << 20  # bytes of a large file in memory at a time
GZIP = b"\x1f\x8b"
_BINARY = {
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a ZIP archive",
    GZIP: "gzip",
    b"\x89PNG": "an image",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"SQLite format 3": "an SQLite database",
    b"\x7fELF": "a program",
}
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


Content = bytes | memoryview | mmap.mmap  # for a large file its memory map, which is read on demand


def pieces_of(content: Content) -> Iterator[memoryview]:
    """All of it, in order. Parts of a large file that were read do not stay in memory."""
    view = memoryview(content)
    for start in range(0, len(view), _MAPPED):
        yield view[start : start + _MAPPED]
        release(content)


def release(content: Content) -> None:
    """Release the pages of a large file; they are read again if needed."""
    pages = content.obj if isinstance(content, memoryview) else content
    if isinstance(pages, mmap.mmap):
        pages.madvise(mmap.MADV_DONTNEED)


def check_plain(path: str | Path) -> None:
    """Raises `OSError` for anything but a regular file: opening a pipe waits for its writer, reading a device may never
    end."""
    mode = Path(path).stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "not a plain file", str(path))


def opened(path: str | Path) -> BufferedReader:
    """A file or a pipe, opened for reading in parts. `RefusedError` for a pipe without a writer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            _await(descriptor)
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def file_bytes(path: str | Path, most: int = MOST_PLAN_BYTES) -> bytes:
    """All bytes of a file or a pipe. `OSError` if it cannot be opened, `RefusedError` if it is too large."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # do not block on a pipe without a writer
    with os.fdopen(descriptor, "rb", buffering=0) as file:  # for a folder: IsADirectoryError
        facts = os.fstat(descriptor)
        if facts.st_size > most:
            raise RefusedError(f"is too large: {_size(facts.st_size)}, the maximum is {_size(most)}")
        if stat.S_ISCHR(facts.st_mode):  # such as /dev/zero
            most = min(most, MOST_PLAN_BYTES)
        if stat.S_ISREG(facts.st_mode) and facts.st_size > _PIECE:  # in one piece: pieces would double the memory
            whole = file.read(facts.st_size)
            if whole is not None and len(whole) == facts.st_size:
                return whole
            file.seek(0)
        return _all_of(descriptor, file.read, most, is_pipe=stat.S_ISFIFO(facts.st_mode))


def _all_of(descriptor: int, read: Callable[[int], bytes | None], most: int, is_pipe: bool) -> bytes:
    pieces: list[bytes] = []
    total = 0
    while True:
        piece = read(_PIECE)
        if piece is None or (not piece and is_pipe and not pieces):  # nothing yet, or the writer has not started
            _await(descriptor)
            piece = read(_PIECE)
        if piece is None:
            continue
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        total += len(piece)
        if total > most:
            raise RefusedError(f"does not end: at most {_size(most)} are read")


def _await(descriptor: int) -> None:
    if not select.select([descriptor], [], [], SILENCE_S)[0]:
        raise RefusedError(f"is a pipe or a terminal, and sent nothing for {SILENCE_S:.0f} s")


def stdin_bytes(most: int = MOST_PLAN_BYTES) -> bytes:
    """All bytes of standard input."""
    raw = getattr(sys.stdin, "buffer", None)
    content: bytes = sys.stdin.read(most + 1).encode() if raw is None else raw.read(most + 1)
    if len(content) > most:
        raise RefusedError(f"does not end: at most {_size(most)} are read")
    return content


def unpacked(content: bytes, most: int = MOST_PLAN_BYTES) -> bytes:
    """Unpacks gzip data, all parts of it, within a limit; anything else is returned unchanged."""
    if not content.startswith(GZIP):
        return content
    parts: list[bytes] = []
    plausible = max(MOST_PLAN_BYTES, MOST_GROWTH * len(content))
    rest, left = content, min(most, plausible)
    while rest.startswith(GZIP):  # `cat a.gz b.gz`, and writers that flush, create several parts
        unpacker = zlib.decompressobj(wbits=31)
        try:
            parts.append(unpacker.decompress(rest, left + 1))
        except zlib.error as error:
            raise RefusedError(f"is damaged gzip: {error}") from None
        left -= len(parts[-1])
        if left < 0 and plausible < most:
            hint = "if it is the right file, unpack it manually and name the unpacked file"
            raise RefusedError(f"cannot be unpacked: it grows to more than {MOST_GROWTH} times its size", hint=hint)
        if left < 0:
            raise RefusedError(f"is too large when unpacked: at most {_size(most)} are read")
        if not unpacker.eof:
            raise RefusedError("is damaged gzip: it is cut off")
        rest = unpacker.unused_data
    if rest.strip(b"\0"):
        raise RefusedError("is damaged gzip: something else follows its end")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def text_in(content: bytes) -> str:
    """Decodes bytes as text: UTF-8, with or without a byte order mark, or UTF-16 with one, as Windows writes it."""
    is_utf_16 = content.startswith(_UTF_16)
    try:
        text = content.decode("utf-16" if is_utf_16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        if (kind := binary_kind(content)) is not None:
            raise RefusedError(f"is not text but {kind}") from None
        line = None if is_utf_16 else content.count(b"\n", 0, error.start) + 1
        name = "UTF-8 or UTF-16" if is_utf_16 else "UTF-8"
        raise RefusedError(f"is not text in {name}", line, hint="save the file as UTF-8") from None
    if (at := text.find("\0")) >= 0:
        raise RefusedError("is not text: it contains a zero byte", text.count("\n", 0, at) + 1)
    return text


def binary_kind(content: bytes) -> str | None:
    """The kind of bytes that are no text, from their first bytes."""
    return next((kind for start, kind in _BINARY.items() if content.startswith(start)), None)


def _size(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
