"""Start and end of another tool's load, by the servers' counters."""

from inferometer.measure.server import busy_span
from inferometer.record.record import Sample, Samples

URL = "http://127.0.0.1:8000/metrics"


def _samples(name: str, values: dict[int, float], source: str = URL) -> list[Sample]:
    return [Sample(source, name, at, value) for at, value in values.items()]


def test_it_lasts_from_the_reading_before_the_first_growth_to_the_one_after_the_last() -> None:
    tokens = _samples("generation_tokens", {0: 5, 10: 5, 20: 9, 30: 30, 40: 30, 50: 30})
    requests = _samples("requests_ok", {0: 1, 10: 1, 20: 1, 30: 2, 40: 3, 50: 3})
    gauge = _samples("running", {0: 0, 10: 0, 20: 1, 30: 1, 40: 1, 50: 9})
    assert busy_span(Samples.of([*tokens, *requests, *gauge])) == (10, 40)


def test_a_counter_that_appears_with_its_first_count_begins_there() -> None:
    others = _samples("running", {0: 0, 10: 0, 20: 1, 30: 0})
    assert busy_span(Samples.of([*others, *_samples("prompt_tokens", {20: 7, 30: 7})])) == (20, 20)


def test_there_is_none_where_nothing_grew_or_no_server_was_read() -> None:
    assert busy_span(Samples.of(_samples("prompt_tokens", {0: 7, 10: 7}))) is None
    assert busy_span(Samples.of(_samples("power_w", {0: 7, 10: 9}, "gpu:0"))) is None
