"""The settings of the simulator, as a section of a plan, and the time of an engine step that follows from them."""

import random
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias, TypedDict, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from inferometer.documents.document import JsonObject, JsonValue, settings_of
from inferometer.errors import PlanError
from inferometer.plan.fields import Count, Duration, Section
from inferometer.plan.text import as_written
from inferometer.simulator.engine import SimulatorEngine
from inferometer.vocabulary import attribute_at, count, seconds

# -- faults ------------------------------------------------------------------------------------------------------------

# Injected faults, chosen by shares and a seed, or requested by a header of a request.
#
# x-simulate-fault: stall=200ms, no-usage

HEADER = "x-simulate-fault"


@dataclass(slots=True)
class Faults:
    """The faults of one request; by default none."""

    status: int | None = None  # answered with this error instead
    retry_after_s: float | None = None
    slow_headers_s: float = 0.0  # delay before the headers
    stall_s: float = 0.0  # silence in the middle of the stream
    cut: int | None = None  # connection closed after this number of tokens
    tokens_per_chunk: int = 1
    split_utf8: bool = False  # a chunk in two sends, cut inside a character
    split_line: bool = False  # a chunk in two sends, cut inside a line
    no_usage: bool = False
    no_done: bool = False
    role_only: bool = False  # a first chunk with a role and no content, even if the API has none
    close_after: bool = False  # connection closed without notice after a complete answer
    close_before: bool = False  # connection closed instead of answering
    close_next: bool = False  # connection closed instead of answering the next request on it


NONE = Faults()  # for all requests without faults


def _given(_text: str) -> bool:
    return True


_FIELDS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "status": ("status", count, "500"),
    "retry-after": ("retry_after_s", seconds, "1s"),
    "slow-headers": ("slow_headers_s", seconds, "500ms"),
    "stall": ("stall_s", seconds, "500ms"),
    "cut": ("cut", count, "3"),
    "tokens-per-chunk": ("tokens_per_chunk", count, "4"),
    "split-utf8": ("split_utf8", _given, ""),
    "split-line": ("split_line", _given, ""),
    "no-usage": ("no_usage", _given, ""),
    "no-done": ("no_done", _given, ""),
    "role-only": ("role_only", _given, ""),
    "close-after": ("close_after", _given, ""),
    "close-before": ("close_before", _given, ""),
    "close-next": ("close_next", _given, ""),
}
NAMES = tuple(_FIELDS)
ON_THE_WIRE = {  # faults that cannot exist in virtual time, and what they affect
    "split-utf8": "bytes",
    "split-line": "bytes",
    "close-after": "connections",
    "close-before": "connections",
    "close-next": "connections",
}


def parse_faults(text: str) -> Faults:
    """`status=429, retry-after=2s` as faults; a name without a value gets its default."""
    faults = Faults()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = part.partition("=")
        if name not in _FIELDS:
            raise ValueError(f"unknown fault {name!r} (known: {', '.join(NAMES)})")
        attribute, read, usual = _FIELDS[name]
        setattr(faults, attribute, read(value or usual))
    return faults


def not_virtual(texts: Iterable[str], where: str) -> list[str]:
    """A sentence for each fault that cannot exist in virtual time."""
    names = {part.strip().partition("=")[0] for text in texts for part in text.split(",")}
    return [
        f"{where}: {name} is a fault of {ON_THE_WIRE[name]}, which does not exist in virtual time"
        for name in _FIELDS
        if name in names and name in ON_THE_WIRE
    ]


class FaultShares(Section):
    """The shares of injected faults: `fault: share of requests`, `"stall=200ms": 0.01`."""

    shares: dict[str, float] = Field({}, description="e.g. {'status=429, retry-after=1s': 0.02, cut=5: 0.01}")
    seed: int = Field(0, ge=0)

    def model_post_init(self, _context: Any) -> None:
        for text, share in self.shares.items():
            parse_faults(text)
            if not 0 <= share <= 1:
                raise ValueError(f"the share of {text!r} must be between 0 and 1, got {share:g}")
        if sum(self.shares.values()) > 1 + 1e-9:
            raise ValueError(f"the shares of faults add up to {sum(self.shares.values()):g}, more than 1")

    def drawer(self) -> Callable[[], Faults]:
        """A function that draws the faults of each request."""
        rng = random.Random(self.seed)
        texts, weights = list(self.shares), list(self.shares.values())

        def draw() -> Faults:
            if not texts:
                return NONE
            [text] = rng.choices(["", *texts], [max(0.0, 1 - sum(weights)), *weights])
            return parse_faults(text) if text else NONE

        return draw


