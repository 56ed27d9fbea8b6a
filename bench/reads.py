"""Whether the stated uncertainty of reads is true, and how large it is: the client with a server that writes in bursts
and logs the time span of every write (`inferometer.simulator.bursts`), with both readers and both kinds of timestamps,
plain and over TLS, light and saturated.

python bench/reads.py [--loads light saturated] [--json]
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from _common import parser, print_rows
from inferometer.load import shard
from inferometer.load.shard import ShardJob, run_shard
from inferometer.plan.model import Plan
from inferometer.record.columns import Records
from inferometer.record.gather import read_logs
from inferometer.simulator.bursts import WITHHELD_NS, running_bursts
from inferometer.simulator.metronome_process import Truth, compare
from inferometer.wire import sockets

LOADS = {  # streams, tokens of an answer, answers of a stream, pause between bursts
    "one": (1, 300, 3, 0.008),
    "light": (16, 300, 3, 0.008),
    "saturated": (200, 400, 2, 0.0001),
}
ALLOWANCE_NS = 10_000  # for converting between two clocks, and for the path between timestamp and socket


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    options.add_argument("--case", help="one row, in this process: reader,stamps,way,load")
    chosen = options.parse_args()
    if chosen.case:
        print(json.dumps(row(*chosen.case.split(","))))
        return
    cases = product(("compiled", "python"), ("kernel", "read"), ("plain", "tls"), chosen.loads)
    rows = [in_a_child(*case) for case in cases]
    print_rows(rows, chosen.json)
    outside = sum(row["outside"] for row in rows)
    verdict = f"does not hold for {outside} reads" if outside else "holds for every read"
    print(f"the stated uncertainty {verdict}", file=sys.stderr)
    sys.exit(1 if outside else 0)


def in_a_child(*case: str) -> dict[str, Any]:
    """Measured in a child process, because a process has one reader."""
    environ = os.environ | ({"INFEROMETER_READER": "python"} if case[0] == "python" else {})
    command = [sys.executable, __file__, "--case", ",".join(case)]
    return dict(json.loads(subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE).stdout))


def row(reader: str, stamps: str, way: str, load: str) -> dict[str, Any]:
    if stamps == "read":
        no_stamps: Callable[[], bool] = lambda: False  # noqa: E731
        sockets.kernel_stamps = shard.kernel_stamps = no_stamps  # type: ignore[assignment, attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        records, truth = measured(load, way == "tls", Path(folder))
    case = {"reader": reader, "stamps": stamps, "way": way, "load": load, "streams": LOADS[load][0]}
    return case | numbers(records, truth)


def measured(load: str, secure: bool, folder: Path) -> tuple[Records, Truth]:
    streams, tokens, rounds, pause_s = LOADS[load]
    with running_bursts(pause_s, tls=certificate(folder) if secure else None) as bursts:
        plan = {
            "target": {"url": bursts.url, "model": "bursts", "tls": {"verify": False}},
            "workload": {"type": "synthetic", "input_tokens": 16, "output_tokens": tokens, "nonce_tokens": 0},
            "load": {"type": "concurrency", "concurrency": streams},
            "stop": {"requests": streams * rounds},
        }
        log = folder / "run.log"
        plain = Plan.model_validate(plan).model_dump(mode="json")
        run_shard(ShardJob(plan=plain, log=str(log), nonce="", model="bursts"))
        return read_logs([log])[0], bursts.truth()


def certificate(folder: Path) -> tuple[Path, Path]:
    made = folder / "server.pem", folder / "server.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    subprocess.run([*command.split(), "-out", made[0], "-keyout", made[1]], check=True, capture_output=True)
    return made


def numbers(records: Records, truth: Truth) -> dict[str, Any]:
    """Times in milliseconds; the quantiles are of the reads that state an uncertainty."""
    compared = compare(records, truth)
    first = records.read_slack[records.read_offsets[:-1][records.read_counts() > 0]]
    outside = np.maximum(compared.oldest - compared.slack, -compared.read_error)
    return {
        "events/s": truth.events_per_s(),
        "reads": len(compared.slack),
        "tokens/read": float(records.read_tokens.mean()),
        **described("", compared.slack),
        **described("first ", first),
        "outside": int((outside > ALLOWANCE_NS).sum()),
        "by": float(outside.max() / 1e6),
        "withheld": float((truth.took_ns >= WITHHELD_NS).mean()),
        "failed": len(records) - int(records.outcome.mask("ok").sum()) + compared.unmatched,
    }


def described(name: str, slack_ns: Any) -> dict[str, Any]:
    uncertain = slack_ns[slack_ns > 0] / 1e6
    p50, p99, most = np.quantile(uncertain, (0.5, 0.99, 1.0)).tolist() if len(uncertain) else (None, None, None)
    share = len(uncertain) / len(slack_ns)
    return {f"{name}uncertain": share, f"{name}p50": p50, f"{name}p99": p99, f"{name}max": most}


if __name__ == "__main__":
    main()
