"""A config of nm-vllm is run: a stand-in named `vllm` on PATH accepts the engine's flags and speaks its API."""

import csv
import json
import os
import sys
from pathlib import Path

from inferometer.cli import execute
from inferometer.store.store import open_store

STAND_IN = """\
#!{python}
import json, os, sys
words = sys.argv[1:]
model, port = words[words.index("serve") + 1], words[words.index("--port") + 1]
open({log!r}, "a").write(json.dumps(words) + "\\n")
settings = json.dumps({{"model": model, "speed": 10}})
os.execv(sys.executable, [sys.executable, "-m", "inferometer.simulator", "--port", port, "--settings", settings])
"""
CONFIG = {
    "description": "tiny",
    "models": ["m/a"],
    "tensor_parallel_size": 1,
    "max_model_lens": [2048],
    "sparsity": [],
    "script_name": "benchmark_serving",
    "script_args": {"nr-qps-pair_": ["20,40", "8,inf"], "num-input-tokens": [16], "num-output-tokens": [4]},
}


def test_a_sweep_of_their_config(tmp_path: Path, monkeypatch, capsys):
    program, log = tmp_path / "bin" / "vllm", tmp_path / "started"
    program.parent.mkdir()
    program.write_text(STAND_IN.format(python=sys.executable, log=str(log)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "c.json").write_text(json.dumps({"configs": [CONFIG]}))
    words = ["sweep", str(tmp_path / "c.json"), "--csv", str(tmp_path / "out.csv"), "--set", "observe.gpu=off"]
    code = execute([*words, "--store", str(tmp_path / "store")])
    said = capsys.readouterr()
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert code in (0, 4), said.err  # 4: a machine too busy to measure
    assert [row["case"] for row in rows] == ["nr-qps-pair=20,40", "nr-qps-pair=8,inf"]
    assert [row["stop.requests"] for row in rows] == ["20", "8"] and {row["state"] for row in rows} == {"complete"}
    started = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(started) == 2 and "--max-model-len" in started[0] and "--tensor-parallel-size" in started[0]
    outcomes = [open_store(tmp_path / "store").load(row["run"]).summary.outcomes for row in rows]
    assert outcomes == [{"ok": 1020}, {"ok": 1008}]  # with nm-vllm's warm-up
    assert "note: nm-vllm uses vLLM's /generate" in said.err


BENCH = "vllm bench serve --model m/a --random-input-len 16 --random-output-len 16 --num-prompts 12"


def test_vllms_own_explorer_starts_a_server_for_each_of_its_settings(tmp_path: Path, monkeypatch, capsys):
    """Slow enough that a stall of this machine does not turn the ends around."""
    (tmp_path / "bin").mkdir()
    stand_in = tmp_path / "bin" / "vllm"
    stand_in.write_text(
        STAND_IN.format(python=sys.executable, log=str(tmp_path / "calls")).replace('"speed": 10', '"speed": 2')
    )
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "serve.json").write_text(json.dumps([{"max_num_seqs": 8}, {"max_num_seqs": 16}]))
    words = ["vllm", "bench", "sweep", "serve_workload", "--serve-cmd", "vllm serve m/a", "--bench-cmd", BENCH]
    words += ["--serve-params", str(tmp_path / "serve.json"), "--workload-iters", "3", "--num-runs", "1"]
    words += ["--workload-var", "max_concurrency"]
    code = execute(["sweep", "--json", "--set", "observe=off", "--store", str(tmp_path / "store"), "--", *words])
    assert code in (0, 4)  # 4: a machine too busy to measure
    cases = json.loads(capsys.readouterr().out)["cases"]
    assert [case["name"] for case in cases] == [
        f"max_num_seqs={most} {level}" for most in (8, 16) for level in ("low", "high", "concurrency 1 of 1")
    ]
    assert all(1 <= case["parameters"]["load.concurrency"] <= 12 for case in cases[2::3])
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert [words[words.index("--max-num-seqs") + 1] for words in calls] == ["8", "16"]
