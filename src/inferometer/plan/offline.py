"""The plan of `inferometer offline`: batch sizes and lengths as typed, validated together; and the same in an
experiment."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Annotated, Any, NamedTuple

import msgspec
from pydantic import BeforeValidator, Field

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.errors import PlanError
from inferometer.plan.fields import Count, Section
from inferometer.plan.secrets import redacted_fields
from inferometer.plan.text import parse_yaml
from inferometer.vocabulary import count

# -- offline ---------------------------------------------------------------------------------------------------------

MOST_SIZES = 4096
_RANGE = re.compile(r"\s*([0-9][^-:]*)-([0-9][^-:]*)(?::([^-:]*))?\s*")


class BatchShape(NamedTuple):
    """Batch size and lengths of one case of a latency run."""

    batch_size: int
    input_len: int
    output_len: int


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Which engine, and how it is started."""

    engine: str
    model: str | None = None
    seed: int = 0
    n: int = 1
    beam_search: bool = False
    detokenize: bool = True
    profile: str | None = None
    args: JsonObject = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    chat: bool = False  # prompts are messages, formatted by the model's template
    adapter: str | None = None  # a LoRA adapter, its folder or name


@dataclass(frozen=True, slots=True)
class LatencyPlan:
    """Repeated batches of one size; every size with every pair of lengths, on one engine."""

    on: EngineChoice
    batch_sizes: tuple[int, ...]
    input_lens: tuple[int, ...] = (512,)
    output_lens: tuple[int, ...] = (128,)
    iters: int = 30
    warmup: int = 10
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if mistakes := list(_latency_mistakes(self)):
            raise PlanError(mistakes)

    @property
    def shapes(self) -> list[BatchShape]:
        """All shapes, grouped by pair of lengths."""
        return [
            BatchShape(size, *lens) for lens in product(self.input_lens, self.output_lens) for size in self.batch_sizes
        ]

    @property
    def longest(self) -> int:
        return max(self.input_lens) + max(self.output_lens)

    def name_of(self, shape: BatchShape) -> str:
        """`latency_bs8`; with the lengths if there are several pairs."""
        name = f"latency_bs{shape.batch_size}"
        several = len(self.input_lens) > 1 or len(self.output_lens) > 1
        return f"{name}_in{shape.input_len}_out{shape.output_len}" if several else name


@dataclass(frozen=True, slots=True)
class ThroughputPlan:
    """Throughput of a whole workload submitted at once. `workload` is written as in a plan."""

    on: EngineChoice
    workload: JsonObject
    num_prompts: int = 1000
    warmup: int = 8
    repeats: int = 1
    confidence: float = 0.95

    def __post_init__(self) -> None:
        bounds = ("--num-prompts", self.num_prompts, 1), ("--warmup", self.warmup, 0), ("--repeats", self.repeats, 1)
        if mistakes := [*_least(bounds), *_choice_mistakes(self.on)]:
            raise PlanError(mistakes)


def written(plan: LatencyPlan | ThroughputPlan) -> dict[str, JsonValue]:
    """The plan as stored with the run: plain data, without secrets and settings that do not affect the numbers."""
    on = plan.on
    engine: dict[str, JsonValue] = {"type": on.engine}
    engine |= {"args": redacted_fields(on.args)} if on.args else {}
    engine |= {"env": redacted_fields(on.env)} if on.env else {}
    drawn = {name: getattr(on, name) for name in _DRAWN if getattr(on, name) != getattr(_USUAL, name)}
    own = {field.name: getattr(plan, field.name) for field in fields(plan) if field.name != "on"}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}
    return {"engine": engine, "model": on.model, **drawn, **plain, "seed": on.seed}


_DRAWN = ("n", "beam_search", "detokenize", "chat", "adapter")
_USUAL = EngineChoice("")


class _KeptEngine(msgspec.Struct):
    type: str
    args: JsonObject = {}
    env: dict[str, str] = {}


class _KeptPlan(msgspec.Struct, kw_only=True):
    """Either plan as `written` writes it."""

    engine: _KeptEngine
    model: str | None = None
    seed: int = 0
    n: int = 1
    beam_search: bool = False
    detokenize: bool = True
    chat: bool = False
    adapter: str | None = None
    batch_sizes: tuple[int, ...] = ()
    input_lens: tuple[int, ...] = ()
    output_lens: tuple[int, ...] = ()
    iters: int = 30
    workload: JsonObject | None = None
    num_prompts: int = 1000
    repeats: int = 1
    warmup: int
    confidence: float = 0.95


