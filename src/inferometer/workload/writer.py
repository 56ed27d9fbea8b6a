"""Prompts with an exact number of tokens, from random numbers (one per token); the words that they consist of; and
counting the tokens of texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib.resources import files

import numpy as np

from inferometer.errors import PlanError, TargetError
from inferometer.wire.api import CHARACTERS_PER_TOKEN, tokens_by_length
from inferometer.wire.compiled import compiled
from inferometer.workload.draws import Numbers, numbers
from inferometer.workload.session import TokenText, WorkloadContext
from inferometer.workload.tokenizers import ServerTokenizer, count_tokens, tokenizer_named

# -- words -----------------------------------------------------------------------------------------------------------

CountTokens = Callable[[str], int]

FIRST_TRIED = 64  # candidates for the first word of a text; one call each
FEWEST = 64  # minimum number of single-token words: six bits per token
WORDS_S = 120.0  # time limit for counting words at a server; a fast one takes some seconds
PROOFS = 4  # texts that are counted to verify the words


@dataclass(frozen=True, slots=True)
class Lexicon:
    """A text of `first` and then any of `rest`, joined by spaces, has one token per word, plus `added`."""

    first: tuple[str, ...]
    rest: tuple[str, ...]
    added: int = 0


@cache
def words() -> tuple[str, ...]:
    """The pool of words, a power of two, so that a draw is a mask of random bits."""
    pool = tuple(files("inferometer.workload").joinpath("words.txt").read_text("ascii").split())
    assert len(pool) & (len(pool) - 1) == 0
    return pool


def plain_lexicon() -> Lexicon:
    """All words, if no tokenizer is used."""
    return Lexicon(words(), words())


def lexicon_for(count: CountTokens) -> Lexicon | None:
    """The words that are one token each by this count; None if there are too few, or if their counts do not add up."""
    pool = words()
    tried = pool[:: len(pool) // FIRST_TRIED]
    counts = [count(word) for word in tried]
    least = min(counts)
    first = tuple(word for word, tokens in zip(tried, counts, strict=True) if tokens == least)
    rest = tuple(_single(pool, lambda some: count(" ".join((first[0], *some))) - least - len(some)))
    lexicon = Lexicon(first, rest, least - 1)
    return lexicon if len(rest) >= FEWEST and _adds_up(lexicon, count) else None


def _single(some: Sequence[str], excess: Callable[[Sequence[str]], int]) -> list[str]:
    """The words that are one token each, found by bisection: a few counts if nearly all are."""
    if excess(some) == 0:
        return list(some)
    if len(some) == 1:
        return []
    half = len(some) // 2
    return _single(some[:half], excess) + _single(some[half:], excess)


def _adds_up(lexicon: Lexicon, count: CountTokens) -> bool:
    """Verify the words in sample texts: words that are single tokens could still merge with their neighbours."""
    write = text_writer(lexicon)
    lengths = [1, 2, 17, *(257 * proof for proof in range(1, PROOFS + 1))]
    return all(count(write(numbers(b"proof %d" % n, n))) == n + lexicon.added for n in lengths)


def text_writer(lexicon: Lexicon, join: Callable[[list[str]], str] | None = None) -> Callable[[Numbers], str]:
    """A writer of words from random numbers. For 128 tokens the compiled reader takes 1 us and numpy 5, a third of the
    time of a look-up per word in Python."""
    reader = compiled()
    if reader is not None and join is None and all(map(str.isascii, (*lexicon.first, *lexicon.rest))):
        return lambda random: str(reader.join_words(lexicon.first, lexicon.rest, random))
    first, pool = lexicon.first, np.array(lexicon.rest, dtype=object)
    size = len(pool)
    mask = np.uint32(size - 1) if size & (size - 1) == 0 else None
    alike = mask is not None and first == lexicon.rest  # the first word is drawn like the others

    def text(random: Numbers) -> str:
        if not len(random):
            return ""
        chosen = pool.take(random & mask if mask is not None else random % size).tolist()
        if not alike:
            chosen[0] = first[int(random[0]) % len(first)]
        return " ".join(chosen) if join is None else join(chosen)

    return text


def fitted_writer(count: CountTokens, added: int) -> Callable[[Numbers], str]:
    """A writer for tokenizers with few single-token words: words are removed or letters added until the count fits."""
    write = text_writer(plain_lexicon())

    def text(random: Numbers) -> str:
        wanted = len(random) + added
        low, high = 1, len(random)  # the maximum number of words that fit
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if count(write(random[:middle])) <= wanted else (low, middle - 1)
        return _filled(write(random[:low]), wanted, count)

    return text


def _filled(text: str, wanted: int, count: CountTokens) -> str:
    """Append single letters and marks, or cut letters, while the count gets closer."""
    while (missing := wanted - count(text)) > 0:
        step = next((more for more in (" a", " .", ".", "a") if 0 < count(text + more) - count(text) <= missing), None)
        if step is None:
            return text
        text += step
    while len(text) > 1 and count(text) > wanted:
        text = text[:-1]
    return text


# -- writer ----------------------------------------------------------------------------------------------------------

Write = Callable[[Numbers], str] | Callable[[Numbers], list[int]]
SERVER = "server"
MODEL = "model"


@dataclass(frozen=True, slots=True)
class Writer:
    """`write` makes one token per number; a server adds `added` tokens to a prompt, and in a chat `between` for each
    further question and answer. `exact`: counted, not estimated."""

    write: Write
    added: int = 0
    between: int = 0
    exact: bool = False

    def room(self, tokens: int) -> int:
        """The number of generated tokens for a prompt of a total length; at least one."""
        return max(tokens - self.added, 1)


def writer_of(prompt_as: str, vocabulary: int, tokenizer: str | None, context: WorkloadContext) -> Writer:
    """The writer for a plan's tokenizer. `tokenizer` is `server`, `model` (the target's own name), a folder or a
    name."""
    if prompt_as == "token_ids":
        size = vocabulary if tokenizer in (None, SERVER) else tokenizer_named(model_named(tokenizer, context)).size
        return Writer(ids_writer(size), exact=True)
    if tokenizer is None:
        return Writer(text_writer(plain_lexicon(), TokenText.of if context.keep_words else None))
    return _by_server(context) if tokenizer == SERVER else _by_file(model_named(tokenizer, context), context)


def model_named(tokenizer: str | None, context: WorkloadContext) -> str:
    """The tokenizer's name; `model` stands for that of the target's model."""
    if tokenizer != MODEL:
        return tokenizer or ""
    if context.model is None:
        raise PlanError("workload.tokenizer: the model is not known, got model", "name a folder, or a model on the hub")
    return context.model


def ids_writer(vocabulary: int) -> Callable[[Numbers], list[int]]:
    """A writer of token ids from the first part of the vocabulary, except its first tenth with the control tokens."""
    lowest = vocabulary // 10

    def token_ids(random: Numbers) -> list[int]:
        ids: list[int] = (random % (vocabulary - lowest) + lowest).tolist()
        return ids

    return token_ids


def _by_file(name: str, context: WorkloadContext) -> Writer:
    tokenizer = tokenizer_named(name)
    made = _words_by(name)
    if made is None:
        context.note(f"{name} has few single-token words: every prompt is counted and corrected, which takes longer")
        made = Writer(fitted_writer(partial(count_tokens, tokenizer), tokenizer.added), tokenizer.added, exact=True)
    return _in_chat(made, "the", len(tokenizer.encode("the")), context) if context.api == "chat" else made


def _in_chat(plain: Writer, word: str, tokens: int, context: WorkloadContext) -> Writer:
    """The writer for chats: a message gets the chat template instead of a prompt's first token; the server counts
    it."""
    try:
        with ServerTokenizer(context, WORDS_S) as server:
            between = _between(server)
            return Writer(plain.write, server.count(word) - tokens, between, plain.exact)
    except TargetError:
        context.note("the number of chat template tokens is unknown: compare requested and reported input tokens")
        return Writer(plain.write)


def _by_server(context: WorkloadContext) -> Writer:
    if context.url is None:
        context.note("workload.tokenizer: no server is available, so lengths are approximate")
        return Writer(text_writer(plain_lexicon()))
    with ServerTokenizer(context, WORDS_S) as server:
        between = _between(server) if context.api == "chat" else 0
        made = _of_words(server.count)
        if made is not None:
            return Writer(made.write, made.added, between, exact=True)
        context.note(
            "the server's tokenizer has few single-token words: lengths are approximate, compare with reported ones"
        )
        return Writer(*_scaled(server), between)


@lru_cache(8)
def _words_by(name: str) -> Writer | None:
    """The lexicon of a tokenizer, cached: it takes a few hundred counts, and traffic classes share it."""
    return _of_words(partial(count_tokens, tokenizer_named(name)))


def _of_words(count: CountTokens) -> Writer | None:
    lexicon = lexicon_for(count)
    return None if lexicon is None else Writer(text_writer(lexicon), lexicon.added, exact=True)


def _between(server: ServerTokenizer) -> int:
    """The tokens that the template adds for a further question and answer of one word each."""
    question, answer = {"role": "user", "content": "the"}, {"role": "assistant", "content": "the"}
    per_word = server.count_messages([{"role": "user", "content": "the the"}]) - server.count_messages([question])
    both = server.count_messages([question, answer, question]) - server.count_messages([question])
    return max(both - 2 * per_word, 0)


def _scaled(server: ServerTokenizer) -> tuple[Write, int]:
    """A writer of fewer words, scaled by the mean tokens per word."""
    write, pool, count = text_writer(plain_lexicon()), plain_lexicon().rest, server.count
    added = 2 * count(" ".join(pool[:8])) - count(" ".join((*pool[:8], *pool[:8])))
    tokens_per_word = (count(" ".join(pool)) - added) / len(pool)
    if tokens_per_word <= 0:
        raise server.refused(f"it counts no more tokens in {len(pool):,} words than in a few")
    return (lambda random: write(random[: max(round(len(random) / tokens_per_word), 1)])), max(added, 0)


# -- counting --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """Counts the tokens of a text; `added` are tokens that a server adds to a prompt."""

    count: Callable[[str], int]
    by: str  # description of the counter
    exact: bool = True
    added: int = 0


def token_count(tokenizer: str | None, context: WorkloadContext) -> TokenCounter:
    """The token counter for a plan's `tokenizer`; without one, an estimate."""
    if tokenizer is None:
        return TokenCounter(_estimate, f"estimated, {CHARACTERS_PER_TOKEN} characters each", exact=False)
    if tokenizer == "server":
        server = ServerTokenizer(context)
        around = server.count("")  # tokens that the server adds to every prompt, such as a chat template
        return TokenCounter(
            lambda text: max(server.count(text) - around, 0), f"by /tokenize of {context.url}", added=around
        )
    named = tokenizer_named(model_named(tokenizer, context))
    return TokenCounter(lambda text: len(named.encode(text)), f"by {named.name}", added=named.added)


def _estimate(text: str) -> int:
    return tokens_by_length(text) if text else 0
