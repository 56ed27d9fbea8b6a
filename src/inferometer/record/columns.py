"""`Records`: many records as columns, the form from which all numbers are computed. Files are left to `parquet`.

A missing whole number or instant is `MISSING`, a missing float is NaN, a missing category has code -1, a missing text
is None. Mask with `known(column)` before any arithmetic.
"""

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from inferometer.record.record import Record, Sample, Samples
from inferometer.vocabulary import attribute_at

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Texts = NDArray[np.object_]  # str or None; for values that are nearly unique per record
Mask = NDArray[np.bool_]

MISSING = int(np.iinfo(np.int64).min)  # no instant or count is this; -1 could be an instant of an aligned clock
READS = ("read_at", "read_tokens", "read_slack")
BATCH_READS = 262_144  # reads processed together: temporary arrays of 2 MB, which fit into a processor's cache


def known(column: Ints) -> Mask:
    """Where a column of whole numbers or instants has a value."""
    return np.not_equal(column, MISSING)


@dataclass(frozen=True, eq=False, slots=True)
class Categorical:
    """A column of few distinct texts: `words[codes[i]]` is entry i, code -1 is missing."""

    codes: NDArray[np.int32]
    categories: tuple[str, ...]

    @classmethod
    def of(cls, values: Sequence[str | None]) -> Self:
        categories = tuple(category for category in dict.fromkeys(values) if category is not None)
        code_of: dict[str | None, int] = {None: -1}
        code_of.update((category, code) for code, category in enumerate(categories))
        return cls(np.fromiter(map(code_of.__getitem__, values), np.int32, len(values)), categories)

    @classmethod
    def concat(cls, parts: Iterable[Self]) -> Self:
        categories: dict[str, int] = {}
        recoded = [np.empty(0, np.int32)]
        for part in parts:
            new = [categories.setdefault(category, len(categories)) for category in part.categories]
            recoded.append(np.array([*new, -1], np.int32)[part.codes])  # code -1 picks the last: missing
        return cls(np.concatenate(recoded), tuple(categories))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, i: int) -> str | None:
        code = self.codes[i]
        return self.categories[code] if code >= 0 else None

    def mask(self, *wanted: str) -> Mask:
        """Where the entry is one of the wanted texts."""
        return np.isin(self.codes, [code for code, category in enumerate(self.categories) if category in wanted])

    def known(self) -> Mask:
        return self.codes >= 0

    def counts(self) -> dict[str | None, int]:
        """How often each text occurs, without texts that do not occur; None counts the missing ones."""
        tally = np.bincount(self.codes + 1, minlength=len(self.categories) + 1)
        return {category: int(n) for category, n in zip((None, *self.categories), tally, strict=True) if n}

    def take(self, index: Ints) -> Self:
        return type(self)(self.codes[index], self.categories)

    def texts(self) -> Texts:
        """Every entry as text."""
        return np.array([*self.categories, None], dtype=object)[self.codes]


