"""Traces: parsing of files, messages for broken ones, and the resulting sessions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow
import pyarrow.parquet
import pytest

from inferometer.errors import DataError, PlanError
from inferometer.load.arrivals import arrivals_of, pace_of, warmup_sessions
from inferometer.load.facts import _planned
from inferometer.measure.inputs import Answers
from inferometer.measure.window import class_window
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.simulator.virtual import rehearse
from inferometer.workload import traces
from inferometer.workload.session import Session, WorkloadContext, workload_of
from inferometer.workload.traces import recording_of

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,48,10
2023-11-16 18:17:04.0319600,31,8
2023-11-16 18:17:05.9799600,7,3
"""
BURST = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
100.0,aa,2,GPT-4,20,10,30,Conversation log
101.0,,4,GPT-4,9,5,14,API log
104.0,bb,1,GPT-4,6,5,11,Conversation log
107.0,aa,3,GPT-4,45,6,51,Conversation log
109.5,aa,1,GPT-4,12,7,19,Conversation log
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path / "cache"))
    yield


def file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def mooncake(folder: Path, *rows: dict[str, Any]) -> str:
    return file(folder, "m.jsonl", "".join(orjson.dumps(row).decode() + "\n" for row in rows))


def plan(path: str, kind: str = "azure", load: Any = None, stop: Any = None, **workload: Any) -> Plan:
    more = {name: value for name, value in (("load", load), ("stop", stop)) if value is not None}
    return plan_from({"workload": {"type": kind, "path": path, "nonce_tokens": 0} | workload} | more)


def sessions(plan: Plan, count: int | None = None, nonce: str = "n", **context: Any) -> list[Session]:
    make = workload_of(plan.workload, plan.seed, 0, nonce, WorkloadContext(**context))
    recorded = recording_of(plan.workload)  # type: ignore[arg-type]
    return [make(index) for index in range(len(recorded) if count is None else count)]


def words(session: Session, turn: int = 0) -> list[str]:
    prompt = session.turns[turn].prompt
    assert isinstance(prompt, str)
    return prompt.split()


def refusal(path: str, kind: str = "azure", **workload: Any) -> tuple[str, str]:
    with pytest.raises(DataError) as caught:
        sessions(plan(path, kind, **workload))
    return caught.value.message, caught.value.hint or ""


# -- reading ---------------------------------------------------------------------------------------------------


def test_azure(tmp_path: Path) -> None:
    made = sessions(plan(file(tmp_path, "a.csv", AZURE)))
    assert [(each.turns[0].input_tokens, each.turns[0].output_tokens) for each in made] == [(48, 10), (31, 8), (7, 3)]
    assert [each.at_s for each in made] == pytest.approx([0, 0.052, 2.0])
    assert [len(words(each)) for each in made] == [48, 31, 7]
    assert words(made[0])[:5] != words(made[1])[:5]


def test_dates_with_a_zone(tmp_path: Path) -> None:
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    rows = ["2024-05-10 00:00:00.009930+00:00,5,5", "2024-05-10T00:00:01Z,5,5", "2024-05-10 02:00:02+02:00,5,5"]
    made = sessions(plan(file(tmp_path, "a.csv", text + "\n".join(rows))))
    assert [each.at_s for each in made] == pytest.approx([0, 0.99007, 1.99007])


def test_mooncake_blocks_are_shared_as_their_hash_ids_are(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": 10, "output_length": 2, "hash_ids": [1, 2, 3]},
        {"timestamp": 1500, "input_length": 9, "output_length": 2, "hash_ids": [1, 2, 9]},
        {"timestamp": 1500, "input_length": 8, "output_length": 2, "hash_ids": [7, 2]},
    ]
    first, second, third = sessions(plan(mooncake(tmp_path, *rows), "mooncake", block_tokens=4))
    assert [len(words(each)) for each in (first, second, third)] == [10, 9, 8]
    assert words(first)[:8] == words(second)[:8]
    assert words(first)[8] != words(second)[8]
    assert words(third)[4:] == words(first)[4:8]  # the same block behind another one
    assert words(third)[:4] != words(first)[:4]
    assert second.at_s == 1.5


def test_a_prompt_longer_than_its_hash_ids_goes_on_with_words_of_its_own(tmp_path: Path) -> None:
    rows = [{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1]}] * 2
    first, second = sessions(plan(mooncake(tmp_path, *rows), "mooncake", block_tokens=4))
    assert (len(words(first)), words(first)[:4]) == (9, words(second)[:4])
    assert words(first)[4:] != words(second)[4:]


