"""The simulator's /metrics under vLLM's names. Numbers are collected per request and per batch, never per token."""

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import accumulate
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from inferometer.simulator.engine import Batch, Sequence, SimulatorEngine
from inferometer.simulator.settings import Instants, SimulatorSettings, SpeculationSettings

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_STEP_SIZES = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160),
    *(640, 2560),
)
_TOKEN_TIMES = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_TIMES = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_LATENESS = (1e-5, 1e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 1)

_HISTOGRAMS: dict[str, tuple[tuple[float, ...], str]] = {
    "vllm:request_prompt_tokens": (_SIZES, "Number of prefill tokens processed."),
    "vllm:request_generation_tokens": (_SIZES, "Number of generation tokens processed."),
    "vllm:iteration_tokens_total": (_STEP_SIZES, "BucketCounts of number of tokens per engine_step."),
    "vllm:request_params_max_tokens": (_SIZES, "BucketCounts of the max_tokens request parameter."),
    "vllm:request_prefill_kv_computed_tokens": (
        _SIZES,
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
    ),
    "vllm:time_to_first_token_seconds": (_TTFT, "BucketCounts of time to first token in seconds."),
    "vllm:inter_token_latency_seconds": (_TOKEN_TIMES, "Histogram of inter-token latency in seconds."),
    "vllm:request_time_per_output_token_seconds": (
        _TOKEN_TIMES,
        "Histogram of time_per_output_token_seconds per request.",
    ),
    "vllm:e2e_request_latency_seconds": (_TIMES, "BucketCounts of e2e request latency in seconds."),
    "vllm:request_queue_time_seconds": (_TIMES, "BucketCounts of time spent in WAITING phase for request."),
    "vllm:request_inference_time_seconds": (_TIMES, "BucketCounts of time spent in RUNNING phase for request."),
    "vllm:request_prefill_time_seconds": (_TIMES, "BucketCounts of time spent in PREFILL phase for request."),
    "vllm:request_decode_time_seconds": (_TIMES, "BucketCounts of time spent in DECODE phase for request."),
    "inferometer:step_lateness_seconds": (_LATENESS, "From the deadline of a step to its first write."),
}

MOST_WAITING = 4096


class BucketCounts:
    """Counts per bucket, for many values at once."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def observe_all(self, values: NDArray[np.float64]) -> None:
        counts = np.bincount(np.searchsorted(self._bounds, values), minlength=len(self._counts))
        self._counts = [*map(add, self._counts, counts.tolist())]
        self._sum += float(values.sum())

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative buckets as in Prometheus, and the sum."""
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        return list(zip(names, accumulate(self._counts), strict=True)), self._sum


class Drafts:
    """The counters of speculative decoding: an answer is split into drafts, of which some tokens are accepted."""

    def __init__(self, settings: SpeculationSettings, seed: int) -> None:
        self._settings = settings
        self._random = np.random.default_rng([seed, 21])
        self.drafts = self.drafted = self.accepted = 0

    def count(self, tokens: int) -> None:
        """Count an answer: the prefill generates the first token, each later step one plus the accepted ones."""
        left, length = tokens - 1, self._settings.tokens
        while left > 0:
            refused = np.flatnonzero(self._random.random(length) >= self._settings.acceptance)
            accepted = min(int(refused[0]) if len(refused) else length, left - 1)
            self.drafts, self.drafted, self.accepted = self.drafts + 1, self.drafted + length, self.accepted + accepted
            left -= 1 + accepted