class SampleColumns:
    """Samples in the order they arrive, in 28 bytes each: a long run has millions."""

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self._at, self._value = array("q"), array("d")
        self._columns = {name: Coding() for name in ("source", "name", "labels")}
        self._written: dict[tuple[tuple[str, str], ...], str] = {}  # the same labels occur again and again
        self.extend(samples)

    def append(self, sample: Sample) -> None:
        labels = tuple(sample.labels.items())
        written = self._written.get(labels)
        if written is None:
            written = self._written[labels] = json.dumps(sample.labels, sort_keys=True)
        self._at.append(sample.at)
        self._value.append(sample.value)
        for coding, text in zip(self._columns.values(), (sample.source, sample.name, written), strict=True):
            coding.append(text)

    def extend(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            self.append(sample)

    def __len__(self) -> int:
        return len(self._at)

    def move(self, by_ns: int) -> None:
        """Move all samples to a later time."""
        self._at = array("q", (np.array(self._at, np.int64) + by_ns).tobytes())

    def in_order(self) -> Samples:
        at = np.array(self._at, np.int64)
        order = at.argsort(kind="stable")
        columns = {name: coding.column().take(order) for name, coding in self._columns.items()}
        return Samples(at=at[order], value=np.array(self._value, np.float64)[order], **columns)


class Coding:
    """Builds a `Categorical`."""

    def __init__(self) -> None:
        self._codes = array("i")
        self._code_of: dict[str, int] = {}

    def append(self, text: str) -> None:
        self._codes.append(self._code_of.setdefault(text, len(self._code_of)))

    def column(self) -> Categorical:
        return Categorical(np.array(self._codes, np.int32), tuple(self._code_of))


@dataclass(frozen=True, eq=False, slots=True)
class Reads:
    """The reads of some records, one record after the other: those of record `owner[i]` are offsets[i] up to offsets[i
    + 1]. A column that was not requested is empty."""

    owner: Ints
    offsets: Ints
    at: Ints
    tokens: Ints
    slack: Ints

    def counts(self) -> Ints:
        return np.diff(self.offsets)


_FRAMES = "inferometer.measure.registry"  # above this room in the import order: imported by name, on use


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Records:
    """One array per field of `Record`, under its name; record i has the slice `reads(i)` of its `read_*`.

    Iterate reads with `read_batches` or `reads_in_order`: the reads of a long run are not in memory
    (`parquet.StreamedRecords`), and `read_at` loads all of them.
    """

    session: Ints
    turn: Ints
    turns: Ints
    traffic: Categorical
    stage: Ints
    shard: Ints
    replica: Categorical

    scheduled_at: Ints
    ready_at: Ints
    sent_at: Ints
    headers_at: Ints
    visible_at: Ints
    ended_at: Ints
    connect_ns: Ints
    tls_ns: Ints
    retry_ns: Ints

    requested_input: Ints
    requested_output: Ints
    input_tokens: Ints
    output_tokens: Ints
    cached_tokens: Ints
    reasoning_tokens: Ints
    counted_tokens: Ints
    tokens_by: Categorical
    events: Ints
    bytes_sent: Ints
    bytes_received: Ints

    status: Ints
    finish_reason: Categorical
    outcome: Categorical
    error: Texts
    retry_after_s: Floats
    request_id: Texts
    prompt: Texts
    answer: Texts
    structure: Categorical
    model: Categorical

    read_offsets: Ints  # n + 1 of them: the reads of record i are read_offsets[i] up to read_offsets[i + 1]
    read_at: Ints
    read_tokens: Ints
    read_slack: Ints

    def to_arrow(self) -> Any:
        """A pyarrow table: one row per request, with its measures in seconds (`ttft`, `tpot`, `e2e`) and the raw
        instants."""
        return attribute_at(f"{_FRAMES}:to_arrow")(self)

    def to_pandas(self) -> Any:
        return attribute_at(f"{_FRAMES}:to_pandas")(self)

    def to_polars(self) -> Any:
        return attribute_at(f"{_FRAMES}:to_polars")(self)

    @classmethod
    def of(cls, records: Sequence[Record]) -> Self:
        """From records in the given order. A record with reads but without `read_slack` has exact instants."""
        names = Record.__struct_fields__
        rows = [msgspec.structs.astuple(record) for record in records]
        values = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(names, ())
        columns = {name: _FROM_VALUES[kind](values[name]) for name, kind in SCALARS.items()}
        return cls(**columns, **_joined_reads(*(values[name] for name in READS)))

    @classmethod
    def concat(cls, parts: Iterable[Self]) -> Self:
        """Merges several shards, in order of (scheduled_at, session, turn)."""
        parts = [*parts] or [cls.of([])]
        whole = parts[0] if len(parts) == 1 else cls._joined(parts)
        order = time_order(whole)
        return whole if (np.diff(order) == 1).all() else whole.take(order)

    @classmethod
    def _joined(cls, parts: Sequence[Self]) -> Self:
        counts = np.concatenate([np.diff(part.read_offsets) for part in parts])
        reads: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in READS}
        return cls(**joined_scalars(parts), read_offsets=offsets_of(counts), **reads)

    def __len__(self) -> int:
        return len(self.session)

    def __repr__(self) -> str:
        """Without the arrays: a notebook prints it."""
        return f"<{len(self):,} requests, {int(self.read_offsets[-1]):,} reads: to_pandas(), to_polars() or to_arrow()>"

    def take(self, chosen: Mask | Ints) -> Self:
        """The records where a mask is true, or at the given indices, in their order."""
        index = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen.astype(np.int64, copy=False)
        offsets, flat = picked_reads(self.read_offsets, index)
        return type(self)(
            **taken_scalars(self, index), read_offsets=offsets, **{name: getattr(self, name)[flat] for name in READS}
        )

    @property
    def held(self) -> bool:
        """Whether the reads are in memory."""
        return True

    def read_counts(self) -> Ints:
        """Token-bearing reads of each record."""
        return np.diff(self.read_offsets)

    def read_batches(self, chosen: Mask | None = None, columns: Sequence[str] = READS) -> Iterator[Reads]:
        """The reads of the chosen records (None: of all), some records at a time, in any order."""
        return self.reads_in_order(chosen, columns)

    def reads_in_order(self, chosen: Mask | None = None, columns: Sequence[str] = READS) -> Iterator[Reads]:
        """The same in the order of the records, which takes longer with streamed records."""
        for start, end in read_cuts(self.read_offsets):
            index = np.arange(start, end) if chosen is None else start + np.flatnonzero(chosen[start:end])
            if len(index) == end - start:
                first, last = self.read_offsets[start], self.read_offsets[end]
                offsets = self.read_offsets[start : end + 1] - first
                yield Reads(index, offsets, *(getattr(self, name)[first:last] for name in READS))
            elif len(index):
                offsets, flat = picked_reads(self.read_offsets, index)
                yield Reads(index, offsets, *(getattr(self, name)[flat] for name in READS))

    def last_read_at(self) -> int:
        """The latest of all reads; `MISSING` if there are none."""
        return int(self.read_at.max()) if len(self.read_at) else MISSING

    def reads(self, i: int) -> slice:
        """The slice of the reads of record i in `read_at`, `read_tokens` and `read_slack`."""
        i = range(len(self))[i]
        return slice(int(self.read_offsets[i]), int(self.read_offsets[i + 1]))

    def record(self, i: int) -> Record:
        """Record i as it was written to the log."""
        return self._record(i, {name: getattr(self, name)[self.reads(i)] for name in READS})

    def entries(self, i: int) -> dict[str, Any]:
        """The fields of record i by name, except its reads."""
        return {name: _ENTRY[kind](getattr(self, name), i) for name, kind in SCALARS.items()}

    def _record(self, i: int, reads: dict[str, Ints]) -> Record:
        values = self.entries(i) | {name: _packed(column) for name, column in reads.items()}
        return Record(**values)


