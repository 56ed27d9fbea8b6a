"""The rules of every policy: the chosen replica, the branch, and the inputs."""

from collections import Counter
from typing import Any

import pytest

from inferometer.errors import PlanError
from inferometer.router.policies.prefix import PrefixAware
from inferometer.router.policy import POLICIES, NoReplicaError, Policy, Query, Replica, policy_class, policy_named

PREFIX = "You are a careful assistant of the harbour office. " * 20


def fleet(*in_flight: int, **others: Any) -> list[Replica]:
    return [Replica(f"r{at}", load, **others) for at, load in enumerate(in_flight)]


def routed(policy: Policy, query: Query, replicas: list[Replica], now_s: float = 0.0) -> str:
    decision = policy.choose(query, replicas, now_s)
    policy.sent(query, decision.replica, now_s)
    return decision.replica


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_chooses_an_available_replica_and_the_same_one_from_the_same_seed(name: str) -> None:
    def choices(seed: int) -> list[str]:
        policy = policy_named(name, seed=seed)
        made = []
        for at in range(60):
            replicas = [
                Replica("r0", 3, healthy=at % 7 > 0),
                Replica("r1", at % 5, capacity=4),
                Replica("r2", 2, tokens_in_flight=100, waiting=at % 3, kv_usage=0.5),
                Replica("r3", 1, healthy=False),
            ]
            query = Query(PREFIX[: 40 * (at % 9)], session=f"s{at % 4}" if at % 2 else None, id=at)
            chosen = routed(policy, query, replicas, float(at))
            assert next(replica for replica in replicas if replica.name == chosen).is_available
            policy.finished(query, chosen, at + 0.5)
            policy.evict(at + 0.6)
            made.append(chosen)
        policy.state()
        return made

    assert choices(1) == choices(1)


@pytest.mark.parametrize("name", POLICIES)
def test_one_that_is_removed_is_forgotten(name: str) -> None:
    policy = policy_named(name)
    for at in range(10):
        query = Query(PREFIX, id=at)
        policy.sent(query, f"r{at % 2}", float(at))
    policy.removed("r0")
    policy.finished(Query(PREFIX, id=0), "r0", 11.0)
    assert "r0" not in policy.state().tree_chars
    assert routed(policy, Query(PREFIX), [Replica("r1")]) == "r1"


@pytest.mark.parametrize("name", POLICIES)
def test_nobody_to_send_to_is_an_error_that_says_which(name: str) -> None:
    policy = policy_named(name)
    with pytest.raises(NoReplicaError, match="none of 2 replicas is healthy"):
        policy.choose(Query("hello"), fleet(0, 0, healthy=False), 0.0)
    with pytest.raises(NoReplicaError, match="as many requests in flight"):
        policy.choose(Query("hello"), fleet(2, 2, capacity=2), 0.0)


def test_random_reaches_all_and_round_robin_takes_turns() -> None:
    policy = policy_named("random", seed=3)
    counts = Counter(policy.choose(Query(), fleet(0, 5, 9), 0.0).replica for _ in range(600))
    assert set(counts) == {"r0", "r1", "r2"}
    assert min(counts.values()) > 140
    turns = policy_named("round_robin")
    replicas = [Replica("r0"), Replica("r1", healthy=False), Replica("r2")]
    assert [turns.choose(Query(), replicas, 0.0).replica for _ in range(4)] == ["r0", "r2", "r0", "r2"]


def test_least_loaded_by_requests_and_by_tokens() -> None:
    replicas = [Replica("r0", 3, 10), Replica("r1", 1, 900), Replica("r2", 2, 500)]
    assert policy_named("least_loaded").choose(Query(), replicas, 0.0).replica == "r1"
    assert policy_named("least_loaded", {"load": "tokens"}).choose(Query(), replicas, 0.0).replica == "r0"


