"""Columns: every field of a record has one, missing stays missing."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from inferometer.record.columns import MISSING, READS, Categorical, Records, SampleColumns, known
from inferometer.record.record import Record, Sample, Samples


def reads(*values: int) -> bytes:
    return np.array(values, "<i8").tobytes()


def test_every_field_of_a_record_has_its_column() -> None:
    columns = {field.name for field in dataclasses.fields(Records)}
    assert columns - {"read_offsets"} == set(Record.__struct_fields__)


def test_missing_is_never_zero() -> None:
    records = Records.of([Record(session=0, scheduled_at=0), Record(session=1, scheduled_at=0, sent_at=0, status=0)])
    assert known(records.sent_at).tolist() == [False, True]
    assert known(records.status).tolist() == [False, True]
    assert records.sent_at[0] == MISSING
    assert np.isnan(records.retry_after_s).all()
    assert records.finish_reason.known().tolist() == [False, False]
    assert records.record(0).sent_at is None
    assert records.record(1).sent_at == 0


def test_reads_are_flat_with_offsets() -> None:
    first = Record(session=0, scheduled_at=1, read_at=reads(5, 7), read_tokens=reads(1, 2), read_slack=reads(0, 2))
    none = Record(session=1, scheduled_at=2)
    last = Record(session=2, scheduled_at=3, read_at=reads(9), read_tokens=reads(4), read_slack=reads(3))
    records = Records.of([first, none, last])
    assert records.read_offsets.tolist() == [0, 2, 2, 3]
    assert records.read_counts().tolist() == [2, 0, 1]
    assert records.read_at.tolist() == [5, 7, 9]
    assert records.read_tokens[records.reads(-1)].tolist() == [4]
    assert records.take(np.array([2, 0])).read_slack.tolist() == [3, 0, 2]


def test_reads_without_slack_are_exact() -> None:
    records = Records.of([Record(session=0, scheduled_at=0, read_at=reads(5, 7), read_tokens=reads(1, 1))])
    assert records.read_slack.tolist() == [0, 0]


@pytest.mark.parametrize("name", READS[1:])
def test_reads_of_different_lengths_are_refused(name: str) -> None:
    lists: dict[str, Any] = {"read_at": reads(5, 7), "read_tokens": reads(1, 1), "read_slack": reads(0, 0)} | {
        name: reads(1)
    }
    with pytest.raises(ValueError, match="record 0"):
        Records.of([Record(session=0, scheduled_at=0, **lists)])


def test_nothing_at_all() -> None:
    for records in (Records.of([]), Records.concat([]), Records.concat([Records.of([]), Records.of([])])):
        assert len(records) == 0
        assert records.read_offsets.tolist() == [0]
        assert records.outcome.counts() == {}


def test_concat_orders_by_schedule_then_session_then_turn() -> None:
    late, early = Record(session=0, scheduled_at=9), Record(session=1, scheduled_at=3)
    second, first = Record(session=2, turn=1, scheduled_at=3), Record(session=2, turn=0, scheduled_at=3)
    merged = Records.concat([Records.of([late, second]), Records.of([first, early])])
    assert list(zip(merged.session.tolist(), merged.turn.tolist(), strict=True)) == [(1, 0), (2, 0), (2, 1), (0, 0)]


def test_words_count_mask_and_spell() -> None:
    words = Categorical.of(["stop", None, "length", "stop"])
    assert words.counts() == {None: 1, "stop": 2, "length": 1}
    assert words.mask("stop").tolist() == [True, False, False, True]
    assert words.mask("stop", "length").tolist() == [True, False, True, True]
    assert words.mask("never").tolist() == [False] * 4
    assert words.texts().tolist() == ["stop", None, "length", "stop"]
    assert len(words) == 4


def test_words_of_shards_with_other_vocabularies_merge() -> None:
    merged = Categorical.concat([Categorical.of(["b", None]), Categorical.of([]), Categorical.of(["a", "b"])])
    assert merged.texts().tolist() == ["b", None, "a", "b"]
    assert sorted(merged.categories) == ["a", "b"]


SAMPLES = [
    Sample("gpu:1", "power_w", 30, 3.0),
    Sample("gpu:0", "power_w", 10, 1.0, {"uuid": "x", "a": "b"}),
    Sample("host", "cpu_share", 20, 2.0),
    Sample("gpu:0", "power_w", 40, 4.0, {"a": "b", "uuid": "x"}),
]


def every(samples: Samples) -> list[Sample]:
    return [samples.sample(number) for number in range(len(samples))]


def test_samples_as_columns_are_in_order_of_time() -> None:
    assert every(Samples.of(SAMPLES)) == sorted(SAMPLES, key=lambda sample: sample.at)
    assert Samples.of(SAMPLES).labels.categories == ("{}", '{"a": "b", "uuid": "x"}')
    moved = SampleColumns(SAMPLES)
    moved.move(-10)
    assert moved.in_order().at.tolist() == [0, 10, 20, 30] and len(moved) == 4
    assert len(Samples.of([])) == 0


def test_samples_of_each_source() -> None:
    parts = Samples.of([*SAMPLES, Sample("gpu:1", "temperature_c", 5, 60.0)]).by_source()
    assert {source: every(part) for source, part in parts.items()} == {
        "gpu:0": [every(Samples.of(SAMPLES))[0], every(Samples.of(SAMPLES))[3]],
        "gpu:1": [Sample("gpu:1", "temperature_c", 5, 60.0), SAMPLES[0]],
        "host": [SAMPLES[2]],
    }
    assert Samples.of([]).by_source() == {}
