"""A process of its own that copies what a server prints into a log of limited size: so no line of it costs the load
any time, and a server that outlives us never meets a closed pipe. The beginning and the end are kept, the middle is
counted. Run as a script: it needs nothing but Python, and starts in 10 ms.

    logkeeper.py LOG BYTES [echo]
"""

import fcntl
import os
import signal
import sys
from collections import deque
from contextlib import suppress

TAIL = 4 << 20  # of the end, in memory; a quarter of a smaller log
PIPE = 1 << 20
READ = 1 << 18


class CappedLog:
    """The first bytes go to the file as they come; of the rest the last are written when it is over."""

    def __init__(self, file: int, limit: int) -> None:
        self._file = file
        self._tail_room = min(TAIL, limit // 4)
        self._head_room = limit - self._tail_room
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.left_out = 0

    def add(self, data: bytes) -> None:
        head, rest = data[: self._head_room], data[self._head_room :]
        if head:
            self._head_room -= len(head)
            self._write(head)
        if not rest:
            return
        self._tail.append(rest)
        self._tail_size += len(rest)
        while self._tail_size - len(self._tail[0]) >= self._tail_room:
            dropped = len(self._tail.popleft())
            self._tail_size -= dropped
            self.left_out += dropped

    def close(self) -> None:
        tail = b"".join(self._tail)
        self.left_out += max(len(tail) - self._tail_room, 0)
        if self.left_out:
            self._write(f"\n... {self.left_out:,} bytes left out ...\n".encode())
        self._write(tail[-self._tail_room :])

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        with suppress(OSError):  # a full disk must not stop the server
            while view:
                view = view[os.write(self._file, view) :]


class _EndedError(Exception):
    """We are asked to end."""


def _stop(*_: object) -> None:
    raise _EndedError


def _copy(log: CappedLog, echo: bool) -> None:
    while data := os.read(0, READ):
        log.add(data)
        if echo:
            with suppress(OSError):
                os.write(2, data)


def main(arguments: list[str]) -> None:
    path, limit, echo = arguments[0], int(arguments[1]), "echo" in arguments[2:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    with suppress(OSError, AttributeError):
        fcntl.fcntl(0, fcntl.F_SETPIPE_SZ, PIPE)
    log = CappedLog(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), limit)
    with suppress(_EndedError):
        _copy(log, echo)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    log.close()


if __name__ == "__main__":
    main(sys.argv[1:])
