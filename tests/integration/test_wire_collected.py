"""The compiled reader on real sockets: what it collects and reports, and how it acknowledges and sends."""

import select
import signal
import socket
import threading
import time
from array import array

import pytest

from inferometer.wire.compiled import compiled
from inferometer.wire.origin import READ_SIZE
from inferometer.wire.reactor import COMPLETE, LOOK, READ, SURPLUS, TOO_LARGE, Reactor, now
from inferometer.wire.sockets import ALWAYS, LEFT, MARK, NEVER, ONCE, UNPROVEN, ask_for_stamps, send_at_once

pytestmark = pytest.mark.skipif(compiled() is None, reason="the compiled reader was not built here")

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b"9\r\ndata: a\n\n\r\n"
LAST = b"0\r\n\r\n"
PATIENCE_S = 20.0


class Pair:
    """A server's socket, and a client's that the poller collects from."""

    def __init__(self, poller, delay=NEVER, nagle=False, most=1 << 30):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.client = socket.create_connection(listener.getsockname())
            self.server, _ = listener.accept()
        if not nagle:
            send_at_once(self.server)
        self.client.setblocking(False)
        ask_for_stamps(self.client)
        poller.register(self.client.fileno(), READ)
        poller.attach(self.client.fileno(), -1, delay, most)
        self.poller = poller

    def say(self, data):
        self.server.sendall(data)
        select.select([self.client], [], [], PATIENCE_S)

    def close(self) -> None:
        self.poller.unregister(self.client.fileno())
        self.client.close()
        self.server.close()


@pytest.fixture
def poller():
    made = compiled().Poller()
    yield made
    made.close()


@pytest.fixture
def pair(poller, request):
    pairs = []

    def make(**how):
        pairs.append(Pair(poller, **how))
        return pairs[-1]

    yield make
    for each in pairs:
        each.close()


def test_a_stream_is_told_of_when_it_is_complete(poller, pair):
    one = pair()
    pieces = [HEAD[:30], HEAD[30:], EVENT, EVENT + EVENT, EVENT + LAST]
    told = []
    for piece in pieces:
        one.say(piece)
        told.append(poller.poll(0, 64))
    assert told == [[]] * 4 + [[(one.client.fileno(), COMPLETE)]]
    data, marks, own, _, _, _ = poller.take(one.client.fileno(), b"")
    assert (data, own) == (b"".join(pieces), 0)
    ends = [end for end, _stamp, _own, _since in MARK.iter_unpack(marks)]
    assert ends == [30, len(HEAD), len(HEAD + EVENT), len(HEAD + EVENT * 3), len(data)]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"220 smtp",
        b"x",
    ],
)
def test_any_other_answer_is_left_to_python_at_once(poller, pair, answer: bytes):
    one = pair()
    one.say(answer)
    assert poller.poll(0, 64) == [(one.client.fileno(), LOOK)]
    assert poller.take(one.client.fileno(), b"")[0] == answer


def test_answers_are_told_a_few_at_a_time_and_the_others_are_read_meanwhile(poller, pair):
    """What Python does about an answer takes long: no stream may wait for all of it."""
    done, busy = [pair() for _ in range(40)], pair()
    for each in done:
        each.say(HEAD + EVENT + LAST)
    told = [fd for fd, _ in poller.poll(0, 1024)]
    assert 0 < len(told) < 40
    busy.say(HEAD)
    told += [fd for fd, _ in poller.poll(-1, 1024)]  # does not wait: there is more to tell
    assert poller.heard(busy.client.fileno()) == (1, len(HEAD))
    while len(told) < 40:
        told += [fd for fd, _ in poller.poll(-1, 1024)]
    assert sorted(told) == sorted(each.client.fileno() for each in done)
    assert poller.poll(0, 1024) == []


def test_answers_told_of_in_a_poll_that_finds_nothing_else_are_not_lost() -> None:
    """The poller tells of 16 at a time: of the last ones when nothing is ready any more. The reactor, which looks for
    quiet work then, must not poll once more before it has told them."""
    reactor = Reactor()
    reactor.idle = lambda: False
    pairs, complete = [Pair(reactor._poller) for _ in range(20)], []

    def hear(_events):
        complete.append(_events)
        if len(complete) == len(pairs):
            reactor.stop()

    for one in pairs:
        reactor._ready[one.client.fileno()] = hear
        one.say(HEAD + EVENT + LAST)
    reactor.call_at(now() + int(PATIENCE_S * 1e9), reactor.stop)
    reactor.run()
    assert complete == [COMPLETE] * len(pairs)
    for one in pairs:
        one.close()
    reactor.close()


