"""For any trace: no row is lost or sent twice, lengths are exact, and prompts share what their ids share."""

import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.load.arrivals import arrivals_of
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.wire.api import api_of
from inferometer.wire.http1 import body_of, parse_head, whole
from inferometer.wire.pieces import reading_pieces
from inferometer.workload.session import workload_of
from inferometer.workload.traces import recording_of

BLOCK = 4
COLUMNS = {"output_tokens": "output_tokens", "session": "user", "hash_ids": "hash_ids"}

row = st.fixed_dictionaries(
    {
        "gap": st.integers(0, 5000),
        "output_tokens": st.integers(1, 9),
        "user": st.sampled_from(["", "a", "b", "c"]),
        "hash_ids": st.lists(st.integers(0, 3), min_size=1, max_size=4),
        "short_by": st.integers(0, BLOCK - 1),
    }
)


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFEROMETER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def trace_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made, at = [], 0
    for each in rows:
        at += each["gap"]
        length = BLOCK * len(each["hash_ids"]) - each["short_by"]
        made.append({"time": at, "input_tokens": length} | {name: each[name] for name in COLUMNS.values()})
    return made


def plan_for(rows: list[dict[str, Any]], folder: str, **more: Any) -> Plan:
    path = Path(folder) / "trace.jsonl"
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    load = {"load": more.pop("load")} if "load" in more else {}
    spec = {"type": "trace", "path": str(path), "columns": COLUMNS, "unit": "ms", "block_tokens": BLOCK} | more
    return plan_from({"workload": spec} | load)


@settings(max_examples=40, deadline=None)
@given(st.lists(row, min_size=1, max_size=30).map(trace_rows), st.integers(1, 5), st.sampled_from([0.5, 1, 3]))
def test_shards_send_every_row_once_at_its_time(rows: list[dict[str, Any]], shards: int, speed: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_for(rows, folder, load={"type": "replay", "speed": speed})
        make = workload_of(plan.workload, 0, 0, "")
        sent = []
        for shard in range(shards):
            for index, after_ns, _ in arrivals_of(plan, 0, shard, shards):
                session = make(index)
                assert after_ns == round((session.at_s or 0) * 1e9 / speed)
                sent += [(turn.at_s, turn.input_tokens, turn.output_tokens) for turn in session.turns]
    first = rows[0]["time"]
    wanted = [((each["time"] - first) / 1000, each["input_tokens"], each["output_tokens"]) for each in rows]
    assert Counter(sent) == Counter(wanted)


@settings(max_examples=40, deadline=None)
@given(st.lists(row, min_size=1, max_size=20).map(trace_rows), st.text(max_size=3))
def test_prompts_are_as_long_as_asked_and_share_the_blocks_they_share(rows: list[dict[str, Any]], nonce: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_for(rows, folder)
        recording, make = recording_of(plan.workload), workload_of(plan.workload, 0, 0, nonce)  # type: ignore[arg-type]
        turns = [turn for index in range(len(recording)) for turn in make(index).turns]
    prompts = [
        (str(turn.prompt).split(), rows[int(at)]["hash_ids"]) for turn, at in zip(turns, recording.row, strict=True)
    ]
    assert [len(words) for words, _ in prompts] == [turn.input_tokens for turn in turns]
    for words, ids in prompts:
        for others, other_ids in prompts:
            shared = next((at for at, (one, two) in enumerate(zip(ids, other_ids, strict=False)) if one != two), None)
            most = min(len(words), len(others))
            same = most if shared is None else min(BLOCK * shared, most)
            assert words[:same] == others[:same]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(row, min_size=1, max_size=30).map(trace_rows), st.lists(st.integers(1, 60_000), max_size=4, unique=True)
)
def test_windows_side_by_side_are_the_whole(rows: list[dict[str, Any]], cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), None]
    found: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        for start, end in pairwise(edges):
            window = {"start": f"{start}ms"} | ({} if end is None else {"end": f"{end}ms"})
            inside = [at for at, each in enumerate(rows) if _within(each["time"] - rows[0]["time"], start or 0, end)]
            if inside:
                recording = recording_of(plan_for(rows, folder, window=window).workload)  # type: ignore[arg-type]
                assert sorted(recording.row.tolist()) == inside
                found += inside
    assert sorted(found) == list(range(len(rows)))


def _within(at: int, start: int, end: int | None) -> bool:
    return start <= at and (end is None or at < end)


def chunked(data: bytes, cuts: list[int]) -> tuple[list[bytes], bytes]:
    """An answer in chunks, and the reads that it came in: cut anywhere."""
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    parts = [data[start:end] for start, end in pairwise(edges) if end > start]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"
    raw = head + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    places = sorted({len(head), len(raw), *(len(head) + cut * 7 % (len(raw) - len(head)) for cut in cuts)})
    return [raw[start:end] for start, end in zip([0, *places], places, strict=False)], head


@given(
    st.text(min_size=1, max_size=60).filter(lambda text: not text.strip().startswith(("{", "[", '"'))),
    st.lists(st.integers(0, 10**4), max_size=6),
)
def test_bare_text_does_not_depend_on_how_it_was_cut(text: str, cuts: list[int]) -> None:
    if text.strip() in {"true", "false", "null", ""}:
        return
    reads, head = chunked(text.encode(), cuts)
    parsed = parse_head(head)
    assert parsed is not None
    answer, ends = whole(reading_pieces(api_of("template"), reads, parsed, complete=True, keep_text=True))
    assert "".join(answer.text) == text
    assert len(ends) == len(answer.tokens) == len(reads)
    assert all(tokens > 0 for tokens, part in zip(answer.tokens, answer.text, strict=True) if part)


@given(st.lists(st.text(max_size=8), min_size=2, max_size=8), st.lists(st.integers(0, 10**4), max_size=6))
def test_lines_do_not_depend_on_how_they_were_cut(texts: list[str], cuts: list[int]) -> None:
    data = b"".join(orjson.dumps({"text": text}) + b"\n" for text in texts)
    reads, head = chunked(data, cuts)
    parsed = parse_head(head)
    assert parsed is not None
    answer, ends = whole(reading_pieces(api_of("template"), reads, parsed, complete=True, keep_text=True))
    raw = b"".join(reads)
    assert answer.text == texts
    lines = data.splitlines(keepends=True)
    assert [body_of(raw[:end], parsed)[0] for end in ends] == [b"".join(lines[: at + 1]) for at in range(len(lines))]
