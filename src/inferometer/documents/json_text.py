"""JSON within bounds (depth, numbers of 64 bits, keys given twice), and why a document cannot be read and where in it;
whoever reads it adds the name of the file."""

import json
import re
from collections import Counter
from itertools import accumulate
from typing import Any

# -- refused ---------------------------------------------------------------------------------------------------------

MOST_DEPTH = 100  # levels of lists and mappings: real files have up to 20, and readers behind us recurse
LEAST_INT, MOST_INT = -(2**63), 2**63 - 1  # what databases, Parquet files and other languages can hold


class RefusedError(ValueError):
    """The text goes on where `file:3:7: ` stopped; line and column count from 1 and may be unknown."""

    def __init__(self, text: str, line: int | None = None, column: int | None = None, hint: str | None = None) -> None:
        super().__init__(text)
        self.text, self.line, self.column, self.hint = text, line, column, hint

    def at(self, text: str, position: int) -> "RefusedError":
        """Itself with the line and column of a position in the text."""
        line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
        return RefusedError(self.text, line, column, self.hint)

    @property
    def position(self) -> str:
        """`:3:7`, as compilers write it; empty where it is unknown."""
        return "".join(f":{number}" for number in (self.line, self.column) if number is not None)

    @property
    def sentence(self) -> str:
        """`line 3 column 7: what is wrong`."""
        named = (("line", self.line), ("column", self.column))
        place = " ".join(f"{name} {number}" for name, number in named if number is not None)
        return f"{place}: {self.text}" if place else self.text


class NumberError(RefusedError):
    """A number that cannot be kept, as it was written."""

    def __init__(self, text: str, written: str) -> None:
        super().__init__(text)
        self.written = written


def bounded_int(text: str) -> int:
    """A whole number that 64 bits can hold; Python itself would go on to millions of digits."""
    if len(text) > 20 + text.count("_"):
        digits = text.lstrip("+-").lstrip("0_")
        if len(digits) > 24:
            raise NumberError(f"a number of {len(digits):,} digits is beyond 64 bits", text)
    value = int(text)
    if not LEAST_INT <= value <= MOST_INT:
        raise NumberError(f"{value} is beyond 64 bits", text)
    return value


# -- json text -------------------------------------------------------------------------------------------------------

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
