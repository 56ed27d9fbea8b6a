"""Speech to text as OpenAI and vLLM serve it: a sound file is sent as a form, text comes back, streamed or whole."""

import base64
from typing import Any

import orjson

from inferometer.wire.api import Api, Json, Manner, Prompt

BOUNDARY = "inferometer-5d41402abc4b2a76b9719d911017c592"
_FILE = "file"


def _body(model: str | None, prompt: Prompt) -> Json:
    """The sound of the last message; its text is the hint that the API calls prompt."""
    fields: Json = {"model": model}
    for message in prompt if isinstance(prompt, list) else []:
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else []:
            if part.get("type") == "input_audio":
                fields[_FILE] = part["input_audio"]
            elif part.get("text"):
                fields["prompt"] = part["text"]
    if isinstance(prompt, str):
        fields["prompt"] = prompt
    return fields


def _fields(manner: Manner) -> Json:
    """Flat, as vLLM expects them, because a form cannot contain objects."""
    fields: Json = {"stream": manner.stream}
    if manner.stream:
        fields["stream_include_usage"] = True
        if manner.continuous_usage:
            fields["stream_continuous_usage_stats"] = True
    return fields | manner.sampling | manner.extra


def _ask_length(fields: Json, tokens: int | None) -> None:
    if tokens is not None:
        fields["max_completion_tokens"] = tokens


def encode(fields: Json) -> bytes:
    """The form: one part for each field, the sound as a file."""
    parts = []
    for name, value in fields.items():
        if value is None:
            continue
        if name == _FILE:
            kind = str(value.get("format") or "wav")
            head = f'Content-Disposition: form-data; name="file"; filename="audio.{kind}"\r\nContent-Type: audio/{kind}'
            data = base64.b64decode(value["data"])
        else:
            head, data = f'Content-Disposition: form-data; name="{name}"', _text(value)
        parts.append(b"--%b\r\n%b\r\n\r\n%b\r\n" % (BOUNDARY.encode(), head.encode(), data))
    return b"".join(parts) + b"--%b--\r\n" % BOUNDARY.encode()


def _text(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else orjson.dumps(value)


def _deltas(event: Json) -> tuple[str, bool]:
    """vLLM streams chat's events, OpenAI typed ones; a whole answer is a text."""
    if "choices" in event:
        return "".join((choice.get("delta") or {}).get("content") or "" for choice in event["choices"]), False
    if event.get("type") == "transcript.text.delta":
        return str(event["delta"]), False
    if event.get("type") == "transcript.text.done":
        return "", False
    return str(event["text"]), False


def _api(path: str) -> Api:
    return Api(
        path=path,
        body=_body,
        deltas=_deltas,
        fields=_fields,
        ask_length=_ask_length,
        encode=encode,
        headers={"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"},
        takes_messages=True,
        takes_images=True,
        prompt_once=False,
    )


TRANSCRIPTIONS = _api("/v1/audio/transcriptions")
TRANSLATIONS = _api("/v1/audio/translations")
