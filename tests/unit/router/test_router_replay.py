"""Decisions of Ray's own router, recorded on a real Ray Serve application, repeated by our implementation; and the feed
by which routers tell theirs."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from inferometer.measure.server import decisions_of
from inferometer.record.record import Sample, Samples
from inferometer.router.feed import Choice, Feed
from inferometer.router.journal import Chosen, ReplicasChanged, RouterEvent, Sent, read_events, replay, write_events
from inferometer.router.policy import Eviction, Policy, PolicyState, policy_named

RECORDED = Path(__file__).parents[2] / "data" / "ray-prefix-aware.jsonl"
SETTINGS: dict[str, str | int] = {  # with which it was recorded, by tests/on_ray/test_ray_serve.py
    "defaults": "original",
    "imbalanced_threshold": 2,
    "eviction_threshold_chars": 2000,
    "eviction_target_chars": 1500,
    "eviction_interval_s": 2,
}


def test_our_prefix_aware_has_the_candidates_of_rays_own() -> None:
    events = read_events(RECORDED.read_bytes().splitlines())
    done = replay(events, policy_named("prefix_aware", SETTINGS))
    assert done.decisions >= 100 and done.decisions - done.random >= 80
    assert {kind for kind, _ in done.kinds} == {"prefix_match", "smallest_tree", "fallback_imbalanced"}
    assert done.share_alike is not None and done.share_alike >= 0.95, done.differences
    assert done.same_tree >= 0.95 * done.decisions, "evictions remove what Ray's remove"


def test_a_policy_with_another_rule_is_told_from_it() -> None:
    events = read_events(RECORDED.read_bytes().splitlines())
    done = replay(events, policy_named("prefix_aware", SETTINGS | {"match_rate_threshold": 0.9}))
    assert done.share_alike is not None and done.share_alike < 0.95
    assert done.kinds["prefix_match", "smallest_tree"]


def with_a_timer(events: list[RouterEvent], policy: Policy, offset_s: float) -> Iterator[RouterEvent]:
    """The events without Ray's evictions; the policy evicts by its own interval, which begins at this offset."""
    every_s = float(SETTINGS["eviction_interval_s"])
    due = events[0].at_s + offset_s
    policy.evict(due)
    for event in events:
        while event.at_s >= due + every_s:
            due += every_s
            policy.evict(due)
        yield msgspec.structs.replace(event, tree_chars=None) if isinstance(event, Chosen) else event


@pytest.mark.parametrize(("offset_s", "alike"), [(0.25, 110), (-1.0, 108), (0.0, 108), (0.5, 109), (1.5, 108)])
def test_the_instant_of_an_eviction_alone_makes_differences(offset_s: float, alike: int) -> None:
    """Which is why the replay evicts when Ray did: one tree still holds a prompt that the other one has dropped."""
    events, policy = read_events(RECORDED.read_bytes().splitlines()), policy_named("prefix_aware", SETTINGS)
    done = replay(with_a_timer(events, policy, offset_s), policy)
    assert (done.decisions - done.random, done.alike) == (110, alike)
    assert all((chosen.kind, kind) == ("prefix_match", "prefix_match") for chosen, kind, _ in done.differences)


def test_a_replay_follows_what_was_sent_and_not_what_it_would_have_chosen() -> None:
    text = "the harbour office opens at nine"
    events: list[RouterEvent] = [
        ReplicasChanged(0.0, ["a", "b"]),
        Chosen(1.0, 1, text, {"a": 0, "b": None}, "smallest_tree", ["a", "b"]),
        Sent(1.1, 1, text, "b"),
        Chosen(2.0, 2, text, {"a": 0, "b": 9}, "prefix_match", ["b"], len(text)),
        Chosen(3.0, 3, text, {"a": 0, "b": 9}, "prefix_match", ["a"], len(text)),
        ReplicasChanged(4.0, removed=["b"]),
        Chosen(5.0, 4, text, {"a": 0}, "smallest_tree", ["a"]),
    ]
    assert read_events(write_events(events).splitlines()) == events
    done = replay(events, policy_named("prefix_aware"))
    assert (done.decisions, done.random, done.alike) == (4, 0, 3)
    assert [chosen.request for chosen, _, _ in done.differences] == [3]


def choice(at: int, **more: int) -> Choice:
    return Choice(at, at, "r1", "prefix_match", 0.5, None, None, 2, 1e-5, 2e-6, **more)


def test_a_reader_of_the_feed_gets_everything_once_and_is_told_what_it_missed() -> None:
    feed = Feed(most=4)
    feed.add(choice(1))
    first = feed.page(0, 10)
    assert (first.next, first.lost) == (1, 0)
    assert feed.page(first.next, 11).samples == []
    feed.state(2, {"r1": 3}, PolicyState({"r1": 40}, 2))
    feed.evicted(3, [Eviction("r1", 12)], 1e-4)
    second = feed.page(first.next, 12)
    assert [sample.name for sample in second.samples] == ["tree_chars", "tree_nodes", "evicted_chars", "eviction_s"]
    assert (second.next, second.lost) == (6, 1)
    assert feed.page(99, 13).samples == []


def test_decisions_without_knowledge_of_caches_are_decisions() -> None:
    feed = Feed()
    feed.add(choice(1))
    feed.add(choice(2, given_to=7))
    decisions = decisions_of(Samples.of(feed.page(0, 3).samples))
    assert decisions is not None and not decisions.knows_caches
    assert (decisions.session.tolist(), decisions.given_to.tolist()) == ([1, 2], [1, 7])
    assert decisions_of(Samples.of([Sample("router", "in_flight", 1, 2.0)])) is None