def test_power_of_two_takes_the_less_loaded_of_two() -> None:
    policy = policy_named("power_of_two", seed=1)
    counts: Counter[str] = Counter()
    for _ in range(300):
        decision = policy.choose(Query(), fleet(0, 4, 9), 0.0)
        scores = {candidate.replica: candidate.score for candidate in decision.candidates}
        assert len(scores) == 2
        assert scores[decision.replica] == max(scores.values())
        counts[decision.replica] += 1
    assert counts["r2"] == 0  # never the most loaded of all
    assert counts["r0"] > counts["r1"] > 50
    assert policy.choose(Query(), fleet(7), 0.0).replica == "r0"


# -- Ray's -----------------------------------------------------------------------------------------------------------


def test_prefix_aware_stays_with_the_prefix_and_spreads_what_is_new() -> None:
    policy = policy_named("prefix_aware")
    replicas = fleet(0, 0, 0)
    first = routed(policy, Query(PREFIX + "one"), replicas)
    again = policy.choose(Query(PREFIX + "two"), replicas, 1.0)
    assert (again.replica, again.kind, again.matched_chars) == (first, "prefix_match", len(PREFIX))
    assert again.match_rate == pytest.approx(len(PREFIX) / (len(PREFIX) + 3))
    other = policy.choose(Query("something else entirely " * 30), replicas, 1.0)
    assert other.kind == "smallest_tree"
    assert other.replica != first


def test_prefix_aware_falls_back_where_the_load_is_uneven_by_its_original_defaults_only() -> None:
    current, original = policy_named("prefix_aware"), policy_named("prefix_aware", {"defaults": "original"})
    for policy in (current, original):
        policy.sent(Query(PREFIX), "r0", 0.0)
    at_the_threshold, beyond = fleet(10, 0), fleet(11, 0)
    assert original.choose(Query(PREFIX), at_the_threshold, 1.0).kind == "prefix_match"
    decision = original.choose(Query(PREFIX), beyond, 1.0)
    assert (decision.kind, decision.replica) == ("fallback_imbalanced", "r1")
    assert current.choose(Query(PREFIX), fleet(1000, 0), 1.0).replica == "r0"


@pytest.mark.parametrize(
    ("name", "settings", "kind"),
    [
        ("prefix_aware", {"defaults": "original"}, "fallback_imbalanced"),
        ("cache_aware", {"balance_abs_threshold": 10}, "least_loaded_imbalanced"),
    ],
)
def test_a_replica_that_is_full_makes_the_load_uneven(name: str, settings: dict[str, Any], kind: str) -> None:
    policy = policy_named(name, settings)
    policy.sent(Query(PREFIX), "r0", 0.0)
    full = [Replica("r0", 20, capacity=20), Replica("r1", 2, capacity=20), Replica("r2", 3, capacity=20)]
    assert policy.choose(Query(PREFIX), full, 1.0).kind == kind


def test_prefix_aware_evicts_from_threshold_to_target_every_interval() -> None:
    settings = {"do_eviction": True, "eviction_threshold_chars": 100, "eviction_target_chars": 60}
    policy = policy_named("prefix_aware", settings)
    assert isinstance(policy, PrefixAware)
    for at in range(10):
        policy.sent(Query(f"{at}" * 20), "r0", float(at))
    assert policy.evict(9.0) == []  # the interval begins
    assert policy.evict(18.9) == []
    (evicted,) = policy.evict(19.0)
    assert (evicted.replica, evicted.chars, policy.state().tree_chars) == ("r0", 140, {"r0": 60})
    assert policy.tree.match("9" * 20).length == 20  # the newest stayed
    assert policy.evict(29.0) == []  # below the threshold now
    assert policy_named("prefix_aware").eviction_interval_s is None


# -- SGLang's --------------------------------------------------------------------------------------------------------


