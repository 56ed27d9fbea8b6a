"""The client over TLS and through proxies: real handshakes, real tunnels, on loopback."""

import socket
import ssl
import threading
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from loops import GET, Loop

from inferometer.wire.origin import tls_context
from inferometer.wire.reactor import now

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"


@contextmanager
def tls_server(certificates, answers=(ANSWER,), client_ca=None, goodbye=False):
    """A blocking TLS server on a thread: one connection after the other, an answer to each request on it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{certificates}/server.pem", f"{certificates}/server.key")
    if client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    seen = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    plain, _ = listener.accept()
                    plain.settimeout(10)
                    with suppress(OSError), context.wrap_socket(plain, server_side=True) as connection:
                        for answer in answers:
                            seen.append(_request(connection))
                            connection.sendall(answer)
                        if goodbye:
                            connection.unwrap()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], seen
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def _request(connection):
    """A whole request; its body may be large."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1 << 16) or _gone()
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    pieces = [body]
    got = len(body)
    while got < length:
        pieces.append(connection.recv(1 << 16) or _gone())
        got += len(pieces[-1])
    return b"".join(pieces)


def _gone() -> None:
    raise ConnectionError("the client left")


def trusting(certificates, **more):
    return tls_context(True, f"{certificates}/server.pem", more.get("cert"), more.get("key"))


def test_a_trusted_server(loop: Loop, certificates: Path) -> None:
    with tls_server(certificates, [ANSWER, CHUNKS, CHUNKS]) as (port, _):
        client = loop.client(f"https://localhost:{port}", tls=trusting(certificates))
        exchanges = [loop.fetch(client) for _ in range(3)]
        assert [each.outcome for each in exchanges] == ["ok"] * 3
        assert client.opened == 1
        assert exchanges[0].tls_ns > 0
        assert exchanges[1].tls_ns == 0
        assert b"".join(exchanges[1].reads) == CHUNKS
        client.close()


def test_stamps_of_encrypted_reads(loop: Loop, certificates: Path) -> None:
    with tls_server(certificates) as (port, _):
        client = loop.client(f"https://localhost:{port}", tls=trusting(certificates))
        exchange = loop.fetch(client)
        assert len(exchange.stamps) == len(exchange.reads)
        assert len(exchange.since) == len(exchange.reads)
        assert exchange.own == (set() if exchange.kernel else set(range(len(exchange.reads))))
        client.close()


def test_an_unknown_certificate(loop: Loop, certificates: Path) -> None:
    with tls_server(certificates) as (port, _):
        exchange = loop.fetch(loop.client(f"https://localhost:{port}"))
        assert exchange.outcome == "connect"
        assert "CERTIFICATE_VERIFY_FAILED" in exchange.error
        assert exchange.connect_ns < now() - exchange.started_at


def test_an_unknown_certificate_where_nobody_looks(loop: Loop, certificates: Path) -> None:
    with tls_server(certificates) as (port, _):
        client = loop.client(f"https://127.0.0.1:{port}", tls=tls_context(False, None, None, None))
        assert loop.fetch(client).outcome == "ok"
        client.close()


def test_a_client_certificate(loop: Loop, certificates: Path) -> None:
    with tls_server(certificates, client_ca=f"{certificates}/client.pem") as (port, _):
        url = f"https://localhost:{port}"
        own = trusting(certificates, cert=f"{certificates}/client.pem", key=f"{certificates}/client.key")
        client = loop.client(url, tls=own)
        assert loop.fetch(client).outcome == "ok"
        client.close()
        assert loop.fetch(loop.client(url, tls=trusting(certificates))).outcome == "connect"


def test_a_large_request(loop: Loop, certificates: Path) -> None:
    """More than one record, more than any buffer."""
    body = b"abc" + b"x" * 5_000_000 + b"xyz"
    with tls_server(certificates, [ANSWER, ANSWER]) as (port, seen):
        client = loop.client(f"https://localhost:{port}", tls=trusting(certificates))
        request = b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        assert [loop.fetch(client, request).outcome for _ in range(2)] == ["ok", "ok"]
        assert seen == [body, body]
        client.close()


def test_a_goodbye_ends_a_body_without_length(loop: Loop, certificates: Path) -> None:
    with tls_server(certificates, [b"HTTP/1.1 200 OK\r\n\r\nall"], goodbye=True) as (port, _):
        exchange = loop.fetch(loop.client(f"https://localhost:{port}", tls=trusting(certificates)))
        assert (exchange.outcome, b"".join(exchange.reads)[-3:]) == ("ok", b"all")


