"""The router's own metrics in Prometheus format. Counting is part of every request, so it is a few additions in plain
dictionaries; metric families are built on each scrape."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from inferometer.router.policy import Decision, PolicyState
from inferometer.router.relay import Relayed
from inferometer.router.upstream import Upstream

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "inferometer_router"
_TIMES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 150, 600)
_SHORT = (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.1)
_RATES = tuple(tenth / 10 for tenth in range(11))


class Buckets:
    """A histogram per replica."""

    def __init__(self, name: str, text: str, bounds: tuple[float, ...]) -> None:
        self._name, self._text, self._bounds = name, text, bounds
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, replica: str, value: float) -> None:
        counts = self._counts.get(replica)
        if counts is None:
            counts = self._counts[replica] = [0] * (len(self._bounds) + 1)
            self._sums[replica] = 0.0
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[replica] += value

    def family(self) -> HistogramMetricFamily:
        family = HistogramMetricFamily(f"{PREFIX}_{self._name}", self._text, labels=["replica"])
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        for replica, counts in self._counts.items():
            family.add_metric([replica], list(zip(names, accumulate(counts), strict=True)), self._sums[replica])
        return family


class RouterMetrics:
    """Counts per request; load, health and the policy's memory are read on each scrape."""

    def __init__(
        self, upstreams: Sequence[Upstream], state: Callable[[], PolicyState], waiting: Callable[[], int]
    ) -> None:
        self._upstreams, self._state, self._waiting = upstreams, state, waiting
        self._requests: Counter[tuple[str, str]] = Counter()
        self._decisions: Counter[tuple[str, str]] = Counter()
        self._retries: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._reads: Counter[str] = Counter()
        self._match = Buckets("match_rate", "Share of the prompt that was sent there before.", _RATES)
        self._choice = Buckets("decision_seconds", "Time to choose a replica.", _SHORT)
        self._wait = Buckets("queue_seconds", "Time in the router's queue.", _TIMES)
        self._first = Buckets("first_byte_seconds", "From the request to the first byte of its body.", _TIMES)
        self._whole = Buckets("request_seconds", "From the request to the last byte of its body.", _TIMES)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def decided(self, decision: Decision, took_s: float, waited_s: float) -> None:
        replica = decision.replica
        self._decisions[replica, decision.kind] += 1
        self._match.observe(replica, decision.match_rate)
        self._choice.observe(replica, took_s)
        self._wait.observe(replica, waited_s)

    def retried(self, replica: str) -> None:
        self._retries[replica] += 1

    def ended(self, replica: str, outcome: str, relayed: Relayed | None, since: int, ended_at: int) -> None:
        """A request is over; `relayed` is the part of its response that was passed on, if any."""
        self._requests[replica, outcome] += 1
        if relayed is None:
            return
        self._bytes[replica] += relayed.bytes
        self._reads[replica] += relayed.reads
        self._whole.observe(replica, (ended_at - since) / 1e9)
        if relayed.first_at:
            self._first.observe(replica, (relayed.first_at - since) / 1e9)

    def exposition(self) -> bytes:
        return bytes(generate_latest(self._registry))

    def collect(self) -> Iterator[Metric]:
        yield _counter("requests", "Finished requests.", ["replica", "outcome"], self._requests)
        yield _counter("decisions", "Choices by kind.", ["replica", "kind"], self._decisions)
        yield _counter("retries", "Attempts that failed before the first byte.", ["replica"], _keyed(self._retries))
        yield _counter("relayed_bytes", "Bytes of bodies passed on.", ["replica"], _keyed(self._bytes))
        yield _counter("relayed_reads", "Reads from replicas.", ["replica"], _keyed(self._reads))
        for buckets in (self._match, self._choice, self._wait, self._first, self._whole):
            yield buckets.family()
        yield _gauge("healthy", "Whether requests are sent there.", {u.name: u.healthy for u in self._upstreams})
        loads = {u.name: u.in_flight for u in self._upstreams}
        yield _gauge("requests_in_flight", "Requests sent and not over.", loads)
        tokens = {u.name: u.tokens_in_flight for u in self._upstreams}
        yield _gauge("tokens_in_flight", "Their prompt tokens, estimated.", tokens)
        yield GaugeMetricFamily(f"{PREFIX}_queue_length", "Requests that wait here.", value=self._waiting())
        state = self._state()
        yield _gauge("tree_chars", "Characters of prompts remembered.", state.tree_chars)
        yield GaugeMetricFamily(f"{PREFIX}_tree_nodes", "Nodes of the prefix tree.", value=state.tree_nodes)
        yield CounterMetricFamily(f"{PREFIX}_evictions", "Evictions from the tree.", value=state.evictions)
        yield CounterMetricFamily(f"{PREFIX}_evicted_chars", "Characters evicted.", value=state.evicted_chars)


def _keyed(counts: dict[str, int]) -> dict[tuple[str, ...], int]:
    return {(name,): count for name, count in counts.items()}


def _counter(name: str, text: str, labels: list[str], counts: Mapping[Any, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=labels)
    for values, count in counts.items():
        family.add_metric(list(values), float(count))
    return family


def _gauge(name: str, text: str, values: dict[str, int] | dict[str, bool]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=["replica"])
    for replica, value in values.items():
        family.add_metric([replica], float(value))
    return family
