"""Coverage of the intervals of predictions: the share of measured values inside, by the factor for errors outside of
the fitted range. For real runs, and for simulated servers that do not launch ahead: one with known limits, and one with
a small token budget that the fit does not know.

python bench/intervals.py RUNS [--only a b c]    (a folder of runs and server.log; each run left out, or fit on these)
python bench/intervals.py --simulated            (two minutes)
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from _common import print_rows
from inferometer.conduct import predict
from inferometer.conduct.fit import fit
from inferometer.plan.model import Plan, Server
from inferometer.record.run import Run
from inferometer.simulator.fitting.server_model import ServerModel, limits_in_log
from inferometer.simulator.virtual import simulated_run
from inferometer.store.folder import load_run

TIMES = (2.0, math.sqrt(2), 1.0)
IN_TURN = Server(type="simulator", args={"step_time": {"jitter": 0.05}})  # no launching ahead, each prompt token counts
BUDGET = Server(
    type="simulator",
    args={
        "step_time": {"jitter": 0.05, "mixed_sequence": 100e-6},
        "max_batched_tokens": 768,
        "max_sequences": 256,
    },
)
SERVERS = {
    "in turn": (IN_TURN, 46.0),
    "unknown budget": (BUDGET, 31.0),
}  # and their capacity in req/s of 512 + 128 tokens
LOGNORMAL = {
    "input_tokens": {"type": "lognormal", "mean": 500, "std": 500, "min": 16, "max": 6000},
    "output_tokens": {"type": "lognormal", "mean": 130, "std": 110, "min": 4, "max": 1000},
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("runs", type=Path, nargs="?")
    options.add_argument("--only", nargs="+", help="fit on these runs and predict the others")
    options.add_argument("--simulated", action="store_true")
    chosen = options.parse_args()
    if chosen.simulated:
        for server, capacity in SERVERS.values():
            fitted, judged = simulated(server, capacity)
            print_rows(list(rows(fit(fitted, "other", {}), judged)), as_json=False)
        return
    if chosen.runs is None:
        options.error("name a folder of runs, or --simulated")
    runs = {path.name: load_run(path) for path in sorted(chosen.runs.iterdir()) if path.is_dir()}
    limits = limits_in_log((chosen.runs / "server.log").read_text("utf-8", "replace"))
    splits = [chosen.only] if chosen.only else [[name for name in runs if name != left] for left in runs]
    for names in splits:
        model = fit([runs[name] for name in names], "model", limits)
        print_rows(list(rows(model, {name: run for name, run in runs.items() if name not in names})), as_json=False)


def rows(model: ServerModel, judged: dict[str, Run]) -> Iterator[dict[str, Any]]:
    for times in TIMES:
        predict.OUTSIDE_FACTOR = times
        for name, run in judged.items():
            (row,), _ = predict.validate(model, [run])
            widths = [math.log(high / low) / 2 for low, high in row.intervals.values()]
            yield {
                "errors count": f"{times:.2f} times",
                "run": name,
                "in range": "no" if row.outside else "yes",
                "inside": f"{sum(row.inside.values())} of {len(row.inside)}",
                "half-width": f"{np.median(widths):.1%}" if widths else "-",
                "TTFT": f"{row.errors['ttft']:+.1%}",
                "E2E": f"{row.errors['e2e']:+.1%}",
            }


def simulated(server: Server, capacity: float) -> tuple[list[Run], dict[str, Run]]:
    """Runs of a server: plain ones for the fit, and others."""

    def run(seed: int, workload: dict[str, Any], rate: float | None = None, **load: Any) -> Run:
        """Twenty seconds at a share of the capacity, or in closed loop."""
        load = {"type": "poisson", "rate": rate * capacity, **load} if rate else {"type": "concurrency", **load}
        one = Plan.model_validate({"workload": workload, "load": load, "stop": {"duration": "20s"}, "seed": seed})
        return simulated_run(one.model_copy(update={"server": server}))

    middle = {"input_tokens": 512, "output_tokens": 128}
    plain = [
        run(1, middle, rate=0.15),
        run(2, middle, rate=0.45),
        run(3, middle, rate=0.7),
        run(4, {"input_tokens": 1000, "output_tokens": 200}, concurrency=8),
        run(5, {"input_tokens": 160, "output_tokens": 384}, rate=0.2),
    ]
    prefixes = {"input_tokens": 1512, "output_tokens": 128, "prefix": {"tokens": 1000, "groups": 4}}
    return plain, {
        "bursts": run(6, middle, rate=0.45, type="gamma", cv=3),
        "lognormal lengths": run(7, LOGNORMAL, rate=0.45),
        "4,000-token prompts": run(8, {"input_tokens": 4000, "output_tokens": 128}, rate=0.07),
        "prefixes": run(9, prefixes, rate=0.6),
        "88% of the capacity": run(10, middle, rate=0.88),
        "120% of the capacity": run(11, middle, rate=1.2),
    }


if __name__ == "__main__":
    main()
