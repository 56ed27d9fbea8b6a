"""Policies with a prefix tree, which records what was sent where: Ray Serve's prefix-aware routing and SGLang's
cache-aware routing."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from inferometer.router.policy import (
    Decision,
    Eviction,
    Policy,
    PolicyState,
    Query,
    Replica,
    available,
    by_load,
    extremes_of_load,
    least_loaded,
)
from inferometer.router.prefix_tree import PrefixTree


class TreePolicy(Policy):
    """A subclass implements `choose`, and `_excess`: how many of its characters a replica has to lose."""

    needs_text = True
    leaf_by_leaf: ClassVar[bool] = False

    def __init__(self, settings: Any, seed: int) -> None:
        super().__init__(settings, seed)
        self.tree = PrefixTree()
        self._evict_at: float | None = None

    def _excess(self, held: int) -> int:
        raise NotImplementedError

    def sent(self, query: Query, replica: str, now_s: float) -> None:
        self.tree.insert(query.text, replica, now_s)

    def added(self, replica: str) -> None:
        self.tree.add(replica)

    def removed(self, replica: str) -> None:
        self.tree.remove(replica)

    def evict(self, now_s: float) -> list[Eviction]:
        """Runs at the end of every interval; the first interval starts with the first call."""
        if self.eviction_interval_s is None:
            return []
        if self._evict_at is None:
            self._evict_at = now_s + self.eviction_interval_s
        if now_s < self._evict_at:
            return []
        self._evict_at = now_s + self.eviction_interval_s
        excess = {name: self._excess(held) for name, held in self.tree.chars.items()}
        return [
            Eviction(name, self.tree.evict(name, chars, self.leaf_by_leaf))
            for name, chars in excess.items()
            if chars > 0
        ]

    def state(self) -> PolicyState:
        tree = self.tree
        return PolicyState(tree.chars, tree.nodes, tree.evictions, tree.evicted_chars)


_AtLeast0 = Annotated[float, msgspec.Meta(ge=0)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Chars = Annotated[int, msgspec.Meta(ge=1)]


class PrefixAwareSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ray's names. Unset values come from Ray's `current` defaults (never unbalanced, no eviction) or from the
    `original` ones of the first version and its documentation (10 requests, eviction)."""

    defaults: Literal["current", "original"] = "current"
    imbalanced_threshold: _AtLeast0 | None = None  # difference in requests in flight, most minus least
    match_rate_threshold: _Share = 0.1
    do_eviction: bool | None = None
    eviction_threshold_chars: _Chars = 400_000  # per replica
    eviction_target_chars: _Chars = 360_000
    eviction_interval_s: Annotated[float, msgspec.Meta(gt=0)] = 10.0

    def __post_init__(self) -> None:
        if self.evicts and self.eviction_target_chars > self.eviction_threshold_chars:
            raise ValueError(
                f"eviction_target_chars must be at most eviction_threshold_chars ({self.eviction_threshold_chars}), "
                f"got {self.eviction_target_chars}"
            )

    @property
    def imbalance(self) -> float:
        default = 10.0 if self.defaults == "original" else math.inf
        return default if self.imbalanced_threshold is None else self.imbalanced_threshold

    @property
    def evicts(self) -> bool:
        return self.defaults == "original" if self.do_eviction is None else self.do_eviction


