"""Small servers of the completions API that fail in one way each: real sockets on loopback; the number of a request
decides what becomes of it, so that nothing depends on time."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TTFT_S = 0.02  # long against what a busy machine makes us late by
TOKENS = 2
PROMPT = 24  # tokens of a request, as the server counts them
LONG = 32  # tokens of an answer in one piece

Behaviour = Callable[[int], str]  # from the number of a request, from 0, to what becomes of it


class FailingServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, behaviour: Behaviour, counting: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behaviour = behaviour
        self.counting = counting  # whether it has metrics
        self.lock = threading.Lock()
        self.asked = 0
        self.connections: set[socket.socket] = set()
        self.hanging = 0  # requests that wait for their server to end
        self.hangs = threading.Condition()
        self.over = threading.Event()

    def await_hanging(self, count: int) -> None:
        with self.hangs:
            assert self.hangs.wait_for(lambda: self.hanging >= count, timeout=60)

    def hang(self) -> None:
        with self.hangs:
            self.hanging += 1
            self.hangs.notify_all()
        self.over.wait()

    def metrics(self) -> bytes:
        """As of a vLLM that counts a request when it comes, whatever becomes of it."""
        counts = {"request_success": 1, "prompt_tokens": PROMPT, "generation_tokens": TOKENS}
        lines = ["vllm:num_requests_running 0"]
        lines += [f"vllm:{name}_total {self.asked * size}" for name, size in counts.items()]
        return "\n".join([*lines, ""]).encode()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def next_behaviour(self) -> str:
        with self.lock:
            number, self.asked = self.asked, self.asked + 1
        return self.behaviour(number)

    def die(self) -> None:
        """As a killed process: the port refuses from now on, and all connections are cut. The port's number in this
        process is given back only after nobody polls it: it would be the next file's, and the poll would never wait."""
        for each in [self.socket, *self.connections]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        threading.Thread(target=self.shutdown, daemon=True).start()

    def get_request(self) -> tuple[socket.socket, object]:
        made, address = super().get_request()
        self.connections.add(made)
        return made, address

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that broke is what is tested."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FailingServer

    def log_message(self, *_args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/metrics" and self.server.counting:
            self._answer(200, self.server.metrics())
            return
        models = {"object": "list", "data": [{"id": "m", "object": "model"}]}
        self._answer(200 if self.path == "/v1/models" else 404, json.dumps(models).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        match self.server.next_behaviour():
            case "ok":
                self._stream()
            case "slow":
                time.sleep(5)
                self._stream()
            case "hang":
                self.server.hang()
            case "whole":
                time.sleep(TTFT_S)
                self._answer(200, json.dumps(_whole()).encode())
            case "one event":
                self._one_event()
            case "close":
                self.close_connection = True
            case "die":
                self.server.die()
                self.close_connection = True
            case status:
                self._answer(int(status), b'{"error": {"message": "the model is on fire"}}')

    def _stream(self) -> None:
        time.sleep(TTFT_S)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for made in range(1, TOKENS + 1):
            usage = {"prompt_tokens": PROMPT, "completion_tokens": made, "total_tokens": PROMPT + made}
            reason = "length" if made == TOKENS else None
            choice = {"index": 0, "text": " a", "finish_reason": reason}
            self._event(json.dumps({"id": "x", "object": "text_completion", "choices": [choice], "usage": usage}))
            time.sleep(0.005)
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _one_event(self) -> None:
        time.sleep(TTFT_S)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self._event(json.dumps(_whole()))
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, data: str) -> None:
        event = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
        self.wfile.flush()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _whole() -> dict[str, object]:
    """An answer that nobody streamed."""
    usage = {"prompt_tokens": PROMPT, "completion_tokens": LONG, "total_tokens": PROMPT + LONG}
    choice = {"index": 0, "text": " a" * LONG, "finish_reason": "length"}
    return {"id": "x", "object": "text_completion", "choices": [choice], "usage": usage}


@contextmanager
def failing_server(behaviour: Behaviour, counting: bool = False) -> Iterator[FailingServer]:
    server = FailingServer(behaviour, counting)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()


def always(what: str) -> Behaviour:
    return lambda _number: what


def every(nth: int, what: str) -> Behaviour:
    """Every nth request fails, beginning with the first."""
    return lambda number: "ok" if number % nth else what


def mostly(nth: int, what: str) -> Behaviour:
    """Every nth request is answered, and the others fail."""
    return lambda number: what if number % nth else "ok"


def after(count: int, what: str) -> Behaviour:
    return lambda number: "ok" if number < count else what
