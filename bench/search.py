"""The search for the most load where the truth is known: an M/D/1 queue behind the metronome, over the wire.

A cap of one request in flight makes the metronome a single server that takes the same time for every request; with
Poisson arrivals the waiting times are Erlang's (1909), and so is the highest rate that keeps a limit.

python bench/search.py [--step 20] [--quick] [--json]
"""

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from _common import parser, print_rows
from inferometer.judge.search import Bounds
from inferometer.plan.reading import plan_from
from inferometer.search import search
from inferometer.simulator.metronome_process import running_metronome

FIRST_S, INTERVAL_S, TOKENS = 0.002, 0.001, 3  # 4 ms: thousands of requests in a step of half a minute


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--step", type=float, default=20.0, help="seconds at each load")
    options.add_argument("--quick", action="store_true", help="one of the two limits")
    chosen = options.parse_args()
    limits = ((0.75, 1.0), (0.90, 2.0))[: 1 if chosen.quick else 2]
    print_rows([row(share, waits, chosen.step) for share, waits in limits], chosen.json)


def row(share: float, waits: float, step_s: float) -> dict[str, Any]:
    """One search: `share` of the requests are to wait at most so many service times."""
    with running_metronome(FIRST_S, INTERVAL_S) as metronome, tempfile.TemporaryDirectory() as folder:
        service_s = served_in_s(metronome.url, Path(folder))
        limit_s = (1 + waits) * service_s
        plan = {
            "target": metronome.url,
            "workload": {"input_tokens": 8, "output_tokens": TOKENS},
            "load": {"type": "poisson", "rate": 50, "max_concurrency": 1},
            "limits": [f"done p{share * 100:g} < {limit_s:.6f}s"],
        }
        found = search(plan_from(plan), Bounds(start=50, least=1, most=1000), step_s=step_s, store=Path(folder))
    truth = true_rate(waits * service_s, share, service_s)
    low, high = found.found.low or math.nan, found.found.high or math.nan
    best = math.sqrt(low * high)
    return {
        "limit": f"p{share * 100:g} < {limit_s * 1e3:.1f} ms",
        "service ms": service_s * 1e3,
        "true rate": truth,
        "found": f"{low:.4g}..{high:.4g}",
        "off by": f"{best / truth - 1:+.1%}",
        "steps": len(found.steps),
        "outcome": found.found.outcome,
    }


def served_in_s(url: str, folder: Path) -> float:
    """From one request's turn to the next one's: the D of M/D/1, our own sending included. The median: a machine that
    stands still for a moment serves nobody, but that is no part of D."""
    from inferometer.run import run

    alone = {"target": url, "workload": {"input_tokens": 8, "output_tokens": TOKENS}, "load": {"concurrency": 1}}
    made = run(plan_from({**alone, "stop": {"duration": "5s"}}), store=folder)
    records = made.records()
    assert records is not None
    return float(np.median(np.diff(np.sort(records.sent_at)))) / 1e9


def waits_at_most(t: float, rate: float, service_s: float) -> float:
    load = rate * service_s
    if load >= 1:
        return 0.0
    terms = range(int(t / service_s) + 1)
    late = [t - k * service_s for k in terms]
    return (1 - load) * sum(
        (-rate * each) ** k / math.factorial(k) * math.exp(rate * each) for k, each in enumerate(late)
    )


def true_rate(t: float, share: float, service_s: float) -> float:
    low, high = 0.0, 1 / service_s
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if waits_at_most(t, middle, service_s) >= share else (low, middle)
    return low


if __name__ == "__main__":
    main()