def test_cache_aware_stays_with_the_first_that_had_the_prefix() -> None:
    """As sglang-router and vllm-router do (tests/routers): an uneven load moves a prefix only while it lasts."""
    policy = policy_named("cache_aware")
    policy.sent(Query(PREFIX + "a"), "r1", 0.0)
    policy.sent(Query(PREFIX + "b"), "r0", 1.0)
    decision = policy.choose(Query(PREFIX + "c"), fleet(0, 5, 0), 2.0)
    assert (decision.replica, decision.kind) == ("r1", "cache_match")
    assert policy.choose(Query(PREFIX + "bb"), fleet(0, 5, 0), 2.0).replica == "r0", "of the longer beginning the first"
    policy.removed("r1")
    assert policy.choose(Query(PREFIX + "c"), fleet(0, 5, 0), 2.0).replica == "r0"
    low = policy.choose(Query("nothing of the kind"), fleet(3, 5, 1), 2.0)
    assert (low.replica, low.kind) == ("r2", "least_loaded")


def test_cache_aware_is_imbalanced_by_both_thresholds_together() -> None:
    policy = policy_named("cache_aware", {"balance_abs_threshold": 10, "balance_rel_threshold": 2.0})
    policy.sent(Query(PREFIX), "r0", 0.0)
    for loads, kind in [((11, 0), "least_loaded_imbalanced"), ((10, 0), "cache_match"), ((31, 20), "cache_match")]:
        assert policy.choose(Query(PREFIX), fleet(*loads), 1.0).kind == kind


def test_cache_aware_of_older_versions_goes_to_the_smallest_tree() -> None:
    policy = policy_named("cache_aware", {"low_match": "smallest_tree"})
    policy.sent(Query("a" * 100), "r0", 0.0)
    policy.sent(Query("b" * 10), "r1", 0.0)
    decision = policy.choose(Query("c" * 50), fleet(0, 9), 1.0)
    assert (decision.replica, decision.kind) == ("r1", "smallest_tree")


def test_cache_aware_evicts_down_to_its_size() -> None:
    policy = policy_named("cache_aware", {"max_tree_size": 50, "eviction_interval_s": 5})
    policy.evict(0.0)
    for at in range(10):
        policy.sent(Query(f"{at}" * 20), "r0", float(at))
    assert sum(evicted.chars for evicted in policy.evict(10.0)) == 160
    assert policy.state().tree_chars == {"r0": 40}


# -- llm-d's ---------------------------------------------------------------------------------------------------------


def test_block_prefix_counts_blocks_of_64_characters_and_weighs_them_against_the_queue() -> None:
    policy = policy_named("block_prefix")
    policy.sent(Query("x" * 640), "r0", 0.0)
    half = Query("x" * 320 + "y" * 320)
    decision = policy.choose(half, fleet(0, 0), 1.0)
    assert (decision.replica, decision.kind, decision.match_rate) == ("r0", "prefix_score", 0.5)
    busy = [Replica("r0", 9, waiting=9, kv_usage=0.9), Replica("r1", 0, waiting=0, kv_usage=0.0)]
    assert policy.choose(half, busy, 1.0).replica == "r1"  # 2 * 0.5 + 0 + 0.1 against 0 + 1 + 1
    heavy = policy_named("block_prefix", {"prefix_weight": 10})
    heavy.sent(Query("x" * 640), "r0", 0.0)
    assert heavy.choose(half, busy, 1.0).replica == "r0"
    assert policy.choose(Query("x" * 63), fleet(1, 0), 1.0).kind == "load_score"  # below one block


def test_block_prefix_forgets_the_oldest_blocks() -> None:
    policy = policy_named("block_prefix", {"lru_capacity_per_server": 10})
    policy.sent(Query("x" * 640), "r0", 0.0)
    policy.sent(Query("y" * 320), "r0", 1.0)
    assert policy.state().tree_chars == {"r0": 640}
    assert policy.choose(Query("x" * 640), fleet(0), 2.0).match_rate == 0.0
    assert policy.choose(Query("y" * 320), fleet(0), 2.0).match_rate == 1.0


