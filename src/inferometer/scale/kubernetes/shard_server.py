"""One shard in a pod: a small HTTP server around the process of a local worker. The driver reaches it through the API
server's proxy, sends it its job, and fetches its messages and files in parcels, which it can request again.

Every request carries the token of the run. A pod that gets no more requests ends by itself.
"""

import hmac
import http.server
import os
import shutil
import signal
import threading
import time
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import msgspec

from inferometer.errors import PlanError
from inferometer.scale.remote_shard import RemoteShard, node_folder

PORT = 8900
ADDRESS_ENV = "INFEROMETER_POD_ADDRESS"
TOKEN_ENV = "INFEROMETER_SHARD_TOKEN"
TOKEN_HEADER = "X-Inferometer-Token"
SILENCE_ENV = "INFEROMETER_SILENCE_S"
SILENCE_S = 180.0  # longer than the driver's retries while the API server is unreachable
BUFFERED_PARCELS = 16  # parcels buffered for the driver; beyond it the stream waits, never the load
MOST_PARCELS = 4  # in one response: up to 4 MB
GONE_STATUS = 3


class Assignment(msgspec.Struct, frozen=True):
    """The task of a pod: shard, run, the function's name and its job as JSON."""

    run: str
    shard: int
    function: str
    job: bytes
    variables: dict[str, str] = {}


class Parcels(msgspec.Struct, frozen=True):
    """New parcels; the driver then requests those from `next` on."""

    next: int
    parcels: list[bytes] = []


class ShardServer(http.server.ThreadingHTTPServer):
    """The shard's state, shared by the requests."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str, port: int, token: str) -> None:
        super().__init__((address, port), _Request)
        self.token = token
        self.heard_at = time.monotonic()
        self.over = threading.Event()
        self._shard: RemoteShard | None = None
        self._assignment: Assignment | None = None
        self._changed = threading.Condition()
        self._first = 0  # number of the first buffered parcel
        self._kept: list[bytes] = []
        self._opened = False

    @property
    def shard(self) -> RemoteShard:
        if self._shard is None:
            raise PlanError("no job was received yet")
        return self._shard

    def assign(self, assignment: Assignment) -> bytes:
        """Accept the job; it may arrive twice, if the response to the first request was lost."""
        with self._changed:
            if self._assignment is None:
                names = assignment.run, assignment.shard, assignment.function, assignment.job
                self._shard = RemoteShard(*names, assignment.variables)
                self._assignment = assignment
            elif (self._assignment.run, self._assignment.shard) != (assignment.run, assignment.shard):
                raise PlanError(f"this pod already has shard {self._assignment.shard} of {self._assignment.run}")
            return self.shard.identity()

    def open(self, pause_s: float, with_log: bool) -> None:
        with self._changed:
            if not self._opened:
                self._opened = True
                threading.Thread(target=self._stream, args=(pause_s, with_log), name="parcels", daemon=True).start()

    def _stream(self, pause_s: float, with_log: bool) -> None:
        for parcel in self.shard.parcels(pause_s, with_log=with_log):
            with self._changed:
                self._changed.wait_for(lambda: len(self._kept) < BUFFERED_PARCELS)
                self._kept.append(parcel)

    def parcels(self, wanted: int) -> Parcels:
        """The parcels from a number on; the driver has all earlier ones."""
        with self._changed:
            passed = min(max(wanted - self._first, 0), len(self._kept))
            self._first += passed
            del self._kept[:passed]
            self._changed.notify_all()
            sent = self._kept[:MOST_PARCELS]
            return Parcels(self._first + len(sent), sent)

    def end(self, whole_run: bool) -> None:
        """Remove files that the driver has: our log, or on a shared volume all logs of the run, including those of lost
        pods."""
        if self._shard is not None:
            self._shard.forget()
        if whole_run:
            shutil.rmtree(node_folder(), ignore_errors=True)
        self.over.set()


class _Request(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ShardServer

    def log_message(self, *_arguments: object) -> None:
        pass  # no access log in the pod's output

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if not hmac.compare_digest(self.headers.get(TOKEN_HEADER, ""), self.server.token):
            return self._send(b"the token of the run is missing", HTTPStatus.FORBIDDEN)
        self.server.heard_at = time.monotonic()
        values = {name: words[-1] for name, words in parse_qs(url.query).items()}
        try:
            self._send(self._answer(url.path, values, body))
        except PlanError as error:
            self._send(error.message.encode(), HTTPStatus.CONFLICT)

    do_POST = do_GET  # noqa: N815

    def _answer(self, path: str, values: dict[str, str], body: bytes) -> bytes:
        server = self.server
        match path:
            case "/now":
                return str(time.monotonic_ns()).encode()
            case "/parcels":
                return msgspec.msgpack.encode(server.parcels(int(values["from"])))
            case "/assign":
                return server.assign(msgspec.msgpack.decode(body, type=Assignment))
            case "/open":
                server.open(float(values["pause"]), values.get("log", "1") == "1")
            case "/start":
                server.shard.start(int(values["at"]))
            case "/signal":
                server.shard.signal(int(values["number"]))
            case "/goals":
                server.shard.reached(body)
            case "/forget":
                server.end(values.get("all") == "1")
            case _:
                raise PlanError(f"no path {path}")
        return b""

    def _send(self, body: bytes, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/octet-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve_shard() -> int:
    """Serve until the driver has everything or is silent for too long; then the shard ends with the pod."""
    token = os.environ.get(TOKEN_ENV)
    if not token:
        raise PlanError(f"{TOKEN_ENV} is not set", "this is started in a pod by inferometer run --on kubernetes")
    silence_s = float(os.environ.get(SILENCE_ENV, SILENCE_S))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))  # process 1 has no default handler
    server = ShardServer(os.environ.get(ADDRESS_ENV, ""), PORT, token)
    threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    while not server.over.wait(0.25):
        if time.monotonic() - server.heard_at > silence_s:
            os._exit(GONE_STATUS)
    return 0
