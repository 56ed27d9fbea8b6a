"""Repeats cells of the map of bench/routing.py over sockets: the same plans and tapes in virtual time, and with the
real router and four simulators in real time. Do they agree?

python bench/routing_sockets.py [--cells 14:0.75 20:0.75 14:0.25] [--strategies power_of_two ...] [--seeds 1] [--json]

A cell is named by its requests per second and its share of a common prefix. A run takes 600 requests' time.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _common import parser, print_rows
from _routing_scenarios import SCENARIOS
from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.conduct.run import run
from inferometer.plan.reading import plan_from
from inferometer.router.virtual import rehearse_fleet
from routing import numbers_of, plan_of

MEASURED = ("hit_rate", "busiest", "e2e_mean_ms", "ttft_mean_ms", "ttft_p90_ms", "tpot_mean_ms")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--cells", nargs="+", default=["14:0.75", "20:0.75", "14:0.25"], metavar="RATE:SHARE")
    options.add_argument("--strategies", nargs="+", default=["power_of_two", "prefix_aware, current", "block_prefix"])
    options.add_argument("--seeds", type=int, default=1)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        keep_curve(curve_of([]), store)  # or the first run might calibrate
        rows = [
            row(cell, label, seed, plan, store)
            for seed in range(chosen.seeds)
            for cell, label, plan in jobs(chosen.cells, chosen.strategies, seed)
        ]
    print_rows(rows, chosen.json)


def jobs(cells: list[str], strategies: list[str], seed: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The plan of every requested cell of the map, with every strategy."""
    for cell in SCENARIOS["map"]():
        name = f"{cell.cell['rate']:g}:{cell.cell['share']:g}"
        for label, policy, settings in cell.strategies:
            if name in cells and label in strategies:
                yield name, label, plan_of(cell, policy, settings, seed)


def row(cell: str, label: str, seed: int, fields: dict[str, Any], store: Path) -> dict[str, Any]:
    """Both results side by side: numbers as `virtual, sockets`."""
    plan = plan_from(fields)
    virtual = numbers_of(rehearse_fleet(plan).records, plan)
    made = run(plan, store=store, nonce=f"seed {seed}")  # the nonce of virtual time: the same tokens
    assert made.records is not None
    real = numbers_of(made.records, plan)
    failed = made.summary.failures.failed
    return {"cell": cell, "strategy": label, "seed": seed, "failed": failed} | {
        name: f"{virtual[name]:.4g}, {real[name]:.4g}" for name in MEASURED
    }


if __name__ == "__main__":
    main()
