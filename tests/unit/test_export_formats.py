"""Each format: its shape, its units, and back through the importer where there is one."""

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import orjson
import pytest
import yaml
from made_runs import made_run
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from inferometer.errors import StoreError
from inferometer.exchange.exporting.llmd import STATISTICS, report
from inferometer.exchange.exporting.openmetrics import text
from inferometer.exchange.exporting.pieces import Asked
from inferometer.exchange.exporting.registry import FORMATS, pieces
from inferometer.exchange.exporting.vllm import serve_document
from inferometer.exchange.importing.reading import read_source
from inferometer.exchange.importing.recognise import format_named, recognise
from inferometer.measure.offline import Case, Pass, latency_summary, throughput_summary
from inferometer.measure.values import quantities
from inferometer.record.columns import Records
from inferometer.record.run import Run
from inferometer.record.sample import Sample, Samples

URL = "http://localhost:8000/metrics"
NEED_RECORDS = {"csv", "parquet", "ray-sweep", "opentelemetry", "inferx"}


@pytest.fixture(scope="module")
def run() -> Run:
    """500 requests at 10 a second, 25 of them refused; 256 tokens in, 16 out although 64 were asked for."""
    made = made_run(500, failed=0.05, name="chat", limits=["ttft < 80ms"])
    environment = {
        "inferometer": "0.1.0",
        "gpus": [{"name": "NVIDIA H200"}],
        "target": {"server": "vLLM", "version": "0.24.0", "urls": ["http://localhost:8000"], "model": "m"},
    }
    return replace(made, environment=environment)


@pytest.fixture(scope="module")
def closed() -> Run:
    return made_run(200, load={"type": "concurrency", "concurrency": 4}, stop={"requests": 200})


@pytest.fixture(scope="module")
def latency() -> Run:
    cases = [Case(size, 512, 128, 4, f"latency_bs{size}", [0.6, 0.61, 0.62, 0.65]) for size in (8, 1)]
    return _bare("latency", latency_summary(cases), {"model": "m", "batch_sizes": [8, 1]})


@pytest.fixture(scope="module")
def throughput() -> Run:
    return _bare("throughput", throughput_summary([Pass(10.0, 100, 51200, 12800)]), {"model": "m"})


def _bare(kind, summary, plan) -> Run:
    word = {"word": "valid", "reasons": []}
    return Run(f"20261115-031207-{kind}", "2026-11-15T03:12:07+00:00", plan, {}, summary, word, kind=kind)


def made(name, *runs, **asked) -> dict[str, bytes]:
    return {piece.name: piece.content for piece in pieces(name, Asked(runs, **asked))}


def only(name, *runs, **asked):
    (content,) = made(name, *runs, **asked).values()
    return content


def back(tmp_path, name, content):
    """What an import makes of it."""
    path = tmp_path / name
    path.write_bytes(content)
    source = read_source(path)
    found = format_named(recognise(source)).read(source)
    assert not found.broken
    return found.runs


def value(run, key):
    return quantities(run.summary)[key].value


# -- vLLM ----------------------------------------------------------------------------------------------------


def test_vllm_has_every_field_of_a_saved_result(run):
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


def test_vllm_with_every_request(run):
    said = orjson.loads(only("vllm", run, detailed=True))
    arrays = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors")
    assert {len(said[name]) for name in arrays} == {500}
    assert said["errors"][0] == "429 Too Many Requests"
    assert (said["ttfts"][0], said["itls"][0], said["output_lens"][0]) == (0, [], 0)  # as vLLM writes a failure
    good = [number for number, error in enumerate(said["errors"]) if not error]
    assert np.mean([said["ttfts"][number] for number in good]) * 1000 == pytest.approx(said["mean_ttft_ms"])


def test_an_endless_rate_is_a_text(closed):
    said = serve_document(closed)
    assert (said["request_rate"], said["max_concurrency"]) == ("inf", 4)


