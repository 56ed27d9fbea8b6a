"""`Record`: everything that is stored about one request. Earlier stages create it, later ones only read it.

Instants are nanoseconds on one monotonic clock, kept raw; no derived number is stored (docs/reference/measures.md).
Logs hold records as arrays: new fields go to the end, with a default.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

if TYPE_CHECKING:
    from inferometer.record.columns import Categorical, Floats, Ints, SampleColumns


Outcome = Literal["ok", "connect", "status", "timeout", "cut", "bad", "oversized", "client", "cancelled", "unfinished"]

OUTCOMES: dict[Outcome, str] = {
    "ok": "answered completely",
    "connect": "no connection, or it broke before the response began",
    "status": "an HTTP status other than 200",
    "timeout": "a timeout of the plan passed",
    "cut": "the stream ended before it was complete",
    "bad": "the response does not follow the API",
    "oversized": "the response was larger than target.bounds of the plan, or in too many parts to be read at once",
    "client": "we could not send or read it: open files, local ports, memory (ours, not the target's failure)",
    "cancelled": "we ended it: an interrupt, a stop rule or load.cancel (censored, not failed)",
    "unfinished": "still running at the drain deadline (censored, not failed)",
}
OUTCOME_WORDS: dict[str, str] = {  # after a count: `12 × timed out`
    "connect": "connection failed",
    "timeout": "timed out",
    "cut": "stream cut off",
    "bad": "invalid response",
    "oversized": "response too large",
    "client": "failed on this machine",
}


def outcome_text(outcome: str) -> str:
    """`status_429` as `HTTP 429`, `timeout` as `timed out`."""
    kind, _, status = outcome.partition("_")
    assert kind in OUTCOMES, outcome
    return f"HTTP {status}" if kind == "status" and status else OUTCOME_WORDS.get(kind, kind)


AS_PLANNED = "cancelled as planned, by load.cancel"  # the error of a record that was cancelled on purpose
CENSORED: frozenset[Outcome] = frozenset({"client", "cancelled", "unfinished"})  # they tell nothing about the target

# The range of a 64-bit column; its smallest value means missing (record/columns.py).
Whole = Annotated[int, msgspec.Meta(ge=-(2**63) + 1, le=2**63 - 1)]


class Record(msgspec.Struct, array_like=True, kw_only=True, gc=False):
    """One request. `read_*` are packed little-endian int64: one entry per token-bearing read."""

    session: Whole  # global index of the session; one request is a session of one turn
    turn: Whole = 0
    turns: Whole = 1  # number of turns of the session
    traffic: str = ""  # name of the traffic class
    stage: Whole = 0
    shard: Whole = 0
    replica: str = ""  # URL of the target that was used

    scheduled_at: Whole
    ready_at: Whole | None = None
    sent_at: Whole | None = None  # send time of the attempt that was answered
    headers_at: Whole | None = None
    visible_at: Whole | None = None  # first read with a visible (non-reasoning) token
    ended_at: Whole | None = None
    connect_ns: Whole = 0  # connection time, part of ready..sent
    tls_ns: Whole = 0
    retry_ns: Whole = 0  # time of a first attempt on a dead keep-alive connection

    read_at: bytes = b""
    read_tokens: bytes = b""  # tokens in each read
    read_slack: bytes = b""  # uncertainty: how much earlier (ns) the tokens may have arrived

    requested_input: Whole | None = None
    requested_output: Whole | None = None
    input_tokens: Whole | None = None  # the server's usage
    output_tokens: Whole | None = None
    cached_tokens: Whole | None = None
    reasoning_tokens: Whole | None = None
    counted_tokens: Whole | None = None  # tokens counted by the client, to compare with the usage
    # source of read_tokens; "length": from the characters of the text
    tokens_by: Literal["usage", "running usage", "events", "tokenizer", "length"] | None = None
    events: Whole = 0
    bytes_sent: Whole = 0
    bytes_received: Whole = 0

    status: Whole | None = None
    finish_reason: str | None = None
    outcome: Outcome = "ok"
    error: str | None = None  # one line, secrets removed
    retry_after_s: float | None = None
    request_id: str | None = None  # the id that the server gave its answer
    prompt: str | None = None  # only if the plan saves prompts
    answer: str | None = None
    structure: Literal["valid", "invalid", "unchecked"] | None = None  # whether an answer has the requested form
    model: str | None = None  # requested model or adapter, if the workload names one per session


# Fields that are known without the server: all that is kept of a request whose response cannot be stored.
_OWN = (
    *("session", "turn", "turns", "traffic", "stage", "shard", "replica", "scheduled_at", "ready_at", "sent_at"),
    *("headers_at", "ended_at", "connect_ns", "tls_ns", "retry_ns", "requested_input", "requested_output", "events"),
    *("bytes_sent", "bytes_received", "status"),
)


def without_response(record: Record, error: str) -> Record:
    """The record of a request whose response cannot be stored."""
    return Record(**{name: getattr(record, name) for name in _OWN}, outcome="bad", error=error)


def check_reads(record: Record) -> None:
    """Raises ValueError if the reads of a record are inconsistent."""
    size = len(record.read_at)
    if size % 8 or len(record.read_tokens) != size or len(record.read_slack) not in (0, size):
        raise ValueError("read_at, read_tokens and read_slack differ in length")


class Sample(msgspec.Struct, array_like=True, frozen=True, gc=False):
    source: str  # source of the sample: "gpu:0", "http://host:8000/metrics", "host", "client"
    name: str  # name of the value: "power_w", "vllm:num_requests_running"
    at: Whole  # nanoseconds on the monotonic clock of the records
    value: float
    labels: dict[str, str] = {}


@dataclass(frozen=True, eq=False, slots=True)
class Samples:
    """Many samples as columns, in order of time. `labels` are JSON objects, with few distinct values."""

    source: "Categorical"
    name: "Categorical"
    at: "Ints"
    value: "Floats"
    labels: "Categorical"

    @classmethod
    def of(cls, samples: "Iterable[Sample] | SampleColumns") -> "Samples":
        from inferometer.record.columns import SampleColumns

        return (samples if isinstance(samples, SampleColumns) else SampleColumns(samples)).in_order()

    def __len__(self) -> int:
        return len(self.at)

    def sample(self, i: int) -> Sample:
        labels = json.loads(self.labels[i] or "{}")
        return Sample(str(self.source[i]), str(self.name[i]), int(self.at[i]), float(self.value[i]), labels)

    def by_source(self) -> "dict[str, Samples]":
        """The samples of each source, in order of time."""
        import numpy as np

        from inferometer.record.columns import Categorical

        order = np.argsort(self.source.codes, kind="stable")
        ends = np.bincount(
            self.source.codes + 1, minlength=len(self.source.categories) + 1
        ).cumsum()  # the missing first
        parts = {}
        for source, start, end in zip(self.source.categories, ends[:-1], ends[1:], strict=True):
            rows = order[start:end]
            own = Categorical(np.zeros(len(rows), np.int32), (source,))
            names, labels = self.name.take(rows), self.labels.take(rows)
            parts[source] = Samples(own, names, self.at[rows], self.value[rows], labels)
        return parts

    def series(self, name: str, source: str | None = None) -> "tuple[Ints, Floats]":
        """The instants and values of a name, from one source or from all."""
        chosen = self.name.mask(name)
        if source is not None:
            chosen &= self.source.mask(source)
        return self.at[chosen], self.value[chosen]
