"""The chart and the kustomize folders of a benchmark by schedule: valid for every version, and their Job runs."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from stacks import calibrated

from inferometer.plan.model import Server
from inferometer.store.store import open_store
from inferometer.target.server import running
from kubernetes_stand_in.charts import chart, kustomized
from kubernetes_stand_in.clusters import ALL_ENV, TestedCluster, thorough
from kubernetes_stand_in.node import has_namespaces

DEPLOY = Path(__file__).parents[2] / "deploy"
EVERY = [f"1.{minor}" for minor in range(25, 38)]
VERSIONS = EVERY if os.environ.get(ALL_ENV) == "1" else ["1.25", "1.37"]  # one takes 0.1 s and more
FULL = {
    "timeZone": "Europe/Berlin",
    "imagePullSecrets": [{"name": "registry"}],
    "store": "",
    "records": "s3://bucket/runs",
    "existingSecret": "keys",
    "notify": "slack",
    "persistence": {"enabled": False},
    "nodeSelector": {"kind": "load"},
    "tolerations": [{"key": "load", "operator": "Exists"}],
}


def check(things: list[dict[str, Any]], versions: list[str]) -> None:
    for one in things:
        for version in versions:
            kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize("folder", ["base", "postgres", "s3"])
def test_kustomize_is_valid_for_old_and_new_versions(folder: str) -> None:
    things = kustomized(DEPLOY / "kustomize" / folder)
    assert sorted(one["kind"] for one in things) == [
        *("ConfigMap", "ConfigMap", "CronJob", "PersistentVolumeClaim", "ServiceAccount")
    ]
    check(things, VERSIONS)


def test_the_chart_is_valid_for_old_and_new_versions() -> None:
    usual = chart(DEPLOY / "chart", "nightly")
    assert [one["kind"] for one in usual] == ["CronJob", "ServiceAccount", "ConfigMap", "PersistentVolumeClaim"]
    check(usual, VERSIONS)
    full = chart(DEPLOY / "chart", "nightly", FULL)
    check(full, [version for version in VERSIONS if version not in ("1.25", "1.26")])  # timeZone
    container = full[0]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    assert [one["name"] for one in container["env"]] == ["JOB", "PLAN", "INFEROMETER_RECORDS", "INFEROMETER_NOTIFY"]
    assert yaml.safe_load(usual[2]["data"]["plan.yaml"])["load"] == {"rate": 5}


def test_both_run_the_same_script() -> None:
    assert (DEPLOY / "chart/benchmark.sh").read_text() == (DEPLOY / "kustomize/base/benchmark.sh").read_text()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl")
@thorough
@pytest.mark.parametrize("folder", ["base", "postgres", "s3"])
def test_kubectl_makes_the_same_of_it(folder: str) -> None:
    path = DEPLOY / "kustomize" / folder
    ended = subprocess.run(["kubectl", "kustomize", str(path)], capture_output=True, text=True)
    if ended.returncode:
        pytest.skip(f"this kubectl has no kustomize of our version: {ended.stderr[:100]}")
    theirs = {one["kind"]: one for one in yaml.safe_load_all(ended.stdout)}
    ours = {one["kind"]: one for one in kustomized(path)}
    assert theirs["PersistentVolumeClaim"] == ours["PersistentVolumeClaim"]
    first, second = (found["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"] for found in (theirs, ours))
    assert first["containers"] == second["containers"]


@thorough
@pytest.mark.skipif(not has_namespaces(), reason="the script has paths of the pod")
def test_its_job_measures_and_checks(cluster: TestedCluster, namespace: str, tmp_path: Path) -> None:
    volume = calibrated(cluster.add_volume("20Gi"), "")
    base = f"/api/v1/namespaces/{namespace}"
    with running(Server(args={"speed": 20}), tmp_path) as server:
        plan = {"target": {"url": server.url}, "load": {"concurrency": 2}, "stop": {"requests": 20}}
        plan |= {"workload": {"input_tokens": 20, "output_tokens": 5}, "observe": {"host": False}}
        for one in kustomized(DEPLOY / "kustomize/base"):
            match one["kind"]:
                case "CronJob":
                    template = one["spec"]["jobTemplate"]
                case "ConfigMap":
                    files = {"plan.yaml": yaml.safe_dump(plan)} if "plan.yaml" in one["data"] else one["data"]
                    cluster.create(f"{base}/configmaps", {**one, "data": files})
                case "PersistentVolumeClaim":
                    one["spec"]["storageClassName"] = ""
                    cluster.create(f"{base}/persistentvolumeclaims", one)
                case "ServiceAccount":
                    cluster.create(f"{base}/serviceaccounts", one)
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "nightly"}, "spec": template["spec"]}
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        cluster.create(path, job)
        cluster.until(lambda: cluster.get(f"{path}/nightly").get("status", {}).get("conditions"), 180)
    runs = open_store(volume).runs()
    assert [run.state for run in runs] == ["complete"]
    name = cluster.pods(namespace)[0]["metadata"]["name"]
    log = next(pod.log("benchmark") for node in cluster.nodes if (pod := node.pod(namespace, name)))
    checked = log.read_text()  # by busy cores the run may be one that check does not judge
    assert any(text in checked for text in ("history", "earlier runs", "not valid as a measurement"))
