"""The `server` of a plan: valid settings, errors, and its stored form."""

import re
from pathlib import Path

import pytest

from inferometer.documents.document import Document
from inferometer.errors import PlanError
from inferometer.plan.reading import mapping_in, plan_from
from inferometer.plan.secrets import redacted_argv
from inferometer.plan.text import to_mapping, to_yaml

WHOLE = {
    "type": "vllm",
    "model": "Qwen/Qwen3-0.6B",
    "args": {"max-model-len": 4096, "enforce-eager": True},
    "env": {"HF_TOKEN": "${HF_TOKEN}", "VLLM_LOGGING_LEVEL": "DEBUG"},
    "folder": "/tmp",
    "port": 8000,
    "prepare": [{"run": "pip install tensorizer", "timeout": "15min", "name": "install"}],
    "ready": {"path": ["/health"], "timeout": "10min"},
    "keep": "shared",
    "grace": "30s",
}


def test_a_whole_one_is_written_as_it_was_read() -> None:
    plan = plan_from({"server": WHOLE})
    kept = Document.of(to_mapping(plan)["server"])
    assert kept["prepare"] == [{"run": "pip install tensorizer", "timeout": "15min", "name": "install"}]
    assert kept["ready"] == {"path": ["/health"], "timeout": "10min"}
    assert plan_from({"server": dict(kept)}) == plan
    assert plan_from(plan.model_dump(mode="json")) == plan  # as a worker gets it


def test_short_forms() -> None:
    server = plan_from(
        {"server": {"type": "command", "command": "a --port {port}", "prepare": "make", "ready": "5min"}}
    )
    assert server.server.command == ["a", "--port", "{port}"]
    assert server.server.prepare[0].run == "make"
    assert server.server.ready.timeout == 300
    assert plan_from({"server": "simulator"}).server.type == "simulator"
    changed = plan_from({"server": {"type": "vllm", "model": "m"}}, ["server.args.max-model-len=8k", "server.env.N=1"])
    assert changed.server.args == {"max-model-len": "8k"} and changed.server.env == {"N": "1"}


@pytest.mark.parametrize(
    ("said", "mistake"),
    [
        ("vllm", "server.model is missing: vllm needs a model to serve"),
        ({"type": "vllm", "model": "m", "image": "x"}, "server.image belongs to type container, but type is vllm"),
        ({"type": "vllm", "model": "m", "args": {"port": 1}}, "server.args.port is a setting of its own: server.port"),
        (
            {"type": "tgi", "model": "m", "args": {"model_id": "x"}},
            "server.args.model_id is a setting of its own: server.model",
        ),
        ({"type": "command"}, "server.command is missing: give the command to start"),
        (
            {"type": "command", "command": "a b"},
            "server.command must contain {port}, or set server.port, got a b",
        ),
        ({"type": "command", "command": "a 'b"}, "server.command must be a command: no closing quotation, got a 'b"),
        ({"type": "external"}, "server.url is missing: give the URL of the external server"),
        ({"type": "container"}, "server.image is missing: name the container image"),
        ({"type": "simulator", "url": "http://h"}, "server.url belongs to type external, but type is simulator"),
        ({"type": "vllm", "model": "m", "env": {"A-B": "1"}}, "server.env.A-B is not a valid variable name"),
        (
            {"type": "vllm", "model": "m", "ready": {"path": "health"}},
            "server.ready.path must start with /",
        ),
        ({"type": "vllm", "model": "m", "prepare": ""}, "server.prepare[0].run must not be empty"),
        (
            {"type": "vlm", "model": "m"},
            "server.type must be one of vllm, sglang, llamacpp, tgi, command, simulator, ray-serve, container, "
            "external or fleet, got vlm; did you mean vllm?",
        ),
    ],
)
def test_mistakes(said, mistake: str):
    with pytest.raises(PlanError) as caught:
        plan_from({"server": said})
    assert mistake in [each.removeprefix("plan.yaml: ") for each in caught.value.mistakes]


def test_the_targets_model_is_enough_and_llamacpp_may_name_it_by_a_flag() -> None:
    assert plan_from({"server": "vllm", "target": {"model": "m"}}).server.model is None
    assert plan_from({"server": {"type": "llamacpp", "args": {"hf": "org/m-GGUF:Q4"}}}).server.args


def test_secrets_are_not_kept() -> None:
    server = {
        "type": "vllm",
        "model": "m",
        "args": {"api-key": "sesame"},
        "flags": ["--api-key", "opensesame", "--token=abc", "--max-num-batched-tokens", "8"],
        "env": {"HF_TOKEN": "hf_0123456789", "MINE": "${HF_TOKEN}"},
        "prepare": "curl -H 'Authorization: Bearer sk-0123456789abc' http://h",
    }
    text = to_yaml(plan_from({"server": server}))
    for secret in ("sesame", "abc", "hf_0123456789"):
        assert secret not in text
    assert "${HF_TOKEN}" in text and "--max-num-batched-tokens" in text
    assert redacted_argv(["x", "--hf-token", "${T}"]) == ["x", "--hf-token", "${T}"]


def test_the_plans_of_the_guide_are_right() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "servers.md").read_text()
    plans = [plan_from(mapping_in(block, "guide")[0]) for block in re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)]
    assert [plan.server.type for plan in plans] == ["vllm", "vllm", "container"]
