"""What is started for a run, and how: the `server` of a plan. Starting it is left to `target`."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from inferometer.plan import short
from inferometer.plan.fields import DURATION_TEXT, Count, Duration, Line, Mistake, RequestPath, Section, one_or_several
from inferometer.plan.target import Target, Url


class EngineName(NamedTuple):
    """An inference engine as plans name it: where its `Engine` is, which `target.launch` imports on use."""

    place: str
    model_flags: tuple[str, ...] = ()  # that may name the model in place of server.model


_HERE = "inferometer.target.engines"
ENGINES: dict[str, EngineName] = {  # an engine is added here and as a file of target/engines
    "vllm": EngineName(f"{_HERE}.vllm:ENGINE"),
    "sglang": EngineName(f"{_HERE}.sglang:ENGINE"),
    "llamacpp": EngineName(f"{_HERE}.llamacpp:ENGINE", ("m", "model", "hf", "hf-repo", "hfr", "model-url", "mu")),
    "tgi": EngineName(f"{_HERE}.tgi:ENGINE"),
}
SERVERS: dict[str, str] = {  # every type of server, and where its `Engine` is
    **{name: engine.place for name, engine in ENGINES.items()},
    "command": f"{_HERE}.command:COMMAND",
    "simulator": f"{_HERE}.simulator:ENGINE",
    "container": "inferometer.target.container:CONTAINER",
    "external": f"{_HERE}.command:EXTERNAL",
}
if TYPE_CHECKING:
    ServerType = str
else:
    ServerType = Literal[tuple(SERVERS)]
_STARTED = (*ENGINES, "command", "simulator", "container")
_BELONGS: dict[str, tuple[str, ...]] = {  # fields that only some types have
    "url": ("external",),
    "image": ("container",),
    "engine": ("container",),
    "volumes": ("container",),
    "gpus": ("container",),
    "ipc": ("container",),
    "runtime": ("container",),
    "pull": ("container",),
    "entrypoint": ("container",),
    "container_port": ("container",),
    "command": (*ENGINES, "command", "container"),
    "flags": (*ENGINES, "command", "container"),
    **dict.fromkeys(("args", "env", "folder", "host", "port", "prepare", "grace", "log_limit"), _STARTED),
}
_OWN_FIELDS = {  # flags that are settings of the server's section, and which
    "host": "host",
    "hostname": "host",
    "port": "port",
    "model": "model",
    "model-path": "model",
    "model-id": "model",
}


def _words(value: Any) -> Any:
    """A command as one text is split as a shell would; a list is taken as it is, numbers as text."""
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as error:
            raise ValueError(f"must be a command: {str(error).lower()}") from None
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _variables(value: Any) -> Any:
    """Environment variables are texts; YAML reads `1` and `true` as something else."""
    if not isinstance(value, Mapping):
        return value
    return {name: str(each).lower() if isinstance(each, bool) else _plain(each) for name, each in value.items()}


def _variable_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("is not a possible name of a variable")
    return name


def _argument(text: str) -> str:
    """A script behind `bash -c` has lines; no argument and no variable can hold a NUL."""
    if "\0" in text:
        raise ValueError("must not hold a NUL character")
    return text


Argument = Annotated[str, AfterValidator(_argument)]
Words = Annotated[list[Argument], BeforeValidator(_words, json_schema_input_type=str | list[str])]
Variables = Annotated[
    dict[Annotated[str, AfterValidator(_variable_name)], Argument],
    BeforeValidator(_variables, json_schema_input_type=dict[str, str | int | float | bool]),
]


class Prepare(Section):
    """A command that runs to its end before the server starts, with the server's environment and folder."""

    short_forms: ClassVar[list[dict[str, Any]]] = [{"type": "string", "description": "what to run"}]

    run: str | list[str] = Field(description="a line for the shell, or the words of a command")
    name: str | None = Field(None, description="what people call it")
    timeout: Duration = Field(600.0, gt=0, description="it is ended, and the run with it, after so long")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"run": value} if isinstance(value, str) else value

    def disagreements(self) -> Iterator[Mistake]:
        if not self.run or (isinstance(self.run, str) and not self.run.strip()):
            yield Mistake(("run",), "must not be empty")


class Ready(Section):
    """When a server counts as ready: its health and its list of models answer, and the model is the one asked."""

    short_forms: ClassVar[list[dict[str, Any]]] = [DURATION_TEXT | {"description": "its timeout"}, {"type": "number"}]

    path: Annotated[list[RequestPath], one_or_several(RequestPath)] = Field(
        [], description="paths that must answer with 2xx, in place of the engine's own"
    )
    timeout: Duration | None = Field(
        None,
        gt=0,
        description="it has failed after so long; default: 15min for vLLM, SGLang, TGI and containers, "
        "1min for the simulator, else 5min",
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"timeout": value} if isinstance(value, str | int | float) and not isinstance(value, bool) else value


