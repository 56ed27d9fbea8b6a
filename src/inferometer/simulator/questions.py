"""Reads the bodies that clients send to /v1/completions and /v1/chat/completions, and refuses them as vLLM would."""

from dataclasses import dataclass
from typing import Any, cast

import orjson

from inferometer.simulator.asked import Asked, too_long
from inferometer.simulator.settings import SimulatorSettings
from inferometer.simulator.tokens import tokens_of

_DEFAULT_MAX_TOKENS = 16  # of completions; chat goes on to the end of the context


class RefusalError(Exception):
    """Answered with an error status and a body of vLLM's shape."""

    def __init__(self, status: int, message: str, kind: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param


@dataclass(slots=True)
class Question:
    """One request's body, understood; several prompts make several choices."""

    chat: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool
    asked: list[Asked]
    reasoning: int = 0  # how many of the first tokens are thoughts, at most

    @property
    def prompt_tokens(self) -> int:
        return sum(len(each.tokens) for each in self.asked)


def bad(message: str, param: str | None = None) -> RefusalError:
    return RefusalError(400, message, "BadRequestError", param)


def read_json(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise bad("the body must be a JSON object")
    return cast(dict[str, Any], value)


def read_question(body: bytes, chat: bool, settings: SimulatorSettings) -> Question:
    fields = read_json(body)
    check_model(fields, settings)
    options = fields.get("stream_options") or {}
    if options and not fields.get("stream"):
        raise bad("Stream options can only be defined when `stream=True`.", "stream_options")
    asked = [asked_for(tokens, fields, chat, settings) for tokens in _prompts(fields, chat)]
    include = bool(options.get("include_usage"))
    return Question(
        chat=chat,
        stream=bool(fields.get("stream")),
        include_usage=include,
        continuous_usage=include and bool(options.get("continuous_usage_stats")),
        asked=asked * max(1, _whole(fields, "n") or 1),
    )


def check_model(fields: dict[str, Any], settings: SimulatorSettings) -> None:
    model = fields.get("model", settings.model)
    if model != settings.model and model not in settings.adapters:
        raise RefusalError(404, f"The model `{model}` does not exist.", "NotFoundError", "model")


def asked_for(prompt: Any, fields: dict[str, Any], chat: bool, settings: SimulatorSettings) -> Asked:
    """What the engine is asked for, in OpenAI's words; a refusal where the model cannot hold it."""
    most = _whole(fields, "max_completion_tokens") if chat else None
    most = most if most is not None else _whole(fields, "max_tokens")
    asked = Asked(
        tokens=tokens_of(prompt),
        max_tokens=most if most is not None or chat else _DEFAULT_MAX_TOKENS,
        min_tokens=_whole(fields, "min_tokens") or 0,
        ignore_eos=bool(fields.get("ignore_eos")),
    )
    if not asked.tokens:
        raise bad("The prompt must not be empty.", "messages" if chat else "prompt")
    if most is not None and most < 1:
        raise bad(f"max_tokens must be at least 1, got {most}. (parameter=max_tokens, value={most})", "max_tokens")
    refusal = too_long(asked, settings)
    if refusal is not None:
        raise bad(refusal, "max_tokens" if refusal.startswith("max_tokens") else "input_tokens")
    return asked


def _prompts(fields: dict[str, Any], chat: bool) -> list[Any]:
    """Each prompt of the body: a text, a list of token ids, or a list of either; or chat messages."""
    if chat:
        messages = fields.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
            raise bad("messages must be a list of messages", "messages")
        return [messages]
    prompt = fields.get("prompt")
    if isinstance(prompt, str) or _are_ids(prompt):
        return [prompt]
    if isinstance(prompt, list) and prompt and all(isinstance(each, str) or _are_ids(each) for each in prompt):
        return prompt
    raise bad("prompt must be a text, a list of token ids, or a list of these", "prompt")


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and set(map(type, value)) == {int}


def _whole(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise bad(f"{name} must be a whole number, got {value!r}", name)
