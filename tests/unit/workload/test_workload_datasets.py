"""Datasets from files of every kind; and every error in them with file, row and remedy."""

import gzip
import json
import sys
import types
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from inferometer.errors import DataError, MissingExtra, PlanError
from inferometer.plan.reading import plan_from
from inferometer.simulator.virtual import simulated_run
from inferometer.workload import rows as rows_module
from inferometer.workload.dataset import statistics_of, statistics_text
from inferometer.workload.session import WorkloadContext, workload_of


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path / "cache"))


def made(seed=0, context=None, **settings):
    spec = plan_from({"workload": {"shuffle": False, **settings}}).workload
    return workload_of(spec, seed, 0, "", context or WorkloadContext(api="chat"))


def prompts(sessions):
    return [sessions(index).turns[0].prompt for index in range(len(sessions))]


def wrote(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def chat(*texts):
    return {"conversations": [{"from": ("human", "gpt")[at % 2], "value": text} for at, text in enumerate(texts)]}


# -- kinds of files ------------------------------------------------------------------------------------------


def test_prompts_by_line_without_the_empty_ones(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\ntwo\n\n\nthree")
    sessions = made(type="prompts", path=str(path))
    assert prompts(sessions) == ["one", "two", "three"]
    assert statistics_of(sessions)["left_out"] == {"broken": 3}
    assert f"{path}: line 2 is empty" in statistics_of(sessions)["examples"]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "json", "parquet", "jsonl.gz"])
def test_a_table_by_its_columns(tmp_path: Path, ending: str) -> None:
    table = [{"q": 'say "hi",\nthen\tstop', "n": 7, "a": "hi"}, {"q": "two", "n": 9, "a": "no"}]
    path = tmp_path / f"table.{ending}"
    if ending == "parquet":
        parquet.write_table(pa.Table.from_pylist(table), path)
    elif ending in ("csv", "tsv"):
        mark = {"csv": ",", "tsv": "\t"}[ending]
        quoted = [mark.join('"' + str(value).replace('"', '""') + '"' for value in row.values()) for row in table]
        path.write_text("\r\n".join([mark.join(table[0]), *quoted]), newline="")
    else:
        text = json.dumps(table) if ending == "json" else "\n".join(map(json.dumps, table))
        path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    sessions = made(type="table", path=str(path), columns={"prompt": "q", "output_tokens": "n", "answer": "a"})
    assert prompts(sessions) == [row["q"] for row in table]
    assert [sessions(index).turns[0].output_tokens for index in range(2)] == [7, 9]


def test_the_index_is_kept_and_made_again_when_the_file_changes(tmp_path: Path, monkeypatch):
    path = tmp_path / "prompts.txt"
    path.write_text("one\ntwo\n")
    assert prompts(made(type="prompts", path=str(path))) == ["one", "two"]
    with monkeypatch.context() as patch:
        patch.setattr(rows_module, "_SCANS", {})  # whoever scans again fails
        assert prompts(made(type="prompts", path=str(path))) == ["one", "two"]
    path.write_text("three\nfour\nfive\n")
    assert prompts(made(type="prompts", path=str(path))) == ["three", "four", "five"]


def test_a_damaged_cache_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("one\ntwo\n")
    made(type="prompts", path=str(path))
    for kept in (tmp_path / "cache").rglob("*.npz"):
        kept.write_bytes(b"PK\x03\x04 cut off")
    assert prompts(made(type="prompts", path=str(path))) == ["one", "two"]


# -- kinds of sessions ---------------------------------------------------------------------------------------


def test_messages_are_sent_whole_with_their_tools(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "now", "parameters": {}}}]
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "time?"}]
    path = wrote(
        tmp_path / "chats.jsonl", {"messages": [*messages, {"role": "assistant", "content": "ten"}], "tools": tools}
    )
    (request,) = made(type="messages", path=path)(0).turns
    assert request.prompt == messages and request.body == {"tools": tools} and request.output_tokens == 1


def test_a_text_api_gets_a_conversation_as_text(tmp_path: Path) -> None:
    path = wrote(tmp_path / "chats.jsonl", chat("a?", "b", "c?"))
    sessions = made(type="sharegpt", path=path, turns="whole", context=WorkloadContext(api="completions"))
    assert sessions(0).turns[0].prompt == "User: a?\nAssistant: b\nUser: c?\n"


def test_odd_conversations_become_ones_that_templates_take(tmp_path: Path) -> None:
    odd = {"conversations": [{"from": "gpt", "value": "hello"}, *chat("a?", "b")["conversations"]]}
    odd["conversations"] += [{"from": "gpt", "value": "c"}, {"from": "human", "value": "d?"}]
    (request,) = made(type="sharegpt", path=wrote(tmp_path / "chats.jsonl", odd), turns="whole")(0).turns
    assert [message["content"] for message in request.prompt] == ["a?", "b\n\nc", "d?"]