def reread(kept: JsonObject, where: str = "plan.yaml") -> LatencyPlan | ThroughputPlan:
    """The plan of a stored run, for a rerun."""
    try:
        plan = msgspec.convert(dict(kept), _KeptPlan)
    except msgspec.ValidationError as error:
        raise PlanError(f"{where}: is not the plan of batches through an engine: {error}") from None
    drawn = {name: getattr(plan, name) for name in _DRAWN}
    on = EngineChoice(plan.engine.type, plan.model, plan.seed, **drawn, args=plan.engine.args, env=plan.engine.env)
    if plan.workload is not None:
        return ThroughputPlan(on, plan.workload, plan.num_prompts, plan.warmup, plan.repeats, plan.confidence)
    return LatencyPlan(
        on, plan.batch_sizes, plan.input_lens, plan.output_lens, plan.iters, plan.warmup, plan.confidence
    )


def sizes(text: str, flag: str) -> tuple[int, ...]:
    """`8`, `1,2,4`, `1-8`, `1-64:8` (every eighth, the first included), `2k`; several of these with commas."""
    values = [size for part in str(text).split(",") for size in _part(part, flag)]
    return tuple(dict.fromkeys(values))


def _part(text: str, flag: str) -> Sequence[int]:
    between = _RANGE.fullmatch(text)
    try:
        if between is None:
            return _at_least_1([count(text)], flag, text)
        first, last, step = (count(part or "1") for part in between.groups())
    except ValueError:
        raise PlanError(f"{flag}: must be sizes such as 8, 1,2,4, 1-8 or 1-64:8, got {text.strip()}") from None
    if last < first or step < 1:
        wrong = "must end where it begins or later" if last < first else "must have a step of at least 1"
        raise PlanError(f"{flag}: a range {wrong}, got {text.strip()}")
    return _at_least_1(range(first, last + 1, step), flag, text)


def _at_least_1(values: Sequence[int], flag: str, text: str) -> Sequence[int]:
    if values[0] < 1:
        raise PlanError(f"{flag}: must be at least 1, got {text.strip()}")
    if len(values) > MOST_SIZES:
        raise PlanError(f"{flag}: must be at most {MOST_SIZES} sizes, got {len(values)} by {text.strip()}")
    return values


def bs_range(start: int | None, end: int | None, step: int | None) -> tuple[int, ...] | None:
    """`--bs-start 1 --bs-end 8 --bs-step 1`, the end included; `None` if none of them is given."""
    if start is None and end is None and step is None:
        return None
    if start is None or end is None:
        raise PlanError(f"--bs-{'start' if start is None else 'end'}: is missing: a range of batch sizes has two ends")
    step = 1 if step is None else step
    mistakes = [*_least((("--bs-start", start, 1), ("--bs-step", step, 1)))]
    if end < start:
        mistakes.append(f"--bs-end: must be at least --bs-start, {start}, got {end}")
    if mistakes:
        raise PlanError(mistakes)
    return sizes(f"{start}-{end}:{step}", "--bs-step")


def settings(pairs: tuple[str, ...], flag: str = "--args") -> dict[str, JsonValue]:
    """`key=value` with a YAML value, `outer.inner=value` for nested settings; dashes in a key become underscores, as
    on an engine's own command line."""
    nested: dict[str, JsonValue] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        *outer, last = name.strip().lstrip("-").replace("-", "_").split(".")
        if not equals or not all((*outer, last)):
            raise PlanError(f"{flag}: must be key=value, such as max_model_len=4096, got {pair}")
        at = nested
        for step in outer:
            inner = at.setdefault(step, {})
            if not isinstance(inner, dict):
                raise PlanError(f"{flag} {name}: {step} is not a group of settings")
            at = inner
        at[last] = parse_yaml(value, f"{flag} {name}")[0]
    return nested


def check_context(plan: LatencyPlan, room: int | None, whose: str) -> None:
    """Check that prompts and answers fit the model's context; nothing is shortened."""
    if room is not None and plan.longest > room:
        longest = f"{max(plan.input_lens)} + {max(plan.output_lens)}"
        hint = "request fewer tokens, or give the engine a longer context: --args max_model_len=N"
        raise PlanError(f"--input-len + --output-len: must be at most {room}, {whose}, got {longest}", hint)


