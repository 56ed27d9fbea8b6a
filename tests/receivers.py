"""A real HTTP receiver of messages on loopback, with configurable responses."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str]]


class Receiver:
    """`answers` are given one after the other, the last for all that follow; `None` does not answer at all."""

    def __init__(self, answers: Sequence[Answer | None]) -> None:
        self.answers = list(answers)
        self.body = "ok"
        self.messages: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.over = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/services/T0/B0/sEcReT"

    def answer(self) -> Answer | None:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def _handler(receiver) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                receiver.headers.append(dict(self.headers))
                said = receiver.answer()
                if said is None:
                    receiver.over.wait(30)
                    return
                self.send_response(said[0])
                for name, value in said[1].items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(receiver.body)))
                self.end_headers()
                self.wfile.write(receiver.body.encode())

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@contextmanager
def receiving(*answers: Answer | None) -> Iterator[Receiver]:
    receiver = Receiver(answers or [(200, {})])
    thread = threading.Thread(target=receiver.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.over.set()
        receiver.server.shutdown()
        receiver.server.server_close()
        thread.join()
