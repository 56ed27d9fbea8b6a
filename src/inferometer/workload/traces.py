"""Recorded requests: their times, lengths, sessions and shared prefixes.

These files contain no texts (unless a column has them), so texts of the recorded lengths are generated. A hash id
always gives the same block of tokens, and a turn begins with the previous turns, so a server's prefix cache has the
same hits as with the recorded traffic.
"""

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from inferometer.errors import DataError, PlanError
from inferometer.plan.workloads.recorded import Trace, TraceFile
from inferometer.vocabulary import duration_text
from inferometer.workload.cache import cached_path, fingerprint, locked, replacing
from inferometer.workload.draws import Draws, Numbers, Purpose, numbers
from inferometer.workload.files import local_file, open_rows
from inferometer.workload.rows import RowError, Rows
from inferometer.workload.session import Prompt, Request, Session, Workload, WorkloadContext
from inferometer.workload.writer import Writer, writer_of

# -- columns of a trace ------------------------------------------------------------------------------------------------

# Named columns of a file as numbers, read once, row by row, with the errors of bad rows.

Ints = NDArray[np.int64]
Read = Callable[[Any], int]  # converts a value to a number; ValueError says what it must be

UNITS_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
MISSING = -1  # in an optional column
_MOST = 2**62
_ZONE = re.compile(r"[0-9]\s*(Z|[+-][0-9]{2}:?[0-9]{2})$")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a file: its use, its name in the file, and how its values are read."""

    use: str
    name: str
    read: Read
    needed: bool = True


@dataclass(slots=True)
class LeftOut:
    """Excluded rows: their number and the first one per reason."""

    reasons: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, where: str, reason: str) -> None:
        kind = reason.partition(", got")[0]
        count, first = self.reasons.get(kind, (0, f"{where} {reason}"))
        self.reasons[kind] = (count + 1, first)

    def __len__(self) -> int:
        return sum(count for count, _ in self.reasons.values())

    def lines(self, name: str, rows: int) -> Iterator[str]:
        """One readable line per reason."""
        for count, first in self.reasons.values():
            like = "" if count == 1 else f" and {count - 1:,} like it"
            yield f"{name}: {count:,} of {rows:,} rows are skipped: {first.removeprefix(f'{name}: ')}{like}"


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns by their use, with a number for each readable row; `rows` has its row number in the file."""

    rows: Ints
    values: dict[str, Ints]


def read_columns(rows: Rows, wanted: Iterable[Column], left_out: LeftOut) -> Columns:
    """Read the columns. Unreadable rows are excluded and counted; it is an error if there is no other."""
    columns = list(wanted)
    arrays = [array("q") for _ in columns]
    kept = array("q")
    for number in range(len(rows)):
        try:
            row = rows[number]
            values = [_value(row, column) for column in columns]
        except RowError as error:
            left_out.add(rows.where(number), str(error))
            continue
        kept.append(number)
        for place, value in zip(arrays, values, strict=True):
            place.append(value)
    if not kept:
        raise _nothing(rows, columns, left_out)
    return Columns(_ints(kept), {column.use: _ints(place) for column, place in zip(columns, arrays, strict=True)})


def _ints(values: "array[int]") -> Ints:
    return np.frombuffer(values, np.int64) if values else np.empty(0, np.int64)


def _value(row: Any, column: Column) -> int:
    if not isinstance(row, Mapping):
        raise RowError(f"must be a row with names, got {str(row)[:40]}")
    value = row.get(column.name)
    if value is None or value == "":
        if column.needed:
            raise RowError(f"has no {column.name}")
        return MISSING
    try:
        return column.read(value)
    except (ValueError, OverflowError) as error:
        raise RowError(f"{column.name} {error}, got {str(value)[:40]}") from None


def _nothing(rows: Rows, columns: list[Column], left_out: LeftOut) -> DataError:
    if not len(rows):
        return DataError(f"{rows.name}: has no rows", "is the file complete?")
    names = _names(rows)
    missing = [column.name for column in columns if column.needed and column.name not in names]
    if names and missing:
        text = f"{rows.name}: has no column {', '.join(missing)}, it has {', '.join(names)}"
        return DataError(text, "is workload.type right? A file of another kind: type: trace, with workload.columns")
    first = next(iter(left_out.reasons.values()))[1]
    return DataError(f"{first}; no usable row", "is workload.type right, and the file complete?")


