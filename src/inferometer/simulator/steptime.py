"""How long one step of the engine takes: a straight line in what the step holds, with optional noise.

Integer picoseconds throughout, so that many steps at once are exactly the same as one after the other.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Instants: TypeAlias = "array[int]"  # int64, nanoseconds

_NOISE_CHUNK = 4096
_FEW = 32


class Noise:
    """Factor of step `i`: lognormal with mean 1, a function of (seed, i) however the steps are asked for."""

    def __init__(self, sigma: float, seed: int) -> None:
        self._sigma = sigma
        self._seed = seed
        self._chunks: dict[int, NDArray[np.float64]] = {}

    def factors(self, first_step: int, steps: int) -> NDArray[np.float64]:
        first, last = first_step // _NOISE_CHUNK, (first_step + steps - 1) // _NOISE_CHUNK
        for old in [number for number in self._chunks if number < first]:
            del self._chunks[old]
        whole = np.concatenate([self._chunk(number) for number in range(first, last + 1)])
        begin = first_step - first * _NOISE_CHUNK
        return whole[begin : begin + steps]

    def _chunk(self, number: int) -> NDArray[np.float64]:
        if number not in self._chunks:
            rng = np.random.default_rng([self._seed, number])
            self._chunks[number] = rng.lognormal(-(self._sigma**2) / 2, self._sigma, _NOISE_CHUNK)
        return self._chunks[number]


@dataclass(slots=True)
class StepTime:
    """duration = base + prefill tokens * t_p + decoding sequences * t_d + cached context tokens * t_c  [seconds].

    The defaults are a rough fit to vLLM 0.24 with an 8B model in bfloat16 on one H200: 4.8 ms per token alone
    and 5.1 ms with 8 sequences (base, t_d); 10.9 ms with 80 sequences of 2,200 tokens (t_c; 128 KiB of keys and
    values per token at 4.8 TB/s would be 27 ns); steps of 9.4 and 27.5 ms while 300 and 1,000 tokens were
    prefilled (t_p).
    """

    base_s: float = 4.75e-3
    prefill_token_s: float = 20e-6
    decode_sequence_s: float = 12e-6
    context_token_s: float = 30e-9
    jitter: float = 0.0  # sigma of the lognormal noise
    seed: int = 0
    _noise: Noise | None = field(init=False, default=None)
    _ps: tuple[int, int, int, int] = field(init=False, default=(0, 0, 0, 0))

    def __post_init__(self) -> None:
        parts = (self.base_s, self.prefill_token_s, self.decode_sequence_s, self.context_token_s)
        base, prefill, decode, context = (round(part * 1e12) for part in parts)
        self._ps = (base, prefill, decode, context)
        if self.jitter > 0:
            self._noise = Noise(self.jitter, self.seed)

    def ends(self, at: int, prefill_tokens: int, sequences: int, context: int, steps: int, first_step: int) -> Instants:
        """When `steps` steps end that begin at an instant, one after the other; the context grows by a token per
        decoding sequence each step. Most runs are of a few steps, for which numpy takes longer to begin than to do."""
        base, prefill, decode, per_context = self._ps
        first = base + prefill * prefill_tokens + decode * sequences + per_context * context
        growth = per_context * sequences
        if self._noise is None and steps <= _FEW:
            return array("q", _few_ends(at, range(steps), first, growth))
        picoseconds = np.arange(first, first + growth * steps, growth) if growth else np.full(steps, first)
        if self._noise is not None:
            picoseconds = (picoseconds * self._noise.factors(first_step, steps)).astype(np.int64)
        return array("q", (at + np.maximum(picoseconds // 1000, 1).cumsum()).tobytes())


def _few_ends(at: int, steps: range, first: int, growth: int) -> Iterator[int]:
    for step in steps:
        at += (first + growth * step) // 1000 or 1  # time must pass
        yield at
