"""A real vLLM, for CPU, that is stood up in the cluster, measured and taken down: `inferometer k8s e2e`. Only with
INFEROMETER_HARNESSES, where `make test-harnesses` has installed it."""

import os
import subprocess
from pathlib import Path

import pytest
from stacks import calibrated

from inferometer.cli import execute
from inferometer.store.store import open_store
from kubernetes_stand_in.clusters import TestedCluster
from kubernetes_stand_in.node import has_namespaces

FOLDER = Path(os.environ.get("INFEROMETER_HARNESSES", ""))
PROGRAMS = FOLDER / "vllm-benchmark" / "bin"
MODEL = "/models/tiny"
PLAN = "load: {concurrency: 2}\nstop: {requests: 10}\nworkload: {input_tokens: 32, output_tokens: 8}\n"
ARGS = ("--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "8", "--enforce-eager")
VARIABLES = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
VARIABLES |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}


@pytest.mark.skipif(not (PROGRAMS / "vllm").exists(), reason="needs vLLM: make test-harnesses")
@pytest.mark.skipif(not has_namespaces(), reason="names of services need a mount namespace")
def test_vllm_is_stood_up_measured_and_taken_down(
    cluster: TestedCluster, namespace: str, store: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The model's files are on a claim, as with a real one."""
    make = [str(PROGRAMS / "python"), str(Path(__file__).parents[2] / "deploy" / "random_model.py"), "tiny"]
    volume = cluster.add_volume("100Gi", f"models-{namespace}")
    subprocess.run([*make, str(volume / "tiny"), str(FOLDER / "tokenizer")], check=True, capture_output=True)
    calibrated(cluster.add_volume("20Gi", f"of-{namespace}"))
    monkeypatch.setenv("PATH", f"{PROGRAMS}:{os.environ['PATH']}")  # of the node's pods, in place of an image
    before = cluster.listing(namespace)
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    words = ["k8s", "e2e", str(plan), "-p", namespace, "-m", MODEL, "--image", "local", "--server-image", "local"]
    words += ["--model-pvc", "models", "--model-storage-class", f"models-{namespace}", "--stack-timeout", "15min"]
    words += [f"--arg={word}" for word in ARGS]
    words += [word for name, value in VARIABLES.items() for word in ("--server-env", f"{name}={value}")]
    words += ["--kubeconfig", str(cluster.kubeconfig("admin", namespace)), "--store", str(store)]
    words += ["--cpu", "100m", "--memory", "256Mi", "--storage-class", f"of-{namespace}"]
    code = execute(words)
    printed = capsys.readouterr()
    assert code in (0, 4), printed.err  # 4: busy cores
    run = open_store(store).load("latest")
    assert (run.state, run.summary.outcomes["ok"]) == ("complete", 10)
    assert run.subject.model == MODEL and run.subject.engine_text.startswith("vLLM ")
    print(f"\nvLLM in a pod: {printed.err}")
    cluster.until(
        lambda: (
            cluster.listing(namespace) - before
            == {f"persistentvolumeclaims/{name}" for name in ("models", "workload-pvc")}
        )
    )
