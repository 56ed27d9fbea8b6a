"""The client against servers that behave and servers that do not, over loopback."""

import errno
import resource
import socket
from contextlib import closing, suppress

import pytest
from loops import GET

from inferometer.load.answer import kernel_stamped, read_answer, read_ends_of, stamps_of
from inferometer.record.record import Record
from inferometer.wire.api import api_of
from inferometer.wire.clocks import read_offset
from inferometer.wire.connection import MARK
from inferometer.wire.reactor import now
from inferometer.wire.stamps import SO_TIMESTAMPNS, kernel_stamps

EVENT = b'data: {"choices":[{"text":"x"}]}\n\n'
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def stream(events=3):
    """A handler that streams some events and keeps the connection."""

    def handler(_request, reply):
        reply.start()
        for _ in range(events):
            reply.write(EVENT)
        reply.end()

    return handler


def hello(request, reply):
    reply.respond(200, b'{"path": "%b"}' % request.path.encode())


class Talker:
    """A server of raw bytes: does with each connection, at its first request, what it is told next."""

    def __init__(self, loop, *deeds):
        self.loop, self.deeds, self.connections = loop, list(deeds), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.open = []
        loop.reactor.watch(self.listener.fileno(), self._accept)

    def _accept(self, _events):
        connection, _ = self.listener.accept()
        connection.setblocking(False)
        self.connections += 1
        self.open.append(connection)
        self.loop.reactor.watch(connection.fileno(), lambda _events: self._heed(connection))

    def _heed(self, connection):
        try:
            data = connection.recv(1 << 20)
        except OSError:
            data = b""
        if data and self.deeds:
            self.deeds.pop(0)(connection)
        if not data or connection.fileno() < 0:
            self.hang_up(connection)

    def hang_up(self, connection):
        if connection in self.open:
            self.open.remove(connection)
            fd = connection.fileno()
            if fd >= 0:
                self.loop.reactor.unwatch(fd)
                connection.close()

    def close(self):
        self.loop.reactor.unwatch(self.listener.fileno())
        self.listener.close()
        for connection in list(self.open):
            self.hang_up(connection)

    def say(self, data, then_close=False, reset=False):
        def deed(connection):
            with suppress(ConnectionError):
                connection.send(data)
            if reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            if then_close or reset:
                self.hang_up(connection)

        return deed


@pytest.fixture
def talker(loop):
    with closing(Talker(loop)) as talker:
        yield talker


def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


# -- what works -------------------------------------------------------------------------------------------------------


def test_answers_are_kept_byte_for_byte(loop):
    client = loop.client(loop.serve(stream(200)))
    exchange = loop.fetch(client)
    assert exchange.outcome == "ok"
    assert exchange.raw.endswith(b"\r\n0\r\n\r\n")
    assert exchange.raw.count(EVENT) == 200
    assert len(stamps_of(exchange, 0)) == len(read_ends_of(exchange))
    assert read_ends_of(exchange)[-1] == len(exchange.raw)


def test_a_connection_is_used_again(loop):
    server = loop.serve(stream())
    client = loop.client(server)
    assert {loop.fetch(client).outcome for _ in range(5)} == {"ok"}
    assert client.opened == 1
    assert len(server.connections) == 1


def test_only_the_first_pays_for_the_connection(loop):
    client = loop.client(loop.serve(hello))
    first, second = loop.fetch(client), loop.fetch(client)
    assert first.connect_ns > 0
    assert (second.connect_ns, second.tls_ns, second.retry_ns) == (0, 0, 0)


def test_many_at_once(loop):
    client = loop.client(loop.serve(stream(10)))
    exchanges = loop.fetch(client, count=50)
    assert {exchange.outcome for exchange in exchanges} == {"ok"}
    assert client.opened == 50


def test_connections_opened_ahead_are_used(loop):
    server = loop.serve(hello)
    client = loop.client(server)
    standing = []
    client.open(3, lambda: standing.append(1))
    loop.until(lambda: len(standing) == 3)
    exchanges = loop.fetch(client, count=3)
    assert client.opened == 3
    assert all(exchange.connect_ns == 0 for exchange in exchanges)


