"""Response heads, origins, timestamps and the shapes of events, case by case."""

import socket
import ssl
import time

import orjson
import pytest

from inferometer.errors import TargetError
from inferometer.wire import skeleton
from inferometer.wire.api import APIS, api_of, error_text, read_events, read_whole, reading_events
from inferometer.wire.compiled import compiled
from inferometer.wire.http1 import Excessive, body_of, parse_head, whole
from inferometer.wire.origin import origin_of, tls_context, trusted_origin
from inferometer.wire.server import head
from inferometer.wire.skeleton import learn
from inferometer.wire.sockets import ANCILLARY_SIZE, ask_for_stamps, kernel_stamps, stamp_ns
from inferometer.wire.sse import MOST_CONTAINERS, MOST_VALUES


def answer(fields="", version="1.1", status="200 OK"):
    return f"HTTP/{version} {status}\r\n{fields}\r\n".encode()


@pytest.mark.parametrize(
    ("fields", "version", "kept"),
    [
        ("", "1.1", True),
        ("Connection: close\r\n", "1.1", False),
        ("Connection: TE, Close\r\n", "1.1", False),
        ("", "1.0", False),
        ("connection: keep-alive\r\n", "1.0", True),
        ("connection: Keep-Alive, Upgrade\r\n", "1.0", True),
    ],
)
def test_keep_alive(fields: str, version: str, kept: bool) -> None:
    assert parse_head(answer(fields, version)).keep_alive is kept


@pytest.mark.parametrize(
    ("fields", "status", "chunked", "length", "until_close"),
    [
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "200 OK", True, None, False),
        ("Content-Length: 5\r\n", "200 OK", False, 5, False),
        ("", "200", False, None, True),
        ("", "204 No Content", False, 0, False),
        ("", "304 Not Modified", False, 0, False),
    ],
)
def test_how_long_a_body_is(fields: str, status: str, chunked: bool, length: int | None, until_close: bool) -> None:
    found = parse_head(answer(fields, status=status))
    assert (found.chunked, found.length, found.until_close) == (chunked, length, until_close)


def test_a_folded_header_is_one_line() -> None:
    fields = b"Content-Type:\r\n text/event-stream\r\nTransfer-Encoding: \r\n\t chunked\r\nX: a\r\n  b\r\n\r\n"
    head = parse_head(b"HTTP/1.1 200 OK\r\n" + fields)
    assert head is not None
    assert (head.sse, head.chunked, head.headers["x"]) == (True, True, "a b")


def test_interim_answers_are_passed_over() -> None:
    raw = answer(status="100 Continue") + answer(status="103 Early Hints") + answer("A: b\r\n", status="429 Slow")
    found = parse_head(raw + b"body")
    assert (found.status, found.headers["a"], found.end) == (429, "b", len(raw))
    assert parse_head(answer(status="100 Continue")) is None
    assert parse_head(answer(status="100 Continue") + b"HT") is None


