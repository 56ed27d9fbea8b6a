"""Runs, a search and goals on a Ray cluster of three nodes, one of which has a different clock."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from clusters import SHIFT_S, Nodes, cluster, eventually, may_shift_clocks, workers

from inferometer.conduct.ab import Design, ab
from inferometer.conduct.prepare import begin, prepare
from inferometer.conduct.run import run
from inferometer.conduct.search import search
from inferometer.conduct.sweep import sweep
from inferometer.judge.search import SearchBounds
from inferometer.load.arrivals import Arrivals
from inferometer.load.progress import Progress
from inferometer.plan.model import Load, Plan, RaySettings
from inferometer.plan.reading import plan_from
from inferometer.plan.text import to_mapping
from inferometer.record.summary import Clocks
from inferometer.store.store import open_store

SHIFTED = may_shift_clocks()


@pytest.fixture(scope="module")
def three() -> Iterator[Nodes]:
    with cluster() as nodes:
        nodes.add()
        nodes.add(shifted=SHIFTED)
        yield nodes


def plan(url: str, nodes: Nodes, **sections: object) -> Plan:
    usual = {
        "target": {"url": url},
        "workload": {"input_tokens": 16, "output_tokens": 4},
        "observe": {"metrics": "off", "host": False},
        "place": "ray",
        "ray": {"address": nodes.address, "timeout": "5min"},
        "workers": 3,
    }
    return plan_from(usual | sections)


def test_a_run_is_what_one_worker_would_send(url: str, three: Nodes, store: Path) -> None:
    seen: list[Progress] = []
    sections = {"load": {"type": "poisson", "rate": 60}, "stop": {"requests": 300}}
    made = run(plan(url, three, **sections), store=store, watch=seen.append)
    assert made.state == "complete", made.doubts
    records = made.records
    assert records is not None
    assert sorted(records.session.tolist()) == list(range(300))
    assert {*records.shard.tolist()} == {0, 1, 2}
    assert {*made.summary.outcomes} == {"ok"}
    clocks = made.summary.clocks
    allowed_ns = 1e9 * (clocks.uncertainty_s or 0.0) if clocks else 0.0
    expected = np.array([at for _, at, _ in islice(Arrivals(Load(type="poisson", rate=60), 0), 300)])
    offered = records.scheduled_at[np.argsort(records.session)]
    assert np.abs(offered - offered[0] - expected + expected[0]).max() <= allowed_ns + 1
    assert {progress.shard for progress in seen} == {0, 1, 2}
    here = plan(url, three, **sections).model_copy(update={"place": "local", "workers": 1, "ray": RaySettings()})
    alone = run(here, store=store).records
    assert alone is not None
    for column in ("session", "turn", "requested_output", "output_tokens"):
        one, several = (getattr(taken, column)[np.argsort(taken.session)] for taken in (alone, records))
        assert np.array_equal(one, several), column
    by_one = alone.scheduled_at[np.argsort(alone.session)]
    assert np.abs(offered - offered[0] - by_one + by_one[0]).max() <= allowed_ns + 1
    if SHIFTED:
        check_clocks(clocks, seen)
    assert not workers()
    assert made.folder is not None and not list(made.folder.glob("log-*.bin"))


def check_clocks(clocks: Clocks | None, seen: list[Progress]) -> None:
    """The offset that the namespace has, within the uncertainty that is reported for it."""
    assert clocks is not None and clocks.uncertainty_s is not None
    foreign = [host for host in clocks.hosts if host.offset_s]
    assert len(foreign) == 1
    assert foreign[0].uncertainty_s is not None and 0 < foreign[0].uncertainty_s < 0.05
    assert abs((foreign[0].offset_s or 0.0) - SHIFT_S) <= foreign[0].uncertainty_s
    assert foreign[0].readings is not None and foreign[0].readings >= 1
    instants = [progress.at for progress in seen]
    assert max(instants) - min(instants) < 300e9  # all of them on our clock


def test_every_part_that_combines_hosts_has_their_uncertainty(url: str, three: Nodes, store: Path) -> None:
    if not SHIFTED:
        pytest.skip("this user may not make time namespaces")
    made = run(plan(url, three, load={"type": "constant", "rate": 40}, stop={"duration": "4s"}), store=store)
    summary = made.summary
    assert summary.clocks is not None and summary.clocks.uncertainty_s
    assert summary.window.clock_error_s == summary.clocks.uncertainty_s
    rate = summary.rates["request_rate"]
    assert rate.clock_error == pytest.approx(rate.value * 2 * summary.clocks.uncertainty_s / summary.window.length_s)
    assert summary.concurrency.clock_error
    assert made.verdict is not None
    assert {"clocks"} & {note.code for note in made.verdict.notes}


def test_no_module_of_the_working_folder_is_run_on_the_cluster(
    url: str, three: Nodes, store: Path, tmp_path: Path
) -> None:
    """Ray has its workers import from the folder where the driver connects, before anything else."""
    checkout, ran = tmp_path / "checkout", tmp_path / "ran"
    checkout.mkdir()
    for name in ("inferometer", "msgspec", "orjson", "queue", "secrets"):
        (checkout / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r})\nraise SystemExit(99)\n")
    load = ("--rate", "40", "--requests", "20", "--input-tokens", "16", "--output-tokens", "2", "--store", str(store))
    command = [sys.executable, "-P", "-m", "inferometer", "run", "--url", url, "--ray-address", three.address]
    done = subprocess.run([*command, "--workers", "2", *load], cwd=checkout, capture_output=True, text=True)
    assert not ran.exists(), ran.read_text()
    assert done.returncode in (0, 4), done.stderr


def test_a_search_runs_on_the_cluster(url: str, three: Nodes, store: Path) -> None:
    limited = plan(url, three, load={"rate": 20}, limits=["e2e p50 < 10s"])
    bounds = SearchBounds(start=20.0, least=20.0, most=40.0, steps=3, budget_s=30.0)
    searched = search(limited, bounds, step_s=3.0, store=store)
    assert searched.steps
    assert all(step.run for step in searched.steps)
    assert not workers()


def test_a_sweep_runs_on_the_cluster(url: str, three: Nodes, store: Path) -> None:
    one = plan(url, three, load={"rate": 30}, stop={"requests": 30})
    prepared = prepare({"plan": to_mapping(one), "axes": {"workload.output_tokens": [2, 6]}})
    done = sweep(prepared, begin(prepared, store), store=store)
    assert [row.state for row in done.rows] == ["complete", "complete"]
    runs = [open_store(store).load(row.run) for row in done.rows if row.run]
    assert [{*made.records.shard.tolist()} for made in runs if made.records is not None] == [{0, 1, 2}] * 2
    assert not workers()


def test_a_and_b_run_on_the_cluster_in_turns(url: str, three: Nodes, store: Path) -> None:
    targets = ({"url": url, "headers": {"x-side": side}} for side in "ab")
    one, other = (plan(url, three, load={"rate": 40}, target=target) for target in targets)
    compared = ab(one, other, Design(blocks=3, block_s=1.5, every=True), store=store)
    assert len(compared.comparison.before) == len(compared.comparison.after) == 3
    kept = [block.run.records for block in compared.blocks]
    assert [{*records.shard.tolist()} for records in kept if records is not None] == [{0, 1, 2}] * 6
    assert not workers()


def test_a_run_until_precise_looks_at_the_records_of_all_workers(url: str, three: Nodes, store: Path) -> None:
    """Hundreds of requests are needed (`LEAST_PRECISE`): no worker has as many by then."""
    stop = {"precision": "tpot mean within 20%", "at_most": "60s"}
    made = run(plan(url, three, load={"rate": 60}, stop=stop), store=store)
    goal, precision = made.summary.goal, made.summary.precision
    assert goal is not None and goal.status == "precise"
    assert precision is not None and precision.met
    assert (made.summary.window.run_s or 0.0) < 50
    assert made.records is not None and np.bincount(made.records.shard).min() > 0
    assert eventually(lambda: not workers())


def test_a_limit_that_is_lost_ends_the_load_of_all_workers(url: str, three: Nodes, store: Path) -> None:
    stop = {"duration": "60s", "lost": True}
    made = run(plan(url, three, load={"rate": 60}, limits=["e2e p50 < 1us"], stop=stop), store=store)
    goal = made.summary.goal
    assert goal is not None and goal.status == "lost"
    assert (made.summary.window.run_s or 0.0) < 50
    assert eventually(lambda: not workers())
