"""Rerank as Cohere, Jina and vLLM have it: a query and documents in, a score for each document out."""

from itertools import pairwise

from inferometer.wire.api import Answer, Api, Json, Prompt, as_text, count_in, plain_text
from inferometer.wire.apis.embeddings import extra_only, no_length

DOCUMENTS = 8  # that a prompt of one line is cut into, beside the query


def _body(model: str | None, prompt: Prompt) -> Json:
    query, documents = query_and_documents(str(plain_text(prompt)))
    return {"model": model, "query": query, "documents": documents}


def query_and_documents(text: str) -> tuple[str, list[str]]:
    """The first line is the query, each other one a document. A single line is cut into a query and eight documents
    of as many words each: nothing is lost, nothing added."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        lines = _even_parts(text.split(), 1 + DOCUMENTS)
    return (lines[0], lines[1:]) if len(lines) > 1 else (text, [text])


def _even_parts(words: list[str], parts: int) -> list[str]:
    ends = [len(words) * part // parts for part in range(parts + 1)]
    pieces = (words[start:end] for start, end in pairwise(ends))
    return [" ".join(piece) for piece in pieces if piece]


def _deltas(event: Json) -> tuple[str, bool]:
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


API = Api(
    path="/v1/rerank",
    body=_body,
    deltas=_deltas,
    note=_note,
    fields=extra_only,
    ask_length=no_length,
    generates=False,
    prompt_once=False,
)
