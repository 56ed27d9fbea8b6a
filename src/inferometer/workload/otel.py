"""Sessions of agents from OpenTelemetry GenAI traces. Dependencies between calls are inferred from texts and times.

A call depends on every earlier call whose answer is among its messages, and on the last call that ended before it
began. It is sent when all of these have ended, after the recorded pause.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import orjson

from inferometer.documents.files import check_plain, file_bytes
from inferometer.errors import DataError
from inferometer.plan.workloads.recorded import AgentSessions, HuggingFace, Otel, Weka
from inferometer.workload.dataset import hub_rows
from inferometer.workload.draws import Draws, Numbers, Purpose, numbers
from inferometer.workload.formats import Json, as_tools
from inferometer.workload.rows import RowError
from inferometer.workload.session import NOWHERE, Request, Session, WorkloadContext
from inferometer.workload.writer import writer_of

_CHARACTERS_PER_TOKEN = 4
_ERROR = (2, "ERROR", "STATUS_CODE_ERROR", "error")


class TimedSpan(Protocol):
    """Dependencies between calls, inferred from times alone."""

    start_s: float
    end_s: float


@dataclass(slots=True)
class Call:
    """One recorded request. Times are seconds after the first call of its trace."""

    start_s: float
    end_s: float
    messages: list[Json]
    answer: str
    model: str | None = None
    output_tokens: int | None = None
    total_tokens: int = 0
    temperature: float | None = None
    tools: list[Json] = field(default_factory=list)
    called: list[str] = field(default_factory=list)  # functions that the recorded answer calls


def otel(spec: Otel, _seed: int, _traffic: int, _nonce: str, context: WorkloadContext = NOWHERE) -> "OtelSessions":
    """The sessions of all traces, in the order of their files."""
    traces: list[list[Call]] = []
    left_out = 0
    for where, document in documents(spec):
        try:
            calls = calls_in(document, spec.errors)
        except (RowError, KeyError, TypeError, ValueError) as error:
            if spec.unusable == "refuse":
                raise DataError(f"{where}: is not a trace of GenAI spans: {error}", "workload.unusable: skip") from None
            left_out += 1
            continue
        if spec.below_tokens is not None and max(call.total_tokens for call in calls) >= spec.below_tokens:
            left_out += 1
            continue
        traces.append(calls)
    chosen = traces[spec.skip :][: spec.limit]
    if not chosen:
        raise DataError("workload: no trace can be used", "traces have spans with gen_ai.input.messages")
    count = sum(map(len, chosen))
    skipped = f", {left_out} traces skipped" if left_out else ""
    context.note(f"traces: {count:,} calls in {len(chosen):,} sessions{skipped}")
    return OtelSessions(spec, chosen)


@dataclass(frozen=True, slots=True)
class OtelSessions:
    """A function from an index to a session."""

    spec: Otel
    traces: list[list[Call]]

    def __len__(self) -> int:
        return len(self.traces)

    def __call__(self, index: int) -> Session:
        calls = self.traces[index % len(self.traces)]
        live = self.spec.answers == "live"
        messages = [[dict(message) for message in call.messages] for call in calls]
        fills: list[list[Json]] = [[] for _ in calls]
        requests = []
        for at, call in enumerate(calls):
            causes, places = _causes(calls, at, messages)
            if live:
                for earlier, place in places:
                    fills[earlier].append(messages[at][place])
            after = reduced(calls, [*causes, *closest(calls, at)])
            requests.append(self._request(call, messages[at], after, pause_s(calls, at, after, self.spec.max_wait)))
        for request, places_of in zip(requests, fills, strict=True):
            request.fills = places_of
        return Session(requests)

    def _request(self, call: Call, messages: list[Json], after: list[int], pause_s: float) -> Request:
        body: Json = {"model": self._model(call)} if self._model(call) else {}
        if call.temperature is not None:
            body["temperature"] = call.temperature
        if call.tools:
            body["tools"] = call.tools
        tokens = call.output_tokens or self.spec.output_tokens
        if call.tools and call.called:  # require the same tool; a truncated call is not a call
            tokens = max(4 * tokens, 4096)
            body |= {"tool_choice": _choice(call), "ignore_eos": False}
        return Request(messages, tokens, think_s=pause_s, body=body, after=tuple(after))

    def _model(self, call: Call) -> str | None:
        return self.spec.model or self.spec.models.get(call.model or "")


def _choice(call: Call) -> Any:
    """The function that was called, if it is among the tools; engines accept only one."""
    names = {tool.get("function", {}).get("name") for tool in call.tools}
    if len(call.called) == 1 and call.called[0] in names:
        return {"type": "function", "function": {"name": call.called[0]}}
    return "required"


# -- which call waits for which --------------------------------------------------------------------------------------


def _causes(calls: Sequence[Call], at: int, messages: Sequence[list[Json]]) -> tuple[list[int], list[tuple[int, int]]]:
    """Earlier calls whose answers are among the messages of this call, and the indices of these messages."""
    causes, places = [], []
    for place, message in enumerate(messages[at]):
        text = message.get("content")
        if message.get("role") != "assistant" or not isinstance(text, str) or not text.strip():
            continue
        for earlier in range(at - 1, -1, -1):
            if calls[earlier].answer.strip() == text.strip() and calls[earlier].end_s <= calls[at].start_s:
                causes.append(earlier)
                places.append((earlier, place))
                break
    return causes, places


def closest(calls: Sequence[TimedSpan], at: int) -> list[int]:
    """The last call that ended before this one began."""
    for earlier in range(at - 1, -1, -1):
        if calls[earlier].end_s <= calls[at].start_s:
            return [earlier]
    return []


def reduced(calls: Sequence[TimedSpan], after: Sequence[int]) -> list[int]:
    """The dependencies without those that are implied by others."""
    kept = sorted(dict.fromkeys(after))
    return [one for one in kept if not any(calls[one].end_s <= calls[other].start_s and other != one for other in kept)]


def pause_s(calls: Sequence[TimedSpan], at: int, after: Sequence[int], most_s: float) -> float:
    if not after:
        return 0.0
    return min(max(0.0, calls[at].start_s - max(calls[one].end_s for one in after)), most_s)


MOST_TRACE = 1 << 30  # bytes of a file

# -- traces ----------------------------------------------------------------------------------------------------------


def documents(spec: AgentSessions) -> Iterator[tuple[str, Any]]:
    if spec.repo is not None:
        rows = hub_rows(HuggingFace(repo=spec.repo, subset=spec.subset, split=spec.split))
        for number in range(len(rows)):
            yield rows.where(number), rows[number]
        return
    for path in _files([spec.path] if spec.path else spec.paths):
        try:
            check_plain(path)
            yield str(path), orjson.loads(file_bytes(path, MOST_TRACE))
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
        except ValueError:
            yield str(path), None


def _files(names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        place = Path(name)
        if place.is_dir():
            yield from sorted(place.glob("**/*.json"))
        elif place.exists():
            yield place
        else:
            base = Path(place.anchor) if place.is_absolute() else Path()
            matching = sorted(base.glob(str(place.relative_to(base)) if place.is_absolute() else name))
            if not matching:
                raise DataError(f"{name}: file not found", "workload.path: a trace, or a folder of traces")
            yield from matching


def calls_in(document: Any, errors: bool = True) -> list[Call]:
    """The calls of a trace in order of their start; `RowError` if there is none."""
    spans = list(_spans(document))
    calls = [call for span in spans if (errors or not _failed(span)) and (call := _call(span)) is not None]
    if not calls:
        raise RowError("it has no span with gen_ai.input.messages")
    calls.sort(key=lambda call: (call.start_s, call.end_s))
    first = calls[0].start_s
    for call in calls:
        call.start_s, call.end_s = call.start_s - first, call.end_s - first
    return calls


def _spans(document: Any) -> Iterator[Mapping[str, Any]]:
    """Spans in a list, below `spans`, or in OTLP's JSON format."""
    if isinstance(document, Mapping) and "resourceSpans" in document:
        for resource in document["resourceSpans"]:
            for scope in resource.get("scopeSpans") or []:
                for span in scope.get("spans") or []:
                    yield {**span, "attributes": _plain(span.get("attributes") or [])}
        return
    spans = document.get("spans") if isinstance(document, Mapping) else document
    spans = _parsed(spans)
    if not isinstance(spans, list):
        raise RowError("it has no spans")
    yield from (span for span in spans if isinstance(span, Mapping))


