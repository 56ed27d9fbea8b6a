"""A fleet in virtual time: records by replica, what the router and the replicas report, regret, and its plans."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from inferometer.conduct.run import simulate
from inferometer.errors import PlanError
from inferometer.measure.server import cached_by_replica
from inferometer.measure.telemetry import ROUTER
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.record.record import Samples
from inferometer.router.virtual import FleetRehearsal, rehearse_fleet
from inferometer.show.charts.chart import ChartedRun
from inferometer.show.charts.routing import cache_hits, tree_against_cache
from inferometer.show.tables import server_table

ENGINE = {"blocks": 2000, "max_model_len": 2000, "max_sequences": 16, "max_batched_tokens": 512}


def plan_of(policy: str = "round_robin", replicas: int = 3, **more: Any) -> Plan:
    server = {
        "type": "fleet",
        "replicas": replicas,
        "of": {"type": "simulator", "args": more.pop("engine", ENGINE)},
        "router": {"policy": policy, "settings": more.pop("settings", {}), **more.pop("router", {})},
    }
    usual = {
        "workload": {"prefix": {"tokens": 400, "suffix_tokens": 60, "groups": 12, "prompts": 10}, "output_tokens": 20},
        "load": {"rate": 40, "type": "poisson"},
        "stop": {"requests": 120},
    }
    return plan_from({**usual, **more, "server": server})


def rehearsed(policy: str = "round_robin", **more: Any) -> FleetRehearsal:
    return rehearse_fleet(plan_of(policy, **more))


def test_records_carry_the_replica_that_answered() -> None:
    done = rehearsed("round_robin")
    replicas = Counter(done.records.replica[at] for at in range(len(done.records)))
    assert replicas == {"replica-1": 40, "replica-2": 40, "replica-3": 40}
    assert {name: counts.requests for name, counts in done.replicas.items()} == replicas
    assert sum(counts.cached_tokens for counts in done.replicas.values()) == done.records.cached_tokens.sum()


def test_the_same_plan_gives_the_same_records_and_another_seed_does_not() -> None:
    first, again, other = (rehearsed("power_of_two", seed=seed) for seed in (4, 4, 5))
    assert np.array_equal(first.records.ended_at, again.records.ended_at)
    assert [choice.replica for choice in first.journal.choices] == [choice.replica for choice in again.journal.choices]
    assert not np.array_equal(first.records.ended_at, other.records.ended_at)


def test_one_replica_is_one_simulator() -> None:
    """The router adds nothing of its own: a fleet of one gives the same instants as a simulator alone."""
    from inferometer.router.virtual import fleet_settings
    from inferometer.simulator.virtual import rehearse

    plan = plan_of("random", replicas=1)
    alone, _ = rehearse(plan, fleet_settings(plan).engines[0], nonce=f"seed {plan.seed}")
    assert np.array_equal(rehearse_fleet(plan).records.ended_at, alone.ended_at)


def test_prefix_routing_is_cached_more_and_has_less_regret_than_round_robin() -> None:
    by_turn, by_prefix = rehearsed("round_robin"), rehearsed("prefix_aware")
    assert by_prefix.records.cached_tokens.sum() > 1.2 * by_turn.records.cached_tokens.sum()
    regrets = [done.journal.totals().regret_tokens for done in (by_turn, by_prefix)]
    assert regrets[1] < 0.2 * regrets[0]
    kinds = by_prefix.journal.totals().kinds
    assert sum(kinds.values()) == 120
    assert kinds["prefix_match"] > 90


def test_regret_is_counted_against_the_best_cache_at_that_instant() -> None:
    for choice in rehearsed("random").journal.choices:
        assert 0 <= choice.cached_tokens <= choice.best_cached_tokens <= 460
    precise = rehearsed("block_prefix", settings={"precise": True, "queue_weight": 0, "kv_weight": 0})
    assert precise.journal.totals().regret_tokens == 0  # it looks into the caches and at nothing else


@pytest.mark.parametrize(
    ("policy", "settings", "levels"),
    [
        (
            "prefix_aware",
            {"defaults": "original", "eviction_threshold_chars": 6000, "eviction_target_chars": 4000},
            [1500, 1000],
        ),
        ("prefix_aware", {"eviction_threshold_chars": 6000}, []),  # by Ray's own defaults nothing is evicted
        ("cache_aware", {"max_tree_size": 8000}, [2000]),
        ("cache_aware", {}, []),  # 2**26 characters: a line there would hide the trees
    ],
)
def test_the_chart_of_the_tree_has_lines_where_it_is_evicted(
    policy: str, settings: dict[str, Any], levels: list[float]
) -> None:
    drawn = tree_against_cache(ChartedRun(simulate(plan_of(policy, settings=settings))))
    upper, middle, lower = drawn["vconcat"]
    assert "Prompt tokens since the start" in str(middle["title"]) and "KV cache filled" in str(lower["title"])
    drawn_at = [
        [row["value"] for row in layer["data"]["values"]]
        for layer in upper["layer"]
        if layer["mark"]["type"] == "rule" and "y" in layer["encoding"]
    ]
    assert drawn_at == ([levels] if levels else [])
    subtitle = str(upper["title"])
    assert all(f"{level:,.0f} tokens" in subtitle for level in levels)
    assert ("far above this chart" in subtitle) == (policy == "cache_aware" and not levels)


def test_samples_tell_queues_caches_trees_and_decisions() -> None:
    run = simulate(plan_of("prefix_aware", settings={"defaults": "original", "eviction_interval_s": 0.5}))
    samples = run.samples
    assert samples is not None
    for name in ("running", "queued", "kv_usage", "kv_filled", "prefix_hits", "queue_time_sum"):
        at, _ = samples.series(name, "simulator://replica-1")
        assert len(at) >= 4
    rates = [samples.series(name, ROUTER) for name in ("decision", "match_rate", "search_s", "best_cached_tokens")]
    assert {len(at) for at, _ in rates} == {120}
    assert sorted(rates[0][1].tolist()) == list(range(120))
    assert 0.5 < rates[1][1].mean() < 1
    tree = samples.series("tree_chars", ROUTER)[1]
    assert tree.max() > 1000
    server = run.summary.server
    assert server is not None and server.prefix_hit_rate is not None
    records = run.records
    assert records is not None
    assert server.prefix_hit_rate == pytest.approx(records.cached_tokens.sum() / records.input_tokens.sum())
    assert server.counters["requests_ok"].grown == 120
    by_counters = cached_by_replica(samples, None)
    by_answers = cached_by_replica(Samples.of([]), records)
    assert len(by_counters) == len(by_answers) == 3
    for source in server.sources:
        name = source.url.rpartition("://")[2]
        for _, cached, asked in (by_counters[name], by_answers[name]):
            assert source.prefix_hit_rate == pytest.approx((cached[-1] - cached[0]) / (asked[-1] - asked[0]))
    drawn = cache_hits(ChartedRun(run))
    assert {row["series"] for row in drawn["data"]["values"]} == set(by_counters)
    table = server_table(run.summary)
    assert table is not None and any("by replica)" in str(cell) for cell in table.columns[1].cells)


def test_evictions_are_sampled() -> None:
    small = {"defaults": "original", "eviction_interval_s": 0.5, "eviction_threshold_chars": 4000}
    run = simulate(plan_of("prefix_aware", settings={**small, "eviction_target_chars": 2000}))
    assert run.samples is not None
    assert run.samples.series("evicted_chars", ROUTER)[1].sum() > 1000
    assert (run.samples.series("eviction_s", ROUTER)[1] > 0).all()


def test_a_tape_is_sent_again_when_its_first_pass_is_answered() -> None:
    load = {"type": "poisson", "rate": 1000, "max_concurrency": 8}
    done = rehearsed("round_robin", load=load, warmup={"tape": True}, stop={"requests": 120, "drain": "5min"})
    records = done.records
    warm = records.session < 120
    assert warm.sum() == 120 and len(records) == 240
    assert records.scheduled_at[~warm].min() >= records.ended_at[warm].max()
    gaps = [np.diff(np.sort(records.scheduled_at[part])).mean() for part in (warm, ~warm)]
    assert gaps[1] == pytest.approx(gaps[0], rel=0.4)  # arrivals go on at their own rate
    assert records.input_tokens[~warm].sum() == records.input_tokens[warm].sum()


def test_a_closed_loop_waits_for_the_tape_too() -> None:
    load = {"concurrency": 8}
    records = rehearsed("round_robin", load=load, warmup={"tape": True}, stop={"requests": 60}).records
    warm = records.session < 60
    assert len(records) == 120
    assert records.sent_at[~warm].min() >= records.ended_at[warm].max()


def test_full_replicas_let_requests_wait_in_the_router() -> None:
    load = {"type": "poisson", "rate": 1000}
    done = rehearsed("least_loaded", router={"max_in_flight": 2}, load=load, stop={"requests": 60, "drain": "5min"})
    assert done.records.outcome.counts() == {"ok": 60}
    edges = np.concatenate([done.records.headers_at, done.records.ended_at])
    steps = np.concatenate([np.ones(60), -np.ones(60)])[np.argsort(edges, kind="stable")]
    assert steps.cumsum().max() <= 6, "three replicas with two at once"
    waited = done.records.headers_at - done.records.sent_at
    assert waited.max() > 10 * waited.min(), "waiting in the router is part of what a client sees"
    cut = rehearsed("least_loaded", router={"max_in_flight": 1}, load=load, stop={"requests": 60, "drain": "100ms"})
    assert len(cut.records) == 60
    assert "unfinished" in cut.records.outcome.counts()


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ({"type": "fleet"}, "server.replicas is missing"),
        ({"type": "fleet", "replicas": 0}, "server.replicas must be"),
        ({"type": "fleet", "replicas": 2, "router": "fastest"}, "policy must be one of random, .* got fastest"),
        ({"type": "fleet", "replicas": 2, "router": {"settings": {"x": 1}}}, "prefix_aware has no setting x"),
        ({"type": "fleet", "replicas": 2, "of": "external"}, "server.of.* external"),
        ({"type": "fleet", "replicas": 2, "of": {"args": {"blokcs": 1}}}, "server.of.args.blokcs is not a setting"),
        ({"type": "fleet", "replicas": 2, "of": {"type": "command", "command": "a {port}"}}, "simulator in virtual"),
        (
            {"type": "fleet", "replicas": 2, "router": {"type": "nginx", "policy": "random"}},
            "router.type must be inferom",
        ),
        ({"type": "simulator", "replicas": 2}, "server.replicas belongs to type fleet or ray-serve, but type is"),
    ],
)
def test_mistakes_are_named(server: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        simulate(plan_from({"server": server, "stop": {"requests": 2}}))
