"""Field types of a plan's sections: parsing of human-readable values, and checks that report every error.

The text of a `ValueError` here continues a path: `load.rate` + ` must be a number`.
"""

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetJsonSchemaHandler,
    PlainSerializer,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from inferometer import vocabulary
from inferometer.documents.document import JsonObject, JsonValue
from inferometer.documents.json_text import MOST_INT

_BOUNDS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # all but tabs: these end a line, a header or an argument
MOST_S = 3650 * 86400.0  # of any duration: ten years
MOST_NUMBER = 1e12  # of any rate, weight or price: squares and sums of them stay finite
MOST_TOKENS = 10_000_000  # of one prompt or answer: ten times the longest existing context
MOST_REQUESTS = 1_000_000_000  # of one run: 11 days at a thousand a second
HUMAN = {"human": True}  # serialization context: write `60s` and `ttft p99 < 500ms`, not 60.0 and a mapping


@dataclass(frozen=True, slots=True)
class Mistake:
    """A conflict between settings that are valid individually; `about` names the sections compared."""

    path: tuple[str | int, ...]
    text: str
    about: tuple[str, ...] = ()


class SectionError(ValueError):
    """All errors that one section found in its own fields."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, m.path))} {m.text}".strip() for m in mistakes))
        self.mistakes = mistakes


class Section(BaseModel):
    """A part of a plan: unknown keys are errors, and instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, defer_build=True)
    short_forms: ClassVar[list[JsonObject]] = []  # JSON schemas of values that may replace the mapping

    @classmethod
    def usual(cls, **values: Any) -> Self:
        """An instance for the default of a field, without validation: that would build the validator of each section at
        every start, and the validator of the plan contains them all. A test compares it with the validated one."""
        return cast(Self, cls.model_construct(**values))

    def disagreements(self) -> Iterator[Mistake]:
        """Conflicts between fields of the section; all of them are reported, not only the first."""
        return iter(())

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Returns itself: sections are immutable, and pydantic would copy every default for every traffic class."""
        return self

    def derived(self) -> frozenset[str]:
        """Fields that are derived from others: a plan written for people omits them."""
        return frozenset()

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if mistakes := list(self.disagreements()):
            raise SectionError(mistakes)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        for name, field in cls.model_fields.items():
            schema["properties"][name] = _bounded(schema["properties"][name], field.metadata)
        if not cls.short_forms:
            return schema
        return {"title": schema.pop("title", cls.__name__), "anyOf": [schema, *cls.short_forms]}


class Phrase(Section):
    """A section that is written as a phrase, `ttft p99 < 500ms`, or as a mapping of its parts."""

    @classmethod
    def split(cls, text: str) -> dict[str, JsonValue]:
        """The parts of the phrase, as they were written."""
        raise NotImplementedError

    @classmethod
    def checked(cls, parts: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """The parts converted to their units; pydantic reports parts of a wrong type."""
        raise NotImplementedError

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        parts = cls.split(value) if isinstance(value, str) else value
        return cls.checked(parts) if isinstance(parts, dict) else parts

    @model_serializer(mode="wrap")
    def _write(self, plainly: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
        return str(self) if is_human(info) else plainly(self)


def _bounded(schema: JsonSchemaValue, metadata: list[Any]) -> JsonSchemaValue:
    """A field's schema with bounds on the number; pydantic drops them for fields that also accept text (`2k`)."""
    is_number = schema.get("type") in ("number", "integer")
    whole = {name: value for name, value in schema.items() if is_number or name not in _BOUNDS}
    if is_number:
        for entry in metadata:
            whole |= {name: getattr(entry, key) for key, name in _BOUNDS.items() if hasattr(entry, key)}
    if "anyOf" in schema:
        whole["anyOf"] = [_bounded(entry, metadata) for entry in schema["anyOf"]]
    return whole


def is_human(info: SerializationInfo) -> bool:
    """Whether the plan is being written for people."""
    return bool(info.context and info.context.get("human"))


