"""APIs that generate nothing: OpenAI's embeddings, and rerank in the form of Cohere, Jina and vLLM."""

from itertools import pairwise

from inferometer.wire.api import Answer, Api, Json, Manner, Prompt, as_messages, as_text, count_in, plain_text


def _body(model: str | None, prompt: Prompt) -> Json:
    return {"model": model, "input": plain_text(prompt)}


def _deltas(event: Json) -> tuple[str, bool]:
    vectors = event["data"]
    if not vectors or not all(vector["embedding"] for vector in vectors):
        raise KeyError("embedding")
    return "", False


def extra_only(manner: Manner) -> Json:
    """Only the extra fields: nothing is sampled or streamed."""
    return dict(manner.extra)


def no_length(_fields: Json, _tokens: int | None) -> None:
    """No length: nothing is generated."""


EMBEDDINGS = Api(
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


EMBEDDINGS_CHAT = Api(
    path="/v1/embeddings",
    body=_chat_body,
    deltas=_deltas,
    fields=extra_only,
    ask_length=no_length,
    generates=False,
    takes_messages=True,
    takes_images=True,
)


DOCUMENTS = 8  # that a one-line prompt is cut into, in addition to the query


def _rerank_body(model: str | None, prompt: Prompt) -> Json:
    query, documents = query_and_documents(str(plain_text(prompt)))
    return {"model": model, "query": query, "documents": documents}


def query_and_documents(text: str) -> tuple[str, list[str]]:
    """The first line is the query, each other line a document. A single line is cut into a query and eight documents of
    equal numbers of words, without loss or repetition."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        lines = _even_parts(text.split(), 1 + DOCUMENTS)
    return (lines[0], lines[1:]) if len(lines) > 1 else (text, [text])


def _even_parts(words: list[str], parts: int) -> list[str]:
    ends = [len(words) * part // parts for part in range(parts + 1)]
    pieces = (words[start:end] for start, end in pairwise(ends))
    return [" ".join(piece) for piece in pieces if piece]


def _rerank_deltas(event: Json) -> tuple[str, bool]:
    results = event["results"]
    if not results or not all("relevance_score" in result for result in results):
        raise KeyError("relevance_score")
    return "", False


def _note(answer: Answer, event: Json) -> None:
    """vLLM and Jina count tokens in `usage`, Cohere in `meta.tokens`."""
    answer.request_id = as_text(event.get("id"))
    usage = event.get("usage") or {}
    meta = (event.get("meta") or {}).get("tokens") or {}
    counts = (count_in(usage, "prompt_tokens"), count_in(usage, "total_tokens"), count_in(meta, "input_tokens"))
    known = next((count for count in counts if count is not None), None)
    answer.usage = None if known is None else {"prompt_tokens": known}


RERANK = Api(
    path="/v1/rerank",
    body=_rerank_body,
    deltas=_rerank_deltas,
    note=_note,
    fields=extra_only,
    ask_length=no_length,
    generates=False,
    prompt_once=False,
)
