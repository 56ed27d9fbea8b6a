"""The log: written records are read back, truncation is reported."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest

from inferometer.errors import StoreError
from inferometer.record import log as log_room
from inferometer.record.gather import read_logs
from inferometer.record.log import MAGIC, Header, HostClock, LogReader, LogWriter, Note, read_log
from inferometer.record.record import Record, Sample


def record(session: int, **fields: Any) -> Record:
    return Record(session=session, scheduled_at=session * 10, **fields)


def test_all_kinds_of_entries_share_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log-3.bin"
    with LogWriter(path, shard=3, clock=HostClock("there", "boot", 1700)) as log:
        log.append(record(1, answer="ä"))
        log.add(Sample("gpu:0", "power_w", 12, 300.5, {"uuid": "x"}))
        log.add(Note("clock stepped", at=13, facts={"by_ns": -4}))
        log.append(record(2))
        assert log.records == 2
    read = read_log(path)
    assert read.header == Header(shard=3, clock=HostClock("there", "boot", 1700))
    assert read.records == [record(1, answer="ä"), record(2)]
    assert read.samples == [Sample("gpu:0", "power_w", 12, 300.5, {"uuid": "x"})]
    assert read.notes == [Note("clock stepped", 13, {"by_ns": -4})]
    assert not read.truncated


def test_the_header_is_there_from_the_start(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "log", shard=1)
    assert read_log(tmp_path / "log").header.shard == 1
    writer.close()


def test_buffers_until_flushed(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "log")
    writer.append(record(1))
    assert read_log(tmp_path / "log").records == []
    writer.flush()
    assert read_log(tmp_path / "log").records == [record(1)]
    writer.append(record(2, answer="x" * log_room.FLUSH_BYTES))
    assert len(read_log(tmp_path / "log").records) == 2
    writer.close()
    writer.close()


def test_never_appends_to_an_old_log(tmp_path: Path) -> None:
    LogWriter(tmp_path / "log").close()
    with pytest.raises(StoreError, match="exists"):
        LogWriter(tmp_path / "log")


def test_zeros_after_a_power_cut_are_not_frames(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with LogWriter(path) as log:
        log.append(record(1))
    path.write_bytes(path.read_bytes() + bytes(4096))
    read = read_log(path)
    assert (read.records, read.truncated) == ([record(1)], True)


def test_a_mad_length_is_not_allocated(tmp_path: Path) -> None:
    path = tmp_path / "log"
    LogWriter(path).close()
    path.write_bytes(path.read_bytes() + b"\xff" * 9)
    assert read_log(path).truncated


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"PAR1 and more")
    with pytest.raises(StoreError, match="not an Inferometer log"):
        read_log(tmp_path / "log")
    with pytest.raises(StoreError, match="no such file"):
        read_log(tmp_path / "none")


def frame(kind: int, content: object) -> bytes:
    payload = msgspec.msgpack.encode(content)
    checksum = crc32(payload, crc32(bytes([kind])))
    return len(payload).to_bytes(4, "little") + checksum.to_bytes(4, "little") + bytes([kind]) + payload


def test_a_newer_log_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(MAGIC + frame(0, {"schema": "inferometer/log/99", "shard": 0}))
    with pytest.raises(StoreError, match=r"newer Inferometer.*log/99") as raised:
        read_log(tmp_path / "log")
    assert raised.value.hint


def test_kinds_and_fields_from_the_future_are_passed_over(tmp_path: Path) -> None:
    longer = [*msgspec.structs.astuple(record(7)), "a field we do not have"]
    content = frame(0, {"shard": 0, "more": 1}) + frame(77, ["what"]) + frame(1, longer)
    (tmp_path / "log").write_bytes(MAGIC + content)
    read = read_log(tmp_path / "log")
    assert (read.records, read.truncated) == ([record(7)], False)


def test_records_of_an_older_shorter_form_get_defaults(tmp_path: Path) -> None:
    shorter = msgspec.structs.astuple(record(7))[:9]
    (tmp_path / "log").write_bytes(MAGIC + frame(0, {"shard": 0}) + frame(1, shorter))
    assert read_log(tmp_path / "log").records == [record(7)]


@pytest.mark.parametrize(
    "field, value",
    [
        ("finish_reason", ["stop"]),
        ("counted_tokens", 2**63),
        ("output_tokens", "many"),
        ("read_at", bytes(16)),
        ("outcome", "strange"),
    ],
)
def test_an_entry_that_does_not_fit_hides_no_other(tmp_path: Path, field: str, value: object) -> None:
    odd = msgspec.structs.asdict(record(2)) | {field: value}
    frames = [frame(0, {"shard": 0}), frame(1, record(1)), frame(1, [*odd.values()]), frame(3, 7), frame(1, record(3))]
    (tmp_path / "log").write_bytes(MAGIC + b"".join(frames))
    read = read_log(tmp_path / "log")
    assert (read.records, read.truncated, read.skipped) == ([record(1), record(3)], False, 2)
    records, gathered = read_logs([tmp_path / "log"])
    assert (len(records), gathered.skipped) == (2, {tmp_path / "log": 2})
    assert gathered.notes == [Note("unreadable entries", facts={"log": "log", "entries": 2})]


def test_a_flipped_bit_costs_one_entry(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log") as log:
        for session in range(3):
            log.append(record(session, answer="answer" * (session == 1)))
    written = (tmp_path / "log").read_bytes()
    (tmp_path / "log").write_bytes(written.replace(b"answer", b"enswer", 1))
    read = read_log(tmp_path / "log")
    assert ([each.session for each in read.records], read.truncated, read.skipped) == ([0, 2], False, 1)


def test_a_damaged_header_hides_no_entry(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log") as log:
        log.append(record(1))
    written = (tmp_path / "log").read_bytes()
    (tmp_path / "log").write_bytes(written.replace(b"shard", b"sherd", 1))
    read = read_log(tmp_path / "log")
    assert (read.records, read.truncated, read.skipped) == ([record(1)], False, 1)


@pytest.mark.parametrize(
    "field, value",
    [
        ("counted_tokens", 2**70),
        ("output_tokens", 2**63),
        ("finish_reason", ["stop"]),
        ("request_id", {}),
        ("answer", "\ud800"),
        ("read_tokens", bytes(8)),
        ("error", 7),
    ],
)
def test_a_response_that_cannot_be_kept_is_a_bad_one(tmp_path: Path, field: str, value: object) -> None:
    with LogWriter(tmp_path / "log") as log:
        log.append(record(1, sent_at=5, status=200, **{field: value}))
        log.append(record(2))
    read = read_log(tmp_path / "log")
    assert read.skipped == 0
    odd, fine = read.records
    assert (odd.session, odd.sent_at, odd.status, odd.outcome) == (1, 5, 200, "bad")
    assert odd.error is not None and odd.error.startswith("the response cannot be stored: ")
    assert fine == record(2)
    assert len(read_logs([tmp_path / "log"])[0]) == 2


def test_the_error_of_the_load_is_heard_not_that_of_the_log(tmp_path: Path) -> None:
    with pytest.raises(KeyError), LogWriter(tmp_path / "log") as log:
        log.append(record(1))
        raise KeyError
    assert read_log(tmp_path / "log").records == [record(1)]


FILL_THE_DISK = """
import resource, sys
from pathlib import Path
from inferometer.errors import StoreError
from inferometer.record.log import LogWriter
from inferometer.record.record import Record

resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
log = LogWriter(Path(sys.argv[1]))
try:
    for session in range(100_000):
        log.append(Record(session=session, scheduled_at=0, answer="x" * 1000))
except StoreError as error:
    print(error.message, "|", error.hint)
try:
    log.close()
except StoreError as error:
    print("still")
"""


def test_a_file_that_cannot_grow_keeps_what_it_has(tmp_path: Path) -> None:
    """A size limit stops the write half way through a frame, as a full disk does."""
    path = tmp_path / "log"
    done = subprocess.run([sys.executable, "-c", FILL_THE_DISK, path], capture_output=True, text=True, timeout=30)
    assert done.stdout.splitlines()[0].startswith(f"{path}: file too large | ")
    assert done.stdout.splitlines()[1:] == ["still"]
    read = read_log(path)
    assert read.truncated
    assert 150 < len(read.records) < 200
    assert [r.session for r in read.records] == [*range(len(read.records))]


def test_a_full_device_is_a_store_error(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    writer = LogWriter(tmp_path / "log")
    pen = writer._pen
    assert pen is not None
    whole, pen._file = pen._file, os.open(full, os.O_WRONLY)
    writer.append(record(1))
    with pytest.raises(StoreError, match="no space left") as raised:
        writer.flush()
    assert "--store" in (raised.value.hint or "")
    os.close(pen._file)
    pen._file = whole
    writer.close()  # space came back: nothing was lost
    assert read_log(tmp_path / "log").records == [record(1)]


def test_a_log_written_in_the_background_is_whole_once_closed(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log", in_background=True) as log:
        for session in range(3000):
            log.append(record(session))
            if session % 100 == 0:
                log.flush()
    read = read_log(tmp_path / "log")
    assert (read.truncated, [each.session for each in read.records]) == (False, [*range(3000)])


def test_a_full_device_is_told_even_from_the_background(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    writer = LogWriter(tmp_path / "log", in_background=True)
    pen = writer._pen
    assert pen is not None
    whole, pen._file = pen._file, os.open("/dev/full", os.O_WRONLY)
    writer.append(record(1))
    with pytest.raises(StoreError, match="no space left"):
        writer.close()
    os.close(whole)


def test_a_reader_streams(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log") as log:
        for session in range(3):
            log.append(record(session))
    reader = LogReader(tmp_path / "log")
    assert next(iter(reader)) == record(0)