def test_think_time_and_live_answers_of_a_conversation(tmp_path: Path) -> None:
    path = wrote(tmp_path / "chats.jsonl", chat("a?", "b", "c?", "d", "e?"))
    session = made(type="sharegpt", path=path, turns="conversation", answers="live", think="2s")(0)
    assert session.live and [turn.think_s for turn in session.turns] == [0.0, 2.0, 2.0]
    assert session.turns[1].prompt[1] is session.turns[2].prompt[1]  # a live answer in one turn is in the next


def test_pieces_share_their_beginning_and_its_id(tmp_path: Path) -> None:
    path = wrote(tmp_path / "chats.jsonl", chat("a" * 200, "b", "c?", "d", "e?"), chat("z" * 200, "y", "x?"))
    sessions = made(type="sharegpt", path=path, turns="pieces", prefix_header="X-Prefix-ID", prefix_chars=50)
    ids = [sessions(index).turns[0].headers["X-Prefix-ID"] for index in range(len(sessions))]
    assert len(ids) == 5 and len(set(ids[:3])) == len(set(ids[3:])) == 1 and len(set(ids)) == 2
    texts = prompts(made(type="sharegpt", path=path, turns="pieces", context=WorkloadContext(api="completions")))
    assert texts[2].startswith(texts[1]) and texts[1].startswith(texts[0])


def test_after_the_last_session_the_first_comes_again_and_it_is_said_once(tmp_path: Path) -> None:
    notes: list[Any] = []
    path = wrote(tmp_path / "t.jsonl", {"prompt": "one"}, {"prompt": "two"})
    sessions = made(type="table", path=path, context=WorkloadContext(note=notes.append))
    assert notes[0] == "\n".join(statistics_text(statistics_of(sessions)))
    notes.clear()
    assert [sessions(index).turns[0].prompt for index in (0, 1, 2, 5)] == ["one", "two", "one", "two"]
    assert len(notes) == 1 and "after 2 sessions they repeat" in notes[0]


def test_the_statistics_in_words(tmp_path: Path) -> None:
    path = wrote(tmp_path / "c.jsonl", chat("abcd" * 10, "efgh" * 5), chat("abcd" * 20, "efgh" * 5), "no row")
    lines = statistics_text(statistics_of(made(type="sharegpt", path=path)))
    assert lines == [
        f"{path}: 2 prompts in 2 sessions",
        "  input tokens 30, mean 15, longest 20 (estimated, 4 characters each)",
        "  output tokens 10, mean 5",
        "  unique prefixes 2, prompts per prefix 1",
        "  skipped 1: 1 broken",
        f"    {path}: line 3 is a text, not a mapping",
        "  beyond 2 sessions they repeat, and a prefix cache may contain them",
    ]


def test_sonnets_share_a_beginning_and_reach_the_asked_length(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"line {number} of the poem, and what it says\n" for number in range(100)))
    notes: list[Any] = []
    settings = {"type": "sonnet", "path": str(path), "input_tokens": 300, "prefix_tokens": 100, "output_tokens": 20}
    spec = plan_from({"workload": settings}).workload
    sessions = workload_of(spec, 3, 0, "", WorkloadContext(note=notes.append))
    texts = [sessions(index).turns[0].prompt for index in range(30)]
    assert len(set(texts)) == 30 and len({text[:350] for text in texts}) == 1
    assert all(285 * 4 < len(text) <= 305 * 4 for text in texts)
    assert texts == [workload_of(spec, 3, 0, "")(index).turns[0].prompt for index in range(30)]
    assert "100 lines" in notes[0]
    with pytest.raises(DataError, match="longer than the model's context of 310"):
        workload_of(spec, 3, 0, "", WorkloadContext(max_model_len=310))


# -- mistakes ------------------------------------------------------------------------------------------------


def test_an_empty_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "no.jsonl").touch()
    with pytest.raises(DataError, match=r"no\.jsonl: is empty"):
        made(type="table", path=str(tmp_path / "no.jsonl"))
    (tmp_path / "no.json").write_text(" [ ] ")
    with pytest.raises(DataError, match=r"no\.json: has no rows"):
        made(type="sharegpt", path=str(tmp_path / "no.json"))


def test_a_wrong_type_is_told_with_the_right_one(tmp_path: Path) -> None:
    path = wrote(tmp_path / "x.jsonl", {"messages": [{"role": "user", "content": "hi"}]})
    with pytest.raises(DataError, match="line 1 has no 'conversations', it has messages") as told:
        made(type="sharegpt", path=path)
    assert told.value.hint == "the rows look like workload.type: messages"


