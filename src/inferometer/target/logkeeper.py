"""A separate process that copies a server's output into a log of limited size, so that logging takes no time from the
load, and a server that outlives us never writes to a closed pipe. The beginning and the end are kept, the dropped
middle is counted. Run as a script: it only needs Python, and starts in 10 ms.

    logkeeper.py LOG BYTES [echo]

Secrets in the output are replaced by stars; they are passed in a variable, because command lines are visible to all
users.
"""

import fcntl
import os
import re
import signal
import sys
from collections import deque
from contextlib import suppress

TAIL = 4 << 20  # bytes of the end kept in memory; a quarter of a smaller log
PIPE = 1 << 20
READ = 1 << 18
HIDDEN = "INFEROMETER_HIDDEN"  # variable with the secrets, as lines of hexadecimal digits, longest first
STARS = b"***"
_COMMANDS = re.compile(  # colours and other terminal sequences, then other control characters
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])"
    rb"|\xc2[\x80-\x9f]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)


class CappedLog:
    """The first bytes are written to the file directly; the last ones of the rest are written when it closes."""

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


class SecretMask:
    """Replaces secrets in a stream. The end of a piece is held back only if a secret could continue in the next one."""

    def __init__(self, secrets: list[bytes]) -> None:
        self._secrets = secrets
        self._waiting = b""

    def add(self, data: bytes) -> bytes:
        data = self._starred(self._waiting + data)
        kept = len(data) - self._begun(data)
        self._waiting = data[kept:]
        return data[:kept]

    def rest(self) -> bytes:
        return self._starred(self._waiting)

    def _starred(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret, STARS)
        return data

    def _begun(self, data: bytes) -> int:
        """How many bytes at the end are the start of a secret."""
        most = 0
        for secret in self._secrets:
            for size in range(min(len(secret) - 1, len(data)), most, -1):
                if data.endswith(secret[:size]):
                    most = size
                    break
        return most


class _EndedError(Exception):
    """We received a signal to stop."""


def _stop(*_: object) -> None:
    raise _EndedError


def _copy(log: CappedLog, mask: SecretMask, echo: bool) -> None:
    while data := os.read(0, READ):
        data = mask.add(data)
        log.add(data)
        if echo:
            with suppress(OSError):
                os.write(2, _COMMANDS.sub(b"", data))


def main(arguments: list[str]) -> None:
    path, limit, echo = arguments[0], int(arguments[1]), "echo" in arguments[2:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    with suppress(OSError, AttributeError):
        fcntl.fcntl(0, fcntl.F_SETPIPE_SZ, PIPE)
    log = CappedLog(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), limit)
    mask = SecretMask([bytes.fromhex(line) for line in os.environ.get(HIDDEN, "").split()])
    with suppress(_EndedError):
        _copy(log, mask, echo)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    log.add(mask.rest())
    log.close()


if __name__ == "__main__":
    main(sys.argv[1:])
