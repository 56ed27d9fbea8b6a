"""The workload of a plan's dataset: opens its file or hub name, surveys its rows, and makes sessions from them.
Which row is which session is a pure function of (seed, index)."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import Any

import numpy as np

from inferometer.errors import DataError, MissingExtra, PlanError
from inferometer.plan.workloads.recorded import MEDIA, Conversations, Dataset, HuggingFace, Oasst
from inferometer.vocabulary import number_text
from inferometer.wire.api import api_of, chat_text
from inferometer.workload.draws import Draws, Purpose, longest_of, pause_quantile, picker, quantile_of
from inferometer.workload.files import open_rows
from inferometer.workload.formats import TEMPLATE, Conversation, Json, looks_like, reader_of
from inferometer.workload.rows import Ints, RowError, Rows
from inferometer.workload.session import NOWHERE, Prompt, Request, Session, WorkloadContext
from inferometer.workload.survey import NONE, Survey, Wanted, is_alone, parts_of, prefix_number, surveyed
from inferometer.workload.writer import token_count

_MODEL = 1  # the draw of a session that chooses its model; 0 draws its pauses


def is_live(spec: Dataset, kind: str) -> bool:
    """Whether the server's answers are put into later turns; MT-Bench has no recorded ones."""
    return kind == "mt_bench" or getattr(spec, "answers", None) == "live"


@dataclass(slots=True)
class RecordedSessions:
    """A function from an index to a session; after the last session the first repeats, with one note."""

    spec: Dataset
    rows: Rows
    wanted: Wanted
    survey: Survey
    order: Ints
    draws: Draws
    context: WorkloadContext
    counted_by: str
    exact: bool
    _noted_repeat: bool = False

    def __len__(self) -> int:
        """Sessions before they repeat."""
        return len(self.order)

    def __call__(self, index: int) -> Session:
        if index >= len(self.order):
            self._note_repeat()
        chosen = int(self.order[index % len(self.order)])
        conversation, ends = self._part(int(self.survey.row[chosen]), int(self.survey.part[chosen]))
        inputs, _recorded = self.survey.turns(chosen)
        outputs = [None if tokens == NONE else tokens for tokens in self.outputs(index)]
        pauses = self._pauses(index, len(ends))
        body = self._model_of(index)
        turns = [
            self._request(conversation, conversation.messages[:end], tokens, output, pause, body)
            for end, tokens, output, pause in zip(ends, inputs, outputs, pauses, strict=True)
        ]
        return Session(turns, live=is_live(self.spec, self.wanted.kind) and len(turns) > 1)

    def _part(self, row: int, part: int) -> tuple[Conversation, list[int]]:
        for conversation in reader_of(self.wanted.kind, self.wanted.turns)(self._row(row), self.wanted.columns):
            if len(conversation.messages) < self.wanted.min_messages:
                continue
            parts = parts_of(conversation, self.wanted.turns)
            if part < len(parts):
                return conversation, parts[part]
            part -= len(parts)
        raise DataError(f"{self.rows.where(row)} has changed since it was read", "run again: the file is read again")

    def _row(self, row: int) -> object:
        try:
            return self.rows[row]
        except RowError as error:
            raise DataError(f"{self.rows.where(row)} {error}", "the file has changed while it was used") from None

    def outputs(self, index: int) -> list[int]:
        """Requested tokens of each answer of a session: the plan overrides the recording."""
        recorded = self.survey.turns(int(self.order[index % len(self.order)]))[1]
        if self.spec.output_tokens is None:
            return recorded
        drawn = quantile_of(self.spec.output_tokens)
        return [drawn(u) for u in self.draws.uniforms(Purpose.ANSWER, index, 0, len(recorded))]

    def _model_of(self, index: int) -> Json:
        """The model (or adapter) of a session, drawn by weight."""
        models = self.spec.models
        if not models:
            return {}
        (u,) = self.draws.uniforms(Purpose.CHOICES, index, _MODEL, 1)
        return {"model": list(models)[picker(list(models.values()))(u)]}

    def _pauses(self, index: int, turns: int) -> list[float]:
        if turns == 1 or not isinstance(self.spec, Conversations):
            return [0.0] * turns
        drawn = pause_quantile(self.spec.think)
        return [0.0, *map(drawn, self.draws.uniforms(Purpose.CHOICES, index, 0, turns - 1))]

    def _request(
        self,
        conversation: Conversation,
        messages: list[Json],
        tokens: int,
        output: int | None,
        pause: float,
        model: Json,
    ) -> Request:
        """The request of one turn. Turns share message objects, so a live answer put into one turn is in all later
        ones."""
        prompt = self._prompt(conversation, messages)
        return Request(
            prompt=prompt,
            output_tokens=output,
            input_tokens=tokens if self.exact and isinstance(prompt, str) and not self._templated else None,
            think_s=pause,
            body=model | ({"tools": conversation.tools} if conversation.tools and self.wanted.tools else {}),
            headers=self._headers(messages),
        )

    @property
    def _templated(self) -> bool:
        """Whether the server applies a template whose tokens only it can count."""
        return api_of(self.context.api).takes_messages and self.spec.tokenizer != "server"

    def _prompt(self, conversation: Conversation, messages: list[Json]) -> Prompt:
        """A single question is sent as text, which every API accepts. A conversation is converted to text for text
        APIs, but only once its live answers are in it; all its pieces then share their prefix."""
        alone = len(messages) == 1 and isinstance(messages[0]["content"], str)
        if alone and (not self.wanted.named or is_alone(conversation, self.wanted.turns)):
            return str(messages[0]["content"])
        return chat_text(messages) if self.wanted.named else messages

    def _headers(self, messages: list[Json]) -> dict[str, str]:
        name = getattr(self.spec, "prefix_header", None)
        return {name: f"{prefix_number(chat_text(messages), self.wanted.prefix_chars):016x}"} if name else {}

    def _note_repeat(self) -> None:
        if not self._noted_repeat:
            self._noted_repeat = True
            self.context.note(again_note(self.rows.name, len(self)))


