"""Offline runs from the plan to the stored run, on the simulated engine: also if it fails, dies or is interrupted."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from inferometer.conduct.offline import offline
from inferometer.documents.document import Document, JsonObject
from inferometer.errors import InferometerError, MissingExtra, PlanError, TargetError
from inferometer.plan.offline import EngineChoice, LatencyPlan, ThroughputPlan
from inferometer.record.encoding import document_of
from inferometer.store.folder import load_run
from inferometer.target.offline import ENGINES, EngineSettings, open_engine
from inferometer.target.offline.simulator import SimulatedEngine
from inferometer.workload.synthetic import random_batches

ON = EngineChoice("simulator", args={"step_time": {"jitter": 0.02}})


def latency(store, sizes=(1, 2, 4), on=ON, opened=open_engine, **more):
    plan = LatencyPlan(on, sizes, **{"input_lens": (64,), "output_lens": (16,), "iters": 10, "warmup": 2} | more)  # type: ignore[arg-type]
    said: list[Any] = []
    return offline(plan, store=store, open_engine=opened, notes=said.append), said


class Troubled(SimulatedEngine):
    """The simulated engine that fails at batches of `fails`; where `deadly`, nothing works on it any more."""

    fails, deadly, starts, closes = 2, False, 0, 0

    def __init__(self, settings):
        type(self).starts += 1
        self.dead = False
        super().__init__(settings)

    def generate(self, prompts, output_tokens):
        if len(prompts) == self.fails:
            self.dead = self.deadly
            raise MemoryError("no room for so many")
        if self.dead:
            raise RuntimeError("the engine is dead")
        return super().generate(prompts, output_tokens)

    def close(self) -> None:
        type(self).closes += 1


def troubled(**settings):
    made = type("Made", (Troubled,), {"starts": 0, "closes": 0, **settings})
    return made, lambda _name, asked: made(asked)


def test_one_engine_for_all_sizes_and_one_run(tmp_path: Path) -> None:
    engine, opened = troubled(fails=None)
    run, _ = latency(tmp_path, opened=opened)
    assert (engine.starts, engine.closes) == (1, 1)
    kept = load_run(run.folder)
    assert (kept.kind, kept.state, kept.status) == ("latency", "complete", "valid")
    assert list(kept.summary.measures) == ["latency_bs1", "latency_bs2", "latency_bs4"]
    assert [len(case.latencies) for case in kept.summary.cases] == [10, 10, 10]
    assert {**Document.of(document_of(kept.environment.target)), "version": None} == {
        "engine": "simulator",
        "version": None,
        "model": "simulated-8b",
        "device": "simulated",
        "dtype": None,
        "max_model_len": 8192,
        "vocabulary": None,
        "time": "virtual",
        "urls": [],
    }


def test_the_simulator_is_the_same_every_time(tmp_path: Path) -> None:
    first, second = (latency(tmp_path)[0].summary.cases for _ in range(2))
    assert first == second
    other = latency(tmp_path, on=EngineChoice("simulator", seed=1, args=dict(ON.args)))[0].summary.cases
    assert other != first


def test_the_simulated_time_is_that_of_its_steps(tmp_path: Path) -> None:
    """Prefill and first token in one step, each further token in one more; nothing of an HTTP frontend. The engine
    begins with the first prompt that is there, as vLLM's does: the others join its second step."""
    steps = {"base": 0.001, "prefill_token": 0.0001, "decode_sequence": 0, "context_token": 0}
    run, _ = latency(tmp_path, (1, 4), on=EngineChoice("simulator", args={"step_time": steps}))
    one, four = (case.latencies for case in run.summary.cases)
    assert one == [pytest.approx(16 * 0.001 + 64 * 0.0001)] * 10
    assert four == [pytest.approx(17 * 0.001 + 4 * 64 * 0.0001)] * 10


def test_prompts_are_new_in_each_iteration_so_that_a_prefix_cache_cannot_help(tmp_path: Path) -> None:
    """With a cache that is on, and a step time of nothing but prefill: no iteration is quicker."""
    steps = {"base": 0, "prefill_token": 0.001, "decode_sequence": 0, "context_token": 0}
    run, _ = latency(tmp_path, (2,), on=EngineChoice("simulator", args={"prefix_caching": True, "step_time": steps}))
    assert {round(value, 3) for value in run.summary.cases[0].latencies} == {0.128}


def test_random_batches() -> None:
    make = random_batches(3, 5, 7, seed=0, vocabulary=None)
    assert [len(prompt) for prompt in make(0)] == [5, 5, 5]
    assert make(0) == random_batches(3, 5, 7, seed=0, vocabulary=None)(0)
    assert make(0) != make(1)
    assert make(0) != random_batches(3, 5, 7, seed=1, vocabulary=None)(0)
    assert max(max(prompt) for prompt in random_batches(8, 100, 1, 0, vocabulary=500)(0)) < 500


