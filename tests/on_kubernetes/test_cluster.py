"""What tests and product rely on, of the stand-in and of a real API server alike."""

import threading

import pytest
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import ConfigMap, PersistentVolumeClaim, Pod

from inferometer.scale.kubernetes.client import Cluster, ClusterError, open_cluster
from inferometer.scale.kubernetes.manifests import (
    JobSettings,
    ObjectPlace,
    PodSettings,
    claim,
    config_map,
    job,
    owner,
    role,
    role_binding,
    rule,
    secret,
    service_account,
)
from kubernetes_stand_in.clusters import TestedCluster, is_real


@pytest.fixture
def admin(cluster: TestedCluster, namespace: str) -> Cluster:
    return open_cluster(str(cluster.kubeconfig("admin", namespace)), namespace=namespace, retry_s=20)


def shell(script: str, **more: object) -> PodSettings:
    return PodSettings(image="local", command=["sh", "-c", script], **more)  # type: ignore[arg-type]


def test_apply_owns_its_fields_and_drops_those_no_longer_applied(admin: Cluster, namespace: str) -> None:
    place = ObjectPlace(namespace, "r1")
    first = admin.apply(config_map(place, "one", {"a": "1", "b": "2"}))
    assert first.metadata is not None and first.metadata.managedFields is not None
    assert first.metadata.managedFields[0].manager == "inferometer"
    second = admin.apply(config_map(place, "one", {"a": "3"}))
    assert second.data == {"a": "3"}
    assert second.metadata is not None and second.metadata.uid == first.metadata.uid


def test_a_dry_run_keeps_nothing(admin: Cluster, namespace: str) -> None:
    admin.apply(config_map(ObjectPlace(namespace, "r1"), "dry", {"a": "1"}), dry_run=True)
    assert admin.read(ConfigMap, "dry") is None


def test_a_job_runs_its_pods_and_their_logs_are_followed(
    admin: Cluster, cluster: TestedCluster, namespace: str
) -> None:
    script = "echo begun; for i in $(seq 600); do [ -e $GATE ] && break; sleep .05; done; echo $WHO ended"
    settings = shell(script, environment={"WHO": "x", "GATE": "/tmp/gate"})
    admin.apply(job(ObjectPlace(namespace, "r1"), "two", settings, JobSettings(pods=2)))
    pods = cluster.until(lambda: _phases(admin, "Running", 2))
    lines = admin.log(pods[0].metadata.name, follow=True)
    assert next(lines) == "begun"
    for pod in pods:
        (cluster.node.pod(namespace, pod.metadata.name).folder / "volumes/tmp/gate").touch()
    assert [*lines] == ["x ended"]
    cluster.until(lambda: (found := admin.read(Job, "two")) and found.status and found.status.succeeded == 2)
    assert admin.delete(Job, "two")
    cluster.until(lambda: not admin.all(Pod))


def _phases(admin: Cluster, phase: str, count: int) -> list[Pod]:
    found = [pod for pod in admin.all(Pod) if pod.status and pod.status.phase == phase]
    return found if len(found) >= count else []


def test_an_indexed_job_where_the_server_has_it(admin: Cluster, cluster: TestedCluster, namespace: str) -> None:
    manifest = job(
        ObjectPlace(namespace, "r1"), "indexed", shell("echo $JOB_COMPLETION_INDEX"), JobSettings(pods=2, indexed=True)
    )
    if is_real():  # 1.20
        with pytest.raises(ClusterError, match="completionMode"):
            admin.apply(manifest)
        return
    admin.apply(manifest)
    pods = cluster.until(lambda: _phases(admin, "Succeeded", 2))
    assert sorted(next(admin.log(pod.metadata.name)) for pod in pods) == ["0", "1"]


def test_a_deadline_ends_a_job_whose_image_never_comes(admin: Cluster, cluster: TestedCluster, namespace: str) -> None:
    pod = PodSettings(image="missing/image:1", command=["true"])
    admin.apply(job(ObjectPlace(namespace, "r1"), "never", pod, JobSettings(deadline_s=3)))
    waiting = cluster.until(lambda: [one for one in admin.all(Pod) if one.status and one.status.containerStatuses])
    assert waiting[0].status.containerStatuses[0].state.waiting.reason == "ImagePullBackOff"
    failed = cluster.until(lambda: (found := admin.read(Job, "never")) and found.status.conditions and found)
    assert failed.status.conditions[0].reason == "DeadlineExceeded"
    cluster.until(lambda: not admin.all(Pod))