def test_a_column_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    path = wrote(tmp_path / "x.jsonl", {"question": "hi", "id": 1})
    with pytest.raises(DataError, match="line 1 has no 'prompt', it has question, id") as told:
        made(type="table", path=path)
    assert "workload.columns" in told.value.hint


def test_broken_rows_are_left_out_counted_and_named_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": \n{"prompt": 7}\n{"prompt": "b"}\n')
    numbers = statistics_of(made(type="table", path=str(path)))
    assert numbers["sessions"] == 2 and numbers["left_out"] == {"broken": 2}
    assert numbers["examples"][0].startswith(f"{path}: line 2 is not JSON")
    assert numbers["examples"][1] == f"{path}: line 3 has a number as 'prompt', not a text"
    with pytest.raises(DataError, match=r"x\.jsonl: line 2 is not JSON"):
        made(type="table", path=str(path), unusable="refuse")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"conversations": [{"from": "robot", "value": "x"}]}, "has a message from 'robot'"),
        ({"conversations": []}, "has an empty list of 'conversations'"),
        ({"conversations": [{"from": "gpt", "value": "x"}]}, "has no user message"),
        ({"conversations": [{"from": "human", "value": 3}]}, "has a message from human that is not a text"),
        ({"conversations": [{"from": "observation", "value": "x"}]}, "has an observation that no function_call"),
        ({"conversations": [{"from": "function_call", "value": "{"}]}, "has a function_call that is not JSON"),
        ({"conversations": [{"from": "human", "value": "x"}], "tools": "{"}, "has 'tools' that are not JSON"),
    ],
)
def test_what_is_wrong_with_a_conversation(tmp_path: Path, row, told: str):
    path = wrote(tmp_path / "x.jsonl", row, chat("good?"))
    assert told in statistics_of(made(type="sharegpt", path=path))["examples"][0]


def test_a_prompt_longer_than_the_context_is_left_out_or_refused(tmp_path: Path) -> None:
    path = wrote(tmp_path / "x.jsonl", {"prompt": "word " * 1000}, {"prompt": "short"})
    context = WorkloadContext(max_model_len=512)
    numbers = statistics_of(made(type="table", path=path, output_tokens=100, context=context))
    assert numbers["sessions"] == 1 and numbers["left_out"] == {"longer than the model's context": 1}
    assert "line 1 needs about 1,350 tokens with its answer, the model's context has 512" in numbers["examples"][0]
    with pytest.raises(DataError, match="the model's context has 512"):
        made(type="table", path=path, output_tokens=100, unusable="refuse", context=context)


def test_bounds_that_nothing_meets_are_said(tmp_path: Path) -> None:
    path = wrote(tmp_path / "x.jsonl", {"prompt": "short"})
    with pytest.raises(DataError, match="nothing is left to send: 1 shorter than min_tokens, 50"):
        made(type="table", path=path, min_tokens=50)


def test_answers_of_other_lengths_are_left_out(tmp_path: Path) -> None:
    words = {"none": 0, "few": 2, "some": 20, "many": 200}
    rows = [{"prompt": name, "answer": "word " * count} for name, count in words.items()]
    path = wrote(tmp_path / "x.jsonl", *rows)
    sessions = made(type="table", path=path, min_output_tokens=10, max_output_tokens=100)
    assert prompts(sessions) == ["some"]
    assert statistics_of(sessions)["left_out"] == {
        "answer shorter than min_output_tokens, 10": 2,
        "answer longer than max_output_tokens, 100": 1,
    }
    assert prompts(made(type="table", path=path, max_total_tokens=100)) == ["none", "few", "some"]
    with pytest.raises(DataError, match="4 longer with its answer than max_total_tokens, 50"):
        made(type="table", path=path, max_total_tokens=50, output_tokens=60)  # what is requested counts
    with pytest.raises(PlanError, match="max_output_tokens must be at least min_output_tokens, 9, got 3"):
        made(type="table", path=path, min_output_tokens=9, max_output_tokens=3)


def test_a_json_array_that_breaks_off_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('[{"conversations": [')
    with pytest.raises(DataError, match="the array is not closed"):
        made(type="sharegpt", path=str(tmp_path / "x.json"))


def test_files_that_cannot_be_what_they_say(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"no parquet")
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(b"{}" * 1000)[:-20])
    (tmp_path / "x.csv").write_text("a,b,a\n1,2,3\n")
    for name, told in (
        ("x.parquet", "not a Parquet"),
        ("x.jsonl.gz", "cannot be unpacked"),
        ("x.csv", "names a column twice"),
    ):
        with pytest.raises(DataError, match=told):
            made(type="table", path=str(tmp_path / name))
    for place, told in ((tmp_path / "none.csv", "file not found"), (tmp_path, "is a folder")):
        with pytest.raises(DataError, match=told):
            made(type="table", path=str(place))


