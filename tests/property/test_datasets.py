"""Files of rows with any content: an index finds the rows that a parser finds, sessions are pure functions."""

import csv
import io
import json
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.plan.reading import plan_from
from inferometer.wire.api import chat_text
from inferometer.workload import rows as scan
from inferometer.workload.dataset import dataset, shuffled
from inferometer.workload.draws import Draws
from inferometer.workload.formats import READERS, Conversation, joined, reader_of
from inferometer.workload.rows import RowError
from inferometer.workload.session import WorkloadContext
from inferometer.workload.survey import parts_of

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12) | st.sampled_from(['"', "\\", '\\"', "[{", "}],"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
small_pieces = st.integers(1, 40)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path_factory.mktemp("cache")))


def rows_by(find, data, piece):
    with patch.object(scan, "PIECE", piece):
        starts, ends = find(io.BytesIO(data))
    return [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


@given(st.lists(values, max_size=6), st.sampled_from([None, 1]), st.booleans(), small_pieces)
def test_elements_of_an_array_are_those_that_json_finds(array, indent, ascii_only, piece):
    data = json.dumps(array, indent=indent, ensure_ascii=ascii_only).encode()
    assert [json.loads(each) for each in rows_by(scan.array_elements, data, piece)] == array


@given(st.lists(values, min_size=1, max_size=5), small_pieces, st.data())
def test_an_array_that_breaks_off_is_refused(array, piece, data):
    whole = json.dumps(array).encode()
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    with pytest.raises(scan.NotAnArrayError):
        rows_by(scan.array_elements, cut, piece)


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=8)), st.booleans(), small_pieces
)
def test_lines_are_those_of_an_editor(lines, ended, piece):
    data = "\n".join(lines).encode() + (b"\n" if ended and lines else b"")
    expected = data.split(b"\n")
    assert rows_by(scan.lines, data, piece) == (expected[:-1] if expected[-1] == b"" else expected)


@given(st.lists(st.lists(st.text('ab",\n\r ', max_size=6), min_size=2, max_size=2), min_size=1), small_pieces)
def test_rows_of_csv_are_those_of_the_csv_module(table, piece):
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(table)
    rows = rows_by(scan.csv_rows, text.getvalue().encode(), piece)
    assert [next(csv.reader(io.StringIO(row.decode(), newline=""))) for row in rows] == table


@given(st.integers(0, 2**63), st.integers(0, 5), st.integers(0, 200))
def test_a_shuffle_loses_nothing_and_is_its_seeds_own(seed, traffic, count):
    order = shuffled(Draws(seed, traffic), 0, count)
    assert sorted(order.tolist()) == list(range(count))
    assert np.array_equal(order, shuffled(Draws(seed, traffic), 0, count))


roles = st.sampled_from(["user", "assistant", "system"])
messages = st.lists(st.builds(lambda role, text: {"role": role, "content": text}, roles, st.text("ab", max_size=3)))


@given(messages)
def test_turns_end_with_a_question_and_grow(said):
    conversation = Conversation(joined(said))
    asks = conversation.turn_ends()
    assert asks == sorted(set(asks))
    assert all(conversation.messages[asked - 1]["role"] == "user" for asked in asks)
    assert len(asks) == sum(message["role"] == "user" for message in conversation.messages) or "system" in {
        message["role"] for message in conversation.messages[1:]
    }
    if asks:
        assert parts_of(conversation, "pieces") == [[asked] for asked in asks]
        assert parts_of(conversation, "conversation") == [asks]


conversations = st.lists(
    st.lists(st.text("ab ", min_size=1, max_size=30), min_size=1, max_size=5), min_size=1, max_size=8
)


@settings(deadline=None, max_examples=40)
@given(conversations, st.integers(0, 99), st.sampled_from(["single", "whole", "conversation", "pieces"]), st.data())
def test_sessions_are_pure_functions_of_seed_and_index(tmp_path_factory, chats, seed, turns, data):
    path = tmp_path_factory.mktemp("data") / "chats.json"
    path.write_text(json.dumps([{"conversations": _sharegpt(chat)} for chat in chats]))
    spec = plan_from(
        {"workload": {"type": "sharegpt", "path": str(path), "turns": turns, "output_tokens": "5-50"}}
    ).workload
    one, other = (dataset(spec, seed, 0, "", WorkloadContext(api="chat")) for _ in range(2))  # type: ignore[arg-type]
    indices = data.draw(st.permutations(range(2 * len(one) + 1)))
    assert {index: one(index) for index in indices} == {index: other(index) for index in sorted(indices)}
    firsts = [str(one(index).turns[-1].prompt) for index in range(len(one))]
    again = [str(one(index + len(one)).turns[-1].prompt) for index in range(len(one))]
    assert firsts == again
    assert all(5 <= turn.output_tokens <= 50 for index in indices for turn in one(index).turns)


keys = st.sampled_from(
    [
        "conversations",
        "from",
        "value",
        "tools",
        "system",
        "messages",
        "role",
        "content",
        "tool_calls",
        "prompt",
        "text",
        "replies",
        "rank",
        "turns",
        "items",
        "answer",
        "output_tokens",
        "canonical_solution",
        "function",
        "name",
        "arguments",
    ]
)
words = st.sampled_from(
    ["human", "gpt", "user", "assistant", "tool", "prompter", "observation", "function_call", "{", ""]
)
odd_rows = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=6),
    max_leaves=20,
)


@settings(max_examples=300)
@given(odd_rows, st.sampled_from([kind for kind in READERS if kind != "prompts"]))
def test_whatever_a_row_is_it_is_read_or_told_to_be_wrong(row, kind):
    try:
        read = list(reader_of(kind)(row, {}))
    except RowError as told:
        assert str(told)
        return
    for conversation in read:
        assert isinstance(chat_text(conversation.messages), str)
        assert conversation.turn_ends() == sorted(conversation.turn_ends())


def _sharegpt(chat):
    return [{"from": ("human", "gpt")[at % 2], "value": text} for at, text in enumerate(chat)]