# -- settings ----------------------------------------------------------------------------------------------------------

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
    name: str  # the driver's name

    def times(self, count: int) -> "Accelerator":
        """Tensor parallelism over a number of GPUs, without communication."""
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


class StepTimes(TypedDict):
    base: float
    prefill_token: float
    decode_sequence: float
    context_token: float


class PresetSettings(TypedDict):
    model: str
    max_model_len: int
    blocks: int
    block_size: int
    max_sequences: int
    max_batched_tokens: int
    step_time: StepTimes


def by_arithmetic(model: ModelShape, accelerator: Accelerator) -> PresetSettings:
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


def preset_named(name: str) -> PresetSettings:
    """`qwen2.5-1.5b/l4`, or with tensor parallelism `qwen3-32b/h100x2`."""
    match = _NAME.fullmatch(name)
    model = MODELS.get(match["model"]) if match else None
    accelerator = ACCELERATORS.get(match["accelerator"]) if match else None
    if match is None or model is None or accelerator is None:
        known = f"MODEL/ACCELERATOR of {', '.join(MODELS)} and {', '.join(ACCELERATORS)}"
        raise ValueError(f"preset must be {known} (several as in h100x2), got {name}")
    return by_arithmetic(model, accelerator.times(int(match["count"] or 1)))


def with_preset(args: JsonObject) -> dict[str, JsonValue]:
    """The settings on top of their preset: explicit settings have priority."""
    if args.get("preset") is None:
        return dict(args)
    below = preset_named(str(args["preset"]))
    times = {**settings_of(below["step_time"]), **cast(JsonObject, args.get("step_time") or {})}
    return {**settings_of(below), **args, "step_time": times}


# -- steptime --------------------------------------------------------------------------------------------------------

Instants: TypeAlias = "array[int]"  # int64, nanoseconds

_NOISE_CHUNK = 4096
_FEW = 32


class Noise:
    """The noise factor of step `i`: lognormal with mean 1, a function of (seed, i) independent of the order of
    calls."""

    def __init__(self, sigma: float, seed: int) -> None:
        self._sigma = sigma
        self._seed = seed
        self._chunks: dict[int, NDArray[np.float64]] = {}

    def factors(self, first_step: int, steps: int) -> NDArray[np.float64]:
        first, last = first_step // _NOISE_CHUNK, (first_step + steps - 1) // _NOISE_CHUNK
        for old in [number for number in self._chunks if number < first]:
            del self._chunks[old]
        whole = np.concatenate([self._chunk(number) for number in range(first, last + 1)])
        begin = first_step - first * _NOISE_CHUNK
        return whole[begin : begin + steps]

    def _chunk(self, number: int) -> NDArray[np.float64]:
        if number not in self._chunks:
            rng = np.random.default_rng([self._seed, number])
            self._chunks[number] = rng.lognormal(-(self._sigma**2) / 2, self._sigma, _NOISE_CHUNK)
        return self._chunks[number]


