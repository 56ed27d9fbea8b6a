"""The chart and the kustomize folders of a scheduled benchmark: valid for every version, and their Job runs."""

import os
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from stacks import calibrated

from inferometer.plan.model import Server
from inferometer.plan.reading import plan_from
from inferometer.store.store import open_store
from inferometer.target.server import running
from kubernetes_stand_in.charts import built, chart, chart_by_helm, kustomized, program
from kubernetes_stand_in.clusters import ALL_ENV, TestedCluster, is_real, thorough
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
CLOSED = {"target": {"url": "http://llm:8000"}, "load": {"concurrency": 4}, "stop": {"requests": 20}}


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


@pytest.mark.skipif(program("helm") is None, reason="no helm")
@pytest.mark.parametrize("values", [{}, FULL, {"plan": CLOSED}, {"plan": yaml.safe_dump(CLOSED), "url": "http://llm"}])
def test_helm_makes_the_same_of_the_chart(values: dict[str, Any]) -> None:
    theirs = chart_by_helm(str(program("helm")), DEPLOY / "chart", "nightly", values)
    assert by_name(theirs) == by_name(chart(DEPLOY / "chart", "nightly", values))
    check(theirs, VERSIONS if "timeZone" not in values else VERSIONS[-1:])
    linted = subprocess.run([str(program("helm")), "lint", "--strict", str(DEPLOY / "chart")], capture_output=True)
    assert linted.returncode == 0, linted.stdout


@pytest.mark.skipif(program("kustomize") is None, reason="no kustomize")
@pytest.mark.parametrize("folder", ["base", "postgres", "s3"])
def test_kustomize_makes_the_same_of_the_folders(folder: str) -> None:
    theirs = built(str(program("kustomize")), DEPLOY / "kustomize" / folder)
    assert by_name(theirs) == by_name(kustomized(DEPLOY / "kustomize" / folder))
    check(theirs, VERSIONS)


def by_name(things: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["metadata"]["name"]): one for one in things}


def test_a_plan_of_ones_own_replaces_the_charts() -> None:
    """As a whole: a closed loop that is merged into the open one is no plan."""
    for values in ({"plan": CLOSED}, {"plan": yaml.safe_dump(CLOSED)}):
        files = by_name(chart(DEPLOY / "chart", "nightly", values))["ConfigMap", "nightly-files"]["data"]
        written = yaml.safe_load(files["plan.yaml"])
        assert written == CLOSED
        assert plan_from(written).classes[0].load.type == "concurrency"


@thorough
@pytest.mark.skipif(not has_namespaces(), reason="the script has paths of the pod")
def test_its_job_measures_and_checks(cluster: TestedCluster, namespace: str, tmp_path: Path) -> None:
    """Its Job is made by the schedule where there is a controller for that: in a real control plane."""
    storage = f"of-{namespace}"
    volume = calibrated(cluster.add_volume("20Gi", storage), "")
    base = f"/api/v1/namespaces/{namespace}"
    with running(Server(args={"speed": 20}), tmp_path) as server:
        plan = {"target": {"url": server.url}, "load": {"concurrency": 2}, "stop": {"requests": 20}}
        plan |= {"workload": {"input_tokens": 20, "output_tokens": 5}, "observe": {"host": False}}
        for one in kustomized(DEPLOY / "kustomize/base"):
            match one["kind"]:
                case "CronJob":
                    scheduled = one
                case "ConfigMap":
                    files = {"plan.yaml": yaml.safe_dump(plan)} if "plan.yaml" in one["data"] else one["data"]
                    cluster.create(f"{base}/configmaps", {**one, "data": files})
                case "PersistentVolumeClaim":
                    one["spec"]["storageClassName"] = storage
                    cluster.create(f"{base}/persistentvolumeclaims", one)
                case "ServiceAccount":
                    cluster.create(f"{base}/serviceaccounts", one)
        _start(cluster, namespace, scheduled)
        jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        cluster.until(
            lambda: [one for one in cluster.get(jobs)["items"] if one.get("status", {}).get("conditions")], 240
        )
        cluster.delete(f"/apis/{SCHEDULES}/namespaces/{namespace}/cronjobs/inferometer")
    runs = open_store(volume).runs()
    assert [run.state for run in runs] == ["complete"]
    name = cluster.pods(namespace)[0]["metadata"]["name"]
    log = next(pod.log("benchmark") for node in cluster.nodes if (pod := node.pod(namespace, name)))
    checked = log.read_text()  # by busy cores the run may be one that check does not judge
    assert any(text in checked for text in ("history", "earlier runs", "not valid as a measurement"))


SCHEDULES = "batch/v1beta1"  # of the real control plane, which is of 1.20


def _start(cluster: TestedCluster, namespace: str, scheduled: dict[str, Any]) -> None:
    if is_real():
        every_minute = {**scheduled["spec"], "schedule": "* * * * *"}
        cronjob = {**scheduled, "apiVersion": SCHEDULES, "spec": every_minute}
        cluster.create(f"/apis/{SCHEDULES}/namespaces/{namespace}/cronjobs", cronjob)
    else:
        spec = scheduled["spec"]["jobTemplate"]["spec"]
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "nightly"}, "spec": spec}
        cluster.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", job)
