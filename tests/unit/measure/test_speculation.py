"""Speculative decoding as servers count it: by vLLM's counters over the load, or by SGLang's gauges."""

import pytest

from inferometer.measure.server import server_summary, server_values
from inferometer.record.record import Sample, Samples
from inferometer.simulator.metrics import Drafts
from inferometer.simulator.settings import SpeculationSettings

URL = "http://host/metrics"


def sampled(name: str, *values: float) -> list[Sample]:
    return [Sample(at=at, source=URL, name=name, value=value) for at, value in enumerate(values)]


def test_counters_give_rate_and_length_of_the_load_alone() -> None:
    samples = [*sampled("drafts", 100, 1360), *sampled("draft_tokens", 300, 4080), *sampled("accepted_tokens", 7, 2730)]
    server = server_summary(Samples.of(samples), [], 0, 1)
    assert server is not None and server.speculation is not None
    assert server.speculation.drafts == 1260
    values = server_values(server)
    assert values["server_acceptance_rate"].value == pytest.approx(2723 / 3780)
    assert values["server_acceptance_length"].value == pytest.approx(1 + 2723 / 1260)


def test_gauges_are_averaged() -> None:
    server = server_summary(Samples.of(sampled("acceptance_length", 2.0, 3.0)), [], 0, 1)
    assert server is not None and server.speculation is not None
    assert server.speculation.acceptance_length == pytest.approx(2.5) and server.speculation.drafts is None


def test_a_server_that_does_not_speculate_has_none() -> None:
    server = server_summary(Samples.of(sampled("running", 1.0, 1.0)), [], 0, 1)
    assert server is not None and server.speculation is None


@pytest.mark.parametrize(("acceptance", "length"), [(0.0, 1.0), (1.0, 4.0), (0.5, 1.875)])
def test_the_simulator_counts_as_many_as_it_says(acceptance: float, length: float) -> None:
    drafts = Drafts(SpeculationSettings(tokens=3, acceptance=acceptance), seed=1)
    drafts.count(40_001)
    assert drafts.drafts + drafts.accepted == 40_000  # every token but the first
    assert 1 + drafts.accepted / drafts.drafts == pytest.approx(length, rel=0.03)
    assert drafts.drafted == 3 * drafts.drafts
