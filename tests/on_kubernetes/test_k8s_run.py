"""`inferometer k8s run`, on the stand-in and on a real control plane alike: launcher pods measure the simulator, their
runs come back, and nothing stays."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightkube.resources.core_v1 import Pod
from stacks import LONG_PLAN, MODEL, NAME, PLAN, PORT, Stack, calibrated, check_shown, created, stack_in

from inferometer.conduct.kubernetes import run_on_cluster
from inferometer.conduct.treatments import Treatment, TreatmentRequest
from inferometer.errors import InferometerError, LostError, PlanError, StoreError, TargetError
from inferometer.scale.kubernetes.client import ClusterError, open_cluster
from inferometer.scale.kubernetes.collecting import clean_namespace
from inferometer.store.store import open_store
from kubernetes_stand_in.clusters import TestedCluster, thorough

CLAIM = "persistentvolumeclaims/workload-pvc"


@pytest.fixture(scope="module")
def module_stack(cluster: TestedCluster, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    return stack_in(cluster, cluster.new_namespace(), tmp_path_factory.mktemp("k8s"))


@pytest.fixture
def stack(module_stack: Stack, tmp_path: Path) -> Stack:
    return Stack(module_stack.cluster, module_stack.namespace, module_stack.volume, tmp_path)


def of_class(stack: Stack) -> dict[str, Any]:
    return {"storage_class": f"of-{stack.namespace}"}


def test_two_launcher_pods_measure_and_their_runs_come_back(stack: Stack) -> None:
    notes: list[str] = []
    launched = stack.run(pods=2, id="two", notes=notes, **of_class(stack))
    assert [run.state for run in launched.runs] == ["complete", "complete"]
    assert [run.summary.outcomes["ok"] for run in launched.runs] == [30, 30]
    assert [run.plan.get("seed", 0) for run in launched.runs] == [0, 1]
    assert {run.subject.model for run in launched.runs} == {MODEL}
    kept = open_store(stack.folder / "store")
    assert {entry.id for entry in kept.runs()} == {run.id for run in launched.runs}
    assert [row.label for row in launched.rows] == ["standalone-8b-base"] * 2
    results = launched.output / "results" / "inference-perf_two_standalone-8b-base_1"
    old = yaml.safe_load(next(results.glob("benchmark_report,_*.yaml")).read_text())
    new = yaml.safe_load(next(results.glob("benchmark_report_v0.2,_*.yaml")).read_text())
    assert (old["version"], new["version"]) == ("0.1", "0.2.1")
    assert old["metrics"]["requests"]["total"] == 30
    samples = launched.runs[0].samples
    assert samples is not None and any("running" in sample.name for sample in map(samples.sample, range(len(samples))))
    processed = launched.output / "results" / "inference-perf_two_standalone-8b-base" / "metrics" / "processed"
    replicas = json.loads((processed / "replica_status.json").read_text())
    assert [(one["name"], one["ready"]) for one in replicas] == [(NAME, 1)]
    started = json.loads((processed / "pod_startup_times.json").read_text())[0]
    assert started["ready_s"] >= 0
    seen = new["results"]["observability"]
    assert seen["pod_startup_times"]["pods"][0]["startup_seconds"] == started["ready_s"]
    assert seen["replica_status"]["controllers"][0] == {
        "kind": "Deployment", "name": NAME, "desired_replicas": 1, "available_replicas": 1, "ready_replicas": 1
    }  # fmt: skip
    assert "standalone-8b-base" in next(launched.output.rglob("treatment_comparison.csv")).read_text()
    log = (launched.output / "logs" / "inference-perf_two_standalone-8b-base.log").read_text()
    assert "[1] " in log and "[2] " in log and "TTFT" in log
    stack.until_only(CLAIM)

    again = stack.run(pods=2, id="two", notes=notes)
    assert any("already here; skipped" in note for note in notes)
    assert [run.id for run in again.runs] == [run.id for run in launched.runs]

    elsewhere = Stack(stack.cluster, stack.namespace, stack.volume, stack.folder / "elsewhere")
    elsewhere.folder.mkdir()
    collected = elsewhere.run(pods=2, id="two", skip="1")
    assert [run.id for run in collected.runs] == [run.id for run in launched.runs]

    without_stack = Stack(stack.cluster, stack.namespace, stack.volume, stack.folder / "without-stack")
    without_stack.folder.mkdir()
    empty = f"{stack.cluster.new_namespace()},{stack.namespace}"
    collected = without_stack.run(pods=2, id="two", skip="1", namespace=empty, notes=notes)
    assert [run.id for run in collected.runs] == [run.id for run in launched.runs]
    assert any("results are found by name" in note for note in notes)
    stack.until_only(CLAIM)


def test_results_of_another_plan_are_not_taken_for_ours(stack: Stack) -> None:
    (stack.volume / "inference-perf_taken_standalone-8b-base").mkdir(exist_ok=True)
    other = {"key": "of another plan", "state": "complete", "run": "x"}
    (stack.volume / "inference-perf_taken_standalone-8b-base" / "worker.json").write_text(json.dumps(other))
    with pytest.raises(StoreError, match="contains results of another plan") as error:
        stack.run(id="taken", **of_class(stack))
    check_shown(error.value, "workload-pvc")
    stack.until_only(CLAIM)


@thorough
def test_treatments_are_done_one_after_the_other(stack: Stack) -> None:
    experiment = stack.folder / "experiment.yaml"
    text = "plan: {load: {concurrency: 1}, stop: {requests: 5}, workload: {input_tokens: 20, output_tokens: 4}}\n"
    experiment.write_text(text + "axes: {load.concurrency: [1, 2]}\n")
    launched = stack.run(experiment=str(experiment), id="levels", **of_class(stack))
    assert [row.parameters for row in launched.rows] == [{"load.concurrency": 1}, {"load.concurrency": 2}]
    assert [run.state for run in launched.runs] == ["complete", "complete"]
    lines = next(launched.output.rglob("treatment_comparison.csv")).read_text().splitlines()
    assert len(lines) == 3
    stack.until_only(CLAIM)


def test_a_treatment_that_failed_is_repeated_and_the_others_are_not_done(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def lose(_self: object, treatment: Treatment, _launcher: object) -> str:
        tried.append(treatment.name)
        raise LostError("the pod was lost")

    monkeypatch.setattr("inferometer.conduct.kubernetes._Session._launch", lose)
    experiment = stack.folder / "experiment.yaml"
    text = "plan: {load: {concurrency: 1}, stop: {requests: 5}, workload: {input_tokens: 20, output_tokens: 4}}\n"
    experiment.write_text(text + "axes: {load.concurrency: [1, 2]}\n")
    notes: list[str] = []
    given = {"experiment": str(experiment), "id": "again", "attempts": 2, **of_class(stack)}
    launched = stack.run(notes=notes, stop_on_error=True, **given)
    assert len(tried) == 2 and len(set(tried)) == 1
    assert [(row.state, row.error) for row in launched.rows] == [("failed", "the pod was lost")]
    assert any("the pod was lost; attempt 2 of 2" in note for note in notes)
    assert any("not done, because" in note for note in notes)
    assert len(stack.run(**given).rows) == 2, "without it the next one is done"
    stack.until_only(*([CLAIM] if CLAIM in stack.ours() else []))


def test_a_model_that_is_not_served_is_said_before_anything_is_made(stack: Stack) -> None:
    fresh = stack.cluster.new_namespace()
    launched = stack.run(id="wrong", models="no/such-7b,other", namespace=f"{stack.namespace},{fresh}")
    assert launched.runs == []
    assert [row.state for row in launched.rows] == ["failed", "failed"]
    error = str(launched.rows[0].error)
    assert f"does not serve the model 'no/such-7b'; it serves {MODEL}" in error
    path = f"/api/v1/namespaces/{stack.namespace}/services/{NAME}:{PORT}/proxy/v1/models"
    assert error.endswith(f"get --raw {path}")
    check_shown(InferometerError("", error.partition("(-m NAME): ")[2]), MODEL)
    assert not [one for one in stack.cluster.listing(fresh) if "default" not in one and "kube-root-ca" not in one]


def test_treatments_that_nobody_waits_for_are_not_started_at_once(stack: Stack) -> None:
    before = stack.ours()
    with pytest.raises(PlanError, match="--wait 0: 2 treatments would run at the same time"):
        stack.run(id="at-once", models=f"{MODEL},other", wait_s=0, **of_class(stack))
    assert stack.ours() == before


@thorough
def test_several_models_and_methods_and_the_pods_ask_for_the_model_too(stack: Stack, cluster: TestedCluster) -> None:
    pod = next(one["metadata"]["name"] for one in cluster.pods(stack.namespace) if NAME in one["metadata"]["name"])
    url = f"http://{NAME}.{stack.namespace}.svc:{PORT}"
    plan = PLAN.replace("30", "5")
    launched = stack.run(plan, id="models", models=f"{MODEL},no/such-7b", url=url, **of_class(stack))
    assert [row.state for row in launched.rows] == ["complete", "failed"]
    assert [row.parameters for row in launched.rows] == [{"model": MODEL}, {"model": "no/such-7b"}]
    assert "does not serve the model 'no/such-7b'" in str(launched.rows[1].error)
    launched = stack.run(plan, id="methods", methods=f"standalone,{pod}", **of_class(stack))
    assert [row.state for row in launched.rows] == ["complete", "complete"]
    assert [row.parameters["method"] for row in launched.rows] == ["standalone", pod]
    stack.until_only(CLAIM)


@thorough
def test_a_load_that_takes_too_long_is_ended_and_kept(stack: Stack) -> None:
    launched = stack.run(LONG_PLAN, id="long", wait_s=5, **of_class(stack))
    assert [row.state for row in launched.rows] == ["interrupted"]
    assert launched.runs[0].summary.outcomes["ok"] > 0
    stack.until_only(CLAIM)


def test_nop_reads_how_the_pods_of_a_stack_started(cluster: TestedCluster, namespace: str, tmp_path: Path) -> None:
    log = Path(__file__).parents[1] / "data" / "vllm-0.32-cpu-startup.log"
    container: dict[str, Any] = {"name": "vllm", "image": "local", "command": ["sh", "-c", f"cat {log}; sleep 600"]}
    container |= {"ports": [{"containerPort": 8000}]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "standalone-vllm"}, "spec": spec}
    cluster.until(partial(created, cluster, f"/api/v1/namespaces/{namespace}/pods", pod))
    cluster.until(lambda: [one for one in cluster.pods(namespace) if one["status"].get("phase") == "Running"])
    stack = Stack(cluster, namespace, tmp_path, tmp_path)
    with stack.open() as admin:
        cluster.until(lambda: len([*admin.log("standalone-vllm")]) == len(log.read_text().splitlines()))
        request = TreatmentRequest(stack.settings(harness="nop", id="start"))
        launched = run_on_cluster(admin, request, store=tmp_path / "store")
    run = launched.runs[0]
    assert (run.kind, run.state) == ("startup", "complete")
    assert run.summary.startup is not None and run.summary.startup.phases
    assert json.loads(next(launched.output.rglob("pod_startup_times.json")).read_text())[0]["name"] == "standalone-vllm"
    assert stack.ours() == {"pods/standalone-vllm"}


def test_an_image_that_cannot_be_pulled(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferometer.scale.kubernetes.launcher.PULL_S", 1.0)
    with pytest.raises(PlanError, match=r"image missing/image:1 cannot be pulled") as error:
        stack.run(id="image", image="missing/image:1", **of_class(stack))
    check_shown(error.value, 'Failed to pull image "missing/image:1"')
    stack.until_only(CLAIM)


def test_a_stack_that_is_not_there_or_not_ready(stack: Stack, cluster: TestedCluster) -> None:
    with pytest.raises(TargetError, match="no endpoint for method nowhere; there is service") as error:
        stack.run(methods="nowhere")
    assert "--endpoint-url" in str(error.value.hint)
    check_shown(error.value, NAME)
    ports = {"selector": {"app": "nobody"}, "ports": [{"port": 80}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"{NAME}-empty"}, "spec": ports}
    cluster.create(f"/api/v1/namespaces/{stack.namespace}/services", service)
    with pytest.raises(TargetError, match="has no pod that is ready") as error:
        stack.run(methods=f"{NAME}-empty")
    check_shown(error.value, NAME)
    cluster.delete(f"/api/v1/namespaces/{stack.namespace}/services/{NAME}-empty")


def test_a_namespace_that_does_not_exist(stack: Stack) -> None:
    with pytest.raises(InferometerError, match='namespaces "no-such" not found') as error:
        stack.run(namespace=f"{stack.namespace},no-such", **of_class(stack))
    check_shown(error.value, "default")
    with pytest.raises(TargetError, match="there is no namespace no-such") as error:
        stack.run(namespace=f"no-such,{stack.namespace}")
    check_shown(error.value, "default")
    with stack.open() as admin, pytest.raises(TargetError, match="there is no namespace no-such"):
        clean_namespace(admin, "no-such")


def test_without_rights_the_role_is_named(stack: Stack) -> None:
    with stack.open("alice") as alice, pytest.raises(ClusterError, match="forbidden") as error:
        run_on_cluster(alice, stack.request(id="denied"), store=stack.folder / "store")
    assert "inferometer k8s rights" in str(error.value.hint)
    check_shown(error.value, "selfsubjectrulesreviews")


@thorough
def test_the_printed_rights_are_enough(stack: Stack) -> None:
    with stack.rights_of("bob"), stack.open("bob") as bob:
        launched = run_on_cluster(bob, stack.request(id="allowed", **of_class(stack)), store=stack.folder / "store")
        assert [run.state for run in launched.runs] == ["complete"]
    stack.until_only(CLAIM)


@thorough
def test_only_an_address_needs_no_rights_on_the_stack(stack: Stack, cluster: TestedCluster) -> None:
    space = cluster.new_namespace()
    volume = calibrated(cluster.add_volume("20Gi", f"of-{space}"))
    url = f"http://{NAME}.{stack.namespace}.svc:{PORT}"
    alone = Stack(cluster, space, volume, stack.folder)
    launched = alone.run(namespace=space, url=url, id="url", storage_class=f"of-{space}")
    assert [run.state for run in launched.runs] == ["complete"]
    alone.until_only(CLAIM)


@thorough
def test_a_pod_that_is_evicted_or_deleted_is_said_and_the_other_one_goes_on(
    stack: Stack, cluster: TestedCluster
) -> None:
    plan = LONG_PLAN.replace("10min", "8s")
    ended = threading.Thread(target=_delete_one, args=(stack, cluster), daemon=True)
    ended.start()
    launched = stack.run(plan, pods=2, id="evicted", **of_class(stack))
    ended.join(60)
    states = sorted(row.state for row in launched.rows)
    assert "complete" in states and len(states) == 2
    stack.until_only(CLAIM)


def _delete_one(stack: Stack, cluster: TestedCluster) -> None:
    pods = cluster.until(lambda: _loading(stack), 120)
    cluster.delete(f"/api/v1/namespaces/{stack.namespace}/pods/{pods[0]}")


def _loading(stack: Stack) -> list[str]:
    """Launcher pods whose worker has begun."""
    begun = {json.loads(path.read_text()).get("pod") for path in stack.volume.glob("*_evicted_*/worker.json")}
    return sorted(one for one in begun if one) if len(begun) == 2 else []


@thorough
def test_the_server_restarts_while_pods_measure(stack: Stack, cluster: TestedCluster) -> None:
    def restart() -> None:
        cluster.until(lambda: [*stack.volume.glob("*_restart_*/worker.json")], 120)
        cluster.stop_api()
        cluster.start_api()

    thread = threading.Thread(target=restart, daemon=True)
    thread.start()
    launched = stack.run(LONG_PLAN.replace("10min", "6s"), id="restart", **of_class(stack))
    thread.join(60)
    assert [run.state for run in launched.runs] == ["complete"]
    stack.until_only(CLAIM)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of an S3 server on loopback."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    boto3.client("s3").create_bucket(Bucket="results")
    yield "results"
    server.stop()


@thorough
def test_the_output_goes_to_an_object_store(stack: Stack, bucket: str) -> None:
    import boto3

    notes: list[str] = []
    launched = stack.run(id="uploaded", output=f"s3://{bucket}/bench", notes=notes, **of_class(stack))
    assert [run.state for run in launched.runs] == ["complete"]
    listed = boto3.client("s3").list_objects_v2(Bucket=bucket, Prefix="bench/uploaded/")["Contents"]
    here = {str(path.relative_to(launched.output)): path.stat().st_size for path in launched.output.rglob("*.*")}
    there = {one["Key"].removeprefix("bench/uploaded/"): one["Size"] for one in listed}
    assert there == {name: size for name, size in here.items() if (launched.output / name).is_file()}
    assert any(name.endswith("records.parquet") for name in there)
    assert f"{len(there)} files are at s3://{bucket}/bench/uploaded" in notes
    with pytest.raises(StoreError, match="s3://no-such-bucket"):
        stack.run(id="nowhere", output="s3://no-such-bucket", **of_class(stack))
    stack.until_only(CLAIM)


def test_an_output_of_an_unknown_kind_is_refused_before_anything_is_made(stack: Stack) -> None:
    before = stack.ours()
    with pytest.raises(PlanError, match=r"--output must be a folder, s3://\.\.\. or gs://\.\.\., got ftp://host/x"):
        stack.run(id="unknown", output="ftp://host/x", **of_class(stack))
    assert stack.ours() == before


def command(stack: Stack, *words: str) -> subprocess.Popen[str]:
    file = stack.folder / "long.yaml"
    file.write_text(LONG_PLAN)
    environment = {**os.environ, "KUBECONFIG": str(stack.cluster.kubeconfig("admin", stack.namespace))}
    options = ["-p", stack.namespace, "-t", NAME, "-m", MODEL, "--image", "local", "--cpu", "100m", "--memory", "256Mi"]
    options += ["--store", str(stack.folder / "store"), "--storage-class", f"of-{stack.namespace}"]
    arguments = [sys.executable, "-m", "inferometer", "k8s", "run", str(file), *options, *words]
    return subprocess.Popen(arguments, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _begun(stack: Stack, id_: str) -> bool:
    """Whether a request was answered: then there is something to keep."""
    logs = [*stack.volume.glob(f"*_{id_}_*/store/runs/*/log-0.bin")]
    return any(log.stat().st_size > 4000 for log in logs)


@thorough
def test_ctrl_c_keeps_what_was_measured_and_leaves_nothing(stack: Stack, cluster: TestedCluster) -> None:
    process = command(stack, "--id", "ctrlc")
    cluster.until(lambda: _begun(stack, "ctrlc"), 120)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    kept = open_store(stack.folder / "store").runs()
    assert [entry.state for entry in kept] == ["interrupted"]
    stack.until_only(CLAIM)


@thorough
def test_a_killed_client_leaves_a_job_with_a_deadline_that_owns_all_else(stack: Stack, cluster: TestedCluster) -> None:
    process = command(stack, "--id", "killed", "--start-wait", "120", "--wait", "60")
    cluster.until(lambda: _begun(stack, "killed"), 120)
    process.kill()
    process.communicate(timeout=60)
    assert any(one.startswith("jobs/") for one in stack.ours())
    jobs = cluster.get(f"/apis/batch/v1/namespaces/{stack.namespace}/jobs")["items"]
    spec = jobs[0]["spec"]
    assert (spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (240, 600)
    owned = cluster.get(f"/api/v1/namespaces/{stack.namespace}/configmaps")["items"]
    mine = [one for one in owned if "profiles" in one["metadata"]["name"]]
    assert mine[0]["metadata"]["ownerReferences"][0]["uid"] == jobs[0]["metadata"]["uid"]
    with stack.open() as admin:
        assert clean_namespace(admin, stack.namespace).running == [f"Job {jobs[0]['metadata']['name']}"]
        clean_namespace(admin, stack.namespace, "killed", running=True)
    stack.until_only(CLAIM)


@thorough
def test_what_a_killed_client_left_goes_by_itself_and_its_results_are_collected(stack: Stack) -> None:
    """Nobody is there: the Job completes, its time to live removes it, and the garbage collector what it owns."""
    plan = LONG_PLAN.replace("10min", "6s")
    request = stack.request(plan, id="orphan", pods=2, keep_s=1, **of_class(stack))
    kubeconfig = str(stack.cluster.kubeconfig("admin", stack.namespace))
    client = get_context("spawn").Process(target=_measure, args=(kubeconfig, request, stack.folder / "of-client"))
    client.start()
    try:
        stack.cluster.until(lambda: _begun(stack, "orphan"), 120)
        assert {"jobs", "configmaps", "serviceaccounts"} <= {one.partition("/")[0] for one in stack.ours()}
    finally:
        client.kill()
        client.join()
    stack.until_only(CLAIM)
    collected = stack.run(plan, id="orphan", pods=2, skip="1")
    assert [run.state for run in collected.runs] == ["complete", "complete"]
    stack.until_only(CLAIM)


def _measure(kubeconfig: str, request: TreatmentRequest, store: Path) -> None:
    with open_cluster(kubeconfig) as cluster:
        run_on_cluster(cluster, request, store=store)


def test_a_dry_run_creates_nothing_and_the_server_checks_it(
    stack: Stack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from inferometer.cli import execute

    monkeypatch.setenv("KUBECONFIG", str(stack.cluster.kubeconfig("admin", stack.namespace)))
    monkeypatch.setenv("LLMDBENCH_HF_TOKEN", "hf_whispered")
    before = stack.ours()
    words = ["-p", stack.namespace, "-t", "standalone", "-m", MODEL, "-n", "-j", "2", "--image", "local"]
    assert execute(["k8s", "run", *words]) == 0
    printed, told = capsys.readouterr()
    kinds = [document["kind"] for document in yaml.safe_load_all(printed)]
    assert "Job" in kinds and "ConfigMap" in kinds and "ServiceAccount" in kinds
    assert "HF_TOKEN: '***'" in printed and "whispered" not in printed
    assert "the API server accepts all manifests" in told
    assert execute(["k8s", "run", *words, "-t", "nowhere"]) == 0  # the last -t counts
    printed, told = capsys.readouterr()
    assert "no endpoint for method nowhere" in told and "http://mock:1234" in printed
    assert stack.ours() == before


def test_endpoints_are_listed(
    stack: Stack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from inferometer.cli import execute

    monkeypatch.setenv("KUBECONFIG", str(stack.cluster.kubeconfig("admin", stack.namespace)))
    assert execute(["k8s", "run", "-p", stack.namespace, "--list-endpoints", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["endpoints"]
    service = next(one for one in found if one["kind"] == "service")
    assert (service["name"], service["ready"]) == (NAME, 1)
    assert service["url"] == f"http://{NAME}.{stack.namespace}.svc:{PORT}"
    assert service["models"] == [MODEL]


@thorough
def test_debug_says_how_to_enter_the_pod(stack: Stack, cluster: TestedCluster) -> None:
    notes: list[str] = []
    launched = stack.run(id="debug", debug="1", notes=notes, **of_class(stack))
    entering = next(note for note in notes if "exec -it" in note)
    selected = entering.partition(" -l ")[2].partition(" ")[0].split("=")
    assert launched.left and "get pod -l inferometer/run=debug-" in entering
    cluster.until(lambda: [pod for pod in cluster.pods(stack.namespace) if "launcher" in pod["metadata"]["name"]])
    with stack.open() as admin:
        assert [pod.metadata.name for pod in admin.all(Pod, stack.namespace, dict([selected])) if pod.metadata]
        clean_namespace(admin, stack.namespace, "debug", running=True)
    stack.until_only(CLAIM)


@thorough
def test_pods_that_nobody_waits_for_watch_the_stack_with_a_role_of_their_own(
    stack: Stack, cluster: TestedCluster
) -> None:
    notes: list[str] = []
    request = stack.request(id="later", wait_s=0, **of_class(stack))
    with stack.rights_of("bob", unattended=True), stack.open("bob") as bob:
        run_on_cluster(bob, request, store=stack.folder / "store", notes=notes.append)
    assert any("the same command with --id later --skip" in note for note in notes)
    kinds = {one.partition("/")[0] for one in stack.ours()}
    assert {"roles", "rolebindings", "serviceaccounts"} <= kinds
    done = stack.volume / "inference-perf_later_standalone-8b-base" / "worker.json"
    cluster.until(lambda: done.exists() and json.loads(done.read_text())["state"] == "complete", 120)
    collected = stack.run(id="later", skip="1")
    assert [run.state for run in collected.runs] == ["complete"]
    watched = next(collected.output.rglob("replica_status.json"))
    assert [(one["name"], one["ready"]) for one in json.loads(watched.read_text())] == [(NAME, 1)]
    with stack.open() as admin:
        clean_namespace(admin, stack.namespace, running=True)
    stack.until_only(CLAIM)


def test_who_may_not_give_rights_measures_without_watching(stack: Stack) -> None:
    notes: list[str] = []
    request = stack.request(id="alone", wait_s=0, **of_class(stack))
    with stack.rights_of("alice"), stack.open("alice") as alice:
        run_on_cluster(alice, request, store=stack.folder / "store", notes=notes.append)
    assert any("k8s rights --unattended" in note for note in notes)
    assert any(one.startswith("jobs/") for one in stack.ours())
    with stack.open() as admin:
        clean_namespace(admin, stack.namespace, "alone", running=True)
    stack.until_only(CLAIM)


@thorough
def test_a_node_that_is_gone_loses_its_pod(stack: Stack, cluster: TestedCluster) -> None:
    node = cluster.add_node(f"lost-{stack.namespace}", labels={"disk": stack.namespace})

    def lose() -> None:
        cluster.until(lambda: [*stack.volume.glob("*_gone_*/worker.json")], 120)
        node.stop()

    thread = threading.Thread(target=lose, daemon=True)
    thread.start()
    launched = stack.run(LONG_PLAN, id="gone", launcher_nodes=(f"disk={stack.namespace}",), **of_class(stack))
    thread.join(60)
    cluster.nodes.remove(node)
    assert launched.rows[0].state in ("failed", "partial")
    stack.until_only(CLAIM)


class TestTrouble:
    """Each in a namespace of its own."""

    @pytest.fixture
    def space(self, stack: Stack, cluster: TestedCluster) -> Stack:
        return Stack(cluster, cluster.new_namespace(), stack.volume, stack.folder)

    def aimed(self, stack: Stack) -> dict[str, Any]:
        return {"url": f"http://{NAME}.{stack.namespace}.svc:{PORT}", "start_s": 3}

    def test_a_claim_that_never_binds(self, stack: Stack, space: Stack) -> None:
        notes: list[str] = []
        with pytest.raises(TargetError, match="claim workload-pvc was not bound within 3") as error:
            space.run(id="unbound", claim_size="900Ti", notes=notes, **self.aimed(stack))
        assert any("claim workload-pvc waits: FailedBinding" in note for note in notes)
        check_shown(error.value, "no persistent volumes available")
        space.until_only()

    def test_an_unknown_storage_class(self, stack: Stack, space: Stack) -> None:
        with pytest.raises(
            PlanError, match=r'claim workload-pvc is not bound to a volume: .*"no-such-class" not found'
        ) as error:
            space.run(id="unknown", storage_class="no-such-class", **{**self.aimed(stack), "start_s": 60})
        check_shown(error.value)
        space.until_only()

    def test_an_unknown_service_account(self, stack: Stack, space: Stack) -> None:
        with pytest.raises(PlanError, match='serviceaccount "nobody" not found') as error:
            space.run(id="nobody", claim_size="900Ti", service_account="nobody", **self.aimed(stack))
        check_shown(error.value, "nobody")
        space.until_only()

    def test_nothing_to_collect_from(self, stack: Stack, space: Stack) -> None:
        with pytest.raises(StoreError, match="has no persistent volume claim workload-pvc to collect from") as error:
            space.run(id="never", skip="1", **self.aimed(stack))
        check_shown(error.value)
        space.until_only()

    def test_a_quota(self, stack: Stack, space: Stack, cluster: TestedCluster) -> None:
        volume = cluster.add_volume("20Gi", f"of-{space.namespace}")
        cluster.add_quota(space.namespace, pods="0")
        with pytest.raises(InferometerError, match="exceeded quota") as error:
            space.run(id="quota", storage_class=f"of-{space.namespace}", **self.aimed(stack))
        check_shown(error.value, "quota")
        assert volume.exists()
        space.until_only("resourcequotas/quota", *([CLAIM] if CLAIM in space.ours() else []))
