"""What a router reads of a request: the text of its prompt in any API's body, and whom it belongs to."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from inferometer.router.policy import Query

SESSION_HEADERS = ("x-session-id", "x-prefix-id", "x-user-id")


class _Body(msgspec.Struct):
    """Where the APIs have their prompts; all else in a body is passed over."""

    prompt: Any = None
    messages: Any = None
    input: Any = None
    inputs: Any = None
    text: Any = None
    system: Any = None
    instructions: Any = None
    model: Any = None


_decoder = msgspec.json.Decoder(_Body)


def query_of(body: bytes, headers: Mapping[str, str], session_headers: Sequence[str], number: int) -> Query:
    """The query of a request. A body that cannot be read has no text: refusing it is left to the replica."""
    session = next((headers[name] for name in session_headers if name in headers), None)
    try:
        read = _decoder.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return Query("", session, len(body) // 4, id=number)
    text, tokens = prompt_of(read)
    return Query(text, session, tokens, read.model if isinstance(read.model, str) else "", id=number)


def prompt_of(body: _Body) -> tuple[str, int | None]:
    """All text in a row without roles, as Ray and SGLang have it; and the number of tokens where they are given."""
    for prompt in (body.prompt, body.messages, body.input, body.inputs, body.text):
        if prompt is None:
            continue
        if _is_ids(prompt):
            return "".join(map(_character, prompt)), len(prompt)
        return text_of(body.system) + text_of(body.instructions) + text_of(prompt), None
    return "", None


def text_of(value: Any) -> str:
    """Texts, lists of texts, messages and their text parts; what is none, as an image, has no text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(_character, value)) if _is_ids(value) else "".join(map(text_of, value))
    if isinstance(value, dict):
        return text_of(value.get("text") if isinstance(value.get("text"), str) else value.get("content"))
    return ""


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], int)


def _character(token: Any) -> str:
    """A token id as one character, so that ids that begin alike are texts that begin alike."""
    return chr(token) if isinstance(token, int) and 0 <= token < 0xD800 else chr(0x10000 + hash(token) % 0xFFFFF)
