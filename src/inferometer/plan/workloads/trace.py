"""Workloads recorded elsewhere: requests with arrival times and lengths, one section per format.

How fast they come again is the load's: `replay` as recorded (or sped up), or any other load for their lengths alone.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from inferometer.plan.fields import Count, Duration, Mistake, Section, Tokens
from inferometer.plan.workloads.common import FileSection


class Window(Section):
    """A stretch of the recording; the clock starts anew with it."""

    short_forms: ClassVar[list[dict[str, Any]]] = [
        {"type": "string", "pattern": r"^[^-]*-[^-]*$", "examples": ["10min-20min"], "description": "start-end"}
    ]

    start: Duration = Field(0.0, ge=0, description="begin so long after the first row")
    end: Duration | None = Field(None, gt=0, description="end so long after the first row")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        start, dash, end = value.partition("-")
        if not dash:
            raise ValueError("must be a stretch of time such as 10min-20min")
        return {"start": start.strip() or 0, "end": end.strip() or None}

    def disagreements(self) -> Iterator[Mistake]:
        if self.end is not None and self.end <= self.start:
            yield Mistake(("end",), "must be later than start")


class TraceFile(FileSection):
    """What the recordings have in common: where the file is, and which part of it is sent."""

    replayed: ClassVar[bool] = True  # it has arrival times: without a load it is replayed

    window: Window = Field(Window(), description="only this stretch of the recording")
    limit: Count | None = Field(None, ge=1, description="use only so many rows")
    sort: bool = Field(False, description="put rows that go back in time into order; else they are an error")
    max_tokens: Count | None = Field(None, ge=1, description="leave out prompts that are longer")
    prompt_as: Literal["text", "token_ids"] = Field("text", description="how prompts are sent")
    vocabulary: Tokens = Field(10_000, ge=100, description="token ids are drawn below this")
    nonce_tokens: Tokens = Field(8, ge=0, description="tokens, new in each run, that keep prompts out of old caches")
    tokenizer: str | None = Field(
        None, description="that makes lengths exact: a folder, a model's name, or `server` for its own /tokenize"
    )


class Azure(TraceFile):
    """Azure's LLM inference traces: TIMESTAMP, ContextTokens, GeneratedTokens."""

    type: Literal["azure"] = Field("azure", description="where prompts come from")


class Mooncake(TraceFile):
    """Mooncake's traces: `hash_ids` name blocks of tokens, and so what prompts share."""

    type: Literal["mooncake"] = Field("mooncake", description="where prompts come from")
    block_tokens: Tokens = Field(512, ge=1, description="tokens of a block that a hash id names")


class BurstGpt(TraceFile):
    """BurstGPT's traces, with and without sessions."""

    type: Literal["burstgpt"] = Field("burstgpt", description="where prompts come from")


USES = ("time", "input_tokens", "output_tokens", "prompt", "session", "elapsed", "hash_ids")  # of columns


class Trace(TraceFile):
    """Any CSV, JSONL or Parquet file with a column of times and columns of lengths or texts."""

    type: Literal["trace"] = Field("trace", description="where prompts come from")
    columns: dict[str, str] = Field(
        {}, description="which column is the time, input_tokens, output_tokens, prompt, session, elapsed, hash_ids"
    )
    unit: Literal["s", "ms", "us", "ns"] | None = Field(None, description="of a time that is a number; else a date")
    block_tokens: Tokens = Field(512, ge=1, description="tokens of a block that a hash id names")

    def disagreements(self) -> Iterator[Mistake]:
        yield from super().disagreements()
        for use in self.columns:
            if use not in USES:
                yield Mistake(("columns", use), f"is no use of a column; there are {', '.join(USES)}")
