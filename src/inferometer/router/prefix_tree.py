"""A radix tree of the texts that were sent to each tenant (a replica), to find the longest common prefix of a new text
with each tenant's texts. Bounded per tenant by evicting the oldest texts. Contains no clock, no threads and no policy.

Like Ray's and SGLang's trees it works on characters, so that no tokenizer is needed. Unlike in theirs, nodes used at
the same instant are in a bucket of that instant: eviction removes whole buckets starting with the oldest, and there is
no linked list per tenant to maintain.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

MOST_CHARS = 1 << 26  # per tenant, as in SGLang's command line


class Match(NamedTuple):
    """The longest prefix of a text that any of the tenants has, and the tenants that have it; the one that received it
    first is in front."""

    length: int
    tenants: tuple[str, ...]


class _Node:
    __slots__ = ("children", "parent", "text", "used_at")

    def __init__(self, text: str, parent: "_Node | None") -> None:
        self.text = text
        self.parent = parent
        self.children: dict[str, _Node] = {}  # by their first character
        self.used_at: dict[str, float] = {}  # by tenant; a node's tenants are also in all nodes above it


_Buckets = dict[float, dict[_Node, None]]  # nodes by the instant of their last use, oldest first


class PrefixTree:
    """Texts by tenant. Instants must not decrease; one that does counts as the latest so far."""

    def __init__(self, most_chars: int = MOST_CHARS) -> None:
        if most_chars < 1:
            raise ValueError(f"most_chars must be at least 1, got {most_chars}")
        self.most_chars = most_chars
        self._root = _Node("", None)
        self._buckets: dict[str, _Buckets] = {}
        self._chars: dict[str, int] = {}
        self._now_s = float("-inf")
        self.nodes = 0
        self.evicted_chars = 0
        self.evictions = 0  # number of calls that evicted something

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def chars(self) -> dict[str, int]:
        """Characters held per tenant; shared text counts for each."""
        return dict(self._chars)

    def match(self, text: str, tenants: Iterable[str] | None = None) -> Match:
        """The longest match among these tenants (default: all), and the tenants that have all of it."""
        allowed = None if tenants is None else set(tenants)
        node, at, length = self._root, 0, len(text)
        while at < length:
            child = node.children.get(text[at])
            if child is None or (allowed is not None and allowed.isdisjoint(child.used_at)):
                break
            node = child
            if not text.startswith(child.text, at):
                at += _common(child.text, text, at)
                break
            at += len(child.text)
        if node is self._root:
            return Match(
                0, tuple(self._chars if allowed is None else (name for name in self._chars if name in allowed))
            )
        return Match(at, tuple(name for name in node.used_at if allowed is None or name in allowed))

    def lengths(self, text: str) -> dict[str, int]:
        """Length of the text's prefix held by every tenant."""
        matched = dict.fromkeys(self._chars, 0)
        for node, at in self._path(text):
            for tenant in node.used_at:
                matched[tenant] = at
        return matched

    def _path(self, text: str) -> Iterator[tuple[_Node, int]]:
        """The nodes along a text, each with the length matched down to it; the last may match only in part."""
        node, at, length = self._root, 0, len(text)
        while at < length and (child := node.children.get(text[at])) is not None:
            whole = text.startswith(child.text, at)
            at += len(child.text) if whole else _common(child.text, text, at)
            yield child, at
            if not whole:
                return
            node = child

    def smallest(self, tenants: Iterable[str]) -> tuple[str, ...]:
        """The tenants with the fewest characters; an unknown tenant holds none."""
        sizes = {name: self._chars.get(name, 0) for name in tenants}
        least = min(sizes.values(), default=0)
        return tuple(name for name, size in sizes.items() if size == least)

    def texts(self, tenant: str) -> Iterator[str]:
        """The texts of a tenant: one for each leaf of its part of the tree."""
        pending = [(self._root, "")]
        while pending:
            node, before = pending.pop()
            below = [child for child in node.children.values() if tenant in child.used_at]
            if not below and before:
                yield before
            pending += [(child, before + child.text) for child in below]

    # -- writing -----------------------------------------------------------------------------------------------------

    def add(self, tenant: str) -> None:
        """Add a tenant without texts; an existing one is unchanged."""
        if tenant not in self._chars:
            self._chars[tenant] = 0
            self._buckets[tenant] = {}

    def insert(self, text: str, tenant: str, now_s: float) -> None:
        """The tenant has this text and used it now. Its oldest texts are dropped if it would hold too much."""
        self.add(tenant)
        self._now_s = now_s = max(now_s, self._now_s)
        text = text[: self.most_chars]
        node, at, length = self._root, 0, len(text)
        while at < length:
            node = self._child(node, text, at)
            at += len(node.text)
            self._use(node, tenant, now_s)
        excess = self._chars[tenant] - self.most_chars
        if excess > 0:
            self.evict(tenant, excess)

    def _child(self, node: _Node, text: str, at: int) -> _Node:
        """The child that continues the text: unchanged, split where the text diverges, or new."""
        child = node.children.get(text[at])
        if child is None:
            made = node.children[text[at]] = _Node(text[at:], node)
            self.nodes += 1
            return made
        if text.startswith(child.text, at):
            return child
        return self._split(child, _common(child.text, text, at))

    def _split(self, node: _Node, at: int) -> _Node:
        """Splits off the first part of a node as its new parent, used by the same tenants at the same instants."""
        parent = node.parent
        assert parent is not None
        upper = _Node(node.text[:at], parent)
        parent.children[upper.text[0]] = upper
        node.text, node.parent = node.text[at:], upper
        upper.children[node.text[0]] = node
        upper.used_at = dict(node.used_at)
        for tenant, used_at in node.used_at.items():
            self._buckets[tenant][used_at][upper] = None
        self.nodes += 1
        return upper

    def _use(self, node: _Node, tenant: str, now_s: float) -> None:
        buckets = self._buckets[tenant]
        before = node.used_at.get(tenant)
        if before is None:
            self._chars[tenant] += len(node.text)
        elif before == now_s:
            return
        else:
            _leave(buckets, before, node)
        node.used_at[tenant] = now_s
        buckets.setdefault(now_s, {})[node] = None

    def remove(self, tenant: str) -> int:
        """Remove a tenant; returns its number of characters."""
        held = self._chars.pop(tenant, 0)
        for nodes in self._buckets.pop(tenant, {}).values():
            for node in nodes:
                self._disown(node, tenant)
        return held

    def evict(self, tenant: str, chars: int, leaf_by_leaf: bool = False) -> int:
        """Free at least this many characters of a tenant, oldest first; returns how many were freed.

        All nodes used at the same instant are removed together, as in Ray's tree; `leaf_by_leaf` stops at the leaf that
        frees enough, as in SGLang's.
        """
        buckets = self._buckets.get(tenant, {})
        freed = 0
        while freed < chars and buckets:
            oldest = next(iter(buckets))
            for node in sorted(buckets[oldest], key=_depth, reverse=True):
                if leaf_by_leaf and freed >= chars:
                    break
                freed += len(node.text)
                _leave(buckets, oldest, node)
                self._disown(node, tenant)
        if freed:
            self._chars[tenant] -= freed
            self.evicted_chars += freed
            self.evictions += 1
        return freed

    def _disown(self, node: _Node, tenant: str) -> None:
        del node.used_at[tenant]
        if not node.used_at and node.parent is not None:
            del node.parent.children[node.text[0]]
            self.nodes -= 1


def _leave(buckets: _Buckets, instant: float, node: _Node) -> None:
    bucket = buckets[instant]
    del bucket[node]
    if not bucket:
        del buckets[instant]


def _depth(node: _Node) -> int:
    depth = 0
    while node.parent is not None:
        node, depth = node.parent, depth + 1
    return depth


def _common(label: str, text: str, at: int) -> int:
    """How many characters of a label match the text from `at` on; the first is known to match. Uses bisection:
    comparing two slices costs less than an interpreter step for every character."""
    low, high = 1, min(len(label), len(text) - at)
    while low < high:
        middle = (low + high + 1) // 2
        if label[low:middle] == text[at + low : at + middle]:
            low = middle
        else:
            high = middle - 1
    return low