def test_trap_milliseconds_are_milliseconds(run, tmp_path):
    """Seconds labelled ms have gone through whole pipelines unseen: every `_ms` is a thousand times our seconds."""
    said = serve_document(run)
    assert said["mean_ttft_ms"] == pytest.approx(1000 * value(run, "ttft.mean"), rel=0.05)
    assert 10 < said["mean_ttft_ms"] < 200
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
    assert latencies["request_latency"]["mean"] > latencies["time_to_first_token"]["mean"]


def test_trap_no_percentile_is_dropped(run):
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


def test_trap_lengths_are_those_served(run):
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


def test_vllm_latency_and_throughput_are_seconds(latency, throughput, tmp_path):
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


def test_llmd_is_yaml_or_json_and_comes_back(run, tmp_path):
    as_yaml = only("llm-d", run)
    as_json = only("llm-d", run, suffix=".json")
    assert yaml.safe_load(as_yaml) == orjson.loads(as_json)
    (imported,) = back(tmp_path, "report.yaml", as_yaml)
    for name in ("ttft", "tpot", "itl", "ntpot", "e2e"):
        assert imported.measures[name]["mean"] == value(run, f"{name}.mean")
        assert imported.measures[name]["p99"] == value(run, f"{name}.p99")
    assert imported.rates["output_rate"] == value(run, "output_rate")
    assert (imported.answered, imported.failed) == (475, 25)


def test_llmd_numbers_stay_numbers_in_yaml(run):
    """YAML 1.1 reads 5e-05 as a text: what is small must be written with a point."""
    tiny = replace(run, summary=run.summary | {"values": {}, "measures": {"ttft": {"mean": 5e-05, "p50": 1e-7}}})
    said = yaml.safe_load(only("llm-d", replace(tiny, read_records=None)))
    assert said["results"]["request_performance"]["aggregate"]["latency"]["time_to_first_token"]["mean"] == 5e-05


def test_llmd_tells_censored_from_failed(run):
    outcomes = {"ok": 97, "unfinished": 1, "cancelled": 1, "timeout": 1}
    changed = replace(run, summary=run.summary | {"outcomes": outcomes})
    requests = report(changed)["results"]["request_performance"]["aggregate"]["requests"]
    assert (requests["total"], requests["failures"], requests["incomplete"]) == (100, 1, 2)


# -- github-action-benchmark ---------------------------------------------------------------------------------


def test_action_benchmark_has_a_file_per_direction_and_none_empty(run):
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


def test_action_benchmark_names_survive_an_upgrade(run):
    newer = replace(run, id="another", environment=run.environment | {"target": {"version": "9.9", "model": "m"}})
    names = [
        [entry["name"] for entry in json.loads(made("github-action-benchmark", each)["smaller.json"])]
        for each in (run, newer)
    ]
    assert names[0] == names[1]


def test_action_benchmark_draws_two_workloads_as_two_lines(run):
    other = replace(run, plan={**run.plan, "load": {"rate": 99}})
    plain, named = ([replace(each, plan={**each.plan, "name": name}) for each in (run, other)] for name in (None, "a"))
    lines = [{entry["name"] for each in runs for entry in entries_of(each)} for runs in (plain, named)]
    assert len(lines[0]) == 2 * len(lines[1]) == 2 * len(entries_of(run))


def entries_of(run):
    return json.loads(made("github-action-benchmark", run)["smaller.json"])


def test_action_benchmark_leaves_out_a_file_without_entries():
    speed = {"speed": {"value": 2.0, "unit": "widgets/s", "direction": "higher", "title": "Speed"}}
    (name,) = made("github-action-benchmark", _bare("benchmark", {"values": speed}, {}))
    assert name == "bigger.json"
    with pytest.raises(StoreError, match="no number"):
        made("github-action-benchmark", _bare("benchmark", {"values": {}}, {}))


# -- CI benchmark --------------------------------------------------------------------------------------------


def test_ci_bench_makes_points_table_and_databases(latency, run, closed, tmp_path):
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