def _names(rows: Rows) -> list[str]:
    try:
        row = rows[0]
    except RowError:
        return []
    return list(row) if isinstance(row, Mapping) else []


def tokens(value: Any) -> int:
    """A number of tokens, as a number or as text."""
    number = _number(value)
    if number is None or number != int(number) or not 0 <= number < _MOST:
        raise ValueError("must be a whole number of tokens")
    return int(number)


def seconds(value: Any) -> int:
    """A duration in seconds, as nanoseconds."""
    number = _number(value)
    if number is None or not 0 <= number < _MOST / 10**9:
        raise ValueError("must be a number of seconds")
    return round(number * 10**9)


def instant(unit: str | None) -> Read:
    """Reads a time as nanoseconds: a number in this unit or, without one, a date."""
    if unit is None:
        return _date
    scale = UNITS_NS[unit]

    def read(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value * scale
        number = _number(value)
        if number is None or not abs(number) < _MOST / scale:
            raise ValueError(f"must be a number of {unit}")
        return round(number * scale)

    return read


def _date(value: Any) -> int:
    """`2023-11-16 18:17:03.9799600`, with or without a zone; without one, all rows are in the same zone."""
    if not isinstance(value, str):
        raise ValueError("must be a date (a number needs workload.unit: s, ms, us or ns)")
    text = value.strip()
    try:
        if _ZONE.search(text):
            return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1) * 1000
        return int(np.datetime64(text, "ns").astype(np.int64))
    except ValueError:
        raise ValueError("must be a date such as 2023-11-16 18:17:03.97 (a number needs workload.unit)") from None


def _number(value: Any) -> float | int | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if value == value and abs(value) != float("inf") else None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if number == number and abs(number) != float("inf") else None


def names_as_numbers() -> Read:
    """A reader that converts values to numbers, by first occurrence: equal values have equal numbers."""
    known: dict[str, int] = {}

    def read(value: Any) -> int:
        return known.setdefault(str(value), len(known))

    return read


@dataclass(slots=True)
class Lists:
    """Lists of integers, concatenated; the value of a row is the number of its list."""

    flat: "array[int]" = field(default_factory=lambda: array("q"))
    ends: "array[int]" = field(default_factory=lambda: array("q", [0]))

    def read(self, value: Any) -> int:
        numbers = _parsed(value) if isinstance(value, str) else value
        if not isinstance(numbers, list) or not all(type(number) is int and abs(number) < _MOST for number in numbers):
            raise ValueError("must be a list of whole numbers")
        self.flat.extend(numbers)
        self.ends.append(len(self.flat))
        return len(self.ends) - 2


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


# -- traces ------------------------------------------------------------------------------------------------------------

NANOSECONDS = 10**9
KEPT_FROM = 50_000  # rows, which take a second to read
LAYOUT = 1  # version of the cached form of a recording
_ARRAYS = ("row", "at", "input_tokens", "output_tokens", "elapsed", "sessions", "hash_ids", "hash_ends")
Notify = Callable[[str], None]

# the columns of well-known files by their use; those with a `?` are optional
FORMATS = {
    "azure": {"time": "TIMESTAMP", "input_tokens": "ContextTokens", "output_tokens": "GeneratedTokens"},
    "mooncake": {
        "time": "timestamp",
        "input_tokens": "input_length",
        "output_tokens": "output_length",
        "hash_ids": "hash_ids",
    },
    "burstgpt": {
        "time": "Timestamp",
        "input_tokens": "Request tokens",
        "output_tokens": "Response tokens",
        "session": "?Session ID",
        "elapsed": "?Elapsed time",
    },
}
UNITS = {"mooncake": "ms", "burstgpt": "s"}


@dataclass(frozen=True, eq=False, slots=True)
class Recording:
    """Requests, ordered by session and within a session by time; sessions are ordered by their first request.

    The requests of session i are those from `sessions[i]` to `sessions[i + 1]`, the hash ids of request j those from
    `hash_ends[j]` to `hash_ends[j + 1]`. Numbers that the file lacks are `MISSING`.
    """

    rows: Rows
    row: Ints  # row in the file
    at: Ints  # nanoseconds after the start
    input_tokens: Ints
    output_tokens: Ints
    elapsed: Ints
    sessions: Ints
    hash_ids: Ints
    hash_ends: Ints
    prompt_column: str | None
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.sessions) - 1

    @property
    def starts(self) -> Ints:
        """The start of each session."""
        return self.at[self.sessions[:-1]]

    def where(self, request: int) -> str:
        return self.rows.where(int(self.row[request]))