def test_one_that_is_forgotten_is_not_told_of(poller, pair):
    done = [pair() for _ in range(40)]
    for each in done:
        each.say(HEAD + EVENT + LAST)
    told = {fd for fd, _ in poller.poll(0, 1024)}
    left = [each.client.fileno() for each in done if each.client.fileno() not in told]
    for fd in left[1:]:
        poller.unregister(fd)
        poller.register(fd, READ)  # as another connection with the same number
        poller.attach(fd, -1, NEVER, 1 << 30)
    assert [fd for fd, _ in poller.poll(0, 1024)] == left[:1]


def talk(poller, one):
    """A stream of small events, each read before the next is due; whether the server was seen to send on."""
    one.say(HEAD)
    poller.poll(0, 64)
    for number in range(12):
        one.server.send(EVENT)
        until = time.monotonic() + PATIENCE_S
        while poller.heard(one.client.fileno())[0] < number + 2 and time.monotonic() < until:
            poller.poll(0.05, 64)
    return poller.take(one.client.fileno(), b"")[3]


@pytest.mark.parametrize("delay", [ONCE, ALWAYS])
def test_a_server_that_does_not_wait_for_acknowledgements_is_seen(poller, pair, delay):
    assert any(talk(poller, pair(delay=delay)) for _ in range(50))  # one try may be held up for 40 ms by the machine


@pytest.mark.parametrize("delay", [ONCE, ALWAYS])
def test_one_that_waits_is_never_taken_for_one(poller, pair, delay):
    assert not any(talk(poller, pair(delay=delay, nagle=True)) for _ in range(3))


def test_what_a_stream_showed_holds_for_others_of_its_server(poller, pair):
    """Also for those under way: they are acknowledged as one that begins now would be."""
    under_way, elsewhere = pair(), pair()
    for one, origin in ((under_way, 0), (elsewhere, 1)):
        poller.attach(one.client.fileno(), -1, NEVER, 1 << 30, -1, origin)
    showed = False
    for _ in range(50):  # one try may be held up for 40 ms by the machine
        seen = pair(delay=ONCE)
        poller.attach(seen.client.fileno(), -1, ONCE, 1 << 30, -1, 0)
        showed = showed or bool(talk(poller, seen))
    assert showed
    delayed = {one: not all(_acknowledged_at_once(poller, one) for _ in range(20)) for one in (under_way, elsewhere)}
    assert delayed == {under_way: True, elsewhere: False}


def _acknowledged_at_once(poller, one):
    """Whether the kernel does so behind a read: with a long pause before it, it goes back to that by itself."""
    for _ in range(70):
        one.say(EVENT if poller.heard(one.client.fileno())[0] else HEAD)
        poller.poll(0, 64)
    return one.client.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) != 0


def test_nothing_is_learned_where_nothing_was_delayed(poller, pair):
    assert not talk(poller, pair(delay=NEVER))


def test_payloads_go_to_their_sockets(pair):
    ends = [socket.socketpair() for _ in range(3)]
    try:
        before = time.monotonic_ns()
        stamps, sizes = compiled().send_each(array("i", [a.fileno() for a, _ in ends]), [b"a", b"bb", b"ccc"])
        stamps = memoryview(stamps).cast("q").tolist()
        assert stamps == sorted(stamps) and before <= stamps[0] <= stamps[3] <= time.monotonic_ns()
        assert (len(stamps), sizes) == (4, b"")
        assert [b.recv(10) for _, b in ends] == [b"a", b"bb", b"ccc"]
        ends[1][1].close()
        fds = array("i", [ends[0][0].fileno(), ends[1][0].fileno(), -1])
        _, sizes = compiled().send_each(fds, [b"a" * (1 << 24), b"b", b"c"])  # too much, to nobody, to nothing
        taken = memoryview(sizes).cast("q").tolist()
        assert 0 < taken[0] < 1 << 24 and taken[1:] == [0, 0]
    finally:
        for each in (end for both in ends for end in both):
            each.close()


def test_sockets_and_payloads_must_fit() -> None:
    for fds, payloads in ((array("i", [1]), []), (array("i", [1]), ["text"]), (array("b", [1]), [b"x"])):
        with pytest.raises(ValueError, match="do not fit"):
            compiled().send_each(fds, payloads)


def test_one_poll_reads_so_much_and_the_next_one_goes_on(pair):
    """An edge is told once: what a bound left unread is read all the same, without another byte."""
    poller = compiled().Poller(64 * 1024)
    many = HEAD + EVENT * 30_000
    one, other = Pair(poller), Pair(poller)
    try:
        one.server.setblocking(False)
        sent = one.server.send(many)
        other.say(HEAD + EVENT)
        before, reads = 0, []
        until = time.monotonic() + PATIENCE_S
        while before < sent and time.monotonic() < until:
            assert poller.poll(-1, 64) == []  # does not wait
            assert poller.held >= poller.heard(one.client.fileno())[1]
            reads.append(poller.heard(one.client.fileno())[1] - before)
            before += reads[-1]
        assert before == sent
        assert max(reads) <= 64 * 1024 + 16 * 1024
        assert poller.heard(other.client.fileno()) == (1, len(HEAD + EVENT))
        assert poller.take(one.client.fileno(), b"")[0] == many[:sent]
        poller.take(other.client.fileno(), b"")
        assert poller.held == 0
    finally:
        one.close()
        other.close()
        poller.close()


