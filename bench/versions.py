"""`bench/wire.py` of another commit and of this checkout, alternating: the cost of a change, and its accuracy.

python bench/versions.py REF [--turns 3] [--streams 128 512] [--quick] [--json]
"""

import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from _common import HERE, parser, print_rows

MEASURES = (
    "cpu s/M",
    "x floor",
    "ttft err p99",
    "read err p50",
    "read err p99",
    "slack p99",
    "first slack p99",
    "inside",
)
Rows = dict[int, dict[str, Any]]  # of wire.py, by the number of streams


def main() -> None:
    options = parser(__doc__)
    options.add_argument("ref", help="the commit, branch or tag to compare with")
    options.add_argument("--turns", type=int, default=3)
    options.add_argument("--streams", nargs="+", default=["128", "512"])
    options.add_argument("--quick", action="store_true", help="a fifth of the events")
    chosen = options.parse_args()
    arguments = ["--json", "--streams", *chosen.streams, *(["--quick"] if chosen.quick else [])]
    here = HERE.parent
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        git(here, "worktree", "add", "--quiet", "--detach", str(other), chosen.ref)
        try:
            build(other)
            turns = [(measured(other, arguments), measured(here, arguments)) for _ in range(chosen.turns)]
        finally:
            git(here, "worktree", "remove", "--force", str(other))
    print_rows([row for streams in turns[0][1] for row in compared(streams, turns)], chosen.json)


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", folder, *arguments], check=True)


def build(checkout: Path) -> None:
    """Build its compiled parts with the compiler only, without a build tool."""
    headers, suffix = sysconfig.get_path("include"), sysconfig.get_config_var("EXT_SUFFIX")
    for source in checkout.glob("src/inferometer/*/_*.c"):
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O2", f"-I{headers}", source, "-o", source.with_suffix(suffix)], check=True
        )


def measured(checkout: Path, arguments: list[str]) -> Rows:
    environ = os.environ | {"PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, str(checkout / "bench" / "wire.py"), *arguments]
    output = subprocess.run(command, env=environ, cwd=checkout, check=True, stdout=subprocess.PIPE).stdout
    return {row["streams"]: row for row in json.loads(output)}


def compared(streams: int, turns: list[tuple[Rows, Rows]]) -> list[dict[str, Any]]:
    """A row for each measure that both versions have."""
    rows = []
    for measure in MEASURES:
        pairs = [(then[streams].get(measure), now[streams].get(measure)) for then, now in turns]
        known = [(then, now) for then, now in pairs if then is not None and now is not None]
        if known:
            ratios = [now / then for then, now in known if then]
            rows.append(
                {
                    "streams": streams,
                    "measure": measure,
                    "then": statistics.median(then for then, _ in known),
                    "now": statistics.median(now for _, now in known),
                    "ratio": statistics.median(ratios) if ratios else None,
                }
            )
    return rows


if __name__ == "__main__":
    main()
