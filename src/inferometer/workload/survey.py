"""Surveys all rows before the load: the sessions of a dataset, their lengths, and the excluded rows with reasons.

The survey is cached for the next run and for all workers of this one.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from inferometer.errors import DataError
from inferometer.wire.api import chat_text, line_of, message_text
from inferometer.workload.cache import cached_path, kept_arrays, replacing
from inferometer.workload.formats import Columns, Conversation, RowReader, looks_like
from inferometer.workload.rows import Ints, RowError, Rows, numbered_rows, reached
from inferometer.workload.writer import TokenCounter

VERSION = 3  # of the format of a survey; a new version invalidates cached ones
EXAMPLES = 3  # number of excluded rows that are named
NOTIFY_EVERY_S = 5.0
NONE = -1  # no length is requested

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The settings that affect the sessions, and no others, because they are part of the cache key."""

    kind: str
    turns: str = "single"
    columns: Columns = field(default_factory=dict)
    conversations: int | None = None
    sessions: int | None = None
    min_messages: int = 1
    min_tokens: int | None = None
    max_tokens: int | None = None
    min_output: int | None = None  # of recorded answers
    max_output: int | None = None
    max_total: int | None = None  # prompt and requested answer
    context: int | None = None  # tokens that fit into the model, prompt and answer
    output_tokens: int | None = None  # maximum requested output; None: that of the row
    prefix_chars: int = 100
    refuse: bool = False
    tools: bool = True  # whether the API supports tools
    where: dict[str, list[str]] = field(default_factory=dict)  # selects rows by values of columns
    named: bool = False  # for text APIs, messages are prefixed with their roles


@dataclass(slots=True)
class Survey:
    """The sessions of a dataset. Session i is part `part[i]` of row `row[i]`; its turns are those from `first[i]` to
    `first[i + 1]` of `inputs` and `outputs`."""

    row: Ints
    part: Ints
    first: Ints
    inputs: Ints
    outputs: Ints  # NONE if the row requests no length
    prefix: Ints  # a number per prefix
    rows_read: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    without_tools: int = 0  # sessions whose tools are not sent

    def __len__(self) -> int:
        return len(self.row)

    def turns(self, session: int) -> tuple[list[int], list[int]]:
        """Input tokens and requested output tokens of each turn."""
        turns = slice(int(self.first[session]), int(self.first[session + 1]))
        return self.inputs[turns].tolist(), self.outputs[turns].tolist()


def parts_of(conversation: Conversation, turns: str) -> list[list[int]]:
    """The sessions of a conversation, each as the message counts of its turns."""
    ends = conversation.turn_ends()
    if not ends:
        return []
    if turns == "conversation":
        return [ends]
    chosen = {"single": ends[:1], "questions": ends[:1], "whole": ends[-1:], "pieces": ends}[turns]
    return [[messages] for messages in chosen]


def is_alone(conversation: Conversation, turns: str) -> bool:
    """Whether only one question of a conversation is sent."""
    ends = conversation.turn_ends()
    return (turns in ("single", "questions") and ends[:1] == [1]) or (turns == "whole" and ends[-1:] == [1])


def surveyed(
    rows: Rows,
    reader: RowReader,
    wanted: Wanted,
    order: Ints,
    count: TokenCounter,
    key: tuple[Any, ...],
    notify: Notify,
) -> Survey:
    """The survey of rows in an order, cached; `key` identifies the order."""
    facts = orjson.dumps(wanted).decode()
    place = cached_path("survey", f"{Path(rows.name).name}.npz", VERSION, rows.facts, facts, key, count.by)
    if (kept := _kept(place)) is not None:
        return kept
    made = _Surveyor(rows, reader, wanted, count, notify).survey(order)
    with replacing(place) as file:
        np.savez(file, **_arrays(made))
    return made


_COLUMNS = ("row", "part", "first", "inputs", "outputs", "prefix")


def _arrays(survey: Survey) -> dict[str, Any]:
    notes = orjson.dumps([survey.rows_read, survey.left_out, survey.examples, survey.without_tools])
    return {name: getattr(survey, name) for name in _COLUMNS} | {"notes": np.frombuffer(notes, np.uint8)}