@pytest.mark.parametrize("raw", [b"220 smtp.example ESMTP\r\n", b"HTTP/2 200\r\n\r\n", b"<html>", b"HTTQ", b"x"])
def test_what_is_not_http(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not an HTTP answer"):
        parse_head(raw)


def test_an_endless_head_is_given_up() -> None:
    with pytest.raises(ValueError, match="not an HTTP answer"):
        parse_head(b"HTTP/1.1 200 OK\r\nA: " + b"x" * 300_000)


def test_a_body_of_known_length_ends_there() -> None:
    raw = answer("Content-Length: 3\r\n")
    assert body_of(raw + b"abcdef", parse_head(raw))[0] == b"abc"


def test_a_head_as_the_server_writes_it_is_read_back() -> None:
    found = parse_head(head(599, {"x-a": "1"}, keep_alive=False))
    assert (found.status, found.headers["x-a"], found.keep_alive) == (599, "1", False)


# -- origins ----------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_url() -> None:
    origin = origin_of("http://[::1]:8000/api/v1/")
    assert (origin.host, origin.port, origin.path, origin.authority) == ("::1", 8000, "/api/v1", "[::1]:8000")
    assert origin.tls is None
    secure = origin_of("https://model.test")
    assert (secure.port, secure.authority) == (443, "model.test")
    assert secure.tls is not None


def test_a_plain_proxy_gets_the_whole_url_and_a_tunnel_does_not() -> None:
    plain = origin_of("http://model.test:81", proxy="http://me:p%40ss@127.0.0.1:3128")
    assert plain.request_target("/v1") == "http://model.test:81/v1"
    assert plain.proxy_headers == {"Proxy-Authorization": "Basic bWU6cEBzcw=="}
    assert not plain.tunnelled
    assert plain.addresses()[0][1] == ("127.0.0.1", 3128)
    secure = trusted_origin("https://model.test", (False, None, None, None), "http://me:p%40ss@127.0.0.1:3128")
    assert secure.tunnelled and secure.tls.verify_mode is ssl.CERT_NONE
    assert secure.proxy_headers == {}  # told with the tunnel
    assert secure.request_target("/v1") == "/v1"


def test_addresses_that_cannot_be() -> None:
    with pytest.raises(TargetError, match="not an http"):
        origin_of("ftp://model.test")
    with pytest.raises(TargetError, match="must be an http:// address"):
        origin_of("http://model.test", proxy="https://127.0.0.1:1")
    with pytest.raises(TargetError, match="unknown host name"):
        origin_of("http://no-such-host.invalid").addresses()
    with pytest.raises(TargetError, match="cannot read the certificate files"):
        tls_context(True, "/no/such/file", None, None)


# -- stamps -----------------------------------------------------------------------------------------------------------


def test_the_kernel_stamps_what_comes_when_it_comes() -> None:
    if not kernel_stamps():
        pytest.skip("this platform does not stamp TCP reads")
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        client.settimeout(5)
        assert ask_for_stamps(client)
        server, _ = listener.accept()
        with server:
            before = time.time_ns()
            server.send(b"?")
            after = time.time_ns()
            time.sleep(0.02)  # the read comes later, its stamp does not
            _data, ancillary, _flags, _address = client.recvmsg(16, ANCILLARY_SIZE)
        assert before - 10**6 <= stamp_ns(ancillary[0][2]) <= after + 10**7


def test_no_stamps_on_another_platform(monkeypatch):
    monkeypatch.setattr("inferometer.wire.sockets.sys.platform", "darwin")
    kernel_stamps.cache_clear()
    try:
        assert not kernel_stamps()
        with socket.socket() as connection:
            assert not ask_for_stamps(connection)
    finally:
        kernel_stamps.cache_clear()


# -- the meaning of events --------------------------------------------------------------------------------------------


def events(*documents):
    return [orjson.dumps(document) for document in documents]


def test_role_reasoning_and_tool_calls() -> None:
    deltas = ({"role": "assistant", "content": ""}, {"reasoning_content": "hm"}, {"tool_calls": [{}]}, {"content": "x"})  # type: ignore[var-annotated]
    found = read_events(api_of("chat"), events(*({"choices": [{"delta": delta}]} for delta in deltas)))
    assert found.tokens == [0, 1, 1, 1]
    assert found.visible_event == 3


def test_usage_with_the_last_choice_scales_all() -> None:
    usage = {"completion_tokens": 6}
    last = {"choices": [{"text": "c", "finish_reason": "stop"}], "usage": usage}
    found = read_events(api_of("completions"), events(*({"choices": [{"text": text}]} for text in "ab"), last))
    assert (found.tokens, found.running_usage, found.counted) == ([2, 2, 2], False, 3)


def test_several_choices() -> None:
    found = read_events(api_of("completions"), events({"choices": [{"text": ""}, {"text": "x"}]}), keep_text=True)
    assert (found.tokens, found.text) == ([1], ["x"])


@pytest.mark.parametrize(
    "document",
    [
        {"choices": [{"text": 5}]},
        {"choices": 5},
        {"choices": [None]},
        {"choices": {"text": "x"}},
        {"choices": [{"text": "x"}], "usage": "none"},
        ["choices"],
        "choices",
        None,
        {"detail": "no"},
    ],
)
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("keep_text", [False, True])
def test_whatever_a_server_sends_is_read_or_called_an_error(document, api, keep_text: bool):
    found = read_events(api_of(api), events(document), keep_text)
    assert "".join(found.text) is not None
    assert found.error is not None or found.tokens in ([0], [1])


def test_counts_that_are_none() -> None:
    usages = ({"completion_tokens": "5"}, {"completion_tokens": -1}, {"completion_tokens": 2**60}, {"other": 1})
    found = read_events(api_of("completions"), events(*({"choices": [], "usage": usage} for usage in usages)))
    assert (found.tokens, found.error) == ([0] * 4, None)


def test_ids_and_reasons_become_text() -> None:
    found = read_events(api_of("completions"), events({"id": 7, "choices": [{"text": "x", "finish_reason": 2}]}))
    assert (found.request_id, found.finish_reason) == ("7", "2")


@pytest.mark.parametrize(
    "document",
    [
        {"token": {"text": "x", "id": 3}},
        {"token": "x"},
        {"text": "x"},
        {"content": "x", "stop": False},
        {"response": "x", "done": False},
        {"generated_text": "x"},
        {"choices": [{"text": "x"}]},
        {"choices": [{"delta": {"content": "x"}}]},
    ],
)
def test_a_template_reads_the_text_of_other_servers(document):
    assert read_events(api_of("template"), events(document), keep_text=True).text == ["x"]


def test_whole_answers() -> None:
    body = {"id": "c", "choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}
    usage = {"prompt_tokens": 3, "completion_tokens": 9}
    found = read_whole(api_of("chat"), orjson.dumps(body | {"usage": usage}), keep_text=True)
    assert (found.tokens, found.text, found.done, found.running_usage) == ([9], ["hello"], True, False)
    assert read_whole(api_of("chat"), orjson.dumps(body)).tokens == [1]
    assert "not JSON: <html>" in read_whole(api_of("chat"), b"<html>").error


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"error": {"message": "no such model", "code": 404}}, "no such model"),
        ({"object": "error", "message": "too long"}, "too long"),
        ({"error": "boom"}, "boom"),
        ({"detail": "Not Found"}, "Not Found"),
        (["odd"], '["odd"]'),
    ],
)
def test_the_message_of_an_error(body, text: str):
    assert error_text(orjson.dumps(body)) == text


