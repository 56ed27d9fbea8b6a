"""The inputs of every measure: `Answers`, the answered requests with their instants and tokens, and `Facts`, what is
known of a run apart from its plan and its records."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal, NamedTuple, Self

import numpy as np

from inferometer.measure.quantiles import Floats, Ints
from inferometer.record.columns import MISSING, Mask, Reads, Records, known
from inferometer.record.environment import Curve
from inferometer.record.parquet import ReadSums, SummedRecords
from inferometer.record.record import CENSORED
from inferometer.record.summary import Clocks, Goal
from inferometer.vocabulary import NANOSECONDS


@dataclass(frozen=True, eq=False, slots=True)
class Gaps:
    """Gaps between consecutive token-bearing reads of one request: `owner` is the index of that request."""

    length_s: Floats
    tokens: Ints  # of the read that ended the gap
    ended_at: Ints
    owner: Ints

    @property
    def one_token_each(self) -> bool:
        return bool((self.tokens == 1).all())


@dataclass(frozen=True, eq=False)
class Answers:
    """Records in time order, with the columns that measures are computed from. A missing instant is `MISSING`."""

    records: Records
    first_at: Ints  # first token-bearing read
    last_at: Ints
    first_tokens: Ints  # k1: tokens of the first such read
    read_tokens: Ints  # tokens of all reads of the request
    output_tokens: Ints  # n: the server's usage, else what the reads carried
    first_slack: Ints  # how much earlier than its timestamp the first token may have arrived, in ns
    last_slack: Ints
    longest_gap: Ints  # ns; missing if there is a single read
    one_token_each: bool  # whether every gap was ended by a single token
    ok: Mask
    failed: Mask  # neither answered nor censored
    censored: Mask

    @classmethod
    def of(cls, records: Records) -> Self:
        records = in_time_order(records)
        columns, one_token_each = records.read_sums() if isinstance(records, SummedRecords) else sums_of_reads(records)
        reported, read_tokens = known(records.output_tokens), columns["read_tokens"]
        ok, censored = records.outcome.mask("ok"), records.outcome.mask(*CENSORED)
        return cls(
            records=records,
            **columns,
            output_tokens=np.where(reported, records.output_tokens, np.where(read_tokens > 0, read_tokens, MISSING)),
            one_token_each=one_token_each,
            ok=ok,
            failed=~ok & ~censored,
            censored=censored,
        )

    def __len__(self) -> int:
        return len(self.records)

    @cached_property
    def gaps(self) -> Gaps:
        """All gaps at once: for a run whose reads are held in memory."""
        records = self.records
        no_slack = np.empty(0, np.int64)
        return gaps_of(
            Reads(np.arange(len(self)), records.read_offsets, records.read_at, records.read_tokens, no_slack)
        )

    def gap_batches(self, chosen: Mask) -> Iterator[Gaps]:
        """The gaps of the chosen requests in batches of requests, which may come in any order."""
        return map(gaps_of, self.records.read_batches(chosen, ("read_at", "read_tokens")))

    def first_slack_s(self) -> Floats:
        """How much earlier than its timestamp each first token may have arrived; NaN without a read."""
        return numbers(self.first_slack) / NANOSECONDS


def sums_of_reads(records: Records) -> ReadSums:
    """Sums over each record's reads, and whether all but the first read carried one token."""
    n = len(records)
    names = ("first_at", "last_at", "first_tokens", "first_slack", "last_slack", "longest_gap")
    columns: dict[str, Ints] = {name: np.full(n, MISSING, np.int64) for name in names}
    columns["read_tokens"] = np.zeros(n, np.int64)
    one_token_each = True
    for reads in records.read_batches():
        has = reads.counts() > 0
        owner, starts, ends = reads.owner[has], reads.offsets[:-1][has], reads.offsets[1:][has]
        if not len(owner):
            continue
        columns["first_at"][owner] = reads.at[starts]
        columns["last_at"][owner] = reads.at[ends - 1]
        columns["first_tokens"][owner] = reads.tokens[starts]
        columns["read_tokens"][owner] = np.add.reduceat(reads.tokens, starts)
        columns["first_slack"][owner] = reads.slack[starts]
        columns["last_slack"][owner] = reads.slack[ends - 1]
        several = ends - starts > 1
        columns["longest_gap"][owner[several]] = _longest(reads.at, starts[several], ends[several])
        others = np.count_nonzero(reads.tokens != 1) - np.count_nonzero(reads.tokens[starts] != 1)
        one_token_each = one_token_each and bool(others == 0)
    return ReadSums(columns, one_token_each)