def test_a_goodbye_right_behind_the_answer(loop: Loop, certificates: Path) -> None:
    """The connection is not used again, and the next request is none the worse for it."""
    with tls_server(certificates, [CHUNKS], goodbye=True) as (port, _):
        client = loop.client(f"https://localhost:{port}", tls=trusting(certificates))
        assert [loop.fetch(client).outcome for _ in range(3)] == ["ok"] * 3
        assert client.opened == 3


def test_a_stream_cut_by_a_goodbye(loop: Loop, certificates: Path) -> None:
    with tls_server(certificates, [CHUNKS[:-5]], goodbye=True) as (port, _):
        exchange = loop.fetch(loop.client(f"https://localhost:{port}", tls=trusting(certificates)))
        assert exchange.outcome == "cut"


def test_tls_to_a_server_without(loop: Loop) -> None:
    with closing(Proxy(loop, b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
        client = loop.client(server.url.replace("http", "https"), tls=tls_context(False, None, None, None))
        exchange = loop.fetch(client)
        assert exchange.outcome == "connect"
        assert exchange.error.startswith("TLS: ")


# -- proxies ----------------------------------------------------------------------------------------------------------


class Proxy:
    """Opens tunnels, on the test's own reactor; `answer` is what it says to CONNECT."""

    def __init__(self, loop, answer=b"HTTP/1.1 200 Connection established\r\n\r\n", port=None):
        self.loop, self.answer, self.target_port = loop, answer, port
        self.asked = []
        self._ends = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.url = f"http://me:secret@127.0.0.1:{self._listener.getsockname()[1]}"
        loop.reactor.watch(self._listener.fileno(), self._accept)

    def _accept(self, _events):
        near, _ = self._listener.accept()
        self._ends.append(near)
        self.loop.reactor.watch(near.fileno(), lambda _events: self._open(near))

    def _open(self, near):
        self.asked.append(near.recv(9999))
        if self.answer:
            near.sendall(self.answer)
        if b" 200 " not in self.answer[:13]:
            self._hang_up(near)
            return
        far = socket.create_connection(("127.0.0.1", self.target_port))
        self._ends.append(far)
        for one, other in ((near, far), (far, near)):
            self.loop.reactor.watch(one.fileno(), lambda _events, one=one, other=other: self._pass(one, other))

    def _pass(self, one, other):
        try:
            data = one.recv(1 << 16)
        except OSError:
            data = b""
        if data and other in self._ends:
            other.sendall(data)
        else:
            self._hang_up(one)
            self._hang_up(other)

    def _hang_up(self, end):
        if end in self._ends:
            self._ends.remove(end)
            self.loop.reactor.unwatch(end.fileno())
            end.close()

    def close(self) -> None:
        for end in list(self._ends):
            self._hang_up(end)
        self.loop.reactor.unwatch(self._listener.fileno())
        self._listener.close()


def test_a_tunnel(loop: Loop, certificates: Path) -> None:
    with (
        tls_server(certificates, [ANSWER, CHUNKS]) as (port, _),
        closing(Proxy(loop, port=port)) as proxy,
    ):
        client = loop.client("https://localhost:4443", tls=trusting(certificates), proxy=proxy.url)
        assert [loop.fetch(client).outcome for _ in range(2)] == ["ok", "ok"]
        [asked] = proxy.asked
        assert asked.startswith(b"CONNECT localhost:4443 HTTP/1.1\r\nHost: localhost:4443\r\n")
        assert b"\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n" in asked
        client.close()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 407 Who are you\r\n\r\n", "the proxy answered 407"),
        (b"SSH-2.0-OpenSSH_9\r\n", "the proxy: not an HTTP answer"),
        (b"", "the proxy closed the connection"),
    ],
)
def test_a_proxy_that_opens_no_tunnel(loop: Loop, answer: bytes, error: str) -> None:
    with closing(Proxy(loop, answer)) as proxy:
        exchange = loop.fetch(loop.client("https://localhost:4443", proxy=proxy.url))
        assert exchange.outcome == "connect"
        assert exchange.error.startswith(error)


def test_a_plain_proxy_is_spoken_to_itself(loop: Loop) -> None:
    """Without TLS the proxy is asked for the whole URL; no tunnel."""
    asked = []

    def handler(request, reply):
        asked.append(request.path)
        reply.respond(200, b"{}")

    server = loop.serve(handler)
    client = loop.client("http://model.test:81", proxy=f"http://127.0.0.1:{server.port}")
    target = client.origin.request_target("/v1/completions").encode()
    assert loop.fetch(client, GET.replace(b"/ ", target + b" ", 1)).outcome == "ok"
    assert asked == ["http://model.test:81/v1/completions"]


def test_a_proxy_that_is_not_there(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    exchange = loop.fetch(loop.client("https://localhost:4443", proxy=f"http://127.0.0.1:{port}"))
    assert (exchange.outcome, exchange.error) == ("connect", "Connection refused")
