"""Ray Serve's prefix-aware routing (`PrefixCacheAffinityRouter`): to whoever got the longest beginning of this prompt
before, unless the load is uneven."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from inferometer.router.policies.tree import TreePolicy
from inferometer.router.policy import Decision, Query, Replica, available, by_load, least_loaded

_AtLeast0 = Annotated[float, msgspec.Meta(ge=0)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Chars = Annotated[int, msgspec.Meta(ge=1)]


class PrefixAwareSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ray's names. What is not set comes from Ray's `current` defaults (never unbalanced, no eviction) or from the
    `original` ones of the first version and its documentation (10 requests, eviction)."""

    defaults: Literal["current", "original"] = "current"
    imbalanced_threshold: _AtLeast0 | None = None  # requests in flight between the most and the least loaded
    match_rate_threshold: _Share = 0.1
    do_eviction: bool | None = None
    eviction_threshold_chars: _Chars = 400_000  # per replica
    eviction_target_chars: _Chars = 360_000
    eviction_interval_s: Annotated[float, msgspec.Meta(gt=0)] = 10.0

    @property
    def imbalance(self) -> float:
        default = 10.0 if self.defaults == "original" else math.inf
        return default if self.imbalanced_threshold is None else self.imbalanced_threshold

    @property
    def evicts(self) -> bool:
        return self.defaults == "original" if self.do_eviction is None else self.do_eviction


class PrefixAware(TreePolicy):
    """Decisions: `prefix_match`, `smallest_tree` where too little matches, and power of two choices where the load is
    uneven (`fallback_imbalanced`) or there is no text (`fallback_no_text`).

    Two things differ from Ray. The replicas with the smallest tree are looked for among the available ones only; Ray
    takes all it knows. And the tree holds at most 2**26 characters per replica, also without eviction.
    """

    name = "prefix_aware"
    Settings = PrefixAwareSettings

    def __init__(self, settings: PrefixAwareSettings, seed: int) -> None:
        super().__init__(settings, seed)
        self.eviction_interval_s = settings.eviction_interval_s if settings.evicts else None

    def choose(self, query: Query, replicas: Sequence[Replica], now_s: float) -> Decision:
        left = available(replicas)
        loads = [replica.in_flight for replica in left]
        if max(loads) - min(loads) > self.settings.imbalance:
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
        if not best:  # a threshold of 0 and a tree that knows none of them
            return self._of_two(left, "fallback_no_match")
        return Decision(least_loaded(best, self._random).name, kind, by_load(best), matched, rate)

    def _of_two(self, left: list[Replica], kind: str) -> Decision:
        two = self._random.sample(left, min(2, len(left)))
        return Decision(least_loaded(two, self._random).name, kind, by_load(two))

    def _excess(self, held: int) -> int:
        """Whoever holds more than the threshold is brought down to the target."""
        settings: PrefixAwareSettings = self.settings
        return held - settings.eviction_target_chars if held > settings.eviction_threshold_chars else 0
