"""The search for the most load where the truth is known: an M/D/1 queue behind the metronome, over the wire.

The metronome takes requests in turn and the same time for each; with Poisson arrivals the waiting times are Erlang's
(1909), and so is the highest rate that keeps a limit.

python bench/search.py [--step 40] [--searches 2] [--seed 0] [--json]
"""

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from _common import parser, print_rows
from inferometer.judge.search import Bounds
from inferometer.observe.doctor.machine import cpu_times, shares
from inferometer.plan.reading import plan_from
from inferometer.search import search
from inferometer.simulator.erlang import true_rate
from inferometer.simulator.metronome_process import running_metronome

SERVICE_S = 0.004  # long against the way through two processes, short enough for thousands of requests in a step
INTERVAL_S = 0.00001  # of the metronome's slots: no token waits for the next one
LIMITS = ((0.75, 1.0), (0.90, 2.0))  # share of the requests, and how many services they may wait


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--step", type=float, default=40.0, help="seconds at each load")
    options.add_argument("--searches", type=int, default=2, help="how many, with the limits in turn")
    options.add_argument("--seed", type=int, default=0, help="of the first one's arrivals")
    chosen = options.parse_args()
    limits = [LIMITS[at % len(LIMITS)] for at in range(chosen.searches)]
    rows = [row(share, waits, chosen.step, seed) for seed, (share, waits) in enumerate(limits, chosen.seed)]
    print_rows(rows, chosen.json)


def row(share: float, waits: float, step_s: float, seed: int) -> dict[str, Any]:
    """One search: `share` of the requests are to wait at most so many service times."""
    with running_metronome(0.0, INTERVAL_S, SERVICE_S) as metronome, tempfile.TemporaryDirectory() as folder:
        limit_s = alone_s(metronome.url, Path(folder)) + waits * SERVICE_S
        plan = plan_of(metronome.url) | {
            "load": {"type": "poisson", "rate": 100},
            "limits": [f"ttft p{share * 100:g} < {limit_s:.7f}s"],
            "seed": seed,
        }
        times = cpu_times(Path("/"))
        found = search(plan_from(plan), Bounds(start=100, least=1, most=2000), step_s=step_s, store=Path(folder))
        _, stolen = shares(times, cpu_times(Path("/")))
    truth = true_rate(waits * SERVICE_S, share, SERVICE_S)
    low, high = found.found.low or math.nan, found.found.high or math.nan
    best = math.sqrt(low * high)
    return {
        "limit": f"p{share * 100:g} < {limit_s * 1e3:.2f} ms",
        "true rate": truth,
        "found": f"{low:.4g}..{high:.4g}",
        "off by": f"{best / truth - 1:+.1%}",
        "steps": len(found.steps),
        "outcome": found.found.outcome,
        "stolen": stolen,
    }


def plan_of(url: str) -> dict[str, Any]:
    return {"target": url, "workload": {"input_tokens": 8, "output_tokens": 1}}


def alone_s(url: str, folder: Path) -> float:
    """The time to first token of a request that does not wait: the service, and the way through two processes."""
    from inferometer.run import run

    plan = plan_of(url) | {"load": {"type": "constant", "rate": 100}, "stop": {"duration": "5s"}}
    records = run(plan_from(plan), store=folder).records()
    assert records is not None
    return float(np.median(records.read_at[records.read_offsets[:-1]] - records.sent_at)) / 1e9


if __name__ == "__main__":
    main()
