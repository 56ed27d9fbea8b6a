"""The loop that all places share: start the shards together, receive their messages until all have ended, forward
interrupts, and collect reports and losses. A place defines how its workers start, how their messages arrive and how
they stop.

The first Ctrl-C drains, the second cancels. A worker that dies is reported, and the others continue.
"""

import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import msgspec

from inferometer import errors
from inferometer.load.progress import Progress
from inferometer.load.shard import CANCEL_SIGNAL
from inferometer.scale.frames import ShardError, ShardFunction, Unpacker, Watch, job_and_report_types, name_of
from inferometer.scale.place import LostShard, ShardsEnd
from inferometer.vocabulary import duration_text
from inferometer.wire.reactor import now

WAIT_S = 0.05  # for the next frames, between two checks of signals and goals
SILENT_S = 120.0  # workers report four times a second; one that is silent for this long hangs
STOPPED = "it was stopped by a signal that did not come from this command"
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


class Worker(ABC):
    """The driver's state of one shard."""

    host: str | None = None  # where it runs, if elsewhere

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.ready = self.ended = False
        self.interrupted = False  # as reported by the worker
        self.heard_at: float | None = None  # time of its last message; None: before the start
        self.why = ""  # how it ended
        self.report: msgspec.Raw | None = None
        self.error: ShardError | None = None
        self._unpacker = Unpacker()

    def lose(self, why: str) -> None:
        """Mark it as lost; the first reason is kept."""
        self.ended, self.why = True, self.why or why

    def frames(self, data: bytes) -> Iterator[Progress]:
        """Handle its messages; return those with progress."""
        for frame in self._unpacker.feed(data):
            match frame.kind:
                case "ready":
                    self.ready = True
                case "progress":
                    progress = msgspec.msgpack.decode(frame.payload, type=Progress)
                    self.interrupted = progress.interrupted
                    yield progress
                case "report":
                    self.report = frame.payload
                case "error":
                    self.error = msgspec.msgpack.decode(frame.payload, type=ShardError)

    @abstractmethod
    def start(self, at: int) -> None:
        """Begin at this time of its own clock."""

    @abstractmethod
    def signal(self, number: signal.Signals) -> None: ...


OneWorker = TypeVar("OneWorker", bound=Worker)


class Crew(ABC, Generic[OneWorker]):
    """The workers of a run, and the loop that receives their messages."""

    lead_ns: int  # from the last worker's `ready` to the common start
    grace_s: float  # after a second interrupt

    def __init__(self, function: ShardFunction, watch: Watch) -> None:
        _, self._report_type = job_and_report_types(function)
        self._function, self._watch = name_of(function), watch
        self._workers: list[OneWorker] = []
        self._interrupts: list[signal.Signals] = []
        self._forwarded = 0
        self._give_up_at: float | None = None
        self._started = False

    # -- defined by a place ----------------------------------------------------------------------------------

    @abstractmethod
    def _begin(self) -> None:
        """Start the workers."""

    @abstractmethod
    def _poll(self) -> None:
        """Receive new messages from any worker; return within `WAIT_S` if there are none."""

    @abstractmethod
    def _stop(self) -> None:
        """Stop everything, at any stage."""

    def _give_up(self, worker: OneWorker, why: str) -> None:
        """Kill a worker that hangs or does not end after two interrupts."""
        worker.lose(why)

    def _ahead_ns(self, worker: OneWorker) -> int:
        """The offset that converts a time of its clock to ours."""
        return 0

    # -- the loop --------------------------------------------------------------------------------------------

    def run(self) -> ShardsEnd[Any]:
        with noted_signals(self._interrupts):
            try:
                self._begin()
                self._measure()
            finally:
                self._stop()
        return self._end()

    def _measure(self) -> None:
        """Run the loop until all workers have ended."""
        while not all(worker.ended for worker in self._workers):
            self._poll()
            self._forward()
            self._check_silent()
            if all(worker.ready or worker.ended for worker in self._workers):
                self._start()

    def _heed(self, worker: OneWorker, data: bytes) -> None:
        worker.heard_at = time.monotonic() if self._started else None
        for progress in worker.frames(data):
            own = progress if self._interrupts else msgspec.structs.replace(progress, interrupted=False)
            self._watch(_moved(own, self._ahead_ns(worker)))

    def _start(self) -> None:
        """Start all workers at the same time, converted to the clock of each."""
        if self._started:
            return
        self._started = True
        start_at = now() + self.lead_ns
        for worker in self._workers:
            if not worker.ended:
                worker.start(start_at - self._ahead_ns(worker))
                worker.heard_at = time.monotonic()

    def _check_silent(self) -> None:
        """Mark workers that hang as lost, like workers that died."""
        moment = time.monotonic()
        for worker in self._workers:
            if not worker.ended and worker.heard_at is not None and moment > worker.heard_at + SILENT_S:
                self._give_up(worker, f"it hung: no message from it for {duration_text(SILENT_S)}")

    def _check_interrupts(self) -> None:
        """Check for interrupts; before anything was sent, one is enough to cancel."""
        if self._interrupts:
            raise errors.Terminated if self._interrupts[-1] == signal.SIGTERM else KeyboardInterrupt

    def _forward(self) -> None:
        """Forward interrupts to the workers; give up on them if they do not end after two."""
        for number in self._interrupts[self._forwarded :]:
            self._forwarded += 1
            for worker in self._workers:
                if not worker.ended:
                    worker.signal(_signal_for(number, self._forwarded, worker.ready))
            self._start()  # workers that wait for the start would not react before it
        if self._forwarded > 1:
            self._give_up_at = self._give_up_at or time.monotonic() + self.grace_s
            if time.monotonic() > self._give_up_at:
                for worker in self._workers:
                    self._give_up(worker, "it did not end after two interrupts")

    def _end(self) -> ShardsEnd[Any]:
        """Reports and losses; if there is no report, raise the first worker's error."""
        decode = msgspec.msgpack.Decoder(self._report_type).decode
        for worker in self._workers:
            if worker.interrupted and not self._interrupts:
                worker.report, worker.why = None, STOPPED
        reports = [decode(worker.report) for worker in self._workers if worker.report is not None]
        lost = [
            LostShard(worker.shard, worker.error.message if worker.error else worker.why, worker.host)
            for worker in self._workers
            if worker.report is None
        ]
        first = next((worker.error for worker in self._workers if worker.error is not None), None)
        if not reports and first is not None:
            raise first.as_exception()
        if not reports:
            self._check_interrupts()
        return ShardsEnd(reports, lost)


def _signal_for(number: signal.Signals, interrupts: int, ready: bool) -> signal.Signals:
    """The signal for the n-th interrupt: the first drains, the next cancels."""
    if not ready:
        return signal.SIGTERM  # nothing was sent yet
    return number if interrupts == 1 else CANCEL_SIGNAL


def _moved(progress: Progress, ahead_ns: int) -> Progress:
    """The report, with its times on our clock."""
    ends_at = None if progress.ends_at is None else progress.ends_at + ahead_ns
    return msgspec.structs.replace(progress, at=progress.at + ahead_ns, ends_at=ends_at) if ahead_ns else progress


@contextmanager
def noted_signals(interrupts: list[signal.Signals]) -> Iterator[None]:
    """Record interrupts for the loop. Only the main thread of a process can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [signal.signal(number, lambda at, _: interrupts.append(signal.Signals(at))) for number in _INTERRUPTS]
    try:
        yield
    finally:
        for number, handler in zip(_INTERRUPTS, before, strict=True):
            signal.signal(number, handler)
