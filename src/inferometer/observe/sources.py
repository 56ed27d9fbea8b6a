"""What the observer can watch: each source is read again and again, on a thread of its own."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from inferometer.errors import InferometerError
from inferometer.observe.gpu import NvmlSampler
from inferometer.observe.host import HostSampler
from inferometer.observe.job import MetricsPlace, ObserverJob
from inferometer.observe.nvidia_smi import NvidiaSmiSampler
from inferometer.observe.prometheus import Endpoint, Reading, Unreadable, read_exposition
from inferometer.plan.redactor import Redactor
from inferometer.record.sample import Sample
from inferometer.wire.origin import trusted_origin

TIMEOUT_SHARE = 0.8  # of the interval: a slow endpoint is given up before it is asked again
LONGEST_TIMEOUT_S = 5.0
MOST_PROBLEMS = 5  # different ones that are kept in words
SETTLED_BY = ("requests_ok", "generation_tokens")


class Reader(Protocol):
    def read(self) -> list[Sample]: ...
    def close(self) -> None: ...


@dataclass
class Source:
    """Something to watch: opened on its own thread, because that may take seconds, or never end."""

    name: str
    open: Callable[[], Reader]
    wanted: bool = False  # asked for by name
    settles: bool = False  # has counters that may still move after the last answer


class MetricsReader:
    """A Prometheus endpoint as samples of the one vocabulary. Buckets are read only while it is to be `whole`: they are
    most of the text, and of use is only how much they grew over the run."""

    def __init__(self, place: MetricsPlace, job: ObserverJob) -> None:
        origin = trusted_origin(place.url, job.tls, job.proxy)
        headers = {"Accept": "text/plain", "User-Agent": "inferometer", **_lasting(place.headers)}
        timeout_s = min(TIMEOUT_SHARE * job.interval_s, LONGEST_TIMEOUT_S)
        self.source = place.source
        self._endpoint = Endpoint(origin, _path(place.url), headers, timeout_s)
        self._redactor = Redactor(job.hidden)
        self.whole = True
        self.facts: dict[str, Any] = {}
        self.lies: list[str] = []

    def read(self) -> list[Sample]:
        try:
            text = self._endpoint.text()
            at = time.monotonic_ns()
            reading = read_exposition(self._redactor.hide(text), buckets=self.whole)
        except Unreadable as error:
            raise Unreadable(self._redactor.message(str(error))) from None
        self._learn(reading)
        return reading.samples(self.source, at)

    def close(self) -> None:
        self._endpoint.close()

    def _learn(self, reading: Reading) -> None:
        engine = " and ".join(sorted(reading.engines))
        self.facts = {"engine": engine, "names": reading.names, "config": reading.config}
        self.lies = reading.lies


def _path(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _lasting(headers: dict[str, str]) -> dict[str, str]:
    """Without those that would end the connection, or ask for another kind of answer."""
    return {name: value for name, value in headers.items() if name.lower() not in ("connection", "accept")}


def sources_of(job: ObserverJob) -> Iterator[Source]:
    if job.host:
        yield Source("host", HostSampler)
    if job.gpu:
        yield Source("gpu", lambda: gpu_reader(job), wanted=job.gpu_wanted)
    for place in job.metrics:
        yield Source(place.source, _metrics_opener(place, job), not place.ours, settles=True)


def _metrics_opener(place: MetricsPlace, job: ObserverJob) -> Callable[[], Reader]:
    return lambda: MetricsReader(place, job)


def gpu_reader(job: ObserverJob) -> Reader:
    """Through NVML, else through nvidia-smi; the error has what both said."""
    try:
        return NvmlSampler(job.gpus)
    except InferometerError as error:
        why = error.message
    try:
        return NvidiaSmiSampler(job.interval_s, job.gpus)
    except (InferometerError, OSError) as error:
        raise InferometerError(f"{why}; {error}") from None


@dataclass
class Diary:
    """How the readings of a source went, for the notes of the run."""

    reads: int = 0
    failed: int = 0
    problems: dict[str, int] = field(default_factory=dict)

    def failure(self, error: Exception) -> None:
        self.failed += 1
        said = error.message if isinstance(error, InferometerError) else str(error)
        self.problem(said if isinstance(error, InferometerError | Unreadable) else f"{type(error).__name__}: {said}")

    def problem(self, text: str) -> None:
        if text in self.problems or len(self.problems) < MOST_PROBLEMS:
            self.problems[text] = self.problems.get(text, 0) + 1
