"""The offline engine transformers, on CPU, with a tiny model."""

from dataclasses import replace
from pathlib import Path

import pytest

from inferometer.conduct.offline import offline
from inferometer.documents.document import JsonObject
from inferometer.errors import PlanError
from inferometer.plan.offline import EngineChoice, LatencyPlan, ThroughputPlan
from inferometer.target.offline import EngineSettings, open_engine
from inferometer.target.offline.transformers import TransformersEngine

pytestmark = pytest.mark.engines

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def engine(tiny_model: Path):
    made = open_engine("transformers", EngineSettings(str(tiny_model), args={"device": "cpu"}))
    yield made
    made.close()


def test_makes_as_many_tokens_as_asked(engine):
    answers = engine.generate([[5, 6, 7], [8, 9]], [4, 9])
    assert answers == [(3, 4), (2, 9)]


def test_says_what_it_is(engine, tiny_model: Path):
    facts = engine.facts
    assert (facts.model, facts.device, facts.dtype) == (str(tiny_model), "cpu", "float32")
    assert (facts.max_model_len, facts.vocabulary) == (2048, 12_000)
    assert "torch" in facts.version


def test_beams_and_several_answers(tiny_model: Path) -> None:
    drawn = open_engine("transformers", EngineSettings(str(tiny_model), n=3))
    assert drawn.generate([[5, 6, 7]], [4]) == [(3, 12)]
    searched = open_engine("transformers", EngineSettings(str(tiny_model), n=2, beam_search=True))
    assert searched.generate([[5, 6, 7]], [4]) == [(3, 8)]


def choice(tiny_model, **more):
    return EngineChoice("transformers", str(tiny_model), args={"device": "cpu", **more})


def test_a_latency_run(tiny_model: Path, tmp_path: Path) -> None:
    on = replace(choice(tiny_model), profile=str(tmp_path / "traces"))
    plan = LatencyPlan(on, (1, 4), (16,), (8, 32), iters=6, warmup=2)
    run = offline(plan, store=tmp_path / "store")
    assert run.state == "complete"
    assert [len(case.latencies) for case in run.summary.cases] == [6] * 4
    few, many = (run.summary.measures[f"latency_bs1_in16_out{n}"]["p50"] for n in (8, 32))
    assert many > 2 * few  # four times the steps
    assert [case.output_tokens for case in run.summary.cases] == [8, 32, 32, 128]
    traces = list((tmp_path / "traces").glob("*.json.gz"))
    assert len(traces) == 4
    assert run.environment.target.dtype == "float32"


def test_a_throughput_run_in_batches(tiny_model: Path, tmp_path: Path) -> None:
    workload: JsonObject = {"type": "synthetic", "prompt_as": "token_ids", "input_tokens": "8-24", "output_tokens": 6}
    plan = ThroughputPlan(choice(tiny_model, batch_size=4), workload, num_prompts=10, warmup=2, repeats=2)
    run = offline(plan, store=tmp_path)
    assert run.summary.requests == 20
    assert run.summary.output_tokens == 120
    rates = run.summary.rates
    assert rates["total_rate"].window > rates["output_rate"].window > rates["request_rate"].window > 0


def test_a_context_too_short_is_said_before_the_start(tiny_model: Path, tmp_path: Path) -> None:
    plan = LatencyPlan(choice(tiny_model), (1,), (2000,), (100,))
    with pytest.raises(PlanError, match="must be at most 2048"):
        offline(plan, store=tmp_path)


def test_a_batch_that_fails_is_a_result(tiny_model: Path, tmp_path: Path) -> None:
    """The next size goes on with the same engine."""
    plan = LatencyPlan(choice(tiny_model), (1, 2000, 2), (4,), (2,), iters=2, warmup=0)

    class Small(TransformersEngine):
        """The real engine on a device that holds a thousand prompts: a test must not take all memory of a machine."""

        def _tensor(self, rows):
            if len(rows) > 1000:
                raise self._torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB")
            return super()._tensor(rows)

    run = offline(plan, store=tmp_path, open_engine=lambda _name, settings: Small(settings))
    states = [case.state for case in run.summary.cases]
    assert states == ["complete", "failed", "complete"]
    assert run.summary.engine_starts == 1
    assert "out of memory" in run.summary.cases[1].error
