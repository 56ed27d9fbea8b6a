"""The place `local`: k shards as processes of this machine, one alone in this process. What a shard does is left to it.

Ctrl-C is forwarded: once drains, twice cancels at once. A worker that dies is reported, the others go on.
"""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from inferometer import errors
from inferometer.load.progress import Progress
from inferometer.plan.model import Plan
from inferometer.scale.child import GRACE_S, WorkerProcess, signal_for
from inferometer.scale.frames import Frame, ShardError, ShardFunction, Start, Watch, job_and_report_types, name_of
from inferometer.scale.place import Job, LostShard, Report, ShardsEnd
from inferometer.wire.reactor import Reactor, now

LEAD_NS = 50_000_000  # from the last shard's `ready` to the common start: all have heard of it by then
PIN_ENV = "INFEROMETER_PIN_WORKERS"
GRACE_NS = round(GRACE_S * 1e9)


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
    return _Crew(function, jobs, watch).run()


class _Crew:
    """The workers and the loop that hears them."""

    def __init__(self, function: ShardFunction, jobs: Sequence[Any], watch: Watch) -> None:
        _, self._report_type = job_and_report_types(function)
        self._watch = watch
        self._reactor = Reactor()
        self._started = False
        self._interrupts = 0
        self._terminated = False
        self._function = name_of(function)
        self._jobs = jobs
        self._cores = cores_for(len(jobs), os.environ.get(PIN_ENV))
        self._workers: list[_Worker] = []

    def run(self) -> ShardsEnd[Any]:
        undo = self._take_signals()
        try:
            for shard, job in enumerate(self._jobs):
                worker = _Worker(shard, self._function, msgspec.json.encode(job))
                self._workers.append(worker)
                if self._cores:
                    os.sched_setaffinity(worker.process.pid, {self._cores[shard]})
            for worker in self._workers:
                self._reactor.watch(worker.process.frames, self._reader(worker))
            self._reactor.run()
        finally:
            undo()
            for worker in self._workers:
                worker.process.end()
            self._reactor.close()
        return self._end()

    def _take_signals(self) -> Callable[[], None]:
        """Forward interrupts to the workers. Only the main thread of a process may."""
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        undos = [
            self._reactor.on_signal(number, partial(self._interrupt, number))
            for number in (signal.SIGINT, signal.SIGTERM)
        ]

        def undo() -> None:
            for one in undos:
                one()

        return undo

    def _interrupt(self, number: signal.Signals) -> None:
        self._interrupts += 1
        self._terminated = number == signal.SIGTERM
        for worker in self._workers:
            worker.process.signal(signal_for(number, self._interrupts, worker.ready))
        self._start()  # those that wait for it would not look up before
        if self._interrupts == 2:
            self._reactor.call_at(now() + GRACE_NS, self._kill)

    def _kill(self) -> None:
        for worker in self._workers:
            worker.process.signal(signal.SIGKILL)

    def _reader(self, worker: "_Worker") -> Callable[[int], None]:
        def read(_events: int) -> None:
            data = os.read(worker.process.frames, 1 << 16)
            for frame in worker.process.unpacker.feed(data):
                self._heed(worker, frame)
            if not data:
                self._reactor.unwatch(worker.process.frames)
                worker.ended = True
            self._look_round()

        return read

    def _heed(self, worker: "_Worker", frame: Frame) -> None:
        match frame.kind:
            case "ready":
                worker.ready = True
            case "progress":
                self._watch(msgspec.msgpack.decode(frame.payload, type=Progress))
            case "report":
                worker.report = frame.payload
            case "error":
                worker.error = msgspec.msgpack.decode(frame.payload, type=ShardError)

    def _look_round(self) -> None:
        """Start when all that live are ready, stop when all have ended."""
        if all(worker.ended for worker in self._workers):
            self._reactor.stop()
        elif all(worker.ready or worker.ended for worker in self._workers):
            self._start()

    def _start(self) -> None:
        if self._started:
            return
        self._started = True
        start_at = now() + LEAD_NS
        for worker in self._workers:
            worker.process.send_line(f"start {start_at}")

    def _end(self) -> ShardsEnd[Any]:
        """Reports and losses; when nothing but one and the same mistake came back, that mistake."""
        decode = msgspec.msgpack.Decoder(self._report_type).decode
        reports = [decode(worker.report) for worker in self._workers if worker.report is not None]
        lost = [LostShard(worker.shard, worker.why()) for worker in self._workers if worker.report is None]
        first = next((worker.error for worker in self._workers if worker.error is not None), None)
        if not reports and first is not None:
            raise first.as_exception()
        if not reports and self._interrupts:
            raise errors.Terminated if self._terminated else KeyboardInterrupt
        return ShardsEnd(reports, lost)


class _Worker:
    """One of them, and what came from it."""

    def __init__(self, shard: int, function: str, job: bytes) -> None:
        self.shard = shard
        self.ready = self.ended = False
        self.report: msgspec.Raw | None = None
        self.error: ShardError | None = None
        self.process = WorkerProcess(function, job)

    def why(self) -> str:
        """Why there is no report."""
        return self.error.message if self.error is not None else self.process.why()
