"""The generate API of Text Generation Inference: one event per token, with the totals in the last one."""

from inferometer.wire.api import Answer, Api, Json, Manner, Prompt, as_text, count_in, plain_text

_REASONS = {"eos_token": "stop", "stop_sequence": "stop"}


def _body(_model: str | None, prompt: Prompt) -> Json:
    return {"inputs": plain_text(prompt)}


def _fields(manner: Manner) -> Json:
    """`extra` may contain fields of `parameters` too. There is no way to force more tokens than the model generates by
    itself."""
    own = dict(manner.sampling)
    own.pop("min_tokens", None)
    extra = dict(manner.extra)
    parameters = {"details": True} | own | extra.pop("parameters", {})
    if parameters.get("temperature") == 0:  # greedy: left out, because TGI refuses 0
        del parameters["temperature"]
    return {"parameters": parameters} | extra


def _ask_length(fields: Json, tokens: int | None) -> None:
    if tokens is not None:
        fields["parameters"] = fields["parameters"] | {"max_new_tokens": tokens}


def _deltas(event: Json) -> tuple[str, bool]:
    """A special token, such as the end of the text, is a token that readers do not see."""
    token = event.get("token")
    if token is None:
        return "" + event["generated_text"], False
    return ("", True) if token.get("special") else ("" + token["text"], not token["text"])


def _note(answer: Answer, event: Json) -> None:
    details = event.get("details")
    if event.get("generated_text") is not None:
        answer.done = True
    if not isinstance(details, dict):
        return
    reason = details.get("finish_reason")
    answer.finish_reason = _REASONS.get(as_text(reason) or "", as_text(reason))
    read = count_in(details, "input_length")
    prefill = details.get("prefill")
    if read is None and isinstance(prefill, list) and prefill:
        read = len(prefill)
    answer.usage = {"prompt_tokens": read, "completion_tokens": count_in(details, "generated_tokens")}


API = Api(
    path="/generate_stream",
    whole_path="/generate",
    body=_body,
    deltas=_deltas,
    note=_note,
    fields=_fields,
    ask_length=_ask_length,
    needs_model=False,
)
