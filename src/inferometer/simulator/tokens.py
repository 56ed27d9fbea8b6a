"""The simulator's tokenizer (one token per word) and its model (pseudo-random words that depend only on the prompt)."""

import random
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, cast

from inferometer.workload.session import Prompt, words_of

Token = str | int
Tokens = tuple[Token, ...]  # not lists, which the garbage collector would traverse in the cache
_TAPE_LENGTH = 1 << 16
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in ("a", "e", "i", "o", "u", "ä", "ö")]


def tokens_of(prompt: Prompt) -> Tokens:
    """The tokens: words of a text, a list of ids, or chat messages with three template tokens each."""
    if isinstance(prompt, str):
        return tuple(words_of(prompt))
    if prompt and isinstance(prompt[0], dict):
        return _chat_tokens(prompt)
    return tuple(cast(list[int], prompt))


def _chat_tokens(messages: Iterable[dict[str, Any]]) -> Tokens:
    tokens: list[Token] = []
    for message in messages:
        tokens += (
            "<|start|>",
            f"<|{message.get('role', 'user')}|>",
            *words_of(_content(message.get("content"))),
            "<|end|>",
        )
    return (*tokens, "<|start|>", "<|assistant|>")


def _content(content: Any) -> str:
    """The text of a message: a string, or the text parts of a list."""
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def fingerprint(tokens: Sequence[Token], seed: int) -> int:
    """A hash of both ends of the prompt that determines the answer; unlike `hash` it is the same in every process."""
    ends = [len(tokens), *tokens[:8], *tokens[-8:]]
    return zlib.crc32(" ".join(map(str, ends)).encode(), seed)


@cache
def tape() -> tuple[str, ...]:
    """All words of answers, in order; an answer is a part of it. Some are not ASCII, on purpose."""
    rng = random.Random(8)
    words = ["".join(rng.choices(_SYLLABLES, k=rng.randint(1, 4))) for _ in range(4096)]
    return tuple(rng.choices(words, k=_TAPE_LENGTH))


def answer_words(print_: int, length: int) -> tuple[str, ...]:
    """The first `length` words of the answer to a prompt with this fingerprint."""
    words, start = tape(), print_ % _TAPE_LENGTH
    answer = words[start : start + length]
    while len(answer) < length:
        answer += words[: length - len(answer)]
    return answer


def answer_text(words: Sequence[str]) -> str:
    """The streamed text: a space before each word, as with most tokenizers."""
    return f" {' '.join(words)}" if words else ""


def natural_length(print_: int, mean: int) -> int:
    """The length at which the answer ends by itself: geometric with this mean, determined by the prompt."""
    return 1 + int(random.Random(print_).expovariate(1 / max(mean - 0.5, 0.5)))
