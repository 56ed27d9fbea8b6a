"""The InferX framework's folder: metrics.csv with its ten columns, and TTFT and TPOT named beside them."""

import csv
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from inferometer.errors import StoreError
from inferometer.measure.answers import Answers
from inferometer.measure.registry import each_of
from inferometer.record.columns import MISSING
from inferometer.record.files import replacing, told
from inferometer.record.run import Run
from inferometer.vocabulary import NANOSECONDS

COLUMNS = (
    *("request_id", "enqueue_time", "send_time", "first_byte_time", "end_time", "prompt_tokens", "resp_tokens"),
    *("bytes_received", "status", "error", "ttft", "tpot"),
)


def write_folder(run: Run, path: Path) -> None:
    """One line per request. Times are seconds since 1970 by the wall clock at the start of the run, whose differences
    are those of the monotonic clock; what is not known is empty, never 0."""
    records = run.records()
    if records is None:
        raise StoreError(f"{run.id}: this run has no records")
    with told(path):
        path.mkdir(parents=True, exist_ok=True)
    with replacing(path / "metrics.csv") as draft, draft.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        rows.writerows(_rows(Answers.of(records), datetime.fromisoformat(run.started_at).timestamp()))


def _rows(answers: Answers, wall_s: float) -> Iterator[list[Any]]:
    records = answers.records
    start_at = int(records.scheduled_at[0]) if len(records) else 0
    ttft, tpot = each_of("ttft", answers), each_of("tpot", answers)

    def wall(at: Any) -> str | None:
        return None if at == MISSING else f"{wall_s + (int(at) - start_at) / NANOSECONDS:.6f}"

    for number in range(len(records)):
        yield [
            number,
            wall(records.scheduled_at[number]),
            wall(records.sent_at[number]),
            wall(answers.first_at[number]),
            wall(records.ended_at[number]),
            _known(records.input_tokens[number], records.asked_input[number]),
            _known(answers.output_tokens[number]),
            int(records.bytes_received[number]),
            _known(records.status[number]),
            records.record(number).error,
            _seconds(ttft[number]),
            _seconds(tpot[number]),
        ]


def _known(*values: Any) -> int | None:
    return next((int(value) for value in values if value != MISSING), None)


def _seconds(value: float) -> str | None:
    return None if value != value else f"{value:.6f}"
