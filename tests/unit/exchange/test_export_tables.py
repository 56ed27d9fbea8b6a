"""Results in other tools' tables and histories: github-action-benchmark, CI benchmark, nm-vllm, Ray's sweep."""

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from exported_runs import (
    back,
    bare_run,
    made,
    only,
    sampled,
    value,
)
from made_runs import made_run
from msgspec import structs

from inferometer.errors import StoreError
from inferometer.exchange.exporting import ExportRequest, pieces
from inferometer.exchange.exporting.vllm import serve_document
from inferometer.plan.stored import StoredPlan
from inferometer.record.environment import MeasuredTarget
from inferometer.record.run import Run
from inferometer.record.summary import Summary, Value

# -- github-action-benchmark ---------------------------------------------------------------------------------


def test_action_benchmark_has_a_file_per_direction_and_none_empty(run: Run) -> None:
    files = {name: json.loads(content) for name, content in made("github-action-benchmark", run).items()}
    assert set(files) == {"bigger.json", "smaller.json", "observe.json"}
    for entries in files.values():
        assert entries
        assert all(set(entry) >= {"name", "value", "unit"} for entry in entries)
        assert all(isinstance(entry["name"], str) and isinstance(entry["unit"], str) for entry in entries)
        assert all(math.isfinite(entry["value"]) for entry in entries)
    names = {file: {entry["name"].rpartition(" ")[2] for entry in entries} for file, entries in files.items()}
    assert {"output_rate", "goodput"} <= names["bigger.json"]
    assert {"ttft.mean", "ttft.p50", "tpot.p50"} <= names["smaller.json"]
    assert {"ttft.p99", "output_tokens.mean"} <= names["observe.json"]  # tails and what has no better side


def test_action_benchmark_names_survive_an_upgrade(run: Run) -> None:
    other = structs.replace(run.environment, target=MeasuredTarget(version="9.9", model="m"))
    newer = replace(run, id="another", environment=other)
    names = [
        [entry["name"] for entry in json.loads(made("github-action-benchmark", each)["smaller.json"])]
        for each in (run, newer)
    ]
    assert names[0] == names[1]


def test_action_benchmark_draws_two_workloads_as_two_lines(run: Run) -> None:
    other = replace(run, plan=StoredPlan({**run.plan, "load": {"rate": 99}}))
    plain, named = (
        [replace(each, plan=StoredPlan({**each.plan, "name": name})) for each in (run, other)] for name in (None, "a")
    )
    lines = [{entry["name"] for each in runs for entry in entries_of(each)} for runs in (plain, named)]
    assert len(lines[0]) == 2 * len(lines[1]) == 2 * len(entries_of(run))


def entries_of(run):
    return json.loads(made("github-action-benchmark", run)["smaller.json"])


def test_action_benchmark_leaves_out_a_file_without_entries() -> None:
    speed = Value(value=2.0, unit="widgets/s", direction="higher", title="Speed")
    (name,) = made("github-action-benchmark", bare_run("benchmark", Summary(values={"speed": speed}), {}))
    assert name == "bigger.json"
    with pytest.raises(StoreError, match="no number"):
        made("github-action-benchmark", bare_run("benchmark", Summary(), {}))


# -- CI benchmark --------------------------------------------------------------------------------------------


