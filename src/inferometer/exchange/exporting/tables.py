"""Our own formats: the document that `--json` prints, and the records as a table."""

import csv
import io
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.errors import StoreError
from inferometer.exchange.exporting import (
    DocumentPiece,
    ExportChunks,
    ExportRequest,
    json_piece,
    records_of,
    started,
)
from inferometer.measure.inputs import Answers
from inferometer.measure.registry import request_values
from inferometer.measure.telemetry import GPU
from inferometer.record.columns import MISSING, Floats, Ints, Records
from inferometer.record.files import replacing, translated_errors
from inferometer.record.parquet import write_parquet
from inferometer.record.record import Record, Samples
from inferometer.record.run import Run, document
from inferometer.record.sanitize import cell
from inferometer.vocabulary import NANOSECONDS, attribute_at

COLUMNS = (
    *("request_id", "enqueue_time", "send_time", "first_byte_time", "end_time", "prompt_tokens", "resp_tokens"),
    *("bytes_received", "status", "error", "ttft", "tpot"),
)

PICTURE = "inferometer.show.charts.registry:throughput_latency_png"
GPU_COLUMNS = ("ts", "mem_used_mb", "mem_total_mb", "gpu_util", "gpu_mem_util")
_GPU_NAMES = ("memory_used_bytes", "memory_total_bytes", "utilization_share", "memory_utilization_share")
_MB = 2.0**20  # as in the InferX framework


def write_folder(run: Run, path: Path) -> None:
    """One line per request. Times are seconds since 1970: the wall clock at the start of the run plus monotonic
    differences. Unknown values are empty, never 0."""
    records = run.records
    if records is None:
        raise StoreError(f"{run.id}: this run has no records")
    with translated_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    with replacing(path / "metrics.csv") as draft, draft.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        rows.writerows(_metric_rows(Answers.of(records), datetime.fromisoformat(run.started_at).timestamp()))
    _write_gpus(run, path)
    _draw(run, path)


def _draw(run: Run, path: Path) -> None:
    """The framework's picture, if the extra 'charts' is installed. The chart package is imported by name, because
    this package may not import it."""
    if find_spec("vl_convert") is None:
        return
    picture: bytes | None = attribute_at(PICTURE)(run)
    if picture is not None:
        with replacing(path / "throughput_latency.png") as draft:
            draft.write_bytes(picture)


def _write_gpus(run: Run, path: Path) -> None:
    """The framework supports one GPU; further GPUs get separate files: gpu_memory_1.csv."""
    samples, records = run.samples, run.records
    if samples is None or records is None:
        return
    wall_s = datetime.fromisoformat(run.started_at).timestamp()
    start_at = int(records.scheduled_at.min()) if len(records) else 0
    sources = sorted(source for source in samples.source.counts() if source is not None and source.startswith(GPU))
    for number, source in enumerate(sources):
        name = f"gpu_memory_{source.removeprefix(GPU)}.csv" if number else "gpu_memory.csv"
        with replacing(path / name) as draft, draft.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(GPU_COLUMNS)
            rows.writerows(_gpu_rows(samples, source, wall_s - start_at / NANOSECONDS))


def _gpu_rows(samples: Samples, source: str, wall_minus_clock_s: float) -> Iterator[list[Any]]:
    """One line per memory reading, with the other values of the same reading."""
    at, _ = samples.series("memory_used_bytes", source)
    columns = [samples.series(name, source) for name in _GPU_NAMES]
    for moment in at.tolist():
        used, total, use, memory_use = (_nearest(*column, moment) for column in columns)
        ts = f"{wall_minus_clock_s + moment / NANOSECONDS:.6f}"
        sizes = [None if size is None else f"{size / _MB:.1f}" for size in (used, total)]
        yield [ts, *sizes, *(None if share is None else round(100 * share) for share in (use, memory_use))]


def _nearest(at: Ints, values: Floats, moment: int) -> float | None:
    """The value read closest to a moment, at most half a second away."""
    if not len(at):
        return None
    place = int(abs(at - moment).argmin())
    return float(values[place]) if abs(int(at[place]) - moment) <= NANOSECONDS // 2 else None


def _metric_rows(answers: Answers, wall_s: float) -> Iterator[list[Any]]:
    records = answers.records
    start_at = int(records.scheduled_at[0]) if len(records) else 0
    ttft, tpot = request_values("ttft", answers), request_values("tpot", answers)

    def wall(at: Any) -> str | None:
        return None if at == MISSING else f"{wall_s + (int(at) - start_at) / NANOSECONDS:.6f}"

    for number in range(len(records)):
        yield [
            number,
            wall(records.scheduled_at[number]),
            wall(records.sent_at[number]),
            wall(answers.first_at[number]),
            wall(records.ended_at[number]),
            _known(records.input_tokens[number], records.requested_input[number]),
            _known(answers.output_tokens[number]),
            int(records.bytes_received[number]),
            _known(records.status[number]),
            records.error[number],
            _seconds(ttft[number]),
            _seconds(tpot[number]),
        ]


def _known(*values: Any) -> int | None:
    return next((int(value) for value in values if value != MISSING), None)


def _seconds(value: float) -> str | None:
    return None if value != value else f"{value:.6f}"


UNFIT_FOR_A_TABLE = {"read_at", "read_tokens", "read_slack"}  # packed; Parquet has them as lists
ROWS = 1000  # lines of a table per batch
COPIED = 1 << 20  # bytes of a file per copy


def export_json(request: ExportRequest) -> list[DocumentPiece]:
    return [json_piece(f"{run.id}.json", document(run)) for run in request.runs]


def export_parquet(request: ExportRequest) -> list[DocumentPiece]:
    """The records as stored: one row each, reads as lists."""
    return [DocumentPiece(f"{run.id}.parquet", _parquet(run)) for run in request.runs]


def _parquet(run: Run) -> bytes | ExportChunks:
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


def export_csv(request: ExportRequest) -> list[DocumentPiece]:
    """The records, one line each, without the timestamps of single reads."""
    return [DocumentPiece(f"{run.id}.csv", partial(_csv, records_of(run))) for run in request.runs]


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
    """The times of the first and the last read of each record."""
    first_at, last_at = np.full(len(records), MISSING), np.full(len(records), MISSING)
    for reads in records.read_batches(None, ("read_at",)):
        has = reads.counts() > 0
        first_at[reads.owner[has]] = reads.at[reads.offsets[:-1][has]]
        last_at[reads.owner[has]] = reads.at[reads.offsets[1:][has] - 1]
    return first_at, last_at


def export_inferx(request: ExportRequest) -> list[DocumentPiece]:
    """InferX's folder; one folder per run if there are several."""
    several = len(request.runs) > 1
    return [
        DocumentPiece(f"{run.id}/{name}" if several else name, content)
        for run in request.runs
        for name, content in _inferx(run)
    ]


def _inferx(run: Run) -> list[tuple[str, bytes]]:
    """The folder of one run; without a start time its times count from 1970."""
    with tempfile.TemporaryDirectory() as folder:
        write_folder(replace(run, started_at=started(run).isoformat()), Path(folder))
        return [(path.name, path.read_bytes()) for path in sorted(Path(folder).iterdir())]