def _read_by(parse: Callable[[str | float], float], must: str, most: float, most_text: str) -> BeforeValidator:
    def read(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(must)
        try:
            number = parse(value)
        except ValueError:
            raise ValueError(must) from None
        if abs(number) > most:
            raise ValueError(f"must be at most {most_text}")
        return number

    return BeforeValidator(read)


def _write_duration(value: float, info: SerializationInfo) -> str | float:
    return vocabulary.duration_written(value) if is_human(info) else value


def _one_or_several(value: Any) -> Any:
    return [value] if isinstance(value, str | dict) else value


def single_line(text: str) -> str:
    """Check that a text has no characters that would end a line, a header or a command's argument."""
    if _CONTROL.search(text):
        raise ValueError("must be a single line without control characters")
    return text


def request_path(text: str) -> str:
    """Check a path for the first line of a request: a blank would end it, and other characters need %-escapes."""
    if not text.startswith("/"):
        raise ValueError("must start with /")
    if re.search(r"[^!-~]", text):
        raise ValueError("must be URL-encoded, with %20 for a space and without line breaks")
    return text


def _header(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value) if isinstance(value, int | float) else value
    if isinstance(text, str) and _CONTROL.search(text):
        raise ValueError("must be a single line")
    if isinstance(text, str) and not as_header(text):
        raise ValueError("must consist of Latin-1 characters: headers cannot have others")
    return text


def as_header(text: str) -> bool:
    """Whether a text can be sent in a header: one line of ISO 8859-1."""
    return not _CONTROL.search(text) and not re.search(r"[^\x00-\xff]", text)


def is_header_name(name: str) -> bool:
    return re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) is not None


def _header_name(name: Any) -> Any:
    if isinstance(name, str) and not is_header_name(name):
        raise ValueError("is not a valid header name")
    return name


DURATION_TEXT: dict[str, JsonValue] = {
    "type": "string",
    "pattern": r"^\s*-?([0-9._]+(e[+-]?[0-9]+)?\s*[a-zA-Zµ]*\s*)+$",
    "examples": ["500ms", "60s", "1h30m"],
}
COUNT_TEXT: dict[str, JsonValue] = {
    "type": "string",
    "pattern": r"^\s*[+-]?[0-9._]+([eE][+-]?[0-9]+)?\s*([kKmMgG]i?)?[bB]?\s*$",
    "examples": ["300", "2k", "4Ki"],
}

Duration = Annotated[
    float,
    _read_by(vocabulary.seconds, "must be a duration such as 500ms, 60s or 1h30m", MOST_S, "3650d"),
    PlainSerializer(_write_duration),
    WithJsonSchema({"anyOf": [{"type": "number"}, DURATION_TEXT]}),
]
Count = Annotated[
    int,
    _read_by(vocabulary.count, "must be a whole number such as 300, 2k or 4Ki", MOST_INT, f"{MOST_INT:,}"),
    WithJsonSchema({"anyOf": [{"type": "integer"}, COUNT_TEXT]}),
]
Tokens = Annotated[
    int,
    _read_by(vocabulary.count, "must be a whole number such as 300, 2k or 4Ki", MOST_TOKENS, f"{MOST_TOKENS:,}"),
    WithJsonSchema({"anyOf": [{"type": "integer", "maximum": MOST_TOKENS}, COUNT_TEXT]}),
]
Requests = Annotated[
    int,
    _read_by(vocabulary.count, "must be a whole number such as 300, 2k or 4Ki", MOST_REQUESTS, f"{MOST_REQUESTS:,}"),
    WithJsonSchema({"anyOf": [{"type": "integer", "maximum": MOST_REQUESTS}, COUNT_TEXT]}),
]
Number = Annotated[
    float,
    _read_by(vocabulary.number, "must be a number such as 2.5 or 1e3", MOST_NUMBER, f"{MOST_NUMBER:,.0f}"),
    WithJsonSchema({"anyOf": [{"type": "number"}, COUNT_TEXT]}),
]


def one_or_several(kind: Any) -> BeforeValidator:
    """The type of a list of `kind` that accepts a single value too."""
    return BeforeValidator(_one_or_several, json_schema_input_type=kind | list[kind])


Line = Annotated[str, AfterValidator(single_line)]
RequestPath = Annotated[str, AfterValidator(request_path)]
Headers = dict[
    Annotated[str, BeforeValidator(_header_name)],
    Annotated[str, BeforeValidator(_header, json_schema_input_type=str | int | float | bool)],
]


def plain_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _argv(value: Any) -> Any:
    """A command: a text is split like in a shell; a list stays as it is, with numbers as text."""
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as error:
            raise ValueError(f"must be a command: {str(error).lower()}") from None
    return [plain_text(arg) for arg in value] if isinstance(value, list) else value


def _argument(text: str) -> str:
    """Check one argument: it may have several lines (`bash -c`), but no NUL character."""
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    return text


Argument = Annotated[str, AfterValidator(_argument)]
Argv = Annotated[list[Argument], BeforeValidator(_argv, json_schema_input_type=str | list[str])]