def test_ci_bench_makes_points_table_and_databases(latency: Run, run: Run, closed: Run, tmp_path: Path) -> None:
    files = made("ci-bench", latency, run, closed)
    assert set(files) == {
        "benchmark_history/data_point_2026-11-15T03-12-07+00-00.json",
        "table_markdown.md",
        "fake_db/data.json",
        "fake_db/e2e_benchmark_data.json",
        "fake_db/max_concurrency_benchmark_data.json",
    }
    (point,) = orjson.loads(files["fake_db/data.json"])
    assert point["timestamp"] == "2026-11-15T03:12:07+00:00"
    assert [row["batch_size"] for row in point["results"]] == [1, 8]
    assert set(point["results"][0]) == {"batch_size", "avg_latency", "p50", "p90", "p99"}
    assert point["results"][0]["avg_latency"] == pytest.approx(0.62)
    assert files["table_markdown.md"].decode().splitlines()[0].split("|")[1].strip() == "batch_size"
    pair = orjson.loads(files["fake_db/e2e_benchmark_data.json"])["256_64"]
    assert (pair["input_len"], pair["output_len"], pair["total_tokens"]) == (256, 64, 320)
    assert pair["history"][0]["timestamp"].endswith("Z")
    assert {"p99.9_itl_ms", "total_token_throughput"} <= pair["history"][0].keys()
    (trade,) = orjson.loads(files["fake_db/max_concurrency_benchmark_data.json"])
    assert trade["tokens_per_sec_user"] == pytest.approx(1000 / trade["mean_tpot_ms"])
    assert trade["cost_per_million_toks"] is None  # no price was given: not 2 dollars an hour
    for name in ("data", "e2e_benchmark_data", "max_concurrency_benchmark_data"):
        assert back(tmp_path, f"{name}.json", files[f"fake_db/{name}.json"])


def test_ci_bench_appends_and_does_not_double(latency: Run, run: Run) -> None:
    files = made("ci-bench", latency, run)
    again = made("ci-bench", latency, run, there=files.get)
    assert again == files
    later = replace(run, id="later", started_at="2026-11-16T03:12:07+00:00")
    third = made("ci-bench", later, there=files.get)
    assert len(orjson.loads(third["fake_db/e2e_benchmark_data.json"])["256_64"]["history"]) == 2


def test_ci_bench_does_not_overwrite_what_it_does_not_know(run: Run) -> None:
    with pytest.raises(StoreError, match="not a database"):
        made("ci-bench", run, there=lambda name: b"[1, 2]")


# -- nm-vllm -------------------------------------------------------------------------------------------------


def test_nm_vllm_has_its_keys_units_and_directions(run: Run, throughput: Run, tmp_path: Path) -> None:
    (name, content), *_ = made("nm-vllm", run).items()
    assert name == "benchmark_serving-vllm-10qps-m-20261115-031207.json"
    said = orjson.loads(content)
    assert list(said) == [
        *("json_schema_version", "vllm_version", "benchmarking_context", "description", "gpu_description", "date"),
        *("epoch_time", "script_name", "tensor_parallel_size", "model", "tokenizer", "dataset", "script_args"),
        *("metadata", "metrics"),
    ]
    assert said["gpu_description"] == "NVIDIA H200 x 1"
    assert said["date"] == "2026-11-15 03:12:07 UTC"
    metrics = said["metrics"]
    assert all(
        set(metric) == {"key", "unit", "value", "type"} and metric["key"] == key for key, metric in metrics.items()
    )
    assert (metrics["request_throughput"]["unit"], metrics["request_throughput"]["type"]) == (
        *("prompts/s", "BiggerIsBetter"),
    )
    assert metrics["median_tpot_ms"]["type"] == "SmallerIsBetter"
    assert metrics["p99_ttft_ms"]["type"] == "Observation"
    (imported,) = back(tmp_path, name, content)
    assert imported.measures["ttft"]["mean"] == pytest.approx(value(run, "ttft.mean"))
    assert imported.measures["tpot"]["p50"] == pytest.approx(value(run, "tpot.p50"))
    offline = orjson.loads(only("nm-vllm", throughput))
    assert offline["script_name"] == "benchmark_throughput"
    assert offline["metrics"]["token_throughput"]["value"] == 6400


# -- Ray's sweep ---------------------------------------------------------------------------------------------

PARAMETERS = (
    "gpu_type,model_name,num_servers,enable_prefix_caching,enable_chunked_prefill,benchmark_label,scheduler_strategy,"
    "min_output_len,max_output_len,max_concurrency,request_rate,with_warmup,disable_ignore_eos,disable_stream,"
)
CLIENT = (
    "duration,completed,request_throughput,input_throughput,output_throughput,"
    "mean_ttft_ms,median_ttft_ms,std_ttft_ms,p99_ttft_ms,mean_tpot_ms,median_tpot_ms,std_tpot_ms,p99_tpot_ms,"
    "mean_itl_ms,median_itl_ms,std_itl_ms,p99_itl_ms,mean_e2e_latency_ms,median_e2e_latency_ms"
)
SERVE = "serve_random_sweep_results.csv"
ENGINE = (
    "ray_vllm:prompt_tokens_total,ray_vllm:generation_tokens_total,ray_vllm:request_success_total,"
    "ray_vllm:time_to_first_token_seconds,ray_vllm:time_per_output_token_seconds,"
    "ray_vllm:e2e_request_latency_seconds,ray_vllm:request_queue_time_seconds,"
    "ray_vllm:request_inference_time_seconds,ray_vllm:request_prefill_time_seconds,"
    "ray_vllm:request_decode_time_seconds"
)


