"""The probe with real servers on loopback, good and bad: each has a separate message, none shows a secret."""

import json
import socket
import ssl
import subprocess
import threading
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, repeat
from time import monotonic, sleep

import pytest

from inferometer.errors import TargetError
from inferometer.plan.model import Target
from inferometer.target.probe import base_url, probe

KEY = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def no_key(monkeypatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def models(*names, **fields):
    return {"object": "list", "data": [{"id": name, "object": "model", **fields} for name in names]}


@contextmanager
def serving(routes, tls=None, server_header="uvicorn"):
    """A server that answers GET by path with (status, JSON or text), and keeps the headers that it was sent."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            seen.append((self.path, dict(self.headers)))
            path = self.path.removeprefix("http://model.test")
            status, content = routes.get(path, (404, "<html>not here</html>"))
            body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response_only(status)
            self.send_header("Server", server_header)
            self.send_header("Content-Type", "text/html" if isinstance(content, str) else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        scheme = "http" if tls is None else "https"
        yield f"{scheme}://localhost:{server.server_port}", seen
        server.shutdown()


@contextmanager
def talking(answer):
    """A server of raw bytes: it says this on every connection and closes."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.recv(65536)
                    client.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def dripping(answer, pause_s=0.02):
    """A server of raw bytes that sends one at a time, and the last of them again and again."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener, suppress(OSError):

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=drip, args=(client,), daemon=True).start()

        def drip(client):
            with client, suppress(OSError):
                for byte in chain(answer, repeat(answer[-1])):
                    client.send(bytes([byte]))
                    sleep(pause_s)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def failure(url, **settings):
    with pytest.raises(TargetError) as caught:
        probe(Target(url=url, **settings))
    assert caught.value.exit_code == 3
    assert KEY not in str(caught.value.message) + str(caught.value.hint)
    return caught.value


def test_the_only_model_is_found_with_what_the_server_says_of_itself() -> None:
    routes = {
        "/v1/models": (200, models("llama", owned_by="vllm", max_model_len=8192)),
        "/version": (200, {"version": "0.24.0"}),
    }
    with serving(routes) as (url, _):
        for address in (url, url + "/", url + "/v1", url + "/v1/"):
            facts = probe(Target(url=address))
            assert (facts.model, facts.models, facts.server) == ("llama", ["llama"], "vLLM")
            assert (facts.version, facts.max_model_len, facts.notes) == ("0.24.0", 8192, [])
            assert facts.urls == [url]


def test_a_base_path_is_kept() -> None:
    with serving({"/llm/v1/models": (200, models("m"))}) as (url, _):
        assert probe(Target(url=f"{url}/llm/v1")).urls == [f"{url}/llm"]
    assert base_url("http://h/v1/") == "http://h"


def test_of_several_models_the_first_is_taken_and_said() -> None:
    with serving({"/v1/models": (200, models("a", "b"))}) as (url, _):
        facts = probe(Target(url=url))
        assert facts.model == "a"
        assert facts.notes == [f"{url} serves 2 models, taking a"]
        assert probe(Target(url=url, model="b")).notes == []


def test_a_model_that_is_not_served() -> None:
    with serving({"/v1/models": (200, models("a", "b"))}) as (url, _):
        error = failure(url, model="c")
        assert error.message == f"{url} does not serve the model 'c'; it serves 'a', 'b'"
        assert "--model a" in error.hint


def test_several_urls_are_all_asked_and_compared() -> None:
    one = {"/v1/models": (200, models("a", max_model_len=1)), "/version": (200, {"version": "1"})}
    two = {"/v1/models": (200, models("a", max_model_len=2)), "/version": (200, {"version": "2"})}
    with serving(one) as (first, _), serving(two) as (second, _):
        facts = probe(Target(url=[first, second]))
        assert facts.urls == [first, second]
        assert facts.notes == [
            "the URLs have different versions: 1, 2",
            "the URLs have different context lengths: 1, 2",
        ]


def test_no_address() -> None:
    assert "target.url" in failure([]).message


def test_refused() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    error = failure(f"http://127.0.0.1:{port}")
    assert error.message == f"http://127.0.0.1:{port} refused the connection"
    assert error.hint == "start a server, or let Inferometer start one: inferometer run --server simulator"


def test_unknown_host() -> None:
    assert "the host name 'no-such-host.invalid' is not known" in failure("http://no-such-host.invalid").message


def test_a_server_that_does_not_answer() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        error = failure(url, timeout={"connect": 5, "request": 0.1})
    assert error.message == f"{url} accepted the connection but did not answer within 100 ms"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK\r\nX-Slow: y",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20 + b"H",
        b"HTTP/1.1 200 OK\r\n\r\n[",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n[",
    ],
    ids=["status", "headers", "interim", "body", "chunk"],
)
def test_a_server_that_drips_is_given_up_as_one_that_is_silent(answer: bytes) -> None:
    """Every read brings a byte in time; the whole answer never comes."""
    with dripping(answer) as url:
        started = monotonic()
        error = failure(url, timeout={"connect": 0.3, "request": 0.3})
    assert error.message == f"{url} accepted the connection but did not answer within 600 ms"
    assert monotonic() - started < 10


def test_an_endless_list_of_models_is_not_read_to_its_end() -> None:
    with serving({"/v1/models": (200, " " * (9 << 20))}) as (url, _):
        assert "answered with more than 8 MiB instead of a few lines of JSON" in failure(url).message


def test_an_answer_that_breaks_off() -> None:
    with talking(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{") as url:
        assert failure(url).message == f"{url} closed the connection in the middle of its answer"


def test_a_chunk_size_below_0() -> None:
    """http.client takes it for a number of bytes to read."""
    with talking(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabcde\r\n") as url:
        assert failure(url).message.startswith(f"{url} sent an answer that cannot be read: ")


def test_headers_without_end() -> None:
    with talking(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n") as url:
        assert failure(url).message == f"{url} sent an answer that cannot be read: got more than 100 headers"


DEEP = "[" * 900 + "]" * 900


@pytest.mark.parametrize("name", ['["a"]', '{"a": 1}', "7", "true", "null", '""', DEEP, '"%s"' % ("x" * 2000)])
def test_entries_without_a_name_are_passed_over(name):
    cards = '{"data": [{"id": %s}, 5, {"id": "fine", "max_model_len": %s, "owned_by": %s}]}'
    odd = {"/version": (200, f'{{"version": {DEEP}}}')}
    with serving({"/v1/models": (200, cards % (name, 2**63, DEEP))} | odd) as (url, _):
        facts = probe(Target(url=url))
        assert (facts.models, facts.max_model_len, facts.server, facts.version) == (["fine"], None, "uvicorn", None)
    with serving({"/v1/models": (200, f'{{"data": [{{"id": {name}}}]}}')}) as (url, _):
        assert failure(url).message == f"{url} serves no model"


@pytest.mark.parametrize("error", [f'{{"error": {DEEP}}}', f'{{"detail": {DEEP}}}', DEEP, "[" * 5000])
def test_an_error_that_is_nested_without_end(error):
    with serving({"/v1/models": (500, error)}) as (url, _):
        assert f"{url} answered /v1/models with status 500" in failure(url).message
    with serving({"/v1/models": (200, error)}) as (url, _):
        assert "is not an OpenAI-compatible server" in failure(url).message


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_is_wanted(status: int) -> None:
    with serving({"/v1/models": (status, {"error": {"message": "Unauthorized"}})}) as (url, _):
        error = failure(url)
        assert error.message == f"{url} needs an API key ({status}): Unauthorized"
        assert "OPENAI_API_KEY" in error.hint


def test_a_wrong_key_is_not_echoed(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    with serving({"/v1/models": (401, {"error": {"message": f"Incorrect key: {KEY}"}})}) as (url, seen):
        error = failure(url, key_env="MY_KEY")
        assert error.message == f"{url} rejected the API key (401): Incorrect key: ***"
        assert error.hint == "check the key in MY_KEY"
        assert seen[0][1]["Authorization"] == f"Bearer {KEY}"


def test_headers_go_along_and_secret_ones_are_not_echoed(monkeypatch):
    monkeypatch.setenv("TEAM_SECRET", KEY)
    headers = {"x-api-key": "${TEAM_SECRET}", "x-team": "blue"}
    with serving({"/v1/models": (500, {"detail": f"boom {KEY} blue"})}) as (url, seen):
        error = failure(url, headers=headers)
        assert error.message == f"{url} answered /v1/models with status 500: boom *** blue"
        assert (seen[0][1]["x-api-key"], seen[0][1]["x-team"]) == (KEY, "blue")


def test_a_password_in_the_address_is_not_shown() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    error = failure(f"http://user:{KEY}@127.0.0.1:{port}")
    assert error.message == f"http://***@127.0.0.1:{port} refused the connection"


@pytest.mark.parametrize(
    ("answer", "got"),
    [("<html>hello</html>", "text/html"), ({"hello": 1}, "JSON of another shape")],
)
def test_a_server_that_is_not_one(answer, got: str):
    with serving({"/v1/models": (200, answer)}) as (url, _):
        message = failure(url, model="m").message
        assert message.endswith(f"is not an OpenAI-compatible server: /v1/models gave 200 with {got}")


def test_no_list_of_models() -> None:
    with serving({}) as (url, _):
        assert "has no /v1/models, it answered 404" in failure(url).message
        facts = probe(Target(url=url, model="mine"))
        assert (facts.model, facts.models, facts.server) == ("mine", [], "uvicorn")
        assert len(facts.notes) == 1


def test_a_template_needs_no_model() -> None:
    with serving({"/v1/models": (200, "<html></html>")}) as (url, _):
        facts = probe(Target(url=url, api="template", body='{"q": "{prompt}"}'))
        assert (facts.model, facts.urls) == (None, [url])


def test_no_model_is_loaded() -> None:
    with serving({"/v1/models": (200, models())}) as (url, _):
        assert failure(url).message == f"{url} serves no model"


def test_loading() -> None:
    with serving({"/v1/models": (503, {"error": {"message": "Loading model"}})}) as (url, _):
        error = failure(url)
        assert "503: Loading model" in error.message
        assert error.hint == "is it still loading the model?"


def test_not_http_at_all() -> None:
    with talking(b"220 smtp.example ESMTP\r\n") as url:
        assert "does not speak HTTP, it answered '220 smtp.example ESMTP'" in failure(url).message


def test_closed_without_a_word() -> None:
    with talking(b"") as url:
        assert failure(url).message == f"{url} closed the connection without an answer"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for localhost that signs itself."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost"]
    try:
        subprocess.run([*command, "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs openssl to make a certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert


def test_tls(certificate):
    context, cert = certificate
    with serving({"/v1/models": (200, models("m"))}, tls=context) as (url, _):
        assert probe(Target(url=url, tls={"ca": cert})).model == "m"
        assert probe(Target(url=url, tls={"verify": False})).model == "m"
        error = failure(url)
        assert "its certificate is not trusted: self" in error.message
        assert "target.tls.ca" in error.hint
        error = failure(url.replace("https", "http"))
        assert error.message.endswith("uses TLS, but the URL has http")
        assert error.hint == f"write {url}"


def test_https_to_a_plain_server() -> None:
    with serving({"/v1/models": (200, models("m"))}) as (url, _):
        error = failure(url.replace("http", "https"))
        assert error.message.endswith("does not use TLS, but the URL has https")
        assert error.hint == f"write {url}"


def test_through_a_proxy() -> None:
    with serving({"/v1/models": (200, models("far"))}) as (proxy, seen):
        facts = probe(Target(url="http://model.test", proxy=proxy.replace("//", "//me:pass@")))
        assert facts.model == "far"
        assert seen[0][0] == "http://model.test/v1/models"
        assert seen[0][1]["Proxy-Authorization"].startswith("Basic ")


def test_a_proxy_that_refuses() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    error = failure("http://model.test", proxy=f"http://me:{KEY}@127.0.0.1:{port}")
    assert error.message == f"the proxy http://***@127.0.0.1:{port} refused the connection"
    assert error.hint == "is the proxy running there? (target.proxy)"


def test_https_to_a_server_that_waits_for_a_line() -> None:
    """It takes the greeting of TLS for the start of a request, and waits for the rest of it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
        error = failure(f"https://127.0.0.1:{port}", timeout={"connect": 0.2})
    assert error.message == f"https://127.0.0.1:{port} accepted the connection, but sent no TLS answer within 200 ms"
    assert error.hint == f"is it a plain HTTP server? write http://127.0.0.1:{port}"


def test_an_error_of_another_shape_is_not_shown_as_python() -> None:
    with serving({"/v1/models": (422, {"detail": [{"loc": ["query"], "msg": "nope"}]})}) as (url, _):
        assert failure(url).message.endswith('status 422: [{"loc":["query"],"msg":"nope"}]')