def test_prompts_in_bodies() -> None:
    chat, completions = api_of("chat").body, api_of("completions").body
    assert chat("m", "hi") == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    assert completions("m", [1, 2]) == {"model": "m", "prompt": [1, 2]}
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    assert completions("m", messages)["prompt"] == "a\nb"
    assert chat("m", messages)["messages"] == messages


def test_a_shape_is_not_learned_where_it_cannot_be_proven() -> None:
    deltas = api_of("completions").deltas
    assert learn(b'{"choices":[{"text":"a","finish_reason":"stop"}]}', b'"text":"', deltas) is None
    assert learn(b'{"choices":[{"text": "a"}]}', b'"text":"', deltas) is None
    assert learn(b'{"x":{"text":"a"},"choices":[{"text":"b"}]}', b'"text":"', deltas) is None
    assert learn(b'{"choices":[{"text":"a"}],"usage":{"completion_tokens":1}}', b'"text":"', deltas) is None


@pytest.mark.parametrize("usage", [b"", b',"usage":{"total_tokens":9,"completion_tokens":4}'])
@pytest.mark.parametrize("reader", [lambda: None, compiled], ids=["python", "compiled"])
def test_an_event_with_more_in_it_is_parsed(monkeypatch, reader, usage: bytes):
    """A key that the shape does not know may carry a token that only the parser sees."""
    monkeypatch.setattr(skeleton, "compiled", reader)
    plain = b'{"choices":[{"delta":{"content":"%b"%b}}]%b}'
    shape = learn(plain % (b"a", b"", usage), b'"content":"', api_of("chat").deltas)
    fits, empty = plain % (b"hello", b"", usage), plain % (b"", b"", usage)
    more = plain % (b"", b',"reasoning":"hm"', usage)
    found = shape.read_run([fits, empty, fits, more, fits], 1, 5, 3)
    assert found == (([0, 1], [1, 0], 4) if usage else ([0, 1], [], 3))
    assert read_events(api_of("chat"), [fits, more]).tokens == ([4, 0] if usage else [1, 1])


@pytest.mark.parametrize("api", ["chat", "template"])
def test_a_long_answer_is_read_in_turns(api: str) -> None:
    """Time limits act between them: half a million events of a hostile server take seconds."""
    row = events(
        *({"choices": [{"delta": {"content": "x"}}], "usage": {"completion_tokens": n}} for n in range(20_000))
    )
    reading = reading_events(api_of(api), row, keep_text=True)
    for _pause in range(4):
        next(reading)
    assert whole(reading).counted == read_events(api_of(api), row).counted == 19_999


@pytest.mark.parametrize("api", ["chat", "template"])
@pytest.mark.parametrize(
    ("dense", "what"),
    [
        (b"{ }," * MOST_CONTAINERS + b"{}", "262,144 lists and objects"),
        (b"1," * MOST_VALUES + b"1", "2,097,152 values"),
    ],
)
def test_a_dense_document_is_refused_instead_of_parsed_for_seconds(api: str, dense: bytes, what: str) -> None:
    with pytest.raises(Excessive, match=what):
        read_whole(api_of(api), b'{"choices":[%b]}' % dense)


def test_the_search_for_a_text_ends() -> None:
    document = {"a": [[1, 1]] * 100_000, "text": "x"}
    assert read_events(api_of("template"), events(document), keep_text=True).text == ["x"]
    assert read_events(api_of("template"), events({"a": [1] * 100_000 + [{"b": "x"}]}), keep_text=True).text == [""]