def test_opening_ahead_tells_of_failures_too(loop):
    told = []
    client = loop.client(unused_port())
    client.open(2, lambda: told.append(1))
    loop.until(lambda: len(told) == 2)


def test_the_instants_are_in_order_and_within_the_exchange(loop):
    client = loop.client(loop.serve(stream(5)))
    before = now()
    exchange = loop.fetch(client)
    instants = stamps_of(exchange, read_offset().ns).tolist()
    slack = 200_000  # the two clocks are read one after the other
    assert before <= exchange.started_at <= exchange.sent_at <= exchange.ended_at <= now()
    assert exchange.sent_at - slack <= instants[0] <= instants[-1] <= exchange.ended_at + slack
    assert instants == sorted(instants)


def test_who_stamps(loop):
    exchange = loop.fetch(loop.client(loop.serve(stream())))
    if loop.kernel_stamps and kernel_stamps():
        assert (exchange.kernel, exchange.since) == (True, [])
    else:
        assert not exchange.kernel
        assert len(exchange.since) == len(exchange.reads)
        assert all(exchange.started_at - 10**9 < since <= exchange.ended_at for since in exchange.since)


def test_stamps_that_stay_away(loop):
    """The kernel rarely gives none: then we stamp, and only those reads are less sure."""
    replies = []

    def handler(_request, reply):
        replies.append(reply)
        reply.start()

    client = loop.client(loop.serve(handler))
    ended = []
    exchange = client.fetch(GET, ended.append)
    for number in range(1, 5):
        loop.until(lambda number=number: exchange.reads_so_far == number)
        if number == 3:
            exchange.connection._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 0)
        replies[0].write(EVENT)
    loop.until(lambda: exchange.reads_so_far == 5)
    replies[0].end()
    loop.until(lambda: ended)
    assert exchange.outcome == "ok"
    assert len(stamps_of(exchange, 0)) == len(read_ends_of(exchange)) == 6
    stamped = loop.kernel_stamps and kernel_stamps()
    collected = [bool(own) for _, _, own in MARK.iter_unpack(exchange.bulk[1])] if exchange.bulk else []
    mine = [bool(since) for since in exchange.since] or [False] * len(exchange.reads)
    assert mine + collected == [not stamped] * 3 + [True] * 3
    assert not kernel_stamped(exchange)
    record = Record(session=0, scheduled_at=0)
    read_answer(record, exchange, api_of("completions"), read_offset().ns)
    assert (record.outcome, record.counted_tokens) == ("ok", 4)


