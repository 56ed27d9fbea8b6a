"""Arrivals, example by example."""

import time
from collections import deque
from itertools import islice

import pytest

from inferometer.errors import PlanError
from inferometer.load.arrivals import Arrivals, arrivals_of, length_s
from inferometer.plan.model import Load, Stage, Stop, Warmup
from inferometer.plan.reading import plan_from

MS = 1_000_000


def test_a_constant_rate_begins_at_zero_and_does_not_drift() -> None:
    arrivals = Arrivals(Load(type="constant", rate=3), seed=1)
    assert list(islice(arrivals, 4)) == [(0, 0, 0), (1, 333333333, 0), (2, 666666667, 0), (3, 1000000000, 0)]
    (far,) = islice(arrivals, 3_000_000 - 4, 3_000_000 - 3)
    assert far == (3_000_000, 1_000_000 * 1000 * MS, 0)


def test_the_end_itself_is_outside() -> None:
    assert len(list(Arrivals(Load(type="constant", rate=0.1), 0, duration_s=30.0))) == 3
    assert len(list(Arrivals(Load(type="constant", rate=10), 0, duration_s=2.0))) == 20


def test_stages_start_on_their_own_and_a_rate_of_zero_is_a_pause() -> None:
    stages = [
        Stage(duration=0.25, rate=10, process="constant"),
        Stage(duration=1, rate=0),
        Stage(duration=0.2, rate=10, process="constant"),
    ]
    arrivals = list(Arrivals(Load(type="stages", stages=stages), seed=1))
    assert arrivals == [
        (0, 0, 0),
        (1, 100 * MS, 0),
        (2, 200 * MS, 0),
        (3, 1250 * MS, 2),
        (4, 1350 * MS, 2),
    ]


def test_a_stage_does_not_depend_on_those_before_it() -> None:
    late = Stage(duration=5, rate=40)
    for early in (Stage(duration=2, rate=1), Stage(duration=2, rate=30, process="gamma", cv=3)):
        arrivals = Arrivals(Load(type="stages", stages=[early, late]), seed=5)
        first = [at for _, at, stage in arrivals if stage == 1][:50]
        assert first == first_of_second_stage()


def first_of_second_stage():
    stages = [Stage(duration=2, rate=7), Stage(duration=5, rate=40)]
    return [at for _, at, stage in Arrivals(Load(type="stages", stages=stages), seed=5) if stage == 1][:50]


def test_a_cut_ramp_keeps_its_slope() -> None:
    stages = [Stage(duration=10, rate=0, to=100, process="constant")]
    whole = list(Arrivals(Load(type="stages", stages=stages), 0))
    cut = list(Arrivals(Load(type="stages", stages=stages), 0, duration_s=5.0))
    assert cut == whole[: len(cut)]
    assert (len(whole), len(cut)) == (500, 125)


def test_count_is_unknown_without_an_end() -> None:
    assert Arrivals(Load(type="poisson", rate=5), 0).count() is None
    assert Arrivals(Load(type="constant", rate=5), 0, shard=1, shards=3, duration_s=2).count() == 3


def test_length() -> None:
    ramp = Load(type="ramp", rate=10, to=30)
    poisson = Load(type="poisson", rate=10)
    stages = Load(type="stages", stages=[Stage(duration=5, rate=1), Stage(duration=7, rate=2)])
    assert length_s(poisson, Stop()) is None
    assert length_s(poisson, Stop(requests=10)) is None
    assert length_s(poisson, Stop(duration=60), Warmup(duration=5)) == 65
    assert length_s(stages, Stop()) == 12
    assert length_s(stages, Stop(duration=6)) == 6
    assert length_s(ramp, Stop(requests=200)) == 10
    with pytest.raises(PlanError, match="a ramp needs an end"):
        length_s(ramp, Stop())


def test_a_closed_loop_has_no_arrivals() -> None:
    with pytest.raises(ValueError, match="no arrivals"):
        Arrivals(Load(type="concurrency", concurrency=3), 0)


def test_a_million_arrivals_are_cheap() -> None:
    began = time.process_time()
    deque(islice(Arrivals(Load(type="gamma", cv=2, rate=1000), 0), 1_000_000), maxlen=0)
    assert time.process_time() - began < 10  # 0.5 s on a quiet core


def test_a_class_sends_the_same_when_another_is_switched_off() -> None:
    chat, rag = ({"name": name, "load": {"type": "poisson", "rate": 50}, "stop": {"duration": "2s"}} for name in "cr")
    both, alone = (plan_from({"traffic": traffic}) for traffic in ([chat, rag], [rag]))
    at = [list(arrivals_of(plan, len(plan.classes) - 1)) for plan in (both, alone)]
    assert at[0] == at[1] != list(arrivals_of(both, 0))
