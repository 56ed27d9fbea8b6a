"""The paged cache: hits, sharing, and the order of eviction."""

from hypothesis import given
from hypothesis import strategies as st

from inferometer.simulator.engine import BlockPool, BlockRun
from inferometer.simulator.tokens import Tokens


def pool_of(capacity: int) -> BlockPool:
    """With blocks of one token, so that a token is a block."""
    return BlockPool(capacity, 1)


def publish(pool: BlockPool, *tokens: int) -> BlockRun | None:
    pool.take(len(tokens))
    return pool.publish(tokens, None)


def test_the_oldest_idle_blocks_go_first_and_a_tail_before_its_prefix() -> None:
    pool = pool_of(4)
    pool.release(publish(pool, 11, 12), 0)
    pool.release(publish(pool, 21, 22), 0)
    pool.take(1)
    assert pool.idle == 3
    assert (pool.match((11, 12)), pool.match((21, 22))) == ((1, 1), (2, 2))
    pool.take(1)
    assert (pool.match((11,)), pool.match((21, 22))) == ((0, 0), (2, 2))


def test_runs_part_where_sequences_do() -> None:
    pool = pool_of(10)
    first = publish(pool, 1, 2, 3, 4)
    beginning = pool.hold((1, 2))  # another one shares it
    pool.take(2)
    second = pool.publish((5, 6), beginning)
    pool.release(first, 0)
    assert (pool.live, pool.idle, pool.free) == (4, 2, 6)
    assert (pool.match((1, 2, 3, 4)), pool.match((1, 2, 5, 6))) == ((4, 2), (4, 0))
    pool.release(second, 0)
    pool.take(6)
    assert (pool.match((1, 2, 3, 4)), pool.match((1, 2, 5, 6))) == ((2, 2), (4, 4))


def test_a_block_used_again_is_young_again_however_often() -> None:
    pool = pool_of(3)
    pool.release(publish(pool, 11), 0)
    pool.release(publish(pool, 12), 0)
    for _ in range(3):
        pool.release(pool.hold((11,)), 0)
    pool.take(2)
    assert (pool.match((11,)), pool.match((12,)), pool.idle, pool.free) == ((1, 1), (0, 0), 1, 1)
    pool.forget_idle()
    assert (pool.match((11,)), pool.idle, pool.free) == ((0, 0), 0, 1)


def test_a_block_that_is_not_full_is_not_found() -> None:
    pool = BlockPool(8, 4)
    pool.take(2)
    pool.publish((1, 2, 3, 4, 5, 6, 7, 8), None)
    assert [pool.match(tuple(range(1, end)))[0] for end in (4, 5, 8, 9, 10)] == [0, 1, 1, 2, 2]
    assert pool.match((1, 2, 3, 4, 9, 6, 7, 8)) == (1, 0)


contents = st.lists(st.integers(0, 1), min_size=1, max_size=6).map(tuple)


@given(st.lists(contents, max_size=30), st.integers(6, 12))
def test_what_is_evicted_is_gone_and_nothing_is_lost(asked: list[Tokens], capacity: int) -> None:
    pool = pool_of(capacity)
    for tokens in asked:
        found, _ = pool.match(tokens)
        hit = pool.hold(tokens[:found])
        pool.take(len(tokens) - found)
        last = pool.publish(tokens[found:], hit)
        assert pool.match(tokens) == (len(tokens), 0)
        pool.release(last, 0)
        assert pool.match(tokens) == (len(tokens), len(tokens))
        assert pool.private == pool.live == 0 and pool.idle <= capacity
    pool.take(capacity)
    assert pool.idle == 0 and all(pool.match(tokens) == (0, 0) for tokens in asked)
