"""Synthetic prompts of asked lengths, each a pure function of (seed, traffic, index) and the run's nonce.

The words are 1024 ordinary ones that are a single token, with a space before them and without, in the
vocabularies of GPT-2, cl100k (the base of Llama 3 and Qwen), o200k and Llama 2: n words are n tokens.
"""

import hashlib
import struct
from collections.abc import Callable
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from inferometer.plan import model
from inferometer.workload.session import Prompt, Request, Session, Workload

PURPOSE = 2  # keeps these draws apart from those that the same seed gives to arrivals
_KEY = struct.Struct("<QIIQ")  # seed, traffic, purpose, index

Write = Callable[[bytes], Prompt]  # random bytes, four for each token, as a prompt


def synthetic(spec: model.Workload, seed: int, traffic: int, nonce: str) -> Workload:
    """Sessions of one turn. The first `nonce_tokens` tokens are new in each run, so that no server has the prompt
    in its prefix cache by accident; the same nonce gives the same tape."""
    write = _as_text() if spec.prompt_as == "text" else _as_token_ids(spec.vocabulary)
    fresh = min(spec.nonce_tokens, spec.input_tokens)
    rest = spec.input_tokens - fresh

    def session(index: int) -> Session:
        key = _KEY.pack(seed % 2**64, traffic, PURPOSE, index)
        prompt = write(_random(nonce.encode() + key, fresh) + _random(key, rest))
        return Session([Request(prompt, spec.output_tokens, spec.input_tokens)])

    return session


def _random(key: bytes, tokens: int) -> bytes:
    """SHAKE is the same on every machine and needs no seeding: 10 us for the 4 kB of a prompt of 1000 tokens."""
    return hashlib.shake_128(key).digest(4 * tokens)


def _as_text() -> Write:
    """Picked by numpy: a third of the time that a look-up per word takes in Python."""
    pool = np.array(words(), dtype=object)
    most = len(pool) - 1

    def text(random: bytes) -> str:
        return " ".join(pool.take(_numbers(random) & most).tolist())

    return text


def _as_token_ids(vocabulary: int) -> Write:
    """Ids from the vocabulary's first part, but not its first tenth: control tokens live there."""
    lowest = vocabulary // 10

    def token_ids(random: bytes) -> list[int]:
        ids: list[int] = (_numbers(random) % (vocabulary - lowest) + lowest).tolist()
        return ids

    return token_ids


def _numbers(random: bytes) -> NDArray[np.uint32]:
    return np.frombuffer(random, "<u4")


@cache
def words() -> tuple[str, ...]:
    """The pool, a power of two of them, so that a draw is a mask of random bits."""
    pool = tuple(files("inferometer.workload").joinpath("words.txt").read_text("ascii").split())
    assert len(pool) & (len(pool) - 1) == 0
    return pool
