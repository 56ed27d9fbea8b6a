"""The metronome as child processes: starts them, fetches their truth, and ends them with their parent; compares a
client's records with that truth; and the formulas of the queue with `--service`."""

import http.client
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Literal, TypedDict

import numpy as np
import orjson

from inferometer.errors import TargetError
from inferometer.record.columns import Ints, Mask, Records, known, offsets_of
from inferometer.wire.child import python_command

# -- events of a stream ------------------------------------------------------------------------------------------------

# The bytes that the metronome sends, prepared so that an event costs one concatenation: vLLM's events with chunked
# framing. All events of a stream have the same size, because the token's text compensates for the digits of the counts.

MODEL = "metronome"
CREATED = 1_700_000_000  # any time with the same number of digits
LONGEST = 100_000  # tokens of an answer
_TEXT = b" perpendicularities"  # cut to the width that the counts leave
_WIDTH = 18  # width of a token's text and the digits of its two counts


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """The fields of a request that the metronome uses."""

    api: Literal["completions", "chat"]
    tokens: int
    prompt_tokens: int
    usage: bool  # a usage event at the end
    running_usage: bool  # counts in every event

    @classmethod
    def of(cls, path: str, body: bytes) -> "StreamRequest | str":
        """The request in a body, or the error in it."""
        try:
            fields = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            return f"the body is not JSON: {error}"
        if not isinstance(fields, dict) or not fields.get("stream"):
            return "the metronome only streams: set stream to true"
        tokens = fields.get("max_completion_tokens") or fields.get("max_tokens") or 16
        if not isinstance(tokens, int) or not 1 <= tokens <= LONGEST:
            return f"max_tokens must be from 1 to {LONGEST}, got {tokens!r}"
        chat = path.endswith("/chat/completions")
        options = fields.get("stream_options") or {}
        return cls(
            api="chat" if chat else "completions",
            tokens=tokens,
            prompt_tokens=_prompt_tokens(fields.get("messages" if chat else "prompt")),
            usage=bool(options.get("include_usage")),
            running_usage=bool(options.get("continuous_usage_stats")),
        )


@dataclass(frozen=True, slots=True)
class Score:
    """All sends of one answer after its headers: one per token, the last of them with the end of the stream."""

    id: str
    payloads: Iterator[bytes]


def score(requested: StreamRequest, number: int) -> Score:
    """The sends for a request; `number` makes its id."""
    answer_id = _answer_id(requested, number)
    prefix, tails = _shape(requested)
    events: Iterator[bytes] = map(prefix.replace(_answer_id(requested, 0), answer_id).__add__, tails)
    last = chunk(_event(requested, answer_id, requested.tokens, b'"length"')) + _ending(requested, answer_id)
    payloads = chain(events, (last,))
    if requested.api == "chat":
        role = chunk(_role_event(requested, answer_id))  # carries no token: sent with the first one, as in vLLM
        payloads = chain((role + next(payloads),), payloads)
    return Score(answer_id.decode(), payloads)


