"""Properties of the simulator: virtual time changes nothing, no request is lost, no block leaks."""

import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.load.clock import VirtualClock
from inferometer.simulator.engine import BlockPool, BlockRun, Sequence, SimulatorEngine
from inferometer.simulator.loop import EngineLoop
from inferometer.simulator.settings import StepTime
from inferometer.simulator.tokens import Tokens

engines = st.fixed_dictionaries(
    {
        "blocks": st.integers(14, 60),
        "block_size": st.sampled_from([4, 16]),
        "max_sequences": st.integers(1, 12),
        "max_batched_tokens": st.integers(12, 80),
        "prefix_caching": st.booleans(),
    }
)
arrivals = st.lists(
    st.tuples(
        st.integers(0, 400_000_000),  # when, ns
        st.integers(1, 30),  # prompt tokens of its own
        st.integers(0, 15),  # prompt tokens that others share
        st.integers(1, 10),  # answer tokens
        st.one_of(st.none(), st.integers(0, 200_000_000)),  # aborted after, ns
    ),
    min_size=1,
    max_size=25,
)
Arrivals = list[tuple[int, int, int, int, int | None]]


def simulate(
    shape: dict[str, Any], plan: Arrivals, jitter: float, jump: bool
) -> tuple[list[Sequence], EngineLoop, dict]:
    """Run all arrivals; returns the sequences, the loop, and the token instants of those that finished."""
    clock, engine, instants = VirtualClock(), SimulatorEngine(**shape), {}
    if not jump:
        whole = engine.plan
        engine.plan = lambda most_steps=1: whole(1)  # type: ignore[method-assign]
    model = StepTime(base_s=5e-3, context_token_s=1e-7, jitter=jitter, seed=1)
    loop = EngineLoop(clock, engine, model, lambda each: instants.update({id(each): loop.instants(each).tolist()}))
    everyone = []
    for number, (at, own, shared, answer, aborted_after) in enumerate(plan):
        prompt = (*(f"s{index}" for index in range(shared)), *(f"{number}w{index}" for index in range(own)))
        sequence = Sequence(prompt, tuple(f"{number}a{index}" for index in range(answer)))
        everyone.append(sequence)
        clock.call_at(at, lambda sequence=sequence: loop.add(sequence))  # type: ignore[misc]
        if aborted_after is not None:
            clock.call_at(at + aborted_after, lambda sequence=sequence: abort_unless_done(loop, sequence))  # type: ignore[misc]
    clock.run()
    return everyone, loop, instants


def abort_unless_done(loop: EngineLoop, sequence: Sequence) -> None:
    if sequence.left:
        loop.abort(sequence)


@settings(max_examples=150, deadline=None)
@given(engines, arrivals, st.sampled_from([0.0, 0.3]))
def test_jumping_is_the_same_as_going_step_by_step(shape: dict[str, Any], plan: Arrivals, jitter: float) -> None:
    jumped, loop, instants = simulate(shape, plan, jitter, jump=True)
    walked, slow, slow_instants = simulate(shape, plan, jitter, jump=False)
    assert [each.spans for each in jumped] == [each.spans for each in walked]
    assert list(instants.values()) == list(slow_instants.values())
    assert loop.engine.counters == slow.engine.counters


@settings(max_examples=150, deadline=None)
@given(engines, arrivals)
def test_everyone_is_served_and_nothing_is_held_at_the_end(shape: dict[str, Any], plan: Arrivals) -> None:
    everyone, loop, instants = simulate(shape, plan, 0.0, jump=True)
    pool = loop.engine.pool
    assert (pool.private, pool.live) == (0, 0)
    assert pool.idle <= pool.capacity
    for sequence, (at, *_) in zip(everyone, plan, strict=True):
        assert sequence.aborted or sequence.made == len(sequence.answer)
        assert sequence.made == sum(end - first for first, end in sequence.spans)
        times = instants.get(id(sequence), [])
        assert all(later > earlier for earlier, later in zip([at, *times], times, strict=False))


