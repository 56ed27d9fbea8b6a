"""OpenAI's completions, as vLLM, SGLang and llama.cpp serve them: text or token ids in, text out."""

from inferometer.wire.api import Api, Json, Prompt, plain_text


def _body(model: str | None, prompt: Prompt) -> Json:
    return {"model": model, "prompt": prompt if isinstance(prompt, str) else plain_text(prompt)}


def deltas(event: Json) -> tuple[str, bool]:
    choices = event["choices"]
    if len(choices) == 1:  # nearly always
        return "" + (choices[0].get("text") or ""), False
    return "".join(choice.get("text") or "" for choice in choices), False


API = Api(path="/v1/completions", body=_body, deltas=deltas, text_key=b'"text":"')
