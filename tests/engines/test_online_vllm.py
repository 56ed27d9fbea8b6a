"""A real vLLM under our load: its counters and ours must agree."""

from pathlib import Path

import pytest

from inferometer.conduct.run import run
from inferometer.plan.reading import plan_from

pytestmark = pytest.mark.engines

pytest.importorskip("vllm")

REQUESTS = 24


@pytest.fixture
def measured(vllm_server, vllm_section, model, tmp_path: Path):
    def measure(api="completions", load=None, **workload):
        document = {
            "server": vllm_section,
            "target": {"model": "tiny", "api": api},
            "workload": {"input_tokens": 64, "output_tokens": 16, "tokenizer": str(model), **workload},
            "load": load or {"concurrency": 8},
            "stop": {"requests": REQUESTS, "drain": "10min"},  # whatever else the machine does
        }
        return run(plan_from(document), store=tmp_path, server=vllm_server)

    return measure


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("load", [{"rate": 4}, {"concurrency": 8}], ids=["open", "closed"])
def test_counts_agree_with_its_own(measured, api: str, load):
    kept = measured(api, load)
    assert (kept.state, kept.summary.outcomes) == ("complete", {"ok": REQUESTS})
    agreed = kept.summary.server.conservation
    assert agreed.requests.agree and agreed.prompt_tokens.agree and agreed.generation_tokens.agree
    assert agreed.generation_tokens.server == REQUESTS * 16
    assert kept.summary.tokens.output.counted_by == {"running usage": REQUESTS}
    assert kept.environment.server.version.startswith("0.")


def test_prompts_have_the_asked_length(measured):
    records = measured().records
    assert set(records.input_tokens) == {64}


def test_turns_of_a_chat(measured):
    kept = measured("chat", {"concurrency": 4}, turns=3)
    assert kept.summary.outcomes == {"ok": REQUESTS}
    assert kept.summary.server.conservation.prompt_tokens.agree
