"""The run cut into equal slices of time: how load, tokens, latency and failures went."""

from typing import Any

import numpy as np

from inferometer.measure.answers import Answers
from inferometer.measure.inflight import InFlight
from inferometer.measure.quantiles import Floats, Ints
from inferometer.measure.registry import each_of
from inferometer.measure.window import Window
from inferometer.record.columns import known
from inferometer.vocabulary import NANOSECONDS

MOST = 120
_WIDTHS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400)


def slices(answers: Answers, run: Window, measure: str) -> dict[str, Any] | None:
    """`ttft_*` are quantiles of `measure` among the answered requests scheduled in the slice."""
    if run.length_s <= 0:
        return None
    width_s = next((w for w in _WIDTHS_S if run.length_s / w <= MOST), run.length_s / MOST)
    count = max(1, int(np.ceil(run.length_s / width_s - 1e-9)))
    edges = run.start_at + np.round(np.arange(count + 1) * width_s * NANOSECONDS).astype(np.int64)
    columns = _columns(answers, edges, measure, width_s)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return {"width_s": width_s, "measure": measure, "rows": rows}


def _columns(answers: Answers, edges: Ints, measure: str, width_s: float) -> dict[str, list[Any]]:
    records, count = answers.records, len(edges) - 1
    flight = InFlight.of(records.sent_at, records.ended_at)
    offered = _sums(records.scheduled_at, None, edges)
    tokens = np.zeros(count)
    for reads in records.read_batches(None, ("read_at", "read_tokens")):
        tokens += _sums(reads.at, reads.tokens.astype(np.float64), edges)
    failures = _sums(records.ended_at[answers.failed], None, edges)
    values = np.where(answers.ok, each_of(measure, answers), np.nan)
    middle, high = _grouped_quantiles(_slice_of(records.scheduled_at, edges), values, count, (0.5, 0.9))
    return {
        "t": ((edges[:-1] - edges[0]) / NANOSECONDS).tolist(),
        "offered_per_s": (offered / width_s).tolist(),
        "tokens_per_s": (tokens / width_s).tolist(),
        "in_flight": flight.mean(edges).tolist(),
        "ttft_p50": middle,
        "ttft_p90": high,
        "failures": failures.astype(np.int64).tolist(),
    }


def _slice_of(at: Ints, edges: Ints) -> Ints:
    """Which slice each instant is in; -1 outside. The last slice has its end."""
    count = len(edges) - 1
    index = np.searchsorted(edges, at, side="right") - 1
    index = np.where(at == edges[-1], count - 1, index)
    return np.where(known(at) & (index < count), index, -1)


def _sums(at: Ints, amount: Floats | None, edges: Ints) -> Floats:
    index = _slice_of(at, edges)
    inside = index >= 0
    weights = None if amount is None else amount[inside]
    return np.bincount(index[inside], weights, len(edges) - 1).astype(np.float64)


def _grouped_quantiles(
    group: Ints, values: Floats, count: int, shares: tuple[float, ...]
) -> tuple[list[float | None], ...]:
    """Order-statistic quantiles of each group; None for an empty one."""
    fine = ~np.isnan(values) & (group >= 0)
    group, values = group[fine], values[fine]
    ordered = values[np.lexsort((values, group))]
    sizes = np.bincount(group, minlength=count)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    return tuple(_picked(ordered, starts, sizes, share) for share in shares)


def _picked(ordered: Floats, starts: Ints, sizes: Ints, share: float) -> list[float | None]:
    ranks = np.maximum(np.ceil(share * sizes - 1e-9).astype(np.int64) - 1, 0)
    return [
        float(ordered[start + rank]) if size else None for start, rank, size in zip(starts, ranks, sizes, strict=True)
    ]
