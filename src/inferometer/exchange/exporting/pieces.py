"""`Asked`: what an exporter is given; `Piece`: a file it makes of it. Writing is left to `registry`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from inferometer.errors import StoreError
from inferometer.record.columns import Records
from inferometer.record.harmless import harmless, json_text
from inferometer.record.run import Run

Chunks = Callable[[], Iterable[bytes]]  # a file that is made while it is written, anew for each call


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    name: str  # of the file, where its place has none of its own
    made: bytes | Chunks

    def chunks(self) -> Iterable[bytes]:
        return [self.made] if isinstance(self.made, bytes) else self.made()

    @property
    def content(self) -> bytes:
        return b"".join(self.chunks())


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """A long list of a document, some of it at a time."""

    batches: Callable[[], Iterable[list[Any]]]


@dataclass(frozen=True, slots=True)
class Asked:
    """Runs, and how they are wanted. `there` gives what a file of that name holds by now: some formats append."""

    runs: Sequence[Run]
    detailed: bool = False
    suffix: str = ""  # of the path it is wanted at: ".json"
    there: Callable[[str], bytes | None] = lambda _name: None
    notes: list[str] = field(default_factory=list)  # what could not be told, for a person


Exporter = Callable[[Asked], list[Piece]]


_JSON = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def json_piece(name: str, content: Any) -> Piece:
    """With an end of line; a number that is not finite is null."""
    return Piece(name, json_text(content, _JSON | orjson.OPT_APPEND_NEWLINE).encode())


def long_json_piece(name: str, content: Mapping[str, Any]) -> Piece:
    """The same bytes, written field by field, and `Rows` batch by batch."""
    return Piece(name, lambda: _json_chunks(content))


def _dumped(content: Any) -> bytes:
    return json_text(content, _JSON).encode()


def _json_chunks(content: Mapping[str, Any]) -> Iterator[bytes]:
    for number, (key, value) in enumerate(content.items()):
        yield b",\n" if number else b"{\n"
        if isinstance(value, Rows):
            yield from _row_chunks(key, value)
        else:
            yield _dumped({key: value}).removeprefix(b"{\n").removesuffix(b"\n}")
    yield b"\n}\n"


def _row_chunks(key: str, rows: Rows) -> Iterator[bytes]:
    head, tail = _dumped({key: [0]}).removesuffix(b"\n}").split(b"    0")
    between = head.removeprefix(b"{\n")
    for batch in filter(None, rows.batches()):
        yield between
        yield _dumped({key: batch}).removesuffix(b"\n}").removeprefix(head).removesuffix(tail)
        between = b",\n"
    yield tail if between == b",\n" else between.removesuffix(b"\n") + b"]"


def text_piece(name: str, text: str) -> Piece:
    """Lines end as they are given."""
    return Piece(name, "\r\n".join(map(harmless, text.split("\r\n"))).encode())


def records_of(run: Run) -> Records:
    records = run.records()
    if records is None:
        hint = "formats that need none: json, llm-d, github-action-benchmark, openmetrics"
        raise StoreError(f"{run.id}: this run has no records", hint)
    return records


def of_kind(run: Run, fits: Mapping[str, Any], what: str) -> Any:
    """What a format makes of this kind of run; a kind that it has no place for is said."""
    if run.kind not in fits:
        kinds = " and ".join(fits)
        raise StoreError(f"{run.id}: is a run of kind {run.kind}, {what} has a place for {kinds}")
    return fits[run.kind]
