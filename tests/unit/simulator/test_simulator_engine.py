"""The scheduler: the content of a step, sharing, preemption; and its loop on a clock."""

from collections.abc import Callable
from functools import partial

import pytest

from inferometer.load.clock import VirtualClock, VirtualTimer
from inferometer.simulator.engine import Sequence, SimulatorEngine
from inferometer.simulator.loop import EngineLoop
from inferometer.simulator.settings import Noise, SimulatorSettings, StepTime
from inferometer.simulator.tokens import Tokens


def words(name: str, count: int) -> Tokens:
    return tuple(f"{name}{index}" for index in range(count))


def sequence(name: str, prompt: int, answer: int) -> Sequence:
    return Sequence(words(name, prompt), tuple(f"{name}-answer{index}" for index in range(answer)))


def run(engine: SimulatorEngine, most_steps: int = 1 << 30) -> list[Sequence]:
    """Until nothing is left; in the order of finishing."""
    finished = []
    while (batch := engine.plan(most_steps)) is not None:
        finished += engine.complete(batch, batch.steps)
    return finished


def test_prefill_gives_the_first_token_then_decodes_jump_to_the_end() -> None:
    engine = SimulatorEngine()
    one = sequence("a", 100, 50)
    engine.add(one)
    batch = engine.plan()
    assert batch is not None
    assert (batch.steps, batch.chunks, batch.decodes, batch.prefill_tokens) == (1, [(one, 100)], [], 100)
    assert engine.complete(batch, 1) == []
    assert one.made == 1
    batch = engine.plan()
    assert batch is not None
    assert (batch.steps, batch.decodes, batch.context) == (49, [one], 100)
    assert engine.complete(batch, 49) == [one]
    assert one.spans == [[0, 50]]
    assert engine.plan() is None
    assert engine.pool.free == engine.pool.capacity


def test_long_prompts_are_computed_in_chunks_beside_decodes() -> None:
    engine = SimulatorEngine(max_batched_tokens=64, max_sequences=8)
    first, long = sequence("a", 10, 20), sequence("b", 150, 5)
    engine.add(first)
    engine.complete(engine.plan(), 1)
    engine.add(long)
    chunks = []
    while not long.made:
        batch = engine.plan()
        assert batch is not None
        assert batch.decodes[0] is first
        chunks.append(batch.prefill_tokens)
        engine.complete(batch, batch.steps)
    assert chunks == [63, 63, 24]
    engine.settle(first)
    assert first.made == 4


def test_budget_admits_in_order_and_stops_at_the_limit_of_sequences() -> None:
    engine = SimulatorEngine(max_batched_tokens=100, max_sequences=3)
    everyone = [sequence(name, 30, 4) for name in "abcde"]
    for each in everyone:
        engine.add(each)
    batch = engine.plan()
    assert batch is not None
    assert batch.chunks == [(everyone[0], 30), (everyone[1], 30), (everyone[2], 30)]
    assert run_after(engine, batch) == everyone


def run_after(engine: SimulatorEngine, batch: object) -> list[Sequence]:
    return engine.complete(batch, 1) + run(engine)  # type: ignore[arg-type]


def test_a_shared_prefix_is_found_in_full_blocks_but_never_the_last_token() -> None:
    engine = SimulatorEngine()
    engine.add(sequence("a", 64, 4))
    run(engine)
    same, longer = sequence("a", 64, 4), Sequence((*words("a", 40), *words("z", 40)), ("x",))
    engine.add(same)
    engine.add(longer)
    run(engine)
    assert (same.cached, longer.cached) == (48, 32)
    assert (engine.counters.prompt_tokens, engine.counters.cached_tokens) == (64 + 64 + 80, 80)


def test_the_answer_is_cached_for_the_next_turn() -> None:
    engine = SimulatorEngine()
    first = sequence("a", 20, 30)
    engine.add(first)
    run(engine)
    second = Sequence((*first.prompt, *first.answer, "and", "then"), ("x",))
    engine.add(second)
    run(engine)
    assert second.cached == 48  # 49 tokens were computed: the last one made needs no keys and values


def test_without_prefix_caching_nothing_is_found_nor_kept() -> None:
    engine = SimulatorEngine(prefix_caching=False)
    for _ in range(2):
        engine.add(sequence("a", 64, 4))
        run(engine)
    assert engine.counters.cached_tokens == 0
    assert engine.pool.idle == 0


def test_the_last_admitted_is_preempted_and_recomputed() -> None:
    engine = SimulatorEngine(blocks=10, block_size=16)
    old, young = sequence("a", 60, 60), sequence("b", 60, 60)
    engine.add(old)
    engine.add(young)
    assert run(engine) == [old, young]
    assert (old.preemptions, old.made) == (0, 60)
    assert young.preemptions >= 1
    assert young.made == 60
    assert sum(end - first for first, end in young.spans) == 60
    assert engine.counters.preemptions == young.preemptions


