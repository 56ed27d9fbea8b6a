"""Results that stand in rows: each row a run or a request, a row that is none named and left out."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime

from inferometer.errors import DataError
from inferometer.exchange.importing.found import Found, ImportedRun, Row, Source
from inferometer.exchange.importing.requests import Told

EPOCH_S = 1e9  # instants above it are seconds since 1970, below it of a clock of their own


def each_row(source: Source, make: Callable[[Row], ImportedRun], rows: Iterable[Row] | None = None) -> Found:
    """A run of every row. A single row is the whole file; of several each keeps its own."""
    every = list(source.rows() if rows is None else rows)
    runs, broken = [], []
    for row in every:
        try:
            run = make(row)
        except DataError as error:
            broken.append(f"{row.where}: {error.message}".lstrip(": "))
            continue
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            broken.append(f"{row.where}: {type(error).__name__}: {error}".lstrip(": "))
            continue
        runs.append(run if len(every) == 1 else part_of(run, row))
    return Found(runs, broken)


def requests_in(source: Source, make: Callable[[Row], Told]) -> tuple[list[Told], list[str]]:
    """A request of every row of one run, and the rows that are none."""
    requests, broken = [], []
    for row in source.rows():
        try:
            requests.append(make(row))
        except DataError as error:
            broken.append(f"{row.where}: {error.message}")
    return requests, broken


def started_at(first_s: float) -> datetime | None:
    """The start of a run whose instants are seconds since 1970; those of a clock of their own tell none."""
    return datetime.fromtimestamp(first_s, UTC) if first_s > EPOCH_S else None


def part_of(run: ImportedRun, row: Row) -> ImportedRun:
    original = json.dumps(row.said, indent=1, default=str).encode()
    return replace(run, part=run.part or row.where, original=original)
