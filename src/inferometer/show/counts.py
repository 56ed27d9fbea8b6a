"""How far a run is: the messages of all shards as one."""

from collections.abc import Iterable
from dataclasses import dataclass

from inferometer.load.progress import PHASES, Phase, Progress
from inferometer.vocabulary import NANOSECONDS


@dataclass(frozen=True, slots=True)
class Counts:
    """The sum over the shards; `share` is how much of the load is over, where that can be known."""

    at: int
    phase: Phase
    done: int
    failed: int
    in_flight: int
    waiting: int
    output_tokens: int
    planned: int | None
    ends_at: int | None
    share: float | None

    def left_s(self, before: "Counts") -> float | None:
        """Until the load ends: by the clock where it says so, else at the pace since `before`."""
        if self.phase not in ("connect", "load"):
            return None
        clock_s = (self.ends_at - self.at) / NANOSECONDS if self.ends_at is not None else None
        pace = (self.done - before.done) / (self.at - before.at) if self.at > before.at else 0.0
        paced_s = (self.planned - self.done) / pace / NANOSECONDS if self.planned and pace else None
        known = [max(0.0, left) for left in (clock_s, paced_s) if left is not None]
        return min(known) if known else None


def merged(shards: Iterable[Progress], started_at: int | None = None) -> Counts:
    """One picture of all shards: counts are summed, the slowest shard names the phase."""
    shards = list(shards)
    at = max(shard.at for shard in shards)
    planned = _total([shard.planned for shard in shards])
    done = sum(shard.done for shard in shards)
    ends = [shard.ends_at for shard in shards if shard.ends_at is not None]
    ends_at = max(ends) if ends else None
    return Counts(
        at=at,
        phase=min((shard.phase for shard in shards), key=PHASES.index),
        done=done,
        failed=sum(shard.failed for shard in shards),
        in_flight=sum(shard.in_flight for shard in shards),
        waiting=sum(shard.waiting for shard in shards),
        output_tokens=sum(shard.output_tokens for shard in shards),
        planned=planned,
        ends_at=ends_at,
        share=_share(at, started_at, ends_at, done, planned),
    )


def _total(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _share(at: int, started_at: int | None, ends_at: int | None, done: int, planned: int | None) -> float | None:
    shares = [done / planned] if planned else []
    if ends_at is not None and started_at is not None and ends_at > started_at:
        shares.append((at - started_at) / (ends_at - started_at))
    return min(1.0, max(shares)) if shares else None
