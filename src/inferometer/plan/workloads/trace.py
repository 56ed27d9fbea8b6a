"""Workloads recorded elsewhere: requests with arrival times and lengths, one section per format.

How fast they come again is the load's: `replay` as recorded (or sped up), or any other load for their lengths alone.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from inferometer.plan.fields import Count, Duration, Mistake, Section, Tokens
from inferometer.plan.workloads.common import FileSection, WorkloadSection


class Window(Section):
    """A time range of the recording; its start becomes time 0."""

    short_forms: ClassVar[list[dict[str, Any]]] = [
        {"type": "string", "pattern": r"^[^-]*-[^-]*$", "examples": ["10min-20min"], "description": "start-end"}
    ]

    start: Duration = Field(0.0, ge=0, description="start, as time after the first row")
    end: Duration | None = Field(None, gt=0, description="end, as time after the first row")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        start, dash, end = value.partition("-")
        if not dash:
            raise ValueError("must be a time range such as 10min-20min")
        return {"start": start.strip() or 0, "end": end.strip() or None}

    def disagreements(self) -> Iterator[Mistake]:
        if self.end is not None and self.end <= self.start:
            yield Mistake(("end",), "must be later than start")


class TraceFile(FileSection):
    """What the recordings have in common: where the file is, and which part of it is sent."""

    replayed: ClassVar[bool] = True  # it has arrival times: without a load it is replayed

    window: Window = Field(Window(), description="time range of the recording to use")
    limit: Count | None = Field(None, ge=1, description="number of rows to use")
    sort: bool = Field(False, description="sort rows by time; otherwise rows out of order are an error")
    max_tokens: Count | None = Field(None, ge=1, description="skip longer prompts")
    prompt_as: Literal["text", "token_ids"] = Field("text", description="send prompts as text or token ids")
    vocabulary: Tokens = Field(10_000, ge=100, description="upper bound of token ids")
    nonce_tokens: Tokens = Field(8, ge=0, description="random tokens per run that prevent hits in old caches")
    tokenizer: str | None = Field(
        None, description="tokenizer for exact lengths: a folder, a model's name, or `server` for its /tokenize"
    )


class Azure(TraceFile):
    """Azure's LLM inference traces: TIMESTAMP, ContextTokens, GeneratedTokens."""

    type: Literal["azure"] = Field("azure", description="source of the prompts")


class Mooncake(TraceFile):
    """Mooncake's traces: `hash_ids` name blocks of tokens that prompts share."""

    type: Literal["mooncake"] = Field("mooncake", description="source of the prompts")
    block_tokens: Tokens = Field(512, ge=1, description="tokens per hashed block")


class BurstGpt(TraceFile):
    """BurstGPT's traces, with and without sessions."""

    type: Literal["burstgpt"] = Field("burstgpt", description="source of the prompts")


USES = ("time", "input_tokens", "output_tokens", "prompt", "session", "elapsed", "hash_ids")  # of columns


class Trace(TraceFile):
    """Any CSV, JSONL or Parquet file with a column of times and columns of lengths or texts."""

    type: Literal["trace"] = Field("trace", description="source of the prompts")
    columns: dict[str, str] = Field(
        {}, description="column names of time, input_tokens, output_tokens, prompt, session, elapsed, hash_ids"
    )
    unit: Literal["s", "ms", "us", "ns"] | None = Field(
        None, description="unit of numeric times; otherwise times are dates"
    )
    block_tokens: Tokens = Field(512, ge=1, description="tokens per hashed block")

    def disagreements(self) -> Iterator[Mistake]:
        yield from super().disagreements()
        for use in self.columns:
            if use not in USES:
                yield Mistake(("columns", use), f"is not a known column; there are {', '.join(USES)}")


class AgentSessions(WorkloadSection):
    """Recorded sessions of agents: every trace is a session, whose calls follow those that they depend on and run at
    once where they did."""

    path: str | None = Field(None, min_length=1, description="a file with a trace, or a folder of them")
    paths: list[str] = Field([], description="several files, folders or patterns such as traces/*.json")
    repo: str | None = Field(None, min_length=1, description="or a dataset of the Hugging Face hub, owner/name")
    subset: str | None = Field(None, description="its configuration")
    split: str = Field("train", min_length=1, description="its split")
    model: str | None = Field(None, description="model of all requests; default: that of the target")
    models: dict[str, str] = Field({}, description="models to request instead of the recorded ones")
    max_wait: Duration = Field(15.0, ge=0, description="longest pause between a call and those that it depends on")
    below_tokens: Tokens | None = Field(None, ge=1, description="skip sessions with a call of as many tokens")
    unusable: Literal["skip", "refuse"] = Field("skip", description="traces that cannot be read: skip, or refuse")
    limit: Count | None = Field(None, ge=1, description="number of sessions to use")
    skip: Count = Field(0, ge=0, description="number of sessions to skip")

    def disagreements(self) -> Iterator[Mistake]:
        places = [self.path is not None, bool(self.paths), self.repo is not None]
        if sum(places) != 1:
            yield Mistake(("path",), "is missing: give one of path, paths and repo")

    @property
    def is_finite(self) -> bool:
        return True


class Otel(AgentSessions):
    """Sessions of agents recorded as OpenTelemetry GenAI spans."""

    type: Literal["otel"] = Field("otel", description="source of the prompts")
    output_tokens: Tokens = Field(1000, ge=1, description="requested output length of calls without a recorded one")
    errors: bool = Field(True, description="also send calls that failed when they were recorded")
    answers: Literal["live", "recorded"] = Field(
        "live", description="history of later calls: generated answers where they are recognised, or the recorded ones"
    )


class Weka(AgentSessions):
    """Sessions of coding agents with their sub-agents, recorded as lengths and hashed blocks of tokens, as Weka's
    KV cache tester has them: equal blocks are equal texts."""

    type: Literal["weka"] = Field("weka", description="source of the prompts")
    block_tokens: Tokens = Field(64, ge=1, description="tokens per hashed block, where a trace does not say")
    max_gap: Duration | None = Field(None, ge=0, description="longest time between the beginnings of two calls")
    tokenizer: str | None = Field(
        None, description="tokenizer for exact lengths: a folder, a model's name, or `server` for its /tokenize"
    )
