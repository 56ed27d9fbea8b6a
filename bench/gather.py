"""The cost of merging the logs of many workers: memory, CPU time and speed, of gathering alone and with the summary. A
few logs are written and linked under many names, which is equivalent for a reader and does not fill the disk."""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from _common import parser, print_rows
from inferometer.load.facts import facts_of
from inferometer.measure.summary import summarize
from inferometer.measure.verdict import verdict
from inferometer.plan.reading import plan_from
from inferometer.record.gather import logs_to_parquet
from inferometer.record.log import LogWriter, Note
from inferometer.record.parquet import read_parquet
from inferometer.record.record import Record

DIFFERENT = 8  # logs that are written
TOKENS = 200  # of an answer
START_AT = 1_000_000_000
MILLION = 1_000_000


def main() -> None:
    options = arguments()
    if options.child:
        print(json.dumps(measured(Path(options.child), options.summary)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        tokens = write_logs(Path(folder), options.logs, options.megabytes * MILLION)
        command = [sys.executable, __file__, "--child", folder, *(["--summary"] if options.summary else [])]
        row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        size = sum(log.stat().st_size for log in Path(folder).glob("log-*.bin"))
    print_rows(
        [{"logs": options.logs, "GB": round(size / 1e9, 2), "M tokens": round(tokens / 1e6)} | row], options.json
    )


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--logs", type=int, default=100)
    made.add_argument("--megabytes", type=int, default=10, help="of each log")
    made.add_argument("--summary", action="store_true", help="with the summary and the verdict")
    made.add_argument("--folder", help="where the logs are written, and the Parquet file that is made of them")
    made.add_argument("--child", help=argparse.SUPPRESS)
    return made.parse_args()


def write_logs(folder: Path, logs: int, size: int) -> int:
    """Logs of this many bytes; returns how many tokens they hold in all."""
    written = range(min(DIFFERENT, logs))
    tokens = [write_log(folder / f"log-{shard}.bin", shard, size) for shard in written]
    for shard in range(DIFFERENT, logs):
        os.link(folder / f"log-{shard % DIFFERENT}.bin", folder / f"log-{shard}.bin")
    return sum(tokens[shard % DIFFERENT] for shard in range(logs))


def write_log(path: Path, shard: int, size: int) -> int:
    """Answers of `TOKENS` tokens about 10 ms apart, one after the other."""
    draw = np.random.default_rng(shard)
    at, number, written = START_AT, 0, 0
    ones = np.ones(TOKENS, "<i8").tobytes()
    with LogWriter(path, shard) as log:
        log.add(Note("start", START_AT, {"shard": shard, "late_s": 0.0}))
        while written < size:
            at += round(1e9 * draw.exponential(0.05))
            reads = at + 50_000_000 + np.cumsum(draw.normal(1e7, 1e6, TOKENS)).astype("<i8")
            log.append(
                Record(
                    session=number,
                    shard=shard,
                    scheduled_at=at,
                    ready_at=at,
                    sent_at=at + 50_000,
                    ended_at=int(reads[-1]),
                    status=200,
                    outcome="ok",
                    finish_reason="length",
                    request_id=f"cmpl-{shard:04x}{number:012x}",
                    read_at=reads.tobytes(),
                    read_tokens=ones,
                    read_slack=bytes(8 * TOKENS),
                    tokens_by="running usage",
                    output_tokens=TOKENS,
                    requested_output=TOKENS,
                    events=TOKENS,
                )
            )
            number += 1
            if number % 64 == 0:
                log.flush()
                written = path.stat().st_size
        log.add(Note("ended", at, {"stamps": "kernel", "shard": shard}))
    return number * TOKENS


def measured(folder: Path, with_summary: bool) -> dict[str, Any]:
    """Measured in a separate process, so that its peak memory is that of the work."""
    began, before = time.perf_counter(), cpu_s()
    logs = sorted(folder.glob("log-*.bin"))
    gathered = logs_to_parquet(logs, folder / "records.parquet")
    row: dict[str, Any] = {"gather MB": peak_mb(), "gather cpu s": round(cpu_s() - before, 1)}
    if with_summary:
        records = read_parquet(folder / "records.parquet")
        row |= {"columns MB": peak_mb()}
        plan = plan_from({"load": {"rate": 20 * len(logs)}, "stop": {"duration": "1h"}, "workers": len(logs)})
        facts = facts_of(plan, records, gathered.notes)
        summary = summarize(records, plan, facts)
        verdict(summary, facts, plan)
        row |= {"records": len(records), "summary MB": peak_mb(), "all cpu s": round(cpu_s() - before, 1)}
    return row | {"wall s": round(time.perf_counter() - began, 1)}


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000


if __name__ == "__main__":
    main()