def test_half_computed_prompts_that_hold_every_block_do_not_block_forever() -> None:
    engine = SimulatorEngine(blocks=8, block_size=16, max_batched_tokens=64, max_sequences=8)
    everyone = [sequence(name, 100, 10) for name in "abc"]
    for each in everyone:
        engine.add(each)
    assert sorted(map(id, run(engine))) == sorted(map(id, everyone))


def test_an_aborted_sequence_frees_its_blocks() -> None:
    engine = SimulatorEngine()
    waiting, running = sequence("a", 50, 50), sequence("b", 50, 50)
    engine.add(running)
    batch = engine.plan()
    engine.add(waiting)
    engine.abort(waiting)
    engine.abort(running)
    assert batch is not None
    assert engine.complete(batch, 1) == [running]
    assert engine.plan() is None
    assert engine.pool.free == engine.pool.capacity


def test_what_can_never_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="never fits"):
        SimulatorEngine(blocks=2).add(sequence("a", 30, 30))
    with pytest.raises(ValueError, match="max_batched_tokens"):
        SimulatorEngine(max_sequences=10, max_batched_tokens=9)


def test_step_time_is_the_formula() -> None:
    model = StepTime(base_s=1e-3, prefill_token_s=1e-5, decode_sequence_s=1e-6, context_token_s=1e-9)
    assert model.ends(7, 100, 3, 1000, 1, 0).tolist() == [7 + 1_000_000 + 1_000_000 + 3_000 + 1_000]
    assert model.ends(0, 0, 3, 1000, 3, 0).tolist() == [1_004_000, 2_008_003, 3_012_009]


def test_a_run_of_steps_ends_when_the_same_steps_one_by_one_do() -> None:
    model = StepTime(base_s=1e-3 / 7, decode_sequence_s=1e-6 / 3, context_token_s=1e-9 / 9)
    for steps in (1, 5, 200):
        at, ends = 11, []
        for step in range(steps):
            (at,) = model.ends(at, 0, 13, 1000 + 13 * step, 1, step)
            ends.append(at)
        assert model.ends(11, 0, 13, 1000, steps, 0).tolist() == ends


def test_time_passes_even_in_steps_of_no_length() -> None:
    model = StepTime(base_s=0, prefill_token_s=0, decode_sequence_s=0, context_token_s=0)
    for steps in (2, 100):
        assert model.ends(5, 1, 1, 1, steps, 0).tolist() == list(range(6, 6 + steps))


def test_the_default_model_is_near_what_it_was_fitted_to() -> None:
    model = StepTime()
    assert model.ends(0, 0, 1, 100, 1, 0)[0] == pytest.approx(4.8e6, rel=0.05)
    assert model.ends(0, 0, 80, 80 * 2200, 1, 0)[0] == pytest.approx(10.9e6, rel=0.05)
    assert model.ends(0, 1000, 8, 8 * 1000, 1, 0)[0] == pytest.approx(27.5e6, rel=0.15)


def test_noise_has_mean_one_and_does_not_depend_on_how_it_is_asked() -> None:
    whole = Noise(0.2, seed=3).factors(4000, 9000)
    noise = Noise(0.2, seed=3)
    parts = [*noise.factors(4000, 100), *noise.factors(4100, 8900)]
    assert whole.tolist() == parts
    assert whole.mean() == pytest.approx(1, abs=0.02)
    assert Noise(0.2, seed=4).factors(4000, 5).tolist() != whole[:5].tolist()


class LateClock(VirtualClock):
    """A clock of a busy machine: everything happens a millisecond after it was due."""

    def call_at(self, at: int, action: Callable[[], None]) -> VirtualTimer:
        return super().call_at(at + 1_000_000, action)


def test_no_token_is_made_before_its_request_came() -> None:
    """At a speed of 1000 a step takes 5 us, and the loop cannot follow: its deadlines lag behind the clock."""
    clock, finished = LateClock(1), []
    settings = SimulatorSettings(speed=1000)

    def keep(done: Sequence) -> None:
        finished.append((done, loop.instants(done)))

    loop = EngineLoop(
        clock, settings.build_engine(), settings.build_step_time(), keep, on_step=lambda _batch, _step, _at: None
    )
    for number in range(40):
        clock.call_at(number * 700_000, partial(loop.add, sequence(f"s{number}-", 20, 30)))
    clock.run()
    assert len(finished) == 40
    for done, instants in finished:
        assert done.arrived_at <= done.admitted_at < instants[0]
        assert sorted(set(instants)) == list(instants)
