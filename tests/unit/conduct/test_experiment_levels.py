"""Load levels between two ends: their values, cases and order, and what is unknown before the ends are measured."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.conduct.prepare import NotMeasured, drain_rate, in_flight, loads_between, sessions_per_s
from inferometer.errors import PlanError
from inferometer.plan.cases import cases_of, expected_s, ordered, server_starts
from inferometer.plan.experiment import Levels, experiment_from, to_yaml, values_between
from inferometer.plan.reading import mapping_in, plan_from
from inferometer.record.run import Run
from inferometer.simulator.virtual import simulated_run
from inferometer.store.experiments import CaseRow

ENDS = {"low": {"load": {"concurrency": 1}}, "high": {"load": {"concurrency": 64}}}
PLAN = {"server": {"type": "simulator"}, "stop": "10s"}
EXPLORED: dict[str, Any] = {"plan": PLAN, "levels": {**ENDS, "count": 3, "set": {"load": {"type": "constant"}}}}


def levels(**said):
    return Levels.model_validate({**ENDS, "count": 3, **said})


@pytest.mark.parametrize(
    ("said", "values"),
    [
        ({"count": 4}, [3.25, 5.5, 7.75, 10]),  # guidellm: the low end is not done again
        ({"count": 4, "ends": "both"}, [1, 4, 7, 10]),  # inference-perf, linear
        ({"count": 3, "ends": "both", "spacing": "geometric"}, [1, 3.162, 10]),
        ({"count": 3, "ends": "both", "spacing": "narrowing"}, [1, 7.838, 10]),  # 1 + 10 - 10 ** 0.5
        ({"count": 2, "ends": "none"}, [4, 7]),  # vLLM
        ({"count": 2, "ends": "none", "path": "load.concurrency"}, [4, 7]),
        ({"count": 3, "ends": "low"}, [1, 4, 7]),
        ({"count": 1}, [10]),
        ({"count": 0}, []),
    ],
)
def test_where_the_levels_lie(said, values):
    assert values_between(1, 10, levels(**said)) == values


@given(
    st.floats(0.01, 1e3), st.floats(1.1, 1e3), st.integers(2, 40), st.sampled_from(["linear", "geometric", "narrowing"])
)
def test_levels_rise_from_end_to_end(low, factor, count, spacing):
    found = values_between(low, low * factor, levels(count=count, ends="both", spacing=spacing))
    assert len(found) == count
    assert found[0] == pytest.approx(low, rel=1e-3, abs=0.006)
    assert found[-1] == pytest.approx(low * factor, rel=1e-3, abs=0.006)
    assert all(one <= other for one, other in itertools.pairwise(found))


def test_levels_of_guidellm_and_inference_perf_are_those_of_their_own_formulas() -> None:
    """numpy.linspace(low, high, size - 1)[1:], and 1 + high - numpy.geomspace(high, 1, size)."""
    assert values_between(2.5, 17, levels(count=8)) == pytest.approx(np.linspace(2.5, 17, 9)[1:].tolist(), abs=0.006)
    theirs = (1 + 183.38 - np.geomspace(183.38, 1, 7)).tolist()
    assert values_between(1, 183.38, levels(count=7, ends="both", spacing="narrowing")) == pytest.approx(
        theirs, abs=0.006
    )


def test_the_ends_are_cases_and_the_others_wait_for_them() -> None:
    low, high, *others = cases_of(experiment_from({**EXPLORED, "axes": {"server.args.max_sequences": [8]}}))
    assert [case.label for case in (low, high)] == ["max_sequences=8 low", "max_sequences=8 high"]
    assert [case.plan.load.concurrency for case in (low, high)] == [1, 64]
    assert [case.name for case in others] == [f"max_sequences=8 rate {n} of 3" for n in (1, 2, 3)]
    assert [case.waits for case in (low, high, *others)] == [False, False, True, True, True]
    settled = others[1].settled(12.5)
    assert (settled.plan.load.type, settled.plan.load.rate, settled.waits) == ("constant", 12.5, False)
    assert settled.parameters == {"server.args.max_sequences": 8, "level": "2 of 3", "load.rate": 12.5}
    assert (settled.key, settled.name) == (others[1].key, others[1].name)  # so that it is found again
    assert len({case.key for case in (low, high, *others)}) == 5


@pytest.mark.parametrize("order", ["sequential", "shuffled", "abba"])
def test_no_level_is_done_before_both_of_its_ends(order: str) -> None:
    said = {**EXPLORED, "axes": {"server.args.max_sequences": [8, 16]}, "repeats": 3, "order": order}
    done = ordered(cases_of(experiment_from(said)), order, seed=5)  # type: ignore[arg-type]
    assert len(done) == 2 * 5 * 3
    for at, case in enumerate(done):
        if case.waits:
            before = [each.level.step for each in done[:at] if each.level.block == case.level.block]
            assert before.count("low") == before.count("high") == 3
    if order == "sequential":
        assert server_starts(done, restart_every_case=False) == 2


def test_the_time_of_a_level_is_told_by_a_duration_alone() -> None:
    *_, waits = cases_of(experiment_from(EXPLORED))
    assert expected_s(waits) == 10
    *_, waits = cases_of(experiment_from(EXPLORED, ["stop={requests: 50}"]))
    assert expected_s(waits) is None and expected_s(waits.settled(5)) == 10


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"low": 1, "high": 5}, "levels has two known ends"),
        ({"measure": "speed"}, "must be request_rate or drain_rate with a percentile, got speed"),
        ({"measure": "drain_rate p95", "path": "load.concurrency"}, "must be request_rate where"),
        ({"count": 1, "ends": "both"}, "levels.count must be at least 2"),
        ({"spacing": "wide"}, "levels.spacing must be linear, geometric or narrowing"),
        ({"cuont": 4}, "levels.cuont is not a setting; did you mean count?"),
        ({"set": {"load": {"type": "constnt"}}}, "load.type"),
        ({"low": {"laod": 1}}, "laod is not a setting"),
    ],
)
def test_mistakes(said, text: str):
    with pytest.raises(PlanError) as wrong:
        cases_of(experiment_from({**EXPLORED, "levels": {**EXPLORED["levels"], **said}}))
    assert any(text in each for each in wrong.value.mistakes), wrong.value.mistakes


def test_levels_vary_what_no_axis_varies_and_need_a_load() -> None:
    for said in ({"axes": {"load.rate": [1, 2]}}, {"axes": {"load": [{"rate": 1}]}}):
        with pytest.raises(PlanError, match="levels and axes cannot both vary load"):
            experiment_from({**EXPLORED, **said})
    with pytest.raises(PlanError, match="levels needs a plan"):
        experiment_from({"latency": {}, "levels": EXPLORED["levels"]})
    with pytest.raises(PlanError, match="case batch does latency, which has no load"):
        cases_of(experiment_from({**EXPLORED, "cases": [{"name": "batch", "latency": {}}]}))


def test_an_experiment_is_written_as_it_is_read() -> None:
    experiment = experiment_from({**EXPLORED, "axes": {"seed": [1, 2]}, "budget": {"time": "2h"}})
    assert experiment_from(mapping_in(to_yaml(experiment), "")[0]) == experiment


# -- what was measured of the ends -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs():
    """By virtual time, so that numbers are exact: 40 at once, all at the start, and conversations of two turns."""
    server = {"type": "simulator", "args": {"max_sequences": 8}}
    made = {}
    for name, load, more in (
        ("closed", {"concurrency": 8}, {}),
        ("burst", {"type": "constant", "rate": 2000}, {}),
        ("turns", {"concurrency": 4}, {"turns": 2}),
    ):
        workload = {"input_tokens": 50, "output_tokens": 50, **more}
        plan = {"server": server, "workload": workload, "load": load, "stop": {"requests": 400, "drain": "10min"}}
        made[name] = simulated_run(plan_from(plan))
    return made


class Kept:
    """A store of these runs."""

    def __init__(self, runs: dict[str, Run]) -> None:
        self.load = runs.__getitem__


def rows_of(experiment_cases, **runs):
    return [
        CaseRow(case.name, case.label, dict(case.parameters), case.repeat, "complete", run=runs[case.level.step])
        for case in experiment_cases
        if not case.waits and case.level.step in runs
    ]


def test_what_an_end_measured(runs):
    closed, turns = runs["closed"], runs["turns"]
    length_s = 400 / closed.summary.rates["request_rate"].span
    records = closed.records
    assert length_s == pytest.approx((records.ended_at.max() - records.sent_at.min()) / 1e9, rel=0.01)
    assert sessions_per_s(closed) == pytest.approx(400 / length_s)
    assert in_flight(closed) == pytest.approx(8, rel=0.05)
    assert sessions_per_s(turns) == pytest.approx(turns.summary.rates["request_rate"].span / 2)


def test_a_burst_drains_as_fast_as_the_server_answers(runs):
    """All of 2000 a second, eight at a time: what is in flight falls as fast as answers come."""
    burst = runs["burst"]
    assert drain_rate(burst, 50) == pytest.approx(burst.summary.rates["request_rate"].span, rel=0.1)
    assert drain_rate(burst, 99) >= drain_rate(burst, 50)


def test_the_levels_lie_between_what_the_ends_measured(runs):
    experiment = experiment_from({**EXPLORED, "repeats": 2})
    cases = cases_of(experiment)
    waiting = cases[-1]
    done = rows_of(cases, low="turns", high="closed")
    found = loads_between(waiting, experiment.levels, cases, done, Kept(runs))  # type: ignore[arg-type]
    low, high = sessions_per_s(runs["turns"]), sessions_per_s(runs["closed"])
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))  # type: ignore[comparison-overlap]
    assert found.values == pytest.approx(np.linspace(low, high, 4)[1:].tolist(), abs=0.006)


def test_a_level_that_cannot_be_told_says_why(runs):
    experiment = experiment_from(EXPLORED)
    cases = cases_of(experiment)
    with pytest.raises(NotMeasured, match="its high end was not measured"):
        loads_between(cases[-1], experiment.levels, cases, rows_of(cases, low="turns"), Kept(runs))  # type: ignore[arg-type]
    backwards = rows_of(cases, low="closed", high="turns")
    with pytest.raises(NotMeasured, match="so there is no load in between"):
        loads_between(cases[-1], experiment.levels, cases, backwards, Kept(runs))  # type: ignore[arg-type]
