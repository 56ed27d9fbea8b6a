"""In virtual time, k shards of a plan in uncapped open loop are the run of one worker, bit for bit: the same arrivals,
sessions, reads and measures, also when every shard's host has a clock of its own."""

import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from inferometer.load.facts import facts_of
from inferometer.measure.summary import summarize
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.record.columns import Records
from inferometer.record.gather import read_logs
from inferometer.scale.rehearsal import rehearse_shards
from inferometer.simulator.virtual import rehearse

rates = st.sampled_from([7.0, 23.5, 80.0])
loads = st.one_of(
    st.builds(lambda rate: {"type": "constant", "rate": rate}, rates),
    st.builds(lambda rate: {"type": "poisson", "rate": rate}, rates),
    st.builds(lambda rate, cv: {"type": "gamma", "rate": rate, "cv": cv}, rates, st.sampled_from([0.4, 2.5])),
    st.builds(lambda rate, to: {"type": "ramp", "rate": rate, "to": to}, rates, rates),
    st.builds(
        lambda rate, to: {"stages": [{"rate": rate, "duration": "1s"}, {"rate": rate, "to": to, "duration": "2s"}]},
        rates,
        rates,
    ),
)
workloads = st.sampled_from(
    [
        {"input_tokens": 16, "output_tokens": 5},
        {"input_tokens": 8, "output_tokens": {"mean": 6, "std": 3, "min": 1, "max": 20}},
        {"input_tokens": 8, "output_tokens": 3, "turns": 3, "think": "50ms"},
    ]
)


def plan_of(load: dict[str, Any], workload: dict[str, Any], seed: int, stop: dict[str, Any]) -> Plan:
    return plan_from({"load": load, "workload": workload, "seed": seed, "stop": stop})


def same_records(merged: Records, whole: Records) -> None:
    whole = Records.concat([whole])
    for column in fields(Records):
        if column.name == "shard":
            continue
        mine, theirs = getattr(merged, column.name), getattr(whole, column.name)
        if isinstance(mine, np.ndarray):
            equal_nan = mine.dtype.kind == "f"
            assert np.array_equal(mine, theirs, equal_nan=equal_nan), column.name
        else:
            assert [mine[i] for i in range(len(merged))] == [theirs[i] for i in range(len(whole))], column.name


@given(
    load=loads,
    workload=workloads,
    shards=st.integers(1, 9),
    seed=st.integers(0, 99),
    stop=st.sampled_from([{"duration": "3s"}, {"duration": "3s", "sessions": 40}]),
    apart=st.booleans(),
)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_shards_together_are_the_run_of_one_worker(
    load: dict[str, Any], workload: dict[str, Any], shards: int, seed: int, stop: dict[str, Any], apart: bool
) -> None:
    plan = plan_of(load, workload, seed, stop)
    whole, whole_facts = rehearse(plan, nonce="nonce")
    ahead_ns = (lambda shard: (shard + 1) * 7_000_000_123) if apart else (lambda _shard: 0)
    with tempfile.TemporaryDirectory() as folder:
        logs = rehearse_shards(plan, shards, Path(folder), "nonce", ahead_ns)
        merged, gathered = read_logs(logs)
    assert {*merged.shard.tolist()} <= set(range(shards))
    same_records(merged, whole)
    facts = facts_of(plan, merged, gathered.notes)
    one, several = summarize(whole, plan, whole_facts), summarize(merged, plan, facts)
    assert several.instrument is not None and several.instrument.workers <= shards
    assert structs.replace(several, instrument=None) == structs.replace(one, instrument=None)


@pytest.mark.parametrize("shards", [2, 5])
def test_a_replay_is_split_and_the_same(tmp_path: Path, shards: int) -> None:
    """Some rows at one instant, some of one user."""
    rows = [
        {
            "time": 40 * (number // 3),
            "input_tokens": 5 + number % 11,
            "output_tokens": 1 + number % 7,
            "user": number % 9,
        }
        for number in range(90)
    ]
    (tmp_path / "trace.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    columns = {"output_tokens": "output_tokens", "session": "user"}
    trace = {"type": "trace", "path": str(tmp_path / "trace.jsonl"), "columns": columns, "unit": "ms"}
    plan = plan_from({"workload": trace, "load": {"type": "replay"}})
    whole, whole_facts = rehearse(plan, nonce="nonce")
    logs = rehearse_shards(plan, shards, tmp_path, "nonce", lambda shard: (shard + 1) * 7_000_000_123)
    merged, gathered = read_logs(logs)
    assert len(merged) == 90
    same_records(merged, whole)
    one, several = summarize(whole, plan, whole_facts), summarize(merged, plan, facts_of(plan, merged, gathered.notes))
    assert (several.measures, several.rates) == (one.measures, one.rates)


def test_two_traffic_classes_are_split_each_for_itself() -> None:
    plan = plan_from(
        {
            "traffic": [
                {"name": "chat", "load": {"rate": 30}, "workload": {"input_tokens": 8, "output_tokens": 4}},
                {"name": "batch", "load": {"type": "constant", "rate": 11}, "workload": {"output_tokens": 16}},
            ],
            "stop": {"duration": "3s"},
        }
    )
    whole, _ = rehearse(plan, nonce="nonce")
    for shards in (2, 3, 5):
        with tempfile.TemporaryDirectory() as folder:
            merged, _ = read_logs(rehearse_shards(plan, shards, Path(folder), "nonce"))
        same_records(merged, whole)


def test_a_closed_loop_is_split_and_not_the_same() -> None:
    """Documented: every shard keeps its share of the concurrency and of the requests, so that all are sent once; who
    sends which when follows from when the shard's own slots are free."""
    plan = plan_from({"load": {"concurrency": 7}, "stop": {"requests": 100}, "workload": {"output_tokens": 9}})
    whole, _ = rehearse(plan, nonce="nonce")
    with tempfile.TemporaryDirectory() as folder:
        merged, _ = read_logs(rehearse_shards(plan, 3, Path(folder), "nonce"))
    assert sorted(merged.session.tolist()) == sorted(whole.session.tolist()) == list(range(100))
    assert np.bincount(merged.shard).tolist() == [34, 33, 33]
