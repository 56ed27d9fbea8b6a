"""The offline engine vllm, on whatever device it was installed for, with a tiny model."""

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from inferometer.conduct.offline import offline
from inferometer.documents.document import JsonObject
from inferometer.plan.offline import EngineChoice, LatencyPlan, ThroughputPlan
from inferometer.target.offline import EngineSettings
from inferometer.target.offline.vllm import VllmEngine

pytestmark = pytest.mark.engines

pytest.importorskip("vllm")

ARGS: JsonObject = {
    "dtype": "float32",  # with bfloat16 the CPU worker dies at the first request
    "max_model_len": 512,
    "max_num_seqs": 16,
    "enforce_eager": True,
    "skip_tokenizer_init": True,
}


@pytest.fixture(scope="module", autouse=True)
def quiet_vllm() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")


def choice(tiny_model, **more):
    return EngineChoice("vllm", str(tiny_model), args=ARGS, **more)


def test_a_throughput_run_with_a_trace(tiny_model: Path, tmp_path: Path) -> None:
    workload: JsonObject = {"type": "synthetic", "prompt_as": "token_ids", "input_tokens": "8-24", "output_tokens": 6}
    on = choice(tiny_model, n=2, profile=str(tmp_path / "traces"))
    run = offline(ThroughputPlan(on, workload, num_prompts=12, warmup=2), store=tmp_path / "store")
    assert run.status == "valid"
    assert run.summary.output_tokens == 12 * 6 * 2
    assert any((tmp_path / "traces").iterdir())
    facts = run.environment.target
    assert (facts.engine, facts.dtype, facts.max_model_len, facts.vocabulary) == (
        *("vllm", "float32", 512),
        12_000,
    )
    assert (run.folder / "engine.log").stat().st_size > 0


class Mortal(VllmEngine):
    """The real engine, whose process is killed under a batch of two."""

    def generate(self, prompts, output_tokens):
        if len(prompts) == 2:
            for child in multiprocessing.active_children():
                child.kill()
                child.join()
        return super().generate(prompts, output_tokens)


def test_an_engine_that_dies_is_started_again_once(tiny_model: Path, tmp_path: Path) -> None:
    plan = LatencyPlan(choice(tiny_model), (1, 2, 3, 4), (16,), (4,), iters=2, warmup=1)
    said: list[Any] = []

    def mortal(_name: str, settings: EngineSettings) -> VllmEngine:
        return Mortal(settings)

    run = offline(plan, store=tmp_path, open_engine=mortal, notes=said.append)
    assert [case.state for case in run.summary.cases] == ["complete", "failed", "complete", "complete"]
    assert run.summary.engine_starts == 2
    assert "the engine died and was restarted" in said
    assert [reason.code for reason in run.doubts][:2] == ["case_failed", "engine_restarted"]
