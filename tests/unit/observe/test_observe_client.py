"""Our own process, sampled."""

import os
import time

from inferometer.observe.host import ClientSampler, memory_bytes


def by_name(samples):
    return {sample.name: sample for sample in samples}


def test_a_busy_loop_is_seen_as_a_busy_core() -> None:
    sampler = ClientSampler(shard=3)
    until = time.thread_time() + 0.15  # of this thread: others of this process may be busy too
    while time.thread_time() < until:
        pass
    at = time.monotonic_ns()
    found = by_name(sampler.sample(at))
    assert set(found) == {"cpu_share", "waits_per_s", "pushed_aside_per_s", "memory_bytes"}
    assert 0 < found["cpu_share"].value < (os.cpu_count() or 1) + 0.5
    assert found["memory_bytes"].value > 1e6
    assert all(sample.at == at and sample.source == "client" for sample in found.values())
    assert found["cpu_share"].labels == {"shard": "3"}


def test_shares_are_since_the_sample_before() -> None:
    sampler = ClientSampler()
    first = time.monotonic_ns() + 1_000_000_000
    assert sampler.sample(first)
    used = by_name(sampler.sample(first + 1_000_000_000_000))["cpu_share"].value
    assert used < 0.01  # next to nothing in a thousand seconds
    assert sampler.sample(first + 1_000_000_000_001) == []


def test_a_moment_is_no_sample_and_what_came_before_the_load_is_not_counted() -> None:
    sampler = ClientSampler()
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    sampler.begin()
    begun = time.monotonic_ns()
    assert sampler.sample(begun + 50_000_000) == []
    assert by_name(sampler.sample(begun + 1_000_000_000))["cpu_share"].value < 0.05


def test_lag_is_told_where_it_is_known() -> None:
    lags = iter([0.25, None])
    sampler = ClientSampler(lag_s=lambda: next(lags))
    at = time.monotonic_ns() + 10**9
    assert by_name(sampler(at))["lag_s"].value == 0.25
    assert "lag_s" not in by_name(sampler(at + 10**9))


def test_memory_grows_with_what_is_kept() -> None:
    before = memory_bytes()
    kept = bytearray(b"x" * 64_000_000)
    assert memory_bytes() - before > 30_000_000
    del kept