def test_a_known_length(loop, talker):
    talker.deeds = [talker.say(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")] * 2
    client = loop.client(talker.port)
    assert [loop.fetch(client).outcome for _ in range(2)] == ["ok", "ok"]
    assert talker.connections == 1


def test_an_empty_body(loop, talker):
    talker.deeds = [
        talker.say(b"HTTP/1.1 204 No Content\r\n\r\n"),
        talker.say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ]
    client = loop.client(talker.port)
    assert [loop.fetch(client).outcome for _ in range(2)] == ["status", "ok"]


def test_a_body_until_the_end_of_the_connection(loop, talker):
    talker.deeds = [talker.say(b"HTTP/1.1 200 OK\r\n\r\n" + EVENT * 2, then_close=True)] * 2
    client = loop.client(talker.port)
    for _ in range(2):
        exchange = loop.fetch(client)
        assert (exchange.outcome, exchange.retry_ns) == ("ok", 0)
    assert client.opened == 2


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_http_1_0_and_connection_close(loop, talker, version):
    fields = b"" if version == b"1.0" else b"Connection: close\r\n"
    answer = b"HTTP/%b 200 OK\r\n%bContent-Length: 2\r\n\r\nok" % (version, fields)
    talker.deeds = [talker.say(answer), talker.say(answer)]
    client = loop.client(talker.port)
    assert [loop.fetch(client).outcome for _ in range(2)] == ["ok", "ok"]
    assert client.opened == 2, "not kept alive"


def test_continue_comes_before_the_answer(loop):
    server = loop.serve(hello)
    body = b"x" * 10
    request = b"POST /a HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n"
    client = loop.client(server)
    ended = []
    exchange = client.fetch(request, ended.append)
    loop.until(lambda: exchange.reads)
    assert exchange.reads == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    assert exchange.head is None
    exchange.connection._push(body)
    loop.until(lambda: ended)
    assert (exchange.outcome, exchange.head.status) == ("ok", 200)


def test_a_large_request_goes_out_in_parts(loop):
    """20 MB do not fit into any socket's buffer."""
    sizes = []

    def handler(request, reply):
        sizes.append((len(request.body), request.body[:3], request.body[-3:]))
        stream()(request, reply)

    client = loop.client(loop.serve(handler))
    body = b"abc" + b"x" * 20_000_000 + b"xyz"
    request = b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    for _ in range(2):
        assert loop.fetch(client, request).outcome == "ok"
    assert sizes == [(len(body), b"abc", b"xyz")] * 2
    assert client.opened == 1


@pytest.mark.parametrize("hangs_up", [False, True])
def test_an_answer_before_the_whole_request_was_sent(loop, talker, hangs_up):
    """A server that refuses what is too large answers, hangs up, and the answer counts."""
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhuge"
    talker.deeds = [talker.say(refusal, then_close=hangs_up)] * 20
    client = loop.client(talker.port)
    body = b"x" * 20_000_000
    exchange = loop.fetch(client, b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert (exchange.outcome, exchange.head.status) == ("status", 413)
    assert loop.fetch(client).head.status == 413, "on a connection of its own"
    assert client.opened == 2


# -- what does not ----------------------------------------------------------------------------------------------------


def test_a_connection_that_died_after_its_answer_is_not_used(loop):
    server = loop.serve(hello)
    client = loop.client(server)
    loop.fetch(client)
    for connection in list(server.connections):
        connection.drop()
    loop.until(lambda: not client._idle)
    exchange = loop.fetch(client)
    assert (exchange.outcome, exchange.retry_ns, client.opened) == ("ok", 0, 2)


def test_a_connection_that_dies_as_the_next_request_comes_is_replaced_once(loop, talker):
    fine = talker.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    talker.deeds = [fine, talker.hang_up, fine]
    client = loop.client(talker.port)
    loop.fetch(client)
    exchange = loop.fetch(client)
    assert exchange.outcome == "ok"
    assert exchange.retry_ns > 0
    assert client.opened == 2
    assert exchange.started_at + exchange.retry_ns <= exchange.sent_at, "of the attempt that was answered"
    assert exchange.connect_ns > 0


def test_one_reset_as_the_next_request_comes_too(loop, talker):
    fine = talker.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    talker.deeds = [fine, talker.say(b"", reset=True), fine]
    client = loop.client(talker.port)
    loop.fetch(client)
    exchange = loop.fetch(client)
    assert (exchange.outcome, exchange.retry_ns > 0) == ("ok", True)


def test_a_second_death_is_a_failure(loop, talker):
    fine = talker.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    talker.deeds = [fine, talker.hang_up, talker.hang_up, fine]
    client = loop.client(talker.port)
    loop.fetch(client)
    exchange = loop.fetch(client)
    assert (exchange.outcome, exchange.error) == ("connect", "the server closed the connection")
    assert exchange.retry_ns > 0


def test_a_fresh_connection_that_dies_is_not_tried_again(loop, talker):
    talker.deeds = [talker.hang_up]
    exchange = loop.fetch(loop.client(talker.port))
    assert (exchange.outcome, exchange.retry_ns, talker.connections) == ("connect", 0, 1)


def test_refused(loop):
    exchange = loop.fetch(loop.client(unused_port()))
    assert (exchange.outcome, exchange.error, exchange.sent_at) == ("connect", "Connection refused", None)
    assert exchange.connect_ns > 0


def test_the_next_address_is_tried(loop):
    server = loop.serve(hello)
    client = loop.client(server)
    client.addresses = [(socket.AF_INET, ("127.0.0.1", unused_port())), *client.addresses]
    assert loop.fetch(client).outcome == "ok"


def test_no_connection_in_time(loop):
    """A listener whose queue is full does not answer."""
    with socket.socket() as listener, closing(socket.socket()) as first, closing(socket.socket()) as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        client = loop.client(listener.getsockname()[1], connect_timeout_s=0.05)
        exchanges = loop.fetch(client, count=3)
        assert {(each.outcome, each.error) for each in exchanges} == {("connect", "no connection within 0.05 s")}


def test_out_of_descriptors(loop):
    """What fails at once fails from the loop, and others go on."""
    server = loop.serve(hello)
    client = loop.client(server)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as probe:
        limit = probe.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        exchange = loop.fetch(client)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (exchange.outcome, exchange.error) == ("connect", "Too many open files")
    assert loop.fetch(client).outcome == "ok"


def test_ended_before_a_failure_was_told(loop, monkeypatch):
    """Whoever gives up while a failure is on its way hears of one end, not of two."""

    class NoSocket(socket.socket):
        def connect_ex(self, _address):
            return errno.ENETUNREACH

    monkeypatch.setattr(socket, "socket", NoSocket)
    ended = []
    exchange = loop.client("http://127.0.0.1:9").fetch(GET, ended.append)
    assert ended == []
    exchange.end("cancelled")
    loop.reactor.call_at(now() + 2_000_000, loop.reactor.stop)
    loop.reactor.run()
    assert [each.outcome for each in ended] == ["cancelled"]


def test_a_request_that_takes_too_long(loop):
    def handler(request, reply):
        if request.path == "/slow":
            reply.start()
            reply.write(EVENT)
        else:
            hello(request, reply)

    client = loop.client(loop.serve(handler), request_timeout_s=0.06)
    exchange = loop.fetch(client, GET.replace(b"/ ", b"/slow "))
    assert (exchange.outcome, exchange.error) == ("timeout", "no complete answer within 0.06 s")
    assert exchange.ended_at - exchange.started_at >= 60_000_000
    assert exchange.reads
    assert loop.fetch(client).outcome == "ok"
    assert client.opened == 2, "the connection of the late answer is not used again"


def test_time_limits_expire_one_by_one(loop):
    """The first timer is for the oldest; the others follow, also after the oldest was answered."""
    replies = []

    def handler(request, reply):
        if len(replies) == 0:
            hello(request, reply)
        replies.append(reply)

    client = loop.client(loop.serve(handler), request_timeout_s=0.04)
    exchanges = loop.fetch(client, count=3)
    assert sorted(each.outcome for each in exchanges) == ["ok", "timeout", "timeout"]


def test_silence(loop):
    """Of two streams the one that falls silent is ended, the one that goes on is not."""

    def handler(request, reply):
        reply.start()
        if request.path == "/silent":
            return

        def go_on(left):
            reply.write(EVENT)
            if left:
                loop.reactor.call_at(now() + 10_000_000, lambda: go_on(left - 1))
            else:
                reply.end()

        go_on(30)

    client = loop.client(loop.serve(handler), idle_timeout_s=0.1)
    ended = []
    silent = client.fetch(GET.replace(b"/ ", b"/silent "), ended.append)
    steady = client.fetch(GET, ended.append)
    loop.until(lambda: len(ended) == 2)
    assert (silent.outcome, silent.error) == ("timeout", "silent for 0.1 s")
    assert steady.outcome == "ok"


def test_a_cut_stream(loop):
    def handler(_request, reply):
        reply.start()
        reply.write(EVENT)
        reply.close()

    exchange = loop.fetch(loop.client(loop.serve(handler)))
    assert (exchange.outcome, exchange.error) == ("cut", "the server closed the connection")
    assert EVENT in b"".join(exchange.reads)


def test_a_cut_in_a_body_of_known_length(loop, talker):
    talker.deeds = [talker.say(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", then_close=True)]
    assert loop.fetch(loop.client(talker.port)).outcome == "cut"


def test_a_reset_stream(loop):
    def handler(_request, reply):
        reply.start()
        reply.write(EVENT)
        loop.until_sent = loop.reactor.call_at(now() + 3_000_000, reply.abort)

    exchange = loop.fetch(loop.client(loop.serve(handler)))
    assert exchange.outcome == "cut"
    assert exchange.error in ("Connection reset by peer", "the server closed the connection")


def test_half_a_head_is_no_answer(loop, talker):
    talker.deeds = [talker.say(b"HTTP/1.1 200 OK\r\nContent-", then_close=True)]
    assert loop.fetch(loop.client(talker.port)).outcome == "connect"


@pytest.mark.parametrize("data", [b"220 smtp.example ESMTP\r\n", b"\x16\x03\x01\x02", b"SSH-2.0-OpenSSH_9\r\n"])
def test_not_http(loop, talker, data):
    talker.deeds = [talker.say(data)]
    exchange = loop.fetch(loop.client(talker.port))
    assert exchange.outcome == "bad"
    assert "not an HTTP answer" in exchange.error


def test_broken_framing_ends_the_exchange_at_once(loop, talker):
    talker.deeds = [talker.say(WHOLE + b"5\r\nhello\r\nno size\r\nhello\r\n\r\n")]
    exchange = loop.fetch(loop.client(talker.port))
    assert exchange.outcome == "bad"
    assert "broken chunk framing" in exchange.error


def test_words_that_nobody_asked_for_close_the_connection(loop, talker):
    """Such as the 408 of a server that got tired of an idle connection."""
    fine = talker.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    talker.deeds = [fine, fine]
    client = loop.client(talker.port)
    loop.fetch(client)
    talker.open[0].send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    loop.until(lambda: not client._idle)
    assert loop.fetch(client).outcome == "ok"
    assert client.opened == 2


def test_ending_is_once_and_for_all(loop):
    client = loop.client(loop.serve(lambda _request, reply: reply.start()))
    ended = []
    exchange = client.fetch(GET, ended.append)
    loop.until(lambda: exchange.reads)
    exchange.end("cancelled")
    exchange.end("timeout", "late")
    client.close()
    assert (len(ended), exchange.outcome, exchange.error) == (1, "cancelled", None)


def test_closing_the_client_ends_what_is_under_way(loop):
    client = loop.client(loop.serve(lambda _request, reply: reply.start()), request_timeout_s=5, idle_timeout_s=5)
    ended = []
    exchanges = [client.fetch(GET, ended.append) for _ in range(3)]
    loop.until(lambda: all(each.reads for each in exchanges))
    client.close()
    assert [each.outcome for each in ended] == ["cancelled"] * 3


# -- the server's side ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", 411),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 70_000, 431),
    ],
)
def test_what_the_server_refuses(loop, request_bytes, status):
    exchange = loop.fetch(loop.client(loop.serve(hello)), request_bytes)
    assert (exchange.outcome, exchange.head.status) == ("status", status)


def test_requests_in_one_packet_are_answered_in_order(loop):
    server = loop.serve(hello)
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.send(GET.replace(b"/ ", b"/a ") + GET.replace(b"/ ", b"/b ")[:20])
        client.send(GET.replace(b"/ ", b"/b ")[20:])
        client.setblocking(False)
        got = bytearray()

        def read(_events):
            got.extend(client.recv(9999))

        loop.reactor.watch(client.fileno(), read)
        loop.until(lambda: got.count(b'"path"') == 2)
        loop.reactor.unwatch(client.fileno())
    assert got.index(b'"/a"') < got.index(b'"/b"')


def test_the_server_hears_that_a_client_left(loop):
    left, replies = [], []

    def handler(_request, reply):
        reply.start()
        reply.on_close = lambda: left.append(reply.closed)
        replies.append(reply)

    client = loop.client(loop.serve(handler))
    ended = []
    exchange = client.fetch(GET, ended.append)
    loop.until(lambda: exchange.reads)
    exchange.end("cancelled")
    loop.until(lambda: left)
    assert left == [True]
    replies[0].write(b"into the void")


def test_what_the_socket_does_not_take_is_sent_later(loop):
    def handler(_request, reply):
        reply.start(200, {"content-type": "text/plain"})
        for _ in range(20):
            reply.write(b"y" * 500_000)
        reply.end()

    exchange = loop.fetch(loop.client(loop.serve(handler)))
    assert exchange.outcome == "ok"
    assert sum(map(len, exchange.reads)) > 10_000_000
