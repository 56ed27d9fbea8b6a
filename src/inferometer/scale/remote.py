"""Shards on other hosts, as their driver sees them, whatever carries the parcels: logs appended to files of the run,
the clocks of the hosts read, the common start, interrupts and reached goals passed on. Kubernetes brings the
workers, and hears them."""

import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from inferometer import __version__, errors
from inferometer.load.progress import Progress
from inferometer.load.shard import ShardJob
from inferometer.record.environment import host_of, is_loopback
from inferometer.record.files import translated_errors
from inferometer.scale.clocks import PERIOD_S, TRIES, TRIES_DURING, ClockLog
from inferometer.scale.frames import Frame, ShardError, ShardFunction, Unpacker, Watch, job_and_report_types, name_of
from inferometer.scale.place import LostShard, ShardsEnd
from inferometer.scale.ray_worker import Identity, Parcel
from inferometer.wire.reactor import now

LEAD_NS = 150_000_000  # from the last shard's `ready` to the common start
LEAD_PER_WORKER_NS = 500_000  # which the driver takes to tell each of them
PAUSE_S = 0.25  # between two parcels of a shard
CLOCKS_AT_ONCE = 8  # hosts: more would wait for each other here, and their round trips would be longer
KILLED_AFTER_S = 5.0  # after a second interrupt


class RemoteWorker(ABC):
    """One shard, as the driver knows it."""

    def __init__(self, shard: int, job: ShardJob) -> None:
        self.shard, self.job = shard, job
        self.identity: Identity | None = None  # once it came
        self.unpacker = Unpacker()
        self.ready = self.ended = self.whole = False
        self.report: msgspec.Raw | None = None
        self.error: ShardError | None = None
        self.why = ""
        self.received = 0

    @property
    def host(self) -> str | None:
        return self.identity.clock.host if self.identity else None

    def lose(self, why: str) -> None:
        self.ended, self.why = True, self.why or why

    def keep(self, piece: bytes) -> None:
        """The next piece of its log, where the run has it."""
        with translated_errors(Path(self.job.log)), Path(self.job.log).open("ab") as log:
            log.write(piece)
        self.received += len(piece)

    @abstractmethod
    def start(self, at: int) -> None:
        """Begin at this instant of its own clock."""

    @abstractmethod
    def signal(self, number: int) -> None: ...

    @abstractmethod
    def reached(self, goals: bytes) -> None: ...

    @abstractmethod
    def forget(self) -> None:
        """The driver has the whole log."""

    @abstractmethod
    def now(self) -> int:
        """Its monotonic clock."""


Worker = TypeVar("Worker", bound=RemoteWorker)


