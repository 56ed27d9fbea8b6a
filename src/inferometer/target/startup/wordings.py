"""What vLLM says while it starts: the words of each generation, one row each. Words change between versions, so every
row names the versions that use it (checked against vLLM's tags 0.6 to 0.27), and a new wording is a new row.

A space stands for any white space or none, since a line may have been wrapped anywhere. `{seconds:s}` reads a number,
`{size:gib}` one in GiB as bytes, `{size:size}` one with its unit as bytes, `{tokens:n}` a count, `{model:word}` a word,
`{arguments:rest}` the rest; `{:any}` skips. A wording stands at the start of a message: a request that quotes one is
not taken for it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_KINDS = {
    "s": r"\d+(?:\.\d+)?",
    "gib": r"\d+(?:\.\d+)?",
    "size": r"\d+(?:\.\d+)?\s*(?:[KMGT]i?B|Bytes)",
    "n": r"\d[\d,]*",
    "word": r"\S+?",
    "rest": r".*",
    "any": r".*?",
}
_FIELD = re.compile(r"\{(\w*):(\w+)\}")
_UNITS = {"Bytes": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_KEY = 2  # letters that a wording is looked up by

Value = float | int | str


@dataclass(frozen=True)
class Wording:
    """`mark` is what the line means, whatever its words."""

    mark: str
    text: str
    versions: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile("".join(_pieces(self.text)), re.DOTALL)

    @cached_property
    def kinds(self) -> dict[str, str]:
        return dict(_FIELD.findall(self.text))

    def read(self, message: str) -> dict[str, Value] | None:
        """The values in a message of these words; None for any other message."""
        match = self.pattern.match(message)
        if match is None:
            return None
        return {name: _value(text, self.kinds[name]) for name, text in match.groupdict().items()}


def reading(message: str) -> tuple[Wording, dict[str, Value]] | None:
    """The wording of a message and its values; None where it is not one of a start."""
    for wording in _BY_KEY.get(message[:_KEY], ()):
        values = wording.read(message)
        if values is not None:
            return wording, values
    return None


def _pieces(text: str) -> Iterator[str]:
    end = 0
    for field in _FIELD.finditer(text):
        yield _spaced(text[end : field.start()])
        name, kind = field.groups()
        last = kind == "word" and field.end() == len(text)
        pattern = r"\S*[^\s.:,]" if last else _KINDS[kind]
        yield f"(?P<{name}>{pattern})" if name else pattern
        end = field.end()
    yield _spaced(text[end:])


def _spaced(literal: str) -> str:
    return r"\s*".join(map(re.escape, re.split(r" +", literal)))


def _value(text: str, kind: str) -> Value:
    match kind:
        case "s":
            return float(text)
        case "gib":
            return float(text) * 2**30
        case "size":
            number = re.match(r"[\d.]+", text)
            assert number is not None
            return float(number[0]) * _UNITS[text[number.end() :].strip()]
        case "n":
            return int(text.replace(",", ""))
    return text.strip()


_TABLE: tuple[tuple[str, str, str], ...] = (
    # platform, imports, arguments
    ("platform_begins", "No plugins for group vllm.platform_plugins found", "0.7-"),
    ("platform_begins", "Available plugins for group vllm.platform_plugins", "0.7-"),
    ("platform_ends", "Automatically detected platform {platform:word}", "0.7-"),
    ("platform_ends", "Platform plugin {platform:word} is activated", "0.7-"),
    ("no_platform", "No platform detected", "0.7-"),
    ("imports_end", "Available plugins for group vllm.general_plugins", "0.7-"),
    ("imports_end", "No plugins for group vllm.general_plugins found", "0.7-"),
    ("imports_end", "All plugins in this group will be loaded", "0.9-"),
    ("imports_end", "all available plugins for group vllm.general_plugins will be loaded", "0.7-0.8"),
    ("server_version", "vLLM API server version {version:word}", "0.6-0.24"),
    ("server_version", "▄▄ ▄█ █ █ █ ▀▄▀ █ version {version:word}", "0.15-"),
    ("arguments", "non-default args: {arguments:rest}", "0.9-"),
    ("arguments", "args: {arguments:rest}", "0.6-0.8"),
    # config, worker
    ("config_ends", "Using max model len {length:n}", "0.9-"),
    ("batched_tokens", "Setting max_num_batched_tokens to {tokens:n}", "0.6-0.10"),
    ("init_awaited", "Waiting for init message from front-end", "0.9-"),
    ("engine_begins", "Initializing a V1 LLM engine (v{version:word}) with config: {config:rest}", "0.7-"),
    ("engine_begins", "Initializing a V0 LLM engine (v{version:word}) with config: {config:rest}", "0.7-0.10"),
    ("engine_begins", "Initializing an LLM engine (v{version:word}) with config: {config:rest}", "0.6"),
    # weights
    ("weights_begin", "Starting to load model {model:word}...", "0.6-"),
    ("weights_begin", "Loading model from scratch...", "0.9-"),
    ("model_made", "Initializing model took {seconds:s} seconds", "0.32-"),
    ("downloaded", "Time spent downloading weights for {model:word}: {seconds:s} seconds", "0.7-"),
    ("weights_read", "Loading weights took {seconds:s} seconds", "0.8-"),
    ("weights_read", "Deserialized {size:size} in {seconds:s}s", "tensorizer"),
    ("streamed", "[RunAI Streamer] Overall time to stream {size:size}{:any}: {seconds:s}s", "runai_streamer"),
    (
        "streamed",
        "[RunAI Distributed Streamer] Overall time to stream {size:size}{:any}: {seconds:s}s",
        "runai_streamer",
    ),
    ("weights_end", "Model loading took {size:gib} GiB memory and {seconds:s} seconds", "0.11-"),
    ("weights_end", "Model loading took {size:gib} GiB and {seconds:s} seconds", "0.8-"),
    (
        "weights_end",
        "Model loading took {size:gib} GB and {seconds:s} seconds",
        "0.8",
    ),  # GiB by the code, GB by the word
    ("weights_end", "Loading model weights took {size:gib} GiB", "0.8-0.9"),
    ("weights_end", "Loading model weights took {size:gib} GB", "0.6-0.7"),  # the same
    # compile
    ("compile_begins", "Start compiling function", "0.7-"),
    ("dynamo", "Dynamo bytecode transform time: {seconds:s} s", "0.6-"),
    ("inductor", "Compiling a graph for compile range {:any}takes {seconds:s} s", "0.13-"),
    ("inductor", "Compiling a graph for dynamic shape takes {seconds:s} s", "0.10-0.12"),
    ("inductor", "Compiling a graph for general shape takes {seconds:s} s", "0.6-0.9"),
    ("inductor", "Compiling a graph for shape {:any}takes {seconds:s} s", "0.6-0.12"),
    ("cache_read", "Directly load the compiled graph(s) for {:any}from the cache, took {seconds:s} s", "0.8-"),
    ("cache_read", "Directly load AOT compilation from path", "0.11-"),
    ("cache_read", "Directly load the compiled graph for shape {:any}from the cache", "0.7"),
    ("graph_saved", "Computation graph saved to", "0.7-"),
    ("compile_ends", "torch.compile took {seconds:s} s in total", "0.18-"),
    ("compile_ends", "torch.compile takes {seconds:s} s in total", "0.6-0.17"),
    ("first_run", "Initial profiling/warmup run took {seconds:s} s", "0.18-"),
    # memory, graphs
    ("free_before", "Initial free memory: {size:gib} GiB", "0.9-"),
    ("free_after", "Free memory after profiling: {size:gib} GiB", "0.10-"),
    ("profiled", "Memory profiling takes {seconds:s} seconds", "0.6-"),
    ("cache_memory", "Available KV cache memory: {size:gib} GiB", "0.9-"),
    ("cache_memory", "the rest of the memory reserved for KV Cache is {size:gib}GiB", "0.6-0.10"),
    ("cache_memory", "Explicitly set ({size:gib}/{:s}) GiB for KV cache", "0.32-, CPU"),
    ("cache_memory", "Auto set ({size:gib}/{:s}) GiB for KV cache", "0.32-, CPU"),
    ("cache_tokens", "GPU KV cache size: {tokens:n} tokens", "0.8-"),
    ("cache_tokens", "CPU KV cache size: {tokens:n} tokens", "0.32-, CPU"),
    ("cache_blocks", "# GPU blocks: {blocks:n}", "0.6-0.7"),
    ("cache_blocks", "# {:word} blocks: {blocks:n}, # CPU blocks", "0.8-0.10"),
    ("capturing", "Capturing CUDA graph{:any} {percent:n}%|", "0.6-"),
    ("captured", "Graph capturing finished in {seconds:s} secs, took {size:gib} GiB", "0.6-"),
    ("warmup_begins", "Warming up model for the compilation...", "0.9-"),
    ("warmup_ends", "Warming up done.", "0.9-"),
    # ready
    ("engine_ends", "init engine (profile, create kv cache, warmup model) took {seconds:s} s", "0.6-"),
    ("engine_ready", "READY from local core engine process", "0.9-"),
    ("engine_ready", "EngineCore waiting for work", "0.8-"),
    ("api_begins", "Starting vLLM server on {address:word}", "0.18-"),
    ("api_begins", "Starting vLLM API server {number:n} on {address:word}", "0.9-0.17"),
    ("api_begins", "Starting vLLM API server on {address:word}", "0.7-0.8"),
    ("template_tried", "Chat template warmup completed in {seconds:s}s", "0.24-"),
    ("routes", "Available routes are:", "0.6-"),
    ("api_ends", "Application startup complete", "0.6-"),
    # asleep
    ("asleep", "It took {seconds:s} seconds to fall asleep", "0.7-"),
    ("freed", "Sleep mode freed {freed:gib} GiB memory, {in_use:gib} GiB memory is still in use", "0.7-"),
    ("awake", "It took {seconds:s} seconds to wake up", "0.7-"),
    # what llm-d prints when it has serialized a model for tensorizer, before the start proper
    ("serialized", "End model {model:word} serialization", "llm-d"),
)

WORDINGS = tuple(Wording(*row) for row in _TABLE)


def _by_key() -> dict[str, list[Wording]]:
    wordings: dict[str, list[Wording]] = {}
    for wording in WORDINGS:
        wordings.setdefault(wording.text[:_KEY], []).append(wording)
    return wordings


_BY_KEY = _by_key()
