"""What policies with a prefix tree have in common: they learn what was sent where, and forget the oldest of it at an
interval."""

from typing import Any, ClassVar

from inferometer.router.policy import Eviction, Policy, PolicyState, Query
from inferometer.router.prefix_tree import PrefixTree


class TreePolicy(Policy):
    """A policy implements `choose`, and `_excess`: how many characters a replica with so many has to lose."""

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
        """At the end of every interval; the first begins with the first call."""
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
