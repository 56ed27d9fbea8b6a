"""JSON within bounds: depth, numbers of 64 bits, and keys given twice. `NaN` and `Infinity` are read, as Python and
other tools write them; whether they mean something is for the reader to say."""

import json
import re
from collections import Counter
from itertools import accumulate
from typing import Any

from inferometer.documents.refused import MOST_DEPTH, NumberError, RefusedError, bounded_int

_STRINGS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_BRACKETS = re.compile(r"[\[\]{}]")
_TURN = {"[": 1, "{": 1, "]": -1, "}": -1}


def json_value(text: str) -> tuple[Any, list[str]]:
    """What the text is, and the keys that it gives twice, of which the last counts."""
    twice: dict[str, None] = {}

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        whole = dict(pairs)
        if len(whole) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            twice.update((name, None) for name, count in counts.items() if count > 1)
        return whole

    _check_depth(text)
    try:
        return json.loads(text, object_pairs_hook=mapping, parse_int=bounded_int), list(twice)
    except NumberError as error:  # the parser does not say where it was
        raise error.at(text, text.find(error.written)) from None
    except json.JSONDecodeError as error:
        raise RefusedError(_complaint(error, text), error.lineno, error.colno) from None
    except RecursionError:
        raise RefusedError("is nested too deeply") from None


def _complaint(error: json.JSONDecodeError, text: str) -> str:
    plain = f"{error.msg[0].lower()}{error.msg[1:]}"
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        return f"{plain}: it ends early, was it copied while it was written?"
    return plain


def _check_depth(text: str) -> None:
    """Before anything is parsed: a parser that recurses would be at its own end first."""
    if text.count("[") + text.count("{") <= MOST_DEPTH:
        return
    bare = _STRINGS.sub("", text)
    if max(accumulate(_TURN[bracket] for bracket in _BRACKETS.findall(bare)), default=0) > MOST_DEPTH:
        raise RefusedError(f"is nested deeper than {MOST_DEPTH} levels")
