"""What belongs to others is neither changed nor removed when a stack is stood up or taken down, or a namespace cleaned;
and what is ours goes, however we are ended."""

import base64
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightkube.resources.batch_v1 import Job

from inferometer.cli import execute
from inferometer.errors import PlanError, TargetError
from inferometer.scale.kubernetes.client import Cluster, ClusterError, open_cluster
from inferometer.scale.kubernetes.collecting import clean_namespace
from inferometer.scale.kubernetes.launcher import Launcher
from inferometer.scale.kubernetes.manifests import (
    JobSettings,
    ObjectPlace,
    PodSettings,
    claim,
    config_map,
    job,
    owner,
    secret,
)
from inferometer.scale.kubernetes.stack import StackSettings, start_stack, take_down
from kubernetes_stand_in.clusters import TestedCluster

PLAN = "load: {concurrency: 2}\nstop: {requests: 20}\nworkload: {input_tokens: 50, output_tokens: 8}\n"


@pytest.fixture
def admin(cluster: TestedCluster, namespace: str) -> Cluster:
    return open_cluster(str(cluster.kubeconfig("admin", namespace)), namespace=namespace, retry_s=20)


def nothing(_text: str) -> None:
    pass


def stack_settings(namespace: str, **more: Any) -> StackSettings:
    usual: dict[str, Any] = {"name": "mine", "namespace": namespace, "server": "simulator", "port": 8127}
    return StackSettings(**usual | {"image": "local", "timeout_s": 60.0} | more)


def sleeping(name: str, **more: Any) -> dict[str, Any]:
    """A pod, as others make theirs."""
    container = {"name": "c", "image": "local", "command": ["sleep", "600"]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0, **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": f"of-others-{name}"}
    template = {"metadata": {"labels": labels}, "spec": sleeping(name)["spec"]}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize("name", ["mine", "mine-1"])
def test_a_name_that_others_use_is_not_taken(name: str, admin: Cluster, cluster: TestedCluster, namespace: str) -> None:
    cluster.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment(name))
    before = cluster.listing(namespace)
    with pytest.raises(PlanError, match=f"has a deployment {name} that is not ours"):
        start_stack(admin, stack_settings(namespace, replicas=2, router="round_robin"), nothing)
    assert take_down(admin, "mine", namespace, nothing) == []
    assert cluster.listing(namespace) == before


