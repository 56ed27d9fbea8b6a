"""Whose log it is when it is not one of vLLM: said, instead of a table of nothing."""

import re

_SIGNS = {
    "SGLang": r"server_args=ServerArgs\(|The server is fired up and ready to roll|sglang",
    "llama.cpp": r"llama_model_loader:|llama_server|main: server is listening|load_model: loading model",
    "TGI": r"text_generation_launcher|text_generation_router",
    "TensorRT-LLM": r"\[TensorRT-LLM\]|\[TRT-LLM\]|trtllm-serve",
    "Ollama": r"msg=\"Listening on .*ollama|ollama runner|GIN-debug.*api/generate",
    "transformers": r"transformers serve|transformers/commands/serving|\[transformers\]",
    "Ray Serve": r"ray::ServeController|serve\.run|ServeController",
    "the simulator of this program": r'^\{("port": ?\d+, ?)?"url": ?"http',
}
_PATTERNS = {name: re.compile(signs, re.IGNORECASE | re.MULTILINE) for name, signs in _SIGNS.items()}


def engine_of(sample: str) -> str | None:
    """The engine that writes like this; None where it is not one that we know."""
    return next((name for name, pattern in _PATTERNS.items() if pattern.search(sample)), None)