def test_a_csv_row_with_too_few_columns_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("prompt,n\nhello,1\nbroken\nworld,2\n")
    sessions = made(type="table", path=str(tmp_path / "x.csv"))
    assert prompts(sessions) == ["hello", "world"]
    assert "row 3 has 1 columns, the heading has 2" in statistics_of(sessions)["examples"][0]


def test_mistakes_of_the_plan() -> None:
    for settings, told in (
        ({"type": "sharegpt"}, "workload.path is missing"),
        ({"type": "table", "path": "x", "columns": {"promt": "q"}}, "workload.columns.promt is not a field of table"),
        ({"type": "mt_bench", "path": "x", "answers": "recorded"}, "workload.answers"),
        ({"type": "sharegpt", "path": "x", "prefix_header": "a b"}, "not a valid header name"),
        ({"type": "sonnet", "path": "x", "limit": 5}, "workload.limit is not a setting"),
        ({"type": "prompts", "url": "http://x/y", "checksum": "abc"}, "64 hexadecimal digits"),
        ({"type": "azure", "url": "http://x/y", "checksum": "abc"}, "64 hexadecimal digits"),
    ):
        with pytest.raises(PlanError, match=told):
            plan_from({"workload": settings})


# -- the hub -------------------------------------------------------------------------------------------------


def test_the_hub_needs_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match="needs the extra 'datasets'"):
        made(type="huggingface", repo="owner/name")


def test_a_dataset_of_the_hub_tells_its_schema(monkeypatch):
    asked = []
    hub = types.SimpleNamespace(
        load_dataset=lambda *args, **more: asked.append((args, more)) or [chat("a?", "b"), chat("c?")]
    )
    monkeypatch.setitem(sys.modules, "datasets", hub)
    sessions = made(type="huggingface", repo="owner/name", split="test")
    assert prompts(sessions) == ["a?", "c?"] and asked == [(("owner/name", None), {"split": "test"})]
    with pytest.raises(DataError, match=r"owner/name \(train\): none of 2 rows is of type table"):
        made(type="huggingface", repo="owner/name", columns={"prompt": "text"})


def test_tools_are_neither_counted_nor_sent_where_the_api_has_no_place_for_them(tmp_path: Path) -> None:
    tools = [{"name": "now", "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}]
    path = wrote(tmp_path / "chats.jsonl", {"messages": [{"role": "user", "content": "what time?"}], "tools": tools})
    bare = wrote(tmp_path / "bare.jsonl", {"messages": [{"role": "user", "content": "what time?"}]})
    asked, alone = (
        made(type="messages", path=each, context=WorkloadContext(api="completions")) for each in (path, bare)
    )
    assert asked(0).turns[0].body == {}
    assert statistics_of(asked)["input_tokens"] == statistics_of(alone)["input_tokens"]
    assert any(
        "tools of 1 sessions are neither sent nor counted" in line for line in statistics_text(statistics_of(asked))
    )
    chat_api = made(type="messages", path=path)
    assert statistics_of(chat_api)["input_tokens"] > statistics_of(alone)["input_tokens"]
    assert not any("tools of" in line for line in statistics_text(statistics_of(chat_api)))


def test_the_first_broken_row_is_named_first_whatever_the_order(tmp_path: Path) -> None:
    rows = [{"prompt": "x"} if at % 10 else {"wrong": at} for at in range(1, 101)]
    path = wrote(tmp_path / "rows.jsonl", *rows)
    for seed in range(5):
        examples = statistics_of(made(seed, type="table", path=path, shuffle=True))["examples"]
        assert [example.split()[2] for example in examples] == ["10", "20", "30"]
        with pytest.raises(DataError, match="line 10 "):
            made(seed, type="table", path=path, shuffle=True, unusable="refuse")


def test_an_array_that_breaks_off_says_after_which_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('[{"prompt": "a"}, {"prompt": "b"}, {"prompt": "c')
    with pytest.raises(DataError, match="after row 2 it breaks off"):
        made(type="table", path=str(path))


def test_a_broken_parquet_file_has_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(DataError, match="not a Parquet file") as caught:
        made(type="table", path=str(path))
    assert "PAR1" in caught.value.hint


def test_a_dataset_is_counted_by_the_models_own_tokenizer_on_request(tmp_path: Path) -> None:
    path = wrote(tmp_path / "rows.jsonl", {"prompt": "x"})
    with pytest.raises(PlanError, match="the model is not known"):
        made(type="table", path=path, tokenizer="model")


def test_a_simulation_tells_what_is_left_out(tmp_path: Path) -> None:
    path = wrote(tmp_path / "rows.jsonl", {"prompt": "x"}, {"wrong": 1})
    told: list[Any] = []
    simulated_run(plan_from({"workload": {"type": "table", "path": path}, "stop": {"requests": 2}}), told.append)
    assert any("skipped 1: 1 broken" in note for note in told)
