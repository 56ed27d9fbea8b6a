"""Text from elsewhere, such as names of models and answers of servers, as it may be shown anywhere: without characters
that command a terminal, turn the direction of writing, or cannot be written at all."""

import re

_UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def harmless(text: str) -> str:
    """Lines and tabs stay; a lone surrogate, which JSON may hold and UTF-8 may not, goes with the others."""
    return _UNSHOWN.sub("�", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Blanks of every kind become single ones."""
    return " ".join(harmless(" ".join(text.split())).split())


def cut(text: str, most: int) -> str:
    """At most so many characters, the last an ellipsis where something was left out."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
