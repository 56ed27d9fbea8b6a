"""A server that repeats a text in every field of an answer that a client may store or show."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

Text = Callable[[BaseHTTPRequestHandler, bytes], str]  # what is repeated: of a request and its body
PADDING = 12  # characters by which places are shifted, so that every cut falls into what is repeated somewhere


def headers_of(handler: BaseHTTPRequestHandler, body: bytes) -> str:
    """All that a request says of who sent it."""
    return " ".join([*(f"{name}: {value}" for name, value in handler.headers.items()), body.decode()])


class Parrot(BaseHTTPRequestHandler):
    """`repeated` and `numbers` are set by `parrot`."""

    protocol_version = "HTTP/1.1"
    repeated: Callable[[bytes], str]  # a `Text`, bound
    numbers: Iterator[int]
    in_headers = True

    def do_GET(self) -> None:
        text = self.repeated(b"")
        if self.path.endswith("/v1/models"):
            cards = [{"id": "parrot", "owned_by": text, "max_model_len": 4096}, {"id": f"other {text}"}]
            self._reply(200, json.dumps({"data": cards}).encode())
        elif self.path.endswith("/version"):
            self._reply(200, json.dumps({"version": f"1.0 {text}"}).encode())
        elif self.path.endswith("/metrics"):
            self._reply(200, _metrics(text).encode(), "text/plain")
        else:
            self._reply(404, json.dumps({"detail": text}).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        text, number = self.repeated(body), next(self.numbers)
        padding = "." * (number * PADDING % 300)
        match number % 6:
            case 0 | 1:
                self._reply(200, _stream(text), "text/event-stream")
            case 2:
                self._reply(401, json.dumps({"error": {"message": f"{padding}not you: {text}"}}).encode())
            case 3:
                self._reply(500, f"{padding}<html>{text}".encode("utf-8", "replace"), "text/html")
            case 4:
                self._reply(200, b"data: " + _one_line(f"{padding}{{{text}").encode() + b"\n\n", "text/event-stream")
            case 5:
                self._reply(200, _event(error={"message": f"{padding}{text}"}), "text/event-stream")

    def _reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        text = _one_line(self.repeated(b"")) if self.in_headers else "x"
        self.wfile.write(f"HTTP/1.1 {status} {text}\r\n".encode("latin-1", "replace"))
        for name, value in {"Server": text, "X-Request-Id": text, "Content-Type": kind}.items():
            self.wfile.write(f"{name}: {value}\r\n".encode("latin-1", "replace"))
        self.wfile.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def log_message(self, *_: Any) -> None:
        pass


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")


def _event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def _stream(text: str) -> bytes:
    """The text also in two halves, which only together are what was repeated."""
    half = len(text) // 2
    pieces = [text[:half], text[half:], text]
    events = [_event(id=text, model=text, choices=[{"text": piece, "finish_reason": None}]) for piece in pieces]
    last = _event(id=text, choices=[{"text": "x", "finish_reason": text}], usage={"completion_tokens": 4})
    return b"".join([*events, last, b"data: [DONE]\n\n"])


def _metrics(text: str) -> str:
    label = text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return (
        f'vllm:cache_config_info{{block_size="{label}",gpu_memory_utilization="{label}",num_gpu_blocks="{label}"}} 1\n'
        f'vllm:num_requests_running{{model_name="{label}",engine="{label}"}} 1\n'
        f'vllm:generation_tokens_total{{model_name="{label}"}} 5\n'
        f'vllm:request_success_total{{finished_reason="{label}",model_name="{label}"}} 5\n'
        f'vllm:prompt_tokens_total{{model_name="{label}"}} {label}\n'
    )


@contextmanager
def parrot(repeated: Text, in_headers: bool = True) -> Iterator[str]:
    """Yields its URL."""

    class Own(Parrot):
        numbers = count()

    Own.in_headers = in_headers
    Own.repeated = lambda handler, body: repeated(handler, body)  # type: ignore[assignment, misc]
    with ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
