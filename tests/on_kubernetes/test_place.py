"""Workers as pods of a cluster: `inferometer run --on kubernetes`, against the simulator."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stacks import check_shown

import inferometer
from inferometer.conduct.search import search
from inferometer.errors import InferometerError, LostError, PlanError
from inferometer.judge.search import SearchBounds
from inferometer.load.progress import Progress
from inferometer.plan.model import Plan, Server
from inferometer.plan.reading import plan_from
from inferometer.plan.text import to_mapping
from inferometer.record.gather import ClockReading
from inferometer.record.run import Run
from inferometer.scale.kubernetes.client import ClusterError, open_cluster
from inferometer.scale.kubernetes.manifests import LAUNCHING, ObjectPlace, claim
from inferometer.scale.remote import ClockLog
from inferometer.store.store import open_store
from inferometer.target.server import running
from kubernetes_stand_in.clusters import TestedCluster, thorough
from kubernetes_stand_in.node import has_namespaces

SHIFT_S = 5000  # by which the clocks of a node run ahead


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(Server(args={"speed": 5}), tmp_path_factory.mktemp("server")) as server:
        yield server.url


def plan(
    cluster: TestedCluster, namespace: str, url: str, requests: int = 40, user: str = "admin", **more: Any
) -> Plan:
    settings = {"kubeconfig": str(cluster.kubeconfig(user, namespace)), "namespace": namespace, "cpu": "10m"}
    return plan_from(
        {
            "target": {"url": url},
            "load": {"rate": 40},
            "stop": {"requests": requests},
            "warmup": {"requests": 0},
            "workload": {"type": "synthetic", "input_tokens": 20, "output_tokens": 5},
            "workers": 2,
            "place": "kubernetes",
            "kubernetes": {"memory": "64Mi", "timeout": 60, **settings, **more},
        }
    )


def test_the_shards_of_a_run_as_pods(cluster: TestedCluster, namespace: str, url: str, store: Path) -> None:
    before = cluster.listing(namespace)
    run = inferometer.run(plan(cluster, namespace, url), store=store)
    assert run.state == "complete"
    assert run.records is not None and len(run.records) == 40
    assert set(run.records.shard.tolist()) == {0, 1}
    cluster.until(lambda: cluster.listing(namespace) <= before)


def test_a_search_runs_on_pods_and_its_steps_end_when_all_workers_together_missed_the_limit(
    cluster: TestedCluster, namespace: str, url: str, store: Path
) -> None:
    """What a step looks at while it runs comes from the logs of both pods; told to end, they end long before time."""
    before = cluster.listing(namespace)
    limited = plan_from(to_mapping(plan(cluster, namespace, url)) | {"limits": ["e2e p50 < 1us"], "load": {"rate": 60}})
    searched = search(limited, SearchBounds(start=60.0, least=60.0, most=60.0, steps=1), step_s=60.0, store=store)
    (step,) = searched.steps
    assert step.run is not None
    run = open_store(store).load(step.run)
    assert run.summary.goal is not None and run.summary.goal.status == "lost"
    assert run.records is not None and set(run.records.shard.tolist()) == {0, 1}
    assert (run.summary.window.run_s or 0.0) < 50
    cluster.until(lambda: cluster.listing(namespace) <= before)


def test_records_come_back_from_a_claim(cluster: TestedCluster, namespace: str, url: str, store: Path) -> None:
    volume = cluster.add_volume("1Gi", f"of-{namespace}")
    with open_cluster(str(cluster.kubeconfig("admin", namespace)), namespace=namespace) as admin:
        admin.apply(claim(ObjectPlace(namespace, "records"), "records", "1Gi", f"of-{namespace}"))
    before = cluster.listing(namespace)
    run = inferometer.run(plan(cluster, namespace, url, claim="records"), store=store)
    assert run.state == "complete"
    assert run.records is not None and len(run.records) == 40
    assert set(run.records.shard.tolist()) == {0, 1}
    assert [*volume.iterdir()] == []
    cluster.until(lambda: cluster.listing(namespace) <= before)
    with pytest.raises(PlanError, match=f"namespace {namespace} has no persistent volume claim nowhere") as error:
        inferometer.run(plan(cluster, namespace, url, claim="nowhere"), store=store)
    assert "get pvc" in (error.value.hint or "")
    cluster.until(lambda: cluster.listing(namespace) <= before)


@thorough
def test_what_a_lost_pod_wrote_to_a_claim_is_kept(
    cluster: TestedCluster, namespace: str, url: str, store: Path
) -> None:
    volume = cluster.add_volume("1Gi", f"of-{namespace}")
    with open_cluster(str(cluster.kubeconfig("admin", namespace)), namespace=namespace) as admin:
        admin.apply(claim(ObjectPlace(namespace, "records"), "records", "1Gi", f"of-{namespace}"))
    run = _run_and(cluster, namespace, url, store, lambda name: _evicting(cluster)(name, namespace), claim="records")
    assert run.state == "failed"
    assert run.records is not None and set(run.records.shard.tolist()) == {0, 1}
    assert [*volume.iterdir()] == []


@thorough
def test_the_rights_that_are_needed(cluster: TestedCluster, namespace: str, url: str, store: Path) -> None:
    """Those that `k8s rights` prints for the namespace of the pods, also where the records are on a claim."""
    cluster.add_volume("1Gi", f"of-{namespace}")
    with open_cluster(str(cluster.kubeconfig("admin", namespace)), namespace=namespace) as admin:
        admin.apply(claim(ObjectPlace(namespace, "records"), "records", "1Gi", f"of-{namespace}"))
    wanted = plan(cluster, namespace, url, user="alice", claim="records")
    with pytest.raises(ClusterError, match="forbidden") as error:
        inferometer.run(wanted, store=store)
    assert "rights" in (error.value.hint or "")
    cluster.grant("alice", namespace, [rule.to_dict() for rule in LAUNCHING])
    run = cluster.until(lambda: _tried(wanted, store))
    assert run.state == "complete"


def _tried(wanted: Plan, store: Path) -> Run | None:
    try:
        return inferometer.run(wanted, store=store)
    except ClusterError:
        return None


def test_an_image_that_cannot_be_pulled(cluster: TestedCluster, namespace: str, url: str, store: Path) -> None:
    before = cluster.listing(namespace)
    with pytest.raises(InferometerError, match="ImagePullBackOff") as error:
        inferometer.run(plan(cluster, namespace, url, image="missing/image:1", timeout=1), store=store)
    check_shown(error.value, 'Failed to pull image "missing/image:1"')
    cluster.until(lambda: cluster.listing(namespace) <= before)


def test_no_room_for_the_pods(cluster: TestedCluster, namespace: str, url: str, store: Path) -> None:
    with pytest.raises(LostError, match="did not start within") as error:
        inferometer.run(plan(cluster, namespace, url, cpu="500", timeout=1), store=store)
    check_shown(error.value, "FailedScheduling")


@thorough
def test_a_pod_that_is_lost_and_the_other_goes_on(
    cluster: TestedCluster, namespace: str, url: str, store: Path
) -> None:
    for how, lose in (("evicted", _evicting(cluster)), ("deleted", _deleting(cluster))):
        run = _run_and(cluster, namespace, url, store, lambda name, lose=lose: lose(name, namespace))  # type: ignore[misc]
        assert run.state == "failed", how
        assert run.verdict is not None
        assert any("pod" in doubt.text for doubt in run.verdict.doubts), how
        assert run.records is not None and len(run.records) > 200
        cluster.until(lambda: not cluster.pods(namespace))


def _evicting(cluster: TestedCluster) -> Callable[[str, str], None]:
    """By whichever node has the pod."""
    return lambda name, namespace: next(node for node in cluster.nodes if node.pod(namespace, name)).evict(
        name, namespace
    )


def _deleting(cluster: TestedCluster) -> Callable[[str, str], None]:
    return lambda name, namespace: cluster.delete(f"/api/v1/namespaces/{namespace}/pods/{name}")


@thorough
def test_the_api_server_restarts_during_the_load(cluster: TestedCluster, namespace: str, url: str, store: Path) -> None:
    def restart(_name: str) -> None:
        cluster.stop_api()
        cluster.start_api()

    run = _run_and(cluster, namespace, url, store, restart)
    assert run.state == "complete"
    assert run.records is not None and len(run.records) == 400


def _run_and(
    cluster: TestedCluster, namespace: str, url: str, store: Path, act: Callable[[str], None], **settings: Any
) -> Run:
    """A run of ten seconds during which something happens to the pod of shard 1, once it has sent some."""
    acted: list[threading.Thread] = []

    def watch(progress: Progress) -> None:
        if progress.shard == 1 and progress.done > 5 and not acted:
            pod = next(one for one in cluster.pods(namespace) if one["metadata"]["name"].endswith("-1"))
            acted.append(threading.Thread(target=act, args=(pod["metadata"]["name"],)))
            acted[0].start()

    run = inferometer.run(plan(cluster, namespace, url, requests=400, **settings), store=store, watch=watch)
    acted[0].join()
    return run


@thorough
@pytest.mark.skipif(not has_namespaces(), reason="needs a time namespace")
def test_clocks_of_other_hosts_are_measured(
    cluster: TestedCluster,
    namespace: str,
    url: str,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    readings: list[ClockReading] = []
    read = ClockLog.read

    def noted(clocks: ClockLog, *arguments: Any) -> ClockReading:
        readings.append(read(clocks, *arguments))
        return readings[-1]

    monkeypatch.setattr(ClockLog, "read", noted)
    node = cluster.add_node("ahead", labels={"ahead": "yes"}, shift_s=SHIFT_S)
    try:
        selector: dict[str, Any] = {"node_selector": {"ahead": "yes"}}
        run = inferometer.run(plan(cluster, namespace, url, requests=120, **selector), store=store)
    finally:
        cluster.remove_node(node)
    assert run.state == "complete"
    assert run.records is not None and len(run.records) == 120
    assert len(readings) >= 2  # before and after
    assert all(abs(reading.ahead_ns + SHIFT_S * 10**9) <= reading.error_ns for reading in readings)
    with capsys.disabled():
        errors = ", ".join(f"{reading.error_ns / 1e6:.2f}" for reading in readings)
        print(f"\nclocks of pods, uncertain by {errors} ms")


@thorough
def test_a_node_that_is_gone(cluster: TestedCluster, namespace: str, url: str, store: Path) -> None:
    node = cluster.add_node("second", labels={"second": "yes"})

    def lose(_name: str) -> None:
        node.stop()

    settings = {"node_selector": {"second": "yes"}}
    run = _run_and(cluster, namespace, url, store, lose, **settings)
    cluster.delete("/api/v1/nodes/second")
    cluster.nodes.remove(node)
    assert run.state == "failed"
    assert run.verdict is not None and any("pod" in doubt.text for doubt in run.verdict.doubts)
    assert run.records is not None and len(run.records) > 5
