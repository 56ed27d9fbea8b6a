"""Results as metrics: OpenMetrics, OpenTelemetry, records for a dashboard."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from exported_runs import only, sampled, value
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from inferometer.exchange.exporting import started, write
from inferometer.exchange.exporting.telemetry import text
from inferometer.measure.values import quantities
from inferometer.record.run import Run
from inferometer.store.entry import flat


def test_openmetrics_is_read_by_its_own_parser(run: Run, throughput: Run) -> None:
    odd = replace(run, id='a"b\\c\nd')
    families = {family.name: family for family in text_string_to_metric_families(text([run, odd, throughput]))}
    ttft = families["inferometer_ttft_seconds"]
    assert (ttft.type, ttft.unit) == ("gauge", "seconds")
    p99 = [sample for sample in ttft.samples if sample.labels["statistic"] == "p99"]
    assert {sample.labels["run"] for sample in p99} == {run.id, odd.id}
    assert p99[0].value == value(run, "ttft.p99")
    assert families["inferometer_output_rate_tokens_per_second"].samples[0].value == value(run, "output_rate")
    assert families["inferometer_failure_rate_ratio"].unit == "ratio"
    info = families["inferometer_run"].samples[0]
    assert (info.labels["verdict"], info.labels["gpu"]) == (run.status, "NVIDIA H200 x 1")


def test_opentelemetry_has_the_names_units_and_buckets(run: Run) -> None:
    (line,) = only("opentelemetry", sampled(run)).splitlines()
    metrics = {
        metric["name"]: metric for metric in orjson.loads(line)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    }
    assert {name: metric["unit"] for name, metric in metrics.items()} == {
        "gen_ai.client.operation.duration": "s",
        "gen_ai.client.token.usage": "{token}",
        "gen_ai.client.operation.time_to_first_chunk": "s",
        "gen_ai.client.operation.time_per_output_chunk": "s",
        "gen_ai.server.time_to_first_token": "s",
    }
    for metric in metrics.values():
        assert metric["histogram"]["aggregationTemporality"] == 1
        for point in metric["histogram"]["dataPoints"]:
            counts = [int(each) for each in point["bucketCounts"]]
            assert len(counts) == len(point["explicitBounds"]) + 1
            assert sum(counts) == int(point["count"]) > 0
            assert int(point["startTimeUnixNano"]) < int(point["timeUnixNano"])
    first = metrics["gen_ai.client.operation.time_to_first_chunk"]["histogram"]["dataPoints"][0]
    assert first["sum"] == pytest.approx(475 * value(run, "ttft.mean"), rel=0.02)
    served = metrics["gen_ai.server.time_to_first_token"]["histogram"]["dataPoints"][0]
    assert (served["explicitBounds"], served["bucketCounts"]) == ([0.06, 0.1], ["200", "200", "0"])


def test_opentelemetry_tells_tokens_and_failures_apart(run: Run) -> None:
    metrics = orjson.loads(only("opentelemetry", run))["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    duration, usage = (metric["histogram"]["dataPoints"] for metric in metrics[:2])
    about = [{each["key"]: next(iter(each["value"].values())) for each in point["attributes"]} for point in duration]
    assert [each.get("error.type") for each in about] == [None, "status"]
    assert [int(point["count"]) for point in duration] == [475, 25]
    assert about[0]["gen_ai.operation.name"] == "text_completion"
    assert (about[0]["server.address"], about[0]["server.port"]) == ("localhost", "8000")
    sums = {each["attributes"][-1]["value"]["stringValue"]: each["sum"] for each in usage}
    assert sums == {"input": 475 * 256, "output": 475 * 16}


def test_hud_records_have_the_dashboards_names(run: Run, latency: Run, throughput: Run) -> None:
    records = orjson.loads(only("pytorch-hud", run, latency, throughput))
    assert all(set(record) == {"benchmark", "model", "metric"} for record in records)
    names = {record["metric"]["name"] for record in records}
    assert {"mean_ttft_ms", "p99_itl_ms", "latency", "requests_per_second", "tokens_per_second"} <= names
    by_batch = [record["metric"] for record in records if record["metric"]["name"] == "latency"]
    assert [len(metric["benchmark_values"]) for metric in by_batch] == [4, 4]
    assert all(isinstance(record["metric"]["benchmark_values"], list) for record in records)


def test_mlflow_has_a_file_for_each_parameter_metric_and_tag(run: Run, tmp_path: Path) -> None:
    written, _ = write("mlflow", [run], tmp_path / "mlruns")
    names = {f"{path.parent.name}/{path.name}" for path in written}
    (metric,) = (tmp_path / "mlruns").glob("*/*/metrics/ttft.p99")
    at, amount, step = metric.read_text().split()
    assert (float(amount), step) == (value(run, "ttft.p99"), "0") and int(at) > 1e12
    assert any(name.startswith("params/load.") for name in names)
    (tag,) = (tmp_path / "mlruns").glob("*/*/tags/inferometer.verdict")
    assert tag.read_text() == run.status
    again, _ = write("mlflow", [run], tmp_path / "mlruns")
    assert again == written  # the same run in the same place


def test_weights_and_biases_gets_config_and_summary(run: Run) -> None:
    document = orjson.loads(only("wandb", run))
    assert document["init"]["name"] == run.id and document["init"]["config"]["inferometer.verdict"] == run.status
    assert document["summary"]["ttft/p99"] == value(run, "ttft.p99")


READ_MLFLOW = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(sys.argv[1])
(run,) = [run for e in client.search_experiments() for run in client.search_runs([e.experiment_id])]
data = run.data
print(json.dumps([data.metrics, data.params, data.tags, run.info.run_name, run.info.status, run.info.start_time]))
"""
READ_WANDB = """
import json, sys, wandb
exported = json.load(open(sys.argv[1]))
with wandb.init(mode="offline", dir=sys.argv[2], **exported["init"]) as run:
    run.summary.update(exported["summary"])
wandb.teardown()  # its service writes the file behind our back, and has written all when it ends
from pathlib import Path
from wandb.proto import wandb_internal_pb2
(file,) = Path(sys.argv[2]).rglob("*.wandb")
content, at, parts = file.read_bytes(), 7, []  # LevelDB's log behind a header of seven bytes
summary, config, name = {}, {}, None
while at < len(content):
    if 32768 - at % 32768 < 7:
        at += 32768 - at % 32768
        continue
    size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
    parts.append(content[at + 7 : at + 7 + size])
    at += 7 + size
    if kind not in (1, 4):  # whole, or the last part
        continue
    record = wandb_internal_pb2.Record()
    record.ParseFromString(b"".join(parts))
    parts = []
    for item in record.summary.update:
        summary["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
    if record.HasField("run"):
        name = record.run.display_name
        config = {item.key: json.loads(item.value_json) for item in record.run.config.update}
print(json.dumps([summary, config, name]))
"""


