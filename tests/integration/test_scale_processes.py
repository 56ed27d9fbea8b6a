"""Worker processes: a common start, losses, interrupts, and no orphans."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_engines import alive, eventually

from inferometer.errors import StoreError
from inferometer.load.progress import Progress
from inferometer.scale.frames import Unpacker, packed
from inferometer.scale.processes import run_shards

HERE = str(Path(__file__).parent)


@pytest.fixture
def errand(monkeypatch: pytest.MonkeyPatch):
    """The function, importable here and in the workers."""
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setenv("PYTHONPATH", HERE)
    import shards_at_work

    return shards_at_work


def jobs(errand, folder, *thens):
    return [errand.Errand(shard, str(folder), then) for shard, then in enumerate(thens)]


def test_one_shard_runs_here(errand, tmp_path: Path):
    seen: list[Any] = []
    end = run_shards(errand.errand, jobs(errand, tmp_path, "report"), seen.append)
    assert [account.pid for account in end.reports] == [os.getpid()]
    assert end.lost == []
    assert [progress.sent for progress in seen] == [1]


def test_shards_begin_together_and_report_in_order(errand, tmp_path: Path):
    seen: list[Progress] = []
    end = run_shards(errand.errand, jobs(errand, tmp_path, *["report"] * 3), seen.append)
    assert [account.shard for account in end.reports] == [0, 1, 2]
    assert len({account.pid for account in end.reports} | {os.getpid()}) == 4
    assert len({account.began_at for account in end.reports}) == 1
    assert all(account.late_ns >= 0 for account in end.reports)
    assert sorted(progress.shard for progress in seen) == [0, 1, 2]


def test_a_lost_worker_is_told_and_the_others_go_on(errand, tmp_path: Path):
    end = run_shards(errand.errand, jobs(errand, tmp_path, "report", "die", "crash", "fail"), lambda _: None)
    assert [account.shard for account in end.reports] == [0]
    assert [lost.shard for lost in end.lost] == [1, 2, 3]
    assert [lost.why for lost in end.lost] == [
        "its process ended with SIGKILL: printed where frames go",
        "its process ended with exit status 1: RuntimeError: a mistake of ours",
        "records.log: no space left on device",
    ]


def test_a_mistake_of_all_is_raised_here(errand, tmp_path: Path):
    with pytest.raises(StoreError, match="no space left") as caught:
        run_shards(errand.errand, jobs(errand, tmp_path, "fail", "fail"), lambda _: None)
    assert caught.value.hint == "make room"


def test_interrupts_are_forwarded_to_every_worker(errand, tmp_path: Path):
    working: set[int] = set()
    draining: set[int] = set()

    def watch(progress: Progress) -> None:
        """Interrupt when all work; again when all drain: as a person at the terminal would."""
        known = draining if progress.phase == "drain" else working
        before = len(known)
        known.add(progress.shard)
        if before < len(known) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    end = run_shards(errand.errand, jobs(errand, tmp_path, "wait", "wait"), watch)
    assert [account.interrupts for account in end.reports] == [2, 2]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_before_the_start_ends_it_all(errand, tmp_path: Path):
    connecting: set[int] = set()

    def watch(progress: Progress) -> None:
        connecting.add(progress.shard)
        if len(connecting) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_shards(errand.errand, jobs(errand, tmp_path, "connect", "connect"), watch)
    assert not list(tmp_path.iterdir())


PARENT = """
import sys
sys.path.insert(0, {here!r})
from shards_at_work import Errand, errand
from inferometer.scale.processes import run_shards
def watch(progress):
    print(progress.shard, flush=True)
run_shards(errand, [Errand(shard, {folder!r}, "wait") for shard in range(2)], watch)
"""


def test_no_orphans_when_the_parent_is_killed(errand, tmp_path: Path):
    script = PARENT.format(here=HERE, folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert {parent.stdout.readline(), parent.stdout.readline()} == {b"0\n", b"1\n"}
        parent.kill()
    pids = [int((tmp_path / f"pid-{shard}").read_text()) for shard in range(2)]
    assert eventually(lambda: not any(map(alive, pids)))
    assert [(tmp_path / f"ended-{shard}").read_text() for shard in range(2)] == ["2", "2"]


@given(contents=st.lists(st.binary(max_size=300), max_size=8), data=st.data())
def test_frames_do_not_depend_on_how_bytes_are_cut(contents, data: st.DataObject):
    stream = b"".join(packed("report", content) for content in contents)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    unpacker = Unpacker()
    frames = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        frames += unpacker.feed(stream[start:stop])
    assert [msgspec.msgpack.decode(frame.payload) for frame in frames] == contents
