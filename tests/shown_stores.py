"""Stores for display tests: histories with steps, several lengths, an experiment, names that contain HTML."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from msgspec import structs

from inferometer.documents.document import JsonObject
from inferometer.judge.compare import compare
from inferometer.judge.search import Attained, SearchResult, SearchStep
from inferometer.record.encoding import environment_from
from inferometer.record.environment import Environment
from inferometer.record.summary import LimitResult, MeasureSummary, Rate, Summary, Value
from inferometer.record.verdict import Reason, Status, Verdict
from inferometer.store.experiments import (
    AbDefinition,
    AbResult,
    SearchDefinition,
    SearchOutcome,
    SweepDefinition,
    SweepResult,
    new_experiment,
)
from inferometer.store.save import keep
from inferometer.store.shapes import ExperimentCase
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
            "output_rate": Rate(unit="tokens/s", value=8 / tpot),
            "total_rate": Rate(unit="tokens/s", value=40 / tpot),
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


def environment_of(version: str, model: str = "m") -> Environment:
    target = {"urls": ["http://127.0.0.1:8000"], "model": model, "server": "vLLM", "version": version}
    return environment_from({"target": target, "git": {"commit": "a" * 40}, "machine": {"cpu": "EPYC", "cores": 8}})


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
    folder = new_experiment(store.home, "sweep", "concurrency <b>sweep</b>", SweepDefinition())
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
        folder.add(ExperimentCase(name=f"c{concurrency}-i{inputs}", parameters=settings, run=run))
    folder.add(
        ExperimentCase(
            name="broken", parameters={"load.concurrency": 99, "workload.input_tokens": 300}, run=None, error="refused"
        )
    )
    folder.finish(SweepResult(cases={"complete": number + 2}))
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


def ab_test(store: Store, pairs: int = 6) -> str:
    """B answers a tenth faster; judged as `inferometer ab` judges it."""
    folder = new_experiment(
        store.home,
        "ab",
        None,
        AbDefinition(blocks=pairs, a={"server": {"args": {"speed": 4}}}, b={"server": {"args": {"speed": 5}}}),
    )
    draw, sides = np.random.default_rng(3), {"a": 0.011, "b": 0.0099}
    runs: dict[str, list[str]] = {"a": [], "b": []}
    for pair in range(pairs):
        for side, tpot in sides.items():
            noise = draw.normal(1, 0.004)
            run = keep_one(store, 45 + pair / 24, 0.1 * draw.normal(1, 0.3), tpot * noise, outputs=64)
            store.set_case(run, folder.id, f"{pair + 1} {side}")
            settings: dict[str, Any] = {"pair": pair + 1, "side": side}
            folder.add(ExperimentCase(name=f"{pair + 1} {side}", parameters=settings, run=run))
            runs[side].append(run)
    before, after = ([store.load(id_) for id_ in runs[side]] for side in ("a", "b"))
    folder.finish(AbResult(**structs.asdict(compare(before, after))))
    return folder.id


LIMIT = "tpot p90 < 15ms"


def load_search(store: Store) -> str:
    """TPOT grows with the rate; the limit is broken between 30 and 40 requests per second."""
    plan: JsonObject = {"limits": [LIMIT], "workload": {"input_tokens": 300}}
    folder = new_experiment(store.home, "search", None, SearchDefinition(plan=plan))
    steps = []
    for number, rate in enumerate((10.0, 20.0, 40.0, 30.0)):
        tpot = 0.006 + 0.0003 * rate
        met = tpot < 0.0155
        limit = LimitResult(limit=LIMIT, value=tpot, met=met, text=f"{LIMIT}: {1000 * tpot:.1f} ms")
        plan_now = plan_of(300, 100) | {"load": {"rate": rate}}
        run = keep(
            store,
            kind="serving",
            plan=plan_now,
            environment=environment_of("0.24.0"),
            summary=structs.replace(summary_of(0.1, tpot), limits=[limit]),
            verdict=verdict_of("valid"),
            started=START + timedelta(days=46, hours=number),
        ).id
        store.set_case(run, folder.id, f"rate {rate:g}")
        folder.add(ExperimentCase(name=f"rate {rate:g}", parameters={"rate": rate}, run=run))
        attained = Attained(LIMIT, 0.99 if met else 0.4, 0.97 if met else 0.3, 1.0 if met else 0.5, 0.9, met)
        steps.append(SearchStep(rate, (attained,), 10.0, run, values={"tpot.p50": tpot, "output_rate": 64 * rate}))
    found = SearchResult("found", 30.0, 40.0, "the highest load within the limits is between 30 and 40")
    folder.finish(SearchOutcome(**structs.asdict(found), limits=(LIMIT,), steps=tuple(steps)))
    return folder.id
