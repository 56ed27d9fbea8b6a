"""Synthetic prompts: the requested length, the same tape for the same nonce, no shared prefixes."""

import timeit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.errors import PlanError
from inferometer.plan.model import Synthetic
from inferometer.workload.session import new_nonce, workload_of
from inferometer.workload.synthetic import words

specs = st.builds(
    Synthetic,
    input_tokens=st.integers(1, 300),
    output_tokens=st.one_of(st.none(), st.integers(1, 300)),
    prompt_as=st.sampled_from(["text", "token_ids"]),
    vocabulary=st.integers(100, 200_000),
    nonce_tokens=st.integers(0, 20),
)
indices = st.integers(0, 2**40)


def tokens(session):
    (request,) = session.turns
    return request.prompt.split(" ") if isinstance(request.prompt, str) else request.prompt


@settings(deadline=None)
@given(spec=specs, seed=st.integers(-(2**40), 2**40), traffic=st.integers(0, 20), index=indices)
def test_lengths_and_vocabulary_are_as_asked(spec, seed: int, traffic: int, index):
    session = workload_of(spec, seed, traffic, "nonce")(index)
    (request,) = session.turns
    found = tokens(session)
    assert len(found) == spec.input_tokens.value == request.input_tokens
    assert request.output_tokens == (spec.output_tokens and spec.output_tokens.value)
    if spec.prompt_as == "text":
        assert set(found) <= set(words())
    else:
        assert all(type(token) is int and 0 < token < spec.vocabulary for token in found)


@settings(deadline=None)
@given(spec=specs, seed=st.integers(0, 2**40), index=indices)
def test_a_tape_is_a_function_of_seed_index_and_nonce(spec, seed: int, index):
    assert workload_of(spec, seed, 0, "a")(index) == workload_of(spec, seed, 0, "a")(index)
    first, second = (tokens(workload_of(spec, seed, 0, nonce)(index)) for nonce in ("a", "b"))
    fresh = min(spec.nonce_tokens, spec.input_tokens.value)
    assert first[fresh:] == second[fresh:]
    if fresh >= 8:
        assert first[:fresh] != second[:fresh]


@pytest.mark.parametrize("nonce_tokens", [0, 8])
@pytest.mark.parametrize("prompt_as", ["text", "token_ids"])
def test_no_two_sessions_share_a_long_prefix(nonce_tokens: int, prompt_as: str) -> None:
    spec = Synthetic(input_tokens=32, nonce_tokens=nonce_tokens, prompt_as=prompt_as)
    tapes = [workload_of(spec, seed, traffic, nonce) for seed in (0, 1) for traffic in (0, 1) for nonce in "ab"]
    starts = {tuple(tokens(tape(index))[:8]) for index in range(500) for tape in tapes}
    expected = 500 * len(tapes) if nonce_tokens else 500 * len(tapes) // 2
    assert len(starts) == expected


def test_the_words_are_a_power_of_two_of_plain_words() -> None:
    assert len(words()) == len(set(words())) == 1024
    assert all(word.isascii() and word.isalpha() and word.islower() and 3 <= len(word) <= 7 for word in words())


def test_nonces_differ() -> None:
    assert len({new_nonce() for _ in range(100)}) == 100


def test_an_unknown_type_names_the_known_ones() -> None:
    with pytest.raises(PlanError, match=r"one of synthetic, .*got dreams"):
        workload_of(Synthetic.model_construct(type="dreams"), 0, 0, "")  # type: ignore[arg-type]


@pytest.mark.parametrize("prompt_as", ["text", "token_ids"])
def test_a_prompt_of_a_thousand_tokens_is_cheap(prompt_as: str) -> None:
    tape = workload_of(Synthetic(input_tokens=1000, prompt_as=prompt_as), 0, 0, "nonce")
    best_s = min(timeit.repeat(lambda: tape(7), number=50, repeat=10)) / 50
    assert best_s < 5e-3  # 50 us on an idle machine: a sanity check, bench/workload.py measures
