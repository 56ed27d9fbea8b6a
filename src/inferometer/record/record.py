"""`Record`: all that is kept of one request. All before it makes it, all after it only reads it.

Instants are nanoseconds on one monotonic clock, kept raw; no derived number is stored
(docs/concepts/measures.md). Logs hold records as arrays: new fields go to the end, with a default.
"""

from typing import Literal

import msgspec

Outcome = Literal["ok", "connect", "status", "timeout", "cut", "bad", "oversized", "cancelled", "unfinished"]

OUTCOMES: dict[Outcome, str] = {
    "ok": "answered completely",
    "connect": "no connection, or it broke before the response began",
    "status": "an HTTP status other than 200",
    "timeout": "a time limit of the plan passed",
    "cut": "the stream ended before it was complete",
    "bad": "the response was not what the API promises",
    "oversized": "the response was larger than target.bounds of the plan",
    "cancelled": "we ended it: an interrupt or a stop rule (censored, not failed)",
    "unfinished": "still running at the drain deadline (censored, not failed)",
}
CENSORED: frozenset[Outcome] = frozenset({"cancelled", "unfinished"})


class Record(msgspec.Struct, array_like=True, kw_only=True, gc=False):
    """One request. `read_*` are packed little-endian int64: one entry per token-bearing read."""

    session: int  # global index of the session; one request is a session of one turn
    turn: int = 0
    turns: int = 1  # turns this session has
    traffic: str = ""  # name of the traffic class
    stage: int = 0
    shard: int = 0
    replica: str = ""  # which of the target's URLs

    scheduled_at: int
    ready_at: int | None = None
    sent_at: int | None = None  # of the attempt that was answered
    headers_at: int | None = None
    visible_at: int | None = None  # first read with a visible (non-reasoning) token
    ended_at: int | None = None
    connect_ns: int = 0  # inside ready..sent, kept apart
    tls_ns: int = 0
    retry_ns: int = 0  # span of a first attempt on a keep-alive connection that turned out dead

    read_at: bytes = b""
    read_tokens: bytes = b""  # all tokens that came with the read
    read_slack: bytes = b""  # how much earlier (ns) its tokens may have arrived: the instant's uncertainty

    asked_input: int | None = None
    asked_output: int | None = None
    input_tokens: int | None = None  # the server's usage
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    counted_tokens: int | None = None  # what we counted ourselves, to hold against the usage
    # how read_tokens came about; "length": from the characters of the text
    tokens_by: Literal["usage", "running usage", "events", "tokenizer", "length"] | None = None
    events: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0

    status: int | None = None
    finish_reason: str | None = None
    outcome: Outcome = "ok"
    error: str | None = None  # one line, secrets removed
    retry_after_s: float | None = None
    request_id: str | None = None  # the server's id of the answer
    prompt: str | None = None  # only when the plan asks to save them
    answer: str | None = None
