"""Records and samples as Parquet files: written row group by row group, read back exactly.

pyarrow is imported on use: importing it takes 0.2 s, too long for `inferometer --help`.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from inferometer.errors import StoreError
from inferometer.record.columns import (
    BATCH_READS,
    MISSING,
    READS,
    SCALARS,
    Categorical,
    Floats,
    Ints,
    Mask,
    Reads,
    Records,
    Texts,
    default_column,
    known,
    offsets_of,
    ordered_scalars,
    picked_reads,
    read_cuts,
    taken_scalars,
)
from inferometer.record.files import check_schema, replacing, schema_of, translated_errors
from inferometer.record.record import Record, Samples

# -- in pieces, if the whole is too large for memory ------------------------------------------------------------------

# `StreamedRecords`: records whose reads stay on disk and are read again, piece by piece, when needed.
#
# A record's own columns need some 400 bytes; its reads need 24 bytes each and several times that while numbers are
# computed from them: 11 million reads took 1.7 GB (docs/decisions/bounded-summary.md).

HELD_READS = 1_500_000  # up to here all reads are held in memory: finishing such a run peaks at some 370 MB
_NONE: Ints = np.empty(0, np.int64)


class ReadsPiece(NamedTuple):
    """Reads of consecutive stored rows, starting at `row`: how many each has, and the requested columns."""

    row: int
    counts: Ints
    columns: dict[str, Ints]


# Every call reads again: the requested columns, of all rows or at least of those where the mask is true.
ReadPieces = Callable[[Sequence[str], Mask | None], Iterator[ReadsPiece]]


class StreamedRecords(Records):
    """Record i is the stored row `row[i]`. `read_at` and the like read the whole column each time."""

    __slots__ = ("_index_of", "_pieces", "_row")

    _row: Ints
    _index_of: Ints  # the record of each stored row, -1 for rows that are not included
    _pieces: ReadPieces

    def __init__(self, scalars: dict[str, Any], read_offsets: Ints, row: Ints, rows: int, pieces: ReadPieces) -> None:
        index_of = np.full(rows, -1, np.int64)
        index_of[row] = np.arange(len(row))
        own = {"_row": row, "_index_of": index_of, "_pieces": pieces}
        for name, value in (scalars | {"read_offsets": read_offsets} | own).items():
            object.__setattr__(self, name, value)

    @classmethod
    def joined(cls, parts: list[Records], pieces: ReadPieces) -> Self:
        """From parts in the order in which they are stored, without their reads. The list is emptied."""
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
        """Rows are stored in the order in which requests ended, so those of neighbours in time are in few pieces."""
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


class ReadSums(NamedTuple):
    """The per-request sums over reads that measures need: columns with a value for each record, and whether all gaps
    were ended by a single token. `LAST_AT` is among them."""

    columns: dict[str, Ints]
    one_token_each: bool

    @classmethod
    def joined(cls, parts: Sequence["ReadSums"]) -> Self:
        names = parts[0].columns
        columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in names}
        return cls(columns, all(part.one_token_each for part in parts))


LAST_AT = "last_at"


class SummedRecords(StreamedRecords):
    """Streamed records with the sums of their reads in memory: only measures of gaps read the reads again."""

    __slots__ = ("_sums",)

    _sums: ReadSums  # by stored row

    def with_sums(self, sums: ReadSums) -> Self:
        object.__setattr__(self, "_sums", sums)
        return self

    def take(self, chosen: Mask | Ints) -> Self:
        return super().take(chosen).with_sums(self._sums)

    def read_sums(self) -> ReadSums:
        return ReadSums({name: column[self._row] for name, column in self._sums.columns.items()}, self._sums[1])

    def last_read_at(self) -> int:
        return int(self._sums.columns[LAST_AT][self._row].max(initial=MISSING))


def _in_order(parts: Sequence[Reads]) -> Reads:
    owner = np.concatenate([part.owner for part in parts])
    at, tokens, slack = (np.concatenate([getattr(part, name) for part in parts]) for name in ("at", "tokens", "slack"))
    offsets = offsets_of(np.concatenate([part.counts() for part in parts]))
    order = np.argsort(owner)
    offsets, flat = picked_reads(offsets, order)
    return Reads(owner[order], offsets, *(column[flat] if len(column) else column for column in (at, tokens, slack)))


# -- the files ---------------------------------------------------------------------------------------------------------

Table = Any  # pyarrow.Table
Array = Any  # pyarrow.Array
Kinds = dict[str, Any]  # columns by name, with their type

_SCHEMA_KEY = b"inferometer.schema"
_FORMER = {"asked_input": "requested_input", "asked_output": "requested_output"}  # columns of version 1
_SAMPLES: Kinds = {
    "source": Categorical,
    "name": Categorical,
    "at": Ints,
    "value": Floats,
    "labels": Categorical,
}  # as in `Samples`


def write_parquet(records: Records, path: Path) -> None:
    """Writes records in batches if their reads are not in memory."""
    cuts = read_cuts(records.read_offsets)
    write_batches([records] if records.held else (records.take(np.arange(*cut)) for cut in cuts), path)


def set_aside(batches: Iterable[Records]) -> Records:
    """Records whose reads are in a temporary file, which is deleted with them."""
    folder = tempfile.TemporaryDirectory(prefix="inferometer-")
    path = Path(folder.name) / "records.parquet"

    def pieces(columns: Sequence[str], wanted: Mask | None) -> Iterator[ReadsPiece]:
        return read_pieces(Path(folder.name) / path.name, columns, wanted)

    write_batches(batches, path)
    return _streamed(path, pieces)


def write_batches(batches: Iterable[Records], path: Path) -> None:
    """Each batch becomes a row group, so that only one needs to be in memory."""
    _write_tables(map(records_table, batches), path)


def read_parquet(path: Path) -> Records:
    """All records of the file, in order of (scheduled_at, session, turn); the reads of a large file stay in it."""
    with _open(path) as file:
        large = sum(_stored_reads(file, i) for i in range(file.num_row_groups)) > HELD_READS
    if large:
        return _streamed(path, lambda columns, wanted: read_pieces(path, columns, wanted))
    return Records.concat(read_batches(path))


def read_pieces(path: Path, columns: Sequence[str], wanted: Mask | None = None) -> Iterator[ReadsPiece]:
    """Reads in the order of the file, about `BATCH_READS` at a time; rows that are not requested may be left out."""
    row = 0
    with _open(path) as file:
        for i in range(file.num_row_groups):
            rows = file.metadata.row_group(i).num_rows
            if wanted is None or wanted[row : row + rows].any():
                size = max(1, rows * BATCH_READS // max(1, _stored_reads(file, i)))
                yield from _pieces(file, i, size, columns, row)
            row += rows


def _pieces(file: Any, group: int, size: int, columns: Sequence[str], row: int) -> Iterator[ReadsPiece]:
    for batch in file.iter_batches(size, row_groups=[group], columns=list(columns), use_threads=False):
        lists = [batch.column(name) for name in columns]
        counts = np.diff(lists[0].offsets.to_numpy()).astype(np.int64)
        yield ReadsPiece(
            row, counts, {name: column.flatten().to_numpy() for name, column in zip(columns, lists, strict=True)}
        )
        row += len(batch)


def _stored_reads(file: Any, group: int) -> int:
    """Approximate number of reads in a row group: an empty list counts as one."""
    about = file.metadata.row_group(group)
    columns = (about.column(i) for i in range(about.num_columns))
    return next((int(column.num_values) for column in columns if column.path_in_schema.startswith("read_at")), 0)


def _streamed(path: Path, pieces: ReadPieces) -> Records:
    counts = np.concatenate([piece.counts for piece in read_pieces(path, ("read_tokens",))])
    no_reads: dict[str, Any] = dict.fromkeys(READS, np.empty(0, np.int64))
    parts, row = [], 0
    for table in _row_groups(path, "records", [*SCALARS]):
        offsets = offsets_of(counts[row : row + len(table)])
        parts.append(Records(**_scalars(table), read_offsets=offsets, **no_reads))
        row += len(table)
    return StreamedRecords.joined(parts, pieces)


def read_batches(path: Path) -> Iterator[Records]:
    """The records of the file one row group at a time, for uses that need not see them all at once."""
    return map(_records, _row_groups(path, "records"))


def write_samples(samples: Samples, path: Path) -> None:
    _write_tables([_table(_arrays(samples, _SAMPLES), "samples")], path)


def read_samples(path: Path) -> Samples:
    for table in _row_groups(path, "samples"):
        return Samples(**_columns(table, _SAMPLES))
    return Samples.of([])


def records_table(records: Records) -> Table:
    import pyarrow as pa

    offsets = _numbers(records.read_offsets.astype(np.int32), pa.int32())
    reads = {name: pa.ListArray.from_arrays(offsets, _numbers(getattr(records, name), pa.int64())) for name in READS}
    return _table(_arrays(records, SCALARS) | reads, "records")


def _records(table: Table) -> Records:
    reads = {name: table.column(name).combine_chunks() for name in READS}
    offsets = reads["read_at"].offsets.to_numpy().astype(np.int64)
    flat: dict[str, Any] = {name: column.flatten().to_numpy() for name, column in reads.items()}
    return Records(**_scalars(table), read_offsets=offsets - offsets[0], **flat)


def _scalars(table: Table) -> dict[str, Any]:
    there = {name: kind for name, kind in SCALARS.items() if name in table.column_names}
    columns = {name: default_column(name, len(table)) for name in SCALARS if name not in there}
    return columns | _columns(table, there)


def _table(arrays: dict[str, Array], kind: str) -> Table:
    import pyarrow as pa

    return pa.table(arrays).replace_schema_metadata({_SCHEMA_KEY: schema_of(kind).encode()})


def _arrays(columns: Any, kinds: Kinds) -> dict[str, Array]:
    return {name: _TO_ARROW[kind](getattr(columns, name)) for name, kind in kinds.items()}


def _columns(table: Table, kinds: Kinds) -> dict[str, Any]:
    table = table.unify_dictionaries()
    return {name: _FROM_ARROW[kind](table.column(name).combine_chunks()) for name, kind in kinds.items()}


def _write_tables(tables: Iterable[Table], path: Path) -> None:
    import pyarrow.parquet as pq

    with replacing(path) as draft, ExitStack() as stack:
        writer = None
        for table in tables:
            writer = writer or stack.enter_context(
                pq.ParquetWriter(draft, table.schema, compression="zstd", **_encodings(table))
            )
            writer.write_table(table, row_group_size=max(1, len(table)))


def _encodings(table: Table) -> dict[str, Any]:
    """Deltas for instants, dictionaries for categories and for the tokens of a read. 1M reads: 5.3 MB and 0.07 s, plain
    6.1 MB and 0.08 s; byte-stream-split has 4.7 MB, but few readers support it for integers."""
    import pyarrow as pa

    dictionaries = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
    leaves = [f"{name}.list.element" if name in READS else name for name in table.column_names]
    instants = [leaf for leaf in leaves if leaf.split(".")[0].endswith("_at")]
    return {
        "use_dictionary": [*dictionaries, "read_tokens.list.element"],
        "column_encoding": dict.fromkeys(instants, "DELTA_BINARY_PACKED"),
    }


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with translated_errors(path), pq.ParquetFile(path) as file:
            yield file
    except pa.ArrowInvalid as error:
        raise StoreError(f"{path}: not a readable Parquet file: {error}") from error


def _row_groups(path: Path, kind: str, columns: Sequence[str] | None = None) -> Iterator[Table]:
    """With the given columns, as far as the file has them; by default with all. Columns of older files get their
    present names."""
    with _open(path) as file:
        check_schema(path, kind, (file.schema_arrow.metadata or {}).get(_SCHEMA_KEY, b"").decode())
        names = file.schema_arrow.names
        wanted = [name for name in names if columns is None or _FORMER.get(name, name) in columns]
        for i in range(file.num_row_groups):
            table = file.read_row_group(i, wanted)
            yield table.rename_columns([_FORMER.get(name, name) for name in table.column_names])


def _numbers(column: Any, kind: Any, there: Mask | None = None) -> Array:
    """An array of numbers with nulls where the mask is false, sharing the column's memory: `pa.array` would import
    numpy.ma, which takes a hundredth of a second, only to check for masked arrays."""
    import pyarrow as pa

    column = np.ascontiguousarray(column)
    missing = 0 if there is None else len(column) - int(np.count_nonzero(there))
    valid = pa.py_buffer(np.packbits(there, bitorder="little")) if there is not None and missing else None
    return pa.Array.from_buffers(kind, len(column), [valid, pa.py_buffer(column)], missing)


def _ints_to_arrow(column: Ints) -> Array:
    import pyarrow as pa

    return _numbers(column, pa.int64(), known(column))


def _floats_to_arrow(column: Floats) -> Array:
    import pyarrow as pa

    return _numbers(column, pa.float64(), ~np.isnan(column))


def _texts_to_arrow(column: Texts) -> Array:
    import pyarrow as pa

    return pa.array(column.tolist(), pa.string())


def _categorical_to_arrow(column: Categorical) -> Array:
    import pyarrow as pa

    codes = _numbers(column.codes, pa.int32(), column.known())
    return pa.DictionaryArray.from_arrays(codes, pa.array(column.categories, pa.string()))


def _categorical_from_arrow(array: Array) -> Categorical:
    codes = array.indices.fill_null(-1).to_numpy().astype(np.int32)
    return Categorical(codes, tuple(array.dictionary.to_pylist()))


_TO_ARROW: dict[Any, Callable[[Any], Array]] = {
    Ints: _ints_to_arrow,
    Floats: _floats_to_arrow,
    Texts: _texts_to_arrow,
    Categorical: _categorical_to_arrow,
}
_FROM_ARROW: dict[Any, Callable[[Array], Any]] = {
    Ints: lambda array: array.fill_null(MISSING).to_numpy(),
    Floats: lambda array: array.fill_null(np.nan).to_numpy(),
    Texts: lambda array: array.to_numpy(zero_copy_only=False),
    Categorical: _categorical_from_arrow,
}