def _longest(at: Ints, starts: Ints, ends: Ints) -> Ints:
    """The longest gap within each stretch of at least two instants."""
    if not len(starts):
        return np.empty(0, np.int64)
    steps = np.diff(at, append=at[-1:])
    return np.maximum.reduceat(steps, np.stack((starts, ends - 1), axis=1).reshape(-1))[::2]


def in_time_order(records: Records) -> Records:
    """Sorted by scheduled time, so that blocks are neighbours in time and the order of the log does not matter."""
    order = np.lexsort((records.sent_at, records.turn, records.session, records.scheduled_at))
    return records if (np.diff(order) == 1).all() else records.take(order)


def seconds_between(start_at: Ints, end_at: Ints) -> Floats:
    """end - start in seconds, NaN if either is missing."""
    both = known(start_at) & known(end_at)
    spans = np.full(len(both), np.nan)
    spans[both] = (end_at[both] - start_at[both]) / NANOSECONDS
    return spans


def numbers(column: Ints) -> Floats:
    """A column of whole numbers as floats, NaN where missing."""
    return np.where(known(column), column, np.nan).astype(np.float64)


def gaps_of(reads: Reads) -> Gaps:
    if len(reads.at) == 0:
        empty = np.empty(0, np.int64)
        return Gaps(np.empty(0), empty, empty, empty)
    counts = reads.counts()
    inside: Mask = np.ones(len(reads.at) - 1, np.bool_)
    firsts = reads.offsets[:-1][counts > 0]
    inside[firsts[1:] - 1] = False  # between two requests there is no gap
    length = np.diff(reads.at)[inside] / NANOSECONDS
    owner = np.repeat(reads.owner, np.maximum(counts - 1, 0))
    return Gaps(length, reads.tokens[1:][inside], reads.at[1:][inside], owner)


class CoreUse(NamedTuple):
    """A sample of a load process: the CPU seconds it used per second, over how many seconds."""

    share: float
    over_s: float
    shard: str = "0"


class WorkerFacts(NamedTuple):
    """What is known of one worker: when it started, and how it was lost, if it was."""

    worker: int
    late_start_s: float = 0.0
    host: str | None = None
    lost: str | None = None
    planned: Mapping[str, int] = MappingProxyType({})  # of a lost worker: sessions of its share, by traffic class


@dataclass(frozen=True, slots=True)
class Facts:
    """Instants are nanoseconds on the records' clock; mapping keys are names of traffic classes."""

    start_at: int | None = None  # when the load began
    warmup_end_at: int | None = None
    stage_ends_at: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    last_arrival_at: Mapping[str, int] = field(default_factory=dict)  # as planned
    planned: Mapping[str, int] = field(default_factory=dict)  # sessions that were to arrive in an open loop
    interrupted: bool = False
    interrupted_by: str | None = None  # the name of the signal
    lost_workers: tuple[str, ...] = ()  # their names, and how they ended
    workers: tuple[WorkerFacts, ...] = ()  # all that started, and those that were lost
    clocks: Clocks | None = None  # of workers on several hosts
    lost_server: str | None = None  # the evidence that the server stopped before the load ended
    goals: Mapping[str, Goal] = field(default_factory=dict)  # classes that ended because they reached their goal
    gave_up: str | None = None  # why the run ended itself early: stop.errors, or nothing but failures
    core_use: tuple[CoreUse, ...] = ()  # of all load processes
    unreadable: int = 0  # entries of the logs that could not be read and are missing here
    clock_steps_s: tuple[float, ...] = ()  # the size of each step of the real-time clock
    calibration: Curve | None = None  # the instrument-error curve of this machine
    stamps: Literal["kernel", "read"] = "read"

    @property
    def cut_short(self) -> bool:
        """Whether less was sent than the plan requests, for a known reason."""
        return self.interrupted or self.gave_up is not None or bool(self.lost_workers) or self.lost_server is not None
