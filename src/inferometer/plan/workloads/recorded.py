"""Workloads read from files: prompts and conversations, and requests recorded with their arrival times and lengths."""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from inferometer.documents.document import JsonObject
from inferometer.plan.fields import Count, Duration, Mistake, Number, Section, Tokens, is_header_name
from inferometer.plan.workloads.lengths import FileSection, Lengths, Pause, WorkloadSection

TurnsMode = Literal["single", "whole", "conversation", "pieces", "questions"]
_TURNS = (
    "single: the first question; whole: everything up to the last question; conversation: turn by turn; "
    "pieces: everything up to each question, as separate prompts; questions: all of them as one"
)
MEDIA = ("image", "audio", "video")  # columns with files, URLs or bytes that are part of the message
_NAMED = (
    "which column is the prompt (or messages), answer, output_tokens, system, tools, image, audio, video; "
    "`a|b`: the first that there is, `a.0.b`: a value inside, `image?`: media that a row need not have"
)
_TEMPLATE = "the prompt as text with {column} for a column, instead of one column"
_ANSWERS = "history of later turns: the answers of the file, or the generated ones"


class DataFile(FileSection):
    """Common settings: the file, and the requested output length."""

    output_tokens: Lengths | None = Field(
        None, description="requested output length; default: the recorded length, else set by the server"
    )
    tokenizer: str | None = Field(
        None, description="tokenizer: a folder, a model's name, or `server` for its /tokenize"
    )

    @property
    def mean_output(self) -> float | None:
        return None if self.output_tokens is None else self.output_tokens.mean_value

    @property
    def requested_output(self) -> Lengths | None:
        return self.output_tokens


class Dataset(DataFile):
    """A file whose rows are sent: which of them, and in which order."""

    known_columns: ClassVar[tuple[str, ...]] = ()  # keys of `columns`

    limit: Count | None = Field(None, ge=1, description="number of sessions to use; then they repeat")
    shuffle: bool = Field(True, description="shuffle with the seed instead of file order")
    unusable: Literal["skip", "refuse"] = Field(
        "skip", description="rows that are invalid or longer than the model's context: skip and count, or refuse"
    )
    min_tokens: Count | None = Field(None, ge=0, description="skip shorter prompts")
    max_tokens: Count | None = Field(None, ge=1, description="skip longer prompts")
    min_output_tokens: Count | None = Field(None, ge=1, description="skip prompts with a shorter recorded answer")
    max_output_tokens: Count | None = Field(None, ge=1, description="skip prompts with a longer recorded answer")
    max_total_tokens: Count | None = Field(None, ge=1, description="skip prompts that are longer with their answer")
    where: dict[str, str | list[str]] = Field({}, description="rows to use: column and its value, or several values")
    once: bool = Field(False, description="send each session once; the run ends with the last")
    models: dict[str, Number] = Field({}, description="models (or adapters) to request, with weights")

    def disagreements(self) -> Iterator[Mistake]:
        yield from super().disagreements()
        for of in ("tokens", "output_tokens"):
            least, most = (getattr(self, f"{end}_{of}") for end in ("min", "max"))
            if least is not None and most is not None and least > most:
                yield Mistake((f"max_{of}",), f"must be at least min_{of}, {least}, got {most}")
        if any(weight <= 0 for weight in self.models.values()):
            yield Mistake(("models",), "must have weights greater than 0")
        for name in sorted(set(getattr(self, "columns", {})) - set(self.known_columns)):
            known = ", ".join(self.known_columns)
            yield Mistake(("columns", name), f"is not a field of {self.type}; there are {known}")


class Conversations(Dataset):
    """Datasets whose rows have several turns."""

    turns: TurnsMode = Field("single", description=_TURNS)
    answers: Literal["recorded", "live"] = Field("recorded", description=_ANSWERS)
    think: Pause = Field(Pause.usual(type="fixed", value=0.0), description="pause between an answer and the next turn")
    conversations: Count | None = Field(None, ge=1, description="number of conversations to choose before cutting")
    min_messages: Count | None = Field(None, ge=1, description="skip shorter conversations")
    prefix_header: str | None = Field(
        None, min_length=1, description="header with an id of the prompt's prefix, such as X-Prefix-ID"
    )
    prefix_chars: Tokens = Field(
        100, ge=1, description="characters that prompts must have in common to share a prefix id"
    )
    columns: dict[str, str] = Field({}, description="field names, if the file uses others")

    def disagreements(self) -> Iterator[Mistake]:
        yield from super().disagreements()
        if self.prefix_header is not None and not is_header_name(self.prefix_header):
            yield Mistake(("prefix_header",), f"is not a valid header name, got {self.prefix_header}")