def test_one_with_something_unread_can_be_taken_and_forgotten(pair):
    poller = compiled().Poller(16 * 1024)
    pairs = [Pair(poller) for _ in range(3)]
    try:
        for each in pairs:
            each.say(HEAD + EVENT * 10_000)
        assert poller.poll(0, 64) == []
        first, second, third = (each.client.fileno() for each in pairs)
        poller.take(first, b"")
        poller.unregister(second)
        poller.register(second, READ)
        told = dict(poller.poll(0, 64))
        assert told == {first: READ, second: READ}, "what is left on them is Python's to read"
        assert poller.heard(third)[1] > 0
    finally:
        for each in pairs:
            each.close()
        poller.close()


def test_an_answer_that_is_too_large_is_told_of_and_not_read_on(poller, pair):
    one = pair(most=1000)
    one.say(HEAD + EVENT * 200)
    assert poller.poll(0, 64) == [(one.client.fileno(), TOO_LARGE)]
    size = poller.heard(one.client.fileno())[1]
    one.say(EVENT * 200)
    assert poller.poll(0, 64) == []
    assert poller.heard(one.client.fileno())[1] == size


@pytest.mark.parametrize("left", [0, 2, 5, 9])
def test_a_stream_whose_beginning_was_read_goes_on_in_the_middle_of_a_chunk(poller, pair, left: int):
    one = pair()
    poller.attach(one.client.fileno(), left, NEVER, 1 << 30)
    rest = b"x" * (left - 2) + b"\r\n" if left else b""
    one.say(rest + EVENT)
    assert poller.poll(0, 64) == []
    one.say(LAST + b"more")
    assert poller.poll(0, 64) == [(one.client.fileno(), COMPLETE | SURPLUS)]
    assert poller.take(one.client.fileno(), b"")[0] == rest + EVENT + LAST


def test_nobody_touches_it_while_another_thread_polls(poller, pair):
    one = pair()
    thread = threading.Thread(target=poller.poll, args=(-1, 64))
    thread.start()
    until, refused = time.monotonic() + PATIENCE_S, False
    while not refused and time.monotonic() < until:
        try:
            poller.take(one.client.fileno(), b"")
            poller.attach(one.client.fileno(), -1, NEVER, 1 << 30)
        except RuntimeError:
            refused = True
    one.server.send(b"x")
    thread.join(PATIENCE_S)
    assert refused


# -- since when bytes may have been there ----------------------------------------------------------------------------


def since_of(pair):
    """Of every read, as the poller tells it when the answer is taken."""
    marks = pair.poller.take(pair.client.fileno(), b"")[1]
    return [since for _end, _stamp, _own, since in MARK.iter_unpack(marks)]


def polled_between(poller):
    """The instants before and after a poll that finds nothing."""
    before = now()
    assert poller.poll(0, 64) == []
    return before, now()


def test_what_is_read_came_after_the_last_whole_poll_was_called(poller, pair):
    one = pair()
    polled = []
    for piece in (HEAD, EVENT, EVENT):
        polled.append(polled_between(poller))
        one.say(piece)
        poller.poll(0, 64)
    assert all(before <= since <= after for since, (before, after) in zip(since_of(one), polled, strict=True))


def test_a_full_poll_proves_nothing(poller, pair):
    pairs = [pair() for _ in range(3)]
    before, after = polled_between(poller)
    for one in pairs:
        one.say(HEAD)
    for _ in pairs:
        poller.poll(0, 1)
        assert not poller.whole
    poller.poll(0, 1)
    assert poller.whole
    assert all(before <= since <= after for one in pairs for since in since_of(one))


def test_an_interrupted_poll_proves_nothing(poller, pair):
    one = pair()
    before, after = polled_between(poller)
    previous = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        assert poller.poll(-1, 64) == []
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert not poller.whole
    one.say(HEAD)
    poller.poll(0, 64)
    (since,) = since_of(one)
    assert before <= since <= after


