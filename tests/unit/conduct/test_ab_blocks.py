"""A/B comparisons: the order of blocks, their tapes, and the evaluation, in virtual time."""

import itertools
import random
from dataclasses import replace

import pytest

from inferometer.conduct.ab import Block, Design, block_plan, check, in_turns, judged, order, paired_changes
from inferometer.errors import PlanError, TargetError
from inferometer.measure.values import quantities
from inferometer.plan.reading import plan_from
from inferometer.plan.stored import StoredPlan
from inferometer.record.environment import Environment
from inferometer.record.run import Run
from inferometer.record.summary import MeasureSummary, Summary
from inferometer.record.verdict import Reason, Verdict
from inferometer.simulator.virtual import simulated_run
from inferometer.store.experiments import Pairs

PAIRS = 5


def plan(speed=1.0, **said):
    simulator = {"type": "simulator", "args": {"speed": speed, "step_time": {"jitter": 0.4}}}
    asked = {"load": {"rate": 30}, "workload": {"input_tokens": 64, "output_tokens": 4}, "server": simulator}
    return plan_from(asked | said)


def virtual():
    """Blocks in virtual time: each with noise of its own, on the tape that it is given."""
    count = itertools.count()

    def measure(asked, _side, _nonce):
        number = next(count)
        server = asked.server.model_copy(update={"args": {**asked.server.args, "seed": number}})
        return replace(simulated_run(asked.model_copy(update={"server": server})), id=f"run-{number}")

    return measure


def made(value, pair, side, **more):
    summary = Summary(measures={"tpot": MeasureSummary(statistics={"mean": value})}, loop="closed")
    run = Run(f"{side}{pair}", "2026-11-15T03:00:00", StoredPlan({}), Environment(), summary, Verdict(status="valid"))
    return Block(pair, side, replace(run, **more))


def invalid(code, text):
    return Verdict(status="invalid", doubts=[Reason(status="invalid", code=code, text=text)])


def both(a, b):
    return [made((a if side == "a" else b)(at), pair, side) for at, (pair, side) in enumerate(order(8))]


def test_abba() -> None:
    assert "".join(side for _, side in order(4)) == "abbaabba"
    assert [pair for pair, _ in order(3)] == [1, 1, 2, 2, 3, 3]


def test_a_pair_has_one_tape_and_pairs_have_different_ones() -> None:
    seen = []

    def measure(asked, side, nonce):
        seen.append((side, asked.seed, nonce, asked.stop.duration))
        return made(1.0, 1, side).run

    list(in_turns(plan(seed=7), plan(2.0, seed=7), Design(3, 5.0), measure))
    tapes = {side: [(seed, nonce) for each, seed, nonce, _ in seen if each == side] for side in "ab"}
    assert tapes["a"] == tapes["b"] and [seed for seed, _ in tapes["a"]] == [7, 8, 9]
    assert len({nonce for _, nonce in tapes["a"]}) == 3 and {each[3] for each in seen} == {5.0}


def test_one_address_on_both_sides_has_two_nonces() -> None:
    """Else its prefix cache would know the second block of each pair."""
    seen = []
    same = plan(target={"url": "http://127.0.0.1:1"}, server=None)
    list(in_turns(same, same, Design(3, 5.0), lambda *asked: seen.append(asked[2]) or made(1.0, 1, "a").run))
    assert len({*seen}) == 6


def test_a_block_ends_after_its_time_in_every_class() -> None:
    classes = {"traffic": [{"name": "a", "load": {"rate": 1}}, {"name": "b", "load": {"concurrency": 2}}]}
    asked = block_plan(plan(**classes, outputs=[{"format": "json", "path": "x"}]), 5.0, 2)
    assert {each.stop.duration for each in asked.classes} == {5.0} and not asked.outputs and asked.seed == 1


def test_a_linear_drift_cancels() -> None:
    """Each block takes 2% more than the one before: twice as much as what A and B differ by."""
    found = judged(both(lambda at: 1.02**at, lambda at: 0.9 * 1.02**at), Design(8))
    (change,) = found.comparison.changes
    assert change.change == pytest.approx(-0.1) and change.status == "better"
    (equal,) = judged(both(lambda at: 1.02**at, lambda at: 1.02**at), Design(8)).comparison.changes
    assert equal.change == pytest.approx(0, abs=1e-12) and equal.status in ("same", "unclear")


