"""The driver's part of shards on other hosts, independent of the transport: appends their logs to files of the run,
reads the clocks of the hosts, and forwards reached goals. Ray and Kubernetes provide the workers."""

import os
import re
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from inferometer import __version__, errors
from inferometer.load.shard import ShardJob
from inferometer.plan.model import Plan
from inferometer.record.environment import host_of, is_loopback
from inferometer.record.files import translated_errors
from inferometer.record.gather import CLOCKS_LOG, ClockReading
from inferometer.record.log import HostClock, LogWriter, clock_here
from inferometer.scale.crew import Crew, Worker
from inferometer.scale.frames import ShardFunction, Watch
from inferometer.scale.remote_shard import ActorIdentity, Parcel
from inferometer.wire.reactor import now

TRIES = 40  # before and after the load
TRIES_DURING = 20
PERIOD_S = 10.0  # between readings during the load: at 100 ppm a clock drifts by 1 ms in that time

RemoteNow = Callable[[], int]  # reads the monotonic clock of another host


def read_clock(clock: HostClock, remote_now: RemoteNow, tries: int, here: Callable[[], int] = now) -> ClockReading:
    """The best of several readings. The remote time was taken at some moment of the round trip, so the error of its
    middle is at most half of it, however long the two directions take."""
    return min((_try(clock, remote_now, here) for _ in range(tries)), key=lambda reading: reading.error_ns)


