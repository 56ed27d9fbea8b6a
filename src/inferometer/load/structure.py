"""Whether an answer has the form that was asked for. White space around it is ignored: tokenizers
begin with some."""

import re
from collections.abc import Callable

import orjson

from inferometer.errors import MissingExtra
from inferometer.plan.structured import Structured

HasForm = Callable[[str], bool]


def form_check(structured: Structured | None) -> HasForm | None:
    """Made once per traffic class; None where nothing is asked for, or only what cannot be checked: a grammar."""
    if structured is None or structured.form == "grammar":
        return None
    if structured.json_schema is not None:
        return _schema_check(structured)
    if structured.regex is not None:
        pattern = re.compile(structured.regex)
        return lambda text: pattern.fullmatch(text.strip()) is not None
    if structured.choice is not None:
        choices = {choice.strip() for choice in structured.choice}
        return lambda text: text.strip() in choices
    return lambda text: isinstance(_json_in(text), dict)


def _schema_check(structured: Structured) -> HasForm:
    try:
        from jsonschema.validators import validator_for
    except ImportError:
        raise MissingExtra("checking answers against a JSON schema", "structured") from None
    kind = validator_for(structured.json_schema)
    validator = kind(structured.json_schema)

    def check(text: str) -> bool:
        value = _json_in(text)
        try:
            return value is not _NO_JSON and validator.is_valid(value)
        except RecursionError:  # nested too deep for the schema that was asked for
            return False

    return check


_NO_JSON = object()


def _json_in(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _NO_JSON
