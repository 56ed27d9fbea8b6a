"""OpenAI's Responses API: input items in, typed events out (API reference, "Streaming events")."""

from typing import Any

from inferometer.wire.api import (
    Answer,
    Api,
    Json,
    Manner,
    Prompt,
    ServerError,
    as_text,
    content_text,
    count_in,
    message_in,
)

_VISIBLE = {"response.output_text.delta", "response.refusal.delta"}
_ENDS = {"response.completed", "response.incomplete", "response.failed"}
_REASONS = {"max_output_tokens": "length", "max_tokens": "length"}


def _body(model: str | None, prompt: Prompt) -> Json:
    if isinstance(prompt, str):
        return {"model": model, "input": prompt}
    return {"model": model, "input": [item for message in prompt for item in _items(message)]}


def _items(message: Any) -> list[Json]:
    """A chat message as input items: tool calls and their outputs are separate items."""
    role = message.get("role")
    if role == "tool":
        output = content_text(message.get("content"))
        return [{"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": output}]
    calls = [_function_call(call) for call in message.get("tool_calls") or []]
    messages = [{"role": role, "content": _content(role, message["content"])}] if message.get("content") else []
    return messages + calls


def _function_call(call: Json) -> Json:
    return {"type": "function_call", "call_id": call.get("id"), **call.get("function", {})}


def _content(role: Any, content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [_part(part, "output_text" if role == "assistant" else "input_text") for part in content]


def _part(part: Json, text_type: str) -> Json:
    if part.get("type") == "image_url":
        image = part["image_url"]
        return {"type": "input_image", "image_url": image["url"] if isinstance(image, dict) else image}
    return part | {"type": text_type} if part.get("type") == "text" else part


def _tools(own: Json) -> Json:
    """A function's name and parameters are direct fields of the tool, and likewise in the choice of one function."""
    choice = own.get("tool_choice")
    chosen = {"tool_choice": _flat(choice)} if isinstance(choice, dict) else {}
    return {**own, "tools": [_flat(tool) for tool in own["tools"]], **chosen}


def _flat(tool: Json) -> Json:
    function = tool.get("function")
    if not isinstance(function, dict):
        return tool
    return {**{name: value for name, value in tool.items() if name != "function"}, **function}


def _fields(manner: Manner) -> Json:
    fields: Json = {"stream": manner.stream}
    if manner.to_full_length:
        fields["ignore_eos"] = True
    return fields | manner.sampling | manner.extra


def _ask_length(fields: Json, tokens: int | None) -> None:
    if tokens is not None:
        fields["max_output_tokens"] = tokens


def _deltas(event: Json) -> tuple[str, bool]:
    """A streamed event, or a whole response. The first event of a function call has the function's name."""
    if "output" in event:
        return _whole(event["output"])
    kind = event["type"]
    if kind == "error":
        raise ServerError
    if kind in _VISIBLE:
        return "" + event["delta"], False
    if kind.endswith(".delta"):
        return "", bool(event.get("delta"))
    return "", kind == "response.output_item.added" and event["item"].get("type") == "function_call"


def _whole(items: list[Json]) -> tuple[str, bool]:
    parts = [part for item in items if item.get("type") == "message" for part in item.get("content") or []]
    text = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
    return text, any(item.get("type") not in {None, "message"} for item in items)


def _note(answer: Answer, event: Json) -> None:
    response = event if "output" in event else event.get("response")
    if not isinstance(response, dict):
        return
    answer.request_id = answer.request_id or as_text(response.get("id"))
    if isinstance(usage := response.get("usage"), dict):
        answer.usage = _usage(usage)
    if event.get("type") in _ENDS or "output" in event:
        _note_end(answer, response)


def _note_end(answer: Answer, response: Json) -> None:
    answer.done = True
    status = response.get("status")
    if status == "failed":
        answer.failed, answer.error = True, message_in({"error": response.get("error") or "the response failed"})
    elif status == "incomplete":
        reason = (response.get("incomplete_details") or {}).get("reason")
        answer.finish_reason = _REASONS.get(as_text(reason) or "", as_text(reason))
    elif status == "completed":
        calls = any(item.get("type") == "function_call" for item in response.get("output") or [])
        answer.finish_reason = "tool_calls" if calls else "stop"


def _usage(usage: Json) -> Json:
    """With the names of OpenAI's older APIs."""
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens")
    reasoning = (usage.get("output_tokens_details") or {}).get("reasoning_tokens")
    return {
        "prompt_tokens": count_in(usage, "input_tokens"),
        "completion_tokens": count_in(usage, "output_tokens"),
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


API = Api(
    path="/v1/responses",
    body=_body,
    deltas=_deltas,
    note=_note,
    fields=_fields,
    ask_length=_ask_length,
    takes_messages=True,
    tools=_tools,
)
