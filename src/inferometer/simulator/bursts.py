"""A server that sends tokens in bursts, one write per event, and logs the time span of every write: the truth for the
stated uncertainty of reads. Unlike the metronome it supports TLS.

    python -m inferometer.simulator.bursts --seed 1 --pause 8ms

prints one JSON line with its port, serves until its stdin closes, and then writes its truth to stdout. Over
loopback, written bytes are in the client's socket when the write returns. Bursts put several tokens into one read, and
some events are so large that a read does not take a whole burst.
"""

import argparse
import fcntl
import heapq
import json
import os
import random
import select
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from inferometer.simulator.metronome_process import Truth
from inferometer.vocabulary import NANOSECONDS, seconds
from inferometer.wire.child import python_command
from inferometer.wire.reactor import now
from inferometer.wire.sockets import send_at_once

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LARGEST_BURST = 5
GAPS_S = (0.0, 0.0, 3e-5, 3e-4, 1.5e-3)  # between the events of a burst
TEXTS = (1,) * 30 + (200,) * 9 + (7_000,)  # characters: five of the last fill a read twice
LONGEST_SLEEP_S = 5e-4  # between two checks for requests
PATIENCE_S = 60.0
SIOCOUTQNSD = 0x894B  # linux/sockios.h
WITHHELD_NS = 3600 * NANOSECONDS  # the span of a write that the kernel did not send at once: its time is unknown

# -- server ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class BurstStream:
    """One answer in progress: the events left to write, and the times of its writes."""

    id: str
    connection: socket.socket
    received_at: int
    tokens: int
    burst: int = 0  # events left of the current burst
    sent_at: list[int] = field(default_factory=list)
    took_ns: list[int] = field(default_factory=list)


