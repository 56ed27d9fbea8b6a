"""Settings of the simulator by arithmetic: what a model of this shape takes on an accelerator of a bandwidth, compute
and memory. Nothing is fitted to a measurement; docs/decisions/fleet-parameters.md has the source of every number."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MODEL_FLOPS_USE = 0.5  # share of the peak that prefill reaches
MEMORY_USE = 0.9  # share of the memory that the engine takes: vLLM's gpu_memory_utilization
BLOCK = 16  # tokens: vLLM's block_size
CONTEXT = 32_768  # tokens that the model's configuration allows


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder in 16-bit numbers, as its published configuration describes it."""

    name: str
    parameters: float
    layers: int
    kv_heads: int
    head_size: int
    hidden: int

    @property
    def weight_bytes(self) -> float:
        return 2 * self.parameters

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * 2


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Numbers of the data sheet; compute is that of dense 16-bit matrices."""

    bandwidth_per_s: float  # bytes
    flops_per_s: float
    memory_bytes: float
    max_batched_tokens: int  # vLLM's default token budget of a step on it
    max_sequences: int
    name: str  # as its driver reports it

    def times(self, count: int) -> "Accelerator":
        """Tensor parallelism over so many, with communication left out."""
        scaled = (count * self.bandwidth_per_s, count * self.flops_per_s, count * self.memory_bytes)
        return Accelerator(*scaled, self.max_batched_tokens, self.max_sequences, self.name)


MODELS = {
    "qwen2.5-1.5b": ModelShape("Qwen/Qwen2.5-1.5B-Instruct", 1.54e9, 28, kv_heads=2, head_size=128, hidden=1536),
    "llama-3.2-3b": ModelShape("meta-llama/Llama-3.2-3B-Instruct", 3.21e9, 28, kv_heads=8, head_size=128, hidden=3072),
    "qwen2.5-7b": ModelShape("Qwen/Qwen2.5-7B-Instruct", 7.62e9, 28, kv_heads=4, head_size=128, hidden=3584),
    "llama-3.1-8b": ModelShape("meta-llama/Llama-3.1-8B-Instruct", 8.03e9, 32, kv_heads=8, head_size=128, hidden=4096),
    "qwen3-32b": ModelShape("Qwen/Qwen3-32B", 32.8e9, 64, kv_heads=8, head_size=128, hidden=5120),
    "llama-3.1-70b": ModelShape(
        "meta-llama/Llama-3.1-70B-Instruct", 70.6e9, 80, kv_heads=8, head_size=128, hidden=8192
    ),
}
ACCELERATORS = {
    "l4": Accelerator(300e9, 121e12, 24e9, 2048, 256, "NVIDIA L4"),
    "l40s": Accelerator(864e9, 362e12, 48e9, 2048, 256, "NVIDIA L40S"),
    "a100-80gb": Accelerator(2039e9, 312e12, 80e9, 2048, 256, "NVIDIA A100"),
    "h100": Accelerator(3350e9, 989e12, 80e9, 8192, 1024, "NVIDIA H100"),
    "h200": Accelerator(4800e9, 989e12, 141e9, 8192, 1024, "NVIDIA H200"),
    "b200": Accelerator(8000e9, 2250e12, 180e9, 8192, 1024, "NVIDIA B200"),
    "mi300x": Accelerator(5300e9, 1307e12, 192e9, 8192, 1024, "AMD MI300X"),
}
_NAME = re.compile(r"(?P<model>[^/]+)/(?P<accelerator>.+?)(?:x(?P<count>[1-9]\d?))?")


def by_arithmetic(model: ModelShape, accelerator: Accelerator) -> dict[str, Any]:
    """The settings that follow from the shape and the data sheet.

    base [s]          = weights [B] / bandwidth [B/s]        every step reads all weights once
    prefill_token [s] = 2 * parameters / (0.5 * peak)        multiply and add for each parameter
    context_token [s] = KV of a token [B] / bandwidth [B/s]  every step reads the keys and values of its sequences
    decode_sequence   = 0                                    its flops are hidden behind the reading of the weights
    KV cache [B]      = 0.9 * memory - weights
    """
    cache_bytes = MEMORY_USE * accelerator.memory_bytes - model.weight_bytes
    return {
        "model": model.name,
        "max_model_len": CONTEXT,
        "blocks": int(cache_bytes / (BLOCK * model.kv_bytes)),
        "block_size": BLOCK,
        "max_sequences": accelerator.max_sequences,
        "max_batched_tokens": accelerator.max_batched_tokens,
        "step_time": {
            "base": model.weight_bytes / accelerator.bandwidth_per_s,
            "prefill_token": 2 * model.parameters / (MODEL_FLOPS_USE * accelerator.flops_per_s),
            "decode_sequence": 0.0,
            "context_token": model.kv_bytes / accelerator.bandwidth_per_s,
        },
    }


def preset_named(name: str) -> dict[str, Any]:
    """`qwen2.5-1.5b/l4`, or with tensor parallelism `qwen3-32b/h100x2`."""
    match = _NAME.fullmatch(name)
    model = MODELS.get(match["model"]) if match else None
    accelerator = ACCELERATORS.get(match["accelerator"]) if match else None
    if match is None or model is None or accelerator is None:
        known = f"MODEL/ACCELERATOR of {', '.join(MODELS)} and {', '.join(ACCELERATORS)}"
        raise ValueError(f"preset must be {known} (several as in h100x2), got {name}")
    return by_arithmetic(model, accelerator.times(int(match["count"] or 1)))


def with_preset(args: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with those of their preset below them: what is written out goes before it."""
    if args.get("preset") is None:
        return dict(args)
    below = preset_named(str(args["preset"]))
    times = {**below.pop("step_time"), **(args.get("step_time") or {})}
    return {**below, **args, "step_time": times}