class Server(Section):
    """A server that is started for the run and ended after it, or that runs elsewhere and is awaited."""

    short_forms: ClassVar[list[dict[str, Any]]] = [{"enum": list(SERVERS), "description": "its type"}]

    type: ServerType = Field("simulator", description="which server to start")
    model: Line | None = Field(None, description="what it serves; default: target.model")
    args: dict[str, Any] = Field(
        {},
        description="its settings by name, written as the engine's flags; of the simulator: its settings",
        repr=False,
    )
    flags: Words = Field([], description="more words for its command line, as they are", repr=False)
    command: Words = Field(
        [], description="how it is called: {port}, {host} and {model} are filled in; for an engine: its program"
    )
    host: Line = Field("127.0.0.1", min_length=1, description="where it listens")
    port: Count | None = Field(None, ge=1, le=65535, description="a free one when not given")
    env: Variables = Field(
        {}, description="environment variables beside ours; ${NAME} is read from ours when it starts", repr=False
    )
    folder: str | None = Field(None, min_length=1, description="its working folder")
    prepare: Annotated[list[Prepare], one_or_several(Prepare)] = Field([], description="commands to run before it")
    ready: Ready = Field(Ready(), description="when it can be measured")
    url: Url | None = Field(None, description="of an external server: where it is")
    image: Line | None = Field(None, min_length=1, description="of a container")
    engine: Literal["docker", "podman"] | None = Field(None, description="what runs containers; default: what is here")
    volumes: list[str] | None = Field(
        None, description="host:container; default: the cache of Hugging Face at its usual place"
    )
    gpus: str = Field("all", description="of a container: all, none, or numbers such as 0,1")
    ipc: str = Field("host", description="of a container: workers share memory through it")
    runtime: str | None = Field(None, description="of a container, such as nvidia; default: the engine's")
    pull: Literal["missing", "always", "never"] = Field("missing", description="when the image is fetched")
    entrypoint: str | None = Field(None, description="program of the container, in place of the image's")
    container_port: Count | None = Field(
        None,
        ge=1,
        le=65535,
        description="where it listens inside the container; default: the image's usual one, or 8000",
    )
    keep: Literal["run", "shared"] = Field(
        "run",
        description="shared: it will serve several runs, so that vLLM is started with a way to reset its prefix cache; "
        "a search, an experiment and an A/B say so themselves",
    )
    reset_cache: bool | None = Field(
        None, description="empty its prefix cache before each run; default: where it served a run before"
    )
    exclusive: bool = Field(True, description="refuse to start while another run uses the same GPUs")
    grace: Duration = Field(10.0, gt=0, description="time to end by itself after INT and again after TERM, before KILL")
    log_limit: Count = Field(
        64 << 20, ge=4096, le=1 << 40, description="bytes kept of its log: the beginning and the end"
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return short.server(value)

    def disagreements(self) -> Iterator[Mistake]:
        for name, types in _BELONGS.items():
            if self.type not in types and getattr(self, name) != type(self).model_fields[name].default:
                yield Mistake((name,), f"belongs to type {_either(types)}, but type is {self.type}")
        if self.type == "external" and self.url is None:
            yield Mistake(("url",), "is missing: where is the external server?")
        if self.type == "container" and self.image is None:
            yield Mistake(("image",), "is missing: which container to start?")
        if self.type == "command":
            yield from self._of_command()
        if self.type in ENGINES:
            yield from self._of_args(ENGINES[self.type])

    def _of_command(self) -> Iterator[Mistake]:
        if not self.command:
            yield Mistake(("command",), "is missing: what to start?")
        elif self.port is None and not self._holds("{port}"):
            from inferometer.plan.secrets import redacted_words  # which knows all sections

            text = "must hold {port}, or server.port must say where it listens"
            yield Mistake(("command",), f"{text}, got {shlex.join(redacted_words(self.command))}")

    def _holds(self, placeholder: str) -> bool:
        words = [*self.command, *self.flags, *map(str, self.args.values()), *self.env.values()]
        return any(placeholder in word for word in words)

    def _of_args(self, engine: EngineName) -> Iterator[Mistake]:
        for name in self.args:
            bare = _bare(name)
            own = _OWN_FIELDS.get(bare)
            if own is not None and not (own == "model" and bare in engine.model_flags):
                yield Mistake(("args", name), f"is a setting of its own: server.{own}")

    def needs_of(self, target: Target) -> Iterator[Mistake]:
        """What an engine cannot start without, and the rest of the plan does not say either."""
        engine = ENGINES.get(self.type)
        if engine is None or self.model or target.model:
            return
        if not any(_bare(name) in engine.model_flags for name in self.args):
            text = f"is missing: {self.type} needs to know what to serve"
            yield Mistake(("server", "model"), text, ("server", "target"))


def _bare(flag: str) -> str:
    return flag.lstrip("-").replace("_", "-")


def _either(types: tuple[str, ...]) -> str:
    return types[0] if len(types) == 1 else f"{', '.join(types[:-1])} or {types[-1]}"
