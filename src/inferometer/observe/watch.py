"""The observer: a process that reads every source once per interval during the load, into its own log."""

import math
import os
import queue
import resource
import select
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from inferometer.documents.document import JsonValue
from inferometer.errors import InferometerError
from inferometer.measure.telemetry import DCGM
from inferometer.observe.gpu import AmdSmiSampler, NvidiaSmiSampler, NvmlSampler
from inferometer.observe.host import HostSampler
from inferometer.observe.observer import MetricsPlace, ObserverJob, lower_priority
from inferometer.observe.prometheus import COUNTED_BY, ON_RAY, MetricsEndpoint, Scrape, Unreadable, read_exposition
from inferometer.plan.redactor import Redactor
from inferometer.record.log import LogWriter, Note
from inferometer.record.record import Sample
from inferometer.router.feed import FeedPage
from inferometer.wire.origin import trusted_origin

# -- sources ---------------------------------------------------------------------------------------------------------

TIMEOUT_SHARE = 0.8  # of the interval: a slow endpoint is given up before the next poll
LONGEST_TIMEOUT_S = 5.0
MOST_SERIES = 1 << 15  # of an endpoint over a run, including buckets; 64 vLLM engines behind one have 22,000
MOST_PER_S = 4000  # samples of one source, on average
MOST_PROBLEMS = 5  # different ones kept as text
SAME_CLOCK_NS = 50_000_000  # a smaller difference means that a router's clock is ours and its answer was slow


class Reader(Protocol):
    def read(self) -> list[Sample]: ...
    def close(self) -> None: ...


@dataclass
class WatchedSource:
    """Something to watch: opened on its own thread, because that may take seconds, or never end."""

    name: str
    open: Callable[[], Reader]
    wanted: bool = False  # requested by name
    settles: bool = False  # has counters that may still change after the last answer


class MetricsReader:
    """A Prometheus endpoint as samples with the common names. Buckets are only read for `whole` readings: they are most
    of the text, and only their growth over the run is needed."""

    def __init__(self, place: MetricsPlace, job: ObserverJob) -> None:
        origin = trusted_origin(place.url, job.tls, job.proxy)
        headers = {"Accept": "text/plain", "User-Agent": "inferometer", **_lasting(place.headers)}
        timeout_s = min(TIMEOUT_SHARE * job.interval_s, LONGEST_TIMEOUT_S)
        self.source = place.source
        self._endpoint = MetricsEndpoint(origin, _path(place.url), headers, timeout_s)
        self._redactor = Redactor(job.hidden)
        self._gpus = None if not job.gpu_wanted else job.gpus if job.gpu else []  # of DCGM's GPUs, None: all
        self.whole = True
        self.facts: dict[str, JsonValue] = {}
        self.problems: list[str] = []
        self._series: set[Hashable] = set()

    def read(self) -> list[Sample]:
        try:
            text = self._endpoint.text()
            at = time.monotonic_ns()
            reading = read_exposition(self._redactor.hide(text), buckets=self.whole)
        except Unreadable as error:
            raise Unreadable(self._redactor.message(str(error))) from None
        self._learn(reading)
        if self._gpus is not None:
            reading.gpus = {key: value for key, value in reading.gpus.items() if _index(key[0]) in self._gpus}
        self._leave_out_late_series(reading)
        return reading.samples(self.source, at)

    def _leave_out_late_series(self, reading: Scrape) -> None:
        """Unlimited names and labels would fill the memory."""
        parts: tuple[dict[Any, float], ...] = (reading.values, reading.gpus)
        for values in parts:
            new = [key for key in values if key not in self._series]
            self._series.update(new[: MOST_SERIES - len(self._series)])
            for key in new:
                if key not in self._series:
                    del values[key]
        if len(self._series) == MOST_SERIES:
            self.problems.append(f"has {MOST_SERIES:,} series or more: those that came later are left out")

    def close(self) -> None:
        self._endpoint.close()

    def await_last(self) -> None:
        """After the load: no further reading is pending, and the final value of all counters is worth a wait."""
        if self.facts:
            self._endpoint.timeout_s = LONGEST_TIMEOUT_S

    def _learn(self, reading: Scrape) -> None:
        engine = " and ".join(sorted(reading.engines)) or DCGM
        self.facts = {"engine": engine, "names": reading.names, "config": reading.config}
        self.problems = [f"impossible value: {lie}" for lie in reading.lies]


