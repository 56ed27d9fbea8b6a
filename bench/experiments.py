"""The overhead of an experiment: 24 cases on one simulator, through the command line.

Overhead is all the time without load: start of Python and of the server, the observers, summaries, storing.

python bench/experiments.py [--cases 24] [--duration 1s] [--json]
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from _common import counted, inferometer, parser, print_rows

PLAN = {
    "server": {"type": "simulator", "args": {"speed": 10}},
    "workload": {"input_tokens": 100, "output_tokens": 20},
}
FINE = (0, 1, 4)  # a busy machine makes runs doubtful, which does not matter here


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--cases", type=int, default=24)
    options.add_argument("--duration", default="1s")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as store:
        counted(inferometer("calibrate", "--quick", "--store", store))
        file = Path(store) / "experiment.json"
        rates = [10 + 2 * at for at in range(chosen.cases)]
        plan = PLAN | {"stop": {"duration": chosen.duration}}
        file.write_text(json.dumps({"plan": plan, "axes": {"load.rate": rates}}))
        done = counted(inferometer("sweep", str(file), "--store", store, "--json", "--quiet"), FINE)
        cases = json.loads(done.output)["cases"]
        if failed := [case["error"] for case in cases if case["run"] is None]:
            sys.exit(f"error: {len(failed)} cases failed: {failed[0]}")
        loads = [_load_s(Path(store) / "runs" / case["run"]) for case in cases]
        each = [case["wall_s"] - load for case, load in zip(cases, loads, strict=True)]
    print_rows(
        [
            {
                "cases": len(cases),
                "wall s": done.wall_s,
                "load s": sum(loads),
                "overhead s a case": (done.wall_s - sum(loads)) / len(cases),
                "median of the cases": median(each[1:]),
                "first case (server)": each[0],
                "cpu s a case": done.cpu_s / len(cases),
                "busy others": os.getloadavg()[0],
            }
        ],
        chosen.json,
    )


def _load_s(run: Path) -> float:
    return float(json.loads((run / "summary.json").read_text())["window"]["run_s"])


if __name__ == "__main__":
    main()
