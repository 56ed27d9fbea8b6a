"""For any numbers, units and spellings: results are in seconds, and nothing is invented."""

import json
import math
import string

from hypothesis import given
from hypothesis import strategies as st

from inferometer.errors import DataError
from inferometer.exchange.importing.importer import summary_of
from inferometer.exchange.importing.recognise import format_named, parse, recognise
from inferometer.exchange.importing.requests import ImportedRequest, records_of
from inferometer.exchange.importing.units import SECONDS, nearest_unit, statistic, statistics

times = st.floats(1e-6, 1e5)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**29), 10**29)
    | st.floats(-1e29, 1e29)
    | st.sampled_from([math.inf, math.nan])
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(times, st.sampled_from(sorted(SECONDS)))
def test_a_time_is_the_same_in_every_unit(time_s: float, unit: str) -> None:
    metric = {"unit": unit, "avg": time_s / SECONDS[unit]}
    said = {"request_latency": metric, "time_to_first_token": metric}
    (run,) = format_named("aiperf").read(parse("a.json", json.dumps(said).encode())).runs
    assert math.isclose(run.measures["ttft"].mean, time_s, rel_tol=1e-9)


@given(st.floats(0.1, 99.9).map(lambda share: round(share, 1)))
def test_a_quantile_has_one_name_in_every_spelling(share: float) -> None:
    whole, _, rest = f"{share}".partition(".")
    spellings = {f"p{share}", f"P{share}", f"p{whole}p{rest}"} | ({f"p{share:g}"} if rest == "0" else set())
    assert {statistic(name) for name in spellings} == {f"p{share:g}"}


@given(st.dictionaries(st.text(string.printable, max_size=6), json_values, max_size=6))
def test_statistics_are_finite_numbers_that_were_there(said: dict[str, object]) -> None:
    found = statistics(said)
    assert all(math.isfinite(value) for value in found.values())
    assert set(found) <= {statistic(name) for name in said} - {None}


@given(st.floats(0.002, 0.2))
def test_seconds_and_milliseconds_of_a_pace_are_told_apart(tpot_s: float) -> None:
    assert nearest_unit("tpot", tpot_s, ("ms", "s")) == "s"
    assert nearest_unit("tpot", tpot_s * 1000, ("ms", "s")) == "ms"


@given(json_values)
def test_any_json_is_recognised_or_refused_with_words(said: object) -> None:
    try:
        recognise(parse("x.json", json.dumps(said).encode()))
    except DataError as error:
        assert error.message


@given(st.lists(st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=6), min_size=1, max_size=5), st.integers(1, 40))
def test_rebuilt_requests_have_the_latencies_they_were_made_of(gaps: list[list[float]], tokens: int) -> None:
    told = []
    for at, each in enumerate(gaps):
        sent = 100.0 + at
        reads = [sent + sum(each[: n + 1]) for n in range(len(each))]
        told.append(ImportedRequest(sent, reads, input_tokens=5, output_tokens=tokens, status=200))
    records = records_of(told)
    for at, each in enumerate(gaps):
        record = records.record(at)
        reads = records.read_at[records.reads(at)]  # type: ignore[assignment]
        assert record.sent_at is not None and record.ended_at is not None
        assert math.isclose((reads[0] - record.sent_at) / 1e9, each[0], abs_tol=1e-6)
        assert math.isclose((record.ended_at - record.sent_at) / 1e9, sum(each), abs_tol=1e-6)
        assert records.read_tokens[records.reads(at)].sum() == max(tokens, 1)


@given(st.lists(times, min_size=1, max_size=20))
def test_a_summary_has_no_numbers_but_those_of_the_file(values: list[float]) -> None:
    said = {f"p{at}_ttft_ms": each for at, each in enumerate(values, 1)}
    base = {"model_id": "m", "completed": 3, "duration": 1.0, "request_throughput": 3.0}
    (run,) = format_named("vllm-bench-serve").read(parse("r.json", json.dumps(base | said).encode())).runs
    measures = summary_of(run).measures
    assert set(measures) == {"ttft"}
    assert set(measures["ttft"].statistics) == {f"p{at}" for at in range(1, len(values) + 1)}
