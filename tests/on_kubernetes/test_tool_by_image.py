"""fmperf's image next to our launcher container: LMBenchmark's script is started through a shared folder. Without
INFEROMETER_LMBENCHMARK, a checkout of LMBenchmark with its packages in .venv, a small script with the same interface
takes its place in the pod: then the containers and the collected results are tested, and not the tool."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stacks import MODEL, NAME, Stack, stack_in

from inferometer.conduct.kubernetes import Launched
from inferometer.errors import PlanError
from kubernetes_stand_in.clusters import TestedCluster

REAL = os.environ.get("INFEROMETER_LMBENCHMARK", "")
PLAN = """
load: {rate: 1, sessions_at_once: 2}
stop: {duration: 8s}
workload: {turns: 4, input_tokens: 50, output_tokens: 8}
target: {api: completions}
"""
# What the image is given and what it leaves; it sends ten requests, whatever the plan says.
CLIENT = """
import csv, http.client, json, os, sys, time
from urllib.parse import urlsplit
model, url, key, scenario, qps = sys.argv[1:6]
assert scenario == "long-input" and os.environ["NUM_USERS"] == "2" and os.environ["TEST_DURATION"] == "8"
print("sending", flush=True)
with open(f"{key}_long_input_output_{qps}.csv", "w", newline="") as file:
    table = csv.writer(file)
    names = "prompt_tokens generation_tokens ttft generation_time user_id question_id launch_time finish_time"
    table.writerow(names.split())
    for number in range(10):
        began = time.time()
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        body = {"model": model, "prompt": "hi " * 50, "max_tokens": 8, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read(1)
        first = time.time()
        answer.read()
        over = time.time()
        table.writerow([50, 8, first - began, over - first, 1, number, began, over])
"""


@pytest.fixture
def image() -> Iterator[Path]:
    """What the image has at /app: not on /tmp, which every container of a pod has for itself."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        (Path(folder) / "client.py").write_text(CLIENT)
        yield Path(folder)


def _run(stack: Stack, home: Path, script: str | None, monkeypatch: pytest.MonkeyPatch, **given: Any) -> Launched:
    if script is not None:
        (home / "run_benchmarks.sh").write_text(script)
    monkeypatch.setenv("LMBENCHMARK_HOME", str(home))
    usual = {"harness": "fmperf", "generator": "harness", "passed": "LMBENCHMARK_HOME", "id": "image"}
    return stack.run(PLAN, storage_class=f"of-{stack.namespace}", **(usual | given))


@pytest.mark.parametrize("tool", ["interface", "LMBenchmark"])
def test_a_tool_that_is_only_an_image_sends_the_load(
    tool: str, cluster: TestedCluster, namespace: str, tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tool == "LMBenchmark" and not REAL:
        pytest.skip("INFEROMETER_LMBENCHMARK is not set: needs a checkout of LMBenchmark")
    stack = stack_in(cluster, namespace, tmp_path)
    if tool == "LMBenchmark":
        launched = _run(stack, Path(REAL), None, monkeypatch)
    else:
        launched = _run(stack, image, f'exec {sys.executable} client.py "$@"\n', monkeypatch)
    assert [run.state for run in launched.runs] == ["complete"], [row.error for row in launched.rows]
    run = launched.runs[0]
    answered = run.summary.outcomes["ok"]
    assert answered == 10 if tool == "interface" else answered > 4
    harness = run.environment.harness
    assert harness is not None and harness.ended == "ended with exit code 0"
    assert harness.version == "lmcache/lmcache-benchmark:main"
    assert any("arrivals are not Poisson" in text for text in harness.differences)
    assert run.subject.model == MODEL
    ttft = run.summary.measures["ttft"]
    assert ttft.mean is not None and 0 < ttft.mean < 5
    counter = run.summary.server and run.summary.server.counters.get("requests_ok")
    assert counter is not None and counter.grown >= answered, "we watch the server meanwhile"
    results = launched.output / "results" / f"fmperf_image_{NAME.partition('-')[0]}-8b-base"
    log = next(results.glob("store/runs/*/harness.log")).read_text()
    assert "sending" in log or tool == "LMBenchmark"
    print(f"\n{tool}: {answered} answered, TTFT {1000 * ttft.mean:.1f} ms on average")
    stack.until_only("persistentvolumeclaims/workload-pvc")


@pytest.mark.parametrize(
    ("script", "said"),
    [("echo no such dataset; exit 3\n", "no such dataset"), ("exit 0\n", "wrote no **/*.csv")],
    ids=["an error", "no result"],
)
def test_a_tool_that_fails_is_a_failed_run_with_the_end_of_its_log(
    script: str, said: str, cluster: TestedCluster, namespace: str, tmp_path: Path, image: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    stack = stack_in(cluster, namespace, tmp_path)
    launched = _run(stack, image, script, monkeypatch)
    run = launched.runs[0]
    assert run.state == "failed"
    text = " ".join(reason.text for reason in run.doubts)
    assert said in text
    stack.until_only("persistentvolumeclaims/workload-pvc")


def test_a_tools_image_that_cannot_be_pulled_is_named(
    cluster: TestedCluster, namespace: str, tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = stack_in(cluster, namespace, tmp_path)
    monkeypatch.setattr("inferometer.scale.kubernetes.launcher.PULL_S", 1.0)
    with pytest.raises(PlanError, match="the image missing/benchmark:1 cannot be pulled") as error:
        _run(stack, image, None, monkeypatch, tool_image="missing/benchmark:1")
    assert "LLMDBENCH_HARNESS_CONTAINER_IMAGE=NAME" in str(error.value.hint)
    stack.until_only("persistentvolumeclaims/workload-pvc")