class Metrics:
    """Counters of a running server; `exposition` writes them as text."""

    def __init__(self, settings: SimulatorSettings, engine: SimulatorEngine) -> None:
        self._settings = settings
        self._engine = engine
        self._labels = {"model_name": settings.model, "engine": "0"}
        self._started = time.time()
        self._histograms = {name: BucketCounts(bounds) for name, (bounds, _) in _HISTOGRAMS.items()}
        self._generation_tokens = 0
        self._speculation = Drafts(settings.speculation, settings.seed) if settings.speculation else None
        self._finished = dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0)
        self._http: dict[tuple[str, str, str], int] = {}
        self._waiting: deque[tuple[Sequence, int, int, Instants]] = deque()  # finished sequences, to be counted
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def exposition(self) -> bytes:
        while self.work_off():
            pass
        return bytes(generate_latest(self._registry))

    def answered(self, method: str, path: str, status: int) -> None:
        key = (path, method, f"{status // 100}xx")
        self._http[key] = self._http.get(key, 0) + 1

    def batch_done(self, batch: Batch, steps: int) -> None:
        self._observe("vllm:iteration_tokens_total", batch.prefill_tokens + len(batch.decodes), steps)
        self._generation_tokens += steps * len(batch.decodes)
        end = batch.first_step + steps
        whole = sum(1 for sequence, _ in batch.chunks if sequence.spans and sequence.spans[-1][1] == end)
        self._generation_tokens += whole  # a completed prefill generates a token at once

    def step_late(self, late_ns: int) -> None:
        self._observe("inferometer:step_lateness_seconds", max(0, late_ns) / 1e9)

    def request_done(
        self, sequence: Sequence, reason: str, received_at: int, joined_at: int, instants: Instants
    ) -> None:
        """Queue a finished sequence with the times of its tokens, to be counted in idle time: many may finish in one
        step, and the next step is due."""
        self._finished[reason] += 1
        if len(instants):
            self._waiting.append((sequence, received_at, joined_at, instants))
        if len(self._waiting) > MOST_WAITING:
            self.work_off()

    def work_off(self) -> bool:
        """Count one queued sequence; False if there is none."""
        if not self._waiting:
            return False
        self._count(*self._waiting.popleft())
        return True

    def _count(self, sequence: Sequence, received_at: int, joined_at: int, instants: Instants) -> None:
        self._observe("vllm:request_prompt_tokens", len(sequence.prompt))
        self._observe("vllm:request_generation_tokens", sequence.made)
        self._observe("vllm:request_params_max_tokens", len(sequence.answer))
        self._observe("vllm:request_prefill_kv_computed_tokens", len(sequence.prompt) - (sequence.cached or 0))
        if self._speculation is not None:
            self._speculation.count(sequence.made)
        self._times(sequence.admitted_at or joined_at, received_at, joined_at, instants)

    def _times(self, admitted_at: int, received_at: int, joined_at: int, instants: Instants) -> None:
        first, last = instants[0], instants[-1]
        spans = {
            "vllm:time_to_first_token_seconds": first - received_at,
            "vllm:e2e_request_latency_seconds": last - received_at,
            "vllm:request_queue_time_seconds": admitted_at - joined_at,
            "vllm:request_inference_time_seconds": last - admitted_at,
            "vllm:request_prefill_time_seconds": first - admitted_at,
            "vllm:request_decode_time_seconds": last - first,
        }
        for name, span in spans.items():
            self._observe(name, span / 1e9)
        if len(instants) > 1:
            self._observe("vllm:request_time_per_output_token_seconds", (last - first) / 1e9 / (len(instants) - 1))
            self._histograms["vllm:inter_token_latency_seconds"].observe_all(np.diff(instants) / 1e9)

    def _observe(self, name: str, value: float, times: int = 1) -> None:
        self._histograms[name].observe(value, times)

    def collect(self) -> Iterator[Metric]:
        """All families, for prometheus_client."""
        yield from self._gauges()
        yield from self._counters()
        yield from self._histogram_families()

    def _gauges(self) -> Iterator[Metric]:
        engine = self._engine
        yield self._gauge(
            "vllm:num_requests_running", "Number of requests in model execution batches.", len(engine.running)
        )
        yield self._gauge(
            "vllm:num_requests_waiting", "Number of requests waiting to be processed.", len(engine.waiting)
        )
        yield self._gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", engine.pool.usage)
        settings = self._settings
        info = {
            "block_size": str(settings.block_size),
            "enable_prefix_caching": str(settings.prefix_caching),
            "num_gpu_blocks": str(settings.blocks),
            "engine": "0",
        }
        family = GaugeMetricFamily(
            "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", labels=list(info)
        )
        family.add_metric(list(info.values()), 1)
        yield family

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _counters(self) -> Iterator[Metric]:
        done = self._engine.counters
        tokens, hits = done.prompt_tokens, done.cached_tokens
        sources = [({"source": "local_compute"}, tokens - hits), ({"source": "local_cache_hit"}, hits)]
        yield self._counter("vllm:prefix_cache_queries", "Prefix cache queries, in tokens.", tokens)
        yield self._counter("vllm:prefix_cache_hits", "Prefix cache hits, in cached tokens.", hits)
        yield self._counter("vllm:num_preemptions", "Cumulative number of preemptions.", done.preemptions)
        yield self._counter("vllm:prompt_tokens", "Number of prefill tokens processed.", tokens)
        yield self._counter("vllm:prompt_tokens_cached", "Number of cached prompt tokens.", hits)
        yield self._counters_by("vllm:prompt_tokens_by_source", "Number of prompt tokens by source.", sources)
        yield self._counter("vllm:generation_tokens", "Number of generation tokens.", self._generation_tokens)
        if (drafts := self._speculation) is not None:
            yield self._counter("vllm:spec_decode_num_drafts", "Number of spec decoding drafts.", drafts.drafts)
            yield self._counter("vllm:spec_decode_num_draft_tokens", "Number of draft tokens.", drafts.drafted)
            yield self._counter("vllm:spec_decode_num_accepted_tokens", "Number of accepted tokens.", drafts.accepted)
        reasons = [({"finished_reason": reason}, number) for reason, number in self._finished.items()]
        yield self._counters_by("vllm:request_success", "Count of successfully processed requests.", reasons)
        http = CounterMetricFamily("http_requests", "Requests by path.", labels=["handler", "method", "status"])
        for key, number in self._http.items():
            http.add_metric(list(key), number)
        yield http

    def _counter(self, name: str, text: str, value: float) -> Metric:
        return self._counters_by(name, text, [({}, value)])

    def _counters_by(self, name: str, text: str, values: Iterable[tuple[dict[str, str], float]]) -> Metric:
        values = list(values)
        family = CounterMetricFamily(name, text, labels=[*self._labels, *values[0][0]])
        for labels, value in values:
            family.add_metric([*self._labels.values(), *labels.values()], value, created=self._started)
        return family

    def _histogram_families(self) -> Iterator[Metric]:
        for name, histogram in self._histograms.items():
            buckets, total = histogram.buckets()
            family: Any = HistogramMetricFamily(name, _HISTOGRAMS[name][1], labels=list(self._labels))
            family.add_metric(list(self._labels.values()), buckets, total)
            yield family
