"""The scenarios of bench/routing.py: fleets, tapes and loads as plans, every parameter written out."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Plan = dict[str, Any]
Strategy = tuple[str, str, dict[str, Any]]  # label, policy, settings

POWER_OF_TWO: Strategy = ("power_of_two", "power_of_two", {})
RAY: Strategy = ("prefix_aware", "prefix_aware", {"defaults": "original"})
RAY_NOW: Strategy = ("prefix_aware, current", "prefix_aware", {"defaults": "current"})
SGLANG: Strategy = ("cache_aware", "cache_aware", {})
LLMD: Strategy = ("block_prefix", "block_prefix", {})
AFFINITY: Strategy = ("prefix_affinity", "prefix_affinity", {})
OTHERS: list[Strategy] = [(name, name, {}) for name in ("random", "round_robin", "least_loaded", "session_affinity")]
ALL = [POWER_OF_TWO, RAY, RAY_NOW, SGLANG, LLMD, AFFINITY, *OTHERS]
MAPPED = [POWER_OF_TWO, OTHERS[2], RAY, RAY_NOW, SGLANG, LLMD]

L4 = {"preset": "qwen2.5-1.5b/l4"}
PUBLISHED_LOAD = {"type": "poisson", "rate": 100, "max_concurrency": 40}
MAP_RATES = (2, 8, 14, 20, 26)  # requests/s, all four replicas together
MAP_SHARES = (0.0, 0.25, 0.5, 0.75, 0.95)  # share of a prompt that is common to its group
MAP_PROMPT, MAP_GROUPS = 4000, 64


@dataclass(frozen=True)
class Cell:
    """One plan under several strategies."""

    scenario: str
    cell: dict[str, Any]
    plan: Plan
    strategies: list[Strategy]


def _fleet(replicas: int, engine: Plan) -> Plan:
    return {"type": "fleet", "replicas": replicas, "of": {"type": "simulator", "args": engine}}


def published(engine: Plan | None = None, **changes: Any) -> Plan:
    """S2's sweep: four replicas, 1,000 prompts in groups of three, rate 100 with 40 in flight, the tape twice."""
    return {
        "server": _fleet(4, {**L4, **(engine or {})}),
        "workload": {"type": "conversation_pieces", "prefix_header": "X-Prefix-ID"},
        "load": PUBLISHED_LOAD,
        "stop": {"requests": 1000, "drain": "1h"},
        "warmup": {"tape": True},
        **changes,
    }


def generated(groups: int, prefix: int, suffix: int, **more: Any) -> Plan:
    """S2's second dataset, with a separate prompt for every request unless `prompts` is set."""
    shared = {"tokens": prefix, "suffix_tokens": suffix, "groups": groups, "header": "X-Prefix-ID", **more}
    return {"prefix": shared, "output_tokens": "10-200"}


def of_published() -> Iterator[Cell]:
    yield Cell("published", {"tape": "conversation pieces"}, published(), ALL)
    shared = {"workload": generated(1000, 1000, 1000, prompts=2)}
    yield Cell(
        "published",
        {"tape": "generated-shared-prefix"},
        published(stop={"requests": 2000, "drain": "1h"}, **shared),
        ALL[:5],
    )


def of_turns() -> Iterator[Cell]:
    """When the published result changes: one setting is changed at a time."""
    strategies = [POWER_OF_TWO, RAY, RAY_NOW, LLMD]

    def pieces(groups: int, each: int) -> Plan:
        return {"type": "conversation_pieces", "groups": groups, "pieces": each, "prefix_header": "X-Prefix-ID"}

    skewed = {"workload": generated(333, 3000, 100, zipf=1.2)}
    changed = {
        "as published": published(),
        "low load: 1 req/s": published(load={"type": "poisson", "rate": 1}),
        "low load: 4 in flight": published(load={**PUBLISHED_LOAD, "max_concurrency": 4}),
        "high load: 160 in flight": published(load={**PUBLISHED_LOAD, "max_concurrency": 160}),
        "few groups: 4": published(workload=pieces(4, 250)),
        "skewed groups: zipf 1.2": published(**skewed),
        "cache 1/4": published({"blocks": 10_092}),
        "cache 1/16": published({"blocks": 2_523, "max_model_len": 8_400}),
        "one hot prefix": published(workload=pieces(1, 1000)),
        "one hot prefix, 160 in flight": published(
            workload=pieces(1, 1000), load={**PUBLISHED_LOAD, "max_concurrency": 160}
        ),
        "cold: no warm-up": published(warmup={}),
    }
    for name, plan in changed.items():
        yield Cell("turns", {"change": name}, plan, strategies)


