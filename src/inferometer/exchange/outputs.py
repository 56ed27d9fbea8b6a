"""The files that a plan asks to be written when its run ends."""

import csv
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from inferometer.errors import StoreError
from inferometer.exchange.inferx import write_folder
from inferometer.plan.model import Output
from inferometer.record.columns import Records
from inferometer.record.files import replacing, told
from inferometer.record.parquet import write_parquet
from inferometer.record.record import Record
from inferometer.record.run import Run, document

UNFIT_FOR_A_TABLE = {"read_at", "read_tokens", "read_slack"}  # packed; Parquet has them as lists


def write_outputs(run: Run, outputs: list[Output]) -> list[Path]:
    """Write every output; those that cannot be written are named together, after the others were."""
    written, failures = [], []
    for output in outputs:
        path = Path(output.path).expanduser()
        try:
            with told(path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
            WRITERS[output.format](run, path)
            written.append(path)
        except StoreError as error:
            failures.append(error.message)
    if failures:
        raise StoreError("\n".join(failures), f"the run itself is kept: {run.folder}")
    return written


def _write_json(run: Run, path: Path) -> None:
    """The document that `--json` prints."""
    with replacing(path) as draft:
        draft.write_bytes(orjson.dumps(document(run), option=orjson.OPT_INDENT_2))


def _write_parquet(run: Run, path: Path) -> None:
    """The records, one row each, reads as lists."""
    kept = run.folder / "records.parquet" if run.folder else None
    if kept is not None and kept.exists():
        with replacing(path) as draft, told(path):
            shutil.copyfile(kept, draft)
    else:
        write_parquet(_records(run), path)


def _write_csv(run: Run, path: Path) -> None:
    """The records, one line each, without the instants of single reads."""
    records = _records(run)
    names = [name for name in Record.__struct_fields__ if name not in UNFIT_FOR_A_TABLE]
    with replacing(path) as draft, draft.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow([*names, "first_read_at", "last_read_at", "reads"])
        rows.writerows(_rows(records, names))


def _rows(records: Records, names: list[str]) -> Iterator[list[Any]]:
    for number in range(len(records)):
        record = records.record(number)
        reads = records.read_at[records.reads(number)]
        ends = [int(reads[0]), int(reads[-1])] if len(reads) else [None, None]
        yield [*(getattr(record, name) for name in names), *ends, len(reads)]


def _records(run: Run) -> Records:
    records = run.records()
    if records is None:
        raise StoreError(f"{run.id}: this run has no records")
    return records


WRITERS: dict[str, Callable[[Run, Path], None]] = {
    "json": _write_json,
    "csv": _write_csv,
    "parquet": _write_parquet,
    "inferx": write_folder,
}