def test_ci_bench_appends_and_does_not_double(latency, run):
    files = made("ci-bench", latency, run)
    again = made("ci-bench", latency, run, there=files.get)
    assert again == files
    later = replace(run, id="later", started_at="2026-11-16T03:12:07+00:00")
    third = made("ci-bench", later, there=files.get)
    assert len(orjson.loads(third["fake_db/e2e_benchmark_data.json"])["256_64"]["history"]) == 2


def test_ci_bench_does_not_overwrite_what_it_does_not_know(run):
    with pytest.raises(StoreError, match="not a database"):
        made("ci-bench", run, there=lambda name: b"[1, 2]")


# -- nm-vllm -------------------------------------------------------------------------------------------------


def test_nm_vllm_has_its_keys_units_and_directions(run, throughput, tmp_path):
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
ENGINE = (
    "ray_vllm:prompt_tokens_total,ray_vllm:generation_tokens_total,ray_vllm:request_success_total,"
    "ray_vllm:time_to_first_token_seconds,ray_vllm:time_per_output_token_seconds,"
    "ray_vllm:e2e_request_latency_seconds,ray_vllm:request_queue_time_seconds,"
    "ray_vllm:request_inference_time_seconds,ray_vllm:request_prefill_time_seconds,"
    "ray_vllm:request_decode_time_seconds"
)


def sampled(run) -> Run:
    """Two engines, asked before and after: 100 and 300 answers, 50 ms and 70 ms to the first token."""
    before = {"prompt_tokens": 0.0, "ttft_sum": 0.0, "ttft_count": 0.0}
    after = {
        "a": {"prompt_tokens": 1000.0, "ttft_sum": 5.0, "ttft_count": 100.0},
        "b": {"prompt_tokens": 3000.0, "ttft_sum": 21.0, "ttft_count": 300.0},
    }
    bounds = {"0.06": (100.0, 100.0), "0.1": (100.0, 300.0), "+Inf": (100.0, 300.0)}
    samples = [
        Sample(f"{URL}/{source}", name, at, value, {"engine": "0"})
        for source, grown in after.items()
        for at, values in ((1, before), (2, grown))
        for name, value in values.items()
    ]
    samples += [
        Sample(f"{URL}/{source}", "ttft_bucket", at, value, {"engine": "0", "le": bound})
        for bound, counts in bounds.items()
        for source, count in zip("ab", counts, strict=True)
        for at, value in ((1, 0.0), (2, count))
    ]
    return replace(run, read_samples=lambda: Samples.of(samples))


def test_ray_sweep_has_the_columns_in_their_order(run, tmp_path):
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


def test_ray_sweep_of_shared_prefixes_has_their_columns():
    prefix = {"tokens": 1000, "suffix_tokens": 500, "groups": 10, "prompts": 2}
    shared = made_run(50, workload={"prefix": prefix, "output_tokens": "10-200"})
    row = next(csv.DictReader(io.StringIO(only("ray-sweep", shared).decode())))
    assert [row[name] for name in ("num_prefixes", "suffixes_per_prefix", "prefix_len", "suffix_len")] == [
        *("10", "2", "1000", "500")
    ]
    assert (row["min_output_len"], row["max_output_len"]) == ("10", "200")


def test_ray_sweep_appends_lines_and_repeats_no_header(run):
    files = made("ray-sweep", run)
    name = "serve_random_sweep_results.csv"
    lines = made("ray-sweep", run, there=files.get)[name].decode().splitlines()
    assert len(lines) == 3
    assert sum(line.startswith("gpu_type") for line in lines) == 1
    old = b"gpu_type,model_name\nL4,x\n"
    mixed = made("ray-sweep", run, there=lambda _: old)[name].decode().splitlines()
    assert [line.startswith("gpu_type") for line in mixed] == [True, False, True, False]


def test_ray_sweep_says_why_there_is_no_engine_file(run):
    asked = Asked([run])
    assert [piece.name for piece in pieces("ray-sweep", asked)] == ["serve_random_sweep_results.csv"]
    assert "no metrics of its engines" in asked.notes[0]


