"""OpenAI's embeddings: text or token ids in, vectors out; the answer is done when it is whole. vLLM also takes chat
messages, with images where the model does."""

from inferometer.wire.api import Api, Json, Manner, Prompt, as_messages, plain_text


def _body(model: str | None, prompt: Prompt) -> Json:
    return {"model": model, "input": plain_text(prompt)}


def _deltas(event: Json) -> tuple[str, bool]:
    vectors = event["data"]
    if not vectors or not all(vector["embedding"] for vector in vectors):
        raise KeyError("embedding")
    return "", False


def extra_only(manner: Manner) -> Json:
    """Nothing is sampled and nothing streams."""
    return dict(manner.extra)


def no_length(_fields: Json, _tokens: int | None) -> None:
    """Nothing is generated."""


API = Api(
    path="/v1/embeddings",
    body=_body,
    deltas=_deltas,
    fields=extra_only,
    ask_length=no_length,
    generates=False,
    takes_ids=True,
)


def _chat_body(model: str | None, prompt: Prompt) -> Json:
    return {"model": model, "messages": as_messages(prompt)}


CHAT = Api(
    path="/v1/embeddings",
    body=_chat_body,
    deltas=_deltas,
    fields=extra_only,
    ask_length=no_length,
    generates=False,
    takes_messages=True,
    takes_images=True,
)
