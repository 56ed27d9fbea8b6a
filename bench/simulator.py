"""The simulator's speed: an hour of load in virtual time, and events per second and lateness of its server.

python bench/simulator.py [--json]
"""

import json
import os
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from _common import compiled_floor, counted, parser, print_rows
from inferometer.plan.model import Plan, Server
from inferometer.simulator.virtual import rehearse
from inferometer.target.server import running

STEP_S = 0.01  # of every step, so that the event rate is streams / STEP_S
TOKENS = 200
ROUNDS = 5
SPREAD_MS = round(TOKENS * STEP_S * 1000)  # spreads the starts of requests; otherwise all start at once in every round


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--streams", type=int, nargs="+", default=[128, 512, 768])
    chosen = options.parse_args()
    hour = [virtual_hour()]
    with tempfile.TemporaryDirectory() as folder:
        floor = compiled_floor(Path(folder))
        served = (
            []
            if floor is None
            else [
                serving(streams, floor, Path(folder), spread_ms)
                for streams in chosen.streams
                for spread_ms in (0, SPREAD_MS)
            ]
        )
    if chosen.json:
        print(json.dumps({"virtual": hour, "server": served}, indent=2))
        return
    for rows in (hour, served):
        print_rows(rows, as_json=False)
        print()


def virtual_hour() -> dict[str, Any]:
    """10 requests/s of 500 + 200 tokens for an hour; the goal is 10 s."""
    plan = Plan.model_validate(
        {
            "workload": {"input_tokens": 500, "output_tokens": 200},
            "load": {"type": "poisson", "rate": 10},
            "stop": {"duration": "1h"},
        }
    )
    began = time.perf_counter()
    records, _ = rehearse(plan)
    took_s = time.perf_counter() - began
    tokens = int(records.read_tokens.sum())
    return {
        "virtual s": 3600,
        "took s": took_s,
        "requests": len(records),
        "tokens": tokens,
        "tokens/s": tokens / took_s,
    }


def serving(streams: int, floor: Path, folder: Path, spread_ms: int) -> dict[str, Any]:
    """The server alone, read by the C reader. Lateness is from a step's deadline to its first and last write."""
    step_time = {"base": STEP_S, "prefill_token": 0, "decode_sequence": 0, "context_token": 0}
    settings = Server(args={"model": "metronome", "step_time": step_time, "truth_events": 100_000})
    with running(settings, folder) as server:
        port = server.url.rpartition(":")[2]
        before_s = cpu_of(server.pid)
        said = counted([str(floor), port, str(streams), str(streams * ROUNDS), str(TOKENS), str(spread_ms)])
        cpu_s = cpu_of(server.pid) - before_s
        with urllib.request.urlopen(f"{server.url}/truth") as answer:
            late = json.loads(answer.read())["lateness"]
    events, wall_s = streams * ROUNDS * TOKENS, json.loads(said.output)["wall_s"]
    return {
        "streams": streams,
        "begin": "spread" if spread_ms else "at once",
        "asked events/s": events / (ROUNDS * TOKENS * STEP_S + spread_ms / 1000),
        "events/s": events / wall_s,
        "cpu s/M": cpu_s / events * 1e6,
        **{
            f"{which} late {q} ms": late[f"{which}_write_s"][q] * 1e3
            for which in ("first", "last")
            for q in ("p50", "p99")
        },
    }


def cpu_of(pid: int) -> float:
    """Processor time of a process so far (Linux)."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
