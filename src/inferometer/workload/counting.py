"""How many tokens texts have: by the tokenizer that a plan names, or by their length, which is then said."""

from collections.abc import Callable
from dataclasses import dataclass

from inferometer.wire.api import CHARACTERS_PER_TOKEN, tokens_by_length
from inferometer.workload.context import WorkloadContext
from inferometer.workload.served import ServerTokenizer
from inferometer.workload.tokenizers import tokenizer_named
from inferometer.workload.writer import model_named


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Counts the tokens of a text; `added` are those that a server puts before a prompt."""

    count: Callable[[str], int]
    by: str  # what counts, in words
    exact: bool = True
    added: int = 0


def token_count(tokenizer: str | None, context: WorkloadContext) -> TokenCount:
    """The count that a plan's `tokenizer` asks for; without one, an estimate."""
    if tokenizer is None:
        return TokenCount(_estimate, f"estimated, {CHARACTERS_PER_TOKEN} characters each", exact=False)
    if tokenizer == "server":
        server = ServerTokenizer(context)
        around = server.count("")  # what the server puts around every prompt, such as a chat template
        return TokenCount(lambda text: server.count(text) - around, f"by /tokenize of {context.url}", added=around)
    named = tokenizer_named(model_named(tokenizer, context))
    return TokenCount(lambda text: len(named.encode(text)), f"by {named.name}", added=named.added)


def _estimate(text: str) -> int:
    return tokens_by_length(text) if text else 0
