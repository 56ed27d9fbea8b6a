"""Whether sampling telemetry slows the load down: the same load with and without sampling, in ABBA order.

python bench/observe.py [--rounds 4] [--rate 100] [--seconds 8] [--interval 1s] [--json]

The target is the metronome, which logs when it sent every token, and the scraped endpoint is a separate simulator: so
the samplers do all their work, but do not affect the speed of the target.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from _common import parser, print_rows
from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.conduct.run import run
from inferometer.measure.inputs import Answers
from inferometer.measure.registry import request_values
from inferometer.plan.reading import plan_from
from inferometer.simulator.metronome_process import MODEL, compare, quantile_s, running_metronome

TITLES = {"send_p50": "send p50", "send_p99": "send p99", "read_p50": "read err p50", "read_p99": "read err p99"}
TOKENS, INTERVAL_S, FIRST_S = 50, 0.01, 0.02


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=4)
    options.add_argument("--rate", type=float, default=100.0)
    options.add_argument("--seconds", type=float, default=8.0)
    options.add_argument("--interval", default="1s")
    chosen = options.parse_args()
    found: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as store, simulator() as url:
        keep_curve(curve_of([]), Path(store))  # otherwise the first run would calibrate
        watched = {"metrics": [f"{url}/metrics"], "gpu": "on", "interval": chosen.interval}
        for sampling in (False, True, True, False) * chosen.rounds:
            observe: Any = watched if sampling else "off"
            found[sampling].append(measured(Path(store), observe, chosen.rate, chosen.seconds))
            print(f"{'with   ' if sampling else 'without'} {found[sampling][-1]}", file=sys.stderr)
    print_rows([_row("without", found[False]), _row("with", found[True])], chosen.json)


def measured(store: Path, observe: Any, rate: float, seconds: float) -> dict[str, Any]:
    """One run with a separate metronome; milliseconds."""
    with running_metronome(FIRST_S, INTERVAL_S) as metronome:
        made = run(
            plan_from(
                {
                    "target": {"url": metronome.url, "model": MODEL},
                    "workload": {"input_tokens": 20, "output_tokens": TOKENS},
                    "load": {"type": "constant", "rate": rate},
                    "stop": {"duration": seconds},
                    "observe": observe,
                }
            ),
            store=store,
        )
        truth = metronome.truth()
    records = made.records
    assert records is not None
    delays = sorted(request_values("send_delay", Answers.of(records)) * 1e3)
    errors = np.abs(compare(records, truth).read_error)
    host, observer = made.summary.host, made.summary.observer
    return {
        "send_p50": float(delays[len(delays) // 2]),
        "send_p99": float(delays[int(0.99 * len(delays))]),
        "read_p50": _ms(errors, 0.50),
        "read_p99": _ms(errors, 0.99),
        "steal": host.steal_share if host else None,
        "observer_cpu_s": observer.cpu_s if observer else None,
    }


def _ms(errors: Any, share: float) -> float:
    return (quantile_s(errors, share) or 0.0) * 1e3


def _row(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    head: dict[str, Any] = {"samplers": name, "runs": len(runs)}
    for key, title in (
        ("send_p50", "send delay p50"),
        ("send_p99", "p99"),
        ("read_p50", "read err p50"),
        ("read_p99", "p99 "),
    ):
        values = [each[key] for each in runs]
        head |= {title: median(values), f"{title}, all": f"{min(values):.3g}..{max(values):.3g}"}
    used = [each["observer_cpu_s"] for each in runs if each["observer_cpu_s"] is not None]
    return head | {"observer cpu s": median(used) if used else None}


@contextmanager
def simulator() -> Iterator[str]:
    """A simulator that only serves /metrics."""
    command = [sys.executable, "-m", "inferometer.simulator", "--until-stdin-closes", "--settings", "{}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.stdin.close()
            process.wait(10)


if __name__ == "__main__":
    main()
