"""The search for the highest load with a known truth: an M/D/1 queue in the metronome, over sockets.

The metronome serves requests one after the other with a constant service time; with Poisson arrivals Erlang's formula
(1909) gives the waiting times, and so the highest rate within a limit.

python bench/search.py [--service 6ms] [--step 45] [--searches 2] [--seed 0] [--json]
"""

import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from _common import parser, print_rows
from inferometer.conduct.search import search
from inferometer.judge.search import SearchBounds, SearchStep
from inferometer.observe.machine import cpu_times, shares
from inferometer.plan.reading import plan_from
from inferometer.simulator.metronome_process import running_metronome, true_rate
from inferometer.vocabulary import seconds

INTERVAL_S = 0.00001  # of the metronome's slots: no token waits for the next one
LIMITS = ((0.75, 1.0), (0.90, 2.0))  # share of the requests, and their maximum wait in service times


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "--service",
        type=seconds,
        default=0.006,
        help="of a request: long against the way through two processes, short enough for thousands of them in a step",
    )
    options.add_argument("--step", type=float, default=45.0, help="seconds at each load")
    options.add_argument("--searches", type=int, default=2, help="how many, with the limits in turn")
    options.add_argument("--seed", type=int, default=0, help="of the first one's arrivals")
    chosen = options.parse_args()
    seeds = range(chosen.seed, chosen.seed + chosen.searches)
    print_rows([row(*LIMITS[seed % len(LIMITS)], chosen.service, chosen.step, seed) for seed in seeds], chosen.json)


def row(share: float, waits: float, service_s: float, step_s: float, seed: int) -> dict[str, Any]:
    """One search: a `share` of the requests must wait at most a number of service times."""
    with running_metronome(0.0, INTERVAL_S, service_s) as metronome, tempfile.TemporaryDirectory() as folder:
        limit_s = alone_s(metronome.url, Path(folder)) + waits * service_s
        plan = plan_of(metronome.url) | {
            "load": {"type": "poisson", "rate": 100},
            "limits": [f"ttft p{share * 100:g} < {limit_s:.7f}s"],
            "seed": seed,
        }
        times = cpu_times(Path("/"))
        found = search(
            plan_from(plan),
            SearchBounds(start=100, least=1, most=2000),
            step_s=step_s,
            store=Path(folder),
            on_step=tell,
        )
        _, stolen = shares(times, cpu_times(Path("/")))
    truth = true_rate(waits * service_s, share, service_s)
    low, high = found.result.low or math.nan, found.result.high or math.nan
    best = math.sqrt(low * high)
    return {
        "limit": f"p{share * 100:g} < {limit_s * 1e3:.2f} ms",
        "true rate": truth,
        "found": f"{low:.5g}..{high:.5g}",
        "off by": f"{best / truth - 1:+.1%}",
        "steps": len(found.steps),
        "outcome": found.result.outcome,
        "stolen": stolen,
    }


def tell(step: SearchStep) -> None:
    """Progress: a search takes some ten minutes."""
    share = step.attained[0].share or math.nan
    print(f"{step.load:.4g}/s for {step.length_s:.0f} s: {share:.2%}, {step.status}", file=sys.stderr, flush=True)


def plan_of(url: str) -> dict[str, Any]:
    return {"target": url, "workload": {"input_tokens": 8, "output_tokens": 1}}


def alone_s(url: str, folder: Path) -> float:
    """The time to first token of a request without queueing: the service time, and the path through two processes."""
    from inferometer.conduct.run import run

    plan = plan_of(url) | {"load": {"type": "constant", "rate": 100}, "stop": {"duration": "5s"}}
    records = run(plan_from(plan), store=folder).records
    assert records is not None
    return float(np.median(records.read_at[records.read_offsets[:-1]] - records.sent_at)) / 1e9


if __name__ == "__main__":
    main()
