"""Text from elsewhere, such as names of models and answers of servers, as it may be shown anywhere: without characters
that command a terminal, turn the direction of writing, or cannot be written at all.

One function for each way out: lines for people, one line, JSON, and cells of a table that a spreadsheet opens."""

import re
from collections.abc import Mapping
from typing import Any

_UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
MOST_OF_FILE_NAME = 80
_SURROGATE = re.compile("[\ud800-\udfff]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def harmless(text: str) -> str:
    """Lines and tabs stay; a lone surrogate, which JSON may hold and UTF-8 may not, goes with the others."""
    if text.isascii() and text.isprintable():  # nearly always, and 20 times as fast
        return text
    return _UNSHOWN.sub("\ufffd", text.replace("\r\n", "\n"))


def is_harmless(text: str) -> bool:
    """Whether it may be shown as it is."""
    return _UNSHOWN.search(text) is None


def one_line(text: str) -> str:
    """Blanks of every kind become single ones."""
    return " ".join(harmless(" ".join(text.split())).split())


def cut(text: str, most: int) -> str:
    """At most so many characters, the last an ellipsis where something was left out."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def file_name_part(text: str) -> str:
    """A user's name as part of a file name: it leads to no other folder."""
    return cut(re.sub(r"[^\w.+ -]+|^[.]+", "_", text), MOST_OF_FILE_NAME)


def json_text(content: object, option: int = 0) -> str:
    """JSON with those characters as escapes: it means the same, and may be shown and embedded."""
    return _UNSHOWN.sub(lambda match: f"\\u{ord(match[0]):04x}", json_bytes(content, option).decode())


def json_bytes(content: object, option: int = 0) -> bytes:
    """As orjson writes it; a lone surrogate, which it refuses, is replaced."""
    import orjson  # help is printed without it

    try:
        return orjson.dumps(content, option=option)
    except TypeError:
        return orjson.dumps(_without_surrogates(content), option=option)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_without_surrogates(name): _without_surrogates(inner) for name, inner in value.items()}
    return [_without_surrogates(inner) for inner in value] if isinstance(value, list | tuple) else value


def cell(value: Any) -> Any:
    """A value of a table, not so that a spreadsheet would take it for a formula."""
    if not isinstance(value, str):
        return value
    text = harmless(value)
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    """`-1.5` as a text is no formula."""
    try:
        float(text)
    except ValueError:
        return False
    return True
