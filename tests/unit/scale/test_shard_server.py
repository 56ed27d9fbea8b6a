"""A pod's server for its driver: nothing without the token, repeated parcels after a lost answer, one job."""

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from inferometer.load.shard import ShardJob
from inferometer.scale.frames import Unpacker
from inferometer.scale.kubernetes.shard_server import TOKEN_HEADER, Assignment, Parcels, ShardServer
from inferometer.scale.remote_shard import NODE_FOLDER_ENV, ActorIdentity, Parcel

FUNCTION = """
from pathlib import Path
from inferometer.load.shard import ShardJob, ShardReport


def write(job: ShardJob, watch, start) -> ShardReport:
    start_at = start()
    Path(job.log).write_bytes(bytes(range(250)) * 40_000)
    return ShardReport(shard=job.shard, start_at=start_at)
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShardServer]:
    (tmp_path / "writing_in_pods.py").write_text(FUNCTION)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(NODE_FOLDER_ENV, str(tmp_path / "node"))
    served = ShardServer("127.0.0.1", 0, "secret")
    threading.Thread(target=served.serve_forever, args=(0.05,), daemon=True).start()
    yield served
    served.shutdown()
    served.server_close()


def ask(server: ShardServer, path: str, body: bytes | None = None, token: str = "secret") -> bytes:
    url = f"http://127.0.0.1:{server.server_address[1]}/{path}"
    request = urllib.request.Request(url, body, {TOKEN_HEADER: token})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return bytes(answer.read())


def assignment(shard: int = 1) -> bytes:
    job = ShardJob({}, "/driver/run/log-1.bin", "nonce", shard=shard, shards=2)
    return msgspec.msgpack.encode(Assignment("run", shard, "writing_in_pods:write", msgspec.json.encode(job)))


def refused(server: ShardServer, path: str, body: bytes | None = None, token: str = "secret") -> int:
    with pytest.raises(urllib.error.HTTPError) as error:
        ask(server, path, body, token)
    error.value.close()
    return error.value.code


def test_without_the_token_nothing_is_told(server: ShardServer) -> None:
    assert refused(server, "now", token="other") == 403
    assert refused(server, "assign", assignment(), token="") == 403
    assert int(ask(server, "now")) > 0


def test_one_job_for_good(server: ShardServer) -> None:
    assert refused(server, "start?at=1", b"") == 409
    first = msgspec.msgpack.decode(ask(server, "assign", assignment()), type=ActorIdentity)
    assert msgspec.msgpack.decode(ask(server, "assign", assignment()), type=ActorIdentity).pid == first.pid
    assert refused(server, "assign", assignment(shard=0)) == 409


def test_the_log_comes_whole_though_answers_are_lost(server: ShardServer) -> None:
    ask(server, "assign", assignment())
    ask(server, "open?pause=0.01", b"")
    unpacker, log, number, last = Unpacker(), b"", 0, Parcel()
    while last.ended is None:
        lost = msgspec.msgpack.decode(ask(server, f"parcels?from={number}"), type=Parcels)  # the driver did not get it
        answer = msgspec.msgpack.decode(ask(server, f"parcels?from={number}"), type=Parcels)
        assert answer.parcels[: len(lost.parcels)] == lost.parcels
        number = answer.next
        for parcel in answer.parcels:
            last = msgspec.msgpack.decode(parcel, type=Parcel)
            log += last.log
            if any(frame.kind == "ready" for frame in unpacker.feed(last.frames)):
                ask(server, "start?at=12345", b"")
    assert log == bytes(range(250)) * 40_000
    assert last.size == len(log)
    ask(server, "forget", b"")
    assert server.over.is_set()
