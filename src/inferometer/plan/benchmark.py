"""`Benchmark`: a user's own command or function that reports what it measured, as a plan or an experiment writes it."""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.errors import PlanError
from inferometer.plan.fields import Duration, Mistake, Section, SectionError
from inferometer.plan.overrides import written as written_path
from inferometer.plan.secrets import redacted_argv, redacted_fields, redacted_line
from inferometer.plan.text import as_written
from inferometer.vocabulary import Direction

STDOUT = "stdout"
_ENTRY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_LAUNCHERS = re.compile(r"(python[0-9.]*|bash|sh|env|uv|node|time)")


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else str(value)


class Benchmark(Section):
    """A command that prints or writes JSON, or a Python function that returns it: name, value, unit and direction."""

    short_forms: ClassVar[list[JsonObject]] = [{"type": "string", "description": "a command line for the shell"}]

    name: str | None = Field(None, min_length=1, description="name; default: name of the command or function")
    command: str | list[Annotated[str, BeforeValidator(_text)]] | None = Field(
        None, description="command to run: a list of words, or a shell command; {NAME} is replaced from args"
    )
    python: str | None = Field(
        None, description="or a Python function, package.module:function, called with args by name"
    )
    args: dict[str, JsonValue] = Field({}, description="arguments of the function, or values of {NAME} in the command")
    output: str = Field(STDOUT, min_length=1, description="where the command writes its JSON: stdout or a file")
    direction: Direction | None = Field(None, description="better direction, for measures without one")
    timeout: Duration | None = Field(3600.0, gt=0, description="stop it and all its child processes after this time")
    env: dict[str, Annotated[str, BeforeValidator(_text)]] = Field(
        {}, description="additional environment variables", repr=False
    )
    folder: str | None = Field(None, min_length=1, description="working directory")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"command": value}
        if isinstance(value, dict) and "json" in value and "output" not in value:
            return {("output" if key == "json" else key): setting for key, setting in value.items()}
        return value

    def disagreements(self) -> Iterator[Mistake]:
        if (self.command is None) == (self.python is None):
            yield Mistake((), "needs a command to run, or a function (python: package.module:function), not both")
        if self.command is not None and not (self.command if isinstance(self.command, list) else self.command.strip()):
            yield Mistake(("command",), "must not be empty")
        if self.python is not None and not _ENTRY.fullmatch(self.python):
            yield Mistake(("python",), f"must be package.module:function, got {self.python}")
        if self.python is not None and self.output != STDOUT:
            yield Mistake(("output",), "belongs to a command: a function returns what it measured")

    @property
    def title(self) -> str:
        """A short name: `my-bench` for `./tools/my-bench --json`, `decode` for `bench.kernels:decode`."""
        if self.name is not None:
            return self.name
        if self.python is not None:
            return self.python.partition(":")[2]
        argv = _argv(self.command or "")
        named = [arg for arg in argv if not arg.startswith("-") and not _is_launcher(arg) and " " not in arg]
        return PurePath((named or argv or ["benchmark"])[0]).stem

    def filled(self) -> str | list[str]:
        """The command with its arguments filled in; other braces stay, because JSON has braces too."""
        command = self.command or ""
        if isinstance(command, str):
            return _filled(command, {name: shlex.quote(_written(value)) for name, value in self.args.items()})
        return [_filled(arg, {name: _written(value) for name, value in self.args.items()}) for arg in command]


def benchmark_from(mapping: JsonObject, where: str = "benchmark") -> Benchmark:
    """The benchmark described by a mapping; all errors in it are raised together."""
    try:
        return Benchmark.model_validate(dict(mapping))
    except ValidationError as error:
        raise PlanError([f"{where}: {text}" for text in _mistakes(error)]) from None


def written(benchmark: Benchmark) -> dict[str, JsonValue]:
    """The benchmark as stored with the run: without defaults and without secrets."""
    fields = benchmark.model_dump(mode="json", exclude_defaults=True)
    command = fields.pop("command", None)
    if command is not None:
        fields["command"] = redacted_line(command) if isinstance(command, str) else redacted_argv(command)
    return {"name": benchmark.title, "benchmark": redacted_fields(fields)}


def _argv(command: str | list[str]) -> list[str]:
    try:
        return shlex.split(command) if isinstance(command, str) else command
    except ValueError:  # an unclosed quotation mark: the shell will report it
        return str(command).split()


def _is_launcher(arg: str) -> bool:
    return _LAUNCHERS.fullmatch(PurePath(arg).name) is not None


def _filled(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{([A-Za-z_][\w-]*)\}", lambda match: values.get(match[1], match[0]), text)


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _mistakes(error: ValidationError) -> Iterator[str]:
    for detail in error.errors(include_url=False):
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, SectionError):
            yield from (f"{written_path(mistake.path)} {mistake.text}".strip() for mistake in cause.mistakes)
        elif detail["type"] == "extra_forbidden":
            yield f"{written_path(detail['loc'])} is not a setting; there are {', '.join(Benchmark.model_fields)}"
        else:
            message = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
            yield f"{written_path(detail['loc'])} {message}, got {as_written(detail['input'])}"
