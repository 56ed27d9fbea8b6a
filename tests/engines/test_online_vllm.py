"""A real vLLM under our load: what it counted and what we counted must agree."""

import pytest

from inferometer.plan.reading import plan_from
from inferometer.run import run

pytestmark = pytest.mark.engines

pytest.importorskip("vllm")


def measured(vllm_server, vllm_section, model, tmp_path, **more):
    target = {"model": "tiny", "api": more.pop("api", "completions")}
    workload = {"input_tokens": 64, "output_tokens": 16, "tokenizer": str(model), **more.pop("workload", {})}
    document = {"server": vllm_section, "target": target, "workload": workload, "stop": {"requests": 24}, **more}
    return run(plan_from(document), store=tmp_path, server=vllm_server)


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("load", [{"rate": 4}, {"concurrency": 8}], ids=["open", "closed"])
def test_counts_agree_with_its_own(vllm_server, vllm_section, model, tmp_path, api, load):
    kept = measured(vllm_server, vllm_section, model, tmp_path, api=api, load=load)
    assert kept.state == "complete"
    assert outcomes(kept) == {"ok": 24}
    agreed = {each["name"]: each for each in kept.summary["server"]["conservation"]}
    assert agreed["generation_tokens"]["server"] == agreed["generation_tokens"]["client"] == 24 * 16
    assert kept.environment["server"]["version"].startswith("0.")


def test_a_session_of_turns_on_chat(vllm_server, vllm_section, model, tmp_path):
    kept = measured(vllm_server, vllm_section, model, tmp_path, api="chat", workload={"turns": 3}, load={"concurrency": 4})
    assert outcomes(kept) == {"ok": 24}


def test_prompts_have_the_asked_length(vllm_server, vllm_section, model, tmp_path):
    kept = measured(vllm_server, vllm_section, model, tmp_path, load={"concurrency": 8})
    columns = kept.columns()
    assert set(columns["input_tokens"]) == {64}


def outcomes(kept):
    return kept.summary["outcomes"]
