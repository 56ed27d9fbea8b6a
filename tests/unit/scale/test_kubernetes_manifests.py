"""Every manifest that we make is valid by the schemas of Kubernetes 1.25 to 1.37, strictly: no misspelt field."""

from typing import Any

import kubernetes_validate
import pytest
import yaml

from inferometer.cli import execute
from inferometer.conduct.treatments import TreatmentRequest, all_manifests
from inferometer.scale.kubernetes import manifests
from inferometer.scale.kubernetes.manifests import roles_for
from inferometer.scale.kubernetes.settings import settings_from

VERSIONS = [f"1.{minor}" for minor in range(25, 38)]
TOKEN = "hf_0123456789abcdefghij"


def all_of(pods: int = 2, **given: Any) -> list[dict[str, Any]]:
    settings = settings_from({}, None, {"pods": pods, "url": "http://llm:8000", "id": "x", **given})
    made = all_manifests(None, TreatmentRequest(settings), lambda _note: None)
    return [thing.to_dict() for thing in made]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_valid(version: str) -> None:
    whole = all_of(token=TOKEN, storage_class="fast", group=1000, pull_policy="Always", node_selector={"disk": "ssd"})
    place = manifests.ObjectPlace("bench", "x")
    granted = manifests.role(place, "r", [manifests.rule("", "pods", "get")])
    whole += [granted.to_dict(), manifests.role_binding(place, "r").to_dict()]
    whole += [thing.to_dict() for thing in roles_for("stack", "bench", "inferometer", "jane", "ci:runner")]
    kinds = {document["kind"] for document in whole}
    assert kinds == {
        "Job", "ConfigMap", "Secret", "ServiceAccount", "PersistentVolumeClaim", "Role", "RoleBinding"
    }  # fmt: skip
    for document in whole:
        kubernetes_validate.validate(document, version, strict=True)


def test_everything_carries_our_label_and_the_run() -> None:
    for document in all_of():
        labels = document["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "inferometer"
        assert labels["inferometer/run"]


def test_a_launcher_has_requests_limits_a_deadline_and_a_time_to_live() -> None:
    job = next(document for document in all_of() if document["kind"] == "Job")
    assert job["metadata"]["name"].startswith("llmdbench-inference-perf-launcher")
    assert job["spec"]["completionMode"] == "Indexed" and job["spec"]["completions"] == 2
    assert job["spec"]["activeDeadlineSeconds"] == 900 + 3600 + 60
    assert job["spec"]["ttlSecondsAfterFinished"] == 600
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["requests"] == container["resources"]["limits"] == {"cpu": "16", "memory": "32Gi"}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {
        "/tmp", "/requests", "/workspace/profiles/inference-perf"
    }  # fmt: skip


def test_without_indexed_jobs_each_pod_has_a_job_with_its_number() -> None:
    from inferometer.scale.kubernetes.launcher import Launcher

    pod = manifests.PodSettings(image="i", command=["true"])
    launcher = Launcher(None, manifests.ObjectPlace("n", "r"), "job", pod, manifests.JobSettings(pods=3))
    jobs = [thing.to_dict() for thing in launcher.manifests(indexed=False)]
    assert [job["metadata"]["name"] for job in jobs] == ["job-0", "job-1", "job-2"]
    numbers = [job["spec"]["template"]["spec"]["containers"][0]["env"] for job in jobs]
    assert [variables[-1]["value"] for variables in numbers] == ["0", "1", "2"]


def test_the_token_is_in_the_secret_and_nowhere_else() -> None:
    documents = all_of(token=TOKEN)
    holding = [document["kind"] for document in documents if TOKEN in yaml.safe_dump(document)]
    assert holding == ["Secret"]


def test_without_a_token_the_secret_of_llmd_is_used_if_there_is_one() -> None:
    job = next(document for document in all_of() if document["kind"] == "Job")
    variables = job["spec"]["template"]["spec"]["containers"][0]["env"]
    held = {one["name"]: one["valueFrom"]["secretKeyRef"] for one in variables if "secretKeyRef" in str(one)}
    wanted = {"name": "llm-d-hf-token", "key": "HF_TOKEN", "optional": True}
    assert held == {"HF_TOKEN": wanted, "HUGGING_FACE_HUB_TOKEN": wanted}


def test_names_stay_names() -> None:
    long = manifests.object_name("llmdbench-" + "x" * 80, "1700000000-ab12")
    assert len(long) <= 63 and long.endswith("-1700000000-ab12")
    assert manifests.object_name("A_b.C", "D") == "a-b-c-d"


def test_a_dry_run_without_a_cluster_prints_manifests(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/no/such/kubeconfig")
    assert execute(["k8s", "run", "-n", "-p", "stack,bench", "-l", "inference-perf", "-w", "sanity_random"]) == 0
    printed, told = capsys.readouterr()
    documents = list(yaml.safe_load_all(printed))
    assert {document["metadata"]["namespace"] for document in documents} == {"bench"}
    assert "not checked by an API server" in told


def test_rights_are_of_two_namespaces_and_never_of_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["k8s", "rights", "-p", "stack,bench", "--user", "jane"]) == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [(one["kind"], one["metadata"]["namespace"]) for one in documents] == [
        ("Role", "bench"), ("RoleBinding", "bench"), ("Role", "stack"), ("RoleBinding", "stack")
    ]  # fmt: skip
    verbs = {rule["resources"][0]: rule["verbs"] for rule in documents[0]["rules"]}
    assert verbs["configmaps"] == ["create", "patch"]  # secrets are never read
