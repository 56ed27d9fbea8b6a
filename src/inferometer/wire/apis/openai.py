"""OpenAI's completions and chat completions, as vLLM, SGLang and llama.cpp serve them: text, token ids or messages in;
text, reasoning and tool calls out."""

from inferometer.wire.api import Api, Json, Prompt, as_messages, plain_text

# -- chat ------------------------------------------------------------------------------------------------------------


def _chat_body(model: str | None, prompt: Prompt) -> Json:
    return {"model": model, "messages": as_messages(prompt)}


def chat_deltas(event: Json) -> tuple[str, bool]:
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


CHAT = Api(
    path="/v1/chat/completions",
    body=_chat_body,
    deltas=chat_deltas,
    text_key=b'"content":"',
    takes_messages=True,
    tools=dict,
    takes_images=True,
    prompt_as_is=True,
)

# -- completions -----------------------------------------------------------------------------------------------------


def _completion_body(model: str | None, prompt: Prompt) -> Json:
    return {"model": model, "prompt": prompt if isinstance(prompt, str) else plain_text(prompt)}


def completion_deltas(event: Json) -> tuple[str, bool]:
    choices = event["choices"]
    if len(choices) == 1:  # nearly always
        return "" + (choices[0].get("text") or ""), False
    return "".join(choice.get("text") or "" for choice in choices), False


COMPLETIONS = Api(
    path="/v1/completions",
    body=_completion_body,
    deltas=completion_deltas,
    text_key=b'"text":"',
    takes_ids=True,
    prompt_as_is=True,
)
