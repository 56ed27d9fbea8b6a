"""Workloads made up from a seed: the `workload` of type synthetic."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_serializer, model_validator

from inferometer.plan.fields import Count, Mistake, Number, Requests, Section, Tokens
from inferometer.plan.workloads.common import WorkloadSection
from inferometer.plan.workloads.lengths import MOST_ALPHA, Lengths, Pause

MOST_GROUPS = 1_000_000
MOST_IMAGES = 1000
MOST_PIXELS = 1 << 28  # of all images of a prompt: they are made in memory


class Pair(Section):
    """An input and an output length that belong together."""

    short_forms: ClassVar[list[dict[str, Any]]] = [
        {"type": "string", "pattern": r"^\s*[0-9][^:]*:\s*[0-9][^:]*$", "examples": ["300:100"]},
        {"type": "array", "minItems": 2, "maxItems": 3, "items": {"type": ["number", "string"]}},
    ]

    input: Tokens = Field(ge=1, description="tokens of the prompt")
    output: Tokens = Field(ge=1, description="tokens asked of the answer")
    weight: Number = Field(1.0, gt=0, description="how often, in proportion")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        parts = value.split(":") if isinstance(value, str) else value
        if isinstance(parts, list | tuple) and len(parts) in (2, 3):
            return dict(zip(("input", "output", "weight"), parts, strict=False))
        if isinstance(value, Mapping | Pair):
            return value
        raise ValueError("must be a pair of lengths such as 300:100")

    def short(self) -> Any:
        """As people write it: `300:100`."""
        pair = f"{self.input}:{self.output}"
        return pair if self.weight == 1 else f"{pair}:{self.weight!r}"

    @model_serializer
    def _written(self) -> Any:
        return self.short()


class Prefix(Section):
    """Beginnings that prompts share, and how much of them a prefix cache shall hold."""

    tokens: Lengths | None = Field(None, description="length of a shared beginning, drawn for each group")
    suffix_tokens: Lengths | None = Field(
        None, description="what follows it, in place of input_tokens, which is the length of both together"
    )
    groups: Count = Field(1, ge=1, le=MOST_GROUPS, description="how many different beginnings")
    prompts: Requests | None = Field(None, ge=1, description="different prompts per beginning; without it, all are new")
    zipf: Number | None = Field(
        None, ge=0, le=MOST_ALPHA, description="popularity of the groups: the k-th has a share like 1/k^zipf"
    )
    hit_rate: Number | None = Field(
        None, ge=0, le=1, description="share of the input tokens to come from the cache: primed first, checked after"
    )
    block: Tokens = Field(16, ge=1, description="tokens that the server caches together: what a hit is rounded down to")
    prime: bool | None = Field(None, description="send each beginning once before the load; default: with a hit_rate")

    def disagreements(self) -> Iterator[Mistake]:
        if self.tokens is None and self.hit_rate is None:
            yield Mistake(("tokens",), "is missing: give the length of the shared beginning, or a hit_rate")
        if self.suffix_tokens is not None and self.tokens is None:
            yield Mistake(("tokens",), "is missing: suffix_tokens follow it")
        if self.prompts is not None and self.hit_rate is not None:
            yield Mistake(("prompts",), "come again, which a hit_rate cannot foresee: give one or the other")

    @property
    def primed(self) -> bool:
        """Whether each beginning is sent before the load."""
        return self.hit_rate is not None if self.prime is None else self.prime


class Images(Section):
    """Images beside the text, each a new one."""

    count: Count = Field(1, ge=1, le=MOST_IMAGES, description="images per prompt")
    width: Count = Field(512, ge=1, le=16384, description="pixels")
    height: Count = Field(512, ge=1, le=16384, description="pixels")
    format: Literal["png", "jpeg"] = Field("png", description="how they are written")
    content: Literal["noise", "gradient"] = Field("gradient", description="what is on them: noise hardly compresses")

    def disagreements(self) -> Iterator[Mistake]:
        if (pixels := self.count * self.width * self.height) > MOST_PIXELS:
            text = f"must have at most {MOST_PIXELS:,} pixels together: {self.count} x {self.width} x {self.height}"
            yield Mistake((), f"{text} are {pixels:,}")


class Synthetic(WorkloadSection):
    """Text, made up, of asked lengths."""

    type: Literal["synthetic"] = Field("synthetic", description="where prompts come from")
    input_tokens: Lengths = Field(Lengths.of(256), description="length of each prompt")
    output_tokens: Lengths | None = Field(Lengths.of(64), description="null: the server decides when to stop")
    pairs: list[Pair] = Field([], description="input and output lengths that belong together, in place of both")
    count: Requests | None = Field(None, ge=1, description="different prompts; after these they come again")
    prompt_as: Literal["text", "token_ids"] = Field("text", description="how prompts are sent")
    vocabulary: Tokens = Field(10_000, ge=100, description="token ids are drawn below this")
    nonce_tokens: Tokens = Field(8, ge=0, description="tokens, new in each run, that keep prompts out of old caches")
    tokenizer: str | None = Field(
        None, description="that makes lengths exact: a folder, a model's name, or `server` for its own /tokenize"
    )
    prefix: Prefix | None = Field(None, description="beginnings that prompts share")
    turns: Lengths = Field(Lengths.of(1), description="requests of a session, each with all that was said before")
    turn_tokens: Lengths | None = Field(
        None, description="what each later turn adds; default: suffix_tokens, or without them input_tokens"
    )
    history: Literal["live", "made"] = Field(
        "live", description="answers that later turns hold: those that came back, or made-up ones of the asked length"
    )
    think: Pause = Field(Pause(type="fixed", value=0.0), description="pause between an answer and the next turn")
    images: Images | None = Field(None, description="images beside the text (api chat)")
    models: dict[str, Number] = Field({}, description="models (or adapters) asked for, each with its weight")

    def disagreements(self) -> Iterator[Mistake]:
        if self.pairs and {"input_tokens", "output_tokens"} & self.model_fields_set - _defaults(self):
            yield Mistake(("pairs",), "stand in place of input_tokens and output_tokens: give one or the other")
        if any(weight <= 0 for weight in self.models.values()):
            yield Mistake(("models",), "must have weights greater than 0")
        if self.images is not None and self.prompt_as == "token_ids":
            yield Mistake(("images",), "stand beside text: prompt_as must be text")
        if self.turn_tokens is not None and self.turns.most == 1:
            yield Mistake(("turn_tokens",), "belong to later turns, but turns is 1")
        if self.prefix is not None:
            yield from self._of_prefix(self.prefix)

    def _of_prefix(self, prefix: Prefix) -> Iterator[Mistake]:
        if prefix.suffix_tokens is not None:
            if self.pairs or "input_tokens" in self.model_fields_set - _defaults(self):
                yield Mistake(("prefix", "suffix_tokens"), "stand in place of input_tokens: give one or the other")
        elif (longest := prefix.tokens and prefix.tokens.most) and longest >= self._shortest_input:
            text = f"must be less than the shortest prompt, {self._shortest_input}: input_tokens is the length of both"
            yield Mistake(("prefix", "tokens"), text)
        if prefix.hit_rate is not None and self.turns.most != 1:
            yield Mistake(("prefix", "hit_rate"), "is for single turns: later ones find their own history in the cache")
        mean, shared = self.mean_input, prefix.tokens and prefix.tokens.mean_value
        if prefix.hit_rate and mean and shared and prefix.hit_rate * mean > shared:
            text = f"cannot be reached: the shared beginning is {shared / mean:.0%} of a prompt"
            yield Mistake(("prefix", "hit_rate"), text)

    @property
    def _shortest_input(self) -> int:
        return min(pair.input for pair in self.pairs) if self.pairs else self.input_tokens.least

    @property
    def mean_input(self) -> float | None:
        if self.pairs:
            return _mean([(pair.input, pair.weight) for pair in self.pairs])
        if self.prefix is not None and self.prefix.suffix_tokens is not None and self.prefix.tokens is not None:
            means = self.prefix.tokens.mean_value, self.prefix.suffix_tokens.mean_value
            return None if None in means else sum(mean for mean in means if mean is not None)
        return self.input_tokens.mean_value

    @property
    def mean_output(self) -> float | None:
        if self.pairs:
            return _mean([(pair.output, pair.weight) for pair in self.pairs])
        return None if self.output_tokens is None else self.output_tokens.mean_value

    @property
    def shares_nothing(self) -> bool:
        return self.prefix is None and self.count is None

    @property
    def single_turns(self) -> bool:
        return self.turns.most == 1

    @property
    def asked_output(self) -> Lengths | None:
        return None if self.pairs else self.output_tokens


def _defaults(section: Section) -> set[str]:
    """Fields that are as by default; a plan that was kept says them all."""
    return {name for name, field in type(section).model_fields.items() if getattr(section, name) == field.default}


def _mean(pairs: list[tuple[int, float]]) -> float:
    return sum(value * weight for value, weight in pairs) / sum(weight for _, weight in pairs)