def test_a_failed_size_is_a_result_and_the_others_go_on(tmp_path: Path) -> None:
    engine, opened = troubled(fails=2)
    run, said = latency(tmp_path, opened=opened)
    assert [case.state for case in run.summary.cases] == ["complete", "failed", "complete"]
    assert run.summary.cases[1].error == "MemoryError: no room for so many"
    assert list(run.summary.measures) == ["latency_bs1", "latency_bs4"]
    assert (engine.starts, run.state, run.status) == (1, "complete", "doubtful")
    assert said == ["batch size 2, 64 in, 16 out failed: MemoryError: no room for so many"]


def test_an_engine_that_died_is_started_again_once(tmp_path: Path) -> None:
    engine, opened = troubled(fails=2, deadly=True)
    run, said = latency(tmp_path, opened=opened)
    assert [case.state for case in run.summary.cases] == ["complete", "failed", "complete"]
    assert (engine.starts, engine.closes, run.summary.engine_starts) == (2, 2, 2)
    assert "the engine died and was restarted" in said


def test_an_engine_that_dies_again_fails_all_that_is_left(tmp_path: Path) -> None:
    class Mortal(Troubled):
        def generate(self, prompts, output_tokens):
            if len(prompts) > 1:
                self.dead = True
            return super().generate(prompts, output_tokens)

    run, _ = latency(tmp_path, (1, 2, 3, 4, 5), opened=lambda _name, asked: Mortal(asked))
    assert [case.state for case in run.summary.cases] == ["complete", *["failed"] * 4]
    assert run.summary.cases[4].error == "not measured: the engine died 2 times and is not restarted"


def test_all_failed_is_a_failed_run(tmp_path: Path) -> None:
    _, opened = troubled(fails=8)
    run, _ = latency(tmp_path, (8,), opened=opened)
    assert (run.state, run.status, run.summary.measures) == ("failed", "invalid", {})


class Interrupted(SimulatedEngine):
    """Somebody presses Ctrl-C in the twentieth batch."""

    batches = 0

    def generate(self, prompts, output_tokens):
        self.batches += 1
        if self.batches == 20:
            raise KeyboardInterrupt
        return super().generate(prompts, output_tokens)


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    run, _ = latency(tmp_path, opened=lambda _name, asked: Interrupted(asked))
    assert run.state == "interrupted"
    assert [len(case.latencies) for case in run.summary.cases] == [10, 5]
    assert run.summary.cases[1].error == "interrupted after 5 of 10 iterations"
    assert run.summary.measures["latency_bs2"].count == 5


def test_ctrl_c_before_anything_was_measured_keeps_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        latency(tmp_path, warmup=30, opened=lambda _name, asked: Interrupted(asked))
    assert not list(tmp_path.glob("runs/*"))


def test_what_an_engine_prints_is_kept_and_not_on_stdout(tmp_path: Path, capfd):
    class Loud(SimulatedEngine):
        def generate(self, prompts, output_tokens):
            os.write(1, b"by the file descriptor\n")
            os.write(2, b"and on stderr\n")
            return super().generate(prompts, output_tokens)

    run, _ = latency(tmp_path, (1,), iters=1, warmup=0, opened=lambda _name, asked: Loud(asked))
    os.write(1, b"ours\n")
    assert capfd.readouterr() == ("ours\n", "")
    log = (run.folder / "engine.log").read_text()
    assert log == "by the file descriptor\nand on stderr\n"


def test_an_engine_that_does_not_start_says_what_it_printed(tmp_path: Path) -> None:
    class Broken(SimulatedEngine):
        def __init__(self, settings):
            os.write(2, b"no kernel image is available\n")
            raise RuntimeError("Engine core initialization failed")

    with pytest.raises(TargetError, match="did not start: RuntimeError: Engine core") as caught:
        latency(tmp_path, opened=lambda _name, asked: Broken(asked))
    assert caught.value.hint == "no kernel image is available"


def test_a_context_too_short_is_said_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 1000}))
    on = EngineChoice("vllm", str(tmp_path))
    with pytest.raises(PlanError, match="must be at most 1000"):
        latency(tmp_path / "store", on=on, input_lens=(990,))
    with pytest.raises(PlanError, match="must be at most 2048"):
        latency(tmp_path / "store", on=EngineChoice("vllm", "m", args={"max_model_len": 2048}), input_lens=(2040,))
    with pytest.raises(PlanError, match="must be at most 8192"):
        latency(tmp_path / "store", input_lens=(8192,))


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_an_engine_that_is_not_installed_says_what_to_install(engine: str, monkeypatch, tmp_path: Path):
    for package in ("vllm", "transformers", "torch"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InferometerError) as caught:
        latency(tmp_path, on=EngineChoice(engine, "m"))
    assert "pip install" in caught.value.hint
    assert isinstance(caught.value, MissingExtra) is (engine == "transformers")


