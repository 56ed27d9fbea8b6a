"""Writes a model of random weights and a real tokenizer, which every engine can serve: SIZE FOLDER TOKENIZER."""

import shutil
import sys
from pathlib import Path

SIZES = {  # hidden size, layers
    "tiny": (128, 4),  # 20M weights, starts and answers fast
    "small": (512, 8),  # 103M weights: a first token takes long compared with what a client adds to it
}
HEAD = 64


def write(size: str, folder: Path, tokenizer: Path) -> None:
    import torch
    import transformers

    hidden, layers = SIZES[size]
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=151_936,  # as Qwen's tokenizer has it; `vllm bench latency` draws token ids below 10,000
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // HEAD,
        num_key_value_heads=hidden // HEAD // 2,
        head_dim=HEAD,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        eos_token_id=151_645,  # <|im_end|>
    )
    transformers.Qwen3ForCausalLM(config).to(torch.float32).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder / name)


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
