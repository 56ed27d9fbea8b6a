"""`transformers serve` under our load: no [DONE], stream_options are ignored, usage is in the last chunk."""

import sys
from pathlib import Path

import pytest

from inferometer.conduct.run import run
from inferometer.plan.reading import plan_from

pytestmark = pytest.mark.engines

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

BOUNDED = ["--cb-num-blocks", "256", "--cb-max-batch-tokens", "256"]  # else its cache takes all memory, beside vLLM too
REQUESTS = 12


def test_answers_are_whole_and_counted(model, tmp_path: Path):
    program = str(Path(sys.executable).parent / "transformers")
    command = [program, "serve", str(model), "--host", "{host}", "--port", "{port}", "--device", "cpu"]
    document = {
        "server": {
            "type": "command",
            "command": [*command, "--dtype", "float32", "--continuous-batching", *BOUNDED],
            # Its list of models is that of the hub's cache: without the folder it answers with 500.
            "env": {"HF_HUB_OFFLINE": 1, "OMP_NUM_THREADS": 1, "HF_HUB_CACHE": str(tmp_path)},
            "exclusive": False,
        },
        "sampling": {"ignore_eos": False},  # it refuses fields that it does not know
        "target": {"model": str(model), "api": "chat"},
        "workload": {"input_tokens": 32, "output_tokens": 12, "tokenizer": str(model)},
        "load": {"concurrency": 2},
        "stop": {"requests": REQUESTS, "drain": "10min"},  # whatever else the machine does
    }
    kept = run(plan_from(document), store=tmp_path / "store")
    assert (kept.state, kept.summary.outcomes) == ("complete", {"ok": REQUESTS})
    records = kept.records
    assert (records.output_tokens > 0).all()
    assert (records.input_tokens >= 32).all()
