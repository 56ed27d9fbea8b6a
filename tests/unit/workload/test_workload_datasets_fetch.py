"""A dataset by URL: downloaded once, resumed after a break, verified; from a real server on loopback."""

import hashlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from inferometer.errors import DataError
from inferometer.plan.reading import plan_from
from inferometer.workload import files as fetch_module
from inferometer.workload.files import fetch
from inferometer.workload.session import WorkloadContext, workload_of

BODY = b"".join(b"prompt number %d\n" % number for number in range(50_000))
SHA256 = hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves BODY; `cuts` says after how many bytes each answer breaks off, `ranges` whether it can continue."""

    cuts: list[int]
    ranges = True
    etag = '"one"'
    status = 200
    body = BODY

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked = []  # type: ignore[var-annotated]
        self.url = f"http://127.0.0.1:{self.server_address[1]}/data/prompts.txt"


class Answer(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        server.asked.append(dict(self.headers))
        start = self._start()
        if server.status != 200:
            self.send_error(server.status)
            return
        rest = server.body[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(server.body) - 1}/{len(server.body)}")
        self.send_header("Content-Length", str(len(rest)))
        self.send_header("ETag", server.etag)
        self.end_headers()
        self.wfile.write(rest[: server.cuts.pop(0)] if server.cuts else rest)

    def _start(self):
        asked = self.headers.get("Range")
        same = self.headers.get("If-Range", self.server.etag) == self.server.etag
        return int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.ranges and same else 0

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    with Server() as made:
        made.cuts = []
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_it_is_fetched_once(server):
    notes: list[Any] = []
    path = fetch(server.url, SHA256, notes.append)
    assert path.name == "prompts.txt" and path.read_bytes() == BODY
    assert fetch(server.url, SHA256) == path
    assert len(server.asked) == 1 and SHA256 in notes[-1]


def test_a_connection_that_breaks_half_way_is_continued(server):
    server.cuts = [len(BODY) // 2, 1000, 0]
    notes: list[Any] = []
    assert fetch(server.url, SHA256, notes.append).read_bytes() == BODY
    starts = [asked.get("Range") for asked in server.asked]
    half = len(BODY) // 2
    assert starts == [None, f"bytes={half}-", f"bytes={half + 1000}-", f"bytes={half + 1000}-"]
    assert "resuming" in notes[0]


def test_what_was_fetched_before_it_was_given_up_is_used_the_next_time(server):
    server.cuts = [len(BODY) // 2] + [0] * fetch_module.TRIES
    with pytest.raises(DataError, match="are stored and the next attempt resumes"):
        fetch(server.url, SHA256)
    server.asked.clear()
    assert fetch(server.url, SHA256).read_bytes() == BODY
    assert [asked.get("Range") for asked in server.asked] == [f"bytes={len(BODY) // 2}-"]


def test_a_server_that_cannot_continue_sends_it_all(server):
    server.cuts, server.ranges = [1000], False
    assert fetch(server.url, SHA256).read_bytes() == BODY


def test_a_file_that_changed_in_between_is_taken_anew(server):
    server.cuts = [1000] + [0] * fetch_module.TRIES
    with pytest.raises(DataError):
        fetch(server.url)
    server.body, server.etag = BODY[::-1], '"two"'
    assert fetch(server.url).read_bytes() == BODY[::-1]


def test_a_wrong_checksum_is_refused_and_nothing_is_kept(server):
    with pytest.raises(DataError, match=f"has the SHA-256 {SHA256}, expected {'0' * 64}") as told:
        fetch(server.url, "0" * 64)
    assert "checksum" in told.value.hint
    fetch(server.url, SHA256)
    assert len(server.asked) == 2


@pytest.mark.parametrize(("status", "hint"), [(404, "is the address right"), (403, "it needs a login")])
def test_a_refusal_is_not_asked_again(server, status: int, hint: str):
    server.status = status
    with pytest.raises(DataError, match=f"the server answered {status}") as told:
        fetch(server.url)
    assert hint in told.value.hint and len(server.asked) == 1


def test_no_server_at_all(server):
    gone = server.url.replace(str(server.server_address[1]), "1")
    with pytest.raises(DataError, match="download failed") as told:
        fetch(gone)
    assert "without a network" in told.value.hint


def test_a_workload_by_url(server):
    server.cuts = [len(BODY) // 2]
    plan = plan_from({"workload": {"type": "prompts", "url": server.url, "checksum": f"sha256:{SHA256}", "limit": 10}})
    sessions = [workload_of(plan.workload, 0, 0, "", WorkloadContext()) for _ in range(2)]
    assert len(sessions[0]) == 10 and sessions[0](3) == sessions[1](3)  # type: ignore[arg-type]
    assert sessions[0](3).turns[0].prompt.startswith("prompt number ")
    assert len(server.asked) == 2


def test_a_trace_by_url(server):
    """A checksum may be written with the name of its kind."""
    server.body = b"time,input_tokens\n0.0,5\n1.5,7\n"
    checksum = f"sha256:{hashlib.sha256(server.body).hexdigest().upper()}"
    trace = {"type": "trace", "url": server.url.replace(".txt", ".csv"), "checksum": checksum, "unit": "s"}
    sessions = workload_of(plan_from({"workload": trace}).workload, 0, 0, "", WorkloadContext())
    assert [session.at_s for session in (sessions(0), sessions(1))] == [0.0, 1.5]
