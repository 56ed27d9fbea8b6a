"""Anthropic's Messages API: content blocks in and out (its documentation, "Streaming messages")."""

from typing import Any

import orjson

from inferometer.wire.api import (
    Answer,
    Api,
    Json,
    Manner,
    Prompt,
    ServerError,
    as_messages,
    as_text,
    content_text,
    count_in,
)

VERSION = "2023-06-01"
MOST_TOKENS = 4096  # if the plan requests no length: the API needs a limit
_REASONS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
_OTHER = {"thinking_delta": "thinking", "input_json_delta": "partial_json"}
_NOT_TEXT = {"thinking", "redacted_thinking", "tool_use", "server_tool_use"}


def _body(model: str | None, prompt: Prompt) -> Json:
    messages = as_messages(prompt)
    system = "\n".join(content_text(message.get("content")) for message in messages if message.get("role") == "system")
    body: Json = {
        "model": model,
        "messages": [_message(message) for message in messages if message.get("role") != "system"],
    }
    return body | {"system": system} if system else body


def _message(message: Json) -> Json:
    """A chat message in Anthropic's form: tool calls and results are content blocks."""
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": content_text(content)}
        return {"role": "user", "content": [result]}
    if calls := message.get("tool_calls"):
        blocks = [{"type": "text", "text": content_text(content)}] if content else []
        return {"role": role, "content": blocks + [_tool_use(call) for call in calls]}
    return {"role": role, "content": [_block(part) for part in content] if isinstance(content, list) else content}


def _tool_use(call: Json) -> Json:
    function = call.get("function", {})
    arguments = function.get("arguments") or "{}"
    read = orjson.loads(arguments) if isinstance(arguments, str) else arguments
    return {"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": read}


def _block(part: Any) -> Any:
    if part.get("type") != "image_url":
        return part
    image = part["image_url"]
    url = image["url"] if isinstance(image, dict) else image
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


_CHOICES = {"required": {"type": "any"}, "auto": {"type": "auto"}, "none": {"type": "none"}}


def _tools(own: Json) -> Json:
    """Functions by their name and the schema of their input."""
    choice = own.get("tool_choice")
    chosen = {"tool_choice": _choice(choice)} if choice is not None else {}
    return {**own, "tools": [_tool(tool) for tool in own["tools"]], **chosen}


def _tool(tool: Json) -> Json:
    function = tool.get("function")
    if not isinstance(function, dict):
        return tool
    schema = function.get("parameters") or {"type": "object"}
    described = {name: function[name] for name in ("name", "description") if name in function}
    return {**described, "input_schema": schema}


def _choice(choice: Any) -> Any:
    if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        return {"type": "tool", "name": choice["function"].get("name")}
    return _CHOICES.get(choice, choice) if isinstance(choice, str) else choice


def _fields(manner: Manner) -> Json:
    """It refuses unknown fields, so `ignore_eos` is sent only if the plan sets it."""
    sampling = dict(manner.sampling)
    if "stop" in sampling:
        sampling["stop_sequences"] = sampling.pop("stop")
    fields: Json = {"stream": manner.stream, "max_tokens": MOST_TOKENS}
    if manner.ignore_eos:
        fields["ignore_eos"] = True
    return fields | sampling | manner.extra


def _key(key: str) -> dict[str, str]:
    return {"x-api-key": key}


def _deltas(event: Json) -> tuple[str, bool]:
    match event["type"]:
        case "content_block_delta":
            return _delta(event["delta"])
        case "content_block_start":
            return _start(event["content_block"])
        case "message":
            return _whole(event["content"])
        case "error":
            raise ServerError
    return "", False


def _delta(delta: Json) -> tuple[str, bool]:
    if delta["type"] == "text_delta":
        return "" + delta["text"], False
    return "", bool(delta.get(_OTHER.get(delta["type"], "")))


def _start(block: Json) -> tuple[str, bool]:
    """A tool's name and encrypted thinking are in the start of their block; text and thinking follow."""
    return block.get("text") or "", block.get("type") in {"tool_use", "server_tool_use", "redacted_thinking"}


def _whole(blocks: list[Json]) -> tuple[str, bool]:
    text = "".join(block.get("text") or "" for block in blocks if block.get("type") == "text")
    return text, any(block.get("type") in _NOT_TEXT for block in blocks)


def _note(answer: Answer, event: Json) -> None:
    """Counts are in the first event and, cumulative, in the last; the later one applies."""
    kind = event["type"]
    message = event["message"] if kind == "message_start" else event
    answer.request_id = answer.request_id or as_text(message.get("id"))
    if isinstance(usage := message.get("usage"), dict):
        answer.usage = (answer.usage or {}) | _usage(usage)
    reason = (event["delta"] if kind == "message_delta" else message).get("stop_reason")
    if reason is not None:
        answer.finish_reason = _REASONS.get(as_text(reason) or "", as_text(reason))
    if kind == "message_stop":
        answer.done = True


def _usage(usage: Json) -> Json:
    """With OpenAI's names. There cached tokens are part of the prompt's; here they are counted separately."""
    counts: Json = {}
    parts = [count_in(usage, f"{name}input_tokens") for name in ("", "cache_read_", "cache_creation_")]
    if parts[0] is not None:
        counts["prompt_tokens"] = sum(part for part in parts if part is not None)
        counts["prompt_tokens_details"] = {"cached_tokens": parts[1]}
    if (made := count_in(usage, "output_tokens")) is not None:
        counts["completion_tokens"] = made
    return counts


API = Api(
    path="/v1/messages",
    body=_body,
    deltas=_deltas,
    note=_note,
    fields=_fields,
    credentials=_key,
    headers={"anthropic-version": VERSION},
    key_env="ANTHROPIC_API_KEY",
    takes_messages=True,
    tools=_tools,
)
