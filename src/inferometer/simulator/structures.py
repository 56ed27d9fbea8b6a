"""Answers of a form that a request asks for, as words: JSON that a schema allows, a match of a regular expression, one
of some choices. Schemas and expressions are those of benchmarks: what is beyond them is answered with a refusal."""

import json
import random
import re
from collections.abc import Callable
from string import ascii_letters, digits
from typing import Any

from inferometer.plan.structured import Structured
from inferometer.simulator.tokens import answer_words

SPOILED = "~"  # behind an answer that is spoiled on purpose: no JSON, no choice
_MOST_REPEATS = 4  # beyond the fewest, of what an expression repeats
_DEEPEST = 20  # levels of a schema; one may refer to itself
_WORDS_OF = {"CATEGORY_DIGIT": digits, "CATEGORY_WORD": ascii_letters + digits + "_", "CATEGORY_SPACE": " "}


def structured_words(wanted: Structured, print_: int) -> tuple[str, ...] | None:
    """The whole answer to a prompt with this fingerprint; None where the form is free: a grammar is not followed.
    ValueError for a form that is not understood."""
    rng = random.Random(print_)
    if wanted.form == "grammar":
        return None
    if wanted.choice is not None:
        text = rng.choice(wanted.choice)
    elif wanted.regex is not None:
        text = _match(wanted.regex, rng)
    else:
        value = {"answer": answer_words(print_, 1)[0]}
        schema = wanted.json_schema
        text = json.dumps(
            value if schema is None else _Maker(schema, rng).value(schema),
            ensure_ascii=False,
            separators=(" , ", " : "),
        )
    return tuple(text.split(" "))


class _Maker:
    """Makes a value that a schema allows."""

    def __init__(self, root: dict[str, Any], rng: random.Random) -> None:
        self._root = root
        self._rng = rng
        self._depth = 0

    def value(self, schema: Any) -> Any:
        if not isinstance(schema, dict) or not schema:
            return "anything"
        if self._depth > _DEEPEST:
            raise ValueError("the schema refers to itself without an end")
        self._depth += 1
        try:
            return self._of(schema)
        finally:
            self._depth -= 1

    def _of(self, schema: dict[str, Any]) -> Any:
        if "$ref" in schema:
            return self.value(self._referred(schema["$ref"]))
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._rng.choice(schema["enum"])
        for several in ("anyOf", "oneOf"):
            if several in schema:
                return self.value(schema[several][0])
        if "allOf" in schema:
            return self.value({name: part for one in schema["allOf"] for name, part in one.items()})
        kind = schema.get("type", "object" if "properties" in schema else "array" if "items" in schema else "string")
        kind = kind[0] if isinstance(kind, list) else kind
        makers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": lambda schema: int(self._number(schema, 1)),
            "number": lambda schema: self._number(schema, 0.5),
            "boolean": lambda _schema: self._rng.random() < 0.5,
            "null": lambda _schema: None,
        }
        if kind not in makers:
            raise ValueError(f"the type {kind!r} is not one of JSON's")
        return makers[kind](schema)

    def _referred(self, place: str) -> Any:
        schema: Any = self._root
        for name in place.removeprefix("#").split("/")[1:]:
            schema = schema[name]
        return schema

    def _object(self, schema: dict[str, Any]) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        names = [*dict.fromkeys([*properties, *schema.get("required", [])])]
        if self._depth > _DEEPEST // 2:  # what may be left out is, or a schema that refers to itself had no end
            names = schema.get("required", [])
        return {name: self.value(properties.get(name)) for name in names}

    def _array(self, schema: dict[str, Any]) -> list[Any]:
        fewest, most = schema.get("minItems", 0), schema.get("maxItems")
        length = fewest if self._depth > _DEEPEST // 2 else max(fewest, 2)
        length = length if most is None else min(length, most)
        if (first := schema.get("prefixItems")) is not None:
            return [self.value(part) for part in first]
        return [self.value(schema.get("items")) for _ in range(length)]

    def _string(self, schema: dict[str, Any]) -> str:
        if "pattern" in schema:
            return _match(schema["pattern"], self._rng)
        text: str = _FORMATS.get(schema.get("format", "")) or answer_words(self._rng.getrandbits(32), 1)[0]
        text += "a" * (schema.get("minLength", 0) - len(text))
        return text[: schema.get("maxLength")]

    def _number(self, schema: dict[str, Any], step: float) -> float:
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + step * ("exclusiveMinimum" in schema))
        high = schema.get("maximum", schema.get("exclusiveMaximum", low + 100) - step * ("exclusiveMaximum" in schema))
        value: float = max(low, min(high, round(self._rng.uniform(low, max(low, high)))))
        of = schema.get("multipleOf")
        return value if of is None else float(-(-low // of) * of)


_FORMATS = {
    "date": "2024-05-17",
    "date-time": "2024-05-17T10:00:00Z",
    "time": "10:00:00Z",
    "email": "a@example.com",
    "uri": "https://example.com",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}


def _match(pattern: str, rng: random.Random) -> str:
    """A text that the expression matches from its beginning to its end."""
    text = _text_of(re._parser.parse(pattern), rng)  # type: ignore[attr-defined]
    if re.fullmatch(pattern, text) is None:
        raise ValueError(f"the regular expression {pattern!r} is beyond the simulator")
    return text


def _text_of(parts: Any, rng: random.Random) -> str:
    return "".join(_piece(str(code), value, rng) for code, value in parts)


def _piece(code: str, value: Any, rng: random.Random) -> str:
    if code == "LITERAL":
        return chr(value)
    if code == "ANY":
        return rng.choice(ascii_letters)
    if code == "IN":
        return rng.choice(_letters(value))
    if code == "BRANCH":
        return _text_of(rng.choice(value[1]), rng)
    if code == "SUBPATTERN":
        return _text_of(value[-1], rng)
    if code in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        fewest, most, part = value
        times = rng.randint(fewest, min(int(most), fewest + _MOST_REPEATS))
        return "".join(_text_of(part, rng) for _ in range(times))
    return ""  # an anchor; what else there is shows when the text does not match


def _letters(choices: Any) -> str:
    named = [(str(code), value) for code, value in choices]
    letters = "".join(_letters_of(code, value) for code, value in named)
    if named[0][0] == "NEGATE":
        return "".join(letter for letter in ascii_letters + digits if letter not in letters) or "-"
    return letters or "-"


def _letters_of(code: str, value: Any) -> str:
    if code == "LITERAL":
        return chr(value)
    if code == "RANGE":
        return "".join(map(chr, range(value[0], min(value[1], value[0] + 100) + 1)))
    return _WORDS_OF.get(str(value), "") if code == "CATEGORY" else ""