def _latency_mistakes(plan: LatencyPlan) -> Iterator[str]:
    yield from _least((("--iters", plan.iters, 1), ("--warmup", plan.warmup, 0)))
    for flag, given in (
        ("--batch-sizes", plan.batch_sizes),
        ("--input-len", plan.input_lens),
        ("--output-len", plan.output_lens),
    ):
        if not given:
            yield f"{flag}: is missing"
        elif min(given) < 1:
            yield f"{flag}: must be at least 1, got {min(given)}"
    yield from _choice_mistakes(plan.on)


def _choice_mistakes(on: EngineChoice) -> Iterator[str]:
    yield from _least((("--n", on.n, 1), ("--seed", on.seed, 0)))
    if on.chat and on.engine == "transformers":
        yield "chat: must be false: transformers is given text"
    if on.adapter is not None and on.engine != "vllm":
        yield f"adapter: needs the engine vllm, got {on.engine}"


def _least(bounds: Any) -> Iterator[str]:
    for flag, value, least in bounds:
        if value < least:
            yield f"{flag}: must be at least {least}, got {value}"


# -- offline case ----------------------------------------------------------------------------------------------------


def _sizes(value: Any) -> Any:
    """`8`, `[1, 2]`, `1-8`, as on the command line."""
    parts = value if isinstance(value, list) else [value]
    if any(isinstance(part, bool) or not isinstance(part, int | str) for part in parts):
        raise ValueError("must be sizes such as 8, 1,2,4, 1-8 or 1-64:8")
    try:
        return list(sizes(",".join(map(str, parts)), ""))
    except PlanError as error:
        raise ValueError(error.message.removeprefix(": ").partition(", got")[0]) from None


Sizes = Annotated[list[int], BeforeValidator(_sizes, json_schema_input_type=int | str | list[int])]


class EngineCase(Section):
    """Which engine, and how it is started."""

    engine: str = Field("simulator", description="vllm, transformers or simulator")
    model: str | None = Field(None, description="model name or folder; not needed for the simulator")
    args: dict[str, JsonValue] = Field({}, description="settings of the engine")
    env: dict[str, str] = Field({}, description="environment variables of the engine")
    seed: Count = Field(0, ge=0, description="random seed; the same seed gives the same prompts")
    n: Count = Field(1, ge=1, description="sequences per prompt")

    def choice(self) -> EngineChoice:
        return EngineChoice(self.engine, self.model, self.seed, self.n, args=self.args, env=self.env)


class Latency(EngineCase):
    """Latency of repeated batches of one size."""

    batch_size: Sizes = Field([1], description="batch size: 8, or several as 1-8")
    input_len: Sizes = Field([512], description="input tokens per prompt")
    output_len: Sizes = Field([128], description="output tokens per prompt")
    iters: Count = Field(30, ge=1, description="measured iterations")
    warmup: Count = Field(10, ge=0, description="warm-up iterations")

    def planned(self) -> LatencyPlan:
        lens = tuple(self.input_len), tuple(self.output_len)
        return LatencyPlan(self.choice(), tuple(self.batch_size), *lens, iters=self.iters, warmup=self.warmup)


class Throughput(EngineCase):
    """Throughput of a whole workload submitted at once."""

    workload: dict[str, JsonValue] = Field(
        {"type": "synthetic", "prompt_as": "token_ids", "input_tokens": 512, "output_tokens": 128},
        description="as in a plan",
    )
    num_prompts: Count = Field(1000, ge=1, description="number of prompts, submitted all at once")
    warmup: Count = Field(8, ge=0, description="number of warm-up prompts")
    passes: Count = Field(1, ge=1, description="number of repeats; several give a confidence interval")
    chat: bool = Field(False, description="prompts are chat messages, also with images; the model's template is used")
    adapter: str | None = Field(None, min_length=1, description="LoRA adapter of all prompts: a folder or name (vllm)")

    def planned(self) -> ThroughputPlan:
        on = replace(self.choice(), chat=self.chat, adapter=self.adapter)
        return ThroughputPlan(on, self.workload, self.num_prompts, self.warmup, self.passes)
