"""Arrivals follow the plan's arrival process for any seed, rate, and number of shards."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from inferometer.load.arrivals import Arrivals, stretches
from inferometer.plan.model import Load, Stage

NS = 1_000_000_000

processes = st.sampled_from(["constant", "poisson", "gamma"])
seeds = st.integers(-(2**63), 2**63)
rates = st.floats(0.5, 500)
cvs = st.floats(0.2, 4)


@st.composite
def stages(draw):
    process = draw(processes)
    return Stage(
        duration=draw(st.floats(0.01, 4)),
        rate=draw(st.one_of(st.just(0.0), rates)),
        to=draw(st.one_of(st.none(), st.just(0.0), rates)),
        process=process,
        **spread(draw, process),
    )


def spread(draw, process):
    return {"cv": draw(cvs)} if process == "gamma" else {}


def sends(found):
    return any(stage.rate or stage.to for stage in found)


@st.composite
def loads(draw):
    match draw(st.sampled_from(["plain", "ramp", "stages"])):
        case "plain":
            process = draw(processes)
            return Load(type=process, rate=draw(rates), **spread(draw, process))
        case "ramp":
            return Load(type="ramp", rate=draw(rates), to=draw(st.floats(0, 500)))
    return Load(type="stages", stages=draw(st.lists(stages(), min_size=1, max_size=4).filter(sends)))


@settings(deadline=None, max_examples=60)
@given(load=loads(), seed=seeds, shards=st.integers(1, 9), duration_s=st.floats(0.1, 8))
def test_shards_merge_to_the_whole(load, seed, shards: int, duration_s: float):
    whole = list(Arrivals(load, seed, duration_s=duration_s))
    parts = [list(Arrivals(load, seed, 0, shard, shards, duration_s)) for shard in range(shards)]
    assert sorted(arrival for part in parts for arrival in part) == whole
    counts = [Arrivals(load, seed, 0, shard, shards, duration_s).count() for shard in range(shards)]
    assert counts == [len(part) for part in parts]
    assert max(counts) - min(counts) <= 1


@settings(deadline=None, max_examples=60)
@given(load=loads(), seed=seeds, duration_s=st.floats(0.1, 8))
def test_arrivals_are_in_order_numbered_and_inside_their_stage(load, seed, duration_s: float):
    arrivals = list(Arrivals(load, seed, duration_s=duration_s))
    assert [index for index, _, _ in arrivals] == list(range(len(arrivals)))
    assert [at for _, at, _ in arrivals] == sorted(at for _, at, _ in arrivals)
    bounds = {stretch.stage: (stretch.begins_s, stretch.length_s) for stretch in stretches(load, duration_s)}
    for _, at, stage in arrivals:
        begins_s, length_s = bounds[stage]
        assert -1 <= at - begins_s * NS <= length_s * NS + 1
        assert at <= duration_s * NS
    assert all(type(number) is int for arrival in arrivals[:3] for number in arrival)


@settings(deadline=None, max_examples=30)
@given(load=loads(), seed=st.integers(0, 2**32))
def test_the_seed_decides(load, seed: int):
    def some(seed, traffic=0):
        return list(Arrivals(load, seed, traffic, duration_s=3))

    assert some(seed) == some(seed)
    drawn = [at for _, at, stage in some(seed) if load.type != "constant" and _is_drawn(load, stage)]
    if drawn:
        assert some(seed) != some(seed + 1)
        assert some(seed, 0) != some(seed, 1)


def _is_drawn(load, stage):
    return load.type != "stages" or load.stages[stage].process != "constant"


@settings(deadline=None, max_examples=25)
@given(rate=st.floats(0.01, 10_000), cv=cvs, process=processes, seed=st.integers(0, 2**32))
def test_gaps_have_the_asked_mean_and_spread(rate: float, cv, process, seed: int):
    load = Load(type=process, rate=rate, cv=cv if process == "gamma" else 1)
    at = np.array([at for _, at, _ in islice(Arrivals(load, seed), 20_000)])
    gaps = np.diff(at, prepend=0 if process != "constant" else -NS / rate) / NS * rate
    spread = {"constant": 0.0, "poisson": 1.0, "gamma": cv}[process]
    assert gaps.mean() == pytest.approx(1, abs=6 * spread / np.sqrt(len(gaps)) + 1e-4)
    assert gaps.std() == pytest.approx(spread, rel=0.25, abs=1e-4)
    if process != "constant":
        shape = 1 / spread**2
        least = max(1e-5, 100 * rate / NS)  # instants are whole nanoseconds: smaller gaps are rounded
        assert stats.kstest(gaps[gaps > least], _law(shape, least)).pvalue > 1e-7


def _law(shape, least):
    """The gamma law of what is above the least."""
    law = stats.gamma(shape, scale=1 / shape)
    low = law.cdf(least)
    return lambda x: (law.cdf(x) - low) / (1 - low)


@settings(deadline=None, max_examples=25)
@given(rate=st.floats(0, 2000), to=st.floats(0.1, 2000), length_s=st.floats(0.5, 20))
def test_a_constant_ramp_follows_the_integral_exactly(rate: float, to: float, length_s: float) -> None:
    load = Load(type="stages", stages=[Stage(duration=length_s, rate=rate, to=to, process="constant")])
    at_s = np.array([at / NS for _, at, _ in Arrivals(load, 0)])
    due = rate * at_s + (to - rate) * at_s**2 / (2 * length_s)
    assert np.allclose(due, np.arange(len(at_s)), atol=1e-4 * max(1.0, rate, to))
    assert len(at_s) == pytest.approx((rate + to) / 2 * length_s, abs=1.001)


@settings(deadline=None, max_examples=25)
@given(rate=st.floats(1, 2000), to=st.floats(0, 2000), seed=st.integers(0, 2**32))
def test_a_ramp_has_the_integral_as_its_count_in_every_quarter(rate: float, to: float, seed: int) -> None:
    at_s = np.array([at / NS for _, at, _ in Arrivals(Load(type="ramp", rate=rate, to=to), seed, duration_s=8.0)])
    for quarter in range(4):
        middle = rate + (to - rate) * (quarter + 0.5) / 4
        inside = np.sum((at_s >= 2 * quarter) & (at_s < 2 * quarter + 2))
        assert inside == pytest.approx(2 * middle, abs=7 * np.sqrt(2 * middle) + 7)