def test_ray_sweep_has_the_columns_in_their_order(run: Run, tmp_path: Path) -> None:
    files = made("ray-sweep", sampled(run))
    client, engine = (files[f"{name}_random_sweep_results.csv"].decode().splitlines()[0] for name in ("serve", "vllm"))
    assert client == f"{PARAMETERS}max_conversations,num_prompts,{CLIENT}"
    assert engine == f"{PARAMETERS}max_conversations,num_prompts,{ENGINE}"
    row = next(csv.DictReader(io.StringIO(files["vllm_random_sweep_results.csv"].decode())))
    assert row["ray_vllm:prompt_tokens_total"] == "4000.0"
    assert float(row["ray_vllm:time_to_first_token_seconds"]) == 26 / 400  # pooled: not the mean of the means
    assert row["ray_vllm:request_decode_time_seconds"] == ""  # not told, not 0
    (imported,) = back(tmp_path, "serve_random_sweep_results.csv", files["serve_random_sweep_results.csv"])
    assert imported.measures["ttft"]["mean"] == pytest.approx(serve_document(run)["mean_ttft_ms"] / 1000, abs=1e-7)


@pytest.mark.parametrize(
    ("server", "strategy"),
    [
        ({"type": "ray-serve", "replicas": 2}, "power_of_two"),
        ({"type": "ray-serve", "replicas": 2, "router": "prefix_aware"}, "prefix_aware"),
        ({"type": "fleet", "replicas": 2}, "prefix_aware"),
        ({"type": "fleet", "replicas": 2, "router": {"type": "nginx"}}, "least_loaded"),
        ({"type": "simulator"}, ""),
    ],
)
def test_ray_sweep_names_the_strategy_also_where_it_is_the_default(server: dict[str, object], strategy: str) -> None:
    row = next(csv.DictReader(io.StringIO(made("ray-sweep", made_run(20, server=server))[SERVE].decode())))
    assert row["scheduler_strategy"] == strategy


def test_ray_sweep_of_shared_prefixes_has_their_columns() -> None:
    prefix = {"tokens": 1000, "suffix_tokens": 500, "groups": 10, "prompts": 2}
    shared = made_run(50, workload={"prefix": prefix, "output_tokens": "10-200"})
    row = next(csv.DictReader(io.StringIO(only("ray-sweep", shared).decode())))
    assert [row[name] for name in ("num_prefixes", "suffixes_per_prefix", "prefix_len", "suffix_len")] == [
        *("10", "2", "1000", "500")
    ]
    assert (row["min_output_len"], row["max_output_len"]) == ("10", "200")


def test_ray_sweep_appends_lines_and_repeats_no_header(run: Run) -> None:
    files = made("ray-sweep", run)
    name = "serve_random_sweep_results.csv"
    lines = made("ray-sweep", run, there=files.get)[name].decode().splitlines()
    assert len(lines) == 3
    assert sum(line.startswith("gpu_type") for line in lines) == 1
    old = b"gpu_type,model_name\nL4,x\n"
    mixed = made("ray-sweep", run, there=lambda _: old)[name].decode().splitlines()
    assert [line.startswith("gpu_type") for line in mixed] == [True, False, True, False]


def test_ray_sweep_says_why_there_is_no_engine_file(run: Run) -> None:
    asked = ExportRequest([run])
    assert [piece.name for piece in pieces("ray-sweep", asked)] == ["serve_random_sweep_results.csv"]
    assert "no engine metrics" in asked.notes[0]
