"""The dashboard under hostile and slow requests: it keeps answering, reports what took too long, and ends at once."""

import asyncio
import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import pytest

from dashboards import dashboard
from inferometer.show.dashboard.access import Guard, Scope, TimeLimit
from inferometer.store.query import linear, matcher
from shown_stores import shown_store

SLOW_PATTERN = "(a+)+$"  # 2^n steps for a text of n letters a, for an engine that goes back
BUSY = """
import sys, time
from inferometer.show.dashboard.answers import StoreAnswers
def forever(self):
    sys.stderr.write("busy\\n"); sys.stderr.flush()
    while True: time.sleep(0.01)
StoreAnswers.histories = forever
from inferometer.cli import main
sys.argv = ["inferometer", "dashboard", "--port", "0", "--store", sys.argv[1]]
sys.exit(main())
"""


def ask(
    address: str, path: str, method: str = "GET", body: str = "", **headers: str
) -> tuple[int, str, dict[str, str]]:
    line = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    line.request(method, path, body or None, headers)
    answer = line.getresponse()
    text = answer.read().decode()
    line.close()
    return answer.status, text, {name.lower(): value for name, value in answer.getheaders()}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = shown_store(tmp_path_factory.mktemp("shown") / "store")
    store.tag("latest", ["a" * 60 + "b"])
    with dashboard(store.home) as address:
        yield address


def test_a_pattern_that_goes_back_forever_elsewhere_is_matched_at_once(address: str) -> None:
    started = time.monotonic()
    status, text, _ = ask(address, f"/api/runs?where={quote(f'tag=~{SLOW_PATTERN}')}")
    assert status == 200 and json.loads(text)["total"] == 0
    assert time.monotonic() - started < 10
    assert json.loads(ask(address, f"/api/runs?where={quote('tag=~^a+b$')}")[1])["total"] == 1


@pytest.mark.parametrize(
    ("where", "problem"),
    [("model=~(a)\\1", "linear time"), ("model=~" + "a" * 400, "300 characters"), ("a" + " " * 2000, "300 characters")],
)
def test_a_filter_that_could_keep_it_busy_is_refused(address: str, where: str, problem: str) -> None:
    status, text, _ = ask(address, f"/api/runs?where={quote(where)}")
    assert status == 400 and problem in json.loads(text)["error"]


def test_an_address_without_end_is_refused(address: str) -> None:
    assert ask(address, f"/api/runs?search={'a' * 9000}")[0] == 414


def test_the_command_line_knows_more_patterns_than_the_web() -> None:
    assert linear(r"(a)\1") is None and matcher(r"(a)\1")("xaay")
    assert matcher("(?i)LLAMA")("meta-llama") and not matcher("(?i)LLAMA")("qwen")


def test_head_is_answered_as_get_without_a_body(address: str) -> None:
    for path in ("/", "/api/runs", "/assets/words.js"):
        get, head = ask(address, path), ask(address, path, "HEAD")
        assert head[0] == get[0] == 200 and head[1] == "" and head[2]["content-type"] == get[2]["content-type"]


def test_what_takes_too_long_is_told_and_others_are_answered() -> None:
    """The slow one goes on in its thread; it is answered by then, and nobody else waits for it."""

    async def slow(scope: Scope, _receive: object, send: object) -> None:
        if scope["path"] == "/api/slow":
            await asyncio.get_running_loop().run_in_executor(None, time.sleep, 1.0)
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b"{}"})  # type: ignore[operator]

    async def status_of(app: Guard, path: str) -> int:
        sent: list[dict[str, int]] = []

        async def send(message: dict[str, int]) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
        }
        await app(scope, None, send)
        return sent[0]["status"]

    async def both() -> list[int]:
        app = Guard(TimeLimit(slow, limit_s=0.1), None)
        return list(await asyncio.gather(status_of(app, "/api/slow"), status_of(app, "/api/quick")))

    assert asyncio.run(both()) == [503, 200]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_whatever_it_is_doing(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", BUSY, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            address = process.stdout.readline().strip()
            line = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
            line.request("GET", "/api/histories")
            while "busy" not in process.stderr.readline():
                assert process.poll() is None
            process.send_signal(number)
            started = time.monotonic()
            process.wait(10)
            assert time.monotonic() - started < 3  # a second on a machine with nothing else to do
            assert process.returncode in (0, 128 + number, -number)
        finally:
            process.kill()


def test_the_login_form_takes_the_token(tmp_path: Path) -> None:
    with dashboard(tmp_path, "--token", env={"INFEROMETER_TOKEN": "known-to-us-both"}) as address:
        status, text, _ = ask(address, "/run.html?id=x", Accept="text/html")
        assert status == 401 and 'name="next" value="/run.html?id=x"' in text
        assert ask(address, "/assets/style.css")[0] == 200 and ask(address, "/api/runs")[0] == 401
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        wrong = ask(address, "/login", "POST", urlencode({"token": "no", "next": "/"}), **form)
        assert wrong[0] == 401 and "not the token" in wrong[1] and "set-cookie" not in wrong[2]
        right = ask(
            address, "/login", "POST", urlencode({"token": "known-to-us-both", "next": "//evil.example"}), **form
        )
        assert right[0] == 303 and right[2]["location"] == "/evil.example"
        assert ask(address, "/api/runs", Cookie=right[2]["set-cookie"].partition(";")[0])[0] == 200
