"""What all APIs have in common: the request's body, and the meaning of its answer's events.

Each API is a module of `wire.apis`, listed in its registry `APIS` and imported on use: adding one takes a file and a
line, because its `Api` defines everything that plans, workloads, probes and the load need. A server may send anything:
the results of `read_events` and `read_whole` have the types of `Answer`, counts within range and texts of bounded
length. Anything else in an event becomes the answer's error. Documents nested up to 1024 deep are parsed (orjson
refuses more), so code here that walks through a document, prints it or encodes it has a limit of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import orjson

from inferometer.vocabulary import attribute_at
from inferometer.wire import http1
from inferometer.wire.apis import APIS as APIS
from inferometer.wire.compiled import compiled
from inferometer.wire.http1 import Excessive, Piecewise, whole
from inferometer.wire.skeleton import Skeleton, learn
from inferometer.wire.sse import BOM, Recognised, parse_json

Json = dict[str, Any]
Prompt = str | list[int] | list[Json]

MOST_TOKENS = 2**40  # more than any answer has: a larger count is ignored
LARGEST_TOTAL = 2**53  # of a running usage: exact in JSON, in a float and in C
LONGEST_ERROR = 4096  # characters; secrets are removed later, and only then is it cut to the length of a line
LONGEST_LABEL = 1000  # characters of a finish reason or an id
END_MARK = b"[DONE]"
LEARNING_TRIES = 3  # events whose shape is tried before a stream is parsed event by event
WORTH_LEARNING = 12  # remaining events: parsing fewer takes less time than proving their shape
CHARACTERS_PER_TOKEN = 4  # of English in today's vocabularies: the estimate if a server counts nothing


@dataclass(slots=True)
class Answer:
    """The combined result of an answer's events. `tokens` has an entry per event, 0 for events without any."""

    tokens: Sequence[int] = field(default_factory=list)
    counted: int = 0  # token-bearing events, or tokens by running usage
    running_usage: bool = False
    by_length: bool = False  # the number of tokens is only estimated from the text's length
    visible_event: int | None = None  # first event with text that a reader sees
    usage: Json | None = None  # with OpenAI's names, whatever the API's
    finish_reason: str | None = None  # likewise, if there is a name for it
    request_id: str | None = None
    done: bool = False  # the stream's end mark arrived
    error: str | None = None
    failed: bool = False  # the error is the server's own message
    text: list[str] = field(default_factory=list)
    learned: tuple[bytes, Skeleton] | None = None  # an event, and the shape learned from it


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How answers are requested: equal for all requests of a traffic class that set a length, and for all that do
    not."""

    stream: bool = True
    continuous_usage: bool = False
    with_length: bool = False
    ignore_eos: bool | None = None  # None: on if a length is requested
    sampling: Json = field(default_factory=dict)  # min_tokens, temperature, top_p, stop: those that are set
    extra: Json = field(default_factory=dict)

    @property
    def to_full_length(self) -> bool:
        return self.with_length if self.ignore_eos is None else self.ignore_eos


def openai_fields(manner: Manner) -> Json:
    """The constant fields of a body of completions or chat."""
    fields: Json = {"stream": manner.stream}
    if manner.stream:
        fields["stream_options"] = {"include_usage": True}
        if manner.continuous_usage:
            fields["stream_options"]["continuous_usage_stats"] = True
    if manner.to_full_length:
        fields["ignore_eos"] = True
    return fields | manner.sampling | manner.extra


def ask_max_tokens(fields: Json, tokens: int | None) -> None:
    if tokens is not None:
        fields["max_tokens"] = tokens


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def note_openai(answer: Answer, event: Json) -> int | None:
    """Takes usage, finish reason and id from an event; returns the tokens so far if an event with choices states
    them."""
    total = None
    choices, usage = event.get("choices"), event.get("usage")
    if choices and usage:
        total = total_in(usage, "completion_tokens")
    if usage and isinstance(usage, dict):
        answer.usage = usage
    if choices:
        answer.finish_reason = as_text(choices[0].get("finish_reason")) or answer.finish_reason
    if answer.request_id is None:
        answer.request_id = as_text(event.get("id"))
    return total


@dataclass(frozen=True, kw_only=True)
class Api:
    """Describes one API: how to write its requests and how to read its answers."""

    path: str
    body: Callable[[str | None, Prompt], Json]  # the model and the prompt
    deltas: Callable[[Json], tuple[str, bool]]  # an event's visible text, and whether it carries anything else
    note: Callable[[Answer, Json], int | None] = note_openai  # reads the rest of an event; returns a running total
    fields: Callable[[Manner], Json] = openai_fields
    ask_length: Callable[[Json, int | None], None] = ask_max_tokens
    credentials: Callable[[str], dict[str, str]] = bearer
    headers: dict[str, str] = field(default_factory=dict)  # required by the API in every request
    encode: Callable[[Json], bytes] = orjson.dumps  # the bytes of a body
    parse: Callable[[bytes], Any] = parse_json
    text_key: bytes | None = None  # the bytes before the text in an event
    whole_path: str | None = None  # path for answers that are not streamed, if it differs
    key_env: str = "OPENAI_API_KEY"  # the usual variable for its key
    generates: bool = True  # whether answers consist of tokens
    takes_ids: bool = False  # whether a prompt may be token ids
    takes_messages: bool = False  # whether a conversation is sent as messages, to which the server applies a template
    tools: Callable[[Json], Json] | None = None  # `tools` and `tool_choice` of chat in its form, if it supports tools
    takes_images: bool = False  # whether messages may hold images, sound or videos
    prompt_once: bool = True  # whether the server counts a prompt once as sent, and no part of it several times
    prompt_as_is: bool = (
        False  # whether a body is JSON that contains a text prompt once, unchanged, and nothing else depends on it
    )
    needs_model: bool = True
    in_pieces: bool = False  # whether answers may be lines of JSON or bare text
    templated: bool = False  # whether the plan has the body, and the URL is the whole address even without a path


@cache
def api_of(name: str) -> Api:
    """The API with the name used in a plan."""
    api: Api = attribute_at(APIS[name])
    return api


@cache
def endpoints() -> dict[str, str]:
    """Request paths that belong to one API, and its name: those below /v1, such as OpenAI's and Anthropic's."""
    paths = {api_of(name).path: name for name in APIS}
    return {path: name for path, name in paths.items() if path.startswith("/v1/")}


def plain_text(prompt: Prompt) -> Any:
    """Messages as text, for APIs that only take text; text and token ids unchanged."""
    if not isinstance(prompt, str) and prompt and isinstance(prompt[0], dict):
        return "\n".join(content_text(message.get("content")) for message in prompt if isinstance(message, dict))
    return prompt


def content_text(content: Any) -> str:
    """The text of a message's content: a string, or a list of parts, of which those with text count."""
    if isinstance(content, list):
        return " ".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def as_messages(prompt: Prompt) -> list[Any]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)