class PrefixAware(TreePolicy):
    """Decisions: `prefix_match`, `smallest_tree` if too little matches, and power of two choices if the load is uneven
    (`fallback_imbalanced`) or there is no text (`fallback_no_text`).

    Three things differ from Ray. A full replica is skipped; in Ray a request waits for its matching replicas. The
    replicas with the smallest tree are searched among the available ones only; Ray uses all known ones. And the tree
    holds at most 2**26 characters per replica, even without eviction.
    """

    name = "prefix_aware"
    Settings = PrefixAwareSettings

    def __init__(self, settings: PrefixAwareSettings, seed: int) -> None:
        super().__init__(settings, seed)
        self.eviction_interval_s = settings.eviction_interval_s if settings.evicts else None

    def choose(self, query: Query, replicas: Sequence[Replica], now_s: float) -> Decision:
        left = available(replicas)
        most, least = extremes_of_load(replicas)
        if most - least > self.settings.imbalance:
            return self._of_two(left, "fallback_imbalanced")
        if not query.text:
            return self._of_two(left, "fallback_no_text")
        names = [replica.name for replica in left]
        matched, owners = self.tree.match(query.text, names)
        rate = matched / len(query.text)
        if rate < self.settings.match_rate_threshold:
            kind, owners = "smallest_tree", self.tree.smallest(names)
        else:
            kind = "prefix_match"
        best = [replica for replica in left if replica.name in owners]
        if not best:  # a threshold of 0 and a tree without any of them
            return self._of_two(left, "fallback_no_match")
        return Decision(least_loaded(best, self._random).name, kind, by_load(best), matched, rate)

    def _of_two(self, left: list[Replica], kind: str) -> Decision:
        two = self._random.sample(left, min(2, len(left)))
        return Decision(least_loaded(two, self._random).name, kind, by_load(two))

    def _excess(self, held: int) -> int:
        """A replica with more characters than the threshold is reduced to the target."""
        settings: PrefixAwareSettings = self.settings
        return held - settings.eviction_target_chars if held > settings.eviction_threshold_chars else 0


class CacheAwareSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """SGLang's names and the defaults of its command line; its library's own are 0.5, 32, 1.1, 30 s and 10,000."""

    cache_threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.3
    balance_abs_threshold: Annotated[int, msgspec.Meta(ge=0)] = 64
    balance_rel_threshold: Annotated[float, msgspec.Meta(ge=1)] = 1.5
    eviction_interval_s: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    max_tree_size: Annotated[int, msgspec.Meta(ge=1)] = 1 << 26  # characters per replica
    low_match: Literal["least_loaded", "smallest_tree"] = "least_loaded"  # the latter until SGLang 0.5.6


class CacheAware(TreePolicy):
    """Decisions: `cache_match`; `least_loaded_imbalanced` if the load is uneven; if too little matches `least_loaded`
    or, as in older versions, `smallest_tree`.

    A prefix stays with the replica that received it first, even if an uneven load sent it to others later: SGLang sets
    the `last_tenant` of a node when the node is created (tree.rs), and its routers behave accordingly.
    """

    name = "cache_aware"
    Settings = CacheAwareSettings
    leaf_by_leaf = True

    def __init__(self, settings: CacheAwareSettings, seed: int) -> None:
        super().__init__(settings, seed)
        self.eviction_interval_s = settings.eviction_interval_s

    def choose(self, query: Query, replicas: Sequence[Replica], now_s: float) -> Decision:
        left = available(replicas)
        if self._is_imbalanced(*extremes_of_load(replicas)):
            return Decision(least_loaded(left, self._random).name, "least_loaded_imbalanced", by_load(left))
        names = [replica.name for replica in left]
        matched, owners = self.tree.match(query.text, names)
        rate = matched / len(query.text) if query.text else 0.0
        if rate > self.settings.cache_threshold:
            first = next(replica for replica in left if replica.name == owners[0])
            return Decision(first.name, "cache_match", by_load([first]), matched, rate)
        if self.settings.low_match == "least_loaded":
            return Decision(least_loaded(left, self._random).name, "least_loaded", by_load(left), matched, rate)
        smallest = self.tree.smallest(names)
        best = [replica for replica in left if replica.name in smallest]
        return Decision(self._random.choice(best).name, "smallest_tree", by_load(best), matched, rate)

    def _is_imbalanced(self, most: int, least: int) -> bool:
        settings: CacheAwareSettings = self.settings
        return most - least > settings.balance_abs_threshold and most > settings.balance_rel_threshold * least

    def _excess(self, held: int) -> int:
        size: int = self.settings.max_tree_size
        return held - size
