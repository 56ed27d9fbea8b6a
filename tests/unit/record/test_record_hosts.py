"""Logs of several hosts: their timestamps are converted to the driver's clock."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from inferometer.record import gather
from inferometer.record.gather import logs_to_parquet, read_logs
from inferometer.record.log import HostClock, LogWriter, Note, clock_here, read_log
from inferometer.record.parquet import HELD_READS, read_parquet
from inferometer.record.record import Record, Sample, Samples

HERE = HostClock("one", "boot-1", 1_000_000)
THERE = HostClock("two", "boot-2", 1_000_700)  # where its clock shows the same number it is 700 ns later


def write(path: Path, shard: int, clock: HostClock, at: int) -> Path:
    reads = np.array([at + 10, at + 20], "<i8").tobytes()
    with LogWriter(path, shard, clock) as log:
        log.add(Note("start", at, {"nonce": "n"}))
        log.append(
            Record(
                session=shard,
                shard=shard,
                scheduled_at=at,
                sent_at=at + 1,
                ended_at=at + 20,
                connect_ns=5,
                read_at=reads,
                read_tokens=np.ones(2, "<i8").tobytes(),
            )
        )
        log.add(Sample("client", "cpu_share", at + 7, 0.5))
        log.add(Note("ended", at + 30, {"start_at": at, "ended_at": at + 30, "shard": shard, "cpu_s": 1.0}))
    return path


@pytest.mark.parametrize("held_reads", [HELD_READS, 0])
def test_instants_of_another_host_are_on_the_first_logs_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_reads: int
) -> None:
    monkeypatch.setattr(gather, "HELD_READS", held_reads)  # 0: the reads stay in the logs
    logs = [write(tmp_path / "log-0.bin", 0, HERE, 100), write(tmp_path / "log-1.bin", 1, THERE, 100)]
    records, gathered = read_logs(logs)
    assert records.shard.tolist() == [0, 1]
    assert records.scheduled_at.tolist() == [100, 800]  # at the same reading of its clock it was 700 ns later
    assert records.sent_at.tolist() == [101, 801]
    assert records.ended_at.tolist() == [120, 820]
    assert records.connect_ns.tolist() == [5, 5]
    assert records.read_at.tolist() == [110, 120, 810, 820]
    assert Samples.of(gathered.samples).at.tolist() == [107, 807]
    assert [(note.what, note.at) for note in gathered.notes] == [
        *(("start", 100), ("ended", 130)),
        *(("start", 800), ("ended", 830)),
    ]
    assert gathered.notes[3].facts == {"start_at": 800, "ended_at": 830, "shard": 1, "cpu_s": 1.0}
    assert [header.clock for header in gathered.headers] == [HERE, THERE]


def test_a_parquet_file_has_them_so_too(tmp_path: Path) -> None:
    logs = [write(tmp_path / "log-0.bin", 0, HERE, 100), write(tmp_path / "log-1.bin", 1, THERE, 100)]
    logs_to_parquet(logs, tmp_path / "records.parquet")
    assert read_parquet(tmp_path / "records.parquet").scheduled_at.tolist() == [100, 800]


@pytest.mark.parametrize(
    "other",
    [
        HostClock("one", "boot-1", 9_000_000),  # the time was set between two logs of one host
        HostClock("another-name", "boot-1", 9_000_000),  # two containers of one host
        HostClock("one", "", 9_000_000),  # a system without boot ids
        HostClock("two", "boot-2", None),
        HostClock(),  # an older log, or one whose header is lost
    ],
)
def test_within_one_host_or_without_an_offset_nothing_moves(tmp_path: Path, other: HostClock) -> None:
    logs = [write(tmp_path / "log-0.bin", 0, HERE, 100), write(tmp_path / "log-1.bin", 1, other, 100)]
    assert read_logs(logs)[0].scheduled_at.tolist() == [100, 100]


def test_every_log_carries_its_host_and_offset(tmp_path: Path) -> None:
    LogWriter(tmp_path / "log").close()
    clock = read_log(tmp_path / "log").header.clock
    here = clock_here()
    assert (clock.host, clock.boot) == (here.host, here.boot)
    assert clock.real_minus_monotonic_ns == pytest.approx(here.real_minus_monotonic_ns, abs=1e9)
    assert clock_here(5).real_minus_monotonic_ns == 5


def test_the_clock_of_an_older_log_is_read() -> None:
    old = msgspec.msgpack.encode({"real_minus_monotonic_ns": 7, "wall_at": 1})
    assert msgspec.msgpack.decode(old, type=HostClock) == HostClock(real_minus_monotonic_ns=7)
