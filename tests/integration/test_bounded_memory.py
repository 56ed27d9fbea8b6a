"""A long run is finished, shown and exported in memory that does not grow with its reads."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from inferometer.plan.reading import plan_from
from inferometer.plan.text import to_mapping
from inferometer.record.log import LogWriter
from inferometer.record.record import Record
from inferometer.store.store import open_store

REQUESTS, READS = 11_000, 200  # 2.2 million reads, more than are held; in memory all of this took 600 MB
MOST_MB = 300  # some 120 MB of these are Python, numpy and pyarrow themselves

FINISH = """
import sys
from pathlib import Path
from inferometer.plan.reading import plan_from
from inferometer.conduct.run import finish, partial_run
from inferometer.store.folder import RunFolder, load_run
from inferometer.exchange.exporting import write
path, out = Path(sys.argv[1]), Path(sys.argv[2])
kept = load_run(path)
partial = partial_run(kept, path.parent.parent)
run = finish(plan_from(kept.plan, where="test"), RunFolder(path, kept.started_at), "complete")
assert run.summary.measures["itl"].p99 == partial.summary.measures["itl"].p99
write("vllm", [run], out / "vllm", detailed=True)
status = Path("/proc/self/status").read_text()  # not getrusage: that counts what the parent had before exec
peak_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
print(run.summary.measures["itl"].count, peak_kb // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is in KiB on Linux only")
def test_memory_does_not_grow_with_reads(tmp_path: Path) -> None:
    plan = plan_from({"target": {"url": "http://127.0.0.1:1"}, "load": {"rate": 200}}, where="test")
    folder = open_store(tmp_path / "store").new_run()
    folder.write_plan(to_mapping(plan))
    _write_log(folder.log_path(0))
    child = subprocess.run(
        [sys.executable, "-c", FINISH, str(folder.path), str(tmp_path)],
        env={**os.environ, "INFEROMETER_STORE": str(tmp_path / "store")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    count, peak_mb = map(int, child.stdout.split())
    assert count == REQUESTS * (READS - 1)
    assert peak_mb < MOST_MB
    assert (tmp_path / "vllm").stat().st_size > 10 * REQUESTS * READS


def _write_log(path: Path) -> None:
    random = np.random.default_rng(1)
    ones = np.ones(READS, "<i8").tobytes()
    with LogWriter(path) as log:
        for number in range(REQUESTS):
            due_at = 10**12 + number * 5_000_000
            at = due_at + 50_000_000 + np.cumsum(random.integers(10_000_000, 30_000_000, READS))
            slack = random.integers(0, 50_000, READS)
            log.append(
                Record(
                    session=number,
                    scheduled_at=due_at,
                    ready_at=due_at,
                    sent_at=due_at + 1000,
                    ended_at=int(at[-1]) + 1000,
                    read_at=at.astype("<i8").tobytes(),
                    read_tokens=ones,
                    read_slack=slack.astype("<i8").tobytes(),
                    output_tokens=READS,
                    input_tokens=100,
                    events=READS,
                    status=200,
                    tokens_by="usage",
                    finish_reason="length",
                )
            )