def again_note(name: str, sessions: int) -> str:
    return (
        f"{name}: after {sessions:,} sessions they repeat, and a prefix cache may contain them; "
        "for more sessions, relax the workload's filters or use a larger dataset"
    )


# -- statistics ------------------------------------------------------------------------------------------------------

Statistics = dict[str, Any]


def statistics_of(sessions: RecordedSessions) -> Statistics:
    """The statistics of the sessions before they repeat; unknown values are `None`."""
    survey, order = sessions.survey, sessions.order
    turns = np.concatenate([np.arange(survey.first[session], survey.first[session + 1]) for session in order])
    inputs = survey.inputs[turns]
    prefixes = len(np.unique(survey.prefix[order]))
    return {
        "name": sessions.rows.name,
        "type": sessions.spec.type,
        "rows": len(sessions.rows),
        "rows_read": survey.rows_read,
        "sessions": len(order),
        "prompts": len(turns),
        "input_tokens": int(inputs.sum()),
        "longest_input": int(inputs.max()),
        "mean_input": float(inputs.mean()),
        **_outputs(sessions, survey.outputs[turns]),
        "prefixes": prefixes,
        "prompts_per_prefix": len(turns) / prefixes,
        "tokens": sessions.counted_by,
        "left_out": dict(survey.left_out),
        "examples": list(survey.examples),
        "without_tools": survey.without_tools,
        "api": sessions.context.api,
    }


def _outputs(sessions: RecordedSessions, recorded: Any) -> Statistics:
    """Requested output tokens: drawn for one pass over the sessions, or recorded; `None` if the server decides."""
    requested = recorded
    if sessions.spec.output_tokens is not None:
        requested = np.fromiter(
            (tokens for index in range(len(sessions)) for tokens in sessions.outputs(index)), np.int64
        )
    known = requested[requested != NONE]
    return {
        "output_tokens": int(known.sum()) if len(known) else None,
        "mean_output": float(known.mean()) if len(known) else None,
        "without_output": int((requested == NONE).sum()),
    }


def statistics_text(numbers: Statistics) -> list[str]:
    """The statistics as lines to print."""
    return list(_lines(numbers))