def test_a_secret_and_a_claim_of_others_stay_as_they_are(
    admin: Cluster, cluster: TestedCluster, namespace: str
) -> None:
    held = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "mine-hf-token"},
        "stringData": {"HF_TOKEN": "x"},
    }
    cluster.create(f"/api/v1/namespaces/{namespace}/secrets", held)
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    models = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "models"}, "spec": wanted}
    cluster.create(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", models)
    before = cluster.listing(namespace)
    broken = stack_settings(namespace, image="missing/image:1", timeout_s=2.0, token="of mine", claim="models")
    with pytest.raises(TargetError, match="was not ready"):
        start_stack(admin, broken, nothing)
    take_down(admin, "mine", namespace, nothing, data=True)
    cluster.until(lambda: cluster.listing(namespace) == before)
    kept = cluster.get(f"/api/v1/namespaces/{namespace}/secrets/mine-hf-token")
    assert base64.b64decode(kept["data"]["HF_TOKEN"]) == b"x"
    labels = cluster.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/models")["metadata"].get("labels")
    assert not labels


def test_a_claim_that_was_made_for_a_stack_goes_when_nobody_uses_it(
    admin: Cluster, cluster: TestedCluster, namespace: str
) -> None:
    before = cluster.listing(namespace)
    broken = stack_settings(namespace, image="missing/image:1", timeout_s=2.0, claim="models", claim_size="1Gi")
    with pytest.raises(TargetError):
        start_stack(admin, broken, nothing)
    volume = {"name": "models", "persistentVolumeClaim": {"claimName": "models"}}
    cluster.create(f"/api/v1/namespaces/{namespace}/pods", sleeping("user", volumes=[volume]))
    notes: list[str] = []
    assert take_down(admin, "mine", namespace, notes.append, data=True) == []
    assert notes == ["the claim models is kept, because other pods use it: user"]
    cluster.delete(f"/api/v1/namespaces/{namespace}/pods/user")
    cluster.until(lambda: not cluster.pods(namespace))
    assert take_down(admin, "mine", namespace, notes.append, data=True) == ["PersistentVolumeClaim models"]
    cluster.until(lambda: cluster.listing(namespace) == before)


def test_a_stack_that_stands_is_neither_changed_nor_taken_down(
    admin: Cluster, cluster: TestedCluster, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = cluster.listing(namespace)
    start_stack(admin, stack_settings(namespace, token="hf_of_mine"), nothing)
    standing = cluster.listing(namespace)
    assert len([one for one in standing - before if one.startswith("secrets/mine-hf-token-")]) == 1
    with pytest.raises(PlanError, match="already has a stack mine") as error:
        start_stack(admin, stack_settings(namespace, image="missing/image:1"), nothing)
    assert f"inferometer k8s down mine -p {namespace}" in str(error.value.hint)
    assert execute(e2e_words(cluster, namespace, tmp_path, "--stack-name", "mine")) == 2
    assert "already has a stack mine" in capsys.readouterr().err
    assert cluster.listing(namespace) == standing
    take_down(admin, "mine", namespace, nothing)
    cluster.until(lambda: cluster.listing(namespace) <= before)


# -- e2e ---------------------------------------------------------------------------------------------------------------


def e2e_words(cluster: TestedCluster, namespace: str, folder: Path, *words: str) -> list[str]:
    plan = folder / "plan.yaml"
    plan.write_text(PLAN)
    options = ["-p", namespace, "--server", "simulator", "--server-port", "8128", "--image", "local"]
    options += ["--kubeconfig", str(cluster.kubeconfig("admin", namespace)), "--store", str(folder / "store")]
    return ["k8s", "e2e", str(plan), *options, *words]


def test_a_dry_run_of_e2e_prints_and_makes_nothing(
    cluster: TestedCluster, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = cluster.listing(namespace)
    assert execute(e2e_words(cluster, namespace, tmp_path, "--dry-run")) == 0
    printed = capsys.readouterr().out
    kinds = [document["kind"] for document in yaml.safe_load_all(printed)]
    assert kinds == ["Service", "Deployment", "PersistentVolumeClaim", "Job", "ConfigMap", "ServiceAccount"]
    assert f"http://standalone.{namespace}.svc:8128" in printed
    assert cluster.listing(namespace) == before


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--skip"], "--skip: k8s e2e removes the stack at its end"),
        (["--debug"], "--debug: k8s e2e removes"),
        (["--wait", "0"], "--wait 0: k8s e2e removes"),
        (["-U", "http://elsewhere:1"], "measures the stack that it starts"),
        (["-t", "modelservice"], "measures the stack that it starts"),
        (["-m", "a,b"], "starts one model, got 2: a, b"),
        (["--set", "load.concurrency=0"], "load.concurrency"),
    ],
)
def test_what_e2e_cannot_do_is_refused_before_anything_stands(
    words: list[str], text: str, cluster: TestedCluster, namespace: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    before = cluster.listing(namespace)
    assert execute(e2e_words(cluster, namespace, tmp_path, *words)) == 2
    assert text in capsys.readouterr().err
    assert cluster.listing(namespace) == before


def test_the_stack_of_an_e2e_that_was_killed_belongs_to_a_job_that_ends(
    admin: Cluster, cluster: TestedCluster, namespace: str, tmp_path: Path
) -> None:
    before = cluster.listing(namespace)
    words = e2e_words(cluster, namespace, tmp_path, "--wait", "60", "--start-wait", "30", "--stack-timeout", "90s")
    words += ["--storage-class", "no-such-class"]
    process = subprocess.Popen([sys.executable, "-m", "inferometer", *words], stderr=subprocess.PIPE)
    try:
        cluster.until(lambda: "deployments/standalone" in cluster.listing(namespace))
    finally:
        process.kill()
        process.communicate()
    jobs = cluster.get(f"/apis/batch/v1/namespaces/{namespace}/jobs")["items"]
    owners = [one for one in jobs if one["metadata"]["name"].startswith("inferometer-stack-")]
    assert owners[0]["spec"]["activeDeadlineSeconds"] == 90 + (30 + 60 + 60) + 30 + 600
    for path in ("/api/v1/namespaces/{}/services/standalone", "/apis/apps/v1/namespaces/{}/deployments/standalone"):
        references = cluster.get(path.format(namespace))["metadata"]["ownerReferences"]
        assert [one["uid"] for one in references] == [owners[0]["metadata"]["uid"]]
    assert f"Job {owners[0]['metadata']['name']}" in clean_namespace(admin, namespace).running
    admin.delete(Job, owners[0]["metadata"]["name"])  # as the time to live does
    clean_namespace(admin, namespace, running=True)
    left = before | {"persistentvolumeclaims/workload-pvc"}
    cluster.until(lambda: cluster.listing(namespace) <= left)


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


def test_ctrl_c_before_a_pod_runs_waits_for_nothing(cluster: TestedCluster, namespace: str, tmp_path: Path) -> None:
    """The claim never gets a volume: a collector would wait for it, too."""
    before = cluster.listing(namespace)
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    words = ["k8s", "run", str(plan), "-p", namespace, "-U", "http://127.0.0.1:9", "--image", "local", "-j", "2"]
    words += ["--pvc-size", "900Ti", "--cpu", "100m", "--memory", "256Mi", "--start-wait", "300"]
    words += ["--kubeconfig", str(cluster.kubeconfig("admin", namespace)), "--store", str(tmp_path / "store")]
    process = subprocess.Popen([sys.executable, "-m", "inferometer", *words], stderr=subprocess.PIPE, text=True)
    cluster.until(lambda: len(cluster.pods(namespace)) == 2)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "interrupted before a pod ran: there is nothing to collect" in told
    cluster.until(lambda: cluster.listing(namespace) == before)


# -- clean -------------------------------------------------------------------------------------------------------------


def test_clean_takes_one_experiment_and_not_one_of_a_similar_name(
    admin: Cluster, cluster: TestedCluster, namespace: str
) -> None:
    for run in ("nightly-0a1b2c", "nightly-2-0a1b2c", "nightly"):
        admin.apply(config_map(ObjectPlace(namespace, run), f"of-{run}", {}))
    admin.apply(secret(ObjectPlace(namespace, "nightly", "of a person"), "of-others", {}))
    assert sorted(clean_namespace(admin, namespace, "nightly").removed) == [
        "ConfigMap of-nightly", "ConfigMap of-nightly-0a1b2c",
    ]  # fmt: skip
    assert clean_namespace(admin, namespace).removed == ["ConfigMap of-nightly-2-0a1b2c"]
    assert "secrets/of-others" in cluster.listing(namespace)


def test_clean_leaves_a_run_alone_that_begins_meanwhile(
    admin: Cluster, cluster: TestedCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Job and what it owns come between the two lists that clean asks for."""
    pod = PodSettings(image="local", command=["true"])
    listed = Cluster.all

    def all_after(self: Cluster, kind: Any, *others: Any, **more: Any) -> list[Any]:
        things = listed(self, kind, *others, **more)
        if self.read(Job, "begins") is None:
            place = ObjectPlace(namespace, "begins-0a1b2c")
            made = self.apply(job(place, "begins", pod, JobSettings(parallelism=0)))
            self.apply(config_map(ObjectPlace(namespace, "begins-0a1b2c", owners=(owner(made),)), "of-begins", {}))
        return things

    monkeypatch.setattr(Cluster, "all", all_after)
    done = clean_namespace(admin, namespace)
    assert (done.removed, done.running) == ([], ["Job begins"])
    assert "configmaps/of-begins" in cluster.listing(namespace)


def test_clean_takes_no_claim_of_others_and_none_that_is_used(
    admin: Cluster, cluster: TestedCluster, namespace: str
) -> None:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    theirs = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "theirs"}, "spec": wanted}
    cluster.create(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", theirs)
    done = clean_namespace(admin, namespace, claim="theirs")
    assert done.removed == [] and "existed before and is kept: kubectl" in done.kept[0]

    admin.apply(claim(ObjectPlace(namespace, "workload-pvc", "results"), "workload-pvc", "1Gi"))
    volume = {"name": "results", "persistentVolumeClaim": {"claimName": "workload-pvc"}}
    cluster.create(f"/api/v1/namespaces/{namespace}/pods", sleeping("user", volumes=[volume]))
    done = clean_namespace(admin, namespace, claim="workload-pvc")
    assert done.removed == [] and done.kept == ["the claim workload-pvc is kept, because pods use it: user"]
    cluster.delete(f"/api/v1/namespaces/{namespace}/pods/user")
    cluster.until(lambda: not cluster.pods(namespace))
    assert clean_namespace(admin, namespace, claim="workload-pvc").removed == ["PersistentVolumeClaim workload-pvc"]
    cluster.until(lambda: "persistentvolumeclaims/workload-pvc" not in cluster.listing(namespace))
    assert "persistentvolumeclaims/theirs" in cluster.listing(namespace)


def test_jobs_of_which_only_some_could_be_made_are_removed(
    admin: Cluster, cluster: TestedCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferometer.scale.kubernetes.launcher.has_indexed_jobs", lambda *_: False)
    cluster.add_quota(namespace, count__jobs_batch="1")
    before = cluster.listing(namespace)
    pod = PodSettings(image="local", command=["true"])
    launcher = Launcher(admin, ObjectPlace(namespace, "some"), "some", pod, JobSettings(pods=2))
    with pytest.raises(ClusterError, match="exceeded quota"):
        launcher.create()
    assert "jobs/some-0" in cluster.listing(namespace)
    launcher.remove()
    cluster.until(lambda: cluster.listing(namespace) == before)
