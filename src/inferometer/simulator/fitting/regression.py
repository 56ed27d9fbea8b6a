"""Derives the steps of an engine from the records of measured runs, and from these first estimates of the terms of a
step, by least squares and medians. Terms that the steps do not show are missing; `calibration` completes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inferometer.record.columns import Records, known

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SAME_STEP_NS = 800_000  # reads of one step lie microseconds apart, and a nap of the client is 0.6 ms at most
FULL = 0.7  # of the token budget: a step with fewer tokens was not limited by it


@dataclass(slots=True, frozen=True)
class Steps:
    """One entry per step, in the order of time."""

    at_s: Floats  # when its tokens reached the client
    decodes: Ints  # sequences that got another token
    firsts: Ints  # sequences that got their first
    prefill: Ints  # prompt tokens computed
    attended: Floats  # context that these tokens read, summed
    context: Ints  # tokens of the decoding sequences in the cache
    merged: NDArray[np.bool_]  # a read had more than one token: it covers several steps

    def __len__(self) -> int:
        return len(self.at_s)

    @property
    def gaps_s(self) -> Floats:
        """The time since the previous step; NaN for the first."""
        return np.diff(self.at_s, prepend=np.nan)


def read_steps(records: Records, token_budget: int) -> Steps:
    """The steps of these requests, without failed ones."""
    index = np.flatnonzero(records.outcome.mask("ok") & known(records.input_tokens) & (records.read_counts() > 0))
    chosen = records.take(index)
    owner = np.repeat(np.arange(len(chosen)), chosen.read_counts())
    tokens = chosen.read_tokens
    first = np.zeros(len(owner), bool)
    first[chosen.read_offsets[:-1]] = True
    before = np.cumsum(tokens) - tokens
    before -= before[chosen.read_offsets[:-1]][owner]  # earlier tokens of the same answer
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
    """Prompt tokens per step, and the context that they read. A prompt is computed in the step of its first token,
    except for the part that exceeds the token budget, which was computed in the full steps before."""
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


DECODE_TERMS = ("base", "decode_sequence", "context_token")
SYSTEMATIC = 0.01  # relative error common to the steps of one run, such as from the GPU clock
SCATTER = 0.1  # relative scatter from step to step
LEAST_SHARE = 0.1  # minimum of a term relative to its expected value: no term is zero
FEWEST = 8  # steps, for a usable median
LAUNCH_SHOWS = 1.15  # a gap longer than this many decode steps shows a wait for a launch
_ROUNDS = 5  # iterations of down-weighting outliers

Mask = NDArray[np.bool_]


def decode_terms(runs: Sequence[Steps], prior: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """`base`, `decode_sequence` and `context_token` in seconds with their relative standard errors, from steps far from
    any prefill. The steps of one run share systematic errors, so all steps of a run with equally many decodes count as
    one observation with the error `SYSTEMATIC`. `prior` has the terms and their relative errors: terms that the steps
    do not determine stay there, such as the context term if it is nearly the same in all runs."""
    rows, gaps = [], []
    for steps in runs:
        quiet = np.flatnonzero(_quiet(steps))
        thirds = (np.roll(steps.at_s, -1) - np.roll(steps.at_s, 2))[quiet] / 3  # mean of three steps
        decodes, context = steps.decodes[quiet], steps.context[quiet]
        for count in np.unique(decodes):
            alike = decodes == count
            rows.append((1.0, float(count), float(context[alike].mean())))
            gaps.append((float(np.median(thirds[alike])), int(alike.sum())))
    if sum(count for _, count in gaps) < FEWEST:
        return {}
    matrix, seconds = np.array(rows), np.array([gap for gap, _ in gaps])
    error = seconds * np.hypot(SYSTEMATIC, np.array([SCATTER / np.sqrt(count) for _, count in gaps]))
    expected = np.array([prior[name][0] for name in DECODE_TERMS])
    spread = expected * np.array([prior[name][1] for name in DECODE_TERMS])
    scaled = np.r_[matrix / error[:, None], np.diag(1 / spread)]
    values = np.r_[seconds / error, expected / spread]
    terms = np.linalg.lstsq(scaled, values, rcond=None)[0]
    terms = np.maximum(terms, LEAST_SHARE * expected)
    errors = np.sqrt(np.diag(np.linalg.inv(scaled.T @ scaled)))
    return {name: (float(term), float(one / term)) for name, term, one in zip(DECODE_TERMS, terms, errors, strict=True)}


def decode_terms_of(decodes: Floats, context: Floats, seconds: Floats) -> dict[str, float]:
    """The same from a table of steps: number of decoding sequences, their total context, and the time of the step."""
    terms = _robust(np.c_[np.ones(len(seconds)), decodes, context], seconds)
    return dict(zip(DECODE_TERMS, terms.tolist(), strict=True))


def launch_terms(runs: Sequence[Steps], decode: Mapping[str, float], graph_tokens: int) -> dict[str, float]:
    """`launch_graph` and `launch_eager` in seconds, and their spread: the step before a single prefill waits for the
    launch of that prefill."""
    waits: dict[str, list[float]] = {"launch_graph": [], "launch_eager": []}
    spreads: list[float] = []
    for steps in runs:
        lone = np.flatnonzero(_lone(steps))
        wait = steps.gaps_s[lone - 1]
        usual = (decode["base"] + _reading_s(steps, decode))[lone - 1]
        size = (steps.prefill + steps.decodes + steps.firsts)[lone]
        shows = wait > LAUNCH_SHOWS * usual
        small = size <= graph_tokens
        for name, chosen in (("launch_graph", small & shows), ("launch_eager", ~small & shows)):
            waits[name] += wait[chosen].tolist()
            if chosen.sum() >= FEWEST:
                spreads += np.abs(np.log(wait[chosen] / np.median(wait[chosen]))).tolist()
    terms = {name: float(np.median(one)) for name, one in waits.items() if len(one) >= FEWEST}
    if spreads:
        terms["launch_jitter"] = float(1.4826 * np.median(spreads))  # for a normal distribution
    return terms


def compute_term(
    runs: Sequence[Steps], decode: Mapping[str, float], launch_s: float, attention_tokens: float
) -> dict[str, float]:
    """`compute_token` in seconds, from prefills that take longer than their launch: single ones (with the steps around
    them, because the pipeline shifts time between these) and consecutive full steps."""
    costs, weights = [], []
    for steps in runs:
        work = steps.prefill + steps.decodes + steps.firsts + steps.attended / attention_tokens
        reading = _reading_s(steps, decode)
        lone = np.flatnonzero(_lone(steps))
        around = steps.at_s[lone + 2] - steps.at_s[lone - 2] - 3 * (decode["base"] + reading[lone])
        following = np.flatnonzero(_following(steps))
        for index, cost in ((lone, around), (following, steps.gaps_s[following])):
            bound = cost > 1.4 * launch_s
            costs += ((cost - reading[index]) / work[index])[bound].tolist()
            weights += work[index][bound].tolist()
    if len(costs) < 3:
        return {}
    order = np.argsort(costs)
    half = np.searchsorted(np.cumsum(np.array(weights)[order]), sum(weights) / 2)
    return {"compute_token": float(np.array(costs)[order][half])}


def prefill_terms(runs: Sequence[Steps], decode: Mapping[str, float]) -> dict[str, float]:
    """`prefill_token` and `mixed_sequence` in seconds of an engine without a pipeline: the additional time of steps
    with a single prefill over their decodes alone."""
    rows: list[Floats] = []
    longer: list[Floats] = []
    for steps in runs:
        lone = np.flatnonzero(_lone(steps) & (steps.prefill > 0))
        rows.append(np.c_[steps.prefill[lone], steps.decodes[lone]].astype(float))
        longer.append(steps.gaps_s[lone] - decode["base"] - _reading_s(steps, decode)[lone])
    if sum(map(len, longer)) < FEWEST:
        return {}
    token, sequence = _robust(np.concatenate(rows), np.concatenate(longer)).tolist()
    return {"prefill_token": token, "mixed_sequence": sequence}


def _reading_s(steps: Steps, decode: Mapping[str, float]) -> Floats:
    """The time of a step's decoding sequences beyond the base."""
    return np.asarray(decode["decode_sequence"] * steps.decodes + decode["context_token"] * steps.context, float)


