"""llama.cpp's own server under our load. It closes the connection after a streamed answer although it announces to keep
it: the next request must neither fail nor be mistimed. `deploy/install-llama.sh` builds it."""

from pathlib import Path

import pytest

from inferometer.conduct.run import run
from inferometer.plan.reading import plan_from

pytestmark = pytest.mark.engines

REQUESTS = 24
OUTPUT = 16


@pytest.fixture(scope="module")
def section(model):
    program, weights = model.parent / "llama" / "bin" / "llama-server", model.parent / "tiny-qwen3.gguf"
    if not program.exists() or not weights.exists():
        pytest.skip("no llama-server: deploy/install-llama.sh builds it")
    return {
        "type": "llamacpp",
        "command": [str(program)],
        "model": str(weights),
        "args": {"ctx-size": 8192, "parallel": 4, "threads": 1, "metrics": True},
        "exclusive": False,
    }


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_it_is_started_measured_and_stopped(section, model, tmp_path: Path, api: str):
    document = {
        "server": section,
        "target": {"api": api},
        "workload": {"input_tokens": 64, "output_tokens": OUTPUT, "tokenizer": str(model)},
        "load": {"concurrency": 4},
        "stop": {"requests": REQUESTS, "drain": "10min"},
    }
    kept = run(plan_from(document), store=tmp_path / "store")
    assert (kept.state, kept.summary.outcomes) == ("complete", {"ok": REQUESTS})
    records = kept.records
    assert records.output_tokens.tolist() == [OUTPUT] * REQUESTS
    assert (records.input_tokens >= 64).all()
    assert (records.sent_at >= records.ready_at).all()
    assert (records.retry_ns > 0).any()  # sent again, for their connection was closed meanwhile
    assert kept.environment.server.version