def test_pairs_that_tell_of_us_or_were_cut_short_are_left_out() -> None:
    blocks = both(lambda at: 1.0 + at % 3 / 100, lambda at: 2.0 + at % 3 / 100)
    late = invalid("late_sends", "Requests were sent late.")
    queue = invalid("unbounded_queue", "It grew.")
    blocks[0] = replace(blocks[0], run=replace(blocks[0].run, verdict=late))
    blocks[4] = replace(blocks[4], run=replace(blocks[4].run, verdict=queue))
    blocks[-1] = replace(blocks[-1], run=replace(blocks[-1].run, state="interrupted"))
    found = judged(blocks, Design(8))
    assert found.left_out == {1: "a: Requests were sent late.", 8: "a was interrupted"}
    assert len(found.comparison.before) == 6 and found.result.pairs == Pairs(planned=8, compared=6)
    assert found.comparison.status == "worse"


def test_where_lateness_would_leave_too_few_all_are_compared_and_called_invalid() -> None:
    late = invalid("late_sends", "Requests were sent late.")
    blocks = [replace(each, run=replace(each.run, verdict=late)) for each in both(lambda _: 1.0, lambda _: 2.0)]
    found = judged(blocks, Design(8))
    assert not found.left_out and len(found.comparison.before) == 8 and found.comparison.refused


def test_an_interruption_ends_the_turns() -> None:
    states = iter(["complete", "complete", "interrupted"])
    cut = [*in_turns(plan(), plan(), Design(4), lambda *_: replace(made(1.0, 1, "a").run, state=next(states)))]
    assert [(each.pair, each.side) for each in cut] == [(1, "a"), (1, "b"), (2, "b")]
    with pytest.raises(TargetError, match="only 1 of 4 pairs can be compared: pair 2: b was interrupted"):
        judged(cut, Design(4))


@pytest.mark.parametrize(
    "a, b, design, told",
    [
        (plan(), plan(), Design(2), "--blocks must be at least 3"),
        (plan(), plan(load={"rate": 31}), Design(3), "load differs"),
        (plan(), plan(workload={"input_tokens": 1}), Design(3), "workload differs"),
        (
            plan(load={"stages": [{"rate": 1, "duration": 1}]}),
            plan(load={"stages": [{"rate": 1, "duration": 1}]}),
            Design(3),
            "not stages",
        ),
    ],
)
def test_what_cannot_be_compared(a, b, design, told: str):
    with pytest.raises(PlanError, match=told):
        check(a, b, design)


def test_a_faster_target_is_found() -> None:
    design = Design(PAIRS, 1.5)
    found = judged([*in_turns(plan(), plan(1.3), design, virtual())], design).comparison
    words = {change.key: change.status for change in found.changes}
    assert words["tpot.mean"] == "better" and found.status == "better"
    tpot = next(change for change in found.changes if change.key == "tpot.mean")
    assert tpot.interval[0] < 1 / 1.3 - 1 < tpot.interval[1] and tpot.smallest < 0.25


def wilson_upper(wrong, of, z=1.96):
    share = wrong / of
    return (share + z * z / (2 * of) + z * ((share * (1 - share) + z * z / (4 * of)) / of) ** 0.5) / (1 + z * z / of)


def test_equal_targets_are_called_different_as_rarely_as_promised() -> None:
    """200 A/A comparisons at a nominal 5% for all measures together; each of 5 pairs drawn from 24 that were made,
    each pair with its sides at random, which is what no difference means."""
    draw, design = random.Random(1), Design(PAIRS, 1.0)
    pool = [*in_turns(plan(), plan(), Design(24, 1.0), virtual())]
    numbers = [[quantities(each.run.summary) for each in pool if each.pair == pair] for pair in range(1, 25)]
    wrong = 0
    for _ in range(200):
        drawn = [draw.sample(pair, 2) for pair in draw.sample(numbers, PAIRS)]
        found = paired_changes([a for a, _ in drawn], [b for _, b in drawn], design, open_loop=True)
        assert len(found) >= 3
        wrong += any(change.status in ("better", "worse") for change in found)
    assert wilson_upper(wrong, 200) < 0.1, wrong
