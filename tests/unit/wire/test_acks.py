"""Acknowledgements are delayed only for servers that do not wait for them."""

from inferometer.wire.sockets import ALWAYS, MANY, NEVER, ONCE, TRIES, Acknowledging


def test_few_streams_are_left_alone() -> None:
    assert Acknowledging().delay(MANY - 1) == NEVER


def test_one_stream_is_tried_at_a_time() -> None:
    acks = Acknowledging()
    assert [acks.delay(MANY) for _ in range(3)] == [ONCE, NEVER, NEVER]
    acks.learn(NEVER, False)
    assert acks.delay(MANY) == NEVER  # it is still under way
    acks.learn(ONCE, False)
    assert acks.delay(MANY) == ONCE


def test_a_server_that_sends_on_is_known_for_good() -> None:
    acks = Acknowledging()
    acks.learn(acks.delay(MANY), True)
    assert [acks.delay(1), acks.delay(MANY)] == [ALWAYS, ALWAYS]
    acks.learn(ALWAYS, False)  # a pause of the server's own: what it does not do is known
    assert acks.delay(1) == ALWAYS


def test_a_server_that_waits_is_soon_left_alone() -> None:
    acks = Acknowledging()
    tried = 0
    for _ in range(100):
        delay = acks.delay(MANY)
        tried += delay == ONCE
        acks.learn(delay, False)
    assert tried == TRIES
