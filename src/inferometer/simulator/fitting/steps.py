"""The steps of an engine, read from the records of a run alone.

The tokens of one step reach the client together: reads of all streams that follow each other closely are one step. What
was in it follows from the streams: who decoded with how much context, and whose first token came, whose prompt was
therefore computed in this step (or, under a token budget, in this one and those before it).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inferometer.record.columns import Records, known

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SAME_STEP_NS = 800_000  # reads of one step lie microseconds apart, and a nap of the client is 0.6 ms at most
FULL = 0.7  # of the token budget: a step with less was not cut by it


@dataclass(slots=True, frozen=True)
class Steps:
    """One entry per step, in the order of time."""

    at_s: Floats  # when its tokens reached the client
    decodes: Ints  # sequences that got a further token
    firsts: Ints  # sequences that got their first
    prefill: Ints  # prompt tokens computed
    attended: Floats  # context that these read, summed over the tokens
    context: Ints  # tokens of the decoding sequences in the cache
    merged: NDArray[np.bool_]  # a read held more than one token: steps came together

    def __len__(self) -> int:
        return len(self.at_s)

    @property
    def gaps_s(self) -> Floats:
        """From the step before to this one; that of the first is NaN."""
        return np.diff(self.at_s, prepend=np.nan)


def read_steps(records: Records, token_budget: int) -> Steps:
    """The steps that answered these requests; failed ones are left out."""
    index = np.flatnonzero(records.outcome.mask("ok") & known(records.input_tokens) & (records.read_counts() > 0))
    chosen = records.take(index)
    owner = np.repeat(np.arange(len(chosen)), chosen.read_counts())
    tokens = chosen.read_tokens
    first = np.zeros(len(owner), bool)
    first[chosen.read_offsets[:-1]] = True
    before = np.cumsum(tokens) - tokens
    before -= before[chosen.read_offsets[:-1]][owner]  # tokens of the same answer that came earlier
    order = np.argsort(chosen.read_at, kind="stable")
    at = chosen.read_at[order]
    step = np.cumsum(np.diff(at, prepend=at[:1]) > SAME_STEP_NS)
    count = int(step[-1]) + 1 if len(step) else 0
    first, owner, tokens = first[order], owner[order], tokens[order]
    decoding = np.bincount(step[~first], minlength=count)
    context = np.where(first, 0, chosen.input_tokens[owner] + before[order])
    prefill, attended = _prefill(
        chosen, step[first].astype(np.int64), owner[first], count, np.bincount(step[~first], None, count), token_budget
    )
    return Steps(
        at_s=at[np.searchsorted(step, np.arange(count))] / 1e9,
        decodes=decoding,
        firsts=np.bincount(step[first], minlength=count),
        prefill=prefill,
        attended=attended,
        context=np.bincount(step, context, minlength=count).astype(np.int64),
        merged=np.bincount(step, tokens > 1, minlength=count) > 0,
    )


def _prefill(
    records: Records, steps: Ints, owners: Ints, count: int, decodes: Ints, token_budget: int
) -> tuple[Ints, Floats]:
    """Prompt tokens per step, and the context they read. A prompt is computed in the step of its first token; what a
    full step before it had room for was computed there."""
    prefill, attended = np.zeros(count, np.int64), np.zeros(count)
    lengths = records.input_tokens[owners] - np.maximum(records.cached_tokens[owners], 0)
    cached = records.input_tokens[owners] - lengths
    left = lengths.copy()
    for number, (step, length) in enumerate(zip(steps, lengths, strict=True)):
        computed = length - left[number]
        prefill[step] += left[number]
        attended[step] += left[number] * (cached[number] + computed + left[number] / 2)
        left[number] = 0
        following = number + 1
        is_last_of_step = following == len(steps) or steps[following] != step
        room = token_budget - int(decodes[step]) - int(prefill[step])
        if is_last_of_step and following < len(steps) and steps[following] == step + 1 and room > 0:
            if prefill[step] < FULL * token_budget:
                continue
            chunk = min(room, int(left[following]) - 1)
            prefill[step] += chunk
            attended[step] += chunk * (cached[following] + chunk / 2)
            left[following] -= chunk
    return prefill, attended
