"""The router over loopback: forwarding, retries, and misbehaving clients and replicas."""

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from routers_at_work import RunningRouter, Script, ScriptedReplica, Visit, routing, until

from inferometer.router.feed import FeedPage
from inferometer.router.relay import compiled

PROMPT = {"prompt": "tell me about the sea", "stream": True}
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture(params=[True, False], ids=["compiled", "python"])
def in_c(request: pytest.FixtureRequest) -> bool:
    if request.param and compiled() is None:
        pytest.skip("the compiled relay was not built")
    return bool(request.param)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def respond(visit: Visit) -> None:
    visit.respond()


def stream(visit: Visit) -> None:
    visit.send(STREAM)
    for at in range(50):
        visit.send(chunk(b"data: %d\n\n" % at))
    visit.send(b"0\r\n\r\n")


def hang_up(visit: Visit) -> None:
    visit.connection.shutdown(socket.SHUT_RDWR)


EVENTS = b"".join(b"data: %d\n\n" % at for at in range(50))


def test_a_stream_arrives_whole_and_the_connection_serves_the_next(in_c: bool) -> None:
    with routing(in_c, [stream], health_interval_s=60) as (router, (replica,)):
        client = router.connection()
        for _ in range(3):
            client.request("POST", "/v1/completions", json.dumps(PROMPT))
            response = client.getresponse()
            assert (response.status, response.headers["x-inferometer-replica"]) == (200, "r0")
            assert response.read() == EVENTS
        client.close()
        first, second = replica.visits.get(), replica.visits.get()
        assert first.connection is second.connection  # kept between requests
        assert router.metric("inferometer_router_requests_total") == 3
        assert router.metric("inferometer_router_relayed_bytes_total") > 3 * len(EVENTS)
        assert [replica["in_flight"] for replica in router.state()["replicas"]] == [0]


def test_an_event_is_passed_on_when_it_comes(in_c: bool) -> None:
    seen = threading.Event()

    def one_by_one(visit: Visit) -> None:
        visit.send(STREAM + chunk(b"data: first\n\n"))
        assert seen.wait(10)
        visit.send(chunk(b"data: second\n\n") + b"0\r\n\r\n")

    with routing(in_c, [one_by_one]) as (router, _):
        client = router.connection()
        client.request("POST", "/v1/completions", json.dumps(PROMPT))
        response = client.getresponse()
        assert response.readline() == b"data: first\n"
        seen.set()  # the replica sends on only when the first was here
        assert response.read() == b"\ndata: second\n\n"
        client.close()


def test_headers_are_passed_on_both_ways(in_c: bool) -> None:
    def echo(visit: Visit) -> None:
        visit.respond(visit.head, headers=b"set-cookie: a=1\r\nset-cookie: b=2\r\nkeep-alive: 5\r\nx-request-id: 7\r\n")

    with routing(in_c, [echo]) as (router, (replica,)):
        headers = {"authorization": "Bearer k", "x-custom": "1", "connection": "keep-alive, x-hop", "x-hop": "no"}
        _, body, answered = router.call("/v1/things?a=b", {"x": 1}, headers)
        sent = body.decode().lower().split("\r\n")
        assert sent[0] == "post /v1/things?a=b http/1.1"
        assert {"authorization: bearer k", "x-custom: 1", "x-forwarded-for: 127.0.0.1"} <= set(sent)
        assert f"host: 127.0.0.1:{replica.port}" in sent
        assert not [line for line in sent if line.startswith(("x-hop", "connection"))]
        assert answered.get_all("set-cookie") == ["a=1", "b=2"]
        assert (answered["x-request-id"], answered["keep-alive"]) == ("7", None)


