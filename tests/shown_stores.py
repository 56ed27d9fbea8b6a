"""Stores to be looked at: histories with steps in them, several lengths, an experiment, names that try to be HTML."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from inferometer.record.summary import MeasureSummary, Rate, Summary, Value
from inferometer.record.verdict import Reason, Status, Verdict
from inferometer.store.experiments import new_experiment
from inferometer.store.save import keep
from inferometer.store.store import Store, open_store

NASTY = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
START = datetime(2026, 9, 1, 3, 0, tzinfo=UTC)


def summary_of(ttft: float, tpot: float) -> Summary:
    """As a closed loop of 8 gives it; seconds."""
    ttfts = {"mean": ttft * 1.1, "p50": ttft, "p90": ttft * 1.6, "p99": ttft * 2.4}
    tpots = {"mean": tpot, "p50": tpot * 0.98, "p99": tpot * 1.4}
    return Summary(
        loop="closed",
        outcomes={"ok": 500},
        measures={
            "ttft": MeasureSummary(unit="s", statistics=ttfts),
            "tpot": MeasureSummary(unit="s", statistics=tpots),
            "user_speed": MeasureSummary(unit="tokens/s", statistics={"mean": 1 / tpot, "p50": 1 / tpot}),
        },
        rates={
            "output_rate": Rate(unit="tokens/s", window=8 / tpot),
            "total_rate": Rate(unit="tokens/s", window=40 / tpot),
        },
    )


def verdict_of(status: Status) -> Verdict:
    late = Reason(status=status, code="late_sends", text="Sends were late.")
    return Verdict(status=status, doubts=[] if status == "valid" else [late])


def plan_of(
    inputs: int, outputs: int, concurrency: int = 8, name: str | None = None, model: str = "m"
) -> dict[str, Any]:
    plan: dict[str, Any] = {
        "target": {"url": ["http://127.0.0.1:8000"], "model": model},
        "workload": {"type": "synthetic", "input_tokens": inputs, "output_tokens": outputs},
        "load": {"concurrency": concurrency},
    }
    return plan | ({"name": name} if name else {})


def environment_of(version: str, model: str = "m") -> dict[str, Any]:
    target = {"urls": ["http://127.0.0.1:8000"], "model": model, "server": "vLLM", "version": version}
    return {"target": target, "git": {"commit": "a" * 40}, "machine": {"cpu": "EPYC", "cores": 8}}


def keep_one(store: Store, day: float, ttft: float, tpot: float, *, status: Status = "valid", **more: Any) -> str:
    """A run of `day` days after the start; `more` is for the plan."""
    plan = plan_of(more.pop("inputs", 300), more.pop("outputs", 100), **more)
    version = "0.24.0" if day < 20 else "0.25.0"
    kept = keep(
        store,
        kind="serving",
        plan=plan,
        environment=environment_of(version, plan["target"]["model"]),
        summary=summary_of(ttft, tpot),
        verdict=verdict_of(status),
        started=START + timedelta(days=day),
        files={"server.log": b"INFO started\n"},
    )
    return kept.id


def nightly(store: Store, days: int = 30) -> list[str]:
    """Two pairs of lengths a night; with version 0.25 the first token takes a third longer."""
    draw = np.random.default_rng(7)
    ids = []
    for day in range(days):
        slower = 1.33 if day >= 20 else 1.0
        for inputs, outputs, ttft in ((300, 100, 0.09), (2000, 400, 0.31)):
            noise = draw.normal(1, 0.01)
            ids.append(keep_one(store, day, ttft * slower * noise, 0.011 * noise, inputs=inputs, outputs=outputs))
    return ids


def sweep(store: Store) -> str:
    """Concurrency against input length, each case a run."""
    folder = new_experiment(store.home, "sweep", "concurrency <b>sweep</b>", {"axes": {}})
    for number, (concurrency, inputs) in enumerate(_cases()):
        run = keep_one(
            store,
            40 + number / 24,
            0.05 * concurrency**0.5,
            0.01 * (1 + concurrency / 40),
            inputs=inputs,
            concurrency=concurrency,
        )
        store.set_case(run, folder.id, f"c{concurrency}")
        settings = {"load.concurrency": concurrency, "workload.input_tokens": inputs}
        folder.add({"name": f"c{concurrency}-i{inputs}", "parameters": settings, "run": run})
    folder.add(
        {
            "name": "broken",
            "parameters": {"load.concurrency": 99, "workload.input_tokens": 300},
            "run": None,
            "error": "refused",
        }
    )
    folder.finish({"cases": number + 2})
    return folder.id


def _cases() -> Iterator[tuple[int, int]]:
    for inputs in (300, 2000):
        for concurrency in (1, 4, 16, 64):
            yield concurrency, inputs


def unsynced() -> Any:
    """Without waiting for the disk: 70 runs of 8 files each would take it a minute."""
    return patch("inferometer.store.save.sync")


def shown_store(folder: Path) -> Store:
    """All of it."""
    store = open_store(folder)
    with unsynced(), store.batch():
        nightly(store, days=26)
        keep_one(store, 50, 0.1, 0.01, status="doubtful", name=NASTY, model=NASTY)
    with unsynced():
        sweep(store)
    store.tag("latest", ["nightly"])
    return store


def batches(store: Store, days: int = 24) -> list[str]:
    """An offline latency run a night, of four batch sizes; from the 15th on it is a quarter slower."""
    ids = []
    for day in range(days):
        level = (1.25 if day >= 14 else 1.0) * (1 + 0.004 * (day % 3))
        measures = {
            f"latency_bs{size}": MeasureSummary(
                unit="s",
                direction="lower",
                title=f"Latency, batch of {size}",
                statistics={
                    "mean": level * (1 + size / 10),
                    "p50": level * (1 + size / 10),
                    "p99": level * (1.2 + size / 10),
                },
            )
            for size in (1, 2, 4, 16)
        }
        kept = keep(
            store,
            kind="latency",
            plan={"model": "m", "batch_sizes": [1, 2, 4, 16], "input_lens": [512], "output_lens": [128]},
            environment=environment_of("0.24.0"),
            summary=Summary(measures=measures),
            verdict=verdict_of("valid"),
            started=START + timedelta(days=day),
        )
        ids.append(kept.id)
    return ids


def starts(store: Store, days: int = 3) -> list[str]:
    """A start of a server a night."""

    def ready_after(seconds: float) -> Summary:
        value = Value(value=seconds, unit="s", direction="lower", title="Time to ready")
        return Summary(values={"time_to_ready": value})

    return [
        keep(
            store,
            kind="startup",
            plan={"server": {"type": "vllm", "model": "m"}},
            environment=environment_of("0.24.0"),
            summary=ready_after(40.0 + day),
            verdict=verdict_of("valid"),
            started=START + timedelta(days=day),
        ).id
        for day in range(days)
    ]