def recording_of(spec: TraceFile, notify: Notify = lambda _text: None) -> Recording:
    """The recording of a plan, read once per process."""
    place = spec.path or spec.url
    if place is None:
        raise PlanError("workload.path is missing: give the file, or the url to fetch it from")
    path = local_file(place, spec.sha256, notify)
    return _recording(type(spec), spec.model_dump_json(), place, fingerprint(path))


@lru_cache(4)
def _recording(kind: type[TraceFile], settings: str, place: str, state: tuple[str, int, int]) -> Recording:
    """Read the file or, if it is long, its cached columns, which other workers use too."""
    spec = kind.model_validate_json(settings)
    rows = open_rows(place, sha256=spec.sha256)
    if len(rows) < KEPT_FROM:
        return _read(spec, rows)
    kept = cached_path("recording", Path(place).name, LAYOUT, settings, *state).with_suffix(".npz")
    with locked(kept):
        if not kept.exists():
            _keep(_read(spec, rows), kept)
        return _kept_recording(kept, rows, names_of(spec).get("prompt"))


def _keep(recording: Recording, place: Path) -> None:
    columns = {name: getattr(recording, name) for name in _ARRAYS}
    with replacing(place) as file:
        np.savez(file, notes=np.array(recording.notes, np.str_), **columns)


def _kept_recording(place: Path, rows: Rows, prompt_column: str | None) -> Recording:
    with np.load(place) as kept:
        notes = tuple(str(note) for note in kept["notes"])
        return Recording(rows=rows, prompt_column=prompt_column, notes=notes, **{name: kept[name] for name in _ARRAYS})


def _read(spec: TraceFile, rows: Rows) -> Recording:
    left_out, lists = LeftOut(), Lists()
    columns = read_columns(rows, _wanted(spec, lists), left_out)
    columns = _in_order(_usable(columns, rows, left_out), rows, spec.sort)
    columns = _cut(columns, rows, spec, left_out)
    return _by_session(columns, rows, lists, names_of(spec).get("prompt"), tuple(left_out.lines(rows.name, len(rows))))


def names_of(spec: TraceFile) -> dict[str, str]:
    """The columns of a trace by their use."""
    if not isinstance(spec, Trace):
        return FORMATS[str(getattr(spec, "type", ""))]
    needed = {"time"} if "prompt" in spec.columns else {"time", "input_tokens"}
    return {use: use for use in needed} | spec.columns


def _wanted(spec: TraceFile, lists: Lists) -> list[Column]:
    unit = spec.unit if isinstance(spec, Trace) else UNITS.get(str(getattr(spec, "type", "")))
    read = {
        "time": instant(unit),
        "input_tokens": tokens,
        "output_tokens": tokens,
        "session": names_as_numbers(),
        "elapsed": seconds,
        "hash_ids": lists.read,
    }
    return [
        Column(use, name.removeprefix("?"), read[use], needed=not name.startswith("?") and use != "session")
        for use, name in names_of(spec).items()
        if use in read
    ]


def _usable(columns: Columns, rows: Rows, left_out: LeftOut) -> Columns:
    """The columns without empty requests, which had failed when they were recorded."""
    nothing = np.zeros(len(columns.rows), bool)
    for use in ("input_tokens", "output_tokens"):
        if use in columns.values:
            nothing |= columns.values[use] == 0
    for number in columns.rows[nothing]:
        left_out.add(rows.where(int(number)), "has 0 tokens: it failed when it was recorded")
    return _kept(columns, ~nothing, rows, "have any tokens")


def _kept(columns: Columns, which: Ints | np.ndarray[tuple[int], np.dtype[np.bool_]], rows: Rows, what: str) -> Columns:
    chosen = columns.rows[which]
    if not len(chosen):
        raise DataError(f"{rows.name}: none of its {len(rows):,} rows {what}", "look at workload.window and max_tokens")
    return Columns(chosen, {use: values[which] for use, values in columns.values.items()})