def test_bodies_of_every_framing(in_c: bool) -> None:
    def as_asked(visit: Visit) -> None:
        path = visit.head.split(b" ")[1]
        if path == b"/close":
            visit.send(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
            hang_up(visit)
        elif path == b"/none":
            visit.send(b"HTTP/1.1 204 No Content\r\n\r\n")
        elif path == b"/interim":
            visit.send(b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok")
        elif path == b"/head":
            visit.send(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n")
        else:
            visit.respond(b"x" * 300_000)

    with routing(in_c, [as_asked]) as (router, _):
        assert router.call("/close")[:2] == (200, b"until the end")
        assert router.call("/none")[:2] == (204, b"")
        assert router.call("/interim")[:2] == (201, b"ok")
        status, body, headers = router.call("/head", method="HEAD")
        assert (status, body, headers["content-length"]) == (200, b"", "99")
        assert router.call("/large")[1] == b"x" * 300_000


def test_a_request_is_tried_elsewhere_before_its_first_byte(in_c: bool) -> None:
    with routing(in_c, [hang_up, respond]) as (router, replicas):
        for _ in range(6):
            assert router.call("/v1/completions", PROMPT)[:2] == (200, b"ok")
        assert replicas[1].visits.qsize() == 6
        assert router.metric("inferometer_router_retries_total") >= 1


def test_a_status_that_another_replica_may_not_have_is_tried_elsewhere(in_c: bool) -> None:
    def overloaded(visit: Visit) -> None:
        visit.respond(b"busy", b"503 Service Unavailable")

    with routing(in_c, [overloaded, respond]) as (router, _):
        assert {router.call("/v1/completions", PROMPT)[0] for _ in range(4)} == {200}
        assert all(replica["healthy"] for replica in router.state()["replicas"])
    with routing(in_c, [overloaded, overloaded]) as (router, _):
        assert router.call("/v1/completions", PROMPT)[:2] == (503, b"busy")  # nobody does better: as it is


def test_a_stream_that_its_replica_cuts_is_cut_and_not_repeated(in_c: bool) -> None:
    def cut(visit: Visit) -> None:
        visit.send(STREAM + chunk(b"data: 0\n\n"))
        hang_up(visit)

    with routing(in_c, [cut, cut]) as (router, replicas):
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            router.call("/v1/completions", PROMPT)
        assert replicas[0].visits.qsize() + replicas[1].visits.qsize() == 1
        lines = router.call("/metrics")[1].decode()
        assert 'inferometer_router_requests_total{outcome="cut",replica="r0"} 1.0' in lines


def test_a_client_that_leaves_ends_the_request_at_the_replica(in_c: bool) -> None:
    left: list[bool] = []

    def endless(visit: Visit) -> None:
        visit.send(STREAM + chunk(b"data: 0\n\n"))
        left.append(visit.closed_by_peer())

    with routing(in_c, [endless]) as (router, _):
        client = router.connection()
        client.request("POST", "/v1/completions", json.dumps(PROMPT))
        assert client.getresponse().readline() == b"data: 0\n"
        assert client.sock is not None
        client.sock.shutdown(socket.SHUT_RDWR)
        client.close()
        until(lambda: left == [True])
        until(lambda: router.state()["replicas"][0]["in_flight"] == 0)
        assert 'outcome="client_left"' in router.call("/metrics")[1].decode()


def test_a_slow_client_slows_down_its_replica_and_nobody_else(in_c: bool) -> None:
    whole = 64 << 20
    sent = [0]

    def pour(visit: Visit) -> None:
        if b"/quick" in visit.head:
            visit.respond()
            return
        visit.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % whole)
        piece = b"x" * (1 << 20)
        while sent[0] < whole:
            visit.send(piece)
            sent[0] += len(piece)

    with routing(in_c, [pour]) as (router, _), socket.create_connection(("127.0.0.1", router.port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.sendall(b"GET /pour HTTP/1.1\r\nhost: x\r\n\r\n")
        before = -1
        while before != sent[0]:  # until it stands still; every question below goes through the same router
            before = sent[0]
            for _ in range(20):
                assert router.call("/quick")[1] == b"ok"
        assert sent[0] < whole  # held back by the client, who has read nothing
        client.settimeout(10)
        got = 0
        while got < whole:
            data = client.recv(1 << 20)
            assert data
            got += len(data)
        until(lambda: sent[0] == whole)  # the last bytes may be here before their sender goes on


def test_a_kept_connection_that_the_replica_closed_meanwhile_is_no_failure(in_c: bool) -> None:
    def once(visit: Visit) -> None:
        visit.respond()
        visit.connection.shutdown(socket.SHUT_WR)

    with routing(in_c, [once]) as (router, _):
        for _ in range(5):
            assert router.call("/v1/completions", PROMPT)[:2] == (200, b"ok")
        assert router.metric("inferometer_router_retries_total") == 0


def test_requests_wait_where_replicas_are_full_and_are_refused_where_too_many_wait(in_c: bool) -> None:
    gate = threading.Event()

    def gated(visit: Visit) -> None:
        assert gate.wait(10)
        visit.respond()

    with routing(in_c, [gated], max_in_flight=1, queue_limit=2) as (router, _), ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(router.call, "/v1/completions", PROMPT) for _ in range(3)]
        until(lambda: router.state()["queued"] == 2)
        assert router.state()["replicas"][0]["in_flight"] == 1
        status, body, headers = router.call("/v1/completions", PROMPT)
        assert (status, headers["retry-after"]) == (503, "1")
        assert "as many requests in flight as it may have" in json.loads(body)["error"]["message"]
        gate.set()
        assert [answer.result()[0] for answer in answers] == [200, 200, 200]


def test_when_all_are_down_the_error_says_who_and_why_and_they_may_come_back(in_c: bool) -> None:
    with routing(in_c, [respond, respond]) as (router, replicas):
        for replica in replicas:
            replica.healthy = False
        until(lambda: router.call("/health")[0] == 503)
        status, body, _ = router.call("/v1/completions", PROMPT)
        message = json.loads(body)["error"]["message"]
        assert status == 503
        assert "none of 2 replicas is healthy (r0: /health answered 500; r1: /health answered 500)" in message
        replicas[1].healthy = True
        until(lambda: router.call("/health")[0] == 200)
        assert router.call("/v1/completions", PROMPT)[2]["x-inferometer-replica"] == "r1"


def test_a_replica_that_dies_is_forgotten_and_not_missed(in_c: bool) -> None:
    with routing(in_c, [respond, respond], policy="prefix_aware") as (router, replicas):
        home = router.call("/v1/completions", PROMPT)[2]["x-inferometer-replica"]
        assert router.state()["memory"]["tree_chars"][home] > 0
        lost = replicas[int(home[1])]
        lost.close()
        until(lambda: home not in router.state()["memory"]["tree_chars"])
        assert {router.call("/v1/completions", PROMPT)[0] for _ in range(4)} == {200}


def test_an_explanation_on_request(in_c: bool) -> None:
    with routing(in_c, [respond, respond], policy="prefix_aware") as (router, _):
        home = router.call("/v1/completions", PROMPT)[2]["x-inferometer-replica"]
        explained = {"X-Inferometer-Explain": "1"}
        more = {"prompt": str(PROMPT["prompt"]) + ", and of ships \u2014"}
        _, _, headers = router.call("/v1/completions", more, explained)
        decision = json.loads(headers["x-inferometer-decision"])
        assert (decision["replica"], decision["kind"]) == (home, "prefix_match")
        assert decision["matched_text"] == PROMPT["prompt"]
        assert [candidate["replica"] for candidate in decision["candidates"]] == [home]
        assert decision["in_flight"] == {"r0": 0, "r1": 0}
        assert json.loads(router.call("/router/decisions")[1]) == [decision]


def test_the_journal_tells_every_decision_once(in_c: bool) -> None:
    with routing(in_c, [stream, stream], policy="prefix_aware", health_interval_s=60) as (router, _replicas):
        client = router.connection()

        def page(since: int) -> FeedPage:
            client.request("GET", f"/router/journal?since={since}")
            return msgspec.json.decode(client.getresponse().read(), type=FeedPage)

        asked = page(0)
        for number in range(3):
            client.request("POST", "/v1/completions", json.dumps(PROMPT))
            client.getresponse().read()
            told = page(asked.next)
            made = {sample.name: sample for sample in told.samples if "kind" in sample.labels}
            assert made["decision"].labels["kind"] == ("prefix_match" if number else "smallest_tree")
            assert made["match_rate"].value == (1.0 if number else 0.0)
            assert asked.now < made["decision"].at < told.now and not told.lost
            asked = told
        client.request("GET", "/router/journal?since=x")
        assert client.getresponse().status == 400
        client.close()


def test_a_cache_is_reset_in_every_replica(in_c: bool) -> None:
    with routing(in_c, [respond, respond], policy="prefix_aware") as (router, replicas):
        router.call("/v1/completions", PROMPT)
        assert router.call("/reset_prefix_cache", method="POST")[0] == 200
        assert sum(router.state()["memory"]["tree_chars"].values()) == 0
        heads = [replica.visits.queue[-1].head.split(b" ")[1] for replica in replicas]
        assert heads == [b"/reset_prefix_cache"] * 2


@pytest.fixture
def plain(in_c: bool) -> Iterator[tuple[RunningRouter, ScriptedReplica]]:
    with routing(in_c, [respond], most_body=1000) as (router, (replica,)):
        yield router, replica


def raw(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))


CHUNKED = b"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\ntrailer: x\r\n\r\n"


def test_a_body_in_chunks_reaches_the_replica_with_its_length(plain: tuple[RunningRouter, ScriptedReplica]) -> None:
    router, replica = plain
    client = router.connection()
    for _ in range(2):  # on one connection
        client.request("POST", "/v1/completions", iter([b'{"prompt": ', b'"tell me"}']), {"X-Inferometer-Explain": "1"})
        response = client.getresponse()
        assert (response.status, response.read()) == (200, b"ok")
    client.request("POST", "/v1/completions", iter([]))
    assert client.getresponse().status == 200, "an empty one"
    client.close()
    visit = replica.visits.get()
    assert visit.body == b'{"prompt": "tell me"}'
    assert b"content-length: 21" in visit.head.lower() and b"transfer-encoding" not in visit.head.lower()


def test_bad_requests_are_refused_and_leave_nothing(plain: tuple[RunningRouter, ScriptedReplica]) -> None:
    router, replica = plain
    assert raw(router.port, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert raw(router.port, b"POST / HTTP/1.1\r\ncontent-length: 1001\r\n\r\n").startswith(b"HTTP/1.1 413")
    assert raw(router.port, CHUNKED + b"x" * 2000).startswith(b"HTTP/1.1 400")
    assert raw(router.port, CHUNKED + b"800\r\n" + b"x" * 2000).startswith(b"HTTP/1.1 413")
    both = CHUNKED.replace(b"\r\n\r\n", b"\r\ncontent-length: 3\r\n\r\n")
    assert raw(router.port, both + b"0\r\n\r\n").startswith(b"HTTP/1.1 400")
    for hidden in (b"x: a\ntransfer-encoding: chunked", b"x: a\rcontent-length: 3", b"x: a\r\n y: b"):
        assert raw(router.port, b"GET / HTTP/1.1\r\n" + hidden + b"\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert router.call("/v1/completions", {"prompt": ["a", {"b": 1}], "messages": 3})[0] == 200  # its own to refuse
    assert replica.visits.qsize() == 1


def test_what_a_replica_sends_that_is_no_http_is_a_bad_gateway(in_c: bool) -> None:
    def noise(visit: Visit) -> None:
        visit.send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")

    with routing(in_c, [noise]) as (router, _):
        status, body, _ = router.call("/v1/completions", PROMPT)
        assert status == 502
        assert "r0: not an HTTP answer" in json.loads(body)["error"]["message"]


@pytest.fixture
def secured(certificates: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{certificates}/server.pem", f"{certificates}/server.key")
    return context


def test_replicas_behind_tls(in_c: bool, secured: ssl.SSLContext, certificates: Path) -> None:
    """A stream, a body of many records, a request of many records, and the next one on the same connection."""

    def large(visit: Visit) -> None:
        visit.respond(visit.body * 2)

    scripts: list[Script] = [stream, large]
    with routing(in_c, scripts, tls=secured, tls_ca=f"{certificates}/server.pem", health_interval_s=60) as (router, _):
        client, prompt = router.connection(), json.dumps({"prompt": "x" * 300_000})
        for _ in range(2):
            client.request("POST", "/v1/completions", prompt)
            assert client.getresponse().read() == EVENTS
            client.request("POST", "/v1/completions", prompt)
            assert client.getresponse().read() == 2 * prompt.encode()
        client.close()
        assert router.metric("inferometer_router_retries_total") == 0


def test_a_replica_behind_tls_that_dies_in_the_stream_cuts_it(secured: ssl.SSLContext) -> None:
    def die(visit: Visit) -> None:
        visit.send(STREAM + chunk(b"data: 1\n\n"))
        visit.connection.close()

    with routing(True, [die], tls=secured, tls_verify=False) as (router, _):
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            router.call("/v1/completions", PROMPT)
        until(lambda: router.metric("inferometer_router_requests_total") == 1)


def test_a_certificate_that_nobody_trusts_is_why_a_replica_is_down(secured: ssl.SSLContext) -> None:
    replica = ScriptedReplica(respond, secured)
    upstreams = [{"name": "r0", "url": replica.url}]
    router = RunningRouter(True, {"upstreams": upstreams, "health_interval_s": 0.05})
    try:
        until(lambda: "TLS" in router.state()["replicas"][0]["reason"])
        status, body, _ = router.call("/v1/completions", PROMPT)
        assert status == 503 and "certificate verify failed" in json.loads(body)["error"]["message"]
    finally:
        router.close()
        replica.close()
