"""Our reader of metrics against the one of prometheus_client, on whatever that can write; counters and histograms
against what was counted."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from inferometer.measure.server import all_series, growth, histogram, pooled
from inferometer.observe.prometheus import KEPT_LABELS, MEANINGS, read_exposition
from inferometer.record.record import Sample, Samples
from inferometer.record.sanitize import harmless

label_text = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=8)
amounts = st.floats(0, 1e12, allow_nan=False)


@given(st.lists(st.tuples(label_text, label_text, amounts), max_size=5, unique_by=lambda row: row[:2]), amounts)
def test_what_prometheus_client_writes_is_read_as_it_reads_it(rows, ttft):
    registry = CollectorRegistry()
    running = Gauge("vllm:num_requests_running", "x", ["model_name", "engine"], registry=registry)
    tokens = Counter("vllm:prompt_tokens", "y\nz", ["model_name", "engine"], registry=registry)
    first = Histogram("vllm:time_to_first_token_seconds", "t", registry=registry)
    Gauge("other", "o", ["a"], registry=registry).labels("vllm:prompt_tokens_total 3").set(1)
    first.observe(ttft)
    for model, engine, amount in rows:
        running.labels(model, engine).set(amount)
        tokens.labels(model, engine).inc(amount)
    text = generate_latest(registry).decode()
    assert read_exposition(text).values == by_the_book(text)


def by_the_book(text):
    found: dict[Any, Any] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            for meaning in MEANINGS.get(sample.name, ()):
                own = {name: harmless(value) for name, value in sample.labels.items() if name in KEPT_LABELS}
                kept = tuple(sorted(own.items()))
                key = (meaning.sample_name, kept)
                found[key] = found.get(key, 0.0) + sample.value
    return found


@given(st.lists(st.lists(st.integers(0, 100), min_size=1), min_size=1))
def test_growth_is_what_all_lives_of_a_server_counted(lives):
    """Each life begins at 0 and counts up; an end at 0 is no reset that anybody could see."""
    values = np.concatenate([np.cumsum([0, *life]) for life in lives]).astype(float)
    resets = sum(sum(life) > 0 for life in lives[:-1])
    assert growth(values) == (sum(map(sum, lives)), resets)


@given(
    st.lists(st.lists(st.floats(0, 20), min_size=1, max_size=40), min_size=1, max_size=3),
    st.sampled_from([0.5, 0.9, 0.99]),
    st.booleans(),
)
def test_quantiles_lie_in_the_bucket_of_the_true_one(replicas, share, appears):
    """Also where a server tells of a histogram only once it has observed something, as those of TGI do; after the load
    it is read until two readings agree."""
    bounds = [0.01, 0.1, 1.0, 10.0, float("inf")]
    samples = []
    for number, values in enumerate(replicas):
        source = f"http://r{number}/metrics"
        hidden = appears and number == 0

        def read(name, n, label, source=source, hidden=hidden):
            told = ((1, 0.0), (8, n), (9, n))
            return [Sample(source, name, at, value, label) for at, value in told if at > 1 or not hidden]

        samples.append(Sample(source, "running", 1, 0.0))
        samples += read("ttft_count", float(len(values)), {})
        samples += read("ttft_sum", float(sum(values)), {})
        for bound in bounds:
            reached = float(sum(value <= bound for value in values))
            label = {"le": "+Inf" if bound == float("inf") else str(bound)}
            samples += read("ttft_bucket", reached, label)
    series = all_series(Samples.of(samples), [f"http://r{number}/metrics" for number in range(len(replicas))])
    found = histogram(series, "ttft")
    everything = np.sort(np.concatenate([np.array(values) for values in replicas]))
    assert found.count == len(everything)
    assert np.isclose(found.mean, everything.mean())
    estimate, (low, high) = found.quantile(share)
    true = everything[int(np.ceil(share * len(everything))) - 1]
    assert low <= true <= (np.inf if high is None else high)
    assert estimate is None if high is None else low <= estimate <= high


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=10), st.integers(1, 3))
def test_counters_are_pooled_over_replicas(values, replicas):
    values = sorted(values)
    names = [f"http://r{number}" for number in range(replicas)]
    samples = [Sample(name, "prompt_tokens", at, value) for name in names for at, value in enumerate(values)]
    found = pooled(all_series(Samples.of(samples), names), "prompt_tokens")
    assert np.isclose(found.grown, replicas * (values[-1] - values[0]))
    assert found.resets == 0 and set(found.by_source) == set(names)