class RouterReader:
    """The journal of a router: its entries since the last reading, on our clock. Entries before the first one belong to
    another run."""

    def __init__(self, place: MetricsPlace, job: ObserverJob) -> None:
        origin = trusted_origin(place.url, job.tls, job.proxy)
        headers = {"Accept": "application/json", "User-Agent": "inferometer", **_lasting(place.headers)}
        self._origin, self._path, self._headers = origin, _path(place.url), headers
        self._timeout_s = LONGEST_TIMEOUT_S  # the next reading makes up for an abandoned one
        self._since: int | None = None

    def read(self) -> list[Sample]:
        requested_at = time.monotonic_ns()
        endpoint = MetricsEndpoint(
            self._origin, f"{self._path}?since={self._since or 0}", self._headers, self._timeout_s
        )
        try:
            page = msgspec.json.decode(endpoint.text(), type=FeedPage)
        except msgspec.MsgspecError:
            raise Unreadable("is not the journal of a router") from None
        finally:
            endpoint.close()
        ahead = page.now - (requested_at + time.monotonic_ns()) // 2
        if abs(ahead) < SAME_CLOCK_NS:
            ahead = 0
        first, self._since = self._since is None, page.next
        if page.lost and not first:
            raise Unreadable(f"dropped {page.lost} entries that were not read in time")
        return [] if first else [msgspec.structs.replace(sample, at=sample.at - ahead) for sample in page.samples]

    def close(self) -> None:
        pass


def _index(gpu: str) -> int:
    return int(gpu.partition("@")[0])


def _path(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _lasting(headers: dict[str, str]) -> dict[str, str]:
    """Without those that would end the connection, or request another kind of answer."""
    return {name: value for name, value in headers.items() if name.lower() not in ("connection", "accept")}


def sources_of(job: ObserverJob) -> Iterator[WatchedSource]:
    if job.host:
        yield WatchedSource("host", HostSampler)
    if job.gpu:
        yield WatchedSource("gpu", lambda: gpu_reader(job), wanted=job.gpu_wanted)
    for place in job.metrics:
        yield WatchedSource(place.source, _metrics_opener(place, job), not place.ours, settles=True)
    for place in job.routers:
        yield WatchedSource(place.source, _router_opener(place, job), not place.ours)


def _metrics_opener(place: MetricsPlace, job: ObserverJob) -> Callable[[], Reader]:
    return lambda: MetricsReader(place, job)


def _router_opener(place: MetricsPlace, job: ObserverJob) -> Callable[[], Reader]:
    return lambda: RouterReader(place, job)


def gpu_reader(job: ObserverJob) -> Reader:
    """Through NVML, else nvidia-smi, else amd-smi; the error has the message of each."""
    try:
        return NvmlSampler(job.gpus)
    except InferometerError as error:
        why = error.message
    try:
        return NvidiaSmiSampler(job.interval_s, job.gpus)
    except (InferometerError, OSError) as error:
        why = f"{why}; {error}"
    try:
        return AmdSmiSampler(job.gpus)
    except (InferometerError, OSError) as error:
        raise InferometerError(f"{why}; {error}") from None


@dataclass
class ReadOutcomes:
    """How the readings of a source went, for the notes of the run."""

    reads: int = 0
    failed: int = 0
    problems: dict[str, int] = field(default_factory=dict)

    def failure(self, error: Exception) -> None:
        self.failed += 1
        message = error.message if isinstance(error, InferometerError) else str(error)
        self.problem(
            message if isinstance(error, InferometerError | Unreadable) else f"{type(error).__name__}: {message}"
        )

    def problem(self, text: str) -> None:
        if text in self.problems or len(self.problems) < MOST_PROBLEMS:
            self.problems[text] = self.problems.get(text, 0) + 1


# -- watch -----------------------------------------------------------------------------------------------------------

OBSERVER_SHARD = -1  # in the header of its log: not a shard
FIRST_S = 6.0  # for the readings before the load
LAST_S = 6.0  # for those after it
SETTLE_S = 0.05  # between readings after the load, until two are equal
SETTLE_BEHIND_S = 0.5  # for Ray's export port, which is delayed by several intervals of 100 ms
MOST_SETTLING = 10

Entry = Sample | Note


class Watcher:
    """Reads one source on its own thread: before the load, once per interval, and after the load."""

    def __init__(self, source: WatchedSource, interval_s: float, entries: "queue.SimpleQueue[Entry]") -> None:
        self.outcomes = ReadOutcomes()
        self.begun = threading.Event()
        self._source, self._interval_s, self._entries = source, interval_s, entries
        self._stop = threading.Event()
        self._reader: Reader | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)  # it may hang in a driver
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def note(self) -> Note:
        outcomes, source = self.outcomes, self._source
        problems: list[JsonValue] = [{"text": text, "count": count} for text, count in outcomes.problems.items()]
        counts: dict[str, JsonValue] = {"reads": outcomes.reads, "failed": outcomes.failed, "problems": problems}
        who: dict[str, JsonValue] = {"source": source.name, "wanted": source.wanted}
        return Note("observed", time.monotonic_ns(), who | counts | self._facts())

    def _facts(self) -> dict[str, JsonValue]:
        return self._reader.facts if isinstance(self._reader, MetricsReader) else {}

    def _watch(self) -> None:
        try:
            self._reader = self._source.open()
        except Exception as error:  # whatever the error, the run continues
            self.outcomes.failure(error)
            return
        finally:
            if self._reader is None:
                self.begun.set()
        self._read()
        self._entries.put(Note("found", time.monotonic_ns(), {"source": self._source.name, **self._facts()}))
        self.begun.set()
        self._whole(False)
        self._keep_reading()
        self._whole(True)
        if isinstance(self._reader, MetricsReader):
            self._reader.await_last()
        self._settle() if self._source.settles else self._read()
        with suppress(Exception):
            self._reader.close()

    def _keep_reading(self) -> None:
        """At fixed times, so that a slow reading does not shift later ones; a large one is followed by a longer
        pause."""
        due = time.monotonic() + self._interval_s
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            large_s = len(self._read()) / MOST_PER_S
            late_s = time.monotonic() - due
            due += self._interval_s * max(1, int(late_s / self._interval_s + 1), math.ceil(large_s / self._interval_s))

    def _settle(self) -> None:
        """A server may count a request a moment after its last byte: read until the values stay the same."""
        before = None
        for _ in range(MOST_SETTLING):
            now = _counted(self._read())
            if now is None or now == before:
                return
            before = now
            time.sleep(SETTLE_BEHIND_S if ON_RAY in str(self._facts().get("engine")) else SETTLE_S)

    def _whole(self, whole: bool) -> None:
        if isinstance(self._reader, MetricsReader):
            self._reader.whole = whole

    def _read(self) -> list[Sample]:
        assert self._reader is not None
        self.outcomes.reads += 1
        try:
            samples = self._reader.read()
        except Exception as error:
            self.outcomes.failure(error)
            return []
        for problem in self._reader.problems if isinstance(self._reader, MetricsReader) else ():
            self.outcomes.problem(problem)
        for sample in samples:
            self._entries.put(sample)
        return samples


