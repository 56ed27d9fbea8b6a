"""The place `local`: k shards as processes of this machine, one alone in this process. What a shard does is its own."""

import os
import selectors
import signal
from collections.abc import Callable, Sequence

import msgspec

from inferometer.plan.model import Plan
from inferometer.scale.child import GRACE_S, WorkerProcess
from inferometer.scale.crew import WAIT_S, Crew, Worker
from inferometer.scale.frames import ShardFunction, Start, Watch
from inferometer.scale.place import Job, Report, ShardsEnd
from inferometer.wire.reactor import now

LEAD_NS = 50_000_000  # from the last shard's `ready` to the common start: all have heard of it by then
PIN_ENV = "INFEROMETER_PIN_WORKERS"
_FRAME_BYTES = 1 << 16


def cores_for(workers: int, pin: str | None) -> list[int]:
    """A core for each worker where they are to be pinned; none where there are too few, or the system has no such
    thing. Off by default: bench/workers.py shows no gain while the machine has cores to spare."""
    if pin != "1" or not hasattr(os, "sched_getaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0))
    return cores[-workers:] if workers <= len(cores) else []


def run_shards(
    function: Callable[[Job, Watch, Start], Report],
    jobs: Sequence[Job],
    watch: Watch,
    plan: Plan | None = None,
) -> ShardsEnd[Report]:
    """Run one shard per job to its end. `function` must be importable by its name; it handles SIGINT itself, calls
    `start` when its connections stand, and begins at the instant that this returns."""
    if len(jobs) == 1:
        return ShardsEnd([function(jobs[0], watch, lambda: now() + LEAD_NS)])
    return _Crew(function, [msgspec.json.encode(job) for job in jobs], watch).run()


class _Worker(Worker):
    """One shard in a child process."""

    def __init__(self, shard: int, function: str, job: bytes) -> None:
        super().__init__(shard)
        self.process = WorkerProcess(function, job)

    def start(self, at: int) -> None:
        self.process.send_line(f"start {at}")

    def signal(self, number: signal.Signals) -> None:
        self.process.signal(number)


class _Crew(Crew[_Worker]):
    lead_ns, grace_s = LEAD_NS, GRACE_S

    def __init__(self, function: ShardFunction, jobs: list[bytes], watch: Watch) -> None:
        super().__init__(function, watch)
        self._jobs = jobs
        self._frames = selectors.DefaultSelector()

    def _begin(self) -> None:
        cores = cores_for(len(self._jobs), os.environ.get(PIN_ENV))
        for shard, job in enumerate(self._jobs):
            worker = _Worker(shard, self._function, job)
            self._workers.append(worker)
            self._frames.register(worker.process.frames, selectors.EVENT_READ, worker)
            if cores:
                os.sched_setaffinity(worker.process.pid, {cores[shard]})

    def _poll(self) -> None:
        for key, _ in self._frames.select(WAIT_S):
            worker: _Worker = key.data
            data = os.read(worker.process.frames, _FRAME_BYTES)
            self._heed(worker, data)
            if not data:
                self._frames.unregister(worker.process.frames)
                worker.ended = True

    def _give_up(self, worker: _Worker) -> None:
        worker.process.signal(signal.SIGKILL)

    def _stop(self) -> None:
        for worker in self._workers:
            worker.process.end()
            worker.why = worker.process.why()
        self._frames.close()
