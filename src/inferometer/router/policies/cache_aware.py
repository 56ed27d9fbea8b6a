"""SGLang's cache-aware routing: to whoever used the longest beginning of this prompt last, unless the load is uneven or
too little matches."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from inferometer.router.policies.tree import TreePolicy
from inferometer.router.policy import Decision, Query, Replica, available, by_load, least_loaded


class CacheAwareSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """SGLang's names and the defaults of its command line; its library's own are 0.5, 32, 1.1, 30 s and 10,000."""

    cache_threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.3
    balance_abs_threshold: Annotated[int, msgspec.Meta(ge=0)] = 64
    balance_rel_threshold: Annotated[float, msgspec.Meta(ge=1)] = 1.5
    eviction_interval_s: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    max_tree_size: Annotated[int, msgspec.Meta(ge=1)] = 1 << 26  # characters per replica
    low_match: Literal["least_loaded", "smallest_tree"] = "least_loaded"  # the latter until SGLang 0.5.6


class CacheAware(TreePolicy):
    """Decisions: `cache_match`; `least_loaded_imbalanced` where the load is uneven; where too little matches
    `least_loaded` or, as in older versions, `smallest_tree`."""

    name = "cache_aware"
    Settings = CacheAwareSettings
    leaf_by_leaf = True

    def __init__(self, settings: CacheAwareSettings, seed: int) -> None:
        super().__init__(settings, seed)
        self.eviction_interval_s = settings.eviction_interval_s

    def choose(self, query: Query, replicas: Sequence[Replica], now_s: float) -> Decision:
        left = available(replicas)
        if self._is_imbalanced([replica.in_flight for replica in left]):
            return Decision(least_loaded(left, self._random).name, "least_loaded_imbalanced", by_load(left))
        names = [replica.name for replica in left]
        matched, owner = self.tree.last_user(query.text, names)
        rate = matched / len(query.text) if query.text else 0.0
        if rate > self.settings.cache_threshold and owner is not None:
            lone = [replica for replica in left if replica.name == owner]
            return Decision(owner, "cache_match", by_load(lone), matched, rate)
        if self.settings.low_match == "least_loaded":
            return Decision(least_loaded(left, self._random).name, "least_loaded", by_load(left), matched, rate)
        smallest = self.tree.smallest(names)
        best = [replica for replica in left if replica.name in smallest]
        return Decision(self._random.choice(best).name, "smallest_tree", by_load(best), matched, rate)

    def _is_imbalanced(self, loads: list[int]) -> bool:
        most, least = max(loads), min(loads)
        settings: CacheAwareSettings = self.settings
        return most - least > settings.balance_abs_threshold and most > settings.balance_rel_threshold * least

    def _excess(self, held: int) -> int:
        size: int = self.settings.max_tree_size
        return held - size