def test_every_engine_but_the_simulator_needs_a_model(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="--model: is missing"):
        open_engine("transformers", EngineSettings(None))
    with pytest.raises(PlanError, match="must be one of vllm, transformers, simulator, got tgi"):
        latency(tmp_path, on=EngineChoice("tgi"))
    assert set(ENGINES) == {"vllm", "transformers", "simulator"}


def test_what_the_simulator_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="--profile: not supported"):
        latency(tmp_path, on=EngineChoice("simulator", profile="traces"))
    with pytest.raises(PlanError, match="--use-beam-search: not supported"):
        latency(tmp_path, on=EngineChoice("simulator", beam_search=True))
    with pytest.raises(PlanError, match=r"--args\.speeed is not a setting"):
        latency(tmp_path, on=EngineChoice("simulator", args={"speeed": 2}))


def test_several_answers_to_a_prompt(tmp_path: Path) -> None:
    run, _ = latency(tmp_path, (2,), on=EngineChoice("simulator", n=3))
    assert run.summary.cases[0].output_tokens == 2 * 16 * 3
    assert run.status == "valid"


# -- throughput ----------------------------------------------------------------------------------------------

SYNTHETIC: JsonObject = {"type": "synthetic", "prompt_as": "token_ids", "input_tokens": 100, "output_tokens": 20}


def test_the_throughput_of_made_up_prompts(tmp_path: Path) -> None:
    run = offline(ThroughputPlan(ON, SYNTHETIC, num_prompts=50, repeats=3), store=tmp_path)
    summary = load_run(run.folder).summary
    assert (run.kind, run.state, run.status) == ("throughput", "complete", "valid")
    assert (summary.requests, summary.input_tokens, summary.output_tokens) == (150, 15_000, 3_000)
    elapsed = sum(each.elapsed_s for each in summary.passes)
    rates = {name: rate.window for name, rate in summary.rates.items()}
    assert rates["request_rate"] == pytest.approx(150 / elapsed)
    assert rates["total_rate"] == pytest.approx(rates["input_rate"] + rates["output_rate"])
    low, high = summary.rates["total_rate"].interval
    assert low < rates["total_rate"] < high


def test_the_throughput_of_a_file(tmp_path: Path) -> None:
    rows = [
        {"conversations": [{"from": "human", "value": f"question {n} of many"}, {"from": "gpt", "value": "a " * 30}]}
        for n in range(20)
    ]
    file = tmp_path / "sharegpt.json"
    file.write_text(json.dumps(rows))
    plan = ThroughputPlan(ON, {"path": str(file), "output_tokens": 7}, num_prompts=20, warmup=0)
    run = offline(plan, store=tmp_path / "store")
    assert run.summary.requests == 20
    assert run.summary.output_tokens == 140
    assert run.summary.input_tokens == 20 * 4
    assert run.plan.section("workload")["path"] == str(file)


def test_a_file_that_is_not_there_is_said_before_the_start(tmp_path: Path) -> None:
    def never(_name, _settings):
        raise AssertionError("the engine was started")

    plan = ThroughputPlan(ON, {"path": str(tmp_path / "sharegpt.json")})
    with pytest.raises(InferometerError, match=r"sharegpt\.json"):
        offline(plan, store=tmp_path, open_engine=never)


def test_answers_need_a_length(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("one\ntwo\n")
    plan = ThroughputPlan(ON, {"path": str(tmp_path / "prompts.txt")}, num_prompts=2)
    with pytest.raises(PlanError, match="output lengths are missing") as caught:
        offline(plan, store=tmp_path / "store")
    assert caught.value.hint == "give --output-len"


def test_ctrl_c_keeps_the_passes_that_were_made(tmp_path: Path) -> None:
    plan = ThroughputPlan(ON, SYNTHETIC, num_prompts=4, warmup=0, repeats=30)
    run = offline(plan, store=tmp_path, open_engine=lambda _name, asked: Interrupted(asked))
    assert (run.state, len(run.summary.passes)) == ("interrupted", 19)


def test_an_engine_that_fails_keeps_the_passes_that_were_made(tmp_path: Path) -> None:
    class Failing(SimulatedEngine):
        batches = 0

        def generate(self, prompts, output_tokens):
            self.batches += 1
            if self.batches == 3:
                raise MemoryError("no room")
            return super().generate(prompts, output_tokens)

    said: list[Any] = []
    plan = ThroughputPlan(ON, SYNTHETIC, num_prompts=4, warmup=0, repeats=5)
    run = offline(plan, store=tmp_path, notes=said.append, open_engine=lambda _name, asked: Failing(asked))
    assert (run.state, len(run.summary.passes)) == ("failed", 2)
    assert said[-1] == "the engine failed after 2 of 5 passes: MemoryError: no room"
    alone = ThroughputPlan(ON, SYNTHETIC, num_prompts=2)
    with pytest.raises(TargetError, match="the engine failed: MemoryError: no room for so many"):
        offline(alone, store=tmp_path, open_engine=troubled(fails=2)[1])
