"""llm-d's routing: the start of a prompt as a chain of hashed blocks, with replicas scored by how many of them they
hold and by their load. `block_prefix` adds up weighted scores; `prefix_affinity`, llm-d's newer default, sends a prompt
to the replicas with its prefix until too many tokens wait there."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec

from inferometer.router.policy import Candidate, Decision, Policy, PolicyState, Query, Replica, available, tokens_of

CHARS_PER_TOKEN = 4  # llm-d's estimate
_Weight = Annotated[float, msgspec.Meta(ge=0)]
_Count = Annotated[int, msgspec.Meta(ge=1)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class BlockIndex:
    """Which hashed blocks were sent to which replica; the oldest are dropped beyond a capacity per replica."""

    def __init__(self, block_chars: int, most_blocks: int, capacity: int) -> None:
        self._block_chars = block_chars
        self._most_blocks = most_blocks
        self._capacity = capacity
        self._held: dict[str, OrderedDict[int, None]] = {}
        self.evicted = 0

    def hashes(self, query: Query) -> list[int]:
        """The hash of every block together with all blocks before it; the last may be shorter. A prompt shorter than
        one block has none."""
        size, text = self._block_chars, query.text
        if len(text) < size:
            return []
        chain, made = hash(query.model), []
        for start in range(0, min(len(text), size * self._most_blocks), size):
            chain = hash((chain, text[start : start + size]))
            made.append(chain)
        return made

    def matches(self, hashes: list[int], names: Iterable[str]) -> dict[str, int]:
        """Number of blocks that each replica holds; counting stops at the first block that none has, as in llm-d."""
        counted = dict.fromkeys(names, 0)
        for block in hashes:
            having = [name for name in counted if block in self._held.get(name, ())]
            if not having:
                break
            for name in having:
                counted[name] += 1
        return counted

    def insert(self, hashes: list[int], name: str) -> None:
        held = self._held.setdefault(name, OrderedDict())
        for block in hashes:
            held[block] = None
            held.move_to_end(block)
        while len(held) > self._capacity:
            held.popitem(last=False)
            self.evicted += 1

    def remove(self, name: str) -> None:
        self._held.pop(name, None)

    def sizes(self) -> dict[str, int]:
        return {name: len(held) for name, held in self._held.items()}


class _BlockSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    block_tokens: _Count = 16
    max_prefix_blocks: _Count = 256
    lru_capacity_per_server: _Count = 31_250  # blocks
    precise: bool = False  # matches from the replicas' own caches, if they report them


class _BlockPolicy(Policy):
    """Common to both: the index of blocks, and the share of a prompt held by every replica."""

    needs_text = True

    def __init__(self, settings: _BlockSettings, seed: int) -> None:
        super().__init__(settings, seed)
        self._chars = settings.block_tokens * CHARS_PER_TOKEN
        self.index = BlockIndex(self._chars, settings.max_prefix_blocks, settings.lru_capacity_per_server)

    def _rates(self, query: Query, left: list[Replica]) -> dict[str, float]:
        """Share of the prompt held by every replica: from its own report in precise mode, else from the index."""
        names = [replica.name for replica in left]
        if self.settings.precise and query.cached is not None:
            tokens = max(tokens_of(query), 1)
            return {name: min(query.cached.get(name, 0) / tokens, 1.0) for name in names}
        hashes = self.index.hashes(query)
        matches = self.index.matches(hashes, names)
        return {name: count / len(hashes) if hashes else 0.0 for name, count in matches.items()}

    def _decision(self, query: Query, kind: str, scores: Mapping[str, float], rates: Mapping[str, float]) -> Decision:
        """The replica with the highest score; a random one if several are equal."""
        best = max(scores.values())
        chosen = self._random.choice([name for name, score in scores.items() if score == best])
        candidates = tuple(Candidate(name, score) for name, score in scores.items())
        matched = min(round(rates[chosen] * len(query.text)), len(query.text))
        return Decision(chosen, kind, candidates, matched, rates[chosen])

    def sent(self, query: Query, replica: str, now_s: float) -> None:
        self.index.insert(self.index.hashes(query), replica)

    def removed(self, replica: str) -> None:
        self.index.remove(replica)

    def state(self) -> PolicyState:
        sizes = self.index.sizes()
        held = {name: blocks * self._chars for name, blocks in sizes.items()}
        return PolicyState(held, sum(sizes.values()), self.index.evicted, self.index.evicted * self._chars)


class BlockPrefixSettings(_BlockSettings, frozen=True, forbid_unknown_fields=True):
    """Weights of the scorers, whose scores are between 0 and 1: llm-d's benchmarks use prefix 2, queue 1, kv 1."""

    prefix_weight: _Weight = 2.0
    queue_weight: _Weight = 1.0  # requests waiting at the replica; in flight, if it does not report them
    kv_weight: _Weight = 1.0  # free share of its KV cache; ignored if it is not reported
    running_weight: _Weight = 0.0  # requests in flight
    tokens_weight: _Weight = 0.0  # prompt tokens in flight
    tokens_limit: _Count = 4_194_304  # this many tokens in flight score 0


