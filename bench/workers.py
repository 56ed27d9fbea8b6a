"""Cost and gain of more workers: the same load per worker from one worker and from several, with the metronome.

Throughput is not meaningful if clients and server share cores, so the client's CPU time per million events, its send
delay, and its error relative to the truth are compared.
"""

import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from _common import parser, print_rows
from inferometer.load.shard import ShardJob, ShardReport
from inferometer.plan.model import Plan
from inferometer.record.columns import Records, known
from inferometer.record.gather import read_logs
from inferometer.scale.processes import PIN_ENV, run_shards
from inferometer.scale.worker import observed_shard
from inferometer.simulator.metronome_process import MODEL, RunningMetronome, compare, quantile_s, running_metronome

FIRST_S = 0.05


@dataclass(frozen=True, slots=True)
class Load:
    """The load of each worker: a number of streams, one token per interval."""

    streams: int
    interval_s: float
    seconds: float

    @property
    def tokens(self) -> int:
        return max(10, round(self.seconds / 2 / self.interval_s))


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="numbers of workers to compare")
    made.add_argument("--streams", type=int, default=64, help="streams of each worker")
    made.add_argument("--interval", type=float, default=0.01, help="seconds between two tokens of a stream")
    made.add_argument("--seconds", type=float, default=4.0, help="length of a run")
    made.add_argument("--repeats", type=int, default=3, help="runs of each; medians are printed")
    made.add_argument("--metronomes", type=int, help="processes of the metronome; default: as the machine has room")
    made.add_argument("--pinned", choices=("no", "yes", "both"), default="both", help="workers on cores of their own")
    made.add_argument("--ramp", action="store_true", help="shorten the interval until reads are 1 ms late: the ceiling")
    options = made.parse_args()
    pins = {"no": [False], "yes": [True], "both": [False, True]}[options.pinned]
    load = Load(options.streams, options.interval, options.seconds)
    if options.ramp:
        cases = [(workers, pinned) for workers in options.workers for pinned in pins]
        print_rows([ceiling(load, *case, options.metronomes) for case in cases], options.json)
        return
    rows: dict[tuple[int, bool], list[dict[str, Any]]] = {}
    for _ in range(options.repeats):  # alternating, so that a busy period of the machine affects all alike
        for workers in options.workers:
            for pinned in pins:
                row = measured(load, workers, pinned, options.metronomes)
                rows.setdefault((workers, pinned), []).append(row)
    medians = [middle(same) for same in rows.values()]
    print_rows([row | {"x one": ratio(row, medians)} for row in medians], options.json)


def middle(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        name: statistics.median(row[name] for row in rows) if isinstance(value, float) else value
        for name, value in rows[0].items()
    }


def ratio(row: dict[str, Any], rows: list[dict[str, Any]]) -> float | None:
    """CPU per event relative to one worker that is not pinned."""
    one = next((other for other in rows if other["workers"] == 1), None)
    return round(row["cpu s/M"] / one["cpu s/M"], 3) if one else None


def ceiling(load: Load, workers: int, pinned: bool, metronomes: int | None) -> dict[str, Any]:
    """The maximum events per second with a p99 read error below 1 ms."""
    best: dict[str, Any] | None = None
    interval_s = load.interval_s
    while interval_s > 0.0002:
        row = measured(Load(load.streams, interval_s, load.seconds), workers, pinned, metronomes)
        print(row, file=sys.stderr)
        if row["read err p99 ms"] >= 1.0 or row["failed"]:
            break
        if best is not None and row["events/s"] < 1.05 * best["events/s"]:  # the metronome is at its limit
            return best | {"limit": "metronome"}
        best, interval_s = row, interval_s / 1.5
    return (best or row) | {"limit": "read error" if best else "none held"}


def measured(load: Load, workers: int, pinned: bool, metronomes: int | None) -> dict[str, Any]:
    with (
        running_metronome(FIRST_S, load.interval_s, processes=metronomes) as metronome,
        tempfile.TemporaryDirectory() as folder,
        pinning(pinned),
    ):
        reports, records = drive(load, workers, metronome, Path(folder))
        truth = metronome.truth()
    compared = compare(records, truth)
    events = len(truth.sent_at)
    delays = send_delays_s(records)
    return {
        "workers": workers,
        "pinned": pinned,
        "events/s": float(round(truth.events_per_s())),
        "cpu s/M": round(sum(report.cpu_s for report in reports) / events * 1e6, 2),
        "send delay p99 ms": round(float(np.quantile(delays, 0.99)) * 1e3, 3),
        "read err p99 ms": round((quantile_s(np.abs(compared.read_error), 0.99) or 0.0) * 1e3, 3),
        "server late p99 ms": round((quantile_s(truth.lateness(), 0.99) or 0.0) * 1e3, 3),
        "failed": int((~records.outcome.mask("ok")).sum()) + compared.unmatched,
    }


def send_delays_s(records: Records) -> Any:
    sent = known(records.sent_at)
    return np.maximum(records.sent_at[sent] - records.ready_at[sent] - np.maximum(records.connect_ns[sent], 0), 0) / 1e9


def drive(load: Load, workers: int, metronome: RunningMetronome, folder: Path) -> tuple[list[ShardReport], Records]:
    """As in any run: one worker in this process, several in separate processes."""
    plan = Plan.model_validate(
        {
            "target": {"url": metronome.url, "model": MODEL, "timeout": {"request": "120s"}},
            "workload": {"input_tokens": 16, "output_tokens": load.tokens, "nonce_tokens": 0},
            "load": {"type": "concurrency", "concurrency": load.streams * workers},
            "stop": {"requests": 2 * load.streams * workers},
            "workers": workers,
        }
    )
    jobs = [
        ShardJob(plan.model_dump(mode="json"), str(folder / f"log-{shard}.bin"), "", MODEL, shard, workers)
        for shard in range(workers)
    ]
    end = run_shards(observed_shard, jobs, lambda _progress: None)
    if end.lost:
        sys.exit(f"error: worker {end.lost[0].shard} was lost: {end.lost[0].why}")
    return end.reports, read_logs([Path(job.log) for job in jobs])[0]


@contextmanager
def pinning(pinned: bool) -> Iterator[None]:
    os.environ[PIN_ENV] = "1" if pinned else "0"
    try:
        yield
    finally:
        del os.environ[PIN_ENV]


if __name__ == "__main__":
    main()
