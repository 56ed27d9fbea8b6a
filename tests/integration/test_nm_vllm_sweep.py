"""A config of nm-vllm, done: a stand-in named `vllm` on PATH takes the engine's flags and speaks its API."""

import csv
import json
import os
import sys

from inferometer.cli import execute
from inferometer.store.opening import open_store

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


def test_a_sweep_of_their_config(tmp_path, monkeypatch, capsys):
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
    outcomes = [open_store(tmp_path / "store").load(row["run"]).summary["outcomes"] for row in rows]
    assert outcomes == [{"ok": 20}, {"ok": 8}]
    assert "note: their server speaks" in said.err
