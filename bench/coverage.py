"""Coverage of the 95% intervals of short runs, by load of the server: runs of a queue with 1 server or 16, with Poisson
arrivals at 20 requests/s and an empty start, compared with all runs of a kind together.

python bench/coverage.py [--runs 400] [--json]    (half a minute)
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from _common import parser, print_rows
from inferometer.measure.quantiles import Floats, Interval, estimate, mean_interval, sample

RATE = 20.0
DURATIONS_S = (15, 60)
LOADS = (0.3, 0.5, 0.8, 0.95)
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=400)
    chosen = options.parse_args()
    print_rows(list(rows(chosen.runs)), chosen.json)


def rows(count: int) -> Iterator[dict[str, Any]]:
    for servers in (1, 16):
        for load in LOADS:
            for duration_s in DURATIONS_S:
                runs = ttfts(np.random.default_rng(7), count, round(RATE * duration_s), servers, load)
                about = {"servers": servers, "load": f"{load:.0%}", "seconds": duration_s}
                yield about | _of_mean(runs) | {k: v for name, q in QUANTILES.items() for k, v in _of(runs, name, q)}


def ttfts(rng: np.random.Generator, runs: int, requests: int, servers: int, load: float) -> Floats:
    """TTFT: the wait for one of the servers, and a prefill of 20 ms; service times are lognormal."""
    due = np.cumsum(rng.exponential(1 / RATE, (runs, requests)), axis=1)
    service_s = load * servers / RATE * rng.lognormal(-0.125, 0.5, (runs, requests))
    busy_until, waits, every = np.zeros((runs, servers)), np.empty((runs, requests)), np.arange(runs)
    for at in range(requests):
        first = busy_until.argmin(axis=1)
        begun = np.maximum(busy_until[every, first], due[:, at])
        waits[:, at] = begun - due[:, at]
        busy_until[every, first] = begun + service_s[:, at]
    return waits + 0.02 * rng.lognormal(0, 0.3, (runs, requests))


def _of_mean(runs: Floats) -> dict[str, str]:
    true, intervals = float(runs.mean()), [mean_interval(sample(run)) for run in runs]
    widths = [(high - low) / 2 / true for low, high in intervals if low is not None and high is not None]
    return {"mean": _held(intervals, true), "half-width": f"{np.median(widths):.0%}"}


def _of(runs: Floats, name: str, q: float) -> Iterator[tuple[str, str]]:
    estimates = [estimate(sample(run), q) for run in runs]
    yield name, _held([one.interval for one in estimates], float(np.quantile(runs, q)))
    yield f"weak {name}", f"{np.mean([one.needed is not None for one in estimates]):.0%}"


def _held(intervals: list[Interval], true: float) -> str:
    """Whether an interval contains the value; an open end has no bound."""
    ends = [(-math.inf if low is None else low, math.inf if high is None else high) for low, high in intervals]
    return f"{np.mean([low <= true <= high for low, high in ends]):.0%}"


if __name__ == "__main__":
    main()