class Bursts:
    """Writes to all streams from one thread, in the order in which they are due."""

    def __init__(self, listener: socket.socket, seed: int, pause_s: float, tls: ssl.SSLContext | None) -> None:
        self._listener, self._pause_s, self._tls = listener, pause_s, tls
        self._random = random.Random(seed)
        self._connections: dict[int, socket.socket] = {}
        self._due: list[tuple[int, int, BurstStream]] = []
        self.streams: list[BurstStream] = []

    def serve(self) -> None:
        """Until stdin closes."""
        poll = select.poll()
        stdin, door = sys.stdin.fileno(), self._listener.fileno()
        for fd in (stdin, door):
            poll.register(fd, select.POLLIN)
        while True:
            for fd, _ in poll.poll(0):
                if fd == stdin:
                    return
                if fd == door:
                    fd = self._accept()
                    poll.register(fd, select.POLLIN)
                elif not self._begin(self._connections[fd]):
                    poll.unregister(fd)
                    self._connections.pop(fd).close()
            self._write_what_is_due()
            left_s = (self._due[0][0] - now()) / NANOSECONDS if self._due else LONGEST_SLEEP_S
            if left_s > 0:
                time.sleep(min(left_s, LONGEST_SLEEP_S))

    def _accept(self) -> int:
        connection, _ = self._listener.accept()
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True)
        connection.settimeout(PATIENCE_S)
        self._connections[connection.fileno()] = connection
        return connection.fileno()

    def _begin(self, connection: socket.socket) -> bool:
        """Handle a new request or a disconnect; returns whether there was one."""
        data = b""
        with suppress(OSError):
            while b"\r\n\r\n" not in data:
                data += connection.recv(1 << 16) or _gone()
            head, _, body = data.partition(b"\r\n\r\n")
            size = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            while len(body) < size:
                body += connection.recv(1 << 16) or _gone()
            stream = BurstStream(f"b-{len(self.streams)}", connection, now(), orjson.loads(body)["max_tokens"])
            self.streams.append(stream)
            connection.sendall(HEAD)
            self._later(stream, self._random.uniform(0.02, 0.1))
            return True
        return False

    def _later(self, stream: BurstStream, pause_s: float) -> None:
        heapq.heappush(self._due, (now() + int(pause_s * NANOSECONDS), self._random.getrandbits(60), stream))

    def _write_what_is_due(self) -> None:
        """Write at most one event per stream, so that requests are handled in between."""
        for _ in range(len(self._due)):
            if self._due[0][0] > now():
                return
            stream = heapq.heappop(self._due)[2]
            stream.burst = (stream.burst or self._random.randint(1, LARGEST_BURST)) - 1
            with suppress(OSError):  # the client disconnected, or does not read
                self._write(stream)
                if len(stream.sent_at) < stream.tokens:
                    pause_s = self._pause_s * self._random.uniform(0.5, 1.5)
                    self._later(stream, self._random.choice(GAPS_S) if stream.burst else pause_s)
                else:
                    stream.connection.sendall(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    def _write(self, stream: BurstStream) -> None:
        text = "x" * self._random.choice(TEXTS)
        data = b'data: {"id":"%b","choices":[{"index":0,"text":"%b"}]}\n\n' % (stream.id.encode(), text.encode())
        event = b"%x\r\n%b\r\n" % (len(data), data)
        begun_at = now()
        stream.connection.sendall(event)
        ended_at = now()
        stream.sent_at.append(begun_at)
        stream.took_ns.append(WITHHELD_NS if _unsent(stream.connection) else ended_at - begun_at)

    def truth(self) -> bytes:
        """The truth in the metronome's format, with a span for every write."""
        spans = [
            (number, event, took_ns)
            for number, stream in enumerate(self.streams)
            for event, took_ns in enumerate(stream.took_ns)
        ]
        facts = {
            "interval_ns": 0,
            "id": [stream.id for stream in self.streams],
            "received_at": [stream.received_at for stream in self.streams],
            "first_due_at": [stream.received_at for stream in self.streams],
            "sent": [len(stream.sent_at) for stream in self.streams],
            "held": spans,
        }
        instants = b"".join(at.to_bytes(8, sys.byteorder) for stream in self.streams for at in stream.sent_at)
        return json.dumps(facts).encode() + b"\n" + instants


def _unsent(connection: socket.socket) -> int:
    """Bytes that the kernel accepted but has not sent, because of congestion control or a full window."""
    return int.from_bytes(fcntl.ioctl(connection, SIOCOUTQNSD, bytes(4)), sys.byteorder)


def _gone() -> bytes:
    raise ConnectionError("the client left")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bursts", description="a server that writes in bursts and logs every write")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=seconds, default=0.008, metavar="DURATION", help="between bursts, on average")
    parser.add_argument("--certificate", type=Path, help="PEM; with its key it is served over TLS")
    parser.add_argument("--key", type=Path)
    options = parser.parse_args()
    tls = None
    if options.certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(options.certificate, options.key)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        send_at_once(listener)  # accepted connections inherit it
        bursts = Bursts(listener, options.seed, options.pause, tls)
        print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
        bursts.serve()
    sys.stdout.buffer.write(bursts.truth())
    sys.stdout.flush()


# -- process ---------------------------------------------------------------------------------------------------------


class RunningBursts:
    """The server as a child process."""

    def __init__(self, child: subprocess.Popen[bytes], secure: bool) -> None:
        self._child = child
        assert child.stdout is not None
        self.url = f"http{'s' * secure}://localhost:{json.loads(child.stdout.readline())['port']}"

    def truth(self) -> Truth:
        """End the server and read its truth."""
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.close()
        return Truth.read(self._child.stdout.read())


@contextmanager
def running_bursts(pause_s: float, seed: int = 1, tls: tuple[Path, Path] | None = None) -> Iterator[RunningBursts]:
    """Start it on a free port; `tls` are a certificate and its key."""
    options = ["--seed", str(seed), "--pause", f"{pause_s!r}s"]
    options += [] if tls is None else ["--certificate", os.fspath(tls[0]), "--key", os.fspath(tls[1])]
    command = python_command("inferometer.simulator.bursts", *options)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            yield RunningBursts(child, tls is not None)
        finally:
            child.kill()


if __name__ == "__main__":
    main()