def _lines(numbers: Statistics) -> Iterator[str]:
    yield f"{numbers['name']}: {numbers['prompts']:,} prompts in {numbers['sessions']:,} sessions"
    yield (
        f"  input tokens {numbers['input_tokens']:,}, mean {number_text(numbers['mean_input'])}, "
        f"longest {numbers['longest_input']:,} ({numbers['tokens']})"
    )
    if numbers["output_tokens"] is None:
        yield "  output tokens: the server decides"
    else:
        also = f", {numbers['without_output']:,} set by the server" if numbers["without_output"] else ""
        yield f"  output tokens {numbers['output_tokens']:,}, mean {number_text(numbers['mean_output'])}{also}"
    yield f"  unique prefixes {numbers['prefixes']:,}, prompts per prefix {number_text(numbers['prompts_per_prefix'])}"
    if numbers["without_tools"]:
        yield (
            f"  tools of {numbers['without_tools']:,} sessions are neither sent nor counted: api {numbers['api']} "
            "does not support tools here, api chat does"
        )
    yield from _left_out(numbers)
    yield f"  beyond {numbers['sessions']:,} sessions they repeat, and a prefix cache may contain them"


def _left_out(numbers: Statistics) -> Iterator[str]:
    """The rows that are not sent, and why."""
    left_out = numbers["left_out"]
    if left_out:
        why = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
        yield f"  skipped {sum(left_out.values()):,}: {why}"
    yield from (f"    {example}" for example in islice(numbers["examples"], 3))


# -- dataset ---------------------------------------------------------------------------------------------------------


def dataset(spec: Dataset, seed: int, traffic: int, nonce: str, context: WorkloadContext = NOWHERE) -> RecordedSessions:
    """The sessions of a plan's dataset. Prompts are sent as recorded, without a nonce in front."""
    rows = rows_of(spec, context.note)
    if not len(rows):
        raise DataError(f"{rows.name}: has no rows", "is the file complete?")
    kind = _kind(spec, rows)
    _check_media(spec, context)
    wanted = wanted_of(spec, kind, context)
    draws = Draws(seed, traffic)
    order = shuffled(draws, 0, len(rows)) if spec.shuffle else np.arange(len(rows))
    key = (seed, traffic) if spec.shuffle else ("as in the file",)
    count = token_count(spec.tokenizer, context)
    survey = surveyed(rows, reader_of(kind, wanted.turns), wanted, order, count, key, context.note)
    chosen = shuffled(draws, 1, len(survey)) if spec.shuffle else np.arange(len(survey))
    made = RecordedSessions(spec, rows, wanted, survey, chosen[: spec.limit], draws, context, count.by, count.exact)
    if context.note is not NOWHERE.note:
        context.note("\n".join(statistics_text(statistics_of(made))))
    return made


def _check_media(spec: Dataset, context: WorkloadContext) -> None:
    """Refuse media for APIs that accept only text: media are parts of messages."""
    media = [name for name in MEDIA if name in getattr(spec, "columns", {})]
    if media and not api_of(context.api).takes_images:
        raise PlanError(f"workload.columns.{media[0]}: api {context.api} takes no {media[0]}", "target.api: chat")


def rows_of(spec: Dataset, notify: Callable[[str], None]) -> Rows:
    if isinstance(spec, HuggingFace):
        return hub_rows(spec)
    return open_rows(spec.path or spec.url or "", as_lines=spec.type == "prompts", sha256=spec.sha256, notify=notify)


