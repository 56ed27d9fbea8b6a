"""Writes a model of 20M random weights beside a real tokenizer, which every engine can serve: FOLDER TOKENIZER."""

import shutil
import sys
from pathlib import Path


def write(folder: Path, tokenizer: Path) -> None:
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=151_936,  # as Qwen's tokenizer has it; `vllm bench latency` draws token ids below 10,000
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        eos_token_id=151_645,  # <|im_end|>
    )
    transformers.Qwen3ForCausalLM(config).to(torch.float32).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder / name)


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
