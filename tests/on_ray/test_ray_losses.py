"""What is killed on a Ray cluster: a worker, its actor, its node, the driver. What was delivered is kept, what was
missing is named, and nothing stays behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
from clusters import Nodes, actor_of, alive_nodes, cluster, eventually, inferometer, is_alive, raylet_of, workers

from inferometer.conduct.run import partial_run, run
from inferometer.load.progress import Progress
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.record.log import read_log
from inferometer.record.run import Run
from inferometer.scale.remote_shard import node_folder
from inferometer.store.folder import load_run

RATE, LENGTH_S, WORKERS = 60, 6, 3


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with cluster() as nodes:
        yield nodes


@pytest.fixture
def three(nodes: Nodes) -> Nodes:
    """Whatever the test before has killed."""
    while alive_nodes(nodes.address) < 3:
        nodes.add()
    return nodes


def plan(url: str, nodes: Nodes, **sections: object) -> Plan:
    usual = {
        "target": {"url": url},
        "workload": {"input_tokens": 16, "output_tokens": 4},
        "load": {"type": "poisson", "rate": RATE},
        "stop": {"duration": LENGTH_S},
        "observe": {"metrics": "off", "host": False},
        "place": "ray",
        "ray": {"address": nodes.address, "timeout": "5min"},
        "workers": WORKERS,
    }
    return plan_from(usual | sections)


def run_with_a_loss(made: Plan, store: Path, lose: Callable[[], None]) -> Run:
    """Once every worker has had so many answers that logs written every half second have 20, something is lost."""
    done: dict[int, int] = {}
    lost = threading.Event()

    def watch(progress: Progress) -> None:
        done[progress.shard] = progress.done
        if not lost.is_set() and len(done) == WORKERS and all(count >= 60 for count in done.values()):
            lost.set()
            lose()

    finished = run(made, store=store, watch=watch)
    assert lost.is_set()
    return finished


def check_loss(made: Run, why: str) -> None:
    assert made.state == "failed"
    assert made.verdict is not None and made.verdict.status == "invalid"
    (doubt,) = [doubt for doubt in made.verdict.doubts if doubt.code == "worker_lost"]
    assert why in doubt.text
    assert "planned requests were sent" in doubt.text
    delivery = made.summary.delivery
    assert delivery is not None and delivery.planned is not None
    (worker,) = [worker for worker in delivery.workers if worker.status == "lost"]
    assert worker.planned is not None and worker.arrivals is not None
    assert 20 <= worker.arrivals < worker.planned  # what it delivered is kept
    assert delivery.shortfall == delivery.planned - delivery.arrivals
    assert delivery.shortfall == worker.planned - worker.arrivals  # the others sent all of theirs
    assert eventually(lambda: not workers())


def one_worker() -> int:
    return min(workers())


def test_a_killed_worker_is_named_and_the_others_go_on(url: str, three: Nodes, store: Path) -> None:
    made = run_with_a_loss(plan(url, three), store, lambda: os.kill(one_worker(), signal.SIGKILL))
    check_loss(made, "its process ended with SIGKILL")


def test_a_killed_actor(url: str, three: Nodes, store: Path) -> None:
    made = run_with_a_loss(plan(url, three), store, lambda: os.kill(actor_of(one_worker()), signal.SIGKILL))
    check_loss(made, "its actor was lost")


def test_a_killed_node(url: str, three: Nodes, store: Path) -> None:
    raylets: list[int] = []

    def lose() -> None:
        """The raylet of a node other than the head's, on which the driver is."""
        head = {process.process.pid for process in three.head.head_node.all_processes["raylet"]}
        raylets.extend(raylet for raylet in map(raylet_of, workers()) if raylet not in head)
        os.kill(raylets[0], signal.SIGKILL)

    made = run_with_a_loss(plan(url, three), store, lose)
    check_loss(made, "its node was lost")
    assert not is_alive(raylets[0])
    assert eventually(lambda: alive_nodes(three.address) == 2)
    (kept,) = node_folder().glob(f"{made.id}-*/log-*.bin")  # what did not come is still there
    stored = {record.session for record in read_log(kept).records}
    shard = int(kept.parent.name.rpartition("-")[2])
    assert made.records is not None
    delivered = {*made.records.session[made.records.shard == shard].tolist()}
    assert delivered <= stored
    kept.unlink()
    kept.parent.rmdir()


def test_a_killed_driver_leaves_a_partial_run_and_no_worker(url: str, three: Nodes, store: Path) -> None:
    command = inferometer(
        *("run", "--url", url, "--ray-address", three.address, "--workers", str(WORKERS), "--rate", str(RATE)),
        *("--duration", "60s", "--input-tokens", "16", "--output-tokens", "4", "--store", str(store)),
    )
    logs: list[Path] = []

    def delivered() -> bool:
        logs[:] = sorted(store.glob("runs/*/log-[0-9].bin"))
        return len(logs) == WORKERS and all(len(read_log(log).records) >= 20 for log in logs)

    assert eventually(delivered, 90), command.communicate()
    command.kill()
    command.communicate()
    assert eventually(lambda: not workers(), 30)
    recovered = partial_run(load_run(logs[0].parent), store)
    assert recovered.records is not None and len(recovered.records) >= 20 * WORKERS
    kept = sorted(node_folder().glob(f"{logs[0].parent.name}-*/log-*.bin"))
    assert len(kept) == WORKERS
    for copy, log in zip(sorted(logs), kept, strict=True):
        assert log.read_bytes().startswith(copy.read_bytes())  # the node has all of it, and more
        log.unlink()


def test_two_interrupts_cancel_within_a_second(url: str, three: Nodes, store: Path) -> None:
    command = inferometer(
        *("run", "--url", url, "--ray-address", three.address, "--workers", str(WORKERS), "--rate", "40"),
        *("--duration", "60s", "--input-tokens", "16", "--output-tokens", "8000", "--store", str(store), "--json"),
    )
    logs = lambda: sorted(store.glob("runs/*/log-[0-9].bin"))  # noqa: E731
    assert eventually(lambda: len(logs()) == WORKERS and len(workers()) == WORKERS, 90), command.communicate()
    assert eventually(lambda: all(b"start" in log.read_bytes() for log in logs()), 30)
    command.send_signal(signal.SIGINT)
    time.sleep(0.6)  # a person takes as long between two; two at once are one signal to a process
    began = time.monotonic()
    command.send_signal(signal.SIGINT)
    gone = eventually(lambda: not workers(), 20)
    took_s = time.monotonic() - began
    out, said = command.communicate(timeout=60)
    assert gone and command.returncode == 130, said
    assert out, said
    assert orjson.loads(out)["run"]["state"] == "interrupted"
    print(f"\nworkers were gone {took_s:.2f} s after the second interrupt", file=sys.stderr)
    assert took_s < 5  # 0.4 s on a quiet machine


def test_leftovers_of_a_run_are_gone(url: str, three: Nodes, store: Path) -> None:
    made = run(plan(url, three, stop={"requests": 30}), store=store)
    assert eventually(lambda: not list(node_folder().glob(f"{made.id}-*")))
    assert subprocess.run(["pgrep", "-f", made.id], capture_output=True).stdout == b""