class ShareGpt(Conversations):
    """ShareGPT's schema: a JSON list of `conversations` of `from` and `value`; with function calls too."""

    known_columns: ClassVar[tuple[str, ...]] = ("conversations", "from", "value", "system", "tools")

    type: Literal["sharegpt"] = Field("sharegpt", description="source of the prompts")


class Messages(Conversations):
    """Chat messages, `role` and `content`, a list per row; tool calls included."""

    known_columns: ClassVar[tuple[str, ...]] = ("messages", "role", "content", "tools")

    type: Literal["messages"] = Field("messages", description="source of the prompts")
    turns: TurnsMode = Field("whole", description=_TURNS)


class Oasst(Conversations):
    """OpenAssistant's trees of messages; a conversation is a path from the root to a leaf."""

    known_columns: ClassVar[tuple[str, ...]] = ("prompt", "text", "role", "replies", "rank")

    type: Literal["oasst"] = Field("oasst", description="source of the prompts")
    turns: TurnsMode = Field("conversation", description=_TURNS)
    paths: Literal["best", "all"] = Field("best", description="the path of the best-ranked replies, or every path")


class MtBench(Conversations):
    """MT-Bench: questions of two turns. It has no recorded answers, so later turns use generated ones."""

    known_columns: ClassVar[tuple[str, ...]] = ("turns",)

    type: Literal["mt_bench"] = Field("mt_bench", description="source of the prompts")
    turns: Literal["single", "conversation"] = Field(
        "conversation", description="single: the first question; conversation: both"
    )
    answers: Literal["live"] = Field("live", description="generated answers")


class HumanEval(Dataset):
    """HumanEval: functions to complete."""

    type: Literal["humaneval"] = Field("humaneval", description="source of the prompts")


class Sonnet(DataFile):
    """Lines of verse, combined to prompts of a given length with a shared prefix."""

    type: Literal["sonnet"] = Field("sonnet", description="source of the prompts")
    input_tokens: Lengths = Field(Lengths.exactly(550), description="length of each prompt")
    prefix_tokens: Tokens = Field(200, ge=0, description="length of the shared prefix")

    @property
    def mean_input(self) -> float | None:
        return self.input_tokens.mean_value


class Prompts(Dataset):
    """A file with a prompt on each line."""

    type: Literal["prompts"] = Field("prompts", description="source of the prompts")


class Table(Dataset):
    """CSV, JSONL or Parquet with named columns."""

    known_columns: ClassVar[tuple[str, ...]] = (
        *("prompt", "messages", "answer", "output_tokens", "system", "tools"),
        *MEDIA,
    )

    type: Literal["table"] = Field("table", description="source of the prompts")
    columns: dict[str, str] = Field({}, description=_NAMED)
    template: str | None = Field(None, min_length=1, description=_TEMPLATE)


class HuggingFace(Conversations):
    """A dataset of the Hugging Face hub, by name; needs the extra `datasets`. The schema is detected from the rows."""

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

    type: Literal["huggingface"] = Field("huggingface", description="source of the prompts")
    files: list[str] = Field([], description="files of the dataset to read, instead of a split")
    template: str | None = Field(None, min_length=1, description=_TEMPLATE)
    repo: str | None = Field(None, min_length=1, description="name of the dataset, owner/name")
    subset: str | None = Field(None, description="its configuration")
    split: str = Field("train", min_length=1, description="its split")

    def _of_place(self) -> Iterator[Mistake]:
        if (self.repo is None) == (self.path is None):
            yield Mistake(("repo",), "is missing: give the name of the dataset, or the path of a saved one")
        if self.url is not None:
            yield Mistake(("url",), "does not belong to type huggingface: give repo, owner/name")


class RecordedWindow(Section):
    """A time range of the recording; its start becomes time 0."""

    short_forms: ClassVar[list[JsonObject]] = [
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
    """Common settings of recordings: the file, and the part of it to send."""

    replayed: ClassVar[bool] = True  # it has arrival times: without a load it is replayed

    window: RecordedWindow = Field(RecordedWindow.usual(), description="time range of the recording to use")
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
    """Recorded sessions of agents: every trace is a session. A call follows the calls that it depends on; calls that
    ran concurrently run concurrently again."""

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
    block_tokens: Tokens = Field(64, ge=1, description="tokens per hashed block, if a trace does not have it")
    max_gap: Duration | None = Field(None, ge=0, description="longest time between the beginnings of two calls")
    tokenizer: str | None = Field(
        None, description="tokenizer for exact lengths: a folder, a model's name, or `server` for its /tokenize"
    )