def chunk(data: bytes) -> bytes:
    """A chunk of HTTP's chunked coding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@lru_cache(maxsize=64)
def _shape(requested: StreamRequest) -> tuple[bytes, list[bytes]]:
    """The common parts of answers to equal requests: the event up to its text, and its rest (except the last event)."""
    events = [chunk(_event(requested, _answer_id(requested, 0), i, b"null")) for i in range(1, requested.tokens)]
    cut = events[0].index(_TEXT[:2]) if events else 0
    return events[0][:cut] if events else b"", [event[cut:] for event in events]


def _answer_id(requested: StreamRequest, number: int) -> bytes:
    return b"%s-%016x" % (b"chatcmpl" if requested.api == "chat" else b"cmpl", number)


def _event(requested: StreamRequest, answer_id: bytes, count: int, finish: bytes) -> bytes:
    """One token of the answer, its `count`-th."""
    usage = _usage(requested, count) if requested.running_usage else b""
    room = _WIDTH - len(b"%d%d" % (count, count + requested.prompt_tokens)) if requested.running_usage else _WIDTH // 2
    text = _TEXT[:room]
    if requested.api == "chat":
        choice = b'"delta":{"content":"%s"},"logprobs":null,"finish_reason":%s,"token_ids":null' % (text, finish)
    else:
        choice = (
            b'"text":"%s","logprobs":null,"finish_reason":%s,"stop_reason":null,"prompt_token_ids":null,'
            b'"token_ids":null' % (text, finish)
        )
    return b'data: %s"choices":[{"index":0,%s}]%s}\n\n' % (_opening(requested, answer_id), choice, usage)


def _role_event(requested: StreamRequest, answer_id: bytes) -> bytes:
    usage = _usage(requested, 0) if requested.running_usage else b""
    choice = b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null'
    return b'data: %s"choices":[{"index":0,%s}]%s}\n\n' % (_opening(requested, answer_id), choice, usage)


def _ending(requested: StreamRequest, answer_id: bytes) -> bytes:
    usage = b'data: %s"choices":[]%s}\n\n' % (_opening(requested, answer_id), _usage(requested, requested.tokens))
    return (chunk(usage) if requested.usage else b"") + chunk(b"data: [DONE]\n\n") + chunk(b"")


def _opening(requested: StreamRequest, answer_id: bytes) -> bytes:
    kind = b"chat.completion.chunk" if requested.api == "chat" else b"text_completion"
    return b'{"id":"%s","object":"%s","created":%d,"model":"%s",' % (answer_id, kind, CREATED, MODEL.encode())


def _usage(requested: StreamRequest, count: int) -> bytes:
    counts = (requested.prompt_tokens, requested.prompt_tokens + count, count)
    return b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}' % counts


def _prompt_tokens(prompt: Any) -> int:
    """The number of prompt tokens: ids, or words of a text."""
    match prompt:
        case str():
            return len(prompt.split())
        case [{}, *_]:
            return sum(_prompt_tokens(message.get("content")) for message in prompt)
        case list():
            return len(prompt)
        case _:
            return 0


# -- metronome truth -------------------------------------------------------------------------------------------------


class TruthFacts(TypedDict):
    """The first line of `GET /truth`."""

    interval_ns: int
    id: list[str]
    received_at: list[int]
    first_due_at: list[int]
    sent: list[int]  # tokens of each request
    held: list[tuple[int, int, int]]  # request, event, delay of its send in ns


@dataclass(frozen=True, eq=False, slots=True)
class Truth:
    """The metronome's log: request i sent its tokens at `sent_at[offsets[i]:offsets[i + 1]]`."""

    ids: list[str]
    received_at: Ints
    first_due_at: Ints
    offsets: Ints
    sent_at: Ints  # just before the send
    took_ns: Ints  # 0, or the duration of a delayed send, which happened at some time in it
    interval_ns: int

    @classmethod
    def read(cls, data: bytes) -> "Truth":
        """Parse the bytes of `GET /truth`."""
        line, _, instants = data.partition(b"\n")
        facts: TruthFacts = json.loads(line)
        offsets = offsets_of(np.array(facts["sent"], np.int64))
        took_ns = np.zeros(offsets[-1], np.int64)
        for request, event, span in facts["held"]:
            took_ns[offsets[request] + event] = span
        return cls(
            ids=facts["id"],
            received_at=np.array(facts["received_at"], np.int64),
            first_due_at=np.array(facts["first_due_at"], np.int64),
            offsets=offsets,
            sent_at=np.frombuffer(instants, np.int64),
            took_ns=took_ns,
            interval_ns=facts["interval_ns"],
        )

    @classmethod
    def together(cls, parts: Sequence["Truth"]) -> "Truth":
        """Merge the truth of processes that share a port."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            ids=[answer_id for part in parts for answer_id in part.ids],
            received_at=np.concatenate([part.received_at for part in parts]),
            first_due_at=np.concatenate([part.first_due_at for part in parts]),
            offsets=offsets_of(np.concatenate([np.diff(part.offsets) for part in parts])),
            sent_at=np.concatenate([part.sent_at for part in parts]),
            took_ns=np.concatenate([part.took_ns for part in parts]),
            interval_ns=parts[0].interval_ns,
        )

    def since_sent(self, event: Ints, at: Ints) -> Ints:
        """The time from the sends of events to the given times; 0 for a time within a delayed send."""
        earliest = self.sent_at[event]
        return at - np.clip(at, earliest, earliest + self.took_ns[event])

    def lateness(self) -> Ints:
        """How much later than its deadline every event was sent."""
        counts = np.diff(self.offsets)
        number = np.arange(len(self.sent_at)) - np.repeat(self.offsets[:-1], counts)
        return self.sent_at - (np.repeat(self.first_due_at, counts) + number * self.interval_ns)

    def events_per_s(self) -> float:
        """The rate between the first and the last send, including pauses before the first tokens of a round."""
        span_ns = int(self.sent_at.max() - self.sent_at.min()) if len(self.sent_at) > 1 else 0
        return (len(self.sent_at) - 1) / span_ns * 1e9 if span_ns else 0.0


@dataclass(frozen=True, eq=False, slots=True)
class ReadErrors:
    """A client's reads compared with the sends of their tokens, in nanoseconds; one entry per token-bearing read, or
    per request (`request_*`). A positive error means that the client was late."""

    read_error: Ints  # read_at - send of the newest token of the read
    oldest: Ints  # read_at - send of its oldest token: must be within `slack`
    slack: Ints
    request_ttft: Ints  # measured by the client: first read - sent_at
    request_true_ttft: Ints  # true at the server: first send - received_at
    request_error: Ints  # first read - send of its newest token: the client's error
    unmatched: int  # requests that are missing in the truth, or that have tokens that it did not send

    def inside(self, allowance_ns: int) -> Mask:
        """Reads whose tokens were all sent within the stated uncertainty; the allowance covers the unobservable path
        through the kernel, and the conversion between two clocks."""
        return (self.read_error >= -allowance_ns) & (self.oldest <= self.slack + allowance_ns)


def compare(records: Records, truth: Truth) -> ReadErrors:
    """Join records and truth by the answer's id, and every read with the sends of its tokens."""
    place = {answer_id: i for i, answer_id in enumerate(truth.ids)}
    index = np.array([place.get(answer_id, -1) for answer_id in records.request_id], np.int64)
    whole = _tokens(records) <= np.diff(truth.offsets)[index]
    usable = (index >= 0) & whole & (records.read_counts() > 0) & known(records.sent_at)
    chosen, index = records.take(usable), index[usable]
    counts, begins = chosen.read_counts(), chosen.read_offsets[:-1]
    upto = np.cumsum(chosen.read_tokens)
    upto -= np.repeat((upto - chosen.read_tokens)[begins], counts)  # tokens of the request up to and with the read
    base = np.repeat(truth.offsets[:-1][index], counts)
    read_error = truth.since_sent(base + upto - 1, chosen.read_at)
    return ReadErrors(
        read_error=read_error,
        oldest=truth.since_sent(base + upto - chosen.read_tokens, chosen.read_at),
        slack=chosen.read_slack,
        request_ttft=chosen.read_at[begins] - chosen.sent_at,
        request_true_ttft=truth.sent_at[truth.offsets[:-1][index]] - truth.received_at[index],
        request_error=read_error[begins],
        unmatched=len(records) - len(chosen),
    )


