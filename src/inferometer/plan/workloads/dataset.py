"""Workloads read from files of prompts and conversations: one section per schema."""

import re
from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from inferometer.plan.fields import Count, Mistake, Tokens
from inferometer.plan.workloads.common import FileSection
from inferometer.plan.workloads.lengths import Lengths, Pause

TurnsMode = Literal["single", "whole", "conversation", "pieces"]
_TURNS = (
    "single: the first question; whole: all up to the last question; conversation: turn by turn; "
    "pieces: all up to each question, each as a prompt of its own"
)
_ANSWERS = "which answers later turns hold: those of the file, or those that came back"


class DataFile(FileSection):
    """What all of them have in common: where the file is, and what is asked of answers."""

    output_tokens: Lengths | None = Field(
        None, description="asked of each answer; without it the recorded length, or what the server likes"
    )
    tokenizer: str | None = Field(
        None, description="that counts tokens: a folder, a model's name, or `server` for its own /tokenize"
    )

    @property
    def mean_output(self) -> float | None:
        return None if self.output_tokens is None else self.output_tokens.mean_value

    @property
    def asked_output(self) -> Lengths | None:
        return self.output_tokens


class Dataset(DataFile):
    """A file whose rows are sent: which of them, and in which order."""

    known_columns: ClassVar[tuple[str, ...]] = ()  # what `columns` can name

    limit: Count | None = Field(None, ge=1, description="use only so many sessions; after these they come again")
    shuffle: bool = Field(True, description="in an order drawn from the seed, not as in the file")
    unusable: Literal["skip", "refuse"] = Field(
        "skip", description="rows that are broken or longer than the model's context: leave out and count, or refuse"
    )
    min_tokens: Count | None = Field(None, ge=0, description="leave out prompts that are shorter")
    max_tokens: Count | None = Field(None, ge=1, description="leave out prompts that are longer")

    def disagreements(self) -> Iterator[Mistake]:
        yield from super().disagreements()
        if self.min_tokens is not None and self.max_tokens is not None and self.min_tokens > self.max_tokens:
            yield Mistake(("max_tokens",), f"must be at least min_tokens, {self.min_tokens}, got {self.max_tokens}")
        for name in sorted(set(getattr(self, "columns", {})) - set(self.known_columns)):
            known = ", ".join(self.known_columns)
            yield Mistake(("columns", name), f"is not a field of {self.type}; there are {known}")


class Conversations(Dataset):
    """Datasets whose rows have several turns."""

    turns: TurnsMode = Field("single", description=_TURNS)
    answers: Literal["recorded", "live"] = Field("recorded", description=_ANSWERS)
    think: Pause = Field(Pause(type="fixed", value=0.0), description="pause between an answer and the next turn")
    conversations: Count | None = Field(None, ge=1, description="choose so many conversations before anything is cut")
    min_messages: Count | None = Field(None, ge=1, description="leave out shorter conversations")
    prefix_header: str | None = Field(
        None, min_length=1, description="header with an id of the prompt's beginning, such as X-Prefix-ID"
    )
    prefix_chars: Tokens = Field(100, ge=1, description="characters that make prompts count as sharing a beginning")
    columns: dict[str, str] = Field({}, description="names of the fields, where the file has others")

    def disagreements(self) -> Iterator[Mistake]:
        yield from super().disagreements()
        if self.prefix_header is not None and not re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", self.prefix_header, re.ASCII):
            yield Mistake(("prefix_header",), f"is not a possible name of a header, got {self.prefix_header}")


class ShareGpt(Conversations):
    """ShareGPT's schema: a JSON list of `conversations` of `from` and `value`; with function calls too."""

    known_columns: ClassVar[tuple[str, ...]] = ("conversations", "from", "value", "system", "tools")

    type: Literal["sharegpt"] = Field("sharegpt", description="where prompts come from")


class Messages(Conversations):
    """Chat messages, `role` and `content`, a list per row; tool calls included."""

    known_columns: ClassVar[tuple[str, ...]] = ("messages", "role", "content", "tools")

    type: Literal["messages"] = Field("messages", description="where prompts come from")
    turns: TurnsMode = Field("whole", description=_TURNS)


class Oasst(Conversations):
    """OpenAssistant's trees of messages; a conversation is a path from the root to a leaf."""

    known_columns: ClassVar[tuple[str, ...]] = ("prompt", "text", "role", "replies", "rank")

    type: Literal["oasst"] = Field("oasst", description="where prompts come from")
    turns: TurnsMode = Field("conversation", description=_TURNS)
    paths: Literal["best", "all"] = Field("best", description="the path of the best-ranked replies, or every path")


class MtBench(Conversations):
    """MT-Bench: questions of two turns. No answers are recorded, so that later turns hold live ones."""

    known_columns: ClassVar[tuple[str, ...]] = ("turns",)

    type: Literal["mt_bench"] = Field("mt_bench", description="where prompts come from")
    turns: Literal["single", "conversation"] = Field(
        "conversation", description="single: the first question; conversation: both"
    )
    answers: Literal["live"] = Field("live", description="answers that came back")


class HumanEval(Dataset):
    """HumanEval: functions to complete."""

    type: Literal["humaneval"] = Field("humaneval", description="where prompts come from")


class Sonnet(DataFile):
    """Lines of verse, put together to prompts of an asked length with a shared beginning."""

    type: Literal["sonnet"] = Field("sonnet", description="where prompts come from")
    input_tokens: Lengths = Field(Lengths.of(550), description="length of each prompt")
    prefix_tokens: Tokens = Field(200, ge=0, description="length of the beginning that all share")

    @property
    def mean_input(self) -> float | None:
        return self.input_tokens.mean_value


class Prompts(Dataset):
    """A file with a prompt on each line."""

    type: Literal["prompts"] = Field("prompts", description="where prompts come from")


class Table(Dataset):
    """CSV, JSONL or Parquet with named columns."""

    known_columns: ClassVar[tuple[str, ...]] = ("prompt", "messages", "answer", "output_tokens", "system", "tools")

    type: Literal["table"] = Field("table", description="where prompts come from")
    columns: dict[str, str] = Field(
        {}, description="which column is the prompt (or messages), answer, output_tokens, system, tools"
    )


class HuggingFace(Conversations):
    """A dataset of the Hugging Face hub, by its name; needs the extra `datasets`. Its rows tell their schema."""

    known_columns: ClassVar[tuple[str, ...]] = tuple(
        dict.fromkeys(
            (
                *ShareGpt.known_columns,
                *Messages.known_columns,
                *Oasst.known_columns,
                *MtBench.known_columns,
                *Table.known_columns,
            )
        )
    )

    type: Literal["huggingface"] = Field("huggingface", description="where prompts come from")
    repo: str | None = Field(None, min_length=1, description="name of the dataset, owner/name")
    subset: str | None = Field(None, description="its configuration")
    split: str = Field("train", min_length=1, description="its part")

    def _of_place(self) -> Iterator[Mistake]:
        if (self.repo is None) == (self.path is None):
            yield Mistake(("repo",), "is missing: give the name of the dataset, or the path of a saved one")
        if self.url is not None:
            yield Mistake(("url",), "does not belong to type huggingface: give repo, owner/name")