@dataclass(slots=True)
class StepTime:
    """duration = base + prefill tokens * t_p + decoding sequences * t_d + cached context tokens * t_c  [seconds], and
    in a step with prefill decoding sequences * t_m more.

    The defaults are a rough fit to vLLM 0.24 with an 8B model in bfloat16 on one H200: 4.8 ms per token alone
    and 5.1 ms with 8 sequences (base, t_d); 10.9 ms with 80 sequences of 2,200 tokens (t_c; 128 KiB of keys and
    values per token at 4.8 TB/s would be 27 ns); steps of 9.4 and 27.5 ms while 300 and 1,000 tokens were
    prefilled (t_p).
    """

    base_s: float = 4.75e-3
    prefill_token_s: float = 20e-6
    decode_sequence_s: float = 12e-6
    context_token_s: float = 30e-9
    mixed_sequence_s: float = 0.0
    jitter: float = 0.0  # sigma of the lognormal noise
    seed: int = 0
    _noise: Noise | None = field(init=False, default=None)
    _ps: tuple[int, int, int, int, int] = field(init=False, default=(0, 0, 0, 0, 0))

    def __post_init__(self) -> None:
        parts = (self.base_s, self.prefill_token_s, self.decode_sequence_s, self.context_token_s, self.mixed_sequence_s)
        base, prefill, decode, context, mixed = (round(part * 1e12) for part in parts)
        self._ps = (base, prefill, decode, context, mixed)
        if self.jitter > 0:
            self._noise = Noise(self.jitter, self.seed)

    def ends(self, at: int, prefill_tokens: int, sequences: int, context: int, steps: int, first_step: int) -> Instants:
        """The end times of consecutive steps from a start time; the context grows by a token per decoding sequence and
        step. Most runs have few steps, for which numpy's overhead exceeds the work."""
        base, prefill, decode, per_context, mixed = self._ps
        first = base + prefill * prefill_tokens + decode * sequences + per_context * context
        if prefill_tokens:
            first += mixed * sequences
        growth = per_context * sequences
        if self._noise is None and steps <= _FEW:
            return array("q", _few_ends(at, range(steps), first, growth))
        picoseconds = np.arange(first, first + growth * steps, growth) if growth else np.full(steps, first)
        if self._noise is not None:
            picoseconds = (picoseconds * self._noise.factors(first_step, steps)).astype(np.int64)
        return array("q", (at + np.maximum(picoseconds // 1000, 1).cumsum()).tobytes())


def _few_ends(at: int, steps: range, first: int, growth: int) -> Iterator[int]:
    for step in steps:
        at += (first + growth * step) // 1000 or 1  # time must pass
        yield at


# -- settings --------------------------------------------------------------------------------------------------------

_FITTED = StepTime()
_SETTINGS_OF_FILE = "inferometer.simulator.fitting.server_model:settings_of_file"  # imports this module


class StepTimeSettings(Section):
    """Seconds of one step; the defaults are those of an 8B model on an H200 (simulator.steptime)."""

    base: Duration = Field(_FITTED.base_s, ge=0, description="fixed time of a step")
    prefill_token: Duration = Field(_FITTED.prefill_token_s, ge=0, description="time per prefill token")
    decode_sequence: Duration = Field(_FITTED.decode_sequence_s, ge=0, description="time per decoding sequence")
    context_token: Duration = Field(_FITTED.context_token_s, ge=0, description="time per cached token read")
    mixed_sequence: Duration = Field(
        0.0, ge=0, description="further time per decoding sequence in a step with prefill; not with `pipeline`"
    )
    jitter: float = Field(0.0, ge=0, le=2, description="sigma of lognormal noise on each step, mean 1")


class PipelineSettings(Section):
    """An engine that launches a step while the one before is computed (simulator.pipeline), as vLLM does. The weights
    take `base` of `step_time` (reading them) or the time of the step's tokens (computing), whichever is longer."""

    compute_token: Duration = Field(20.5e-6, ge=0, description="time per token where computing is the limit")
    throttle_token: Duration = Field(
        0.0, ge=0, description="further time per token where the GPU has computed prefill for all of the last second"
    )
    attention_tokens: float = Field(30_000, gt=0, description="context at which attention doubles the time of a token")
    launch_decode: Duration = Field(1e-3, ge=0, description="time to launch a step of decodes alone")
    launch_graph: Duration = Field(9e-3, ge=0, description="time to launch a step with prefill that CUDA graphs cover")
    launch_eager: Duration = Field(25e-3, ge=0, description="time to launch a step of more tokens")
    launch_jitter: float = Field(0.0, ge=0, le=2, description="sigma of lognormal noise on launches with prefill")
    launch_sequence: Duration = Field(0.0, ge=0, description="time to launch per sequence of the step")
    graph_tokens: Count = Field(512, ge=0, description="maximum tokens of a step that CUDA graphs cover")
    frontend_request: Duration = Field(0.0, ge=0, description="work of the frontend per request, one after the other")
    frontend_token: Duration = Field(0.0, ge=0, description="work of the frontend per prompt token")
    frontend_output: Duration = Field(0.0, ge=0, description="work of the frontend per token sent")
    tail: Duration = Field(2e-3, ge=0, description="shortest time from the launch to the end of a step")


class SpeculationSettings(Section):
    """The counters of speculative decoding. Tokens are still made one a step: `step_time` is that of a token."""

    tokens: Count = Field(3, ge=1, le=64, description="tokens in a draft")
    acceptance: float = Field(0.7, ge=0, le=1, description="chance that a drafted token is accepted, if all before are")


class SimulatorSettings(Section):
    """An engine, how fast it is, and how it misbehaves."""

    preset: str | None = Field(
        None,
        description="settings by arithmetic, MODEL/ACCELERATOR such as qwen2.5-1.5b/l4; other settings change them",
    )
    model_file: str | None = Field(
        None, description="settings of a server's model (`inferometer fit`); other settings change them"
    )
    predicts: str | None = Field(None, description="the server that is predicted, from `model_file`")
    model: str = "simulated-8b"
    adapters: list[str] = Field([], description="LoRA adapters that can be requested instead of the model")
    max_model_len: Count = Field(8192, ge=2, description="maximum tokens of prompt and answer together")
    blocks: Count = Field(56_916, ge=1, description="blocks of the KV cache")
    block_size: Count = Field(16, ge=1, description="tokens in a block")
    max_sequences: Count = Field(1024, ge=1, description="maximum sequences in one batch")
    max_batched_tokens: Count = Field(8192, ge=1, description="token budget of one step")
    prefix_caching: bool = True
    mean_output_tokens: Count = Field(256, ge=1, description="length of answers without a requested length")
    frontend: Duration = Field(0.008, ge=0, description="delay from arrival to the engine")
    step_time: StepTimeSettings = StepTimeSettings()
    pipeline: PipelineSettings | None = Field(None, description="steps are launched ahead; in virtual time only")
    speculation: SpeculationSettings | None = Field(None, description="count drafts and accepted tokens")
    speed: float = Field(1.0, gt=0, description="speed-up factor over these times")
    seed: int = Field(0, ge=0)
    prompt_tokens_details: bool = Field(True, description="report cached prompt tokens in the usage")
    truth_events: Count = Field(20_000_000, ge=0, description="maximum writes in the truth log; the oldest are dropped")
    structure_errors: float = Field(0.0, ge=0, le=1, description="share of structured answers that are spoiled")
    faults: FaultShares = FaultShares()

    @model_validator(mode="before")
    @classmethod
    def _on_preset(cls, value: Any) -> Any:
        return with_preset(_with_model_file(value)) if isinstance(value, Mapping) else value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.max_batched_tokens < self.max_sequences:
            raise ValueError("max_batched_tokens must be at least max_sequences")
        if self.max_model_len > self.blocks * self.block_size:
            raise ValueError(
                f"max_model_len {self.max_model_len} does not fit into the cache of "
                f"{self.blocks} blocks of {self.block_size} tokens"
            )
        return self

    def build_engine(self) -> SimulatorEngine:
        return SimulatorEngine(
            self.blocks, self.block_size, self.max_sequences, self.max_batched_tokens, self.prefix_caching
        )

    def build_step_time(self) -> StepTime:
        times, speed = self.step_time, self.speed
        return StepTime(
            base_s=times.base / speed,
            prefill_token_s=times.prefill_token / speed,
            decode_sequence_s=times.decode_sequence / speed,
            context_token_s=times.context_token / speed,
            mixed_sequence_s=times.mixed_sequence / speed,
            jitter=times.jitter,
            seed=self.seed,
        )

    @property
    def frontend_ns(self) -> int:
        return round(self.frontend / self.speed * 1e9)


def _with_model_file(args: JsonObject) -> dict[str, JsonValue]:
    """The settings on top of those of a model's file. The file name is removed, so that it is read once."""
    if args.get("model_file") is None:
        return dict(args)
    if args.get("preset") is not None:
        raise ValueError("model_file and preset exclude each other")
    below: dict[str, JsonValue] = attribute_at(_SETTINGS_OF_FILE)(str(args["model_file"]))
    over = {name: value for name, value in args.items() if name != "model_file"}
    nested = {
        name: {**inner, **outer}
        for name in ("step_time", "pipeline")
        if isinstance(inner := below.get(name), Mapping) and isinstance(outer := over.get(name), Mapping)
    }
    return {**below, **over, **nested}


def settings_from(args: JsonObject, where: str = "server.args") -> SimulatorSettings:
    """The settings of a plan; all errors are raised together."""
    try:
        return SimulatorSettings.model_validate(dict(args))
    except ValidationError as error:
        raise PlanError([_mistake(detail, where) for detail in error.errors()]) from None


def _mistake(error: ErrorDetails, above: str) -> str:
    where = ".".join(map(str, (above, *error["loc"])))
    if error["type"] == "extra_forbidden":
        return f"{where} is not a setting of the simulator"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input should ")
    if error["type"] == "value_error" and not message.startswith("must "):
        return f"{where}: {message}"  # our own message, which contains the value
    if error["type"] == "model_type":
        return f"{where} must be settings by name, got {as_written(error['input'])}"
    got = f", got {as_written(error['input'])}" if error["loc"] else ""
    return f"{where} {'must ' if error['msg'].startswith('Input should ') else ''}{message}{got}"