def _tokens(records: Records) -> Ints:
    """The sum of tokens over each record's reads."""
    upto: Ints = np.concatenate([np.zeros(1, np.int64), np.cumsum(records.read_tokens)])
    tokens: Ints = upto[records.read_offsets[1:]] - upto[records.read_offsets[:-1]]
    return tokens


def quantile_s(values_ns: Ints, q: float) -> float | None:
    """A quantile of nanoseconds in seconds; None if there are no values."""
    if not len(values_ns):
        return None
    return float(np.quantile(values_ns, q, method="inverted_cdf")) / 1e9


# -- metronome process -----------------------------------------------------------------------------------------------

PATIENCE_S = 60.0  # timeout for an answer, and for the end


CORES_TO_SHARE = 4  # from this number on, two metronomes share the port; with fewer they would take the client's cores


@dataclass(frozen=True, slots=True)
class RunningMetronome:
    """The addresses of a running metronome. Fetch the truth after the load, because writing it takes time."""

    port: int
    pids: tuple[int, ...]
    own_ports: tuple[int, ...]  # of each process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def truth(self) -> Truth:
        return Truth.together([Truth.read(answer) for answer in self._from_all("GET")])

    def forget(self) -> None:
        """Delete the truth and start a new one."""
        self._from_all("DELETE")

    def _from_all(self, method: str) -> list[bytes]:
        return [_response(port, method, "/truth") for port in self.own_ports]


def _response(port: int, method: str, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, path)
        return connection.getresponse().read()
    except (OSError, http.client.HTTPException) as error:
        raise TargetError(f"the metronome on port {port} no longer answers: {error}") from error
    finally:
        connection.close()


def processes_for(service_s: float | None) -> int:
    """The number of processes: two if there are enough cores and Linux balances connections; one for a queue."""
    linux = sys.platform.startswith("linux")
    return 2 if linux and service_s is None and (os.cpu_count() or 1) >= CORES_TO_SHARE else 1


@contextmanager
def running_metronome(
    first_s: float = 0.05, interval_s: float = 0.0054, service_s: float | None = None, processes: int | None = None
) -> Iterator[RunningMetronome]:
    """Start a metronome on a free port, with a number of processes or as many as fit the machine."""
    count = processes_for(service_s) if processes is None else processes
    args = ["--first", f"{first_s!r}s", "--interval", f"{interval_s!r}s"]
    args += [] if service_s is None else ["--service", f"{service_s!r}s"]
    with ExitStack() as stack:
        port, started = 0, []
        for number in range(count):
            started.append(stack.enter_context(_process([*args, "--port", str(port), "--number", str(number)])))
            port = started[0]["port"]
        yield RunningMetronome(
            port, tuple(process["pid"] for process in started), tuple(process["own_port"] for process in started)
        )


@contextmanager
def _process(args: list[str]) -> Iterator[dict[str, int]]:
    """One process, and its JSON line; it ends when its stdin is closed."""
    command = python_command("inferometer.simulator.metronome", *args)
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    try:
        line = child.stdout.readline()
        if not line:
            raise TargetError(f"the metronome did not start, exit code {child.wait(PATIENCE_S)}")
        yield json.loads(line)
    finally:
        child.stdin.close()
        child.stdout.close()
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    try:
        child.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


# -- erlang ----------------------------------------------------------------------------------------------------------


def waits_at_most(t: float, rate: float, service_s: float) -> float:
    """The share of requests that wait at most t."""
    load = rate * service_s
    if load >= 1:
        return 0.0
    late = [t - k * service_s for k in range(int(t / service_s) + 1)]
    terms = ((-rate * span) ** k / math.factorial(k) * math.exp(rate * span) for k, span in enumerate(late))
    return (1 - load) * sum(terms)


def true_rate(t: float, share: float, service_s: float) -> float:
    """The highest rate at which this share waits at most t."""
    low, high = 0.0, 1 / service_s
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if waits_at_most(t, middle, service_s) >= share else (low, middle)
    return low
