"""Where the rows of a file begin and end, found in one pass over its bytes: lines, CSV rows, elements of an array.

A file of any size is read in pieces of a few megabytes; all that is held is an offset per row.
"""

from collections.abc import Callable, Iterator
from typing import IO

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Scan = Callable[[IO[bytes]], tuple[Ints, Ints]]  # the first byte of each row, and the one after its last

PIECE = 4 << 20
_NEWLINE, _QUOTE, _BACKSLASH, _COMMA = (ord(each) for each in '\n"\\,')
_TURNS = np.zeros(256, np.int8)  # what a byte does to the depth of JSON, outside a text
_TURNS[[ord("["), ord("{")]] = 1
_TURNS[[ord("]"), ord("}")]] = -1
_TELLING = (_TURNS != 0) | np.isin(np.arange(256), [_QUOTE, _BACKSLASH, _COMMA])


class NotAnArrayError(ValueError):
    """The file is not a JSON array, or it breaks off; says what is wrong and at which byte."""


def lines(file: IO[bytes]) -> tuple[Ints, Ints]:
    """Every line, the empty ones too: their number is that of an editor."""
    return _spans(file, lambda piece: np.flatnonzero(piece == _NEWLINE))


def csv_rows(file: IO[bytes]) -> tuple[Ints, Ints]:
    """Lines, except that a line end between quotes belongs to the row."""
    open_quotes = 0

    def ends(piece: Bytes) -> Ints:
        nonlocal open_quotes
        marks = np.flatnonzero((piece == _NEWLINE) | (piece == _QUOTE))
        quotes = piece[marks] == _QUOTE
        before = np.cumsum(quotes) + open_quotes
        open_quotes = (open_quotes + int(quotes.sum())) % 2
        return np.asarray(marks[~quotes & (before % 2 == 0)])

    return _spans(file, ends)


def _spans(file: IO[bytes], ends_in: Callable[[Bytes], Ints]) -> tuple[Ints, Ints]:
    found, at = [], 0
    while piece := file.read(PIECE):
        found.append(ends_in(np.frombuffer(piece, np.uint8)) + at)
        at += len(piece)
    ends = np.concatenate([*found, np.zeros(0, np.int64)])
    starts = np.concatenate([np.zeros(1, np.int64), ends + 1])
    ends = np.append(ends, at)
    return (starts, ends) if starts[-1] < at else (starts[:-1], ends[:-1])


def array_elements(file: IO[bytes]) -> tuple[Ints, Ints]:
    """The elements of the JSON array that a file holds, found by their commas without parsing any of them."""
    depth, inside, at = 0, False, 0
    starts: list[Ints] = []
    ends: list[Ints] = []
    for piece in _whole_escapes(file):
        marks, is_text = _outside_text(piece, inside)
        turns = _TURNS[piece[marks]].astype(np.int64)
        after = np.cumsum(turns) + depth
        begins = (turns == 1) & (after == 1)
        commas = (turns == 0) & (after == 1)
        closes = (turns == -1) & (after == 0)
        starts.append(marks[begins | commas] + at + 1)
        ends.append(marks[commas | closes] + at)
        depth = int(after[-1]) if len(after) else depth
        inside, at = is_text, at + len(piece)
    return _checked(file, np.concatenate([*starts, [0]])[:-1], np.concatenate([*ends, [0]])[:-1], depth or inside)


def _whole_escapes(file: IO[bytes]) -> Iterator[Bytes]:
    """Pieces of a file; what a backslash escapes is in the same piece as the backslash."""
    while piece := file.read(PIECE):
        while piece.endswith(b"\\") and (more := file.read(1)):
            piece += more
        yield np.frombuffer(piece, np.uint8)


def _outside_text(piece: Bytes, inside: bool) -> tuple[Ints, bool]:
    """Where brackets and commas stand that are not part of a text, and whether the piece ends inside one."""
    marks = np.flatnonzero(_TELLING[piece])
    kinds = piece[marks]
    quotes = kinds == _QUOTE
    quotes[quotes] = ~np.isin(marks[quotes], _escaped(marks[kinds == _BACKSLASH]))
    within = (np.cumsum(quotes) + inside) % 2 == 1
    plain = (kinds != _QUOTE) & (kinds != _BACKSLASH) & ~within
    return marks[plain], bool(within[-1]) if len(within) else inside


def _escaped(backslashes: Ints) -> Ints:
    """The places behind an odd number of backslashes in a row."""
    first = np.flatnonzero(np.diff(backslashes, prepend=-2) != 1)
    lengths = np.diff(np.append(first, len(backslashes)))
    odd = lengths % 2 == 1
    return np.asarray(backslashes[first[odd]] + lengths[odd])


def _checked(file: IO[bytes], starts: Ints, ends: Ints, unfinished: int | bool) -> tuple[Ints, Ints]:
    if unfinished or len(starts) != len(ends):
        text = f"the array is not closed: after row {len(ends):,} it breaks off, or a quote or bracket is missing"
        raise NotAnArrayError(text)
    if len(starts) == 1:
        file.seek(int(starts[0]))
        if not file.read(int(ends[0] - starts[0])).strip():
            return starts[:0], ends[:0]
    return starts, ends
