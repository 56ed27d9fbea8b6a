"""The router's parsing of requests and replicas: prompts in every API's body, sessions, and metrics."""

import json
from typing import Any

import pytest

from inferometer.errors import PlanError
from inferometer.router.relay import client_head, is_ambiguous
from inferometer.router.settings import SESSION_HEADERS, query_of, router_settings
from inferometer.router.upstream import Upstream
from inferometer.wire.reactor import Reactor


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"prompt": "one two"}, "one two"),
        ({"prompt": ["one", " two"]}, "one two"),
        ({"messages": [{"role": "system", "content": "one"}, {"role": "user", "content": " two"}]}, "one two"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "image_url"}]}]}, "one"),
        ({"system": "be ", "messages": [{"role": "user", "content": "brief"}]}, "be brief"),
        ({"instructions": "be ", "input": "brief"}, "be brief"),
        ({"input": ["a", "b"]}, "ab"),
        ({"inputs": "of TGI"}, "of TGI"),
        ({"prompt": None, "text": "of SGLang"}, "of SGLang"),
        ({"documents": []}, ""),
        ([1, 2], ""),
    ],
)
def test_the_text_of_a_prompt(body: Any, text: str) -> None:
    assert query_of(json.dumps(body).encode(), {}, SESSION_HEADERS, 1).text == text


def test_token_ids_that_begin_alike_are_texts_that_begin_alike() -> None:
    def text(*ids: int) -> str:
        query = query_of(json.dumps({"prompt": ids, "model": "m"}).encode(), {}, (), 1)
        assert (query.tokens, query.model) == (len(ids), "m")
        return query.text

    long, longer = text(1, 150_000, 60_000), text(1, 150_000, 60_000, 7)
    assert len(long) == 3
    assert longer.startswith(long)
    assert not text(2, 150_000).startswith(long[:1])


def test_a_body_that_cannot_be_read_has_no_text_and_a_session_all_the_same() -> None:
    for body in (b"", b"{", b"[" * 5000, b"\xff\xfe"):
        query = query_of(body, {"x-prefix-id": "p", "x-user-id": "u"}, SESSION_HEADERS, 3)
        assert (query.text, query.session, query.id) == ("", "p", 3)


def test_what_replicas_report_of_their_queue_and_cache() -> None:
    upstream = Upstream(Reactor(), "a", "http://127.0.0.1:1", 1.0, None)
    upstream.learn_metrics(
        b'# HELP vllm:num_requests_waiting x\nvllm:num_requests_waiting{engine="0"} 3.0\n'
        b'vllm:num_requests_waiting{engine="1"} 2.0\nvllm:kv_cache_usage_perc{engine="0"} 0.25\n'
    )
    assert (upstream.waiting, upstream.kv_usage) == (5, 0.25)
    upstream.learn_metrics(b'sglang:num_queue_reqs{model_name="m"} 7\nsglang:token_usage 0.5\n')
    assert (upstream.waiting, upstream.kv_usage) == (7, 0.5)
    upstream.learn_metrics(b"nothing 1\n")
    assert (upstream.waiting, upstream.kv_usage) == (None, None)


def test_headers_of_a_response() -> None:
    raw = b"HTTP/1.0 200 Fine\r\nConnection: keep-alive\r\nX-A: 1\r\nKeep-Alive: 5\r\nX-A: 2"
    assert client_head(raw, True) == b"HTTP/1.1 200 Fine\r\nX-A: 1\r\nX-A: 2\r\n"
    assert client_head(raw, False).endswith(b"X-A: 2\r\nconnection: close\r\n")


@pytest.mark.parametrize(
    "head", [b"GET / HTTP/1.1\r\na: b\nc: d", b"GET / HTTP/1.1\r\na: b\r\n\tc", b"GET /\r HTTP/1.1"]
)
def test_headers_that_another_server_may_read_otherwise(head: bytes) -> None:
    assert is_ambiguous(head)
    assert not is_ambiguous(b"GET / HTTP/1.1\r\na: b\r\nc: d e")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"upstreams": []}, "no upstream is given"),
        (
            {"upstreams": [{"name": "a", "url": "https://x"}], "tls_ca": "/no/such/file"},
            "tls_ca /no/such/file: not a file",
        ),
        ({"upstreams": [{"name": "a", "url": "http://x"}] * 2}, "upstream a is given twice"),
        (
            {"upstreams": [{"name": "a", "url": "http://x:99999"}]},
            "upstream must be a URL such as .*, got http://x:99999",
        ),
        ({"upstreams": [{"name": "a", "url": "http://[::1"}]}, "upstream must be a URL such as"),
        ({"upstreams": [{"name": "a", "url": "ftp://x"}]}, "upstream must start with http:// or https://, got ftp://x"),
        ({"upstreams": [{"name": "a", "url": "http://x/v1?key=1"}]}, "must end with its path"),
        ({"upstreams": [{"name": "a", "url": "http://x"}], "policy": "best"}, "policy must be one of"),
        (
            {"upstreams": [{"name": "a", "url": "http://x"}], "retry": 1},
            "the router has no setting retry; its settings",
        ),
        (
            {
                "upstreams": [{"name": "a", "url": "http://x"}],
                "policy": "block_prefix",
                "settings": {"precise": True},
            },
            "precise of block_prefix needs to know what every cache holds",
        ),
    ],
)
def test_wrong_settings(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        router_settings(fields)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(PlanError, match="a user and a password in a URL are not sent") as refused:
        router_settings({"upstreams": [{"name": "a", "url": "https://me:hidden@x"}]})
    assert "hidden" not in str(refused.value)