@settings(max_examples=40, deadline=None)
@given(engines, st.integers(0, 1000))
def test_the_pool_never_holds_more_than_it_has(shape: dict[str, Any], seed: int) -> None:
    rng, engine = random.Random(seed), SimulatorEngine(**shape)
    for number in range(20):
        tokens = tuple(f"{rng.randint(0, 2)}-{index}" for index in range(rng.randint(1, 40)))
        engine.add(Sequence(tokens, tuple(f"{number}a{index}" for index in range(rng.randint(1, 12)))))
    while (batch := engine.plan()) is not None:
        pool = engine.pool
        assert min(pool.private, pool.live, pool.idle) >= 0
        assert pool.private + pool.live + pool.idle <= pool.capacity
        assert pool.live == len({block for each in engine.running for block in held_by_content(each, engine)})
        assert len(batch.decodes) + batch.prefill_tokens <= engine.max_batched_tokens
        assert len(engine.running) <= engine.max_sequences
        for each in engine.running:
            engine.settle(each)
        assert batch.context == sum(each.computed for each in {*batch.decodes, *(each for each, _ in batch.chunks)})
        room = {each: max(each.room, each.length if each in batch.decodes else 0) for each in engine.running}
        held = sum(-(-room[each] // engine.block_size) - each.published for each in engine.running)
        assert held == pool.private
        if rng.random() < 0.2:
            engine.abort(rng.choice([*engine.running, *engine.waiting]))
        engine.complete(batch, rng.randint(1, batch.steps))
        if engine.running and rng.random() < 0.2:
            engine.abort(rng.choice(engine.running))
    assert not engine.running
    assert not engine.waiting
    assert (engine.pool.private, engine.pool.live) == (0, 0)


def held_by_content(sequence: Sequence, engine: SimulatorEngine) -> list[Tokens]:
    """Its published blocks, each as all tokens up to its end."""
    return [sequence.tokens(0, block * engine.block_size) for block in range(1, sequence.published + 1)]


class PlainPool:
    """What BlockPool must be, block by block, each known by all tokens up to it: the model that it is held against."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.private = capacity, 0
        self.live: dict[Tokens, int] = {}
        self.idle: dict[Tokens, None] = {}

    def take(self, blocks: int) -> None:
        self.private += blocks
        while self.private + len(self.live) + len(self.idle) > self.capacity:
            del self.idle[next(iter(self.idle))]

    def match(self, blocks: list[Tokens]) -> tuple[int, int]:
        found = 0
        while found < len(blocks) and (blocks[found] in self.live or blocks[found] in self.idle):
            found += 1
        return found, sum(block in self.idle for block in blocks[:found])

    def hold(self, blocks: list[Tokens]) -> None:
        for block in blocks:
            self.idle.pop(block, None)
            self.live[block] = self.live.get(block, 0) + 1

    def publish(self, blocks: list[Tokens]) -> None:
        self.private -= len(blocks)
        self.hold(blocks)

    def release(self, blocks: list[Tokens], private: int) -> None:
        self.private -= private
        for block in reversed(blocks):
            self.live[block] -= 1
            if not self.live[block]:
                del self.live[block]
                self.idle[block] = None


def blocks_of(path: list[int]) -> list[Tokens]:
    return [tuple(path[: length + 1]) for length in range(len(path))]


@settings(max_examples=200, deadline=None)
@given(st.integers(4, 30), st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 1), min_size=1, max_size=8))))
def test_runs_of_blocks_are_the_same_as_single_blocks(capacity: int, doings: list[tuple[bool, list[int]]]) -> None:
    """A token is a block here."""
    pool, plain = BlockPool(capacity, 1), PlainPool(capacity)
    holding: list[tuple[BlockRun | None, list[Tokens]]] = []
    for let_go, path in doings:
        tokens, blocks = tuple(path), blocks_of(path)
        assert pool.match(tokens) == plain.match(blocks)
        found, idle = pool.match(tokens)
        if let_go and holding:
            last, released = holding.pop(len(path) % len(holding))
            pool.release(last, 1)
            plain.release(released, 1)
        elif len(blocks) - found + 1 + idle <= pool.free:
            hit = pool.hold(tokens[:found])
            plain.hold(blocks[:found])
            for each in (pool, plain):
                each.take(len(blocks) - found + 1)
            holding.append((pool.publish(tokens[found:], hit), blocks))
            plain.publish(blocks[found:])
        assert (pool.private, pool.live, pool.idle) == (plain.private, len(plain.live), len(plain.idle))


def test_old_steps_are_forgotten_and_the_rest_is_right() -> None:
    clock, engine, seen = VirtualClock(), SimulatorEngine(), []
    loop = EngineLoop(clock, engine, StepTime(), lambda each: seen.append(loop.instants(each)))

    def again(left: int) -> None:
        loop.add(Sequence(tuple(f"{left}w{index}" for index in range(8)), ("x",) * 3000))
        if left:
            clock.call_at(clock.now() + 20_000_000_000, lambda: again(left - 1))

    again(20)
    clock.run()
    assert engine.step > 50_000
    assert len(loop.step_ends._ends) < 40_000
    assert all(len(each) == 3000 and (np.diff(each) > 0).all() for each in seen)