def _counted(samples: list[Sample]) -> list[tuple[str, float]] | None:
    settled = [(sample.name, sample.value) for sample in samples if sample.name in COUNTED_BY]
    busy = [(sample.name, sample.value) for sample in samples if sample.name in ("running", "queued")]
    return [*settled, *busy] if samples else None


class Observer:
    """All watchers and their common log."""

    def __init__(self, job: ObserverJob) -> None:
        self._log = LogWriter(Path(job.log), OBSERVER_SHARD)
        self._entries: queue.SimpleQueue[Entry] = queue.SimpleQueue()
        self._interval_s = job.interval_s
        self._watchers = [Watcher(source, job.interval_s, self._entries) for source in sources_of(job)]

    def begin(self) -> None:
        """Returns when every source was read once, or its time is over."""
        deadline = time.monotonic() + FIRST_S
        for watcher in self._watchers:
            watcher.begun.wait(max(0.0, deadline - time.monotonic()))
        self._write()

    def until_closed(self, stdin: int) -> None:
        while not select.select([stdin], [], [], self._interval_s)[0]:
            self._write()

    def end(self) -> None:
        for watcher in self._watchers:
            watcher.stop()
        deadline = time.monotonic() + LAST_S
        for watcher in self._watchers:
            watcher.join(max(0.0, deadline - time.monotonic()))
            self._entries.put(watcher.note())
        self._entries.put(Note("observer", time.monotonic_ns(), {"cpu_s": _cpu_s()}))
        self._write()
        self._log.close()

    def _write(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._log.add(self._entries.get_nowait())
        self._log.flush()


def _cpu_s() -> float:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def main() -> None:
    lower_priority()
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=ObserverJob)
    observer = Observer(job)
    observer.begin()
    with suppress(BrokenPipeError):
        os.write(1, b"ready\n")
    observer.until_closed(0)
    observer.end()
    os._exit(0)  # a thread hanging in a driver would block the exit


if __name__ == "__main__":
    main()
