"""Another tool sends the load from a launcher pod. Only with INFEROMETER_HARNESSES, the folder of installed tools that
the pods of a node of local processes find as well: `make test-harnesses`."""

import os
from pathlib import Path
from typing import Any

import pytest
from stacks import NAME, stack_in

from inferometer.exchange.harness import harness_named
from inferometer.exchange.harness.environments import program_of
from inferometer.show.imported import reported_measure
from kubernetes_stand_in.clusters import TestedCluster

FOLDER = os.environ.get("INFEROMETER_HARNESSES", "")
PLAN = f"""
load: {{concurrency: 2}}
stop: {{requests: 20}}
workload: {{input_tokens: 50, output_tokens: 8, tokenizer: {FOLDER}/tokenizer}}
target: {{api: completions}}
"""


@pytest.mark.skipif(not FOLDER, reason="INFEROMETER_HARNESSES is not set: needs real harnesses")
@pytest.mark.parametrize("name", ["guidellm", "vllm-benchmark"])
def test_a_harness_in_a_launcher_pod(name: str, cluster: TestedCluster, namespace: str, tmp_path: Path) -> None:
    if program_of(harness_named(name)) is None:
        pytest.skip(f"{name} is not installed in {FOLDER}")
    stack = stack_in(cluster, namespace, tmp_path)
    given: dict[str, Any] = {"harness": name, "generator": "harness", "passed": "INFEROMETER_HARNESSES"}
    launched = stack.run(PLAN, id="other", storage_class=f"of-{namespace}", memory="8Gi", **given)
    assert [run.state for run in launched.runs] == ["complete"], [row.error for row in launched.rows]
    run = launched.runs[0]
    assert run.summary.outcomes["ok"] == 20
    ttft = reported_measure(run, "ttft")
    assert ttft is not None and ttft.mean is not None and ttft.mean > 0
    results = launched.output / "results" / f"{name}_other_{NAME.partition('-')[0]}-8b-base"
    assert [*results.glob("store/runs/*/harness.log")]
    assert [*results.glob("benchmark_report_v0.2,_*.yaml")]
    stack.until_only("persistentvolumeclaims/workload-pvc")
