"""Our own forms: the document that `--json` prints, and the records as a table."""

import csv
import io
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from inferometer.exchange.exporting.facts import started
from inferometer.exchange.exporting.pieces import Asked, Piece, json_piece, records_of, text_piece
from inferometer.exchange.inferx import write_folder
from inferometer.record.columns import Records
from inferometer.record.files import told
from inferometer.record.harmless import cell
from inferometer.record.parquet import write_parquet
from inferometer.record.record import Record
from inferometer.record.run import Run, document

UNFIT_FOR_A_TABLE = {"read_at", "read_tokens", "read_slack"}  # packed; Parquet has them as lists


def export_json(asked: Asked) -> list[Piece]:
    return [json_piece(f"{run.id}.json", document(run)) for run in asked.runs]


def export_parquet(asked: Asked) -> list[Piece]:
    """The records, one row each, reads as lists: as they are kept."""
    return [Piece(f"{run.id}.parquet", _parquet(run)) for run in asked.runs]


def _parquet(run: Run) -> bytes:
    kept = run.folder / "records.parquet" if run.folder else None
    if kept is not None and kept.exists():
        with told(kept):
            return kept.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.parquet"
        write_parquet(records_of(run), path)
        return path.read_bytes()


def export_csv(asked: Asked) -> list[Piece]:
    """The records, one line each, without the instants of single reads."""
    return [text_piece(f"{run.id}.csv", _csv(records_of(run))) for run in asked.runs]


def _csv(records: Records) -> str:
    names = [name for name in Record.__struct_fields__ if name not in UNFIT_FOR_A_TABLE]
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow([*names, "first_read_at", "last_read_at", "reads"])
    rows.writerows(_rows(records, names))
    return text.getvalue()


def _rows(records: Records, names: list[str]) -> Iterator[list[Any]]:
    for number in range(len(records)):
        record = records.record(number)
        reads = records.read_at[records.reads(number)]
        ends = [int(reads[0]), int(reads[-1])] if len(reads) else [None, None]
        yield [*(cell(getattr(record, name)) for name in names), *ends, len(reads)]


def export_inferx(asked: Asked) -> list[Piece]:
    """InferX's folder; of several runs one folder each."""
    several = len(asked.runs) > 1
    return [
        Piece(f"{run.id}/{name}" if several else name, content) for run in asked.runs for name, content in _inferx(run)
    ]


def _inferx(run: Run) -> list[tuple[str, bytes]]:
    """A run that does not say when it began has instants since 1970."""
    with tempfile.TemporaryDirectory() as folder:
        write_folder(replace(run, started_at=started(run).isoformat()), Path(folder))
        return [(path.name, path.read_bytes()) for path in sorted(Path(folder).iterdir())]