SCALARS: dict[str, Any] = {
    field.name: field.type for field in fields(Records) if field.name not in (*READS, "read_offsets")
}


_TIME_KEYS = ("turn", "session", "scheduled_at")  # the most significant key last


def joined_scalars(parts: Sequence[Records]) -> dict[str, Any]:
    """The columns of several parts, except their reads."""
    return {name: _JOINED[kind]([getattr(part, name) for part in parts]) for name, kind in SCALARS.items()}


def ordered_scalars(parts: list[Records]) -> tuple[dict[str, Any], Ints]:
    """The same in order of time, and the order. It empties the list and frees the parts column by column, so that there
    is never a second copy of everything."""
    order = np.lexsort([np.concatenate([getattr(part, name) for part in parts]) for name in _TIME_KEYS])
    columns = {name: [getattr(part, name) for part in parts] for name in SCALARS}
    parts.clear()
    return {name: _TAKEN[kind](_JOINED[kind](columns.pop(name)), order) for name, kind in SCALARS.items()}, order


def taken_scalars(records: Records, index: Ints) -> dict[str, Any]:
    return {name: _TAKEN[kind](getattr(records, name), index) for name, kind in SCALARS.items()}


def time_order(records: Records) -> Ints:
    return np.lexsort([getattr(records, name) for name in _TIME_KEYS])


