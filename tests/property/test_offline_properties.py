"""Any batch sizes in text form; and batches of prompts of any shape."""

from hypothesis import given
from hypothesis import strategies as st

from inferometer.measure.offline import throughput_summary
from inferometer.plan.offline import sizes
from inferometer.record.summary import Pass
from inferometer.workload.synthetic import random_batches

small = st.integers(1, 500)


@given(small, st.integers(0, 300), st.integers(1, 50))
def test_a_range_is_what_its_words_say(first, more, step):
    found = sizes(f"{first}-{first + more}:{step}", "--batch-sizes")
    assert found == tuple(range(first, first + more + 1, step))
    assert found[0] == first and found[-1] <= first + more < found[-1] + step


@given(st.lists(small, min_size=1, max_size=20))
def test_a_list_keeps_its_order_and_says_nothing_twice(given_sizes):
    assert sizes(",".join(map(str, given_sizes)), "--batch-sizes") == tuple(dict.fromkeys(given_sizes))


@given(st.integers(1, 8), st.integers(1, 64), st.integers(0, 2**40), st.integers(100, 200_000))
def test_batches_have_their_shape_and_differ(size, length, seed, vocabulary):
    make = random_batches(size, length, 4, seed, vocabulary)
    first, second = make(0), make(1)
    assert [len(prompt) for prompt in first] == [length] * size
    assert all(0 <= token < min(vocabulary, 10_000) for prompt in first for token in prompt)
    assert make(0) == first
    if size * length > 8:
        assert first != second


passes = st.builds(
    Pass,
    elapsed_s=st.floats(0.001, 1000),
    requests=st.integers(1, 10_000),
    input_tokens=st.integers(0, 10_000_000),
    output_tokens=st.integers(0, 10_000_000),
)


@given(st.lists(passes, min_size=1, max_size=8))
def test_rates_lie_between_those_of_the_passes(made):
    rate = throughput_summary(made).rates["total_rate"].window
    each = [(one.input_tokens + one.output_tokens) / one.elapsed_s for one in made]
    assert min(each) * (1 - 1e-9) <= rate <= max(each) * (1 + 1e-9)
