"""The offset between the clocks, and steps, on clocks that the test moves."""

import time

from hypothesis import given
from hypothesis import strategies as st

from inferometer.wire.sockets import STEP_NS, ClockPair, read_offset


class Hands:
    """Two clocks that advance whenever they are read."""

    def __init__(self, offset, costs):
        self.now, self.offset, self.costs, self.reads = 1000, offset, costs, 0

    def monotonic(self):
        self.now += self.costs[self.reads % len(self.costs)]
        self.reads += 1
        return self.now

    def real(self):
        return self.monotonic() + self.offset


@given(offset=st.integers(-(10**18), 10**18), costs=st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_the_true_offset_is_within_the_stated_error(offset: int, costs):
    hands = Hands(offset, costs)
    found = read_offset(hands.monotonic, hands.real)
    assert abs(found.ns - offset) <= found.error_ns


@given(by=st.integers(-(10**12), 10**12))
def test_a_step_is_seen_once_and_followed(by: int) -> None:
    hands = Hands(7 * 10**17, [40])
    clocks = ClockPair(hands.monotonic, hands.real)
    assert clocks.refresh() is None
    hands.offset += by
    step = clocks.refresh()
    assert (step is not None) == (abs(by) > STEP_NS + 80)
    assert clocks.refresh() is None
    assert clocks.steps == ([step] if step else [])
    assert clocks.monotonic(hands.real()) == hands.now


def test_on_this_machine_it_is_exact_enough() -> None:
    clocks = ClockPair()
    assert clocks.last.error_ns < 1_000_000
    assert abs(clocks.monotonic(time.time_ns()) - time.monotonic_ns()) < 100_000_000
