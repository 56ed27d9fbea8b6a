"""`Asked`: what an exporter is given; `Piece`: a file it makes of it. Writing is left to `registry`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from inferometer.errors import StoreError
from inferometer.record.columns import Records
from inferometer.record.harmless import harmless, json_text
from inferometer.record.run import Run


class Piece(NamedTuple):
    name: str  # of the file, where its place has none of its own
    content: bytes


@dataclass(frozen=True, slots=True)
class Asked:
    """Runs, and how they are wanted. `there` gives what a file of that name holds by now: some formats append."""

    runs: Sequence[Run]
    detailed: bool = False
    suffix: str = ""  # of the path it is wanted at: ".json"
    there: Callable[[str], bytes | None] = lambda _name: None
    notes: list[str] = field(default_factory=list)  # what could not be told, for a person


Exporter = Callable[[Asked], list[Piece]]


def json_piece(name: str, content: Any) -> Piece:
    """With an end of line; a number that is not finite is null."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    return Piece(name, json_text(content, options).encode())


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
