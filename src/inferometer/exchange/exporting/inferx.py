"""The InferX framework's folder: metrics.csv with its ten columns, and TTFT and TPOT named beside them; and where GPUs
were sampled gpu_memory.csv; and throughput_latency.png, where charts can be drawn."""

import csv
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inferometer.errors import StoreError
from inferometer.measure.answers import Answers
from inferometer.measure.registry import request_values
from inferometer.measure.telemetry import GPU
from inferometer.record.columns import MISSING, Floats, Ints
from inferometer.record.files import replacing, translated_errors
from inferometer.record.run import Run
from inferometer.record.sample import Samples
from inferometer.vocabulary import NANOSECONDS, attribute_at

COLUMNS = (
    *("request_id", "enqueue_time", "send_time", "first_byte_time", "end_time", "prompt_tokens", "resp_tokens"),
    *("bytes_received", "status", "error", "ttft", "tpot"),
)

PICTURE = "inferometer.show.charts.registry:throughput_latency_png"
GPU_COLUMNS = ("ts", "mem_used_mb", "mem_total_mb", "gpu_util", "gpu_mem_util")
_GPU_NAMES = ("memory_used_bytes", "memory_total_bytes", "utilization_share", "memory_utilization_share")
_MB = 2.0**20  # as the framework counts them


def write_folder(run: Run, path: Path) -> None:
    """One line per request. Times are seconds since 1970 by the wall clock at the start of the run, whose differences
    are those of the monotonic clock; what is not known is empty, never 0."""
    records = run.records
    if records is None:
        raise StoreError(f"{run.id}: this run has no records")
    with translated_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    with replacing(path / "metrics.csv") as draft, draft.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        rows.writerows(_rows(Answers.of(records), datetime.fromisoformat(run.started_at).timestamp()))
    _write_gpus(run, path)
    _draw(run, path)


def _draw(run: Run, path: Path) -> None:
    """The framework's picture, where the extra 'charts' is installed. Charts are above this room: found by name."""
    if find_spec("vl_convert") is None:
        return
    picture: bytes | None = attribute_at(PICTURE)(run)
    if picture is not None:
        with replacing(path / "throughput_latency.png") as draft:
            draft.write_bytes(picture)


def _write_gpus(run: Run, path: Path) -> None:
    """The framework knows one GPU; of several, those behind the first have files of their own: gpu_memory_1.csv."""
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
    """One line per reading of the memory; the other values are those read with it."""
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


def _rows(answers: Answers, wall_s: float) -> Iterator[list[Any]]:
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
