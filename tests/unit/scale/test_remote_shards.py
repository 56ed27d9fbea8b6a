"""What an actor does around a worker's process, without Ray: parcels of at most 1 MB that together are the log, goals
that reach the shard, variables that a plan needs."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from inferometer.load.shard import ShardJob
from inferometer.plan.reading import plan_from
from inferometer.scale.frames import Unpacker
from inferometer.scale.remote import needed_variables
from inferometer.scale.remote_shard import (
    LARGEST_PARCEL,
    NODE_FOLDER_ENV,
    ActorIdentity,
    Parcel,
    RemoteShard,
    node_folder,
)

FUNCTION = '''
from pathlib import Path
from inferometer.load.progress import Progress
from inferometer.load.shard import ShardJob, ShardReport


def write(job: ShardJob, watch, start) -> ShardReport:
    """A log of three megabytes, and what the shard was told of its goals."""
    start_at = start()
    watch(Progress(shard=job.shard, sent=7))
    Path(job.log).write_bytes(bytes(range(250)) * 12_000)
    goals = Path(job.goals).read_text() if job.goals else ""
    return ShardReport(shard=job.shard, start_at=start_at, gave_up=goals or None)
'''


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RemoteShard:
    (tmp_path / "writing.py").write_text(FUNCTION)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(NODE_FOLDER_ENV, str(tmp_path / "node"))
    job = ShardJob({}, "/driver/run/log-3.bin", "nonce", shard=3, shards=4, goals="/driver/run/goals.json")
    return RemoteShard("run", 3, "writing:write", msgspec.json.encode(job), {"KEY": "secret"})


def test_parcels_are_the_log_and_the_frames(remote: RemoteShard, tmp_path: Path) -> None:
    identity = msgspec.msgpack.decode(remote.identity(), type=ActorIdentity)
    assert identity.folder == str(tmp_path / "node" / "run-3")
    remote.reached(b'{"default": {"why": "x", "status": "lost"}}')
    unpacker, log, kinds, last = Unpacker(), b"", [], Parcel()
    for packed in remote.parcels(0.01):
        assert len(packed) <= LARGEST_PARCEL
        last = msgspec.msgpack.decode(packed, type=Parcel)
        log += last.log
        for frame in unpacker.feed(last.frames):
            kinds.append(frame.kind)
            if frame.kind == "ready":
                remote.start(12345)
            if frame.kind == "report":
                report = msgspec.msgpack.decode(frame.payload)
    assert kinds == ["ready", "progress", "report"]
    assert log == bytes(range(250)) * 12_000
    assert (last.ended, last.size) == ("its process ended with exit status 0", len(log))
    assert report["start_at"] == 12345
    assert "lost" in report["gave_up"]  # the goals of the driver's folder were found in the node's
    assert (tmp_path / "node" / "run-3" / "log-3.bin").read_bytes() == log  # and stays until the driver has it
    remote.forget()
    assert not (tmp_path / "node" / "run-3").exists()


WAITING = """
import os, time
from inferometer.scale.remote_shard import end_with

if os.fork():
    time.sleep(60)
else:
    end_with(os.getppid())
    print(os.getpid(), flush=True)
    time.sleep(60)
    print("outlived")
"""


def test_logs_of_a_node_are_only_for_their_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NODE_FOLDER_ENV, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    job = msgspec.json.encode(ShardJob({}, "/driver/run/log-0.bin", "nonce", shard=0, shards=1))
    RemoteShard("run", 0, "x:y", job, {})
    assert node_folder().parent == tmp_path and node_folder().stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr("os.getuid", lambda: 12_345)  # who made the folder is another one
    node_folder().mkdir()
    with pytest.raises(PermissionError, match=f"another user; set {NODE_FOLDER_ENV}"):
        RemoteShard("run", 0, "x:y", job, {})


def test_an_actor_does_not_outlive_its_raylet() -> None:
    """Who reads its output sees it end, without the last word."""
    with subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE) as raylet:
        assert raylet.stdout is not None
        assert int(raylet.stdout.readline()) != raylet.pid
        raylet.kill()
        assert raylet.stdout.read() == b""


def test_variables_that_the_plan_reads_go_with_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_from({"target": {"url": "http://h", "key_env": "MY_KEY", "headers": {"x-a": "${MY_HEADER}"}}})
    for name in ("MY_KEY", "MY_HEADER", "MY_OTHER"):
        monkeypatch.setenv(name, "v")
    assert needed_variables(plan) == {"MY_HEADER": "v", "MY_KEY": "v"}
