"""Sessions from the rows of a dataset: which row is which session is a pure function of (seed, index)."""

from dataclasses import dataclass

from inferometer.errors import DataError
from inferometer.plan.workloads.dataset import Conversations, Dataset
from inferometer.wire.api import api_of
from inferometer.wire.dialogue import as_text
from inferometer.workload.conversation import Conversation, Json
from inferometer.workload.draws import Draws, Purpose, pause_quantile, quantile_of
from inferometer.workload.formats import reader_of
from inferometer.workload.rows import Ints, RowError, Rows
from inferometer.workload.session import Prompt, Request, Session, WorkloadContext
from inferometer.workload.survey import NONE, Survey, Wanted, is_alone, parts_of, prefix_number


def is_live(spec: Dataset, kind: str) -> bool:
    """Whether answers that came back are put into later turns; MT-Bench has no others."""
    return kind == "mt_bench" or getattr(spec, "answers", None) == "live"


@dataclass(slots=True)
class RecordedSessions:
    """A function from an index to a session; after the last session the first comes again, which is said once."""

    spec: Dataset
    rows: Rows
    wanted: Wanted
    survey: Survey
    order: Ints
    draws: Draws
    context: WorkloadContext
    counted_by: str
    exact: bool
    _said: bool = False

    def __len__(self) -> int:
        """Sessions before they repeat."""
        return len(self.order)

    def __call__(self, index: int) -> Session:
        if index >= len(self.order):
            self._say_again()
        chosen = int(self.order[index % len(self.order)])
        conversation, asks = self._part(int(self.survey.row[chosen]), int(self.survey.part[chosen]))
        inputs, _recorded = self.survey.turns(chosen)
        outputs = [None if tokens == NONE else tokens for tokens in self.outputs(index)]
        pauses = self._pauses(index, len(asks))
        turns = [
            self._request(conversation, conversation.messages[:asked], tokens, output, pause)
            for asked, tokens, output, pause in zip(asks, inputs, outputs, pauses, strict=True)
        ]
        return Session(turns, live=is_live(self.spec, self.wanted.kind) and len(turns) > 1)

    def _part(self, row: int, part: int) -> tuple[Conversation, list[int]]:
        for conversation in reader_of(self.wanted.kind)(self._row(row), self.wanted.columns):
            if len(conversation.messages) < self.wanted.min_messages:
                continue
            parts = parts_of(conversation, self.wanted.turns)
            if part < len(parts):
                return conversation, parts[part]
            part -= len(parts)
        raise DataError(f"{self.rows.where(row)} has changed since it was read", "run again: the file is read anew")

    def _row(self, row: int) -> object:
        try:
            return self.rows[row]
        except RowError as error:
            raise DataError(f"{self.rows.where(row)} {error}", "the file has changed while it was used") from None

    def outputs(self, index: int) -> list[int]:
        """Tokens asked of each answer of a session: what the plan asks wins over what was recorded."""
        recorded = self.survey.turns(int(self.order[index % len(self.order)]))[1]
        if self.spec.output_tokens is None:
            return recorded
        drawn = quantile_of(self.spec.output_tokens)
        return [drawn(u) for u in self.draws.uniforms(Purpose.ANSWER, index, 0, len(recorded))]

    def _pauses(self, index: int, turns: int) -> list[float]:
        if turns == 1 or not isinstance(self.spec, Conversations):
            return [0.0] * turns
        drawn = pause_quantile(self.spec.think)
        return [0.0, *map(drawn, self.draws.uniforms(Purpose.CHOICES, index, 0, turns - 1))]

    def _request(
        self, conversation: Conversation, messages: list[Json], tokens: int, output: int | None, pause: float
    ) -> Request:
        """The messages of a session's turns are the same objects: a live answer put into one turn is in all later."""
        prompt = self._prompt(conversation, messages)
        return Request(
            prompt=prompt,
            output_tokens=output,
            input_tokens=tokens if self.exact and isinstance(prompt, str) and not self._templated else None,
            think_s=pause,
            body={"tools": conversation.tools} if conversation.tools and api_of(self.context.api).takes_tools else {},
            headers=self._headers(messages),
        )

    @property
    def _templated(self) -> bool:
        """Whether the server puts a template around prompts that only it can count."""
        return api_of(self.context.api).takes_messages and self.spec.tokenizer != "server"

    def _prompt(self, conversation: Conversation, messages: list[Json]) -> Prompt:
        """A question that is alone goes as text, which every API takes. A conversation does so where only text goes,
        but not before its live answers are in it; all its pieces then begin alike."""
        alone = len(messages) == 1 and isinstance(messages[0]["content"], str)
        if alone and (not self.wanted.named or is_alone(conversation, self.wanted.turns)):
            return str(messages[0]["content"])
        return as_text(messages) if self.wanted.named else messages

    def _headers(self, messages: list[Json]) -> dict[str, str]:
        name = getattr(self.spec, "prefix_header", None)
        return {name: f"{prefix_number(as_text(messages), self.wanted.prefix_chars):016x}"} if name else {}

    def _say_again(self) -> None:
        if not self._said:
            self._said = True
            self.context.note(again_note(self.rows.name, len(self)))


def again_note(name: str, sessions: int) -> str:
    return (
        f"{name}: after {sessions:,} sessions the first one comes again, and a prefix cache may know it; "
        "for more, loosen the workload's limits or take a larger dataset"
    )
