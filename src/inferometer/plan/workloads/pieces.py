"""Made-up conversations cut into growing pieces, as Ray's prefix-aware benchmark cuts ShareGPT: the `workload` of type
conversation_pieces."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from inferometer.plan.fields import Count, Mistake, Tokens, is_header_name
from inferometer.plan.workloads.common import WorkloadSection
from inferometer.plan.workloads.lengths import Lengths
from inferometer.plan.workloads.synthetic import MOST_GROUPS

MOST_PIECES = 1000


class ConversationPieces(WorkloadSection):
    """Groups of prompts, each the beginning of a conversation up to one of its messages: the prompts of a group are
    prefixes of one another. Lengths of messages default to the means that the vLLM paper reports of ShareGPT."""

    type: Literal["conversation_pieces"] = Field("conversation_pieces", description="source of the prompts")
    groups: Count = Field(334, ge=1, le=MOST_GROUPS, description="number of conversations")
    pieces: Count = Field(3, ge=1, le=MOST_PIECES, description="prompts per conversation")
    min_tokens: Tokens = Field(1500, ge=1, description="length of the shortest prompt")
    max_tokens: Tokens = Field(8192, ge=1, description="length of the longest prompt")
    question_tokens: Lengths = Field(
        Lengths(type="lognormal", mean=161, std=250, min=4), description="length of a user's message"
    )
    answer_tokens: Lengths = Field(
        Lengths(type="lognormal", mean=338, std=300, min=4), description="length of a recorded answer"
    )
    output_tokens: Lengths | None = Field(
        Lengths(type="uniform", min=10, max=200), description="null: the server decides when to stop"
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
