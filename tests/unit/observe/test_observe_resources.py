"""The resources of this machine that a load needs, computed from its plan."""

import resource
from typing import Any

import pytest

from inferometer.conduct.run import InterruptNote
from inferometer.load.progress import Progress
from inferometer.observe.machine import Room, connections_of, enough_files, shortages
from inferometer.plan.reading import plan_from


def needed(**plan: Any) -> tuple[int, int, bool]:
    need = connections_of(plan_from(plan))
    return need.of_worker, need.total, need.certain


def test_connections_of_a_plan() -> None:
    forever = {"stop": {"duration": "60s"}}
    assert needed(load={"concurrency": 1000}, **forever) == (1000, 1000, True)
    assert needed(load={"concurrency": 1000}, workers=3, **forever) == (334, 1000, True)
    assert needed(load={"concurrency": 1000}, stop={"requests": 50}, warmup=10) == (60, 60, True)
    assert needed(load={"rate": 50, "max_concurrency": 300}) == (300, 300, False)
    assert needed(load={"rate": 50}) == (50, 50, False)
    stages = [{"concurrency": 10, "duration": 5}, {"concurrency": 70, "duration": 5}]
    assert needed(load={"type": "stages", "stages": stages}) == (70, 70, True)
    classes = [{"load": {"concurrency": 10}}, {"load": {"concurrency": 20}}]
    assert needed(traffic=classes, **forever) == (30, 30, True)
    urls = ["http://a:1", "http://b:1"]
    assert connections_of(plan_from({"target": urls, "load": {"concurrency": 9}, **forever})).to_address == 5


def test_what_is_short_and_what_to_do() -> None:
    plan = plan_from({"load": {"concurrency": 5000}, "stop": {"duration": "60s"}})
    files, ports, memory = shortages(plan, Room(files=1024, ports=4000, memory_bytes=10**8))
    assert "5,000 connections at once need 5,032 open files, and this process may have 1,024" in files.text
    assert "--workers 6" in files.remedy and files.certain
    assert connections_of(plan.model_copy(update={"workers": 6})).of_worker + 32 <= 1024
    assert "there are 4,000" in ports.text and "ip_local_port_range" in ports.remedy and ports.certain
    assert "of memory" in memory.text and not memory.certain
    assert not list(shortages(plan, Room(files=5032, ports=5000, memory_bytes=10**10)))
    assert not list(shortages(plan, Room())), "what is not known is not short"
    capped = plan_from({"load": {"rate": 10, "max_concurrency": 5000}})
    assert not any(shortage.certain for shortage in shortages(capped, Room(files=1024)))


def test_the_soft_limit_is_raised_and_put_back() -> None:
    plan = plan_from({"load": {"concurrency": 300}, "stop": {"duration": "60s"}})
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 1000:
        pytest.skip("the hard limit is too low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        with enough_files(plan):
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 428
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 256
        with enough_files(plan_from({"load": {"rate": 5}})):  # nobody knows how many
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(before[1], 1 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def interrupts(*messages: tuple[int, int, bool]) -> list[str]:
    """What is said of messages, each of (shard, requests in flight, whether it was interrupted)."""
    texts: list[str] = []
    note = InterruptNote(None, texts.append)
    for shard, in_flight, interrupted in messages:
        note(Progress(shard=shard, in_flight=in_flight, interrupted=interrupted))
    return texts


def test_the_note_of_an_interrupt_counts_all_workers_and_comes_once() -> None:
    assert interrupts((0, 3, False), (1, 4, False)) == []
    assert interrupts((0, 3, False), (1, 4, False), (0, 3, True)) == []
    expected = ["finishing 7 requests; interrupt again to stop now"]
    assert interrupts((0, 3, False), (1, 5, False), (0, 3, True), (1, 4, True), (0, 2, True)) == expected
    assert interrupts((0, 3, False), (1, 5, False), (0, 2, True), (0, 2, True)) == expected, "worker 1 is gone"
    assert interrupts((0, 1, True)) == ["finishing 1 request; interrupt again to stop now"]
    assert interrupts((0, 0, True)) == []
