"""Each format: its shape, its units, and back through the importer where there is one."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
import yaml
from exported_runs import back, bare_run, made, only, value
from made_runs import made_run
from msgspec import structs

from inferometer.documents.document import number_of
from inferometer.errors import StoreError
from inferometer.exchange.exporting import FORMATS
from inferometer.exchange.exporting.llmd import STATISTICS, report
from inferometer.exchange.exporting.vllm import serve_document
from inferometer.record.columns import Records
from inferometer.record.environment import Environment
from inferometer.record.run import Run
from inferometer.record.summary import MeasureSummary

NEED_RECORDS = {"csv", "parquet", "ray-sweep", "opentelemetry", "inferx"}


# -- vLLM ----------------------------------------------------------------------------------------------------


def test_vllm_has_every_field_of_a_saved_result(run: Run) -> None:
    said = orjson.loads(only("vllm", run))
    fields = (
        *("date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate"),
        *("burstiness", "max_concurrency", "duration", "completed", "failed", "total_input_tokens"),
        *("total_output_tokens", "request_throughput", "request_goodput", "output_throughput"),
        *("total_token_throughput", "max_output_tokens_per_s", "max_concurrent_requests", "rtfx"),
        *(f"{word}_{time}_ms" for word in ("mean", "median", "std", "p50", "p99") for time in ("ttft", "tpot", "itl")),
    )
    assert set(fields) <= said.keys()
    assert not {"ttfts", "itls", "errors"} & said.keys()
    assert (said["date"], said["label"], said["completed"], said["failed"]) == ("20261115-031207", "chat", 475, 25)
    assert said["request_goodput"] == value(run, "goodput")


def test_vllm_with_every_request(run: Run) -> None:
    said = orjson.loads(only("vllm", run, detailed=True))
    arrays = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors")
    assert {len(said[name]) for name in arrays} == {500}
    assert said["errors"][0] == "429 Too Many Requests"
    assert (said["ttfts"][0], said["itls"][0], said["output_lens"][0]) == (0, [], 0)  # as vLLM writes a failure
    good = [number for number, error in enumerate(said["errors"]) if not error]
    assert np.mean([said["ttfts"][number] for number in good]) * 1000 == pytest.approx(said["mean_ttft_ms"])


def test_an_endless_rate_is_a_text(closed: Run) -> None:
    said = serve_document(closed)
    assert (said["request_rate"], said["max_concurrency"]) == ("inf", 4)


def test_trap_milliseconds_are_milliseconds(run: Run, tmp_path: Path) -> None:
    """Seconds labelled ms have gone through whole pipelines unseen: every `_ms` is a thousand times our seconds."""
    said = serve_document(run)
    assert said["mean_ttft_ms"] == pytest.approx(1000 * value(run, "ttft.mean"), rel=0.05)
    assert 10 < number_of(said["mean_ttft_ms"]) < 200
    (imported,) = back(tmp_path, "result.json", only("vllm", run))
    assert imported.measures["ttft"]["mean"] == pytest.approx(value(run, "ttft.mean"), rel=0.05)
    entries = json.loads(made("github-action-benchmark", run)["smaller.json"])
    ttft = next(entry for entry in entries if entry["name"].endswith("ttft.mean"))
    assert (ttft["unit"], ttft["value"]) == ("ms", pytest.approx(1000 * value(run, "ttft.mean")))
    metrics = orjson.loads(only("nm-vllm", run))["metrics"]
    assert metrics["mean_ttft_ms"]["value"] == pytest.approx(1000 * value(run, "ttft.mean"))
    assert metrics["median_request_latency"]["value"] == pytest.approx(1000 * value(run, "e2e.p50"))
    latencies = report(run)["results"]["request_performance"]["aggregate"]["latency"]
    assert {name: each["units"] for name, each in latencies.items()} == {
        "time_to_first_token": "s",
        "time_per_output_token": "s/token",
        "inter_token_latency": "s/token",
        "normalized_time_per_output_token": "s/token",
        "request_latency": "s",
    }
    assert latencies["request_latency"]["mean"] == value(run, "e2e.mean")
    assert number_of(latencies["request_latency"]["mean"]) > number_of(latencies["time_to_first_token"]["mean"])


def test_trap_no_percentile_is_dropped(run: Run) -> None:
    """The schema takes any key in a statistic, so that p00p1, p01 or P25 would vanish without a word."""
    known = {"units", "mean", "mode", "stddev", "min", "max"}
    known |= {"p0p1", "p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p99p9"}
    aggregate = report(run)["results"]["request_performance"]["aggregate"]
    ttft = aggregate["latency"]["time_to_first_token"]
    assert set(ttft) <= known
    assert {"stddev", "min", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "max"} <= set(ttft)
    ordered = [ttft[name] for name in ("min", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "max")]
    assert ordered == sorted(ordered)
    assert set(STATISTICS.values()) <= known
    assert (ttft["p50"], ttft["p99"]) == (value(run, "ttft.p50"), value(run, "ttft.p99"))


def test_trap_lengths_are_those_served(run: Run) -> None:
    """64 tokens were asked for, 16 came: what divides a time, and what a rate counts, are the 16."""
    said = serve_document(run)
    assert (said["total_output_tokens"], said["total_input_tokens"]) == (475 * 16, 475 * 256)
    row = next(csv.DictReader(io.StringIO(made("ray-sweep", run)["serve_random_sweep_results.csv"].decode())))
    assert row["min_output_len"] == "64"  # the parameter says what was asked
    assert float(row["mean_tpot_ms"]) == pytest.approx(1000 * value(run, "tpot.mean"), rel=0.02)
    assert float(row["output_throughput"]) == pytest.approx(475 * 16 / float(row["duration"]), rel=1e-4)
    metadata = orjson.loads(only("nm-vllm", run))["metadata"]
    assert metadata["total_output"] == 475 * 16
    lengths = report(run)["results"]["request_performance"]["aggregate"]["requests"]
    assert lengths["output_length"]["mean"] == 16
    assert report(run)["scenario"]["load"]["standardized"]["output_seq_len"]["value"] == 64


def test_vllm_latency_and_throughput_are_seconds(latency: Run, throughput: Run, tmp_path: Path) -> None:
    files = made("vllm", latency)
    assert set(files) == {"latency_bs8.json", "latency_bs1.json"}
    said = orjson.loads(files["latency_bs8.json"])
    assert said["avg_latency"] == pytest.approx(0.62)
    assert set(said["percentiles"]) == {"10", "25", "50", "75", "90", "99"}
    (imported,) = back(tmp_path, "latency_bs8.json", files["latency_bs8.json"])
    assert imported.kind == "latency"
    rates = orjson.loads(only("vllm", throughput))
    assert rates == {
        "elapsed_time": 10.0,
        "num_requests": 100,
        "total_num_tokens": 64000,
        "requests_per_second": 10.0,
        "tokens_per_second": 6400.0,
    }


# -- llm-d ---------------------------------------------------------------------------------------------------


def test_llmd_is_yaml_or_json_and_comes_back(run: Run, tmp_path: Path) -> None:
    as_yaml = only("llm-d", run)
    as_json = only("llm-d", run, suffix=".json")
    assert yaml.safe_load(as_yaml) == orjson.loads(as_json)
    (imported,) = back(tmp_path, "report.yaml", as_yaml)
    for name in ("ttft", "tpot", "itl", "ntpot", "e2e"):
        assert imported.measures[name]["mean"] == value(run, f"{name}.mean")
        assert imported.measures[name]["p99"] == value(run, f"{name}.p99")
    assert imported.rates["output_rate"].value == value(run, "output_rate")
    assert (imported.answered, imported.failed) == (475, 25)


def test_llmd_of_version_0_1_has_its_units_and_comes_back(run: Run, tmp_path: Path) -> None:
    content = only("llm-d-v0.1", run)
    said = yaml.safe_load(content)
    assert said["version"] == "0.1"
    latency, throughput = said["metrics"]["latency"], said["metrics"]["throughput"]
    assert (latency["time_to_first_token"]["units"], latency["time_per_output_token"]["units"]) == ("s", "ms/token")
    assert latency["time_per_output_token"]["mean"] == pytest.approx(1000 * value(run, "tpot.mean"))
    assert throughput["total_tokens_per_sec"] == value(run, "total_rate")
    assert said["scenario"]["load"]["metadata"]["tool"] == "inferometer"
    (imported,) = back(tmp_path, "report.yaml", content)
    for name in ("ttft", "tpot", "itl", "ntpot", "e2e"):
        assert imported.measures[name]["p99"] == pytest.approx(value(run, f"{name}.p99"))
    assert (imported.answered, imported.failed) == (475, 25)


def test_llmd_numbers_stay_numbers_in_yaml(run: Run) -> None:
    """YAML 1.1 reads 5e-05 as a text: what is small must be written with a point."""
    ttft = MeasureSummary(unit="s", statistics={"mean": 5e-05, "p50": 1e-7})
    tiny = replace(run, summary=structs.replace(run.summary, values={}, measures={"ttft": ttft}))
    said = yaml.safe_load(only("llm-d", replace(tiny, read_records=None)))
    assert said["results"]["request_performance"]["aggregate"]["latency"]["time_to_first_token"]["mean"] == 5e-05


def test_llmd_tells_censored_from_failed(run: Run) -> None:
    outcomes = {"ok": 97, "unfinished": 1, "cancelled": 1, "timeout": 1}
    changed = replace(run, summary=structs.replace(run.summary, outcomes=outcomes))
    requests = report(changed)["results"]["request_performance"]["aggregate"]["requests"]
    assert (requests["total"], requests["failures"], requests["incomplete"]) == (100, 1, 2)


# -- all -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "ray-routing"])  # which is made of samples alone
def test_a_run_of_which_little_is_known_is_no_trouble(name):
    bare = replace(made_run(20), environment=Environment(), verdict=None, started_at="")
    for content in made(name, bare).values():
        assert content


@pytest.mark.parametrize(
    "name", ["json", "vllm", "llm-d", "llm-d-v0.1", "github-action-benchmark", "openmetrics", "nm-vllm", "pytorch-hud"]
)
def test_formats_of_numbers_need_no_records(name: str, run: Run) -> None:
    assert made(name, replace(run, read_records=None, read_samples=None))


@pytest.mark.parametrize("name", sorted(NEED_RECORDS))
def test_formats_of_requests_say_that_there_are_none(name, run: Run):
    with pytest.raises(StoreError, match="no records"):
        made(name, replace(run, read_records=None, folder=None))


@pytest.mark.parametrize("name", ["vllm", "ci-bench", "nm-vllm", "ray-sweep"])
def test_a_kind_that_a_format_has_no_place_for_is_refused(name: str) -> None:
    startup = bare_run("startup", {"values": {"ready": {"value": 3.0, "unit": "s", "direction": "lower"}}}, {})
    with pytest.raises(StoreError, match="kind startup"):
        made(name, startup)


def test_inferx_comes_back(run: Run, tmp_path: Path) -> None:
    (imported,) = back(tmp_path, "metrics.csv", made("inferx", run)["metrics.csv"])
    assert len(imported.records) == 500
    assert (np.array([record == "ok" for record in imported.records.outcome.texts()])).sum() == 475


def test_throughput_comes_back(throughput: Run, tmp_path: Path) -> None:
    (imported,) = back(tmp_path, "throughput.json", only("vllm", throughput))
    assert imported.kind == "throughput"
    assert imported.rates["request_rate"].value == 10.0


def test_parquet_and_csv_hold_every_record(run: Run, tmp_path: Path) -> None:
    from inferometer.record.parquet import read_parquet

    path = tmp_path / "records.parquet"
    path.write_bytes(only("parquet", run))
    again: Records = read_parquet(path)
    assert len(again) == 500
    rows = list(csv.DictReader(io.StringIO(only("csv", run).decode())))
    assert len(rows) == 500
    assert rows[1]["reads"] == "16"