def _quiet(steps: Steps) -> Mask:
    """Steps without a first token within three steps, and without merged reads."""
    busy = (steps.firsts > 0) | steps.merged
    near = np.zeros(len(steps), bool)
    for shift in range(-3, 4):
        near |= np.roll(busy, shift)
    near[:4] = near[-4:] = True
    return ~near & (steps.decodes > 0) & (steps.gaps_s < 5 * np.nanmedian(steps.gaps_s))


def _lone(steps: Steps) -> Mask:
    """Steps with a prefill among decodes, and no other prefill within three steps."""
    firsts = steps.firsts > 0
    others = np.zeros(len(steps), bool)
    for shift in (-3, -2, -1, 1, 2, 3):
        others |= np.roll(firsts, shift)
    lone = firsts & ~others & (steps.decodes > 0)
    lone[:4] = lone[-4:] = False
    return lone


def _following(steps: Steps) -> Mask:
    """Steps with a prefill whose neighbouring steps have prefills too."""
    firsts = steps.prefill > 0
    inner = firsts & np.roll(firsts, 1) & np.roll(firsts, -1)
    inner[:1] = inner[-1:] = False
    return inner


def _robust(rows: Floats, values: Floats) -> Floats:
    """Least squares with non-negative terms and down-weighted outliers (Huber)."""
    weights = np.ones(len(values))
    scale = np.maximum(rows.max(axis=0), 1e-12)
    used = np.ones(rows.shape[1], bool)
    terms = np.zeros(rows.shape[1])
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        while True:
            terms[:] = 0
            terms[used] = np.linalg.lstsq((rows / scale)[:, used] * root[:, None], values * root, rcond=None)[0]
            if (terms >= 0).all():
                break
            used &= terms >= 0
        error = values - (rows / scale) @ terms
        spread = 1.4826 * np.median(np.abs(error)) + 1e-12
        weights = np.minimum(1.0, 1.5 * spread / np.maximum(np.abs(error), 1e-15))
    return np.asarray(terms / scale, float)
