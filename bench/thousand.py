"""A thousand shards of one plan in virtual time: each writes a log with the clock of a separate host, and the gathered
records are compared with the run of a single worker."""

import resource
import sys
import tempfile
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from _common import parser, print_rows
from inferometer.load.facts import facts_of
from inferometer.measure.summary import summarize
from inferometer.plan.reading import plan_from
from inferometer.record.columns import Records
from inferometer.record.gather import read_logs
from inferometer.scale.rehearsal import rehearse_shards
from inferometer.simulator.virtual import rehearse


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--shards", type=int, default=1000)
    made.add_argument("--rate", type=float, default=200.0, help="requests per second of the whole")
    made.add_argument("--seconds", type=float, default=300.0)
    options = made.parse_args()
    plan = plan_from(
        {
            "load": {"type": "poisson", "rate": options.rate},
            "stop": {"duration": options.seconds},
            "workload": {"input_tokens": 64, "output_tokens": 16},
            "server": {"type": "simulator", "args": {"max_sequences": 1024}},
        }
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    row: dict[str, Any] = {"shards": options.shards}
    began = time.process_time()
    whole, facts = rehearse(plan, nonce="nonce")
    row |= {"requests": len(whole), "one worker cpu s": passed(began)}
    one = summarize(whole, plan, facts)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        logs = rehearse_shards(plan, options.shards, Path(folder), "nonce", lambda shard: (shard + 1) * 7_000_123)
        row |= {"shards cpu s": passed(began), "log MB": round(sum(log.stat().st_size for log in logs) / 1e6, 1)}
        began = time.process_time()
        merged, gathered = read_logs(logs)
        row["gather cpu s"] = passed(began)
    began = time.process_time()
    several = summarize(merged, plan, facts_of(plan, merged, gathered.notes))
    row |= {
        "summary cpu s": passed(began),
        "records equal": same(merged, Records.concat([whole])),
        "measures equal": several.measures == one.measures and several.rates == one.rates,
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000,
    }
    print_rows([row], options.json)
    if not (row["records equal"] and row["measures equal"]):
        sys.exit("error: the shards together are not the run of one worker")


def passed(began: float) -> float:
    return round(time.process_time() - began, 1)


def same(merged: Records, whole: Records) -> bool:
    """Whether the records are equal in every column but the shard's number."""
    return all(
        _equal(getattr(merged, of.name), getattr(whole, of.name)) for of in fields(Records) if of.name != "shard"
    )


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return [one[i] for i in range(len(one))] == [other[i] for i in range(len(other))]


if __name__ == "__main__":
    main()
