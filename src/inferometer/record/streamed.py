"""`StreamedRecords`: records whose reads stay where they are stored and are read again, piece by piece, when needed.

A record's own columns need some 400 bytes, its reads 24 bytes each and several times that while numbers are made of
them: 11 million reads took 1.7 GB (docs/decisions/bounded-summary.md).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from inferometer.record.columns import (
    MISSING,
    READS,
    Ints,
    Mask,
    Reads,
    Records,
    offsets_of,
    ordered_scalars,
    picked_reads,
    read_cuts,
    taken_scalars,
)
from inferometer.record.record import Record

HELD_READS = 1_500_000  # up to here all reads are held in memory: finishing such a run peaks at some 370 MB
_NONE: Ints = np.empty(0, np.int64)


class ReadsPiece(NamedTuple):
    """Reads of consecutive stored rows, from `row` on: how many each has, and the columns that were wanted."""

    row: int
    counts: Ints
    columns: dict[str, Ints]


# Every call reads anew: the wanted columns, of all rows or at least of those where the mask is true.
Pieces = Callable[[Sequence[str], Mask | None], Iterator[ReadsPiece]]


class StreamedRecords(Records):
    """Record i is the stored row `row[i]`. `read_at` and the like read the whole column each time."""

    __slots__ = ("_index_of", "_pieces", "_row")

    _row: Ints
    _index_of: Ints  # the record that each stored row is, -1 where it is none of these
    _pieces: Pieces

    def __init__(self, scalars: dict[str, Any], read_offsets: Ints, row: Ints, rows: int, pieces: Pieces) -> None:
        index_of = np.full(rows, -1, np.int64)
        index_of[row] = np.arange(len(row))
        own = {"_row": row, "_index_of": index_of, "_pieces": pieces}
        for name, value in (scalars | {"read_offsets": read_offsets} | own).items():
            object.__setattr__(self, name, value)

    @classmethod
    def joined(cls, parts: list[Records], pieces: Pieces) -> Self:
        """Of parts in the order in which they are stored, without their reads. The list is emptied."""
        counts = np.concatenate([part.read_counts() for part in parts])
        scalars, order = ordered_scalars(parts)
        return cls(scalars, offsets_of(counts[order]), order, len(counts), pieces)

    def __repr__(self) -> str:
        return f"<{len(self)} records with {self.read_offsets[-1]} reads, not in memory>"

    @property
    def held(self) -> bool:
        return False

    @property
    def read_at(self) -> Ints:
        return self._whole("read_at")

    @property
    def read_tokens(self) -> Ints:
        return self._whole("read_tokens")

    @property
    def read_slack(self) -> Ints:
        return self._whole("read_slack")

    def take(self, chosen: Mask | Ints) -> Self:
        index = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen.astype(np.int64, copy=False)
        offsets = offsets_of(self.read_counts()[index])
        scalars = taken_scalars(self, index)
        return type(self)(scalars, offsets, self._row[index], len(self._index_of), self._pieces)

    def read_batches(self, chosen: Mask | None = None, columns: Sequence[str] = READS) -> Iterator[Reads]:
        for piece in self._pieces(columns, self._wanted_rows(chosen)):
            owner = self._index_of[piece.row : piece.row + len(piece.counts)]
            wanted = owner >= 0
            if chosen is not None:
                wanted &= chosen[owner]
            offsets = offsets_of(piece.counts)
            values = piece.columns
            if not wanted.all():
                offsets, flat = picked_reads(offsets, np.flatnonzero(wanted))
                owner, values = owner[wanted], {name: column[flat] for name, column in values.items()}
            if len(owner):
                yield Reads(owner, offsets, *(values.get(name, _NONE) for name in READS))

    def reads_in_order(self, chosen: Mask | None = None, columns: Sequence[str] = READS) -> Iterator[Reads]:
        """Rows are stored as requests ended: those of some neighbours in time are looked for in few pieces."""
        for start, end in read_cuts(self.read_offsets):
            near = np.zeros(len(self), np.bool_)
            near[start:end] = True if chosen is None else chosen[start:end]
            parts = [*self.read_batches(near, columns)]
            if parts:
                yield _in_order(parts)

    def last_read_at(self) -> int:
        return max(
            (int(reads.at.max(initial=MISSING)) for reads in self.read_batches(None, READS[:1])), default=MISSING
        )

    def record(self, i: int) -> Record:
        chosen = np.zeros(len(self), np.bool_)
        chosen[i] = True
        reads = next(self.read_batches(chosen))
        return self._record(i, dict(zip(READS, (reads.at, reads.tokens, reads.slack), strict=True)))

    def _wanted_rows(self, chosen: Mask | None) -> Mask | None:
        if chosen is None and len(self) == len(self._index_of):
            return None
        wanted: Mask = np.zeros(len(self._index_of), np.bool_)
        wanted[self._row if chosen is None else self._row[chosen]] = True
        return wanted

    def _whole(self, name: str) -> Ints:
        column = np.empty(int(self.read_offsets[-1]), np.int64)
        for reads in self.read_batches(None, (name,)):
            _, flat = picked_reads(self.read_offsets, reads.owner)
            column[flat] = (reads.at, reads.tokens, reads.slack)[READS.index(name)]
        return column


def _in_order(parts: Sequence[Reads]) -> Reads:
    owner = np.concatenate([part.owner for part in parts])
    at, tokens, slack = (np.concatenate([getattr(part, name) for part in parts]) for name in ("at", "tokens", "slack"))
    offsets = offsets_of(np.concatenate([part.counts() for part in parts]))
    order = np.argsort(owner)
    offsets, flat = picked_reads(offsets, order)
    return Reads(owner[order], offsets, *(column[flat] if len(column) else column for column in (at, tokens, slack)))
