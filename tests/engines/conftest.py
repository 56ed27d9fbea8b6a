"""Real engines, each in an environment of its own: only with INFEROMETER_ENGINES=1, never in `make test`.

A tiny model is made on the spot from random weights; it speaks in token ids, so that it needs no tokenizer.
"""

import os

import pytest

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
def tiny_model(tmp_path_factory):
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
