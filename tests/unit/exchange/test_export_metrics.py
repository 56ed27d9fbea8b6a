"""Results as metrics: OpenMetrics, OpenTelemetry, the records of a dashboard."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from exported_runs import only, sampled, value
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from inferometer.exchange.exporting.openmetrics import text
from inferometer.exchange.exporting.registry import write
from inferometer.record.run import Run


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
