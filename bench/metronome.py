"""The maximum rate of the metronome before it is late: it must not limit measurements.

The reader is the C floor (`floor.c`), which only receives, in as many processes as there are spare cores.

python bench/metronome.py [--streams 1024] [--rates 150000 200000 250000] [--readers 2] [--processes 2] [--json]
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from _common import compiled_floor, parser, print_rows
from inferometer.observe.machine import cpu_times, shares
from inferometer.simulator.metronome_process import RunningMetronome, Truth, quantile_s, running_metronome

FIRST_S = 0.2  # all requests have arrived before the first token is due
LASTS_S = 4.0
KEPT = (0.25, 0.95)  # part of the time from the first to the last send in which all streams are active


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--streams", type=int, default=1024)
    options.add_argument("--rates", type=int, nargs="+", default=[150_000, 200_000, 250_000], help="events/s asked for")
    options.add_argument("--readers", type=int, default=min(2, max((os.cpu_count() or 1) - 1, 1)))
    options.add_argument("--processes", type=int, help="that share the port; else as calibration has them")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        floor = compiled_floor(Path(folder))
        if floor is None:
            raise SystemExit("error: no C compiler\nhint: apt install gcc")
        print_rows(
            [row(floor, chosen.streams, rate, chosen.readers, chosen.processes) for rate in chosen.rates], chosen.json
        )


def row(floor: Path, streams: int, rate: int, readers: int, processes: int | None) -> dict[str, Any]:
    interval_s = streams / rate
    with running_metronome(FIRST_S, interval_s, processes=processes) as metronome:
        read(floor, metronome, readers, streams, 20)  # warms up its events
        metronome.forget()
        before, times = sum(map(cpu_s, metronome.pids)), cpu_times(Path("/"))
        read(floor, metronome, readers, streams, round(LASTS_S / interval_s))
        used_s, (_, stolen) = sum(map(cpu_s, metronome.pids)) - before, shares(times, cpu_times(Path("/")))
        truth = metronome.truth()
    return {
        "streams": streams,
        "processes": len(metronome.pids),
        "asked/s": rate,
        **kept_pace(truth),
        "cpu s/M": used_s / len(truth.sent_at) * 1e6,
        "stolen": stolen,
    }


def kept_pace(truth: Truth) -> dict[str, Any]:
    """Sent events and their lateness in ms while all streams are active."""
    at, late = truth.sent_at, truth.lateness()
    first, last = (at.min() + share * (at.max() - at.min()) for share in KEPT)
    mid = (at >= first) & (at < last)
    sent = float(mid.sum() / (last - first) * 1e9)
    return {
        "sent/s": sent,
        "due": f"{sent / due_per_s(truth, first, last):.1%}",
        "late p50": 1e3 * (quantile_s(late[mid], 0.5) or 0.0),
        "late p99": 1e3 * (quantile_s(late[mid], 0.99) or 0.0),
    }


def due_per_s(truth: Truth, first: float, last: float) -> float:
    """Events per second that were due in that time."""
    due = truth.sent_at - truth.lateness()
    return float(np.sum((due >= first) & (due < last)) / (last - first) * 1e9)


def read(floor: Path, metronome: RunningMetronome, readers: int, streams: int, tokens: int) -> None:
    """One answer on every stream, read to its end."""
    words = [str(floor), str(metronome.port), str(streams // readers), str(streams // readers), str(tokens)]
    children = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for _ in range(readers)]
    failed = [child.args for child in children if child.wait()]
    if failed:
        raise SystemExit(f"error: {failed} failed")


def cpu_s(pid: int) -> float:
    """The CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
