"""Prompts of an exact number of tokens, from random numbers: a number is a token, equal numbers are equal tokens.

How exact depends on who counts: token ids are exact by themselves; text is by the tokenizer that the plan names or by
the server's own; without either it is about right, and the run compares what was asked with what was served.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from inferometer.errors import PlanError, TargetError
from inferometer.workload.context import WorkloadContext
from inferometer.workload.draws import Numbers
from inferometer.workload.served import ServerTokenizer
from inferometer.workload.session import Text
from inferometer.workload.tokenizers import count_tokens, tokenizer_named
from inferometer.workload.words import CountTokens, fitted_writer, lexicon_for, plain_lexicon, text_writer

Write = Callable[[Numbers], str] | Callable[[Numbers], list[int]]
SERVER = "server"
MODEL = "model"


@dataclass(frozen=True, slots=True)
class Writer:
    """`write` makes as many tokens as it gets numbers; a server adds `added` to a prompt, and in a chat `between` for
    each further question and answer. `exact` says whether that was counted or is only likely."""

    write: Write
    added: int = 0
    between: int = 0
    exact: bool = False

    def room(self, tokens: int) -> int:
        """How many tokens of our own make a prompt of so many; at least one."""
        return max(tokens - self.added, 1)


def writer_of(prompt_as: str, vocabulary: int, tokenizer: str | None, context: WorkloadContext) -> Writer:
    """The writer that a plan asks for. `tokenizer` is `server`, `model` (the target's own name), a folder or a name."""
    if prompt_as == "token_ids":
        size = vocabulary if tokenizer in (None, SERVER) else tokenizer_named(model_named(tokenizer, context)).size
        return Writer(ids_writer(size), exact=True)
    if tokenizer is None:
        return Writer(text_writer(plain_lexicon(), Text.of if context.keep_words else " ".join))
    return _by_server(context) if tokenizer == SERVER else _by_file(model_named(tokenizer, context), context)


def model_named(tokenizer: str | None, context: WorkloadContext) -> str:
    """The tokenizer's name; `model` stands for that of the target's model."""
    if tokenizer != MODEL:
        return tokenizer or ""
    if context.model is None:
        raise PlanError("workload.tokenizer: the model is not known, got model", "name a folder, or a model on the hub")
    return context.model


def ids_writer(vocabulary: int) -> Callable[[Numbers], list[int]]:
    """Ids from the vocabulary's first part, but not its first tenth: control tokens live there."""
    lowest = vocabulary // 10

    def token_ids(random: Numbers) -> list[int]:
        ids: list[int] = (random % (vocabulary - lowest) + lowest).tolist()
        return ids

    return token_ids


def _by_file(name: str, context: WorkloadContext) -> Writer:
    tokenizer = tokenizer_named(name)
    made = _words_by(name)
    if made is None:
        context.note(f"{name} has few words of one token: every prompt is counted and mended, which takes longer")
        made = Writer(fitted_writer(partial(count_tokens, tokenizer), tokenizer.added), tokenizer.added, exact=True)
    return _in_chat(made, "the", len(tokenizer.encode("the")), context) if context.api == "chat" else made


def _in_chat(plain: Writer, word: str, tokens: int, context: WorkloadContext) -> Writer:
    """A message does not get the first token that a prompt gets, but the chat template: the server knows its length."""
    try:
        with ServerTokenizer(context) as server:
            between = _between(server)
            return Writer(plain.write, server.count(word) - tokens, between, plain.exact)
    except TargetError:
        context.note("how many tokens the chat template adds is not known: compare asked with served input tokens")
        return Writer(plain.write)


def _by_server(context: WorkloadContext) -> Writer:
    if context.url is None:
        context.note("workload.tokenizer: there is no server to ask, so that lengths are about right")
        return Writer(text_writer(plain_lexicon()))
    with ServerTokenizer(context) as server:
        between = _between(server) if context.api == "chat" else 0
        made = _of_words(server.count)
        if made is not None:
            return Writer(made.write, made.added, between, exact=True)
        context.note("the server's tokenizer has few words of one token: lengths are about right, compare with served")
        return Writer(*_scaled(server.count), between)


@lru_cache(8)
def _words_by(name: str) -> Writer | None:
    """Kept: it takes a few hundred counts, and several traffic classes have the same tokenizer."""
    return _of_words(partial(count_tokens, tokenizer_named(name)))


def _of_words(count: CountTokens) -> Writer | None:
    lexicon = lexicon_for(count)
    return None if lexicon is None else Writer(text_writer(lexicon), lexicon.added, exact=True)


def _between(server: ServerTokenizer) -> int:
    """What the template adds for a further question and answer of a word each."""
    question, answer = {"role": "user", "content": "the"}, {"role": "assistant", "content": "the"}
    word = server.count_messages([{"role": "user", "content": "the the"}]) - server.count_messages([question])
    both = server.count_messages([question, answer, question]) - server.count_messages([question])
    return max(both - 2 * word, 0)


def _scaled(count: CountTokens) -> tuple[Write, int]:
    """Fewer words, by the tokens that a word has on average."""
    write, pool = text_writer(plain_lexicon()), plain_lexicon().rest
    added = 2 * count(" ".join(pool[:8])) - count(" ".join((*pool[:8], *pool[:8])))
    tokens_per_word = (count(" ".join(pool)) - added) / len(pool)
    return (lambda random: write(random[: max(round(len(random) / tokens_per_word), 1)])), max(added, 0)