def _try(clock: HostClock, remote_now: RemoteNow, here: Callable[[], int]) -> ClockReading:
    before = here()
    theirs = remote_now()
    after = here()
    middle = (before + after) // 2
    return ClockReading(clock, middle, middle - theirs, (after - before + 1) // 2)


class ClockLog:
    """The clock readings of a run, written to its folder at once, and the latest offset of every host."""

    def __init__(self, folder: Path) -> None:
        self.here = clock_here()
        self._log = LogWriter(folder / CLOCKS_LOG, shard=-1, clock=self.here)
        self._newest: dict[str, ClockReading] = {}
        self._writing = threading.Lock()

    def is_here(self, clock: HostClock) -> bool:
        """Whether a worker has the same clock as we, so that no readings are needed."""
        return clock.is_clock_of(self.here)

    def read(self, clock: HostClock, remote_now: RemoteNow, tries: int = TRIES) -> ClockReading:
        reading = read_clock(clock, remote_now, tries)
        with self._writing:
            self._newest[clock.boot or clock.host] = reading
            self._log.add(reading.as_note())
            self._log.flush()
        return reading

    def ahead_ns(self, clock: HostClock) -> int:
        """The latest offset that converts a time of that host to our clock."""
        reading = self._newest.get(clock.boot or clock.host)
        return 0 if reading is None or self.is_here(clock) else reading.ahead_ns

    def close(self) -> None:
        self._log.close()


LEAD_NS = 150_000_000  # from the last shard's `ready` to the common start
LEAD_PER_WORKER_NS = 500_000  # time that the driver needs to notify each worker
PAUSE_S = 0.25  # between two parcels of a shard
CLOCKS_AT_ONCE = 8  # hosts: with more, they would wait for each other and round trips would be longer
_VARIABLE = re.compile(r"\$\{(\w+)\}")


def needed_variables(plan: Plan) -> dict[str, str]:
    """The environment variables that the plan uses for requests, such as API keys, which other hosts lack."""
    names = {*_VARIABLE.findall(plan.model_dump_json()), plan.target.key_env or ""}
    return {name: os.environ[name] for name in sorted(names) if name in os.environ}


def shard_jobs(jobs: Sequence[object], place: str) -> list[ShardJob]:
    """The jobs of the shards; the log of a job is the driver's copy of the log on the shard's host."""
    shard_jobs = [job for job in jobs if isinstance(job, ShardJob)]
    if len(shard_jobs) < len(jobs):
        raise TypeError(f"the place {place} takes jobs of the type ShardJob")
    return shard_jobs


class RemoteWorker(Worker):
    """One shard on another host."""

    def __init__(self, shard: int, job: ShardJob) -> None:
        super().__init__(shard)
        self.job = job
        self.identity: ActorIdentity | None = None  # when it has started
        self.whole = False  # its whole log is here, or can be fetched
        self.size = 0  # of its log, when it has ended
        self.carries_log = True  # its parcels contain the log
        self._received = 0

    @property
    def lives(self) -> bool:
        """Whether it answers requests."""
        return self.identity is not None and (not self.why or self.whole)

    def came(self, identity: bytes) -> None:
        self.identity = msgspec.msgpack.decode(identity, type=ActorIdentity)
        self.host = self.identity.clock.host

    def keep(self, parcel: Parcel) -> None:
        """Append the next piece of its log to the run's copy."""
        if parcel.log:
            with translated_errors(Path(self.job.log)), Path(self.job.log).open("ab") as log:
                log.write(parcel.log)
            self._received += len(parcel.log)
        if parcel.ended is not None:
            self.size = parcel.size
            self.whole = not self.carries_log or self._received == parcel.size

    @abstractmethod
    def reached(self, goals: bytes) -> None:
        """Forward goals that were reached according to the logs of all workers."""

    @abstractmethod
    def now(self) -> int:
        """Its monotonic clock."""


OneWorker = TypeVar("OneWorker", bound=RemoteWorker)


class RemoteCrew(Crew[OneWorker]):
    """The workers, and the driver's work that is independent of the transport."""

    grace_s = 5.0

    def __init__(self, function: ShardFunction, jobs: Sequence[ShardJob], watch: Watch) -> None:
        super().__init__(function, watch)
        self.lead_ns = LEAD_NS + len(jobs) * LEAD_PER_WORKER_NS
        self._jobs, self._plan = jobs, Plan.model_validate(jobs[0].plan)
        self._folder = Path(jobs[0].log).parent
        self._run = self._folder.name
        self._goals = b""

    # -- defined by a place ----------------------------------------------------------------------------------

    @abstractmethod
    def _open_streams(self) -> None:
        """Start the shards of the workers."""

    def _fetch_logs(self) -> None:
        """Fetch logs that were not part of the parcels."""

    @abstractmethod
    def _forget(self, workers: list[OneWorker]) -> None:
        """Remove the logs of these workers, which the driver has completely."""

    @abstractmethod
    def _version_hint(self) -> str:
        """A hint for installing our version on a host."""

    # -- the run ---------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        self._check_versions()
        self._check_reach()
        with closing(ClockLog(self._folder)) as self._clocks:
            self._read_clocks()
            self._open_streams()
            with self._clocks_read_during():
                super()._measure()
            self._read_clocks()
        self._fetch_logs()
        self._forget([worker for worker in self._workers if worker.whole])

    def _check_versions(self) -> None:
        for worker in self._workers:
            if worker.identity is not None and worker.identity.version != __version__:
                text = f"{worker.host} has Inferometer {worker.identity.version}, this is {__version__}"
                raise errors.PlanError(text, self._version_hint())

    def _check_reach(self) -> None:
        """Refuse a target at a loopback address if a worker is on another host, where it means another machine."""
        urls = self._plan.target.url or []
        loopback = next((url for url in urls if is_loopback(host_of(url))), None)
        here = os.uname().nodename
        elsewhere = next((worker.host for worker in self._workers if worker.lives and worker.host != here), None)
        if loopback is not None and elsewhere is not None:
            text = f"a worker on {elsewhere} cannot reach {loopback}, an address of this machine"
            raise errors.PlanError(text, "give an address that all hosts reach: --url http://HOST:PORT")

    def _take(self, worker: OneWorker, parcel: Parcel) -> None:
        worker.keep(parcel)
        self._heed(worker, parcel.frames)
        if parcel.ended is not None:
            worker.lose(parcel.ended)

    def _forward(self) -> None:
        super()._forward()
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

    # -- clocks ----------------------------------------------------------------------------------------------

    def _ahead_ns(self, worker: OneWorker) -> int:
        return 0 if worker.identity is None else self._clocks.ahead_ns(worker.identity.clock)

    def _read_clocks(self, tries: int = TRIES) -> None:
        """Read the clock of every other host through one of its workers; several hosts in parallel, because it takes
        time."""
        hosts = {
            worker.identity.clock.boot or worker.identity.clock.host: worker
            for worker in self._workers
            if worker.lives and worker.identity is not None and not self._clocks.is_here(worker.identity.clock)
        }
        with ThreadPoolExecutor(CLOCKS_AT_ONCE) as pool:
            for _ in pool.map(lambda worker: self._read_clock(worker, tries), hosts.values()):
                pass

    def _read_clock(self, worker: OneWorker, tries: int) -> None:
        assert worker.identity is not None
        with suppress(Exception):  # a lost worker is noticed by its stream
            self._clocks.read(worker.identity.clock, worker.now, tries)

    @contextmanager
    def _clocks_read_during(self) -> Iterator[None]:
        """A thread that reads the clock of every host repeatedly."""
        over = threading.Event()

        def read() -> None:
            while not over.wait(PERIOD_S):
                self._read_clocks(TRIES_DURING)

        thread = threading.Thread(target=read, name="clocks", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