def read_by(client: str, script: str, *words: str, **environ: str) -> Any:
    """What the client itself reads: of this Python, or of the one that INFEROMETER_CLIENTS names."""
    python = os.environ.get("INFEROMETER_CLIENTS", sys.executable)
    if subprocess.run([python, "-c", f"import {client}"], capture_output=True).returncode:
        pytest.skip(f"{client} is not installed: INFEROMETER_CLIENTS=/path/to/python names one that has it")
    out = subprocess.run([python, "-c", script, *words], capture_output=True, check=True, env=os.environ | environ)
    return orjson.loads(out.stdout.splitlines()[-1])


def test_mlflows_own_client_reads_every_number(run: Run, tmp_path: Path) -> None:
    write("mlflow", [run], tmp_path / "mlruns")
    metrics, params, tags, name, status, start = read_by(
        "mlflow", READ_MLFLOW, str(tmp_path / "mlruns"), MLFLOW_ALLOW_FILE_STORE="true"
    )
    numbers = quantities(run.summary).values()
    assert sorted(metrics.values()) == sorted(quantity.value for quantity in numbers) and len(metrics) > 10
    assert len(params) == len(flat(run.plan)) and tags["inferometer.run"] == name == run.id
    assert status == "FINISHED" and start == round(started(run).timestamp() * 1000)


def test_weights_and_biases_own_client_takes_every_number(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(only("wandb", run))
    summary, config, name = read_by(
        "wandb", READ_WANDB, str(tmp_path / "run.json"), str(tmp_path), WANDB_SILENT="true", HOME=str(tmp_path)
    )
    exported = orjson.loads(only("wandb", run))
    assert {key: summary[key] for key in exported["summary"]} == exported["summary"] and len(summary) > 10
    assert {key: config[key] for key in exported["init"]["config"]} == exported["init"]["config"] and name == run.id
