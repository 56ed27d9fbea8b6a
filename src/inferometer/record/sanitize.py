"""Makes text from outside, such as names of models and answers of servers, safe to show anywhere: without characters
that control a terminal, change the writing direction, or cannot be encoded.

One function for each kind of output: several lines for people, one line, JSON, and cells of a table that a spreadsheet
may open.
"""

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
    """Lines and tabs stay; a lone surrogate, which is possible in JSON but not in UTF-8, is removed like the others."""
    if text.isascii() and text.isprintable():  # nearly always, and 20 times as fast
        return text
    return _UNSHOWN.sub("\ufffd", text.replace("\r\n", "\n"))


def is_harmless(text: str) -> bool:
    """Whether it can be shown unchanged."""
    return _UNSHOWN.search(text) is None


def one_line(text: str) -> str:
    """Any whitespace becomes a single blank."""
    return " ".join(harmless(" ".join(text.split())).split())


def cut(text: str, most: int) -> str:
    """At most this many characters; the last one is an ellipsis if the text was cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def file_name_part(text: str) -> str:
    """A user's name as part of a file name that cannot lead to another folder."""
    return cut(re.sub(r"[^\w.+ -]+|^[.]+", "_", text), MOST_OF_FILE_NAME)


def json_text(content: object, option: int = 0) -> str:
    """JSON with those characters as escapes: equivalent JSON that can be shown and embedded."""
    return _UNSHOWN.sub(lambda match: f"\\u{ord(match[0]):04x}", json_bytes(content, option).decode())


def json_bytes(content: object, option: int = 0) -> bytes:
    """As orjson writes it; lone surrogates, which it refuses, are replaced."""
    import orjson  # not needed for printing help

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
    """A value of a table in a form that a spreadsheet does not take for a formula."""
    if not isinstance(value, str):
        return value
    text = harmless(value)
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    """A number such as `-1.5` is no formula."""
    try:
        float(text)
    except ValueError:
        return False
    return True