def wanted_of(spec: Dataset, kind: str, context: WorkloadContext) -> Wanted:
    """The settings of a plan that affect its sessions."""
    several = spec if isinstance(spec, Conversations) else None
    template = getattr(spec, "template", None)
    return Wanted(
        kind=kind,
        turns="single" if several is None else several.turns,
        columns=dict(getattr(spec, "columns", {})) | ({TEMPLATE: template} if template else {}),
        where={name: [value] if isinstance(value, str) else value for name, value in spec.where.items()},
        conversations=None if several is None else several.conversations,
        sessions=spec.limit,
        min_messages=(several and several.min_messages) or 1,
        min_tokens=spec.min_tokens,
        max_tokens=spec.max_tokens,
        min_output=spec.min_output_tokens,
        max_output=spec.max_output_tokens,
        max_total=spec.max_total_tokens,
        context=context.max_model_len,
        output_tokens=None if spec.output_tokens is None else longest_of(spec.output_tokens),
        prefix_chars=100 if several is None else several.prefix_chars,
        refuse=spec.unusable == "refuse",
        tools=api_of(context.api).tools is not None,
        named=not api_of(context.api).takes_messages and not is_live(spec, kind),
    )


def _kind(spec: Dataset, rows: Rows) -> str:
    if isinstance(spec, HuggingFace):
        return _detected_kind(spec, rows)
    return "oasst all" if isinstance(spec, Oasst) and spec.paths == "all" else spec.type


def _detected_kind(spec: HuggingFace, rows: Rows) -> str:
    """The schema of a dataset of the hub: by the columns named in the plan, or by its first row."""
    named = set(spec.columns)
    if spec.template is not None or named & {"prompt", *MEDIA}:
        return "table"
    for kind, name in (("table", "prompt"), ("messages", "messages"), ("sharegpt", "conversations")):
        if name in named:
            return kind
    detected = looks_like(rows[0])
    if detected is None:
        have = ", ".join(map(str, rows[0]))
        raise DataError(f"{rows.name}: has no known column, it has {have}", "workload.columns: {prompt: COLUMN}")
    return detected


def shuffled(draws: Draws, purpose: int, count: int) -> Ints:
    """The numbers below `count` in a random order that depends only on the seed, not on machine or numpy version."""
    keys = np.frombuffer(hashlib.shake_128(draws.key(Purpose.ORDER, purpose)).digest(8 * count), "<u8")
    return np.argsort(keys, kind="stable")


# -- huggingface -----------------------------------------------------------------------------------------------------

REMEDY = "check repo, subset and split; without a network, give the path of a dataset that was saved with save_to_disk"


class HubRows:
    """Rows of a dataset in Arrow files, which the package maps instead of loading."""

    def __init__(self, name: str, rows: Any) -> None:
        self.name = name
        self.facts = (name, str(getattr(rows, "_fingerprint", "")), len(rows))
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> Any:
        return dict(self._rows[number])

    def where(self, number: int) -> str:
        return f"{self.name}: row {number + 1}"


def _undecoded(datasets: Any, rows: Any, spec: HuggingFace) -> Any:
    """Images and sound as undecoded file content: it is only sent."""
    for name, feature in (("image", "Image"), ("audio", "Audio")):
        column = spec.columns.get(name, "").partition(".")[0]
        if column and isinstance(rows.features.get(column), getattr(datasets, feature)):
            rows = rows.cast_column(column, getattr(datasets, feature)(decode=False))
    return rows


def hub_rows(spec: HuggingFace) -> HubRows:
    """The rows of one split."""
    name = spec.repo or spec.path or ""
    try:
        datasets = import_module("datasets")
    except ImportError:
        raise MissingExtra(f"the Hugging Face dataset {name}", "datasets") from None
    try:
        rows = _loaded(datasets, spec)
    except Exception as error:  # the hub has separate exceptions for network, name, permission and file errors
        why = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(f"{name}: cannot be loaded: {why}", REMEDY) from None
    return HubRows(f"{name} ({spec.split})", rows)


def _loaded(datasets: Any, spec: HuggingFace) -> Any:
    if spec.repo is not None and spec.files:
        return datasets.load_dataset(
            "json", data_files=[f"hf://datasets/{spec.repo}/{file}" for file in spec.files], split="train"
        )
    if spec.repo is not None:
        return _undecoded(datasets, datasets.load_dataset(spec.repo, spec.subset, split=spec.split), spec)
    saved = datasets.load_from_disk(spec.path)
    if isinstance(saved, dict) and spec.split not in saved:
        raise ValueError(f"there is no split {spec.split!r}, there are {', '.join(saved)}")
    return saved[spec.split] if isinstance(saved, dict) else saved
