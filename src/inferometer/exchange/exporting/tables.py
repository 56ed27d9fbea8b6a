"""Our own forms: the document that `--json` prints, and the records as a table."""

import csv
import io
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.exchange.exporting.facts import started
from inferometer.exchange.exporting.inferx import write_folder
from inferometer.exchange.exporting.registry import Chunks, ExportRequest, Piece, json_piece, records_of
from inferometer.record.columns import MISSING, Ints, Records
from inferometer.record.files import translated_errors
from inferometer.record.parquet import write_parquet
from inferometer.record.record import Record
from inferometer.record.run import Run, document
from inferometer.record.sanitize import cell

UNFIT_FOR_A_TABLE = {"read_at", "read_tokens", "read_slack"}  # packed; Parquet has them as lists
ROWS = 1000  # lines of a table that are made at a time
COPIED = 1 << 20  # bytes of a file that are copied at a time


def export_json(request: ExportRequest) -> list[Piece]:
    return [json_piece(f"{run.id}.json", document(run)) for run in request.runs]


def export_parquet(request: ExportRequest) -> list[Piece]:
    """The records, one row each, reads as lists: as they are kept."""
    return [Piece(f"{run.id}.parquet", _parquet(run)) for run in request.runs]


def _parquet(run: Run) -> bytes | Chunks:
    kept = run.folder / "records.parquet" if run.folder else None
    if kept is not None and kept.exists():
        return partial(_copied, kept)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.parquet"
        write_parquet(records_of(run), path)
        return path.read_bytes()


def _copied(path: Path) -> Iterator[bytes]:
    with translated_errors(path), path.open("rb") as file:
        while chunk := file.read(COPIED):
            yield chunk


def export_csv(request: ExportRequest) -> list[Piece]:
    """The records, one line each, without the instants of single reads."""
    return [Piece(f"{run.id}.csv", partial(_csv, records_of(run))) for run in request.runs]


def _csv(records: Records) -> Iterator[bytes]:
    names = [name for name in Record.__struct_fields__ if name not in UNFIT_FOR_A_TABLE]
    rows = chain([[*names, "first_read_at", "last_read_at", "reads"]], _rows(records, names))
    while some := [*islice(rows, ROWS)]:
        text = io.StringIO()
        csv.writer(text).writerows(some)
        yield text.getvalue().encode()


def _rows(records: Records, names: list[str]) -> Iterator[list[Any]]:
    first_at, last_at = _ends(records)
    counts = records.read_counts().tolist()
    for number, count in enumerate(counts):
        record = records.entries(number)
        ends = [int(first_at[number]), int(last_at[number])] if count else [None, None]
        yield [*(cell(record[name]) for name in names), *ends, count]


def _ends(records: Records) -> tuple[Ints, Ints]:
    """When the first and the last read of each record were."""
    first_at, last_at = np.full(len(records), MISSING), np.full(len(records), MISSING)
    for reads in records.read_batches(None, ("read_at",)):
        has = reads.counts() > 0
        first_at[reads.owner[has]] = reads.at[reads.offsets[:-1][has]]
        last_at[reads.owner[has]] = reads.at[reads.offsets[1:][has] - 1]
    return first_at, last_at


def export_inferx(request: ExportRequest) -> list[Piece]:
    """InferX's folder; of several runs one folder each."""
    several = len(request.runs) > 1
    return [
        Piece(f"{run.id}/{name}" if several else name, content)
        for run in request.runs
        for name, content in _inferx(run)
    ]


def _inferx(run: Run) -> list[tuple[str, bytes]]:
    """A run that does not say when it began has instants since 1970."""
    with tempfile.TemporaryDirectory() as folder:
        write_folder(replace(run, started_at=started(run).isoformat()), Path(folder))
        return [(path.name, path.read_bytes()) for path in sorted(Path(folder).iterdir())]
