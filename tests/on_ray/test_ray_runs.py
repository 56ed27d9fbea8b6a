"""Runs, a search and goals on a Ray cluster of three nodes, one of which has a clock of its own."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from clusters import SHIFT_S, Nodes, cluster, eventually, may_shift_clocks, workers

from inferometer.conduct.run import run
from inferometer.conduct.search import search
from inferometer.judge.search import Bounds
from inferometer.load.arrivals import Arrivals
from inferometer.load.progress import Progress
from inferometer.plan.model import Load, Plan
from inferometer.plan.reading import plan_from
from inferometer.record.summary import Clocks

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
        "ray": {"address": nodes.address},
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


def test_a_search_runs_on_the_cluster(url: str, three: Nodes, store: Path) -> None:
    limited = plan(url, three, load={"rate": 20}, limits=["e2e p50 < 10s"])
    bounds = Bounds(start=20.0, least=20.0, most=40.0, steps=3, budget_s=30.0)
    searched = search(limited, bounds, step_s=3.0, store=store)
    assert searched.steps
    assert all(step.run for step in searched.steps)
    assert not workers()


def test_a_limit_that_is_lost_ends_the_load_of_all_workers(url: str, three: Nodes, store: Path) -> None:
    stop = {"duration": "60s", "lost": True}
    made = run(plan(url, three, load={"rate": 60}, limits=["e2e p50 < 1us"], stop=stop), store=store)
    goal = made.summary.goal
    assert goal is not None and goal.status == "lost"
    assert (made.summary.window.run_s or 0.0) < 50
    assert eventually(lambda: not workers())