def _kept(place: Path) -> Survey | None:
    kept = kept_arrays(place)
    if kept is None:
        return None
    columns: dict[str, Any] = {name: kept[name] for name in _COLUMNS}
    return Survey(*columns.values(), *orjson.loads(kept["notes"].tobytes()))


def _is_wanted(row: Any, where: dict[str, list[str]]) -> bool:
    return isinstance(row, dict) and all(str(reached(row, name)) in values for name, values in where.items())


class _Surveyor:
    """Goes through the rows and collects usable sessions."""

    def __init__(self, rows: Rows, reader: RowReader, wanted: Wanted, count: TokenCounter, notify: Notify) -> None:
        self._rows, self._reader, self._wanted, self._count, self._notify = rows, reader, wanted, count, notify
        self._sessions: list[tuple[int, int, int]] = []  # row, part, prefix
        self._turns: list[tuple[int, int]] = []
        self._first = [0]
        self._conversations = 0
        self._left_out: Counter[str] = Counter()
        self._examples: list[tuple[int, str]] = []  # the first rows of the file, independent of the order
        self._without_tools = 0
        self._kinds: Counter[str | None] = Counter()  # the likely types of bad rows

    def survey(self, order: Ints) -> Survey:
        read = 0
        for number, row in self._with_progress(numbered_rows(self._rows, iter(order.tolist())), len(order)):
            read += 1
            self._take(number, row)
            if self._enough():
                break
        if self._wanted.refuse and self._examples:
            hint = "correct the row, or skip such rows: workload.unusable: skip"
            raise DataError(self._examples[0][1], hint)
        if not self._sessions:
            raise self._nothing(read)
        sessions = np.array(self._sessions, np.int64).T
        turns = np.array(self._turns, np.int64).T
        first = np.array(self._first, np.int64)
        columns = (sessions[0], sessions[1], first, turns[0], turns[1], sessions[2])
        examples = [text for _, text in self._examples]
        return Survey(*columns, read, dict(self._left_out), examples, self._without_tools)

    def _with_progress(self, rows: Iterable[tuple[int, Any]], total: int) -> Iterator[tuple[int, Any]]:
        notified_at = time.monotonic()
        for read, row in enumerate(rows):
            if read % 256 == 0 and time.monotonic() - notified_at > NOTIFY_EVERY_S:
                notified_at = time.monotonic()
                self._notify(f"reading {self._rows.name}, once: {read:,} of {total:,} rows")
            yield row

    def _enough(self) -> bool:
        wanted = self._wanted
        if wanted.conversations is not None and self._conversations >= wanted.conversations:
            return True
        single = wanted.turns != "pieces" and wanted.kind != "oasst all"
        return single and wanted.sessions is not None and len(self._sessions) >= wanted.sessions

    def _take(self, number: int, row: Any) -> None:
        try:
            if isinstance(row, RowError):
                raise row
            if self._wanted.where and not _is_wanted(row, self._wanted.where):
                self._left_out["not selected by where"] += 1
                return
            conversations = list(self._reader(row, self._wanted.columns))
        except RowError as error:
            self._kinds[None if isinstance(row, RowError) else looks_like(row)] += 1
            self._leave(number, "broken", str(error), broken=True)
            return
        part = taken = 0
        for conversation in conversations:
            if len(conversation.messages) < self._wanted.min_messages:
                self._leave(number, f"shorter than min_messages, {self._wanted.min_messages}")
                continue
            parts = parts_of(conversation, self._wanted.turns)
            taken += self._take_parts(number, part, conversation, parts)
            part += len(parts)
        self._conversations += taken > 0

    def _take_parts(self, number: int, part: int, conversation: Conversation, parts: list[list[int]]) -> int:
        if not parts:
            self._leave(number, "broken", "has no user message to send", broken=True)
            return 0
        before = self._lengths(conversation)
        taken = 0
        for at, ends in enumerate(parts):
            turns = [(before[end], self._output_length(conversation, before, end)) for end in ends]
            if self._fits(number, turns):
                self._sessions.append((number, part + at, self._prefix(conversation, ends[0])))
                self._turns += turns
                self._first.append(len(self._turns))
                self._without_tools += bool(conversation.tools) and not self._wanted.tools
                taken += 1
        return taken

    def _lengths(self, conversation: Conversation) -> list[int]:
        """The number of tokens before each message; tools count before the first, because every turn sends them."""
        count = self._count.count
        text = line_of if self._wanted.named and not is_alone(conversation, self._wanted.turns) else message_text
        sent = conversation.tools if self._wanted.tools else []
        tools = count(orjson.dumps(sent).decode()) if sent else 0
        before = [self._count.added + tools]
        for message in conversation.messages:
            before.append(before[-1] + count(text(message)))
        return before

    def _output_length(self, conversation: Conversation, before: list[int], end: int) -> int:
        """The requested output length: that of the row, or of the recorded answer."""
        if conversation.output_tokens is not None:
            return conversation.output_tokens
        if end == len(conversation.messages) or conversation.unanswered:
            return NONE
        return max(before[end + 1] - before[end], 1)

    def _fits(self, number: int, turns: list[tuple[int, int]]) -> bool:
        wanted = self._wanted
        longest = max(tokens for tokens, _ in turns)
        answers = [max(output, 0) for _, output in turns]
        if wanted.min_tokens is not None and longest < wanted.min_tokens:
            self._leave(number, f"shorter than min_tokens, {wanted.min_tokens}")
        elif wanted.max_tokens is not None and longest > wanted.max_tokens:
            self._leave(number, f"longer than max_tokens, {wanted.max_tokens}")
        elif wanted.min_output is not None and min(answers) < wanted.min_output:
            self._leave(number, f"answer shorter than min_output_tokens, {wanted.min_output}")
        elif wanted.max_output is not None and max(answers) > wanted.max_output:
            self._leave(number, f"answer longer than max_output_tokens, {wanted.max_output}")
        elif wanted.max_total is not None and self._most(turns) > wanted.max_total:
            self._leave(number, f"longer with its answer than max_total_tokens, {wanted.max_total}")
        elif wanted.context is not None and (most := self._most(turns)) > wanted.context:
            about = "" if self._count.exact else "about "
            what = f"needs {about}{most:,} tokens with its answer, the model's context has {wanted.context:,}"
            self._leave(number, "longer than the model's context", what, broken=True)
        else:
            return True
        return False

    def _most(self, turns: list[tuple[int, int]]) -> int:
        requested = self._wanted.output_tokens
        return max(tokens + (max(output, 1) if requested is None else requested) for tokens, output in turns)

    def _prefix(self, conversation: Conversation, end: int) -> int:
        return prefix_number(chat_text(conversation.messages[:end]), self._wanted.prefix_chars)

    def _leave(self, number: int, why: str, example: str = "", broken: bool = False) -> None:
        self._left_out[why] += 1
        if broken:
            self._examples = sorted([*self._examples, (number, f"{self._rows.where(number)} {example}")])[:EXAMPLES]

    def _nothing(self, read: int) -> DataError:
        """The error if no row is usable: a wrong type, a wrong column, or bounds that no row meets."""
        name, kind = self._rows.name, self._wanted.kind.partition(" ")[0]
        if not read:
            return DataError(f"{name}: has no rows", "is the file complete?")
        if self._left_out["broken"] == read and self._kinds:
            likely = self._kinds.most_common(1)[0][0]
            hint = "set workload.columns if the file has other field names"
            if likely is not None and likely != kind:
                hint = f"the rows look like workload.type: {likely}"
            first = self._examples[0][1].removeprefix(f"{name}: ")
            return DataError(f"{name}: none of {read:,} rows is of type {kind}: {first}", hint)
        why = ", ".join(f"{count:,} {reason}" for reason, count in self._left_out.items())
        example = f" ({self._examples[0][1]})" if self._examples else ""
        return DataError(f"{name}: nothing is left to send: {why}{example}", "relax the workload's filters")


def prefix_number(text: str, characters: int) -> int:
    """A number that identifies a prefix: the same for the same characters, on every machine."""
    digest = blake2b(text[:characters].encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1  # 63 bits fit a signed integer column
