"""The words that made-up text consists of, and which of them are one token each for a given tokenizer.

The pool is 1024 ordinary words that are a single token, with a space before them and without, in the vocabularies of
GPT-2, cl100k (the base of Llama 3 and Qwen), o200k and Llama 2. Only counts are asked of a tokenizer: so a server's
/tokenize will do, and no call is needed per prompt.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from inferometer.workload.draws import Numbers, numbers

CountTokens = Callable[[str], int]

FIRST_TRIED = 64  # words that are tried as the first of a text; one call each
FEWEST = 64  # single-token words that are enough for text: six bits a token
PROOFS = 4  # texts that are counted before the words are trusted


@dataclass(frozen=True, slots=True)
class Lexicon:
    """A text of `first` and then any of `rest`, with spaces between, has as many tokens as words, and `added` more."""

    first: tuple[str, ...]
    rest: tuple[str, ...]
    added: int = 0


@cache
def words() -> tuple[str, ...]:
    """The pool, a power of two of them, so that a draw is a mask of random bits."""
    pool = tuple(files("inferometer.workload").joinpath("words.txt").read_text("ascii").split())
    assert len(pool) & (len(pool) - 1) == 0
    return pool


def plain_lexicon() -> Lexicon:
    """All words, where no tokenizer is asked."""
    return Lexicon(words(), words())


def lexicon_for(count: CountTokens) -> Lexicon | None:
    """The words that are one token each by this count; None where there are too few, or where they do not add up."""
    pool = words()
    tried = pool[:: len(pool) // FIRST_TRIED]
    counts = [count(word) for word in tried]
    least = min(counts)
    first = tuple(word for word, tokens in zip(tried, counts, strict=True) if tokens == least)
    rest = tuple(_single(pool, lambda some: count(" ".join((first[0], *some))) - least - len(some)))
    lexicon = Lexicon(first, rest, least - 1)
    return lexicon if len(rest) >= FEWEST and _adds_up(lexicon, count) else None


def _single(some: Sequence[str], excess: Callable[[Sequence[str]], int]) -> list[str]:
    """Those that bring no more tokens than words, found by halving: a few counts where nearly all are fine."""
    if excess(some) == 0:
        return list(some)
    if len(some) == 1:
        return []
    half = len(some) // 2
    return _single(some[:half], excess) + _single(some[half:], excess)


def _adds_up(lexicon: Lexicon, count: CountTokens) -> bool:
    """Proof by example: words that are single one by one could still merge with their neighbours."""
    write = text_writer(lexicon)
    lengths = [1, 2, 17, *(257 * proof for proof in range(1, PROOFS + 1))]
    return all(count(write(numbers(b"proof %d" % n, n))) == n + lexicon.added for n in lengths)


def text_writer(lexicon: Lexicon, join: Callable[[list[str]], str] = " ".join) -> Callable[[Numbers], str]:
    """Random numbers as words. Picked by numpy: a third of the time that a look-up per word takes in Python."""
    first, pool = lexicon.first, np.array(lexicon.rest, dtype=object)
    size = len(pool)
    mask = size - 1 if size & (size - 1) == 0 else None

    def text(random: Numbers) -> str:
        if not len(random):
            return ""
        chosen = pool.take(random & mask if mask is not None else random % size).tolist()
        chosen[0] = first[int(random[0]) % len(first)]
        return join(chosen)

    return text


def fitted_writer(count: CountTokens, added: int) -> Callable[[Numbers], str]:
    """For tokenizers with hardly a word of one token: words are left out or letters put in until the count fits."""
    write = text_writer(plain_lexicon())

    def text(random: Numbers) -> str:
        wanted = len(random) + added
        low, high = 1, len(random)  # the most words that are not too many
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if count(write(random[:middle])) <= wanted else (low, middle - 1)
        return _filled(write(random[:low]), wanted, count)

    return text


def _filled(text: str, wanted: int, count: CountTokens) -> str:
    """Single letters and marks behind the text, or letters cut off, while that brings the count nearer."""
    while (missing := wanted - count(text)) > 0:
        step = next((more for more in (" a", " .", ".", "a") if 0 < count(text + more) - count(text) <= missing), None)
        if step is None:
            return text
        text += step
    while len(text) > 1 and count(text) > wanted:
        text = text[:-1]
    return text
