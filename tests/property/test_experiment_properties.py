"""For any variation: the cases are all requested ones, once each, in an order that loses none."""

import string
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.plan.cases import cases_of, ordered, server_starts
from inferometer.plan.experiment import experiment_from

PATHS = ("seed", "load.rate", "server.args.max_sequences", "target.model")
VALUES = {
    "seed": st.integers(0, 9),
    "load.rate": st.integers(1, 50),
    "server.args.max_sequences": st.sampled_from([16, 64, 256]),
    "target.model": st.text(string.ascii_lowercase, min_size=1, max_size=4),
}


@st.composite
def experiments(draw):
    paths = draw(st.lists(st.sampled_from(PATHS), unique=True, min_size=1, max_size=3))
    axes = {path: draw(st.lists(VALUES[path], unique=True, min_size=1, max_size=3)) for path in paths}
    repeats = draw(st.integers(1, 3))
    return {"axes": axes, "repeats": repeats, "order": draw(st.sampled_from(["sequential", "shuffled", "abba"]))}


@settings(max_examples=40, deadline=None)
@given(experiments(), st.integers(0, 5))
def test_every_case_is_done_once(said, seed):
    experiment = experiment_from(said)
    cases = cases_of(experiment)
    sizes = [len(values) for values in said["axes"].values()]
    expected = said["repeats"]
    for size in sizes:
        expected *= size
    assert len({case.key for case in cases}) == len({case.name for case in cases}) == len(cases) == expected
    done = ordered(cases, experiment.order, seed)
    assert sorted(case.key for case in done) == sorted(case.key for case in cases)
    if experiment.order == "sequential":  # no order starts fewer servers
        assert server_starts(done, restart_every_case=False) == len({case.stack for case in cases})


@settings(max_examples=30, deadline=None)
@given(experiments())
def test_in_abba_a_steady_drift_favours_no_case(said):
    """With an even number of repeats every case has the same mean place in time."""
    cases = cases_of(experiment_from({**said, "repeats": 2 * said["repeats"]}))
    places: dict[Any, Any] = {}
    for at, case in enumerate(ordered(cases, "abba")):
        places.setdefault(case.label, []).append(at)
    assert len({sum(found) for found in places.values()}) == 1


@settings(max_examples=30, deadline=None)
@given(experiments(), st.data())
def test_an_exclusion_leaves_out_what_it_matches_and_nothing_else(said, data):
    all_cases = cases_of(experiment_from({**said, "repeats": 1}))
    if len(all_cases) == 1:
        return
    chosen = dict(data.draw(st.sampled_from(all_cases)).parameters)
    rest = cases_of(experiment_from({**said, "repeats": 1, "exclude": [chosen]}))
    assert {case.label for case in rest} == {case.label for case in all_cases if case.parameters != chosen}