# -- metrics -------------------------------------------------------------------------------------------------


def test_openmetrics_is_read_by_its_own_parser(run, throughput):
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
    assert (info.labels["verdict"], info.labels["gpu"]) == (run.verdict["word"], "NVIDIA H200 x 1")


def test_opentelemetry_has_the_names_units_and_buckets(run):
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


def test_opentelemetry_tells_tokens_and_failures_apart(run):
    metrics = orjson.loads(only("opentelemetry", run))["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    duration, usage = (metric["histogram"]["dataPoints"] for metric in metrics[:2])
    about = [{each["key"]: next(iter(each["value"].values())) for each in point["attributes"]} for point in duration]
    assert [each.get("error.type") for each in about] == [None, "status"]
    assert [int(point["count"]) for point in duration] == [475, 25]
    assert about[0]["gen_ai.operation.name"] == "text_completion"
    assert (about[0]["server.address"], about[0]["server.port"]) == ("localhost", "8000")
    sums = {each["attributes"][-1]["value"]["stringValue"]: each["sum"] for each in usage}
    assert sums == {"input": 475 * 256, "output": 475 * 16}


def test_hud_records_have_the_dashboards_names(run, latency, throughput):
    records = orjson.loads(only("pytorch-hud", run, latency, throughput))
    assert all(set(record) == {"benchmark", "model", "metric"} for record in records)
    names = {record["metric"]["name"] for record in records}
    assert {"mean_ttft_ms", "p99_itl_ms", "latency", "requests_per_second", "tokens_per_second"} <= names
    by_batch = [record["metric"] for record in records if record["metric"]["name"] == "latency"]
    assert [len(metric["benchmark_values"]) for metric in by_batch] == [4, 4]
    assert all(isinstance(record["metric"]["benchmark_values"], list) for record in records)


# -- all -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_a_run_of_which_little_is_known_is_no_trouble(name):
    bare = replace(made_run(20), environment={}, verdict={}, started_at="")
    for content in made(name, bare).values():
        assert content


@pytest.mark.parametrize(
    "name", ["json", "vllm", "llm-d", "github-action-benchmark", "openmetrics", "nm-vllm", "pytorch-hud"]
)
def test_formats_of_numbers_need_no_records(name, run):
    assert made(name, replace(run, read_records=None, read_samples=None))


@pytest.mark.parametrize("name", sorted(NEED_RECORDS))
def test_formats_of_requests_say_that_there_are_none(name, run):
    with pytest.raises(StoreError, match="no records"):
        made(name, replace(run, read_records=None, folder=None))


@pytest.mark.parametrize("name", ["vllm", "ci-bench", "nm-vllm", "ray-sweep"])
def test_a_kind_that_a_format_has_no_place_for_is_refused(name):
    startup = _bare("startup", {"values": {"ready": {"value": 3.0, "unit": "s", "direction": "lower"}}}, {})
    with pytest.raises(StoreError, match="kind startup"):
        made(name, startup)


def test_inferx_comes_back(run, tmp_path):
    (imported,) = back(tmp_path, "metrics.csv", made("inferx", run)["metrics.csv"])
    assert len(imported.records) == 500
    assert (np.array([record == "ok" for record in imported.records.outcome.texts()])).sum() == 475


def test_throughput_comes_back(throughput, tmp_path):
    (imported,) = back(tmp_path, "throughput.json", only("vllm", throughput))
    assert imported.kind == "throughput"
    assert imported.rates["request_rate"] == 10.0


def test_parquet_and_csv_hold_every_record(run, tmp_path):
    from inferometer.record.parquet import read_parquet

    path = tmp_path / "records.parquet"
    path.write_bytes(only("parquet", run))
    again: Records = read_parquet(path)
    assert len(again) == 500
    rows = list(csv.DictReader(io.StringIO(only("csv", run).decode())))
    assert len(rows) == 500
    assert rows[1]["reads"] == "16"
