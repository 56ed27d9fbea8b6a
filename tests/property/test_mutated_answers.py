"""Whatever a server sends is one record: no exception, a record that can be kept, and the same by every reader.

INFEROMETER_MUTATIONS=10000 tries as many answers of each dialect; INFEROMETER_SEED makes them others.
"""

import os
from collections import Counter
from itertools import accumulate
from pathlib import Path
from random import Random

import pytest

from inferometer.load import answer as load_answer
from inferometer.load.answer import read_answer
from inferometer.record.gather import read_logs
from inferometer.record.log import LogWriter, read_log
from inferometer.record.record import Record
from inferometer.wire import api, skeleton, sse
from inferometer.wire.api import APIS, api_of
from inferometer.wire.exchange import Exchange
from inferometer.wire.http1 import parse_head
from inferometer.wire.sockets import MARK, STAMP, UNPROVEN
from mutated_answers import DIALECTS, MutatedAnswer, mutated_answer

MUTATIONS = int(os.environ.get("INFEROMETER_MUTATIONS", "200"))
SEED = int(os.environ.get("INFEROMETER_SEED", "15"))
MOMENT, STEP_NS = 1_000_000_000, 1000


def exchange_of(answer: MutatedAnswer, collected: bool) -> Exchange:
    """What the client has when the answer is over: read by read, or collected by the compiled reader."""
    exchange = Exchange(None, b"", lambda _exchange: None)
    exchange.sent_at, exchange.ended_at, exchange.outcome = MOMENT - STEP_NS, MOMENT * 2, answer.outcome
    exchange.kernel = True
    exchange.head = parse_head(answer.raw)
    assert exchange.head is not None
    if exchange.head.status != 200 and answer.outcome == "ok":
        exchange.outcome = "status"
    ends = list(accumulate(map(len, answer.reads)))
    stamps = [MOMENT + number * STEP_NS for number in range(len(ends))]
    if collected:
        marks = b"".join(MARK.pack(end, stamp, 0, UNPROVEN) for end, stamp in zip(ends, stamps, strict=True))
        exchange.bulk = answer.raw, marks, 0
    else:
        exchange.reads = answer.reads
        exchange.since = [UNPROVEN] * len(answer.reads)
        exchange.stamps = [STAMP.pack(*divmod(stamp, 10**9)) for stamp in stamps]
        exchange.head_read = next(number for number, end in enumerate(ends) if end >= exchange.head.end)
    return exchange


def record_of(answer: MutatedAnswer, collected: bool = False, keep_text: bool = False) -> Record:
    record = Record(session=0, scheduled_at=0)
    exchange = exchange_of(answer, collected)
    text = read_answer(record, exchange, api_of(answer.dialect), 0, keep_text)
    if exchange.learned is not None:
        skeleton.shape_of(*exchange.learned)  # as the client does, behind the guard around one answer
    record.answer = text if keep_text else None
    return record


def without_the_compiled_reader(patch: pytest.MonkeyPatch) -> None:
    for module in (sse, skeleton, load_answer):
        patch.setattr(module, "compiled", lambda: None)


@pytest.fixture
def short_streams_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "WORTH_LEARNING", 0)


@pytest.mark.usefixtures("short_streams_too")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_any_answer_is_one_record_and_the_same_by_both_readers(
    dialect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(f"{SEED} {dialect}")
    answers = [mutated_answer(random, dialect) for _ in range(MUTATIONS)]
    streams = [answer for answer in answers if (head := parse_head(answer.raw)) and head.sse and head.chunked]
    readings = [[record_of(answer) for answer in answers]]
    collected = [record_of(answer, collected=True) for answer in streams]
    kept = [record_of(answer, keep_text=True) for answer in answers]
    with monkeypatch.context() as patch:
        without_the_compiled_reader(patch)
        readings.append([record_of(answer) for answer in answers])
        collected_by_python = [record_of(answer, collected=True) for answer in streams]
        kept_by_python = [record_of(answer, keep_text=True) for answer in answers]
    alone = {id(answer): record for answer, record in zip(answers, readings[0], strict=True)}
    for answer, quick, slow, *texts in zip(answers, *readings, kept, kept_by_python, strict=True):
        assert quick == slow, (answer.raw, quick, slow)
        assert texts[0] == texts[1], answer.raw
        assert quick.outcome in {"bad", answer.outcome, "status", "cut"}
    for answer, one, other in zip(streams, collected, collected_by_python, strict=True):
        assert one == other == alone[id(answer)], answer.raw
    with LogWriter(tmp_path / "log") as log:
        for record in (*readings[0], *kept):
            log.append(record)
    assert read_log(tmp_path / "log").records == [*readings[0], *kept], "kept as it was read"
    assert len(read_logs([tmp_path / "log"])[0]) == 2 * MUTATIONS
    outcomes = Counter(record.outcome for record in readings[0])
    assert outcomes["ok"] and outcomes["bad"], "mutations that spoil all, or none, try nothing"


def test_every_dialect_is_mutated() -> None:
    assert set(DIALECTS) == set(APIS)
