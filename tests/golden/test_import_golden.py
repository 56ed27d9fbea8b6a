"""Real results of other tools: every number in their files is imported to the right place."""

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from inferometer.exchange.importing.importer import import_file
from inferometer.exchange.importing.recognise import format_named, read_source, recognise
from inferometer.measure.inputs import Answers
from inferometer.measure.registry import request_values
from inferometer.measure.values import quantities
from inferometer.record.run import Run
from inferometer.show.console import console
from inferometer.show.summary import print_view

pytestmark = pytest.mark.golden
SERVE = ("1000_200_8", "2000_400_inf", "300_100_5")


def kept(path: Path, store: Path) -> list[Run]:
    done = import_file(path, store)
    assert not done.broken
    return done.runs


def values(run: Run) -> dict[str, float]:
    return {key: each.value for key, each in quantities(run.summary).items()}


@pytest.mark.parametrize("case", SERVE)
def test_requests_of_vllm_make_its_printed_numbers_again(data: Path, tmp_path: Path, case: str) -> None:
    file = data / f"vllm-0.24-h200/vllm_bench_serve_{case}.json"
    said = json.loads(file.read_bytes())
    (run,) = kept(file, tmp_path)
    records = run.records
    assert records is not None and len(records) == said["completed"]
    answers = Answers.of(records)
    for ours, theirs in (("ttft", "ttft"), ("tpot", "tpot"), ("e2e", "e2el")):
        each = request_values(ours, answers) * 1000
        assert each.mean() == pytest.approx(said[f"mean_{theirs}_ms"], rel=1e-6)
        for p in (50, 90, 95, 99):
            assert np.percentile(each, p) == pytest.approx(said[f"p{p}_{theirs}_ms"], rel=1e-6)
    gaps = answers.gaps.length_s * 1000
    assert gaps.mean() == pytest.approx(said["mean_itl_ms"], rel=1e-6)
    assert np.percentile(gaps, 99) == pytest.approx(said["p99_itl_ms"], rel=1e-6)
    assert int(records.output_tokens.sum()) == said["total_output_tokens"]
    assert int(records.input_tokens.sum()) == said["total_input_tokens"]
    reported = run.summary.reported
    assert reported.measures["itl"]["p99"] == pytest.approx(said["p99_itl_ms"] / 1000)
    assert reported.rates["output_rate"].value == said["output_throughput"]
    assert run.verdict.codes == []  # nothing in it disagrees


@pytest.mark.parametrize("case", SERVE)
def test_the_means_of_the_file_are_those_of_its_printed_table(data: Path, tmp_path: Path, case: str) -> None:
    log = (data / f"vllm-0.24-h200/bench_serve_{case}.log").read_text()
    (run,) = kept(data / f"vllm-0.24-h200/vllm_bench_serve_{case}.json", tmp_path)
    printed = {name: float(value) for name, value in re.findall(r"^(\w+ \w+) \(ms\): +([\d.]+)", log, re.MULTILINE)}
    for word, name in (("TTFT", "ttft"), ("TPOT", "tpot"), ("ITL", "itl"), ("E2EL", "e2e")):
        reported = run.summary.reported.measures[name]
        for head, statistic in (("Mean", "mean"), ("Median", "p50"), ("P99", "p99")):
            assert reported[statistic] * 1000 == pytest.approx(printed[f"{head} {word}"], abs=0.0051)


@pytest.mark.parametrize("batch", [1, 8])
def test_latencies_of_vllm(data: Path, tmp_path: Path, batch: int) -> None:
    file = data / f"vllm-0.24-h200/vllm_bench_latency_bs{batch}.json"
    said = json.loads(file.read_bytes())
    (run,) = kept(file, tmp_path)
    found = values(run)
    assert (run.kind, run.source) == ("latency", "vllm-bench-latency")
    assert found[f"latency_bs{batch}.mean"] == said["avg_latency"]
    assert {name: found[f"latency_bs{batch}.p{name}"] for name in said["percentiles"]} == said["percentiles"]


def test_a_report_of_guidellm(data: Path, tmp_path: Path) -> None:
    file = data / "results/guidellm/guidellm_report_v2.json"
    said = json.loads(file.read_bytes())["benchmarks"]
    runs = kept(file, tmp_path)
    assert [run.plan.section("load")["rate"] for run in runs] == [each["config"]["strategy"]["rate"] for each in said]
    for run, each in zip(runs, said, strict=True):
        found, metrics = values(run), each["metrics"]
        first, latency = (metrics[name]["successful"] for name in ("time_to_first_token_ms", "request_latency"))
        assert found["ttft.mean"] == pytest.approx(first["mean"] / 1000)
        assert found["ttft.p99.9"] == pytest.approx(first["percentiles"]["p999"] / 1000)
        assert found["ttft.p0.1"] == pytest.approx(first["percentiles"]["p001"] / 1000)
        assert found["e2e.p95"] == pytest.approx(latency["percentiles"]["p95"])
        assert found["e2e.mean"] > found["ttft.mean"] > found["tpot.mean"]
        assert run.environment.tool.version == "0.8.0.dev18"