def test_a_job_that_nobody_looks_after_ends_and_goes_with_all_that_it_owns(
    admin: Cluster, cluster: TestedCluster, namespace: str
) -> None:
    """Its deadline ends it, its time to live removes it, and the garbage collector the rest."""
    before, place = cluster.listing(namespace), ObjectPlace(namespace, "r1")
    pod = PodSettings(image="missing/image:1", command=["true"])
    owners = (owner(admin.apply(job(place, "left", pod, JobSettings(deadline_s=3, keep_s=1)))),)
    of_job = ObjectPlace(namespace, "r1", owners=owners)
    rules = [rule("", "pods", "list")]
    for thing in (
        config_map(of_job, "of-left", {}), secret(of_job, "of-left", {"a": "b"}), service_account(of_job, "of-left"),
        role(of_job, "of-left", rules), role_binding(of_job, "of-left"),
    ):  # fmt: skip
        admin.apply(thing)
    assert {"jobs/left", "roles/of-left", "rolebindings/of-left"} <= cluster.listing(namespace)
    cluster.until(lambda: cluster.listing(namespace) == before)


def test_what_a_job_owns_goes_with_it(admin: Cluster, cluster: TestedCluster, namespace: str) -> None:
    place = ObjectPlace(namespace, "r1")
    made = admin.apply(job(place, "owner", shell("sleep 60", grace_s=1), JobSettings()))
    admin.apply(config_map(ObjectPlace(namespace, "r1", owners=(owner(made),)), "owned", {}))
    before = cluster.listing(namespace)
    assert {"jobs/owner", "configmaps/owned"} <= before
    cluster.until(lambda: _phases(admin, "Running", 1))
    admin.delete(Job, "owner")
    cluster.until(lambda: not cluster.listing(namespace) & before - _of_everyone(before))


def _of_everyone(listing: set[str]) -> set[str]:
    """What every namespace has."""
    return {one for one in listing if "default" in one or "kube-root-ca" in one}


def test_without_rights_nothing_is_done(cluster: TestedCluster, namespace: str) -> None:
    alice = open_cluster(str(cluster.kubeconfig("alice", namespace)), namespace=namespace)
    with pytest.raises(ClusterError, match="forbidden") as error:
        alice.apply(config_map(ObjectPlace(namespace, "r1"), "one", {}))
    assert error.value.code == 403
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch", "get"]}]
    cluster.grant("alice", namespace, rules)
    cluster.until(lambda: _may(alice, namespace))
    with pytest.raises(ClusterError, match="forbidden"):
        alice.all(Pod)


def _may(who: Cluster, namespace: str) -> bool:
    try:
        return bool(who.apply(config_map(ObjectPlace(namespace, "r1"), "one", {})))
    except ClusterError:
        return False


def test_a_quota_is_refused_with_its_name(admin: Cluster, cluster: TestedCluster, namespace: str) -> None:
    cluster.add_quota(namespace, count__jobs_batch="0")
    with pytest.raises(ClusterError, match="exceeded quota: quota"):
        admin.apply(job(ObjectPlace(namespace, "r1"), "much", shell("true"), JobSettings()))


def test_a_claim_is_bound_to_a_volume_that_suits(admin: Cluster, cluster: TestedCluster, namespace: str) -> None:
    place = ObjectPlace(namespace, "r1")
    kept = cluster.add_volume("1Gi", "of-ours")
    admin.apply(claim(place, "data", "1Gi", "of-ours"))
    admin.apply(claim(place, "never", "1Gi", "no-such-class"))
    cluster.until(
        lambda: (one := admin.read(PersistentVolumeClaim, "data")) and one.status and one.status.phase == "Bound"
    )
    pod = shell("echo kept > $DATA/file", claims={"/requests": "data"}, environment={"DATA": "/requests"})
    admin.apply(job(place, "writes", pod, JobSettings()))
    cluster.until(lambda: (found := admin.read(Job, "writes")) and found.status and found.status.succeeded == 1)
    assert (kept / "file").read_text() == "kept\n"
    never = admin.read(PersistentVolumeClaim, "never")
    assert never is not None and never.status is not None and never.status.phase == "Pending"


def test_a_restart_of_the_server_is_waited_for(admin: Cluster, cluster: TestedCluster, namespace: str) -> None:
    admin.apply(config_map(ObjectPlace(namespace, "r1"), "kept", {"a": "1"}))
    cluster.stop_api()
    restart = threading.Thread(target=cluster.start_api)
    restart.start()
    found = admin.read(ConfigMap, "kept")
    restart.join()
    assert found is not None and found.data == {"a": "1"}