def test_polls_prove_nothing_about_what_waits_for_its_turn() -> None:
    """Neither about what a read left, nor about a stream that was ready and has not been read yet."""
    poller = compiled().Poller(READ_SIZE)
    one, other = Pair(poller), Pair(poller)
    try:
        before, after = polled_between(poller)
        one.say(HEAD + EVENT * 10_000)
        other.say(HEAD)
        while poller.heard(other.client.fileno())[0] == 0:
            poller.poll(0, 64)
        (since,) = since_of(other)
        assert before <= since <= after
        while poller.heard(one.client.fileno())[1] < len(HEAD + EVENT * 10_000):
            poller.poll(0, 64)
        marks = list(MARK.iter_unpack(poller.take(one.client.fileno(), b"")[1]))
        assert before <= marks[0][3] <= after
        sizes = [mark[0] - end for mark, end in zip(marks, [0, *(mark[0] for mark in marks)], strict=False)]
        assert [mark[3] == LEFT for mark in marks[1:]] == [size == READ_SIZE for size in sizes[:-1]]
    finally:
        one.close()
        other.close()
        poller.close()


def test_polls_prove_nothing_about_what_python_may_have_left(poller, pair):
    one = pair()
    poller.attach(one.client.fileno(), 0, NEVER, 1 << 30)
    for _ in range(2):
        polled_between(poller)
        one.say(EVENT)
        poller.poll(0, 64)
    first, second = since_of(one)
    assert first == UNPROVEN < second


def test_a_poll_that_waits_looks_again(poller):
    poller.poll(0, 64)
    before = now()
    poller.poll(0.02, 64, 1)
    assert poller.whole
    assert poller.since > before


ANSWER = HEAD + EVENT + LAST
REQUEST = b"POST / HTTP/1.1\r\n\r\n"


def begun(poller, one, request=REQUEST, most=1 << 30):
    return poller.begin(one.client.fileno(), request, NEVER, most, -1, 0)


def answered(poller, one):
    one.say(ANSWER)
    assert poller.poll(0, 64) == [(one.client.fileno(), COMPLETE)]
    assert poller.take(one.client.fileno(), b"")[0] == ANSWER


def test_a_connection_that_rests_takes_the_next_request(poller, pair):
    one = pair()
    for _ in range(3):
        answered(poller, one)
        before = now()
        sent_at, sent = begun(poller, one)
        assert before <= sent_at <= now() and sent == len(REQUEST)
        assert one.server.recv(1000) == REQUEST
        assert poller.poll(0, 64) == []
    answered(poller, one)


def test_what_comes_unasked_is_told_and_the_connection_is_not_used(poller, pair):
    one = pair()
    answered(poller, one)
    assert poller.poll(0, 64) == []
    one.say(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert begun(poller, one) is None
    [(fd, events)] = poller.poll(0, 64)
    assert fd == one.client.fileno() and events & READ
    assert one.client.recv(4) == b"HTTP", "nothing of it was read"


@pytest.mark.parametrize("when", ["with the answer", "before it is taken", "at rest"])
def test_the_end_of_a_connection_is_told_whenever_it_comes(poller, pair, when):
    one = pair()
    fd = one.client.fileno()
    one.say(HEAD + EVENT)
    assert poller.poll(0, 64) == []
    one.server.sendall(LAST)
    if when == "with the answer":
        one.server.shutdown(socket.SHUT_WR)
        _await_end(one)
    select.select([one.client], [], [], PATIENCE_S)
    assert poller.poll(0, 64) == [(fd, COMPLETE)]
    if when == "before it is taken":
        one.server.shutdown(socket.SHUT_WR)
        _await_end(one)
        assert poller.poll(0, 64) == [], "nothing is read until what was told is taken"
    poller.take(fd, b"")
    if when == "at rest":
        one.server.shutdown(socket.SHUT_WR)
        _await_end(one)
    assert begun(poller, one) is None
    told = poller.poll(0, 64)
    assert [number for number, events in told if events & READ] == [fd]


def _await_end(one):
    """Until the peer's end has come, whatever lies before it."""
    waiting = select.poll()
    waiting.register(one.client, select.POLLRDHUP)
    assert waiting.poll(PATIENCE_S * 1000)


def test_a_request_that_goes_in_part_or_not_at_all_is_left_to_python(poller, pair):
    one, gone = pair(), pair()
    answered(poller, one)
    _, sent = begun(poller, one, b"x" * (1 << 24))
    assert 0 < sent < 1 << 24
    one.say(ANSWER)
    assert [fd for fd, _ in poller.poll(0, 64)] == [one.client.fileno()], "not collected"
    assert poller.heard(one.client.fileno()) == (0, 0)
    answered(poller, gone)
    gone.client.shutdown(socket.SHUT_WR)
    _, sent = begun(poller, gone)
    assert sent < 0


def test_a_request_is_refused_while_its_numbers_are_wrong(poller, pair):
    one = pair()
    answered(poller, one)
    with pytest.raises(ValueError, match="not negative"):
        begun(poller, one, most=-1)