def of_map() -> Iterator[Cell]:
    """The best policy by load and share of the common prefix: new prompts of 4,000 tokens in 64 groups."""
    for rate in MAP_RATES:
        for share in MAP_SHARES:
            prefix = round(MAP_PROMPT * share)
            plan = published(
                workload=generated(MAP_GROUPS, prefix, MAP_PROMPT - prefix)
                if prefix
                else {"input_tokens": MAP_PROMPT, "output_tokens": "10-200"},
                load={"type": "poisson", "rate": rate},
                stop={"requests": 400, "drain": "1h"},
                warmup={"requests": 200},
            )
            yield Cell("map", {"rate": rate, "share": share}, plan, MAPPED)


def of_llmd() -> Iterator[Cell]:
    """llm-d's: 8 pods of 2 H100 with 307,328 KV tokens, 150 groups of 6,000 tokens, 5 users with 1,200-token questions,
    1,000 output tokens, Poisson from 3 to 60 requests/s; and steady rates after one pass over the 750 prompts."""
    engine = {"preset": "qwen3-32b/h100x2", "blocks": 307_328 // 16}
    plan = {
        "server": _fleet(8, engine),
        "workload": {
            "prefix": {"tokens": 6000, "suffix_tokens": 1200, "groups": 150, "prompts": 5},
            "output_tokens": 1000,
        },
        "load": {"stages": [{"rate": rate, "duration": "20s"} for rate in (3, 10, 20, 30, 40, 50, 60)]},
        "stop": {"drain": "1h"},
    }
    strategies: list[Strategy] = [
        ("precise", "block_prefix", {"precise": True}),
        ("approximate", "block_prefix", {}),
        ("load", "block_prefix", {"prefix_weight": 0}),
        ("random", "random", {}),
        ("affinity 0.8", "prefix_affinity", {}),
    ]
    yield Cell("llm-d", {"requests/s": "3 to 60"}, plan, strategies)
    for rate in (8, 12, 20):
        steady = {"load": {"type": "poisson", "rate": rate}, "warmup": {"requests": 750}}
        stop = {"requests": 750 + 40 * rate, "drain": "1h"}
        yield Cell("llm-d", {"requests/s": rate}, {**plan, **steady, "stop": stop}, strategies)


def of_sglang() -> Iterator[Cell]:
    """SGLang 0.4's: 64 groups of 16 prompts of 2,048 + 128 tokens at once on 8 replicas; 256 output tokens."""
    plan = {
        "server": _fleet(8, {"preset": "llama-3.1-8b/a100-80gb", "max_batched_tokens": 8192}),
        "workload": {
            "prefix": {"tokens": 2048, "suffix_tokens": 128, "groups": 64, "prompts": 16},
            "output_tokens": 256,
        },
        "load": {"type": "constant", "rate": 100_000},
        "stop": {"requests": 1024, "drain": "1h"},
    }
    yield Cell("sglang", {"sent": "all at once"}, plan, [OTHERS[1], SGLANG])
    capped = {**plan, "load": {"type": "constant", "rate": 100_000, "max_concurrency": 128}}
    yield Cell("sglang", {"sent": "128 in flight"}, capped, [OTHERS[1], SGLANG])


def of_control() -> Iterator[Cell]:
    """Prefix alone compared with prefix and load, if every prompt begins with the same 3,000 tokens; served means
    answered within 30 s of its scheduled time."""
    strategies: list[Strategy] = [
        ("prefix only", "block_prefix", {"queue_weight": 0, "kv_weight": 0}),
        ("prefix + load", "block_prefix", {}),
        ("prefix + load, queue 3", "block_prefix", {"queue_weight": 3}),
        RAY,
    ]
    for rate in (16, 60):
        plan = published(
            workload=generated(1, 3000, 100),
            load={"type": "poisson", "rate": rate},
            warmup={"requests": 100},
            stop={"requests": 50 * rate, "drain": "1h"},
        )
        yield Cell("control", {"requests/s": rate}, plan, strategies)


SCENARIOS = {
    "published": of_published,
    "turns": of_turns,
    "map": of_map,
    "llm-d": of_llmd,
    "sglang": of_sglang,
    "control": of_control,
}
