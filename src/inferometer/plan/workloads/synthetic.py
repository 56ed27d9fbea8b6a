"""Workloads generated from a seed: synthetic prompts, media in addition to their text, and conversations cut into
growing pieces."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_serializer, model_validator

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.plan.fields import Count, Duration, Mistake, Number, Requests, Section, Tokens, is_header_name
from inferometer.plan.workloads.lengths import MOST_ALPHA, Lengths, Pause, WorkloadSection
from inferometer.vocabulary import percent_text

MOST_ITEMS = 1000
MOST_PIXELS = 1 << 28  # of all images or videos of a prompt: they are made in memory
MOST_SOUND_S = 3600.0

Content = Literal["noise", "gradient", "solid", "blank"]
_POSITION = "where in the text: 0 before it, 1 after it; default 0"


class ImageSize(Section):
    """One of several sizes."""

    width: Count = Field(ge=1, le=16384, description="pixels")
    height: Count = Field(ge=1, le=16384, description="pixels")
    weight: Number = Field(1.0, gt=0, description="relative weight")


class Images(Section):
    """Images in addition to the text; every image is new."""

    count: Lengths = Field(Lengths.exactly(1), description="images per prompt: a number, or a distribution such as 1-3")
    width: Count = Field(512, ge=1, le=16384, description="pixels")
    height: Count = Field(512, ge=1, le=16384, description="pixels")
    sizes: list[ImageSize] = Field([], description="several sizes with weights, instead of width and height")
    format: Literal["png", "jpeg"] = Field("png", description="image format")
    content: Content = Field(
        "gradient", description="content of the images: noise hardly compresses; solid is one color, blank white"
    )
    position: Number | None = Field(None, ge=0, le=1, description=_POSITION)

    def disagreements(self) -> Iterator[Mistake]:
        yield from _bounded(self, max(size.width * size.height for size in self.options), "images")

    @property
    def options(self) -> list[ImageSize]:
        """Its sizes, in either form."""
        return self.sizes or [ImageSize(width=self.width, height=self.height)]


class VideoSize(Section):
    """One of several sizes and lengths."""

    width: Count = Field(ge=1, le=16384, description="pixels")
    height: Count = Field(ge=1, le=16384, description="pixels")
    frames: Count = Field(ge=1, le=10_000, description="number of frames")
    weight: Number = Field(1.0, gt=0, description="relative weight")


class Videos(Section):
    """Videos in addition to the text; every video is new."""

    count: Lengths = Field(Lengths.exactly(1), description="videos per prompt: a number, or a distribution such as 1-2")
    width: Count = Field(640, ge=1, le=16384, description="pixels")
    height: Count = Field(360, ge=1, le=16384, description="pixels")
    frames: Count = Field(16, ge=1, le=10_000, description="number of frames")
    sizes: list[VideoSize] = Field([], description="several sizes with weights, instead of width, height and frames")
    format: Literal["mp4", "png_frames", "jpeg_frames"] = Field(
        "mp4", description="one MP4 file of Motion JPEG, or every frame as an image"
    )
    frames_per_second: Number = Field(8.0, gt=0, le=240, description="of an MP4 file")
    content: Content = Field("noise", description="content of the frames")
    position: Number | None = Field(None, ge=0, le=1, description=_POSITION)

    def disagreements(self) -> Iterator[Mistake]:
        yield from _bounded(self, max(one.width * one.height * one.frames for one in self.options), "videos")

    @property
    def options(self) -> list[VideoSize]:
        return self.sizes or [VideoSize(width=self.width, height=self.height, frames=self.frames)]


class SoundLength(Section):
    """One of several durations."""

    duration: Duration = Field(gt=0, le=MOST_SOUND_S, description="length of the sound")
    weight: Number = Field(1.0, gt=0, description="relative weight")


class Sounds(Section):
    """Sound in addition to the text, as WAV; every sound is new."""

    count: Lengths = Field(Lengths.exactly(1), description="audio clips per prompt: a number, or a distribution")
    duration: Duration = Field(1.0, gt=0, le=MOST_SOUND_S, description="length of each")
    durations: list[SoundLength] = Field([], description="several durations with weights, instead of duration")
    content: Literal["noise", "silence"] = Field(
        "noise", description="soft noise, or silence, which is always the same"
    )
    sampling: Count = Field(16_000, ge=8000, le=96_000, description="samples per second, 16 bits, one channel")
    position: Number | None = Field(None, ge=0, le=1, description=_POSITION)

    def disagreements(self) -> Iterator[Mistake]:
        if self.count.most is None or self.count.most > MOST_ITEMS:
            yield Mistake(("count",), f"must be at most {MOST_ITEMS:,} audio clips per prompt")
        elif (seconds := self.count.most * max(one.duration for one in self.options)) > MOST_SOUND_S:
            yield Mistake((), f"must be at most {MOST_SOUND_S:g} s together, got {seconds:g} s")

    @property
    def options(self) -> list[SoundLength]:
        return self.durations or [SoundLength(duration=self.duration)]


class Media(Section):
    """Media in the shared prefix of all prompts of a group."""

    images: Images | None = Field(None, description="images")
    videos: Videos | None = Field(None, description="videos")
    audio: Sounds | None = Field(None, description="sound")

    def __bool__(self) -> bool:
        return bool(self.images or self.videos or self.audio)


def _bounded(one: "Images | Videos", largest: int, what: str) -> Iterator[Mistake]:
    own = {"width", "height", "frames"} & set(type(one).model_fields)
    changed = {name for name in own if getattr(one, name) != type(one).model_fields[name].default}
    if one.sizes and changed & one.model_fields_set:
        yield Mistake(("sizes",), f"replace {' and '.join(sorted(changed))}: give one or the other")
    most = one.count.most
    if most is None or most > MOST_ITEMS:
        yield Mistake(("count",), f"must be at most {MOST_ITEMS:,} {what} per prompt")
    elif (pixels := most * largest) > MOST_PIXELS:
        text = f"must have at most {MOST_PIXELS:,} pixels together: {most} x {largest:,} are {pixels:,}"
        yield Mistake((), text)


MOST_GROUPS = 1_000_000


class Pair(Section):
    """A pair of input and output lengths."""

    short_forms: ClassVar[list[JsonObject]] = [
        {"type": "string", "pattern": r"^\s*[0-9][^:]*:\s*[0-9][^:]*$", "examples": ["300:100"]},
        {"type": "array", "minItems": 2, "maxItems": 3, "items": {"type": ["number", "string"]}},
    ]

    input: Tokens = Field(ge=1, description="input tokens")
    output: Tokens = Field(ge=1, description="requested output tokens")
    weight: Number = Field(1.0, gt=0, description="relative weight")

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
        """The short form: `300:100`."""
        pair = f"{self.input}:{self.output}"
        return pair if self.weight == 1 else f"{pair}:{self.weight!r}"

    @model_serializer
    def _written(self) -> Any:
        return self.short()


class Prefix(Section):
    """Prefixes that prompts share, and the prefix cache hit rate to reach."""

    tokens: Lengths | None = Field(None, description="length of a shared prefix, drawn per group")
    suffix_tokens: Lengths | None = Field(
        None, description="length after the prefix, instead of input_tokens, which includes the prefix"
    )
    groups: Count = Field(1, ge=1, le=MOST_GROUPS, description="number of different prefixes")
    prompts: Requests | None = Field(
        None, ge=1, description="different prompts per prefix; default: all prompts are new"
    )
    zipf: Number | None = Field(
        None, ge=0, le=MOST_ALPHA, description="popularity of the groups: the k-th has a weight of 1/k^zipf"
    )
    hit_rate: Number | None = Field(
        None, ge=0, le=1, description="target prefix cache hit rate of input tokens: primed before, checked after"
    )
    block: Tokens = Field(16, ge=1, description="cache block size of the server in tokens; hits are rounded down to it")
    prime: bool | None = Field(None, description="send each prefix once before the load; default: if hit_rate is set")
    header: str | None = Field(
        None, min_length=1, description="header with the number of the group, such as X-Prefix-ID"
    )
    media: Media | None = Field(None, description="media in the prefix, the same for all prompts of a group (api chat)")

    def disagreements(self) -> Iterator[Mistake]:
        if self.tokens is None and self.hit_rate is None:
            yield Mistake(("tokens",), "is missing: give the length of the shared prefix, or a hit_rate")
        if self.suffix_tokens is not None and self.tokens is None:
            yield Mistake(("tokens",), "is missing: suffix_tokens follow it")
        if self.prompts is not None and self.hit_rate is not None:
            yield Mistake(("prompts",), "repeat, so a hit_rate cannot be planned: give one or the other")
        if self.header is not None and not is_header_name(self.header):
            yield Mistake(("header",), f"is not a valid header name, got {self.header}")
        if self.media and self.hit_rate is not None:
            yield Mistake(
                ("media",), "are not counted in tokens, so a hit_rate cannot be planned: give one or the other"
            )

    @property
    def primed(self) -> bool:
        """Whether each prefix is sent once before the load."""
        return self.hit_rate is not None if self.prime is None else self.prime


class Tools(Section):
    """Turns that request a tool call, each followed by a request with the tool's answer. A call ends with its JSON,
    so no output length is requested for it."""

    turns: list[Count] = Field(min_length=1, description="numbers of these turns, from 0")
    sent_with: Literal["all", "calls"] = Field(
        "all", description="requests that list the tools: all of a session, or those that ask for a call"
    )
    definitions: list[dict[str, JsonValue]] = Field(
        [], description="tools in OpenAI's form; default: one that queries data"
    )
    response_tokens: Lengths = Field(Lengths.exactly(8), description="length of a tool's answer")
    choice: str = Field("required", description="tool_choice of these turns; other turns have none")


class FixedText(WorkloadSection):
    """One text for all prompts, with the number of a request in it."""

    type: Literal["text"] = Field("text", description="source of the prompts")
    text: str = Field(min_length=1, description="the prompt; {index} is the number of the request")
    repeat: Count = Field(1, ge=1, le=100_000, description="how often it is repeated in a prompt")
    output_tokens: Lengths | None = Field(Lengths.exactly(64), description="null: the server decides when to stop")

    @property
    def mean_output(self) -> float | None:
        return None if self.output_tokens is None else self.output_tokens.mean_value

    @property
    def requested_output(self) -> Lengths | None:
        return self.output_tokens

    @property
    def single_turns(self) -> bool:
        return True


class Synthetic(WorkloadSection):
    """Synthetic text of given lengths."""

    type: Literal["synthetic"] = Field("synthetic", description="source of the prompts")
    input_tokens: Lengths = Field(Lengths.exactly(256), description="length of each prompt")
    output_tokens: Lengths | None = Field(Lengths.exactly(64), description="null: the server decides when to stop")
    pairs: list[Pair] = Field([], description="pairs of input and output lengths, instead of both fields")
    count: Requests | None = Field(None, ge=1, description="number of different prompts; then they repeat")
    prompt_as: Literal["text", "token_ids"] = Field("text", description="send prompts as text or token ids")
    vocabulary: Tokens = Field(10_000, ge=100, description="upper bound of token ids")
    nonce_tokens: Tokens = Field(8, ge=0, description="random tokens per run that prevent hits in old caches")
    tokenizer: str | None = Field(
        None, description="tokenizer for exact lengths: a folder, a model's name, or `server` for its /tokenize"
    )
    prefix: Prefix | None = Field(None, description="shared prefixes")
    turns: Lengths = Field(Lengths.exactly(1), description="turns per session, each with the full history")
    turn_tokens: Lengths | None = Field(
        None, description="new input tokens of each later turn; default: suffix_tokens, else input_tokens"
    )
    history: Literal["live", "made"] = Field(
        "live", description="history of later turns: generated answers, or synthetic ones of the requested length"
    )
    think: Pause = Field(Pause.usual(type="fixed", value=0.0), description="pause between an answer and the next turn")
    turn_interval: Duration | None = Field(
        None, gt=0, description="a next turn is due so long after the one before was, or when its answer has come"
    )
    max_context: Tokens | None = Field(None, ge=1, description="a session ends before its history has more tokens")
    images: Images | None = Field(None, description="images in addition to the text (api chat)")
    videos: Videos | None = Field(None, description="videos in addition to the text (api chat)")
    audio: Sounds | None = Field(None, description="sound in addition to the text (api chat)")
    tools: Tools | None = Field(None, description="turns that call a tool (api chat)")
    documents: Count | None = Field(None, ge=1, le=100_000, description="documents per query (api rerank)")
    models: dict[str, Number] = Field({}, description="models (or adapters) to request, with weights")

    def disagreements(self) -> Iterator[Mistake]:
        if self.pairs and {"input_tokens", "output_tokens"} & self.model_fields_set - _defaults(self):
            yield Mistake(("pairs",), "replace input_tokens and output_tokens: give one or the other")
        if any(weight <= 0 for weight in self.models.values()):
            yield Mistake(("models",), "must have weights greater than 0")
        for name in self.media_fields:
            if self.prompt_as == "token_ids":
                yield Mistake(name, "need text prompts: prompt_as must be text")
        if self.tools is not None and self.prompt_as == "token_ids":
            yield Mistake(("tools",), "need text prompts: prompt_as must be text")
        if self.tools is not None and max(self.tools.turns) >= (self.turns.most or MOST_GROUPS):
            yield Mistake(("tools", "turns"), f"must be below the number of turns, {self.turns.most}")
        if self.turn_tokens is not None and self.turns.most == 1:
            yield Mistake(("turn_tokens",), "belong to later turns, but turns is 1")
        if self.prefix is not None:
            yield from self._of_prefix(self.prefix)

    def _of_prefix(self, prefix: Prefix) -> Iterator[Mistake]:
        if prefix.suffix_tokens is not None:
            if self.pairs or "input_tokens" in self.model_fields_set - _defaults(self):
                yield Mistake(("prefix", "suffix_tokens"), "replace input_tokens: give one or the other")
        elif (longest := prefix.tokens and prefix.tokens.most) and longest >= self._shortest_input:
            text = f"must be less than the shortest prompt, {self._shortest_input}: input_tokens is the length of both"
            yield Mistake(("prefix", "tokens"), text)
        if prefix.hit_rate is not None and self.turns.most != 1:
            yield Mistake(("prefix", "hit_rate"), "needs single turns: later turns have their history in the cache")
        mean, shared = self.mean_input, prefix.tokens and prefix.tokens.mean_value
        if prefix.hit_rate and mean and shared and prefix.hit_rate * mean > shared:
            text = f"cannot be reached: the shared prefix is {percent_text(shared / mean)} of a prompt"
            yield Mistake(("prefix", "hit_rate"), text)

    @property
    def media(self) -> Media:
        """The media of each prompt, in addition to those of its prefix."""
        return Media.usual(images=self.images, videos=self.videos, audio=self.audio)

    @property
    def media_fields(self) -> list[tuple[str, ...]]:
        """The settings for media, of prompts or of their prefixes."""
        own = [(name,) for name in ("images", "videos", "audio") if getattr(self, name) is not None]
        return [*own, *([("prefix", "media")] if self.prefix is not None and self.prefix.media else [])]

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
    def requested_output(self) -> Lengths | None:
        return None if self.pairs else self.output_tokens


def _defaults(section: Section) -> set[str]:
    """Fields with their default; a stored plan lists them all."""
    return {name for name, field in type(section).model_fields.items() if getattr(section, name) == field.default}


def _mean(pairs: list[tuple[int, float]]) -> float:
    return sum(value * weight for value, weight in pairs) / sum(weight for _, weight in pairs)


MOST_PIECES = 1000


class ConversationPieces(WorkloadSection):
    """Groups of prompts. Each prompt is the beginning of a conversation up to one of its messages, so the prompts of a
    group are prefixes of one another. Message lengths default to the means of ShareGPT in the vLLM paper."""

    type: Literal["conversation_pieces"] = Field("conversation_pieces", description="source of the prompts")
    groups: Count = Field(334, ge=1, le=MOST_GROUPS, description="number of conversations")
    pieces: Count = Field(3, ge=1, le=MOST_PIECES, description="prompts per conversation")
    min_tokens: Tokens = Field(1500, ge=1, description="length of the shortest prompt")
    max_tokens: Tokens = Field(8192, ge=1, description="length of the longest prompt")
    question_tokens: Lengths = Field(
        Lengths.usual(type="lognormal", mean=161.0, std=250.0, min=4), description="length of a user's message"
    )
    answer_tokens: Lengths = Field(
        Lengths.usual(type="lognormal", mean=338.0, std=300.0, min=4), description="length of a recorded answer"
    )
    output_tokens: Lengths | None = Field(
        Lengths.usual(type="uniform", min=10, max=200), description="null: the server decides when to stop"
    )
    nonce_tokens: Tokens = Field(8, ge=0, description="random tokens per run that prevent hits in old caches")
    tokenizer: str | None = Field(
        None, description="tokenizer for exact lengths: a folder, a model's name, or `server` for its /tokenize"
    )
    prefix_header: str | None = Field(
        None, min_length=1, description="header with the number of the conversation, such as X-Prefix-ID"
    )

    def disagreements(self) -> Iterator[Mistake]:
        if self.max_tokens < self.min_tokens:
            yield Mistake(("max_tokens",), f"must be at least min_tokens, {self.min_tokens}, got {self.max_tokens}")
        elif self.max_tokens - self.min_tokens + 1 < self.pieces:
            yield Mistake(("pieces",), "must have different lengths between min_tokens and max_tokens")
        if self.prefix_header is not None and not is_header_name(self.prefix_header):
            yield Mistake(("prefix_header",), f"is not a valid header name, got {self.prefix_header}")

    @property
    def mean_output(self) -> float | None:
        return None if self.output_tokens is None else self.output_tokens.mean_value

    @property
    def requested_output(self) -> Lengths | None:
        return self.output_tokens

    @property
    def single_turns(self) -> bool:
        return True