def _in_order(columns: Columns, rows: Rows, sort: bool) -> Columns:
    at = columns.values["time"]
    back = np.flatnonzero(np.diff(at) < 0)
    if not len(back):
        return columns
    if sort:
        order = np.argsort(at, kind="stable")
        return Columns(columns.rows[order], {use: values[order] for use, values in columns.values.items()})
    first = int(back[0]) + 1
    step = (int(at[first - 1]) - int(at[first])) / NANOSECONDS
    more = f" (and {len(back) - 1:,} more)" if len(back) > 1 else ""
    raise DataError(
        f"{rows.where(int(columns.rows[first]))} goes back in time, by {duration_text(step)}{more}",
        "sort the file by time, or use --set workload.sort=true",
    )


def _cut(columns: Columns, rows: Rows, spec: TraceFile, left_out: LeftOut) -> Columns:
    """The plan's time window of the recording, on a clock that starts with the window."""
    at = columns.values["time"] - columns.values["time"][0]
    start, end = round(spec.window.start * NANOSECONDS), spec.window.end
    until = int(at[-1]) + 1 if end is None else round(end * NANOSECONDS)
    inside = (at >= start) & (at < until)
    lasts = f"lie in workload.window: the recording lasts {duration_text(at[-1] / NANOSECONDS)}"
    columns = _kept(Columns(columns.rows, columns.values | {"time": at - start}), inside, rows, lasts)
    if spec.max_tokens is not None and "input_tokens" in columns.values:
        columns = _short_enough(columns, rows, spec.max_tokens, left_out)
    return _kept(columns, np.arange(min(len(columns.rows), spec.limit or len(columns.rows))), rows, "are left")


def _short_enough(columns: Columns, rows: Rows, most: int, left_out: LeftOut) -> Columns:
    long = columns.values["input_tokens"] > most
    for number, length in zip(columns.rows[long], columns.values["input_tokens"][long], strict=True):
        text = f"is longer than workload.max_tokens, {most:,}, got {length:,} tokens"
        left_out.add(rows.where(int(number)), text)
    return _kept(columns, ~long, rows, f"have at most workload.max_tokens, {most:,}")


def _by_session(
    columns: Columns, rows: Rows, lists: Lists, prompt_column: str | None, notes: tuple[str, ...]
) -> Recording:
    count = len(columns.rows)
    missing = np.full(count, MISSING, np.int64)
    session = _numbered(columns.values.get("session", missing))
    order = np.argsort(session, kind="stable")
    values = {use: column[order] for use, column in columns.values.items()}
    hash_ids, hash_ends = _hash_ids(values.get("hash_ids"), lists, count)
    return Recording(
        rows=rows,
        row=columns.rows[order],
        at=values["time"],
        input_tokens=values.get("input_tokens", missing),
        output_tokens=values.get("output_tokens", missing),
        elapsed=values.get("elapsed", missing),
        sessions=np.concatenate([[0], np.cumsum(np.bincount(session))]).astype(np.int64),
        hash_ids=hash_ids,
        hash_ends=hash_ends,
        prompt_column=prompt_column,
        notes=notes,
    )


def _numbered(session: Ints) -> Ints:
    """Sessions numbered in the order of their first requests; a request without a session is a separate session."""
    named = np.where(session == MISSING, -1 - np.arange(len(session)), session)
    _, first, which = np.unique(named, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[which]


def _hash_ids(which: Ints | None, lists: Lists, count: int) -> tuple[Ints, Ints]:
    """The hash ids of the remaining requests, in order."""
    if which is None:
        return np.empty(0, np.int64), np.zeros(count + 1, np.int64)
    flat, ends = np.frombuffer(lists.flat, np.int64), np.frombuffer(lists.ends, np.int64)
    parts = [flat[ends[number] : ends[number + 1]] for number in which]
    return np.concatenate(parts), np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)


KEPT_BLOCKS = 4096  # of 512 numbers each: 8 MB


def trace(spec: TraceFile, seed: int, traffic: int, nonce: str, context: WorkloadContext | None = None) -> Workload:
    """One session per recorded session, in order; after the last it starts again, with other texts."""
    known = context or WorkloadContext()
    recording = recording_of(spec, known.note)
    for note in recording.notes:
        known.note(note)
    _check_fits(recording, known.max_model_len)
    writer = writer_of(spec.prompt_as, spec.vocabulary, spec.tokenizer, known)
    return _Replay(recording, writer, Draws(seed, traffic), nonce.encode(), spec).session


