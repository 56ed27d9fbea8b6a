"""Keeps what an engine prints out of the way: engines log to stdout, where our own result goes."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def output_to(log: Path) -> Iterator[None]:
    """Whatever this process, its libraries and the children that it starts meanwhile print goes to the end of `log`.
    Children go on writing there."""
    _flush()
    kept = [os.dup(1), os.dup(2)]
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 1)
        os.dup2(file, 2)
        yield
    finally:
        _flush()
        for number, before in enumerate(kept, start=1):
            os.dup2(before, number)
            os.close(before)
        os.close(file)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or its reader has gone: not ours to mend
            stream.flush()


def tail(log: Path, lines: int = 12) -> str:
    """The last lines of a log, for an error message."""
    if not log.exists():
        return ""
    text = log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    return "\n".join(line.rstrip() for line in text if line.strip())
