"""The shards of a run on this machine: the load, with the load generator watched by itself in every process."""

from collections.abc import Sequence

from inferometer.load.shard import ShardJob, ShardReport, run_shard
from inferometer.observe.client import ClientSampler
from inferometer.scale.frames import Start, Watch
from inferometer.scale.processes import ShardsEnd, run_shards


def run_load(jobs: Sequence[ShardJob], watch: Watch) -> ShardsEnd[ShardReport]:
    """Drive every job's share to its end: one here, several in worker processes."""
    return run_shards(observed_shard, jobs, watch)


def observed_shard(job: ShardJob, watch: Watch, start: Start) -> ShardReport:
    return run_shard(job, watch, start, ClientSampler(job.shard))
