"""The prefix tree compared with a plain dictionary: the texts of every tenant, and their time of last use."""

from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.router.prefix_tree import PrefixTree

TENANTS = ("a", "b", "c")
TEXTS = st.text("xyz", max_size=12) | st.text(min_size=1, max_size=6)
Step = tuple[str, Any, Any]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.sampled_from(TENANTS), TEXTS),
        st.tuples(st.just("remove"), st.sampled_from(TENANTS), st.none()),
        st.tuples(st.just("evict"), st.sampled_from(TENANTS), st.integers(1, 12)),
    ),
    max_size=40,
)


class Texts:
    """The same by brute force: of every tenant all beginnings of its texts, with the instants of their first and last
    use."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, int]] = {}
        self.since: dict[str, dict[str, int]] = {}

    def insert(self, text: str, tenant: str, now: int) -> None:
        held, since = self.held.setdefault(tenant, {}), self.since.setdefault(tenant, {})
        for beginning in (text[:end] for end in range(1, len(text) + 1)):
            held[beginning] = now
            since.setdefault(beginning, now)

    def remove(self, tenant: str) -> None:
        self.held.pop(tenant, None)
        self.since.pop(tenant, None)

    def evict(self, tenant: str, chars: int) -> int:
        """Every beginning is one character of the tree; what was used at the oldest instant goes together."""
        held, freed = self.held.get(tenant, {}), 0
        while held and freed < chars:
            oldest = min(held.values())
            gone = [text for text, used in held.items() if used == oldest]
            for text in gone:
                del held[text], self.since[tenant][text]
            freed += len(gone)
        return freed

    def length(self, text: str, tenant: str) -> int:
        held = self.held[tenant]
        return sum(1 for _ in takewhile(lambda end: text[:end] in held, range(1, len(text) + 1)))


def run(steps: list[Step]) -> tuple[PrefixTree, Texts]:
    tree, texts = PrefixTree(), Texts()
    for now, (what, tenant, value) in enumerate(steps):
        if what == "insert":
            tree.insert(value, tenant, now)
            texts.insert(value, tenant, now)
        elif what == "remove":
            tree.remove(tenant)
            texts.remove(tenant)
        else:
            assert tree.evict(tenant, value) == texts.evict(tenant, value)
    return tree, texts


@settings(max_examples=300, deadline=None)
@given(STEPS, TEXTS)
def test_matches_and_sizes_are_those_of_a_dictionary(steps: list[Step], text: str) -> None:
    tree, texts = run(steps)
    assert tree.chars == {tenant: len(held) for tenant, held in texts.held.items()}
    lengths = {tenant: texts.length(text, tenant) for tenant in texts.held}
    assert tree.lengths(text) == lengths
    longest = max(lengths.values(), default=0)
    matched, tenants = tree.match(text)
    assert matched == longest
    assert set(tenants) == {tenant for tenant, length in lengths.items() if length == longest}


@settings(max_examples=150, deadline=None)
@given(STEPS, TEXTS, st.sets(st.sampled_from(TENANTS), min_size=1))
def test_a_match_among_some_tenants_does_not_depend_on_the_others(
    steps: list[Step], text: str, chosen: set[str]
) -> None:
    tree, texts = run(steps)
    lengths = {tenant: texts.length(text, tenant) for tenant in texts.held if tenant in chosen}
    longest = max(lengths.values(), default=0)
    best = {tenant for tenant, length in lengths.items() if length == longest}
    matched, tenants = tree.match(text, chosen)
    assert (matched, set(tenants)) == (longest, best)
    if longest:
        held_since = {tenant: texts.since[tenant][text[:longest]] for tenant in best}
        assert held_since[tenants[0]] == min(held_since.values())


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_nothing_is_left_when_the_tenants_are_gone(steps: list[Step]) -> None:
    tree, texts = run(steps)
    held = {tenant: set(tree.texts(tenant)) for tenant in tree.chars}
    assert {tenant: {t[:end] for t in whole for end in range(1, len(t) + 1)} for tenant, whole in held.items()} == {
        tenant: set(beginnings) for tenant, beginnings in texts.held.items()
    }
    for tenant in TENANTS:
        tree.remove(tenant)
    assert (tree.nodes, tree.chars) == (0, {})


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(TENANTS), TEXTS), max_size=40), st.integers(1, 20))
def test_no_tenant_holds_more_than_it_may(inserts: list[tuple[str, str]], most: int) -> None:
    tree = PrefixTree(most)
    for now, (tenant, text) in enumerate(inserts):
        tree.insert(text, tenant, now)
        assert tree.chars[tenant] <= most
        assert tree.match(text[:most], [tenant]).length == len(text[:most])  # the newest text is there
        assert tree.nodes <= sum(tree.chars.values())


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from(TENANTS), st.integers(1, 12))
def test_leaf_by_leaf_frees_no_more_than_one_leaf_too_much(steps: list[Step], tenant: str, chars: int) -> None:
    tree, texts = run(steps)
    before = tree.chars.get(tenant, 0)
    longest = max((len(text) for text in texts.held.get(tenant, {})), default=0)
    freed = tree.evict(tenant, chars, leaf_by_leaf=True)
    assert freed == before - tree.chars.get(tenant, 0)
    assert min(chars, before) <= freed < chars + max(longest, 1)
    for text in tree.texts(tenant):  # what is left is still whole from the root on
        assert tree.lengths(text)[tenant] == len(text)


def test_a_tree_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        PrefixTree(0)
