"""Parses request bodies, rejects them as vLLM does, and makes the sequence for the engine; for the server and for
virtual time."""

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from string import ascii_letters, digits
from typing import Any, cast

import orjson

from inferometer.documents.document import JsonObject, JsonValue, settings_of
from inferometer.plan.structured import Structured
from inferometer.simulator.bodies import RequestBody, Schema, StreamOptions, Thinking
from inferometer.simulator.engine import Sequence
from inferometer.simulator.settings import SimulatorSettings
from inferometer.simulator.tokens import Tokens, answer_words, fingerprint, natural_length, tokens_of

# -- requests --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Generation:
    """The prompt in tokens and the bounds of the answer."""

    tokens: Tokens
    max_tokens: int | None = None  # None: as many as fit
    min_tokens: int = 0
    ignore_eos: bool = False
    structured: Structured | None = None


def too_long(generation: Generation, settings: SimulatorSettings) -> str | None:
    """vLLM's error if the model's context is too short: the message, and the parameter to blame."""
    room, prompt = settings.max_model_len, len(generation.tokens)
    if generation.max_tokens is not None and generation.max_tokens > room:
        return (
            f"max_tokens={generation.max_tokens} cannot be greater than max_model_len=max_total_tokens={room}. "
            f"Please request fewer output tokens. (parameter=max_tokens, value={generation.max_tokens})"
        )
    if prompt + (generation.max_tokens or 1) > room:
        return (
            f"This model's maximum context length is {room} tokens. However, you requested "
            f"{generation.max_tokens or 1} output tokens and your prompt contains {prompt} input tokens, for a total "
            f"of {prompt + (generation.max_tokens or 1)} tokens. Please reduce the length of the input prompt or the "
            f"number of requested output tokens. (parameter=input_tokens, value={prompt})"
        )
    return None


def sequence_for(generation: Generation, settings: SimulatorSettings) -> tuple[Sequence, str]:
    """The sequence with its whole answer and its finish reason."""
    print_ = fingerprint(generation.tokens, settings.seed)
    words = None if generation.structured is None else _structured_answer(generation.structured, print_, settings)
    room = settings.max_model_len - len(generation.tokens)
    most = room if generation.max_tokens is None else min(generation.max_tokens, room)
    natural = (
        len(words)
        if words is not None
        else most
        if generation.ignore_eos
        else max(natural_length(print_, settings.mean_output_tokens), generation.min_tokens)
    )
    length = max(1, min(natural, most))
    reason = "stop" if natural < most else "length"
    answer = answer_words(print_, length) if words is None else words[:length]
    return Sequence(generation.tokens or ("<|start|>",), answer), reason


def _structured_answer(wanted: Structured, print_: int, settings: SimulatorSettings) -> tuple[str, ...] | None:
    """A structured answer, which ends by itself; a share, chosen by the prompt, is made invalid."""
    try:
        words = structured_words(wanted, print_)
    except (ValueError, LookupError, TypeError) as problem:
        raise bad(f"structured output: {problem}", "response_format") from None
    spoiled = words is not None and random.Random(print_ + 1).random() < settings.structure_errors
    return (*words, SPOILED) if words is not None and spoiled else words


# -- questions -------------------------------------------------------------------------------------------------------

_DEFAULT_MAX_TOKENS = 16  # for completions; chat continues to the end of the context