class BlockPrefix(_BlockPolicy):
    """The highest weighted sum. Decisions: `prefix_score` if the chosen replica holds a part of the prompt, else
    `load_score`."""

    name = "block_prefix"
    Settings = BlockPrefixSettings
    needs_metrics = True

    def choose(self, query: Query, replicas: Sequence[Replica], now_s: float) -> Decision:
        left = available(replicas)
        settings = self.settings
        rates = self._rates(query, left)
        waiting = [replica.in_flight if replica.waiting is None else replica.waiting for replica in left]
        by_queue = _fewer_is_better(waiting)
        by_running = _fewer_is_better([replica.in_flight for replica in left])
        scores = {
            replica.name: settings.prefix_weight * rates[replica.name]
            + settings.queue_weight * by_queue[at]
            + settings.kv_weight * (0.0 if replica.kv_usage is None else 1.0 - replica.kv_usage)
            + settings.running_weight * by_running[at]
            + settings.tokens_weight * (1.0 - min(1.0, replica.tokens_in_flight / settings.tokens_limit))
            for at, replica in enumerate(left)
        }
        decision = self._decision(query, "prefix_score", scores, rates)
        return decision if decision.match_rate else msgspec.structs.replace(decision, kind="load_score")


def _fewer_is_better(counts: list[int]) -> list[float]:
    """(most - n) / (most - least), 1 if all are equal."""
    most, least = max(counts), min(counts)
    return [1.0 if most == least else (most - count) / (most - least) for count in counts]


class PrefixAffinitySettings(_BlockSettings, frozen=True, forbid_unknown_fields=True):
    """llm-d's newer default: affinity from a match of 0.8, up to 286,720 uncached tokens in flight."""

    affinity_threshold: _Share = 0.8
    uncached_tokens_limit: _Count = 286_720
    exploration_probability: _Share = 0.0  # share of prompts that ignore affinity, so that a hot prefix spreads


class PrefixAffinity(_BlockPolicy):
    """Among the replicas that hold enough of the prompt and have few enough uncached tokens in flight, the one with the
    fewest of them (`affinity`); if there is none, among all (`token_load`). Uncached tokens are the router's estimate
    when it sent a request: tokens of the prompt without the matched share."""

    name = "prefix_affinity"
    Settings = PrefixAffinitySettings

    def __init__(self, settings: PrefixAffinitySettings, seed: int) -> None:
        super().__init__(settings, seed)
        self._uncached: dict[str, int] = {}  # tokens in flight by replica
        self._expected: dict[tuple[int, str], int] = {}  # by request id and replica, so that its end subtracts the same

    def choose(self, query: Query, replicas: Sequence[Replica], now_s: float) -> Decision:
        left = available(replicas)
        rates = self._rates(query, left)
        settings = self.settings
        affine = [
            replica.name
            for replica in left
            if rates[replica.name] >= settings.affinity_threshold
            and self._uncached.get(replica.name, 0) <= settings.uncached_tokens_limit
        ]
        if settings.exploration_probability and self._random.random() < settings.exploration_probability:
            affine = []
        names = affine or [replica.name for replica in left]
        scores = {name: float(-self._uncached.get(name, 0)) for name in names}
        return self._decision(query, "affinity" if affine else "token_load", scores, rates)

    def sent(self, query: Query, replica: str, now_s: float) -> None:
        rate = self._rates(query, [Replica(replica)])[replica]
        uncached = round(tokens_of(query) * (1 - rate))
        self._expected[query.id, replica] = uncached
        self._uncached[replica] = self._uncached.get(replica, 0) + uncached
        super().sent(query, replica, now_s)

    def finished(self, query: Query, replica: str, now_s: float) -> None:
        uncached = self._expected.pop((query.id, replica), 0)
        if replica in self._uncached:
            self._uncached[replica] -= uncached

    def removed(self, replica: str) -> None:
        super().removed(replica)
        self._uncached.pop(replica, None)
        self._expected = {key: uncached for key, uncached in self._expected.items() if key[1] != replica}

    def state(self) -> PolicyState:
        return msgspec.structs.replace(super().state(), uncached_tokens_in_flight=dict(self._uncached))