def _plain(attributes: Any) -> Json:
    """`[{"key": k, "value": {"stringValue": v}}]` as a mapping."""
    if isinstance(attributes, Mapping):
        return dict(attributes)
    return {entry["key"]: next(iter(entry["value"].values()), None) for entry in attributes if entry.get("value")}


def _failed(span: Mapping[str, Any]) -> bool:
    status = span.get("status")
    code = status.get("code") if isinstance(status, Mapping) else status
    return code in _ERROR


def _call(span: Mapping[str, Any]) -> Call | None:
    facts = span.get("attributes") or {}
    name = str(span.get("name") or "")
    if not facts.get("gen_ai.input.messages"):
        return None
    if facts.get("gen_ai.operation.name") not in (None, "chat") and not name.startswith("chat "):
        return None
    messages = [_message(message) for message in _parsed(facts["gen_ai.input.messages"])]
    answer = _answer(facts)
    inputs = _count(facts, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
    output = _count(facts, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
    output = output or -(-len(answer) // _CHARACTERS_PER_TOKEN) or None
    warm = facts.get("gen_ai.request.temperature")
    return Call(
        _seconds(span, "start_time", "startTimeUnixNano"),
        _seconds(span, "end_time", "endTimeUnixNano"),
        messages,
        answer,
        facts.get("gen_ai.request.model"),
        output,
        (inputs or 0) + (output or 0),
        float(warm) if isinstance(warm, int | float) else None,
        as_tools(_parsed(facts.get("gen_ai.tool.definitions")) or []),
        _called(facts),
    )


def _called(facts: Mapping[str, Any]) -> list[str]:
    """The names of the functions in the recorded answer."""
    answers = [_message(message) for message in _parsed(facts.get("gen_ai.output.messages")) or []]
    calls = [call for answer in answers for call in answer.get("tool_calls") or []]
    names = [str(call.get("function", {}).get("name") or call.get("name") or "") for call in calls]
    return [name for name in names if name]


def _count(facts: Mapping[str, Any], *names: str) -> int | None:
    return next((int(facts[name]) for name in names if facts.get(name)), None)


def _seconds(span: Mapping[str, Any], name: str, nanoseconds: str) -> float:
    if span.get(nanoseconds) is not None:
        return int(span[nanoseconds]) / 1e9
    value = span.get(name)
    if isinstance(value, int | float):
        return float(value) / (1e9 if value > 1e14 else 1.0)
    if not isinstance(value, str):
        raise RowError(f"a span has no {name}")
    return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()


def _parsed(value: Any) -> Any:
    return orjson.loads(value) if isinstance(value, str) else value


def _message(message: Any) -> Json:
    """A chat message from `role` and `content`, or from the parts of the GenAI conventions."""
    if not isinstance(message, Mapping):
        raise RowError("a message is not a mapping")
    role = str(message.get("role") or "user")
    parts = message.get("parts")
    if parts is None:
        kept = {name: value for name, value in message.items() if name in _CHAT and value is not None}
        return {"role": role, "content": message.get("content"), **kept}
    made: Json = {"role": role, "content": "\n".join(_text(part) for part in parts if _text(part))}
    calls = [_tool_call(part) for part in parts if part.get("type") == "tool_call"]
    if calls:
        made["tool_calls"] = calls
    answers = [part for part in parts if part.get("type") == "tool_call_response"]
    if answers:
        made |= {"role": "tool", "tool_call_id": str(answers[0].get("id") or "")}
        made["content"] = str(answers[0].get("response") or answers[0].get("result") or "")
    return made


_CHAT = ("content", "name", "tool_calls", "tool_call_id")


def _text(part: Mapping[str, Any]) -> str:
    return str(part.get("content") or part.get("text") or "") if part.get("type") == "text" else ""


def _tool_call(part: Mapping[str, Any]) -> Json:
    arguments = part.get("arguments")
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
    return {
        "id": str(part.get("id") or ""),
        "type": "function",
        "function": {"name": str(part.get("name") or ""), "arguments": text},
    }


def _answer(facts: Mapping[str, Any]) -> str:
    for name in ("gen_ai.output.text", "gen_ai.completion", "gen_ai.output"):
        if isinstance(facts.get(name), str) and facts[name]:
            return str(facts[name])
    messages = facts.get("gen_ai.output.messages")
    made = [_message(message) for message in _parsed(messages)] if messages else []
    return "\n".join(str(message.get("content") or "") for message in made)


# -- weka --------------------------------------------------------------------------------------------------------------

# Sessions of coding agents with their sub-agents, recorded as lengths and hashed blocks (Weka's KV cache tester, the
# datasets `cc-traces-weka-*`): texts are generated, equal blocks are equal texts within a session, and calls that ran
# concurrently do so again.
#
# A call waits for the previous call of the same agent, whose answer is in its prompt, and for the last call that ended
# before it began.

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
                text = f"{where}: is not a trace of hashed blocks: {error}"
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
        body: Json = {"model": model} if model else {}
        messages = self._messages(call, b"%d %d " % (trace, lap))
        return Request(messages, call.output_tokens, call.input_tokens, pause, body, after=tuple(after))

    def _messages(self, call: HashedCall, scope: bytes) -> list[Json]:
        """The system prompt and the tools in whole blocks, then the rest as one user message."""
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
    """The previous call of the same agent, if it had ended."""
    for earlier in range(at - 1, -1, -1):
        if calls[earlier].agent == calls[at].agent and calls[earlier].end_s <= calls[at].start_s:
            return [earlier]
    return []


# -- traces ----------------------------------------------------------------------------------------------------------


def trace_in(document: Any, spec: Weka) -> HashedTrace:
    """A trace; `RowError` if it has no calls."""
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
            yield _hashed_call(entry, "", document, block, 0.0)
            continue
        inner = entry.get("requests") or []
        relative = bool(inner) and float(inner[0]["t"]) < float(entry["t"])  # relative to the sub-agent or to the trace
        for request in inner:
            agent = f"{entry.get('agent_id') or number}"
            yield _hashed_call(request, agent, entry, block, float(entry["t"]) if relative else 0.0)


def _hashed_call(
    entry: Mapping[str, Any], agent: str, owner: Mapping[str, Any], block: int, offset_s: float
) -> HashedCall:
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
    """Times relative to the first call; gaps are limited to `most_s`."""
    shift = before = calls[0].start_s
    for call in calls:
        start = call.start_s
        if most_s is not None and start - before > most_s:
            shift += start - before - most_s
        before = start
        call.start_s, call.end_s = start - shift, call.end_s - shift
