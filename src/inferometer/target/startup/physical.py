"""The physical lines of a log by number, as a stream. Once a server is ready its log goes on for days: from then on a
large one is only skimmed for lines that could matter."""

import re
from collections.abc import Iterator
from typing import BinaryIO

LONGEST_LINE = 64 * 1024  # bytes; the rest of a longer one is not read: nothing of a start is that long
SKIM_FROM = 16 * 2**20  # bytes; below, all is read: it takes two seconds
BLOCK = 2**20

_COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_TELLING = re.compile(  # of sleep and wake, and of a new start
    rb"asleep|wake up|Sleep mode|plugins for group|detected platform|non-default args|API server version| version \d"
    rb"|args: Namespace|serialization"
)


class PhysicalLines:
    """Iterates over numbers and lines; `settled` is set by the reader when what comes can be skimmed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._number = 0
        self._bytes = 0
        self.settled = False

    def __iter__(self) -> Iterator[tuple[int, str]]:
        while True:
            if self.settled and self._bytes > SKIM_FROM:
                yield from self._skimmed()
            raw = self._next()
            if not raw:
                return
            yield self._number, _text(raw)

    def _next(self) -> bytes:
        raw = rest = self._file.readline(LONGEST_LINE)
        while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
            rest = self._file.readline(LONGEST_LINE)
        self._number += 1
        self._bytes += len(raw)
        return raw

    def _skimmed(self) -> Iterator[tuple[int, str]]:
        """Lines with a telling word and their neighbours, for a line may be wrapped; until a new start begins."""
        while block := self._file.read(BLOCK) + self._file.readline(LONGEST_LINE):
            at = 0
            for start, end in _around(block):
                self._number += block.count(b"\n", at, start)
                for raw in block[start:end].splitlines():
                    self._number += 1
                    yield self._number, _text(raw)
                at = end
                if not self.settled:
                    self._file.seek(end - len(block), 1)
                    return
            self._number += block.count(b"\n", at)


def _around(block: bytes) -> Iterator[tuple[int, int]]:
    """From where to where, without overlaps."""
    done = 0
    for found in _TELLING.finditer(block):
        if found.start() < done:
            continue
        line = block.rfind(b"\n", done, found.start())
        before = block.rfind(b"\n", done, max(line, done))
        start = max(before + 1, done)
        line_end = block.find(b"\n", found.end())
        after = block.find(b"\n", line_end + 1) if line_end >= 0 else -1
        done = after + 1 if after >= 0 else len(block)
        yield start, done


def _text(raw: bytes) -> str:
    line = raw.decode("utf-8", "replace").rstrip("\n")
    return _COLOUR.sub("", line) if "\x1b" in line else line