def default_column(name: str, n: int) -> Any:
    """The column of records that were written before the field existed."""
    blank = Records.of([Record(session=0, scheduled_at=0)])
    return _TAKEN[SCALARS[name]](getattr(blank, name), np.zeros(n, np.int64))


def offsets_of(counts: Ints) -> Ints:
    """Where each record's entries start in the flat array, plus the end of the last record."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def picked_reads(read_offsets: Ints, index: Ints) -> tuple[Ints, Ints]:
    """For the records at these indices, one after the other: their offsets, and the index of each of their reads."""
    counts = np.diff(read_offsets)[index]
    offsets = offsets_of(counts)
    return offsets, np.arange(offsets[-1]) + np.repeat(read_offsets[:-1][index] - offsets[:-1], counts)


def read_cuts(read_offsets: Ints) -> Iterator[tuple[int, int]]:
    """Ranges of records with about `BATCH_READS` reads each; all reads of a record stay together."""
    inner = np.searchsorted(read_offsets[:-1], np.arange(BATCH_READS, read_offsets[-1], BATCH_READS))
    return pairwise(sorted({0, *inner.tolist(), len(read_offsets) - 1}))


def _joined_reads(at: Sequence[bytes], tokens: Sequence[bytes], slack: Sequence[bytes]) -> dict[str, Any]:
    slack = [s if s else bytes(len(a)) for s, a in zip(slack, at, strict=True)]
    sizes = np.fromiter(map(len, at), np.int64, len(at))
    for column in (tokens, slack):
        wrong = np.flatnonzero(np.fromiter(map(len, column), np.int64, len(at)) != sizes)
        if len(wrong):
            raise ValueError(f"record {wrong[0]}: read_at, read_tokens and read_slack differ in length")
    flat = [np.frombuffer(b"".join(column), "<i8").astype(np.int64, copy=False) for column in (at, tokens, slack)]
    return {"read_offsets": offsets_of(sizes // 8), **dict(zip(READS, flat, strict=True))}


def _packed(entries: Ints) -> bytes:
    return entries.astype("<i8", copy=False).tobytes()


def _ints(values: Sequence[int | None]) -> Ints:
    missing = values.count(None)
    if not missing:
        return np.fromiter(values, np.int64, len(values))
    if missing == len(values):
        return np.full(len(values), MISSING)
    return np.fromiter((MISSING if v is None else v for v in values), np.int64, len(values))


def _floats(values: Sequence[float | None]) -> Floats:
    return np.fromiter((np.nan if v is None else v for v in values), np.float64, len(values))


def _texts(values: Sequence[str | None]) -> Texts:
    texts = np.empty(len(values), dtype=object)
    texts[:] = values
    return texts


def _int_at(column: Ints, i: int) -> int | None:
    return None if column[i] == MISSING else int(column[i])


def _float_at(column: Floats, i: int) -> float | None:
    return None if np.isnan(column[i]) else float(column[i])


# The operations that differ by kind of column: build from values, join, select, read one entry.
_FROM_VALUES: dict[Any, Callable[[Any], Any]] = {
    Ints: _ints,
    Floats: _floats,
    Texts: _texts,
    Categorical: Categorical.of,
}
_JOINED: dict[Any, Callable[[Any], Any]] = {
    Ints: np.concatenate,
    Floats: np.concatenate,
    Texts: np.concatenate,
    Categorical: Categorical.concat,
}
_TAKEN: dict[Any, Callable[[Any, Ints], Any]] = {
    Ints: np.ndarray.__getitem__,
    Floats: np.ndarray.__getitem__,
    Texts: np.ndarray.__getitem__,
    Categorical: Categorical.take,
}
_ENTRY: dict[Any, Callable[[Any, int], Any]] = {
    Ints: _int_at,
    Floats: _float_at,
    Texts: np.ndarray.__getitem__,
    Categorical: Categorical.__getitem__,
}
