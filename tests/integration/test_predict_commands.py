"""From measured runs to a capacity on the command line, as in the guide."""

import json
from pathlib import Path

import numpy as np
import pytest

import command_line
from inferometer.conduct.predict import compared_steps
from inferometer.show.charts.engine import steps_chart
from inferometer.simulator.fitting.server_model import read_model
from inferometer.store.folder import load_run
from inferometer.store.store import open_store

ROOT = Path(__file__).parents[2]


def command(store: Path, *words: str, code: int = 0, kept: bool = True) -> str:
    done = command_line.command(*words, *(("--store", str(store)) if kept else ()))
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


RUNS = ("a-512-128-r5", "e-1000-200-c1")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fitted on two small real runs of ours."""
    folder = tmp_path_factory.mktemp("models")
    data = ROOT / "tests" / "data" / "vllm-0.24-h200-sweep-8b"
    runs = [str(data / name) for name in RUNS]
    command(folder / "store", "fit", *runs, "--kv-tokens", "910656", "-o", str(folder / "h200.yaml"))
    return folder / "h200.yaml"


def test_a_prediction_has_intervals_and_is_marked(model: Path, tmp_path: Path) -> None:
    load = ("--rate", "5", "--duration", "20s", "--input-tokens", "512", "--output-tokens", "128")
    text = command(tmp_path, "predict", "--model-file", str(model), *load)
    assert text.startswith("PREDICTED  by h200, fitted on 2 runs; nothing was measured")
    document = json.loads(command(tmp_path, "predict", "--model-file", str(model), *load, "--json"))
    ttft = next(one for one in document["prediction"]["numbers"] if one["name"] == "ttft.mean")
    assert 0.030 < ttft["low"] < ttft["value"] < ttft["high"] < 0.055  # 40.8 ms was measured
    assert document["run"]["id"] == "predicted"


def test_a_broken_limit_exits_with_1(model: Path, tmp_path: Path) -> None:
    words = ("--rate", "5", "--duration", "30s", "--input-tokens", "512", "--output-tokens", "128")
    text = command(tmp_path, "predict", "--model-file", str(model), *words, "--limit", "ttft p50 < 5ms", code=1)
    assert "would be broken" in text


def test_a_capacity_is_a_table(model: Path, tmp_path: Path) -> None:
    words = ("--input-tokens", "512", "--output-tokens", "64", "--duration", "8s", "--limit", "ttft p50 < 100ms")
    found = command(
        *(tmp_path, "predict", "--model-file", str(model), *words, "--capacity"),
        *("--replicas", "1,2", "--price", "3.5", "--json"),
    )
    one, two = json.loads(found[found.index("{") :])["capacities"]
    assert 5 < one["rate"] < 100 and two["rate"] == pytest.approx(2 * one["rate"])
    assert 0.2 * one["rate"] < one["sure_rate"] <= 0.7 * one["rate"]  # two light runs tell little of so much load
    assert any("requests in flight" in note for note in one["outside"])


def test_a_model_is_held_against_a_run(model: Path, tmp_path: Path) -> None:
    run = ROOT / "tests" / "data" / "vllm-0.24-h200-sweep-8b" / "e-1000-200-c1"
    chart = tmp_path / "errors.json"
    text = command(tmp_path, "validate", str(model), str(run), "--chart", str(chart))
    assert "measured" in text and "throughput, on these runs: median error" in text
    points = {row["measure"]: row["error"] for row in json.loads(chart.read_text())["data"]["values"]}
    assert set(points) >= {"TTFT mean", "E2E p90"} and abs(points["TPOT mean"]) < 0.05
    assert "measured values within the 95% interval of their prediction: 7 of 7" in text


def test_the_steps_of_a_fit_are_drawn_beside_the_measured_ones(model: Path, tmp_path: Path) -> None:
    run = ROOT / "tests" / "data" / "vllm-0.24-h200-sweep-8b" / "e-1000-200-c1"
    steps = compared_steps(read_model(model), [load_run(run)])[0]
    assert len(steps.measured_s) > 1000 and len(steps.modelled_s) > 1000
    assert np.median(steps.modelled_s) == pytest.approx(np.median(steps.measured_s), rel=0.05)
    (panel,) = steps_chart([steps]).spec["concat"]
    assert {row["side"] for row in panel["data"]["values"]} == {"measured", "modelled"}


WORK = ("--rate", "5", "--duration", "5s", "--input-tokens", "512", "--output-tokens", "64")


def test_simulate_and_search_take_a_model(model: Path, tmp_path: Path) -> None:
    text = command(tmp_path, "simulate", *WORK, "--model", str(model), kept=False)  # as short for --model-file
    assert text.startswith("PREDICTED  nothing was measured") or "predicted by h200" in text
    found = command(tmp_path, "search", *WORK[2:], "--limit", "ttft p50 < 100ms", "--model-file", str(model), "--json")
    assert 5 < json.loads(found[found.index("{") :])["capacities"][0]["rate"] < 100


def test_a_limit_that_no_rate_meets_is_named(model: Path, tmp_path: Path) -> None:
    words = (
        "search",
        "--model-file",
        str(model),
        "--duration",
        "2s",
        "--limit",
        "ttft p50 < 1us",
        "--store",
        str(tmp_path),
    )
    done = command_line.command(*words)
    assert done.returncode == 1 and "no rate meets the limits, not even one request at a time" in done.stdout


def test_search_finds_servers_and_settings_and_measures_its_answer(model: Path, tmp_path: Path, simulator: str) -> None:
    """The capacity of two numbers of servers for two settings, with its cost; then the first row for real."""
    words = ("search", "--model", str(model), "--input-tokens", "64", "--output-tokens", "8", "--duration", "2s")
    limit = ("--limit", "ttft p50 < 100ms", "-q")
    more = ("--replicas", "1,2", "--max-sequences", "2,256", "--price", "3.5", "--json")
    rows = json.loads(command(tmp_path, *words, *limit, *more))["capacities"]
    assert [(row["replicas"], row["settings"]["max_sequences"]) for row in rows] == [(1, 2), (2, 2), (1, 256), (2, 256)]
    assert rows[0]["rate"] < rows[2]["rate"] and rows[1]["dollars_per_million"] == rows[0]["dollars_per_million"] > 0
    done = command_line.command(
        *words, *limit, "--max-sequences", "2", "--confirm", simulator, "--store", str(tmp_path)
    )
    assert done.returncode in (0, 4), done.stderr  # two seconds are too short for a valid measurement
    assert "the share of one replica in the first row; the server must be started with max_sequences 2" in done.stderr
    assert "  measured" in done.stdout and "  predicted" in done.stdout


def test_a_sweep_is_predicted_and_its_runs_say_so(model: Path, tmp_path: Path) -> None:
    plan = {"workload": {"input_tokens": 512, "output_tokens": 16}, "stop": {"duration": "2s"}}
    file = tmp_path / "experiment.json"
    file.write_text(
        json.dumps({"plan": plan, "axes": {"server.args.max_sequences": [8, 256]}, "set": {"load.rate": 5}})
    )
    command(tmp_path / "store", "sweep", str(file), "--model-file", str(model), "-q")
    run = open_store(tmp_path / "store").load("latest")
    assert run.subject.engine_text == "vLLM 0.24.0, predicted by h200" and run.environment.known_target.is_predicted
    store = tmp_path / "store"
    assert "predicted: " in command(store, "list")
    marked = "vLLM 0.24.0, predicted by h200"
    for form in ("vllm", "nm-vllm", "llm-d", "openmetrics", "opentelemetry", "wandb", "pytorch-hud"):
        assert "predicted by h200" in command(store, "export", "latest", "--as", form, "-o", "-"), form
    command(store, "export", "latest", "--as", "ray-sweep", "-o", str(tmp_path / "ray"))
    assert marked in next((tmp_path / "ray").glob("*.csv")).read_text()
    assert f"is of {marked}; this file cannot tell" in command(store, "export", "latest", "--as", "csv", "-o", "-")
    text = command(store, "export", "latest", "--as", "ci-bench", "-o", str(tmp_path / "history"), code=2)
    assert "keeps a history of measured numbers only" in text
    text = " ".join(command(store, "compare", "latest~1", "latest").split())
    assert f"are of {marked}: nothing was measured" in text
    assert f"is of {marked}: nothing was measured" in command(store, "check", "latest")


def test_a_model_file_that_is_not_there_is_a_mistake_of_the_plan(tmp_path: Path) -> None:
    words = ("simulate", "--rate", "5", "--set", "server={type: simulator, args: {model_file: none.yaml}}")
    text = command(tmp_path, *words, code=2, kept=False)
    assert "server.args" in text and "none.yaml: No such file" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fit",), "name at least one run, or --gpu and --shape"),
        (
            ("predict", "--model-file", "x.yaml", "--confirm", "http://h", "--json"),
            "--json cannot be combined with --confirm",
        ),
        (("search", "--replicas", "2", "--limit", "ttft p50 < 1s"), "--price and --confirm go with --model-file"),
        (("fit", "--gpu", "h100"), "--gpu and --shape go together"),
        (("fit", "latest", "-o", "missing/x.yaml"), "-o missing/x.yaml: there is no folder missing"),
        (("fit", "--gpu", "abacus", "--shape", "llama-3.1-8b"), "no accelerator 'abacus' is known"),
        (("predict", "--model-file", "missing.yaml"), "missing.yaml: No such file"),
    ],
)
def test_wrong_use_is_said_in_one_line(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    assert message in command(tmp_path, *words, code=2)
