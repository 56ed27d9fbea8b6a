"""The event loop: timers, sockets, signals, idle work, and its fallbacks without epoll or timerfd."""

import ctypes
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from inferometer.wire import reactor as module
from inferometer.wire.compiled import compiled as compiled_module
from inferometer.wire.reactor import READ, WRITE, Reactor, now

MS = 1_000_000


@pytest.fixture(params=["compiled", "epoll and timerfd", "epoll alone", "selectors alone"])
def reactor(request, monkeypatch) -> Iterator[Reactor]:
    """On every platform that can be had here."""
    compiled = request.param == "compiled"
    if compiled and compiled_module() is None:
        pytest.skip("the compiled reader was not built")
    if request.param.endswith("alone"):
        monkeypatch.setattr(module, "_alarm", lambda: None)
    if request.param == "selectors alone":
        monkeypatch.setattr(module, "_poller", lambda *_: module._Selector())
    elif not hasattr(select, "epoll"):
        pytest.skip("no epoll here")
    with closing(Reactor(allow_compiled=compiled)) as reactor:
        reactor.call_at(now() + 10_000 * MS, lambda: pytest.fail("the loop hangs"))
        yield reactor


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        yield left, right


def test_the_fallbacks_are_what_is_used(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(select, "epoll", raising=False)
    assert module._alarm() is None
    with closing(module._poller(False)) as poller:
        assert isinstance(poller, module._Selector)


def test_a_libc_without_timerfd_is_no_mistake(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_kwargs: object())
    assert module._alarm() is None


def test_timers_run_in_order_and_not_before_their_time(reactor: Reactor) -> None:
    begun, ran = now(), []
    for after in (5 * MS, 1 * MS, 3 * MS, 300_000, -MS):
        reactor.call_at(begun + after, lambda after=after: ran.append((after, now() - begun)))  # type: ignore[misc]
    reactor.call_at(begun + 6 * MS, reactor.stop)
    reactor.run()
    assert [after for after, _ in ran] == [-MS, 300_000, 1 * MS, 3 * MS, 5 * MS]
    assert all(came >= after for after, came in ran)


def test_ties_run_in_the_order_they_were_asked(reactor: Reactor) -> None:
    at, ran = now() + MS, []
    for number in range(5):
        reactor.call_at(at, lambda number=number: ran.append(number))  # type: ignore[misc]
    reactor.call_at(at, reactor.stop)
    reactor.run()
    assert ran == [0, 1, 2, 3, 4]


def test_a_cancelled_timer_does_not_run(reactor: Reactor) -> None:
    ran = []
    timer = reactor.call_at(now() + MS, lambda: ran.append("cancelled"))
    other = reactor.call_at(now() + 2 * MS, lambda: ran.append("cancelled by another"))
    reactor.call_at(now() + MS, other.cancel)
    reactor.call_at(now() + 4 * MS, reactor.stop)
    timer.cancel()
    timer.cancel()
    reactor.run()
    assert ran == []


def test_deadlines_are_finer_than_milliseconds(reactor: Reactor) -> None:
    """epoll's own timeout would make each of them 0.7 ms late; on a busy machine some are, not all."""
    if reactor._alarm is None:
        pytest.skip("without timerfd the poll's own resolution is all there is")
    late = []

    def again() -> None:
        at = now() + 300_000
        reactor.call_at(at, lambda: (late.append(now() - at), again() if len(late) < 50 else reactor.stop()))  # type: ignore[arg-type]

    again()
    reactor.run()
    assert 0 <= min(late) < 500_000


def test_a_timer_that_sets_itself_again_lets_sockets_have_their_turn(
    reactor: Reactor, pair: tuple[socket.socket, socket.socket]
) -> None:
    """What fails at once and is tried at once must not keep signals and answers waiting for ever."""
    left, right = pair
    right.send(b"!")

    def again() -> None:
        reactor.call_at(now(), again)

    def readable(_events):
        left.recv(1)
        reactor.stop()

    reactor.watch(left.fileno(), readable)
    again()
    reactor.run()


def test_a_burst_does_not_hold_up_what_is_due(reactor: Reactor) -> None:
    """A server that gets 500 requests at once still sends the tokens of the others in time."""
    ran: list[Any] = []
    with ExitStack() as stack:
        for _ in range(4 * module.TURN):
            left, right = map(stack.enter_context, socket.socketpair())
            right.send(b"!")

            def readable(_events, left=left):
                left.recv(1)
                if not ran:
                    reactor.call_at(now(), lambda: ran.append("timer"))
                    reactor.call_at(now() + MS, reactor.stop)
                ran.append("socket")

            reactor.watch(left.fileno(), readable)
        reactor.run()
    assert ran.index("timer") <= module.TURN
    assert ran.count("socket") == 4 * module.TURN


def test_readable_and_writable(reactor: Reactor, pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    seen = []

    def ready(events):
        seen.append(events)
        if events & READ:
            left.recv(10)
            reactor.stop()
        else:
            right.send(b"!")
            reactor.watch(left.fileno(), ready, READ)

    reactor.watch(left.fileno(), ready, WRITE)
    reactor.run()
    assert seen[0] == WRITE
    assert seen[-1] & READ
    reactor.unwatch(left.fileno())
    reactor.unwatch(left.fileno())


def test_an_unwatched_descriptor_is_silent_even_when_it_was_ready_already(
    reactor: Reactor, pair: tuple[socket.socket, socket.socket]
) -> None:
    left, right = pair
    left.send(b"!")
    right.send(b"!")

    def ready(one, other):
        def on_ready(_events):
            ran.append(one)
            reactor.unwatch(other.fileno())
            reactor.unwatch(one.fileno())

        return on_ready

    ran: list[Any] = []
    reactor.watch(left.fileno(), ready(left, right))
    reactor.watch(right.fileno(), ready(right, left))
    reactor.call_at(now() + 2 * MS, reactor.stop)
    reactor.run()
    assert len(ran) == 1


def test_quiet_work_is_done_between_events(reactor: Reactor, pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    left_over = list(range(5))

    def work():
        if left_over:
            done.append(left_over.pop())  # type: ignore[arg-type]
            return True
        if not stopping:
            stopping.append(reactor.call_at(now(), reactor.stop))
        return False

    done, stopping = [], []  # type: ignore[var-annotated]
    reactor.idle = work
    reactor.watch(left.fileno(), lambda _events: (left.recv(9), done.append("read")))  # type: ignore[arg-type]
    right.send(b"!")
    reactor.run()
    assert done == ["read", 4, 3, 2, 1, 0]


def test_polled_at_is_a_poll_before_the_data_came(reactor: Reactor, pair: tuple[socket.socket, socket.socket]) -> None:
    """What is read now was not there when the poll before this one returned."""
    left, right = pair
    instants = {}

    def send() -> None:
        instants["sent"] = now()
        right.send(b"!")

    def readable(_events):
        left.recv(1)
        instants["since"], instants["read"] = reactor.polled_at, now()
        reactor.stop()

    reactor.watch(left.fileno(), readable)
    reactor.call_at(now() + 3 * MS, send)
    reactor.run()
    assert instants["since"] <= instants["sent"] <= instants["read"]


def test_a_poll_that_was_full_may_have_left_something_behind(monkeypatch):
    """Then what is read next may have been there before that poll returned."""
    monkeypatch.setattr(module, "BATCH", 2)
    with closing(Reactor()) as reactor:
        pairs = [socket.socketpair() for _ in range(5)]
        since = []

        def readable(inbox):
            def read(_events):
                inbox.recv(1)
                since.append(reactor.polled_at)
                if len(since) == 5:
                    reactor.stop()

            return read

        for inbox, _ in pairs:
            reactor.watch(inbox.fileno(), readable(inbox))
        for _, outbox in pairs:
            outbox.send(b"!")
        sent_at = now()
        reactor.call_at(now() + 10_000 * MS, reactor.stop)
        reactor.run()
        assert len(since) == 5
        assert max(since[:4]) <= sent_at + 50 * MS
        assert since[0] == since[1] == since[2] == since[3], "all came before the first poll returned"
        for ends in pairs:
            for end in ends:
                end.close()


def test_signals_are_heard_inside_the_loop_and_given_back(reactor: Reactor) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    heard = []

    def on_signal() -> None:
        heard.append(now())
        reactor.stop()

    undo = reactor.on_signal(signal.SIGUSR1, on_signal)
    reactor.call_at(now() + MS, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    reactor.run()
    assert len(heard) == 1
    undo()
    assert signal.getsignal(signal.SIGUSR1) == before


def test_a_flood_of_signals_does_no_harm(reactor: Reactor) -> None:
    """The handler writes to a socket that nobody reads meanwhile: it may fill up."""
    heard = []
    undo = reactor.on_signal(signal.SIGUSR1, lambda: heard.append(1))
    handler = signal.getsignal(signal.SIGUSR1)
    for _ in range(5000):
        handler(signal.SIGUSR1, None)  # type: ignore[operator]
    reactor.call_at(now() + 5 * MS, reactor.stop)
    reactor.run()
    undo()
    assert heard


def test_naps_end_in_time_for_a_timer(reactor: Reactor) -> None:
    reactor.nap_s, at, came = 0.1, now() + 5 * MS, []
    reactor.call_at(at, lambda: came.append(now() - at))
    reactor.call_at(at, reactor.stop)
    reactor.run()
    assert came[0] < 90 * MS


def test_naps_are_longer_where_much_comes_but_a_small_part_of_what_answers_take(reactor: Reactor) -> None:
    reactor.nap_s = 0.0003
    assert reactor.next_nap_s(1) == 0.0003
    assert reactor.next_nap_s(100) == 0.0006, "no answer is over yet"
    for _ in range(200):
        reactor.answered(20 * MS)
    assert reactor.next_nap_s(100) == 0.0006, "short answers in a closed loop would lose throughput"
    for _ in range(200):
        reactor.answered(500 * MS)
    assert reactor.next_nap_s(100) == pytest.approx(0.001, rel=0.01)
    for _ in range(200):
        reactor.answered(20_000 * MS)
    assert reactor.next_nap_s(100) == 0.0015
    assert reactor.next_nap_s(1) == 0.0003
