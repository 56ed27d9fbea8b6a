"""`Answers`: what every measure starts from, computed once from the records: first and last read, tokens, gaps."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from inferometer.measure.quantiles import Floats, Ints
from inferometer.record.columns import MISSING, Mask, Records, known
from inferometer.record.record import CENSORED
from inferometer.vocabulary import NANOSECONDS


@dataclass(frozen=True, eq=False, slots=True)
class Gaps:
    """Gaps between neighbouring token-bearing reads of one request: `owner` is its index."""

    length_s: Floats
    tokens: Ints  # of the read that ended the gap
    ended_at: Ints
    owner: Ints

    @property
    def one_token_each(self) -> bool:
        return bool((self.tokens == 1).all())


@dataclass(frozen=True, eq=False, slots=True)
class Answers:
    """Records in time order, and beside them what measures are made of. A missing instant is `MISSING`."""

    records: Records
    first_at: Ints  # first token-bearing read
    last_at: Ints
    first_tokens: Ints  # k1: tokens of the first such read
    read_tokens: Ints  # tokens of all its reads
    output_tokens: Ints  # n: the server's usage, else what the reads carried
    gaps: Gaps
    ok: Mask
    failed: Mask  # neither answered nor censored
    censored: Mask

    @classmethod
    def of(cls, records: Records) -> Self:
        records = in_time_order(records)
        counts, has = records.read_counts(), records.read_counts() > 0
        starts, ends = records.read_offsets[:-1][has], records.read_offsets[1:][has] - 1
        running = np.concatenate(([0], np.cumsum(records.read_tokens)))
        read_tokens = running[records.read_offsets[1:]] - running[records.read_offsets[:-1]]
        reported = known(records.output_tokens)
        ok, censored = records.outcome.mask("ok"), records.outcome.mask(*CENSORED)
        return cls(
            records=records,
            first_at=_placed(records.read_at[starts], has),
            last_at=_placed(records.read_at[ends], has),
            first_tokens=_placed(records.read_tokens[starts], has),
            read_tokens=read_tokens,
            output_tokens=np.where(reported, records.output_tokens, np.where(read_tokens > 0, read_tokens, MISSING)),
            gaps=_gaps(records, counts),
            ok=ok,
            failed=~ok & ~censored,
            censored=censored,
        )

    def __len__(self) -> int:
        return len(self.records)

    def first_slack_s(self) -> Floats:
        """How much earlier than stamped each first token may have come; NaN without a read."""
        has = self.records.read_counts() > 0
        slack = np.full(len(self), np.nan)
        slack[has] = self.records.read_slack[self.records.read_offsets[:-1][has]] / NANOSECONDS
        return slack


def in_time_order(records: Records) -> Records:
    """By schedule, so that blocks are neighbours in time and the order of the log does not matter."""
    order = np.lexsort((records.sent_at, records.turn, records.session, records.scheduled_at))
    return records if (np.diff(order) == 1).all() else records.take(order)


def seconds_between(start_at: Ints, end_at: Ints) -> Floats:
    """end - start in seconds, NaN where either is missing."""
    both = known(start_at) & known(end_at)
    spans = np.full(len(both), np.nan)
    spans[both] = (end_at[both] - start_at[both]) / NANOSECONDS
    return spans


def numbers(column: Ints) -> Floats:
    """A column of whole numbers as floats, NaN where missing."""
    return np.where(known(column), column, np.nan).astype(np.float64)


def _placed(values: Ints, where: Mask) -> Ints:
    column = np.full(len(where), MISSING, np.int64)
    column[where] = values
    return column


def _gaps(records: Records, counts: Ints) -> Gaps:
    if len(records.read_at) == 0:
        empty = np.empty(0, np.int64)
        return Gaps(np.empty(0), empty, empty, empty)
    inside: Mask = np.ones(len(records.read_at) - 1, np.bool_)
    firsts = records.read_offsets[:-1][counts > 0]
    inside[firsts[1:] - 1] = False  # from one request to the next is no gap
    length = np.diff(records.read_at)[inside] / NANOSECONDS
    owner = np.repeat(np.arange(len(counts)), np.maximum(counts - 1, 0))
    return Gaps(length, records.read_tokens[1:][inside], records.read_at[1:][inside], owner)