def read_events(api: Api, events: Sequence[bytes], keep_text: bool = False) -> Answer:
    """`reading_events` without pauses."""
    return whole(reading_events(api, events, keep_text))


def reading_events(api: Api, events: Sequence[bytes], keep_text: bool = False) -> Piecewise[Answer]:
    """The meaning of a stream's events, in order. If there is a running usage, it gives each event's tokens; otherwise
    an event that carries anything counts as one token, and the sum is scaled to the final usage. It pauses regularly:
    half a million events of a hostile server take seconds, and time limits must be checked in between."""
    reading = _Reading(api, [], [], keep_text)
    bears, gains = reading.bears, reading.gains
    skeleton: Skeleton | None = None
    unlearned = 0 if keep_text or api.text_key is None else LEARNING_TRIES
    number, count, pause_at = -1, len(events), http1.AT_ONCE
    parsed = 0  # bytes since the last pause
    while (number := number + 1) < count:
        if number >= pause_at or parsed > http1.BYTES_AT_ONCE:
            pause_at = number + http1.AT_ONCE
            parsed = 0
            yield
        if skeleton is not None:
            run, run_gains, total = skeleton.read_run(events, number, min(pause_at, count), reading.total)
            bears += run
            gains += run_gains or [0] * len(run)
            reading.skip(len(run_gains), total)
            number += len(run)
            if number == count:
                break
        data = events[number]
        bears.append(0)
        gains.append(0)
        parsed += len(data)
        text = reading.parse(number, data)
        if skeleton is None and unlearned and text and count - number > WORTH_LEARNING:
            unlearned -= 1
            skeleton = learn(data, api.text_key or b"", api.deltas)
            if skeleton is not None:
                reading.answer.learned = data, skeleton
    return (yield from reading.answered())


