"""A stack is started, measured and removed: `inferometer k8s up`, `down` and `e2e`."""

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from stacks import Stack, calibrated, check_shown

from inferometer.cli import execute
from inferometer.errors import PlanError, TargetError
from inferometer.scale.kubernetes.client import Cluster, open_cluster
from inferometer.scale.kubernetes.endpoints import endpoint_of
from inferometer.scale.kubernetes.stack import (
    StackSettings,
    owner_manifest,
    stack_manifests,
    start_stack,
    take_down,
)
from inferometer.store.store import open_store
from kubernetes_stand_in.clusters import TestedCluster, thorough
from kubernetes_stand_in.node import has_namespaces

needs_names = pytest.mark.skipif(not has_namespaces(), reason="names of services need a mount namespace")
VERSIONS = ("1.25", "1.37")


@pytest.fixture
def admin(cluster: TestedCluster, namespace: str) -> Cluster:
    return opened(cluster, namespace, "admin")


def opened(cluster: TestedCluster, namespace: str, user: str) -> Cluster:
    return open_cluster(str(cluster.kubeconfig(user, namespace)), namespace=namespace, retry_s=20)


def simulator(namespace: str, **more: object) -> StackSettings:
    usual = {"namespace": namespace, "server": "simulator", "port": 8124, "timeout_s": 90.0, "args": ("speed=20",)}
    return StackSettings(**usual | more)  # type: ignore[arg-type]


