"""Real engines, each in an environment of its own: only with INFEROMETER_ENGINES=1, never in `make test`.

A tiny model is made on the spot from random weights; it speaks in token ids, so that it needs no tokenizer. What is
served over HTTP needs one: INFEROMETER_MODELS is the folder of those that deploy/install-engines.sh makes.
"""

import os
import sys
from pathlib import Path

import pytest

from inferometer.plan.reading import plan_from
from inferometer.target.server import running

VOCABULARY = 12_000  # `vllm bench latency` draws token ids below 10,000
CONTEXT = 2048


def pytest_collection_modifyitems(items):
    if os.environ.get("INFEROMETER_ENGINES") == "1":
        return
    here = os.path.dirname(__file__)  # noqa: PTH120  (the hook gets the items of all folders)
    skip = pytest.mark.skip(reason="INFEROMETER_ENGINES is not 1: needs real engines")
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """The folder of a model of 0.9M parameters in float32, which every engine reads; without a tokenizer."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
    )
    folder = tmp_path_factory.mktemp("tiny-qwen3")
    transformers.Qwen3ForCausalLM(config).to(torch.float32).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model():
    """The folder of a tiny model with a real tokenizer."""
    return made("tiny-qwen3")


@pytest.fixture(scope="session")
def small_model():
    """One that takes its time: what a client adds to it weighs little."""
    return made("small-qwen3")


def made(name):
    folder = os.environ.get("INFEROMETER_MODELS")
    if not folder:
        pytest.skip("INFEROMETER_MODELS is not set: make test-engines makes them")
    return Path(folder).absolute() / name


@pytest.fixture(scope="session")
def vllm_section(model):
    return section(model)


def section(model):
    """The `server` of a plan: vLLM for CPU, as small as it gets, called the same in every test."""
    return {
        "type": "vllm",
        "model": str(model),
        "command": [str(Path(sys.executable).parent / "vllm"), "serve"],
        "args": {
            "served-model-name": "tiny",
            "dtype": "float32",  # with bfloat16 the CPU worker dies at the first request
            "max-model-len": 4096,
            "max-num-seqs": 32,
            "enforce-eager": True,
            "enable-prefix-caching": False,
        },
        "env": {
            "HF_HUB_OFFLINE": 1,
            "VLLM_NO_USAGE_STATS": 1,
            "VLLM_CPU_KVCACHE_SPACE": 1,
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": 1,
        },
        "keep": "shared",
        "exclusive": False,  # it idles while other tests start engines of their own
    }


@pytest.fixture(scope="session")
def vllm_server(vllm_section, tmp_path_factory):
    """A real vLLM, started once for all tests that ask it."""
    with started(vllm_section, tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="module")
def small_vllm_server(small_model, tmp_path_factory):
    with started(section(small_model), tmp_path_factory) as server:
        yield server


def started(server, tmp_path_factory):
    pytest.importorskip("vllm")
    plan = plan_from({"server": server, "target": {"model": "tiny"}})
    return running(plan.server, tmp_path_factory.mktemp("vllm"), target=plan.target)
