"""Beginnings that prompts share: which group a prompt belongs to, how much of its beginning it takes, and what is
sent before the load so that a prefix cache holds it."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from inferometer.plan.workloads.synthetic import Prefix
from inferometer.workload.draws import Draws, Numbers, Purpose, numbers
from inferometer.workload.lengths import longest_of, quantile_of, zipf_picker

GROUPS_KEPT = 256  # beginnings that are kept in memory; the others are made anew, 10 us for 1000 tokens
SHUFFLED = 1 << 20  # groups x prompts that are put in a drawn order; more are drawn one by one


class Prefixes:
    """The shared beginnings of one traffic class. `longest` is the longest prompt there is."""

    def __init__(self, spec: Prefix, draws: Draws, nonce: str, fresh: int, longest: int) -> None:
        self.spec = spec
        self._draws, self._nonce, self._fresh = draws, nonce.encode(), fresh
        self._length = None if spec.tokens is None else quantile_of(spec.tokens)
        self._longest = longest
        self._group = zipf_picker(spec.groups, spec.zipf or 0.0)
        self._order = self._shuffled()
        self.beginning = lru_cache(GROUPS_KEPT)(self._beginning)

    def place(self, index: int, u: float) -> tuple[int, int]:
        """The group of a prompt, and which of all prompts it is: equal numbers are equal prompts."""
        spec = self.spec
        if spec.prompts is None:
            return self._group(u), index
        if self._order is not None:
            number = int(self._order[index % len(self._order)])
            return number // spec.prompts, number
        group = self._group(u)
        (again,) = self._draws.uniforms(Purpose.GROUP_LENGTH, index, 1, 1)
        return group, group * spec.prompts + int(again * spec.prompts)

    def taken(self, group: int, tokens: int, u: float) -> int:
        """How many of a prompt's tokens are shared. With a hit rate h, h of all tokens on average, in whole blocks:
        each prompt takes as much as it needs or, where the length is given, as many prompts do as are needed."""
        rate, block = self.spec.hit_rate, self.spec.block
        if self._length is None:
            return min(int((rate or 0.0) * tokens / block + u) * block, tokens)
        length = min(self.length(group), tokens)
        if rate is None:
            return length
        cacheable = length // block * block
        return length if cacheable and u < rate * tokens / cacheable else 0

    def length(self, group: int) -> int:
        """The length of a group's beginning: as drawn, or as much as the longest prompt needs."""
        if self._length is None:
            block = self.spec.block
            return (int((self.spec.hit_rate or 0.0) * self._longest / block) + 1) * block
        return self._length(self._draws.uniforms(Purpose.GROUP_LENGTH, group, 0, 1)[0])

    def primes(self) -> Iterator[Numbers]:
        """The beginning of each group, once."""
        for group in range(self.spec.groups if self.spec.primed else 0):
            yield self.beginning(group)

    def _beginning(self, group: int) -> Numbers:
        """New in each run by its first tokens, so that nothing of an older run is found."""
        length, key = self.length(group), self._draws.key(Purpose.GROUP_TEXT, group)
        fresh = min(self._fresh, length)
        return np.concatenate([numbers(self._nonce + key, fresh), numbers(key, length - fresh)])

    def _shuffled(self) -> "np.ndarray[tuple[int], np.dtype[np.int64]] | None":
        """Groups x prompts in a drawn order, each once before any comes again; popularity needs draws instead."""
        whole = self.spec.groups * (self.spec.prompts or 0)
        if not 0 < whole <= SHUFFLED or self.spec.zipf:
            return None
        seed = int.from_bytes(self._draws.key(Purpose.CHOICES, whole), "little")
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed))).permutation(whole)


def longest_prompt(prefix: Prefix | None, longest_input: int) -> int:
    """Both parts together, where they are given apart."""
    if prefix is None or prefix.suffix_tokens is None or prefix.tokens is None:
        return longest_input
    return longest_of(prefix.tokens) + longest_of(prefix.suffix_tokens)