def test_a_nonce_makes_every_block_new_and_keeps_what_is_shared(tmp_path: Path) -> None:
    rows = [{"timestamp": 0, "input_length": 8, "output_length": 1, "hash_ids": ids} for ids in ([1, 2], [1, 3])]
    spec = plan(mooncake(tmp_path, *rows), "mooncake", block_tokens=4, nonce_tokens=8)
    one, other = sessions(spec, nonce="one"), sessions(spec, nonce="other")
    assert words(one[0])[:4] == words(one[1])[:4]
    assert words(one[0])[:4] != words(other[0])[:4]


def test_burstgpt_sessions_have_turns_with_recorded_times_and_pauses(tmp_path: Path) -> None:
    aa, alone, bb = sessions(plan(file(tmp_path, "b.csv", BURST), "burstgpt"))
    assert [turn.at_s for turn in aa.turns] == [0, 7, 9.5]
    assert [turn.think_s for turn in aa.turns] == [0, 5, 0]  # 7 s less the 2 s of the answer; 2.5 s less 3 s
    assert (alone.at_s, bb.at_s, len(alone.turns)) == (1, 4, 1)
    assert words(aa, 1)[:20] == words(aa, 0)  # its 45 tokens hold the 20 + 10 before
    assert words(aa, 2)[:5] != words(aa, 0)[:5]  # 12 tokens cannot


def test_burstgpt_without_sessions_leaves_failed_requests_out_and_says_so(tmp_path: Path) -> None:
    text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    path = file(tmp_path, "b.csv", text + "5,GPT-4,4,3,7,x\n6,GPT-4,0,0,0,x\n7,GPT-4,0,0,0,x\n8,GPT-4,2,1,3,x\n")
    said: list[str] = []
    assert [each.at_s for each in sessions(plan(path, "burstgpt"), note=said.append)] == [0, 3]
    assert said == [
        f"{path}: 2 of 4 rows are skipped: row 3 has 0 tokens: it failed when it was recorded and 1 like it"
    ]


