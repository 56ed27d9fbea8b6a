"""The virtual clock."""

from inferometer.load.clock import VirtualClock


def test_jumps_in_order_and_keeps_ties_in_the_order_asked() -> None:
    clock, seen = VirtualClock(), []
    clock.call_at(3_600_000_000_000, lambda: seen.append(("late", clock.now())))
    clock.call_at(5, lambda: seen.append(("first", clock.now())))
    clock.call_at(5, lambda: seen.append(("second", clock.now())))
    clock.run()
    assert seen == [("first", 5), ("second", 5), ("late", 3_600_000_000_000)]


def test_cancelled_actions_do_not_run_nor_move_time() -> None:
    clock, seen = VirtualClock(10), []
    clock.call_at(99, lambda: seen.append(1)).cancel()
    clock.run()
    assert (seen, clock.now()) == ([], 10)


def test_past_instants_run_now_and_time_never_goes_back() -> None:
    clock, seen = VirtualClock(100), []
    clock.call_at(1, lambda: seen.append(clock.now()))
    clock.run()
    assert seen == [100]


def test_until_is_inclusive_and_leaves_the_rest() -> None:
    clock, seen = VirtualClock(), []
    for at in (1, 2, 3):
        clock.call_at(at, lambda at=at: seen.append(at))  # type: ignore[misc]
    clock.run(until=2)
    assert (seen, clock.now()) == ([1, 2], 2)
    clock.run(until=10)
    assert (seen, clock.now()) == ([1, 2, 3], 10)


def test_actions_may_ask_for_more_and_stop() -> None:
    clock, seen = VirtualClock(), []

    def tick() -> None:
        seen.append(clock.now())
        clock.call_at(clock.now() + 1, tick)
        if len(seen) == 3:
            clock.stop()

    clock.call_at(0, tick)
    clock.run()
    assert seen == [0, 1, 2]