def reading_recognised(api: Api, events: Recognised) -> Piecewise[Answer]:
    """The same for a stream most of whose events were recognised on arrival."""
    reading = _Reading(api, events.bears, events.gains, False)
    runs = iter(events.runs)
    run = next(runs, None)
    parsed = 0  # bytes since the last pause
    for place, (number, start, stop) in enumerate(events.odd):
        while run is not None and run[0] < number:
            _read_known_run(reading, run, events.running)
            run = next(runs, None)
        reading.parse(number, events.data[start:stop])
        parsed += stop - start
        if not (place + 1) % http1.AT_ONCE or parsed > http1.BYTES_AT_ONCE:
            parsed = 0
            yield
    if run is not None:
        _read_known_run(reading, run, events.running)
    return (yield from reading.answered())


def _read_known_run(reading: "_Reading", run: tuple[int, int, int, int], running: bool) -> None:
    """In a run of events, the gain of the first one is relative to the total before it, which is only known now."""
    first, behind, first_total, last_total = run
    if running:
        reading.gains[first] = max(first_total - reading.total, 0)
        reading.skip(behind - first, last_total)


class _Reading:
    """The result of a stream's events so far."""

    __slots__ = ("_api", "_keep_text", "_stated", "_unnoted", "answer", "bears", "gains", "total")

    def __init__(self, api: Api, bears: Any, gains: Any, keep_text: bool) -> None:
        self._api = api
        self._keep_text = keep_text
        self.answer = Answer()
        self.bears = bears  # 1 for an event with text, reasoning or a tool call
        self.gains = gains  # how much each event adds to the running usage: 0 for those that do not state it
        self._stated = 0  # number of events that state it
        self.total = 0  # the last stated total
        self._unnoted = False  # it is newer than the usage noted so far

    def skip(self, stated: int, total: int) -> None:
        """Skips events that need no parser: how many of them state a running total, and the last total."""
        if stated:
            self._stated += stated
            self.total = total
            self._unnoted = True

    def parse(self, number: int, data: bytes) -> str:
        """Parses an event; returns its text."""
        answer, api = self.answer, self._api
        if data == END_MARK:
            answer.done = True
            return ""
        try:
            event = api.parse(data)
            if event.get("error"):  # routers send it with any API, also together with choices
                raise ServerError
            text, other = api.deltas(event)
            if type(text) is not str:
                raise OddEvent(f"a text is {kind_of(text)}")
            so_far = api.note(answer, event)
        except Excessive:
            raise
        except Exception as problem:  # the code of an API expects events of the specified form
            _note_odd_event(answer, data, problem)
            return ""
        if text or other:
            self.bears[number] = 1
        if so_far is not None:
            self._stated += 1
            self.gains[number], self.total = max(so_far - self.total, 0), so_far
        if text and answer.visible_event is None:
            answer.visible_event = number
        if self._keep_text:
            answer.text.append(text)
        self._unnoted = self._unnoted and not event.get("usage")
        return text

    def answered(self) -> Piecewise[Answer]:
        answer = self.answer
        if self._unnoted and answer.usage is not None:
            answer.usage = answer.usage | {"completion_tokens": self.total}
        yield from _count_tokens(answer, self.bears, self.gains, self._stated)
        return answer


class OddEvent(ValueError):
    """An event that is JSON but not what the API specifies; the message names the place."""


class ServerError(ValueError):
    """An event with which the server reports a failure."""


def count_in(usage: Json | None, name: str) -> int | None:
    """A count of the server's usage; None for anything but a plausible number."""
    value = usage.get(name) if usage else None
    return value if type(value) is int and 0 <= value < MOST_TOKENS else None


def total_in(usage: Json, name: str) -> int | None:
    """A running total as stated: one that is too large is kept, so that it invalidates the count. Anything but an
    integer counts as not stated, so that the events or the text are counted."""
    value = usage.get(name)
    return min(max(value, 0), LARGEST_TOTAL) if type(value) is int else None


def as_text(value: Any) -> str | None:
    """Converts to text: other servers use numbers where OpenAI's have texts, and a record has texts."""
    if value is None:
        return None
    if isinstance(value, dict | list):
        raise OddEvent(f"a finish reason or an id is {kind_of(value)}")
    return str(value)[:LONGEST_LABEL]