def _check_fits(recording: Recording, context_tokens: int | None) -> None:
    """Check that prompts fit the model's context: an error in the plan instead of thousands of failed requests."""
    if context_tokens is None:
        return
    wanted = np.maximum(recording.input_tokens, 0) + np.maximum(recording.output_tokens, 1)
    too_long = np.flatnonzero(wanted > context_tokens)
    if len(too_long):
        first = int(too_long[0])
        more = f" (and {len(too_long) - 1:,} more rows)" if len(too_long) > 1 else ""
        room = context_tokens - int(recording.output_tokens.max())
        hint = f"leave such rows out with --set workload.max_tokens={room}, or " if room > 0 else ""
        raise DataError(
            f"{recording.where(first)} needs {wanted[first]:,} tokens with its answer, the model's context has "
            f"{context_tokens:,}{more}",
            f"{hint}serve the model with a longer context",
        )


class _Replay:
    """The data needed to generate any session of a recording."""

    def __init__(self, recording: Recording, writer: Writer, draws: Draws, nonce: bytes, spec: TraceFile) -> None:
        self._recording = recording
        self._writer = writer
        self._draws = draws
        self._nonce = nonce if spec.nonce_tokens else b""
        self._nonce_tokens = spec.nonce_tokens
        self._block_tokens: int = getattr(spec, "block_tokens", 0)
        self._block = lru_cache(KEPT_BLOCKS)(self._make_block)

    def session(self, index: int) -> Session:
        lap, number = divmod(index, len(self._recording))
        start, end = (int(edge) for edge in self._recording.sessions[number : number + 2])
        turns = [self._request(request, start, lap) for request in range(start, end)]
        return Session(turns, at_s=turns[0].at_s)

    def _request(self, request: int, first: int, lap: int) -> Request:
        recording = self._recording
        output = int(recording.output_tokens[request])
        length = int(recording.input_tokens[request])
        return Request(
            self._prompt(request, first, lap),
            None if output == MISSING else output,
            None if length == MISSING else length,
            think_s=self._think_s(request) if request > first else 0.0,
            at_s=int(recording.at[request]) / NANOSECONDS,
        )

    def _think_s(self, request: int) -> float:
        """The pause after the end of the previous answer, if the recording has its duration; else after its start."""
        recording = self._recording
        since = int(recording.at[request] - recording.at[request - 1])
        return max(since - max(int(recording.elapsed[request - 1]), 0), 0) / NANOSECONDS

    def _prompt(self, request: int, first: int, lap: int) -> Prompt:
        if self._recording.prompt_column is not None:
            return str(self._recording.rows[int(self._recording.row[request])][self._recording.prompt_column])
        tokens = self._writer.room(int(self._recording.input_tokens[request]))
        if self._recording.hash_ends[request + 1] > self._recording.hash_ends[request]:
            return self._writer.write(self._blocks(request, tokens, lap))
        return self._writer.write(self._conversation(self._began(request, first), tokens, lap))

    def _began(self, request: int, first: int) -> int:
        """The turn with which the conversation in this prompt began. A prompt that is too short for the previous turn
        and its answer contains no history."""
        recording = self._recording
        while request > first:
            before = int(recording.input_tokens[request - 1]) + max(int(recording.output_tokens[request - 1]), 0)
            if recording.input_tokens[request] < before:
                break
            request -= 1
        return request

    def _conversation(self, began: int, tokens: int, lap: int) -> Numbers:
        """The first tokens of the conversation; the very first are new in each run."""
        key = self._draws.key(Purpose.TEXT, began) + lap.to_bytes(4, "little")
        fresh = min(self._nonce_tokens, tokens)
        return np.concatenate([numbers(self._nonce + key, fresh), numbers(key, tokens - fresh)])

    def _blocks(self, request: int, tokens: int, lap: int) -> Numbers:
        """The blocks of the hash ids, the last one cut; a longer prompt continues with new text."""
        start, end = (int(edge) for edge in self._recording.hash_ends[request : request + 2])
        blocks = [self._block(int(hash_id), lap) for hash_id in self._recording.hash_ids[start:end]]
        known = np.concatenate(blocks)[:tokens]
        if len(known) == tokens:
            return known
        return np.concatenate([known, self._conversation(request, tokens - len(known), lap)])

    def _make_block(self, hash_id: int, lap: int) -> Numbers:
        """One block; blocks are new in each run and shared only within the run."""
        key = self._draws.key(Purpose.BLOCK, hash_id % 2**64) + lap.to_bytes(4, "little")
        return numbers(self._nonce + key, self._block_tokens)
