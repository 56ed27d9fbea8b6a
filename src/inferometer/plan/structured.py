"""Structured output: the formats that a plan can request, their fields in a request, and how they are recognised in
request fields of other tools' plans. `load.answer` validates answers."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.plan.fields import Mistake, Section, one_or_several

Syntax = Literal["response_format", "structured_outputs", "guided", "sglang"]
FORMS = ("json_schema", "json_object", "regex", "choice", "grammar")
# Field names of the formats in each syntax; a format without a name cannot be requested in that syntax.
_NAMES: dict[Syntax, dict[str, str]] = {
    "structured_outputs": {
        "json_schema": "json",
        "json_object": "json_object",
        "regex": "regex",
        "choice": "choice",
        "grammar": "grammar",
    },
    "guided": {
        "json_schema": "guided_json",
        "regex": "guided_regex",
        "choice": "guided_choice",
        "grammar": "guided_grammar",
    },
    "sglang": {"json_schema": "json_schema", "regex": "regex", "grammar": "ebnf"},
}


class Structured(Section):
    """Structured output: the form that answers must have. Each answer is checked, see the measure `structure_valid`."""

    json_schema: dict[str, JsonValue] | None = Field(None, description="a JSON schema", repr=False)
    json_object: Literal[True] | None = Field(None, description="any JSON object")
    regex: str | None = Field(None, min_length=1, description="a regular expression for the whole answer")
    choice: Annotated[list[str], one_or_several(str)] | None = Field(
        None, min_length=1, description="one of these texts"
    )
    grammar: str | None = Field(None, min_length=1, description="a grammar (EBNF); answers are not checked against it")
    syntax: Syntax | None = Field(
        None,
        description="how it is requested: `response_format` (OpenAI; default for JSON), `structured_outputs` (vLLM; "
        "default for the others), `guided` (guided_json and so on, older vLLM), `sglang` (regex, ebnf)",
    )

    @property
    def form(self) -> str:
        return next(name for name in FORMS if getattr(self, name) is not None)

    @property
    def written_as(self) -> Syntax:
        return self.syntax or ("response_format" if self.form.startswith("json") else "structured_outputs")

    def disagreements(self) -> Iterator[Mistake]:
        given = [name for name in FORMS if getattr(self, name) is not None]
        if len(given) != 1:
            yield Mistake((), f"must have exactly one of {', '.join(FORMS)}, got {', '.join(given) or 'none'}")
            return
        if self.regex is not None:
            try:
                re.compile(self.regex)
            except re.error as error:
                yield Mistake(("regex",), f"must be a regular expression: {error}")
        if self.json_schema is not None and (problem := _schema_problem(self.json_schema)):
            yield Mistake(("json_schema",), f"must be a JSON schema: {problem}")
        if self.written_as == "response_format" and not self.form.startswith("json"):
            yield Mistake(("syntax",), f"response_format has JSON only, not a {self.form}: use structured_outputs")
        elif self.written_as != "response_format" and self.form not in _NAMES[self.written_as]:
            yield Mistake(("syntax",), f"{self.written_as} has no {self.form}: leave it out, or use structured_outputs")

    def fields(self, api: str) -> dict[str, JsonValue]:
        """The fields in the request body of an OpenAI-compatible API."""
        syntax, value = self.written_as, getattr(self, self.form)
        if syntax == "response_format":
            return self._response_format(api)
        name = _NAMES[syntax][self.form]
        if syntax == "sglang":
            return {name: json.dumps(value) if self.json_schema is not None else value}
        return {"structured_outputs": {name: value}} if syntax == "structured_outputs" else {name: value}

    def _response_format(self, api: str) -> dict[str, JsonValue]:
        if self.json_schema is None:
            wanted: dict[str, JsonValue] = {"type": "json_object"}
        elif api == "responses":
            wanted = {"type": "json_schema", "name": "answer", "schema": self.json_schema}
        else:
            wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": self.json_schema}}
        return {"text": {"format": wanted}} if api == "responses" else {"response_format": wanted}

    @classmethod
    def among(cls, fields: JsonObject) -> Self | None:
        """The format requested by the fields of a request body, in any syntax; None if there is no known one."""
        text = fields.get("text")
        wanted = fields.get("response_format") or (text.get("format") if isinstance(text, dict) else None)
        if isinstance(wanted, dict):
            inner = wanted.get("json_schema")
            schema = inner.get("schema") if isinstance(inner, dict) else wanted.get("schema")
            if wanted.get("type") == "json_object":
                return cls(json_object=True)
            return cls(json_schema=schema) if isinstance(schema, dict) else None
        for syntax, names in _NAMES.items():
            place: Any = fields.get("structured_outputs") if syntax == "structured_outputs" else fields
            for form, name in names.items() if isinstance(place, Mapping) else ():
                if (value := place.get(name)) is not None:
                    return cls._of(form, value, syntax)
        return None

    @classmethod
    def _of(cls, form: str, value: Any, syntax: Syntax) -> Self | None:
        """The format; a schema may be given as text, and unknown formats are left to the server."""
        try:
            schema = json.loads(value) if form == "json_schema" and isinstance(value, str) else value
            return cls.model_validate({form: schema, "syntax": syntax})
        except ValueError:
            return None


def _schema_problem(schema: dict[str, JsonValue]) -> str | None:
    """What is wrong with a schema, if the extra for validation is installed."""
    try:
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for
    except ImportError:
        return None
    try:
        validator_for(schema).check_schema(schema)
    except SchemaError as error:
        return str(error.message)
    return None