def kind_of(value: Any) -> str:
    """The kind of a JSON value, for a message."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _note_odd_event(answer: Answer, data: bytes, problem: Exception) -> None:
    """Records an error in mid-stream, or something that is no event of this API. The first one is kept, except that a
    failure reported by the server replaces an event that is only odd."""
    failed = isinstance(problem, ServerError)
    if answer.error is not None and (answer.failed or not failed):
        return
    answer.failed = failed
    try:
        text = error_text(data)
    except orjson.JSONDecodeError:
        text = f"an event is not JSON: {data[:LONGEST_ERROR].decode('utf-8', 'replace')}"
    except ValueError as error:
        text = str(error)
    answer.error = f"{problem}: {text}" if isinstance(problem, OddEvent) else text


def _count_tokens(answer: Answer, bears: Sequence[int], gains: Sequence[int], stated: int) -> Piecewise[None]:
    answer.counted = added_up(bears)
    if stated > 1 or (stated and answer.counted <= 1):
        answer.running_usage = True
        answer.tokens, answer.counted = gains, added_up(gains)
        if answer.counted > MOST_TOKENS:
            answer.error = answer.error or f"the running usage counts {answer.counted} tokens: more than any answer has"
            answer.tokens, answer.counted = [0] * len(gains), 0
        return
    reported = count_in(answer.usage, "completion_tokens")
    scaled = reported is not None and reported not in {0, answer.counted}
    answer.tokens = (yield from _scaling(bears, answer.counted, reported or 0)) if scaled else bears


def added_up(numbers: Sequence[int]) -> int:
    """The sum; numbers of the compiled reader are summed there, without an object for each."""
    reader = compiled() if isinstance(numbers, memoryview) else None
    if reader is None:
        return sum(numbers)
    try:
        return int(reader.total(numbers))
    except OverflowError:
        return sum(numbers)


def _scaling(bears: Sequence[int], counted: int, reported: int) -> Piecewise[list[int]]:
    """The tokens of the usage, spread evenly over the events with text."""
    tokens: list[int] = []
    seen = 0
    for bearing in bears:
        before = reported * seen // counted if counted else 0
        seen += bearing
        tokens.append(reported * seen // counted - before if bearing else 0)
        if not len(tokens) % http1.AT_ONCE:
            yield
    return tokens


def read_whole(api: Api, body: bytes, keep_text: bool = False) -> Answer:
    """The meaning of an answer in one piece: all its tokens belong to one event. If the server does not count them,
    they are estimated from the length of the text."""
    answer = read_events(api, [body.removeprefix(BOM)], keep_text=True)
    answer.running_usage = False
    reported = count_in(answer.usage, "completion_tokens")
    if reported is not None and answer.error is None:
        answer.tokens, answer.counted = [reported], reported
    elif answer.counted and (text := "".join(answer.text)):
        answer.tokens, answer.by_length = [tokens_by_length(text)], True
        answer.counted = answer.tokens[0]
    answer.done = answer.error is None
    if not keep_text:
        answer.text.clear()
    return answer


def read_texts(texts: list[str], tokens: list[int], keep_text: bool = False) -> Answer:
    """An answer of bare text, in the pieces received, and the estimated tokens of each."""
    first = next((number for number, text in enumerate(texts) if text), None)
    kept = texts if keep_text else []
    return Answer(tokens, sum(tokens), by_length=True, visible_event=first, done=True, text=kept)


def tokens_by_length(text: str) -> int:
    return max(1, round(len(text) / CHARACTERS_PER_TOKEN))


def error_text(body: bytes) -> str:
    """The message of an error body of any form; ValueError if it is not JSON."""
    return message_in(parse_json(body))


def message_in(document: Any) -> str:
    error = (document.get("error") or document) if isinstance(document, dict) else document
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    if isinstance(error, str):
        return error[:LONGEST_ERROR]
    try:
        return orjson.dumps(error).decode()[:LONGEST_ERROR]
    except orjson.JSONEncodeError:
        return "JSON that is nested too deep to be shown"


_NAMES = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant", "tool": "Tool"}


def chat_text(messages: list[dict[str, Any]]) -> str:
    """`User: ...`, `Assistant: ...`, one line each, as in Ray Serve's prefix-aware benchmark."""
    return "".join(map(line_of, messages))


def line_of(message: dict[str, Any]) -> str:
    """A message with its role before it."""
    return f"{_NAMES.get(message.get('role', ''), 'User')}: {message_text(message)}\n"


def message_text(message: dict[str, Any]) -> str:
    """The text of a message: of its parts if it has several, of its tool calls if it has no text."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if content is not None:
        return str(content)
    calls = [call.get("function") for call in message.get("tool_calls") or () if isinstance(call, dict)]
    return "\n".join(f"{call.get('name')}({call.get('arguments')})" for call in calls if isinstance(call, dict))
