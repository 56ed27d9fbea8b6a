"""A shard as workers run it: the load, and the sampler of the process that generates it."""

from inferometer.load.shard import ShardJob, ShardReport, run_shard
from inferometer.observe.host import ClientSampler
from inferometer.scale.frames import Start, Watch


def observed_shard(job: ShardJob, watch: Watch, start: Start) -> ShardReport:
    """Run one shard to its end, with samples of its own process in its log."""
    sampler = ClientSampler(job.shard)

    def begin() -> int:
        start_at = start()
        sampler.begin()
        return start_at

    return run_shard(job, watch, begin, sampler.sample)
