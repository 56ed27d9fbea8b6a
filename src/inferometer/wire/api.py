"""The APIs: what a request's body says, and what the events of its answer mean. One entry per API in `APIS`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from inferometer.wire.skeleton import Skeleton, learn

Json = dict[str, Any]
Prompt = str | list[int] | list[Json]

MOST_TOKENS = 2**40  # more than any answer has: a count beyond is none
LEARNING_TRIES = 3  # events whose shape is tried before a stream is parsed event by event


@dataclass(slots=True)
class Answer:
    """What the events of an answer amount to. `tokens` has an entry per event, 0 for events that carry none."""

    tokens: list[int] = field(default_factory=list)
    counted: int = 0  # token-bearing events, or tokens by running usage
    running_usage: bool = False
    visible_event: int | None = None  # first event with text that a reader sees
    usage: Json | None = None
    finish_reason: str | None = None
    request_id: str | None = None
    done: bool = False  # the stream's end mark came
    error: str | None = None
    text: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Api:
    """How to ask and how to read one API."""

    path: str
    body: Callable[[str | None, Prompt], Json]  # the model and the prompt
    deltas: Callable[[Json], tuple[str, bool]]  # an event's visible text, and whether it carries anything else
    text_key: bytes | None = None  # what stands before the text in an event's bytes


def _completions_body(model: str | None, prompt: Prompt) -> Json:
    return {"model": model, "prompt": prompt if isinstance(prompt, str) else _plain(prompt)}


def _plain(prompt: list[int] | list[Json]) -> Any:
    """Messages as text where only text goes; token ids as they are."""
    if prompt and isinstance(prompt[0], dict):
        return "\n".join(str(message.get("content", "")) for message in prompt if isinstance(message, dict))
    return prompt


def _chat_body(model: str | None, prompt: Prompt) -> Json:
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return {"model": model, "messages": messages}


def _completions_deltas(event: Json) -> tuple[str, bool]:
    choices = event["choices"]
    if len(choices) == 1:  # nearly always
        return "" + (choices[0].get("text") or ""), False
    return "".join(choice.get("text") or "" for choice in choices), False


def _chat_deltas(event: Json) -> tuple[str, bool]:
    """Works on a streamed event's `delta` and on a whole answer's `message`."""
    text, other = "", False
    for choice in event["choices"]:
        delta = choice.get("delta") or choice.get("message") or {}
        text += delta.get("content") or ""
        if delta.get("reasoning_content") or delta.get("reasoning") or delta.get("tool_calls"):
            other = True
    return text, other


def _any_deltas(event: Json) -> tuple[str, bool]:
    """The text of an event in whatever shape a server of its own sends: ours is the first string we know."""
    if "error" in event and "choices" not in event:
        raise KeyError("choices")
    if isinstance(event.get("choices"), list):
        text, other = _chat_deltas(event)
        return text or _completions_deltas(event)[0], other
    token = event.get("token")
    for candidate in (token.get("text") if isinstance(token, dict) else token, *map(event.get, _TEXT_KEYS)):
        if isinstance(candidate, str) and candidate:
            return candidate, False
    return "", False


_TEXT_KEYS = ("text", "content", "response", "generated_text", "output")

APIS: dict[str, Api] = {
    "completions": Api("/v1/completions", _completions_body, _completions_deltas, b'"text":"'),
    "chat": Api("/v1/chat/completions", _chat_body, _chat_deltas, b'"content":"'),
    "template": Api("/generate", lambda _model, _prompt: {}, _any_deltas),
}


def template_body(template: str, prompt: str) -> bytes:
    """A body of one's own: `{prompt}` replaced by the prompt, escaped as inside a JSON string."""
    return template.encode().replace(b"{prompt}", orjson.dumps(prompt)[1:-1])