def test_seven_stages_of_inference_perf(data: Path, tmp_path: Path) -> None:
    folder = data / "results/inference_perf/vllm"
    for stage in range(7):
        file = folder / f"stage_{stage}_lifecycle_metrics.json"
        said = json.loads(file.read_bytes())
        (run,) = kept(file, tmp_path)
        found, latency = values(run), said["successes"]["latency"]
        for name, key in (
            ("ttft", "time_to_first_token"),
            ("tpot", "time_per_output_token"),
            ("e2e", "request_latency"),
        ):
            theirs = latency[key]
            named = {"p50" if each == "median" else each: value for each, value in theirs.items()}
            assert {each: found[f"{name}.{each}"] for each in named} == named
        assert found["output_rate"] == said["successes"]["throughput"]["output_tokens_per_sec"]
        assert run.plan["load"] == {"type": "poisson", "rate": pytest.approx(said["load_summary"]["requested_rate"])}
        assert run.plan.section("target")["model"] == "meta-llama/Meta-Llama-3-8B-Instruct"
        assert run.plan.section("workload")["prefix"] == {
            "tokens": 128,
            "suffix_tokens": 64,
            "groups": 10,
            "prompts": 10,
        }
        assert found["server_ttft.mean"] > 0


def test_a_summary_of_loadgen(data: Path, tmp_path: Path) -> None:
    (run,) = kept(data / "results/mlperf/mi300x_llama2-70b_server_summary.txt", tmp_path)
    found = values(run)
    assert found["ttft_scheduled.p99"] == pytest.approx(1.914647645)
    assert found["tpot.p99"] == pytest.approx(0.193380124)
    assert found["e2e_scheduled.max"] == pytest.approx(165.057127340)
    assert (found["request_rate"], found["output_rate"], found["offered_rate"]) == (81.68, 24593.77, 83.90)
    assert (found["ttft_latency_limit"], found["tpot_latency_limit"]) == (2.0, 0.2)


def _statistics(said: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in said.items() if name not in ("units", "stddev")}


@pytest.mark.parametrize("version", ["0_2", "0_2_1"])
def test_newer_reports_of_llm_d(data: Path, tmp_path: Path, version: str) -> None:
    file = data / f"results/llmd_benchmark_report/br_v{version}_example.yaml"
    said = yaml.safe_load(file.read_text())
    (run,) = kept(file, tmp_path)
    first = said["results"]["request_performance"]["aggregate"]["latency"]["time_to_first_token"]
    found = values(run)
    names = {name: name.replace("p99p9", "p99.9").replace("p0p1", "p0.1") for name in _statistics(first)}
    assert {ours: found[f"ttft.{ours}"] for ours in names.values()} == {
        names[name]: value for name, value in _statistics(first).items()
    }
    assert found["session_time.p99"] == 74.5
    assert found["vllm-svc-0.kv_cache_usage"] == pytest.approx(0.425)
    assert found["vllm-svc-0.gpu_memory_usage"] == pytest.approx(62.4 * 2**30)
    assert run.started_at.startswith("2025-11-05T18:00:42")
    assert run.environment.gpus == ["NVIDIA-H100-80GB-HBM3"] * 16
    assert run.summary.window.length_s == pytest.approx(49.972, abs=0.001)


def test_the_old_report_of_llm_d_is_in_seconds_whatever_it_says(data: Path, tmp_path: Path) -> None:
    (run,) = kept(data / "results/llmd_benchmark_report/br_v0_1_example.yaml", tmp_path)
    found = values(run)
    assert found["ttft.mean"] == pytest.approx(0.800974442732916)
    assert found["tpot.mean"] == pytest.approx(0.0836929455635872)
    assert found["e2e.p90"] == pytest.approx(5.94717199734878)
    # its parts add up only so: TTFT and 31 more tokens make the request
    assert found["ttft.mean"] + 30.8 * found["tpot.mean"] == pytest.approx(found["e2e.mean"], rel=0.05)
    assert "read as seconds" in run.summary.notes[0]


@pytest.mark.parametrize(
    "name",
    [
        "results/splitwise_perf_model.csv",
        "results/inference_perf/config.yaml",
        "results/llmd_benchmark_report/br_v0_2_json_schema.json",
        "traces/burstgpt_1_first400.csv",
        "traces/azure_2023_code.csv",
        "traces/mooncake_conversation_trace.jsonl",
        "conversations/fastchat_dummy_conversation.json",
        "conversations/sonnet.txt",
        "vllm-0.24-h200/metrics_after.txt",
        "vllm-0.24-h200/vllm_server.log",
        "vllm-0.24-h200/error_404.json",
    ],
)
def test_real_files_that_are_no_results_are_not_taken_for_any(data: Path, name: str) -> None:
    from inferometer.errors import DataError

    with pytest.raises(DataError, match="not a supported result"):
        recognise(read_source(data / name))


def test_every_real_result_is_recognised(data: Path) -> None:
    expected = {"guidellm": "guidellm", "mlperf": "mlperf", "llmd_benchmark_report": "llm-d-report"}
    for folder, name in expected.items():
        for file in sorted((data / f"results/{folder}").iterdir()):
            if "schema" not in file.name:
                source = read_source(file)
                assert recognise(source) == name
                assert format_named(name).read(source).runs


def test_any_of_them_fits_a_screen(data: Path, tmp_path: Path) -> None:
    """24 lines of 80 columns; what else the file says is behind `--more`."""
    folders = ("guidellm", "inference_perf/vllm", "llmd_benchmark_report", "mlperf")
    found = (file for folder in folders for file in (data / "results" / folder).iterdir())
    files = [file for file in found if not {"schema", "prometheus"} & {*re.split(r"[_.]", file.name)}]
    runs = [run for file in sorted(files) for run in kept(file, tmp_path)]
    assert len(runs) >= 10
    for run in runs:
        text = io.StringIO()
        print_view(run, console(text, 80))
        assert len(text.getvalue().splitlines()) <= 24, text.getvalue()
