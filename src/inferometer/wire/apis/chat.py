"""OpenAI's chat completions: messages in; content, reasoning and tool calls out."""

from inferometer.wire.api import Api, Json, Prompt, as_messages


def _body(model: str | None, prompt: Prompt) -> Json:
    return {"model": model, "messages": as_messages(prompt)}


def deltas(event: Json) -> tuple[str, bool]:
    """Works on a streamed event's `delta` and on a whole answer's `message`."""
    text, other = "", False
    for choice in event["choices"]:
        delta = choice.get("delta") or choice.get("message") or {}
        text += delta.get("content") or ""
        if delta.get("reasoning_content") or delta.get("reasoning") or delta.get("tool_calls"):
            other = True
        elif delta.get("refusal"):
            text += delta["refusal"]
    return text, other


API = Api(path="/v1/chat/completions", body=_body, deltas=deltas, text_key=b'"content":"')