def test_precise_matches_come_from_the_replicas() -> None:
    policy = policy_named("block_prefix", {"precise": True})
    policy.sent(Query("x" * 640), "r0", 0.0)  # long evicted there
    query = Query("x" * 640, tokens=160, cached={"r0": 0, "r1": 120})
    decision = policy.choose(query, fleet(0, 0), 1.0)
    assert (decision.replica, decision.match_rate) == ("r1", 0.75)


def test_prefix_affinity_holds_until_too_many_uncached_tokens_are_in_flight() -> None:
    policy = policy_named("prefix_affinity", {"uncached_tokens_limit": 1000})
    policy.sent(Query("x" * 640, tokens=160, id=1), "r0", 0.0)
    again = Query("x" * 640, tokens=160, id=2)
    assert policy.choose(again, fleet(0, 0), 1.0).kind == "affinity"
    policy.sent(Query("y" * 64_000, tokens=16_000, id=3), "r0", 1.0)
    overloaded = policy.choose(again, fleet(0, 0), 2.0)
    assert (overloaded.kind, overloaded.replica) == ("token_load", "r1")
    assert policy.state().uncached_tokens_in_flight == {"r0": 16_160}
    policy.finished(Query(id=3), "r0", 3.0)
    assert policy.choose(again, fleet(0, 0), 3.0).replica == "r0"
    below = Query("x" * 320 + "z" * 320, tokens=160, id=4)
    assert policy.choose(below, fleet(0, 0), 3.0).kind == "token_load"  # a match of one half


# -- session affinity ------------------------------------------------------------------------------------------------


def test_a_session_stays_and_only_the_share_of_a_lost_replica_moves() -> None:
    policy = policy_named("session_affinity")
    sessions = [Query(session=f"user-{at}") for at in range(400)]
    before = [policy.choose(query, fleet(0, 0, 0, 0), 0.0).replica for query in sessions]
    assert before == [policy.choose(query, fleet(0, 0, 0, 0), 9.0).replica for query in sessions]
    assert min(Counter(before).values()) > 50
    after = [policy.choose(query, fleet(0, 0, 0), 10.0).replica for query in sessions]
    assert all(was == now for was, now in zip(before, after, strict=True) if was != "r3")


def test_a_session_goes_on_where_its_replica_has_more_than_its_bound() -> None:
    policy = policy_named("session_affinity")
    home = policy.choose(Query(session="s"), fleet(0, 0, 0), 0.0)
    assert home.kind == "session"
    loads = [Replica(f"r{at}", 40 if f"r{at}" == home.replica else 1) for at in range(3)]
    away = policy.choose(Query(session="s"), loads, 1.0)
    assert away.kind == "session_overflow"
    assert away.replica == home.candidates[1].replica  # the next on the ring
    assert policy.choose(Query(), fleet(4, 1), 0.0).kind == "no_session"


# -- names and settings ----------------------------------------------------------------------------------------------


def test_every_registered_policy_knows_its_name() -> None:
    assert {name: policy_class(name).name for name in POLICIES} == {name: name for name in POLICIES}


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("prefix-aware", {}, "policy must be one of random, round_robin, .*, got prefix-aware"),
        ("prefix_aware", {"treshold": 1}, "prefix_aware has no setting treshold; its settings: defaults, imbalanced_"),
        ("random", {"seed": 1}, "random has no setting seed; its settings: none"),
        (
            "prefix_aware",
            {"match_rate_threshold": 2},
            "match_rate_threshold of prefix_aware must be at most 1, got 2",
        ),
        (
            "cache_aware",
            {"balance_abs_threshold": "many"},
            "balance_abs_threshold of cache_aware must be a whole number, got many",
        ),
        ("prefix_aware", {"defaults": "old"}, "defaults of prefix_aware must be current or original, got old"),
        (
            "prefix_aware",
            {"do_eviction": True, "eviction_threshold_chars": 6000},
            "eviction_target_chars must be at most eviction_threshold_chars",
        ),
    ],
)
def test_a_wrong_policy_or_setting_is_named(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        policy_named(name, settings)
