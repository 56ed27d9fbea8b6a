"""The time of `inferometer --help`, and of ten requests to a server that answers at once: from the command to the
printed summary, with the CPU time of all processes.

python bench/startup.py [--times 10] [--json]
"""

import tempfile
from pathlib import Path
from statistics import median

from _common import counted, inferometer, parser, print_rows
from inferometer.conduct.curves import keep_curve
from inferometer.conduct.instrument import curve_of
from inferometer.simulator.metronome_process import running_metronome

AT_ONCE_S = 0.0001  # until the first token, and between two
NOT_VALID = 4  # on a busy machine ten requests may be invalid, which does not matter here


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--times", type=int, default=10)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_metronome(AT_ONCE_S, AT_ONCE_S) as metronome:
        store = Path(folder) / "store"
        keep_curve(curve_of([]), store)  # otherwise the first run on a machine would calibrate
        flags = ["--url", metronome.url, "--requests", "10", "--output-tokens", "4", "--store", str(store)]
        rows = [row("--help", [], chosen.times), row("run", flags, chosen.times)]
    print_rows(rows, chosen.json)


def row(command: str, flags: list[str], times: int) -> dict[str, float | int | str]:
    line = inferometer(command, *flags)
    counted(line, fine=(0, NOT_VALID))  # fills the page cache
    made = [counted(line, fine=(0, NOT_VALID)) for _ in range(times)]
    return {
        "command": f"inferometer {command}",
        "times": times,
        "wall s": median(run.wall_s for run in made),
        "least wall s": min(run.wall_s for run in made),
        "cpu s": median(run.cpu_s for run in made),
        "least cpu s": min(run.cpu_s for run in made),
    }


if __name__ == "__main__":
    main()
