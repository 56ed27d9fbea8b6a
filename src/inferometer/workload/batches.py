"""What an engine without a server is given: batches of random token ids, and the requests of any workload in a row."""

from collections.abc import Callable
from typing import Any

from inferometer.errors import PlanError
from inferometer.wire.api import chat_text
from inferometer.workload.draws import numbers
from inferometer.workload.session import Request, Workload
from inferometer.workload.writer import ids_writer

VOCABULARY = 10_000  # token ids are drawn below it, as `vllm bench` does; models have more


def random_batches(
    batch_size: int, input_len: int, output_len: int, seed: int, vocabulary: int | None
) -> Callable[[int], list[list[int]]]:
    """From a number to a batch, another one for each number, seed and shape: no cache has seen its prompts."""
    write = ids_writer(min(vocabulary or VOCABULARY, VOCABULARY))

    def batch(number: int) -> list[list[int]]:
        key = f"offline {seed} {number} {batch_size} {input_len} {output_len}".encode()
        ids = write(numbers(key, batch_size * input_len))
        return [ids[at * input_len : (at + 1) * input_len] for at in range(batch_size)]

    return batch


def requests_of(workload: Workload, first: int, wanted: int) -> list[Request]:
    """So many requests from a session on. Of a session that needs live answers only the first turn is taken."""
    requests: list[Request] = []
    session = first
    while len(requests) < wanted:
        made = workload(session)
        requests += made.turns[:1] if made.live else made.turns
        session += 1
    if any(request.output_tokens is None for request in requests[:wanted]):
        text = "workload: output lengths are missing; an engine without a server needs them"
        raise PlanError(text, "give --output-len")
    return requests[:wanted]


OfflinePrompt = list[int] | str | list[dict[str, Any]]


def as_batch(requests: list[Request], chat: bool = False) -> tuple[list[OfflinePrompt], list[int]]:
    """Prompts as text or token ids, messages written as text unless the engine is given a chat; and the length of each
    answer."""
    prompts = [_messages(request) if chat else _plain(request) for request in requests]
    return prompts, [request.output_tokens or 1 for request in requests]


def _messages(request: Request) -> OfflinePrompt:
    prompt = request.prompt
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    messages = [part for part in prompt if isinstance(part, dict)]
    return messages or [part for part in prompt if isinstance(part, int)]


def _plain(request: Request) -> list[int] | str:
    prompt = request.prompt
    if isinstance(prompt, str):
        return prompt
    messages = [part for part in prompt if isinstance(part, dict)]
    return chat_text(messages) if messages else [part for part in prompt if isinstance(part, int)]