def test_any_file_by_the_names_of_its_columns(tmp_path: Path) -> None:
    columns = {"time": "when", "input_tokens": "in", "output_tokens": "out", "session": "user", "hash_ids": "blocks"}
    rows = {
        "when": [10, 12, 15],
        "in": [4, 6, 8],
        "out": [1, 2, 3],
        "user": ["a", "b", "a"],
        "blocks": [[1], [2], [1, 3]],
    }
    as_lists = [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]
    pyarrow.parquet.write_table(pyarrow.table(rows), tmp_path / "t.parquet")
    (tmp_path / "t.jsonl").write_bytes(b"\n".join(map(orjson.dumps, as_lists)))
    (tmp_path / "t.json").write_bytes(orjson.dumps(as_lists))
    lines = [",".join(rows), *(f'{r["when"]},{r["in"]},{r["out"]},{r["user"]},"{r["blocks"]}"' for r in as_lists)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    made = [
        sessions(plan(str(tmp_path / name), "trace", columns=columns, unit="s", block_tokens=4))
        for name in ("t.parquet", "t.jsonl", "t.json", "t.csv")
    ]
    assert made[0] == made[1] == made[2] == made[3]
    assert [[turn.at_s for turn in each.turns] for each in made[0]] == [[0, 5], [2]]
    assert words(made[0][0], 1)[:4] == words(made[0][0], 0)


def test_a_trace_may_hold_the_prompts_themselves(tmp_path: Path) -> None:
    path = file(tmp_path, "t.csv", 'time,text\n0,"Hello, you"\n2,Bye\n')
    made = sessions(plan(path, "trace", columns={"prompt": "text"}, unit="s"))
    assert [(each.turns[0].prompt, each.turns[0].output_tokens, each.at_s) for each in made] == [
        ("Hello, you", None, 0), ("Bye", None, 2),
    ]  # fmt: skip


def test_prompts_as_token_ids(tmp_path: Path) -> None:
    made = sessions(plan(file(tmp_path, "a.csv", AZURE), prompt_as="token_ids", vocabulary=1000))
    assert [len(each.turns[0].prompt) for each in made] == [48, 31, 7]
    assert all(100 <= token < 1000 for token in made[0].turns[0].prompt)  # type: ignore[operator]


def test_behind_its_end_a_trace_begins_again_with_other_words(tmp_path: Path) -> None:
    made = sessions(plan(file(tmp_path, "a.csv", AZURE)), count=6)
    assert [each.turns[0].input_tokens for each in made] == [48, 31, 7] * 2
    assert words(made[0]) != words(made[3])


def test_a_long_recording_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = plan(file(tmp_path, "b.csv", BURST + "110.0,,1,GPT-4,0,0,0,API log\n"), "burstgpt").workload
    read = recording_of(spec)  # type: ignore[arg-type]
    monkeypatch.setattr(traces, "KEPT_FROM", 1)
    for _ in range(2):
        traces._recording.cache_clear()
        kept = recording_of(spec)  # type: ignore[arg-type]
        assert all((getattr(kept, name) == getattr(read, name)).all() for name in traces._ARRAYS)
        assert kept.notes == read.notes != ()
        monkeypatch.setattr(traces, "_read", None)  # the second time it is not read


# -- cut and sped up -------------------------------------------------------------------------------------------


def test_a_window_has_a_clock_of_its_own(tmp_path: Path) -> None:
    path = file(tmp_path, "b.csv", BURST)
    made = sessions(plan(path, "burstgpt", window={"start": "3s", "end": "9s"}))
    assert [[turn.at_s for turn in each.turns] for each in made] == [[1], [4]]
    assert sessions(plan(path, "burstgpt", window="3s-9s")) == made
    assert len(sessions(plan(path, "burstgpt", limit=2))) == 2


def test_rows_that_are_too_long_are_counted(tmp_path: Path) -> None:
    said: list[str] = []
    path = file(tmp_path, "a.csv", AZURE)
    assert len(sessions(plan(path, max_tokens=30), note=said.append)) == 1
    assert said == [
        f"{path}: 2 of 3 rows are skipped: row 2 is longer than workload.max_tokens, 30, got 48 tokens and 1 like it"
    ]


def test_a_window_that_holds_nothing(tmp_path: Path) -> None:
    message, _ = refusal(file(tmp_path, "a.csv", AZURE), window={"start": "1h"})
    assert message.endswith("none of its 3 rows lie in workload.window: the recording lasts 2 s")


def test_shards_have_every_kth_session_and_together_all(tmp_path: Path) -> None:
    whole = plan(file(tmp_path, "b.csv", BURST), "burstgpt", load={"type": "replay", "speed": 2})
    all_of_it = list(arrivals_of(whole, 0))
    assert all_of_it == [(0, 0, 0), (1, 500_000_000, 0), (2, 2_000_000_000, 0)]
    for shards in (2, 3, 4):
        parts = [list(arrivals_of(whole, 0, shard, shards)) for shard in range(shards)]
        assert sorted(each for part in parts for each in part) == all_of_it
    assert _planned(whole, None, {}) == {"default": 3}


def test_a_replay_is_ended_by_time_and_warmed_up_by_it(tmp_path: Path) -> None:
    path = file(tmp_path, "b.csv", BURST)
    ended = plan(path, "burstgpt", stop={"duration": "2s"})
    assert (len(list(arrivals_of(ended, 0))), ended.load.type) == (2, "replay")
    warm = ended.model_copy(update={"warmup": ended.warmup.model_copy(update={"duration": 1.5})})
    assert warmup_sessions(warm, 0) == 2


# -- the load --------------------------------------------------------------------------------------------------


def test_a_replay_schedules_every_turn_at_its_recorded_time(tmp_path: Path) -> None:
    spec = plan(file(tmp_path, "b.csv", BURST), "burstgpt", load={"type": "replay", "speed": 0.5})
    records, facts = rehearse(spec)
    assert facts.start_at is not None
    found = sorted(zip(records.session, records.turn, (records.scheduled_at - facts.start_at) / 1e9, strict=True))
    assert found == [(0, 0, 0.0), (0, 1, 14.0), (0, 2, 19.0), (1, 0, 2.0), (2, 0, 8.0)]
    window = class_window(Answers.of(records), spec, facts, "default")
    assert window.length_s == 19  # the last turn was recorded too, not only the last session's beginning
    assert set(records.outcome.counts()) == {"ok"}


def test_a_turn_whose_time_came_before_the_answer_before_it_waits_and_keeps_its_time(tmp_path: Path) -> None:
    rows = ["time,input_tokens,output_tokens,session", "0,9,400,a", "0.1,9,5,a"]
    columns = {"output_tokens": "output_tokens", "session": "session"}
    spec = plan(file(tmp_path, "t.csv", "\n".join(rows)), "trace", columns=columns, unit="s")
    records, facts = rehearse(spec)
    first, second = records.turn.argsort()
    assert (records.scheduled_at[second] - (facts.start_at or 0)) / 1e9 == pytest.approx(0.1)
    assert records.ready_at[second] == records.ended_at[first] > records.scheduled_at[second]


def test_turns_long_after_the_last_session_began_are_not_cut_by_the_drain(tmp_path: Path) -> None:
    rows = ["time,input_tokens,output_tokens,session", "0,9,5,a", "1,9,5,b", "4000,9,5,a"]
    columns = {"output_tokens": "output_tokens", "session": "session"}
    spec = plan(file(tmp_path, "t.csv", "\n".join(rows)), "trace", columns=columns, unit="s")
    records, _ = rehearse(spec)
    assert records.outcome.counts() == {"ok": 3}


def test_closed_loop_over_a_trace(tmp_path: Path) -> None:
    spec = plan(file(tmp_path, "a.csv", AZURE), load={"concurrency": 2}, stop={"requests": 7})
    assert pace_of(spec, 0).speed is None
    records, _ = rehearse(spec)
    assert sorted(records.requested_input) == sorted([48, 31, 7] * 2 + [48])


# -- bad input -------------------------------------------------------------------------------------------------


def test_a_trace_that_goes_back_in_time(tmp_path: Path) -> None:
    rows = AZURE.splitlines()
    path = file(tmp_path, "a.csv", "\n".join([rows[0], rows[2], rows[1], rows[3]]))
    message, hint = refusal(path)
    assert message == f"{path}: row 3 goes back in time, by 52 ms"
    assert "workload.sort=true" in hint
    assert [each.turns[0].input_tokens for each in sessions(plan(path, sort=True))] == [48, 31, 7]


def test_broken_rows_are_left_out_with_their_reasons(tmp_path: Path) -> None:
    rows = AZURE.splitlines()
    broken = ["yesterday,5,5", "2023-11-16 18:17:04,many,5", "2023-11-16 18:17:04,5", "2023-11-16 18:17:04,-3,5"]
    path = file(tmp_path, "a.csv", "\n".join([*rows[:2], *broken, *rows[2:]]))
    said: list[str] = []
    assert len(sessions(plan(path), note=said.append)) == 3
    assert [each.removeprefix(f"{path}: ") for each in said] == [
        "1 of 7 rows are skipped: row 3 TIMESTAMP must be a date such as 2023-11-16 18:17:03.97 "
        "(a number needs workload.unit), got yesterday",
        "2 of 7 rows are skipped: row 4 ContextTokens must be a whole number of tokens, got many and 1 like it",
        "1 of 7 rows are skipped: row 5 has 2 columns, the heading has 3 (a quote that is not closed?)",
    ]


def test_wrong_columns_are_named_with_those_that_are_there(tmp_path: Path) -> None:
    path = file(tmp_path, "a.csv", "when,in\n1,2\n")
    message, hint = refusal(path)
    assert message == f"{path}: has no column TIMESTAMP, ContextTokens, GeneratedTokens, it has when, in"
    assert "workload.columns" in hint


def test_an_empty_file_and_one_with_a_heading_only(tmp_path: Path) -> None:
    assert refusal(file(tmp_path, "a.csv", ""))[0].endswith("a.csv: is empty")
    assert refusal(file(tmp_path, "b.csv", AZURE.splitlines()[0] + "\n"))[0].endswith("b.csv: has no rows")
    assert refusal(str(tmp_path / "c.csv"))[0].endswith("c.csv: file not found")


def test_no_row_that_can_be_used(tmp_path: Path) -> None:
    path = file(tmp_path, "m.jsonl", '{"timestamp": 0\n{"timestamp": 5\n')
    assert refusal(path, "mooncake")[0].startswith(f"{path}: line 1 is not JSON")


def test_a_prompt_longer_than_the_context(tmp_path: Path) -> None:
    path = file(tmp_path, "a.csv", AZURE)
    with pytest.raises(DataError) as caught:
        sessions(plan(path), max_model_len=40)
    assert caught.value.message == f"{path}: row 2 needs 58 tokens with its answer, the model's context has 40"
    assert "workload.max_tokens=30" in (caught.value.hint or "")
    assert len(sessions(plan(path, max_tokens=30), max_model_len=40)) == 1


def test_a_use_that_no_column_has() -> None:
    with pytest.raises(PlanError, match=r"workload\.columns\.tokens is not a known column; there are time, "):
        plan("t.csv", "trace", columns={"tokens": "a"}, unit="s")


def test_a_number_without_a_unit(tmp_path: Path) -> None:
    message, _ = refusal(file(tmp_path, "t.jsonl", '{"time": 5, "input_tokens": 5}\n'), "trace")
    assert "line 1 time must be a date (a number needs workload.unit: s, ms, us or ns), got 5" in message
