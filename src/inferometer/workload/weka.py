"""Sessions of coding agents with their sub-agents, recorded as lengths and hashed blocks (Weka's KV cache tester, the
datasets `cc-traces-weka-*`): texts are made up, equal blocks are equal texts of one session, and calls that ran at once
do so again.

A call waits for the one before it of the same agent, whose answer is in its prompt, and for the closest one that had
ended before it began.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inferometer.errors import DataError
from inferometer.plan.workloads.recorded import Weka
from inferometer.workload.draws import Draws, Numbers, Purpose, numbers
from inferometer.workload.formats import Json
from inferometer.workload.otel import closest, documents, pause_s, reduced
from inferometer.workload.rows import RowError
from inferometer.workload.session import NOWHERE, Request, Session, WorkloadContext
from inferometer.workload.writer import writer_of

_SUBAGENT = "subagent"


@dataclass(slots=True)
class HashedCall:
    """One request. Times are seconds after the first call of its trace; `agent` distinguishes main and sub-agents."""

    agent: str
    start_s: float
    end_s: float
    input_tokens: int
    output_tokens: int
    hash_ids: list[int]
    system_tokens: int
    block_tokens: int
    model: str | None = None


@dataclass(slots=True)
class HashedTrace:
    id: str
    calls: list[HashedCall] = field(default_factory=list)


def weka(spec: Weka, seed: int, traffic: int, nonce: str, context: WorkloadContext = NOWHERE) -> "WekaSessions":
    """The sessions of all traces, in the order of their files."""
    traces: list[HashedTrace] = []
    left_out = 0
    for where, document in documents(spec):
        try:
            trace = trace_in(document, spec)
        except (RowError, KeyError, TypeError, ValueError) as error:
            if spec.unusable == "refuse":
                text = f"{where}: is no trace of hashed blocks: {error}"
                raise DataError(text, "workload.unusable: skip") from None
            left_out += 1
            continue
        longest = max(call.input_tokens + call.output_tokens for call in trace.calls)
        if spec.below_tokens is not None and longest >= spec.below_tokens:
            left_out += 1
            continue
        traces.append(trace)
    chosen = traces[spec.skip :][: spec.limit]
    if not chosen:
        raise DataError("workload: no trace can be used", "traces have requests with t, in, out and hash_ids")
    count = sum(len(trace.calls) for trace in chosen)
    skipped = f", {left_out} traces skipped" if left_out else ""
    context.note(f"traces: {count:,} calls in {len(chosen):,} sessions{skipped}")
    return WekaSessions(spec, chosen, Draws(seed, traffic), nonce.encode(), context)


class WekaSessions:
    """A function from an index to a session."""

    def __init__(
        self, spec: Weka, traces: list[HashedTrace], draws: Draws, nonce: bytes, context: WorkloadContext
    ) -> None:
        self.spec, self.traces = spec, traces
        self._draws, self._nonce = draws, nonce
        self._writer = writer_of("text", 10_000, spec.tokenizer, context)

    def __len__(self) -> int:
        return len(self.traces)

    def __call__(self, index: int) -> Session:
        number = index % len(self.traces)
        calls = self.traces[number].calls
        requests = []
        for at, call in enumerate(calls):
            after = reduced(calls, [*_before(calls, at), *closest(calls, at)])
            pause = pause_s(calls, at, after, self.spec.max_wait)
            requests.append(self._request(call, number, index // len(self.traces), after, pause))
        return Session(requests)

    def _request(self, call: HashedCall, trace: int, lap: int, after: list[int], pause: float) -> Request:
        model = self.spec.model or self.spec.models.get(call.model or "")
        body: Json = {"temperature": 0.0} | ({"model": model} if model else {})
        messages = self._messages(call, b"%d %d " % (trace, lap))
        return Request(messages, call.output_tokens, call.input_tokens, pause, body, after=tuple(after))

    def _messages(self, call: HashedCall, scope: bytes) -> list[Json]:
        """The system prompt and the tools in whole blocks, then all else as one message of the user."""
        tokens = self._tokens(call, scope)
        edge = min(-(-call.system_tokens // call.block_tokens) * call.block_tokens, len(tokens))
        parts = [("system", tokens[:edge]), ("user", tokens[edge:])]
        return [{"role": role, "content": self._writer.write(part)} for role, part in parts if len(part)]

    def _tokens(self, call: HashedCall, scope: bytes) -> Numbers:
        blocks = [self._block(hash_id, call.block_tokens, scope) for hash_id in call.hash_ids]
        known = np.concatenate(blocks)[: call.input_tokens] if blocks else np.empty(0, np.uint32)
        key = self._nonce + scope + f"{call.agent} {call.start_s}".encode()
        rest = numbers(key, call.input_tokens - len(known))
        return np.concatenate([known, rest]) if len(known) else rest

    def _block(self, hash_id: int, tokens: int, scope: bytes) -> Numbers:
        key = self._draws.key(Purpose.BLOCK, hash_id % 2**64)
        return numbers(self._nonce + scope + key, tokens)


def _before(calls: list[HashedCall], at: int) -> list[int]:
    """The call before it of the same agent, where that was over."""
    for earlier in range(at - 1, -1, -1):
        if calls[earlier].agent == calls[at].agent and calls[earlier].end_s <= calls[at].start_s:
            return [earlier]
    return []


# -- traces ----------------------------------------------------------------------------------------------------------


def trace_in(document: Any, spec: Weka) -> HashedTrace:
    """`RowError` where it holds no calls."""
    if not isinstance(document, Mapping) or not isinstance(document.get("requests"), list):
        raise RowError("it has no requests")
    block = int(document.get("block_size") or spec.block_tokens)
    calls = list(_calls(document, block))
    if not calls:
        raise RowError("it has no requests")
    calls.sort(key=lambda call: (call.start_s, call.end_s))
    _close_gaps(calls, spec.max_gap)
    return HashedTrace(str(document.get("id") or ""), calls)


def _calls(document: Mapping[str, Any], block: int) -> Iterator[HashedCall]:
    for number, entry in enumerate(document["requests"]):
        if entry.get("type") != _SUBAGENT:
            yield _call(entry, "", document, block, 0.0)
            continue
        inner = entry.get("requests") or []
        relative = bool(inner) and float(inner[0]["t"]) < float(entry["t"])  # within the sub-agent, or the trace
        for request in inner:
            agent = f"{entry.get('agent_id') or number}"
            yield _call(request, agent, entry, block, float(entry["t"]) if relative else 0.0)


def _call(entry: Mapping[str, Any], agent: str, owner: Mapping[str, Any], block: int, offset_s: float) -> HashedCall:
    start = float(entry["t"]) + offset_s
    return HashedCall(
        agent=agent,
        start_s=start,
        end_s=start + float(entry.get("api_time") or 0.0),
        input_tokens=max(int(entry["in"]), 1),
        output_tokens=max(int(entry["out"]), 1),
        hash_ids=[int(hash_id) for hash_id in entry.get("hash_ids") or []],
        system_tokens=int(owner.get("tool_tokens") or 0) + int(owner.get("system_tokens") or 0),
        block_tokens=block,
        model=entry.get("model"),
    )


def _close_gaps(calls: list[HashedCall], most_s: float | None) -> None:
    """Times from the first call on; no call begins later than `most_s` after the one before."""
    shift = before = calls[0].start_s
    for call in calls:
        start = call.start_s
        if most_s is not None and start - before > most_s:
            shift += start - before - most_s
        before = start
        call.start_s, call.end_s = start - shift, call.end_s - shift