class RemoteCrew(ABC, Generic[Worker]):
    """The workers, and what their driver does whatever they run on."""

    def __init__(self, function: ShardFunction, jobs: Sequence[ShardJob], watch: Watch) -> None:
        _, self._report_type = job_and_report_types(function)
        self._function, self._jobs, self._watch = name_of(function), jobs, watch
        self._run = Path(jobs[0].log).parent.name
        self._workers: list[Worker] = []
        self._started = False
        self._interrupts: list[signal.Signals] = []
        self._forwarded = 0
        self._kill_at: float | None = None
        self._goals = b""

    @abstractmethod
    def _listen(self, clocks: ClockLog) -> None:
        """What came since the last time, from whoever; returns after a moment where nothing does."""

    @abstractmethod
    def _open_streams(self) -> None:
        """Have the workers run their shards."""

    @abstractmethod
    def _version_hint(self) -> str:
        """How a host gets our version."""

    def _measure(self) -> None:
        """From workers that have come to all that they delivered."""
        clocks = ClockLog(Path(self._jobs[0].log).parent)
        try:
            self._check_versions()
            self._check_reach()
            self._read_clocks(clocks)
            self._open_streams()
            with self._clocks_read_during(clocks):
                while not all(worker.ended for worker in self._workers):
                    self._listen(clocks)
                    self._forward_interrupts(clocks)
                    self._forward_goals()
                    if all(worker.ready or worker.ended for worker in self._workers):
                        self._start(clocks)
            self._read_clocks(clocks)
            for worker in self._here():
                if worker.whole:
                    worker.forget()
        finally:
            clocks.close()

    # -- before the load -------------------------------------------------------------------------------------

    def _check_versions(self) -> None:
        for worker in self._workers:
            if worker.identity is not None and worker.identity.version != __version__:
                text = f"{worker.host} has Inferometer {worker.identity.version}, this is {__version__}"
                raise errors.PlanError(text, self._version_hint())

    def _check_reach(self) -> None:
        """A target at a loopback address is on this machine, and a worker on another one would look on its own."""
        urls = self._jobs[0].plan.get("target", {}).get("url") or []
        loopback = next((url for url in urls if is_loopback(host_of(url))), None)
        here = os.uname().nodename
        elsewhere = next((worker.host for worker in self._here() if worker.host != here), None)
        if loopback is not None and elsewhere is not None:
            text = f"a worker on {elsewhere} cannot reach {loopback}, an address of this machine"
            raise errors.PlanError(text, "give an address that all hosts reach: --url http://HOST:PORT")

    def _here(self) -> list[Worker]:
        """Those whose actor lives."""
        return [worker for worker in self._workers if worker.identity is not None and (not worker.why or worker.whole)]

    def _read_clocks(self, clocks: ClockLog, tries: int = TRIES) -> None:
        """Of every other host, whichever of its workers is asked; several hosts at a time, for each is waited for."""
        hosts = {
            worker.identity.clock.boot or worker.identity.clock.host: worker
            for worker in self._here()
            if worker.identity is not None and not clocks.is_here(worker.identity.clock)
        }
        with ThreadPoolExecutor(CLOCKS_AT_ONCE) as pool:
            for _ in pool.map(lambda worker: self._read_clock(clocks, worker, tries), hosts.values()):
                pass

    def _read_clock(self, clocks: ClockLog, worker: Worker, tries: int) -> None:
        assert worker.identity is not None
        with suppress(Exception):  # a lost one is noticed by its stream
            clocks.read(worker.identity.clock, worker.now, tries)

    @contextmanager
    def _clocks_read_during(self, clocks: ClockLog) -> Iterator[None]:
        """A thread asks one worker of every host again and again."""
        over = threading.Event()

        def read() -> None:
            while not over.wait(PERIOD_S):
                self._read_clocks(clocks, TRIES_DURING)

        thread = threading.Thread(target=read, name="clocks", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    # -- during the load -------------------------------------------------------------------------------------

    def _take(self, worker: Worker, parcel: Parcel, clocks: ClockLog) -> None:
        if parcel.log:
            worker.keep(parcel.log)
        for frame in worker.unpacker.feed(parcel.frames):
            self._heed(worker, frame, clocks)
        if parcel.ended is not None:
            worker.lose(parcel.ended)
            worker.whole = worker.received == parcel.size

    def _heed(self, worker: Worker, frame: Frame, clocks: ClockLog) -> None:
        match frame.kind:
            case "ready":
                worker.ready = True
            case "progress":
                assert worker.identity is not None
                progress = msgspec.msgpack.decode(frame.payload, type=Progress)
                self._watch(_here(progress, clocks.ahead_ns(worker.identity.clock)))
            case "report":
                worker.report = frame.payload
            case "error":
                worker.error = msgspec.msgpack.decode(frame.payload, type=ShardError)

    def _start(self, clocks: ClockLog) -> None:
        """One instant for all, on the clock of each."""
        if self._started:
            return
        self._started = True
        start_at = now() + LEAD_NS + len(self._workers) * LEAD_PER_WORKER_NS
        for worker in self._workers:
            if not worker.ended and worker.identity is not None:
                worker.start(start_at - clocks.ahead_ns(worker.identity.clock))

    def _check_interrupts(self) -> None:
        """Before anything was sent, one is enough."""
        if self._interrupts:
            raise errors.Terminated if self._interrupts[-1] == signal.SIGTERM else KeyboardInterrupt

    def _forward_interrupts(self, clocks: ClockLog) -> None:
        for number in self._interrupts[self._forwarded :]:
            self._forwarded += 1
            for worker in self._workers:
                if not worker.ended:
                    worker.signal(int(number if worker.ready else signal.SIGTERM))
            self._start(clocks)  # those that wait for it would not look up before
        if self._forwarded > 1:
            self._kill_at = self._kill_at or time.monotonic() + KILLED_AFTER_S
            if time.monotonic() > self._kill_at:
                for worker in self._workers:
                    worker.lose("it did not end after two interrupts")

    def _forward_goals(self) -> None:
        """Goals that were found reached by the logs of all workers are told to all of them."""
        file = self._jobs[0].goals
        if file is None:
            return
        with suppress(OSError):
            goals = Path(file).read_bytes()
            if goals != self._goals:
                self._goals = goals
                for worker in self._workers:
                    if not worker.ended:
                        worker.reached(goals)

    # -- the end ---------------------------------------------------------------------------------------------

    def _end(self) -> ShardsEnd[Any]:
        """Reports and losses; when nothing but one and the same mistake came back, that mistake."""
        decode = msgspec.msgpack.Decoder(self._report_type).decode
        reports = [decode(worker.report) for worker in self._workers if worker.report is not None]
        lost = [
            LostShard(worker.shard, worker.error.message if worker.error else worker.why, worker.host)
            for worker in self._workers
            if worker.report is None
        ]
        first = next((worker.error for worker in self._workers if worker.error is not None), None)
        if not reports and first is not None:
            raise first.as_exception()
        if not reports and self._interrupts:
            raise errors.Terminated if self._interrupts[-1] == signal.SIGTERM else KeyboardInterrupt
        return ShardsEnd(reports, lost)


@contextmanager
def noted_signals(interrupts: list[signal.Signals]) -> Iterator[None]:
    """Interrupts are noted, for the loop to see. Only the main thread of a process can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda at, _frame: interrupts.append(signal.Signals(at))) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _here(progress: Progress, ahead_ns: int) -> Progress:
    """With its instants on our clock."""
    ends_at = None if progress.ends_at is None else progress.ends_at + ahead_ns
    return msgspec.structs.replace(progress, at=progress.at + ahead_ns, ends_at=ends_at)
