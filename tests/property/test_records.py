"""Records are preserved in every stored form, and shards merge to the whole."""

import tempfile
from pathlib import Path

import hypothesis.strategies as st
import msgspec
import numpy as np
from hypothesis import given, settings

from inferometer.record.columns import Records
from inferometer.record.gather import logs_to_parquet, read_logs
from inferometer.record.log import LogWriter, read_log
from inferometer.record.parquet import read_parquet, write_parquet
from inferometer.record.record import OUTCOMES, Record

instants = st.integers(min_value=-(2**62), max_value=2**62)
counts = st.integers(min_value=0, max_value=2**53)
words = st.sampled_from(["", "length", "stop", "tool_calls", "ü"])
texts = st.text(alphabet="a \n\x00ü€😀", max_size=5)


def packed(values: list[int]) -> bytes:
    return np.array(values, "<i8").tobytes()


OPTIONAL_INSTANTS = ("ready_at", "sent_at", "headers_at", "visible_at", "ended_at")
OPTIONAL_COUNTS = ("requested_output", "input_tokens", "output_tokens", "cached_tokens", "status")


def with_reads(record: Record, reads: list[tuple[int, int, int]]) -> Record:
    at, tokens, slack = (packed([read[i] for read in reads]) for i in range(3))
    return msgspec.structs.replace(record, read_at=at, read_tokens=tokens, read_slack=slack)


plain_records = st.builds(
    Record,
    session=counts,
    turn=st.integers(0, 3),
    traffic=words,
    scheduled_at=instants,
    connect_ns=counts,
    tokens_by=st.sampled_from([None, "usage", "events"]),
    finish_reason=st.none() | words,
    outcome=st.sampled_from([*OUTCOMES]),
    error=st.none() | texts,
    answer=st.none() | texts,
    retry_after_s=st.none() | st.floats(allow_nan=False),
    **dict.fromkeys(OPTIONAL_INSTANTS, st.none() | instants),
    **dict.fromkeys(OPTIONAL_COUNTS, st.none() | counts),
)
reads = st.lists(st.tuples(instants, counts, counts), max_size=4)
quick = settings(max_examples=40, deadline=None)
some_records = st.lists(st.builds(with_reads, plain_records, reads), max_size=6)


def unpacked(records: Records) -> list[Record]:
    return [records.record(i) for i in range(len(records))]


def in_order(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda r: (r.scheduled_at, r.session, r.turn))


@quick
@given(some_records)
def test_columns_give_the_records_back(records: list[Record]) -> None:
    assert unpacked(Records.of(records)) == records


@quick
@given(some_records, st.data())
def test_take_by_mask_and_by_index_is_what_a_list_would_do(records: list[Record], data: st.DataObject) -> None:
    columns = Records.of(records)
    mask = data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
    assert unpacked(columns.take(np.array(mask, bool))) == [r for r, yes in zip(records, mask, strict=True) if yes]
    index = data.draw(st.lists(st.integers(0, len(records) - 1), max_size=6)) if records else []
    assert unpacked(columns.take(np.array(index, np.int64))) == [records[i] for i in index]


@quick
@given(some_records, st.integers(1, 4))
def test_shards_merge_to_the_whole(records: list[Record], k: int) -> None:
    shards = [Records.of(records[i::k]) for i in range(k)]
    merged = unpacked(Records.concat(shards))
    assert sorted(map(msgspec.msgpack.encode, merged)) == sorted(map(msgspec.msgpack.encode, records))
    keys = [(r.scheduled_at, r.session, r.turn) for r in merged]
    assert keys == sorted(keys)


@quick
@given(some_records)
def test_parquet_round_trips_exactly(records: list[Record]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.parquet"
        write_parquet(Records.of(records), path)
        assert unpacked(read_parquet(path)) == in_order(records)


@quick
@given(some_records, st.data())
def test_any_prefix_of_a_log_is_a_log(records: list[Record], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log-0.bin"
        ends = written(path, records)
        cut = data.draw(st.integers(0, ends[-1]))
        path.write_bytes(path.read_bytes()[:cut])
        log = read_log(path)
        kept = sum(end <= cut for end in ends[1:])
        assert log.records == records[:kept]
        assert log.truncated == (cut not in ends)


@quick
@given(some_records, st.data())
def test_a_flipped_bit_costs_the_record_that_it_hit(records: list[Record], data: st.DataObject) -> None:
    """And where it hit the length of a record, those behind it too; never one before it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log-0.bin"
        ends = written(path, records)
        content = bytearray(path.read_bytes())
        if ends[-1] == ends[0]:
            return
        at = data.draw(st.integers(ends[0], ends[-1] - 1))
        content[at] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)
        log = read_log(path)
        hit = sum(end <= at for end in ends[1:])
        assert log.truncated or log.skipped == 1
        if at - ends[hit] >= 4:
            assert log.records == records[:hit] + records[hit + 1 :]
            assert log.truncated == (hit == len(records) - 1)
        else:
            assert log.records[:hit] == records[:hit]
            assert all(record in records[hit + 1 :] for record in log.records[hit:])


@quick
@given(some_records, st.integers(1, 3))
def test_logs_in_memory_and_through_parquet_are_the_same(records: list[Record], k: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / f"log-{i}.bin" for i in range(k)]
        for i, log in enumerate(logs):
            written(log, records[i::k])
        out = Path(folder) / "records.parquet"
        assert not logs_to_parquet(logs, out).truncated
        assert unpacked(read_parquet(out)) == unpacked(read_logs(logs)[0])


def written(path: Path, records: list[Record]) -> list[int]:
    """Writes a log; where its header and each of its records end."""
    with LogWriter(path) as log:
        ends = [path.stat().st_size]
        for record in records:
            log.append(record)
            log.flush()
            ends.append(path.stat().st_size)
    return ends
