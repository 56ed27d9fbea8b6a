"""`inferometer offline` as a new user types it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from inferometer.cli import execute


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("INFEROMETER_STORE", str(tmp_path / "store"))
    return tmp_path / "store"


def typed(command):
    return execute(["offline", *command.split()])


def test_latency_of_batch_sizes(capsys):
    assert typed("latency --engine simulator --batch-sizes 1-8:4 --iters 8 --warmup 1") == 0
    shown = capsys.readouterr()
    assert "VALID" in shown.out
    assert "512 input, 128 output tokens; 8 iterations after 1 warm-up" in shown.out
    assert [line.split()[0] for line in shown.out.splitlines() if line.strip()[:1].isdigit()] == ["1", "5"]
    assert execute(["show"]) == 0
    assert capsys.readouterr().out == shown.out
    assert execute(["list"]) == 0


def test_the_three_flags_and_the_files_of_vllm(tmp_path: Path, capsys):
    prefix = tmp_path / "results" / "latency_bs"
    command = "latency --engine simulator --bs-start 1 --bs-end 3 --bs-step 2 --num-iters 5 --num-iters-warmup 0 -q"
    assert typed(f"{command} --output-json {prefix}") == 0
    assert sorted(file.name for file in prefix.parent.iterdir()) == ["latency_bs1.json", "latency_bs3.json"]
    document = json.loads((prefix.parent / "latency_bs3.json").read_text())
    assert list(document) == ["avg_latency", "latencies", "percentiles"]
    assert list(document["percentiles"]) == ["10", "25", "50", "75", "90", "99"]
    assert len(document["latencies"]) == 5


def test_several_lengths_have_files_of_their_own(tmp_path: Path) -> None:
    command = "latency --engine simulator --batch-sizes 2 --input-len 16,32 --output-len 4 --iters 5"
    assert typed(f"{command} --output-json {tmp_path}/bs") == 0
    assert sorted(file.name for file in tmp_path.glob("bs*")) == ["bs2_in16_out4.json", "bs2_in32_out4.json"]


def test_one_json_document_and_nothing_else() -> None:
    command = [
        sys.executable,
        "-m",
        "inferometer",
        "offline",
        "latency",
        "--engine",
        "simulator",
        "--iters",
        "5",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    document = json.loads(done.stdout)
    assert document["run"]["kind"] == "latency"
    assert len(document["summary"]["cases"]) == 8
    assert done.stderr == ""


def test_once_more(capsys):
    assert typed("latency --engine simulator --batch-sizes 1,3 --iters 6 --args step_time.jitter=0.1") == 0
    assert execute(["rerun", "latest", "--json", "--quiet"]) == 0
    first, second = (json.loads(_shown(capsys, run))["summary"]["cases"] for run in ("latest~1", "latest"))
    assert first == second and len(first) == 2
    assert execute(["rerun", "latest", "--set", "seed=3"]) == 2


def _shown(capsys, run):
    capsys.readouterr()
    assert execute(["show", run, "--json"]) == 0
    return capsys.readouterr().out


def test_throughput(tmp_path: Path, capsys):
    out = tmp_path / "throughput.json"
    command = "throughput --engine simulator --input-len 50-100 --output-len 20 --num-prompts 40 --repeats 2"
    assert typed(f"{command} --output-json {out}") == 0
    shown = capsys.readouterr().out
    assert "80 requests in 2 passes" in shown
    assert "Output token throughput" in shown
    assert list(json.loads(out.read_text())) == [
        *("elapsed_time", "num_requests", "total_num_tokens"),
        *("requests_per_second", "tokens_per_second"),
    ]


def test_throughput_of_a_dataset(tmp_path: Path, capsys):
    file = tmp_path / "prompts.txt"
    file.write_text("".join(f"prompt number {n}\n" for n in range(10)))
    assert typed(f"throughput --engine simulator --dataset {file} --output-len 5 --num-prompts 10") == 0
    assert "10 requests, 30 tokens in, 50 out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("latency --engine simulator --bs-start 8 --bs-end 1", "--bs-end: must be at least --bs-start, 8, got 1"),
        ("latency --engine simulator --batch-sizes 1 --bs-start 8 --bs-end 9", "exclude each other"),
        ("latency --engine simulator --batch-sizes none", "--batch-sizes: must be sizes such as"),
        ("latency --engine simulator --iters 0", "--iters: must be at least 1, got 0"),
        ("latency --engine tgi", "--engine: must be one of vllm, transformers, simulator, got tgi"),
        ("latency --engine transformers", "--model: is missing"),
        ("latency --engine simulator --input-len 9000", "must be at most 8192"),
        ("latency --engine simulator --args x", "--args: must be key=value"),
        ("throughput --engine simulator --set load.rate=3", "only workload settings can be changed here"),
        ("throughput --engine simulator --dataset x.txt --input-len 3", "applies to synthetic prompts only"),
        ("throughput --engine simulator --dataset nowhere.txt", "--dataset: file not found: nowhere.txt"),
        (f"throughput --engine simulator --dataset {__file__}", "--set workload.type=sharegpt"),
        ("throughput --engine simulator --num-prompts 0", "--num-prompts: must be at least 1"),
        ("throughput --engine simulator --input-len -3", "input_tokens"),
    ],
)
def test_mistakes_are_said(command: str, wrong: str, capsys, store: Path):
    assert typed(command) == 2
    shown = capsys.readouterr()
    assert wrong in shown.err
    assert not shown.out
    assert not list(store.glob("runs/*"))


def test_a_doubtful_run_is_warned_of(capsys):
    """Seed 0 gives an engine this uneven a first batch that is far from the others."""
    uneven = "step_time={base: 0.01, jitter: 2.0}"
    words = ["latency", "--engine", "simulator", "--batch-sizes", "1-8", "--output-len", "2", "--iters", "12"]
    assert execute(["offline", *words, "--args", uneven]) == 0
    shown = capsys.readouterr()
    assert "DOUBTFUL" in shown.out
    assert "increase --warmup" in shown.err


def test_a_size_that_fails_shows_in_the_exit_code(capsys, monkeypatch):
    from inferometer.target.offline import simulator

    def failing(self, prompts, output_tokens):
        if len(prompts) > 1:
            raise MemoryError("no room")
        return made(self, prompts, output_tokens)

    made = simulator.SimulatedEngine.generate
    monkeypatch.setattr(simulator.SimulatedEngine, "generate", failing)
    assert typed("latency --engine simulator --batch-sizes 1,2 --iters 6") == 4
    shown = capsys.readouterr()
    assert "batch size 2, 512 in, 128 out: MemoryError: no room" in shown.out
    assert "1 of 2 cases failed" in shown.err
    assert typed("latency --engine simulator --batch-sizes 2 --iters 6") == 3