class RefusalError(Exception):
    """A request that is answered with an error status and a body in vLLM's format."""

    def __init__(self, status: int, message: str, kind: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param


@dataclass(slots=True)
class Question:
    """One parsed request body; several prompts make several choices."""

    chat: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool
    generations: list[Generation]
    reasoning: int = 0  # maximum number of reasoning tokens at the beginning

    @property
    def prompt_tokens(self) -> int:
        return sum(len(generation.tokens) for generation in self.generations)


def bad(message: str, param: str | None = None) -> RefusalError:
    return RefusalError(400, message, "BadRequestError", param)


def read_json(body: bytes) -> RequestBody:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise bad("the body must be a JSON object")
    return cast(RequestBody, value)


def read_question(body: bytes, chat: bool, settings: SimulatorSettings) -> Question:
    fields = read_json(body)
    check_model(fields, settings)
    options: StreamOptions = fields.get("stream_options") or {}
    if options and not fields.get("stream"):
        raise bad("Stream options can only be defined when `stream=True`.", "stream_options")
    generations = [generation_for(tokens, fields, chat, settings) for tokens in _prompts(fields, chat)]
    include = bool(options.get("include_usage"))
    return Question(
        chat=chat,
        stream=bool(fields.get("stream")),
        include_usage=include,
        continuous_usage=include and bool(options.get("continuous_usage_stats")),
        generations=generations * max(1, _whole(fields.get("n"), "n") or 1),
    )


def check_model(fields: RequestBody, settings: SimulatorSettings) -> None:
    model = fields.get("model", settings.model)
    if model != settings.model and model not in settings.adapters:
        raise RefusalError(404, f"The model `{model}` does not exist.", "NotFoundError", "model")


def generation_for(prompt: Any, fields: RequestBody, chat: bool, settings: SimulatorSettings) -> Generation:
    """The generation for a body with OpenAI's fields; an error if it does not fit the model's context."""
    most = _whole(fields.get("max_completion_tokens"), "max_completion_tokens") if chat else None
    most = most if most is not None else _whole(fields.get("max_tokens"), "max_tokens")
    generation = Generation(
        tokens=tokens_of(prompt),
        max_tokens=most if most is not None or chat else _DEFAULT_MAX_TOKENS,
        min_tokens=_whole(fields.get("min_tokens"), "min_tokens") or 0,
        ignore_eos=bool(fields.get("ignore_eos")),
        structured=Structured.among(settings_of(fields)),
    )
    if not generation.tokens:
        raise bad("The prompt must not be empty.", "messages" if chat else "prompt")
    if most is not None and most < 1:
        raise bad(f"max_tokens must be at least 1, got {most}. (parameter=max_tokens, value={most})", "max_tokens")
    refusal = too_long(generation, settings)
    if refusal is not None:
        raise bad(refusal, "max_tokens" if refusal.startswith("max_tokens") else "input_tokens")
    return generation


def _prompts(fields: RequestBody, chat: bool) -> list[Any]:
    """Each prompt of the body: a text, a list of token ids, or a list of either; or chat messages."""
    if chat:
        messages = fields.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
            raise bad("messages must be a list of messages", "messages")
        return [messages]
    prompt = fields.get("prompt")
    if isinstance(prompt, str) or _are_ids(prompt):
        return [prompt]
    if isinstance(prompt, list) and prompt and all(isinstance(entry, str) or _are_ids(entry) for entry in prompt):
        return prompt
    raise bad("prompt must be a text, a list of token ids, or a list of these", "prompt")


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and set(map(type, value)) == {int}


def _whole(value: JsonValue, name: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise bad(f"{name} must be a whole number, got {value!r}", name)


# -- dialect questions -----------------------------------------------------------------------------------------------

TGI_TOKENS = 100  # TGI's default


def _question(
    prompts: list[Any], options: RequestBody, settings: SimulatorSettings, *, stream: bool = False
) -> Question:
    given = {name: value for name, value in settings_of(options).items() if value is not None}
    wanted = cast(RequestBody, given)
    return Question(
        chat=False,
        stream=stream,
        include_usage=True,
        continuous_usage=False,
        generations=[generation_for(prompt, wanted, chat=True, settings=settings) for prompt in prompts],
    )


def read_responses(body: bytes, settings: SimulatorSettings) -> Question:
    fields = read_json(body)
    check_model(fields, settings)
    given = fields.get("input")
    if not isinstance(given, str | list) or not given:
        raise bad("input must be a text or a list of items", "input")
    prompt = [{"role": "user", "content": given}] if isinstance(given, str) else given
    options: RequestBody = {
        "max_tokens": fields.get("max_output_tokens"),
        "ignore_eos": fields.get("ignore_eos"),
        "text": fields.get("text"),
    }
    question = _question([prompt], options, settings, stream=bool(fields.get("stream")))
    if (fields.get("reasoning") or {}).get("effort"):
        question.reasoning = max(1, (fields.get("max_output_tokens") or 64) // 2)
    return question


def read_anthropic(body: bytes, settings: SimulatorSettings) -> Question:
    fields = read_json(body)
    check_model(fields, settings)
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise bad("messages must be a list of messages", "messages")
    if fields.get("max_tokens") is None:
        raise bad("max_tokens: Field required", "max_tokens")
    system = [{"role": "system", "content": fields["system"]}] if fields.get("system") else []
    options: RequestBody = {"max_tokens": fields["max_tokens"], "ignore_eos": fields.get("ignore_eos")}
    question = _question([[*system, *messages]], options, settings, stream=bool(fields.get("stream")))
    thinking: Thinking = fields.get("thinking") or {}
    question.reasoning = int(thinking.get("budget_tokens") or 0) if thinking.get("type") == "enabled" else 0
    return question


def read_tgi(body: bytes, settings: SimulatorSettings, stream: bool) -> Question:
    fields = read_json(body)
    if not isinstance(fields.get("inputs"), str):
        raise bad("inputs must be a text", "inputs")
    options: RequestBody = {"max_tokens": (fields.get("parameters") or {}).get("max_new_tokens", TGI_TOKENS)}
    return _question([fields["inputs"]], options, settings, stream=stream)


def read_transcription(body: bytes, settings: SimulatorSettings) -> Question:
    """A form with a sound file; 640 bytes (20 ms of speech at 16 kHz) count as one token."""
    fields, sound = _form(body)
    if not sound:
        raise bad("a file is needed", "file")
    print_ = fingerprint([sound.hex()], settings.seed)
    words = [f"sound{print_}-{at}" for at in range(max(1, len(sound) // 640))]
    question: dict[str, JsonValue] = {"model": fields.get("model", settings.model), "messages": [_user_message(words)]}
    if fields.get("stream") == "true":
        usage = fields.get("stream_include_usage") == "true"
        continuous = usage and fields.get("stream_continuous_usage_stats") == "true"
        question |= {"stream": True, "stream_options": {"include_usage": usage, "continuous_usage_stats": continuous}}
    if (most := fields.get("max_completion_tokens")) is not None:
        question["max_completion_tokens"] = int(most) if most.isdigit() else most
    return read_question(orjson.dumps(question), True, settings)


def _user_message(words: list[str]) -> dict[str, str]:
    return {"role": "user", "content": " ".join(words)}


def _form(body: bytes) -> tuple[dict[str, str], bytes]:
    """The fields of a multipart form, and its file."""
    boundary = body.partition(b"\r\n")[0]
    fields, sound = {}, b""
    for part in body.split(boundary)[1:-1] if boundary.startswith(b"--") else []:
        head, _, data = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        name = head.partition(b'name="')[2].partition(b'"')[0].decode("utf-8", "replace")
        if b"filename=" in head:
            sound = data.removesuffix(b"\r\n")
        else:
            fields[name] = data.removesuffix(b"\r\n").decode("utf-8", "replace")
    return fields, sound


def read_embeddings(body: bytes, settings: SimulatorSettings) -> Question:
    """An embedding request; one generated token represents the pass that computes a vector."""
    fields = read_json(body)
    check_model(fields, settings)
    given = fields.get("input")
    one = isinstance(given, str) or (isinstance(given, list) and bool(given) and isinstance(given[0], int))
    prompts = [given] if one else given
    if not isinstance(prompts, list) or not prompts or not all(isinstance(prompt, str | list) for prompt in prompts):
        raise bad("input must be a text, token ids, or a list of these", "input")
    return _question(prompts, {"max_tokens": 1}, settings)


def read_rerank(body: bytes, settings: SimulatorSettings) -> Question:
    """A rerank request; every document is computed together with the query."""
    fields = read_json(body)
    check_model(fields, settings)
    query, documents = fields.get("query"), fields.get("documents")
    if not isinstance(query, str) or not isinstance(documents, list) or not documents:
        raise bad("a query and documents are needed", "documents")
    texts = [document.get("text", "") if isinstance(document, dict) else str(document) for document in documents]
    return _question([f"{query} {text}" for text in texts], {"max_tokens": 1}, settings)


# -- structured answers ------------------------------------------------------------------------------------------------

# Structured answers, as words: JSON for a schema, a match of a regular expression, or one of several choices. The
# schemas and expressions of benchmarks are supported; others are rejected.

SPOILED = "~"  # appended to make an answer invalid on purpose
_MOST_REPEATS = 4  # beyond the minimum number of repeats of an expression
_DEEPEST = 20  # levels of a schema, which may be recursive
_WORDS_OF = {"CATEGORY_DIGIT": digits, "CATEGORY_WORD": ascii_letters + digits + "_", "CATEGORY_SPACE": " "}


def structured_words(wanted: Structured, print_: int) -> tuple[str, ...] | None:
    """The whole answer to a prompt with this fingerprint; None for free text and grammars. ValueError for an
    unsupported format."""
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

    def __init__(self, root: JsonObject, rng: random.Random) -> None:
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
            return self._of(cast(Schema, schema))
        finally:
            self._depth -= 1

    def _of(self, schema: Schema) -> Any:
        if "$ref" in schema:
            return self.value(self._referred(schema["$ref"]))
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._rng.choice(schema["enum"])
        if "anyOf" in schema:
            return self.value(schema["anyOf"][0])
        if "oneOf" in schema:
            return self.value(schema["oneOf"][0])
        if "allOf" in schema:
            return self.value({name: part for one in schema["allOf"] for name, part in one.items()})
        kind = schema.get("type", "object" if "properties" in schema else "array" if "items" in schema else "string")
        kind = kind[0] if isinstance(kind, list) else kind
        makers: dict[str, Callable[[Schema], Any]] = {
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

    def _object(self, schema: Schema) -> dict[str, JsonValue]:
        properties = schema.get("properties") or {}
        names = [*dict.fromkeys([*properties, *schema.get("required", [])])]
        if self._depth > _DEEPEST // 2:  # omit optional parts, so that recursive schemas end
            names = schema.get("required", [])
        return {name: self.value(properties.get(name)) for name in names}

    def _array(self, schema: Schema) -> list[Any]:
        fewest, most = schema.get("minItems", 0), schema.get("maxItems")
        length = fewest if self._depth > _DEEPEST // 2 else max(fewest, 2)
        length = length if most is None else min(length, most)
        if (first := schema.get("prefixItems")) is not None:
            return [self.value(part) for part in first]
        return [self.value(schema.get("items")) for _ in range(length)]

    def _string(self, schema: Schema) -> str:
        if "pattern" in schema:
            return _match(schema["pattern"], self._rng)
        text: str = _FORMATS.get(schema.get("format", "")) or answer_words(self._rng.getrandbits(32), 1)[0]
        text += "a" * (schema.get("minLength", 0) - len(text))
        return text[: schema.get("maxLength")]

    def _number(self, schema: Schema, step: float) -> float:
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
    """A text that the whole expression matches."""
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
    return ""  # an anchor; for anything else the text will not match


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