def read_events(api: Api, events: list[bytes], keep_text: bool = False) -> Answer:
    """The meaning of a stream's events, in order. A running usage counts each event's tokens; without one, an event
    that carries anything counts as one token, and the sum is scaled to the final usage."""
    answer = Answer()
    bears: list[int] = []  # 1 for an event with text, reasoning or a tool call
    totals: list[int] = []  # the running usage after each event that has choices and usage
    places: list[int] = []  # and that event's number
    skeleton: Skeleton | None = None
    unnoted = False  # the last running total is newer than the usage that was noted
    unlearned = 0 if keep_text or api.text_key is None else LEARNING_TRIES
    for number, data in enumerate(events):
        if skeleton is not None and (seen := skeleton.read(data)) is not None:
            length, total = seen
            bears.append(1 if length else 0)
            if total >= 0:
                totals.append(total)
                places.append(number)
                unnoted = True
            continue
        try:
            event = orjson.loads(data)
            text, other = api.deltas(event)
            so_far = running_total(event)
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            bears.append(0)
            _note_odd_event(answer, data)
            continue
        bears.append(1 if text or other else 0)
        if so_far is not None:
            totals.append(so_far)
            places.append(number)
        _note_event(answer, event, text, number, keep_text)
        unnoted = unnoted and not event.get("usage")
        if skeleton is None and unlearned and text:
            unlearned -= 1
            skeleton = learn(data, api.text_key or b"", api.deltas)
    if unnoted and answer.usage is not None:
        answer.usage = answer.usage | {"completion_tokens": totals[-1]}
    _count_tokens(answer, bears, totals, places)
    return answer


def running_total(event: Json) -> int | None:
    """The tokens so far that an event with choices states; AttributeError where its usage is none."""
    if event.get("choices") and (usage := event.get("usage")):
        return count_in(usage, "completion_tokens") or 0
    return None


def count_in(usage: Json | None, name: str) -> int | None:
    """A count of the server's usage; anything else than a sane number is none."""
    value = usage.get(name) if usage else None
    return value if type(value) is int and 0 <= value < MOST_TOKENS else None


def _note_event(answer: Answer, event: Json, text: str, number: int, keep_text: bool) -> None:
    if text and answer.visible_event is None:
        answer.visible_event = number
    if keep_text:
        answer.text.append(text)
    if isinstance(usage := event.get("usage"), dict) and usage:
        answer.usage = usage
    if choices := event.get("choices"):
        answer.finish_reason = _text(choices[0].get("finish_reason")) or answer.finish_reason
    if answer.request_id is None:
        answer.request_id = _text(event.get("id"))


def _text(value: Any) -> str | None:
    """Servers of their own put numbers where OpenAI's have texts; a record has texts."""
    return value if value is None or isinstance(value, str) else str(value)


def _note_odd_event(answer: Answer, data: bytes) -> None:
    """The end mark, an error in mid-stream, or something that is no event of this API."""
    if data == b"[DONE]":
        answer.done = True
    elif answer.error is None:
        try:
            answer.error = error_text(data)
        except ValueError:
            answer.error = f"an event is not JSON: {data[:80].decode('utf-8', 'replace')}"


def _count_tokens(answer: Answer, bears: list[int], totals: list[int], places: list[int]) -> None:
    if len(totals) > 1 or (totals and sum(bears) <= 1):
        answer.running_usage = True
        answer.tokens = [0] * len(bears)
        for number, before, total in zip(places, [0, *totals], totals, strict=False):
            answer.tokens[number] = max(total - before, 0)
        answer.counted = sum(answer.tokens)
        return
    answer.counted = sum(bears)
    reported = count_in(answer.usage, "completion_tokens")
    answer.tokens = bears if reported in {None, 0, answer.counted} else _scaled(bears, answer.counted, reported)


def _scaled(bears: list[int], counted: int, reported: int) -> list[int]:
    """As many tokens as the usage says, spread evenly over the events that bear any."""
    tokens, seen = [], 0
    for bearing in bears:
        before = reported * seen // counted if counted else 0
        seen += bearing
        tokens.append(reported * seen // counted - before if bearing else 0)
    return tokens


def read_whole(api: Api, body: bytes, keep_text: bool = False) -> Answer:
    """The meaning of an answer that came in one piece: all its tokens belong to one event."""
    answer = read_events(api, [body], keep_text)
    answer.running_usage = False
    reported = count_in(answer.usage, "completion_tokens")
    if reported is not None and answer.error is None:
        answer.tokens, answer.counted = [reported], reported
    answer.done = answer.error is None
    return answer


def error_text(body: bytes) -> str:
    """The message of an error body, whatever its shape; ValueError where it is not JSON."""
    document = orjson.loads(body)
    error = document.get("error", document) if isinstance(document, dict) else document
    message = error.get("message", error) if isinstance(error, dict) else error
    return str(message)[:300]