def test_the_manifests_are_valid_for_old_and_new_versions() -> None:
    whole = StackSettings(
        namespace="bench", model="Qwen/Qwen3-0.6B", replicas=2, router="prefix_aware", gpus=1, cpu="4", memory="16Gi",
        token="hf_secret", claim="models", node_selector={"gpu": "yes"}, tolerations=("nvidia.com/gpu",),
    )  # fmt: skip
    things = [thing.to_dict() for thing in stack_manifests(whole)]
    assert [one["kind"] for one in things] == [
        *("PersistentVolumeClaim", "Service", "Secret"), *("Service", "Deployment") * 2, "Deployment",
    ]  # fmt: skip
    things.append(owner_manifest(whole, 60.0).to_dict())
    for version in VERSIONS:
        for one in things:
            kubernetes_validate.validate(one, version, strict=True)
    pod = things[4]["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
    assert pod["nodeSelector"] == {"gpu": "yes"} and pod["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert {one["name"] for one in pod["containers"][0]["env"]} == {"HF_HOME", "HF_TOKEN", "INFEROMETER_POD_ADDRESS"}
    router = things[-2]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert router[router.index("--ready") + 1] == "900s", (
        "a router that ends while vLLM loads is taken for a broken one"
    )


def test_mistakes_are_told_all_at_once(admin: Cluster, namespace: str) -> None:
    with pytest.raises(PlanError, match=r"--model is missing(.|\n)*--replicas"):
        start_stack(admin, StackSettings(namespace=namespace, replicas=0), lambda _: None)
    text = r"--gpus must be at least 0, got -1(.|\n)*--router must be one of .*, got nosuch(.|\n)*--server-cpu"
    with pytest.raises(PlanError, match=text):
        start_stack(admin, simulator(namespace, gpus=-1, router="nosuch", cpu="many"), lambda _: None)


def test_a_stack_that_never_gets_ready_is_taken_down(admin: Cluster, cluster: TestedCluster, namespace: str) -> None:
    before = cluster.listing(namespace)
    with pytest.raises(TargetError, match="ImagePullBackOff") as error:
        start_stack(admin, simulator(namespace, image="missing/image:1", timeout_s=2.0), lambda _: None)
    assert "--stack-timeout" in str(error.value.hint)
    check_shown(error.value, 'Failed to pull image "missing/image:1"')
    cluster.until(lambda: cluster.listing(namespace) <= before)


def test_a_server_that_ends_is_said_with_the_end_of_its_log(
    admin: Cluster, cluster: TestedCluster, namespace: str
) -> None:
    before = cluster.listing(namespace)
    with pytest.raises(
        TargetError, match=r"CrashLoopBackOff(.|\n)*the end of its log:\n(.|\n)*no-such-setting"
    ) as error:
        start_stack(admin, simulator(namespace, image="local", args=("no-such-setting=1",)), lambda _: None)
    check_shown(error.value, "back-off restarting failed container")
    cluster.until(lambda: cluster.listing(namespace) <= before)


def test_a_stack_goes_when_its_end_is_interrupted_too(
    admin: Cluster, cluster: TestedCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C pressed twice: once while it is waited for, once while it is removed."""
    before = cluster.listing(namespace)
    removed: list[str] = []
    delete = admin.delete

    def delete_second(kind: Any, name: str, *others: Any, **more: Any) -> bool:
        removed.append(name)
        if len(removed) == 1:
            raise KeyboardInterrupt
        return delete(kind, name, *others, **more)

    def interrupt(_text: str) -> None:
        if not removed:
            raise KeyboardInterrupt

    monkeypatch.setattr(admin, "delete", delete_second)
    with pytest.raises(KeyboardInterrupt):
        start_stack(admin, simulator(namespace, image="missing/image:1"), interrupt)
    assert len(removed) > 1
    cluster.until(lambda: cluster.listing(namespace) <= before)


@thorough
@needs_names
def test_a_fleet_behind_our_router_with_no_more_than_the_printed_rights(
    cluster: TestedCluster, namespace: str, tmp_path: Path
) -> None:
    before = cluster.listing(namespace)
    notes: list[str] = []
    volume = cluster.add_volume("1Gi", f"of-{namespace}")
    kept: dict[str, object] = {"claim": "models", "claim_size": "1Gi", "storage_class": f"of-{namespace}"}
    fleet = simulator(namespace, name="fleet", replicas=2, router="round_robin", **kept)
    with (
        Stack(cluster, namespace, volume, tmp_path).rights_of("bob", up=True),
        opened(cluster, namespace, "bob") as bob,
    ):
        start_stack(bob, fleet, notes.append)
        assert any(f"http://fleet.{namespace}.svc:8124" in note for note in notes)
        assert {"deployments/fleet", "deployments/fleet-0", "deployments/fleet-1"} <= cluster.listing(namespace)
        endpoint = endpoint_of(bob, namespace, "fleet")
        assert (endpoint.url, endpoint.ready) == (f"http://fleet.{namespace}.svc:8124", 1)
        assert sorted(pod[:8] for pod in endpoint.pods) == ["fleet-0-", "fleet-1-"], "not the router's"
        assert len(endpoint.metrics) == 2
        removed = take_down(bob, "fleet", namespace, notes.append, data=True)
    assert len(removed) == 7
    cluster.until(lambda: cluster.listing(namespace) <= before)


@thorough
@needs_names
def test_stood_up_measured_and_taken_down(
    cluster: TestedCluster, namespace: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    volume = calibrated(cluster.add_volume("20Gi", f"of-{namespace}"))
    before = cluster.listing(namespace)
    plan = tmp_path / "plan.yaml"
    plan.write_text("load: {concurrency: 2}\nstop: {requests: 20}\nworkload: {input_tokens: 50, output_tokens: 8}\n")
    words = ["k8s", "e2e", str(plan), "-p", namespace, "--server", "simulator", "--server-port", "8125"]
    words += ["--kubeconfig", str(cluster.kubeconfig("bob", namespace)), "--image", "local", "--cpu", "100m"]
    words += ["--memory", "256Mi", "--storage-class", f"of-{namespace}", "--store", str(store)]
    with Stack(cluster, namespace, volume, tmp_path).rights_of("bob", up=True):
        code = execute(words)
    printed = capsys.readouterr()
    assert "stored as" in printed.out, printed.err
    assert code in (0, 4), printed.err
    seen = next(store.glob("kubernetes/*/results/*_standalone/metrics/processed"))
    assert [one["name"] for one in json.loads((seen / "replica_status.json").read_text())] == ["standalone"]
    samples = open_store(store).load("latest").samples
    assert samples is not None and any("running" in samples.sample(at).name for at in range(len(samples)))
    cluster.until(lambda: cluster.listing(namespace) - before <= {"persistentvolumeclaims/workload-pvc"})
