"""The server's profiler is started before the load and stopped after it; a server without one is reported."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from command_line import command

LOAD = ("--requests", "12", "--concurrency", "3", "--input-tokens", "4", "--output-tokens", "1", "--api", "completions")


@contextmanager
def profiled_server(has_profiler: bool) -> Iterator[tuple[str, list[str]]]:
    """Its URL, and the paths of all POST requests in the order in which they came."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(200, {"data": [{"id": "m"}]} if self.path == "/v1/models" else {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            asked.append(self.path)
            if self.path.endswith("_profile"):
                self._answer(200 if has_profiler else 404, {})
            elif "prompt" not in body:  # a question whether this API is there
                self._answer(400, {})
            else:
                usage = {"prompt_tokens": 4, "completion_tokens": 1}
                self._answer(200, {"choices": [{"text": "x", "finish_reason": "length"}], "usage": usage})

        def _answer(self, status: int, document: object) -> None:
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("has_profiler", [True, False])
def test_the_profiler_runs_around_the_load(has_profiler: bool, tmp_path: Path) -> None:
    with profiled_server(has_profiler) as (url, asked):
        settings = ("--set", "observe.profiler=true", "--set", "target.stream=false")
        done = command("run", "--url", url, *LOAD, *settings, store=tmp_path)
    answered = [path for path in asked if path == "/v1/completions"]
    assert len(answered) >= 12, done.stderr
    first = asked.index("/start_profile")
    assert asked[first + 1 :] == ["/v1/completions"] * 12 + ["/stop_profile"]
    assert ("start the server with its profiler enabled" in done.stderr) is not has_profiler
