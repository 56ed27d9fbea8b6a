"""The `server` of a plan: what is started for a run, and how. `target` starts it."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.plan import short
from inferometer.plan.fields import (
    DURATION_TEXT,
    Argument,
    Argv,
    Count,
    Duration,
    Line,
    Mistake,
    RequestPath,
    Section,
    one_or_several,
    plain_text,
)
from inferometer.plan.target import Target, Url

MOST_REPLICAS = 1000
OWN = "inferometer"
RAY_POLICY = "power_of_two"  # Ray Serve's own default


class RouterName(NamedTuple):
    """A router by its name in plans: the path of its `RouterEngine`, which `target.fleet` imports on use, and its
    default policy."""

    place: str
    policy: str


_ROUTERS_AT = "inferometer.target.routers"
ROUTERS: dict[str, RouterName] = {  # a router is added here and as a file of target/routers
    OWN: RouterName(f"{_ROUTERS_AT}.own:ROUTER", "prefix_aware"),
    "nginx": RouterName(f"{_ROUTERS_AT}.proxies:NGINX", "least_loaded"),
    "haproxy": RouterName(f"{_ROUTERS_AT}.proxies:HAPROXY", "least_loaded"),
    "vllm-router": RouterName(f"{_ROUTERS_AT}.proxies:VLLM_ROUTER", "cache_aware"),
    "sglang-router": RouterName(f"{_ROUTERS_AT}.proxies:SGLANG_ROUTER", "cache_aware"),
    "smg": RouterName(f"{_ROUTERS_AT}.proxies:SMG", "cache_aware"),
    "litellm": RouterName(f"{_ROUTERS_AT}.proxies:LITELLM", "least_loaded"),
}
if TYPE_CHECKING:
    RouterType = str
else:
    RouterType = Literal[tuple(ROUTERS)]


class Router(Section):
    """The router of a fleet: its policy, by name, and the policy's settings."""

    short_forms: ClassVar[list[JsonObject]] = [{"type": "string", "description": "its policy"}]

    type: RouterType = Field(OWN, description="which router; all but ours must be installed")
    policy: Line | None = Field(
        None,
        min_length=1,
        description="routing policy; default: prefix_aware, of ray-serve power_of_two, of another router its own",
    )
    settings: dict[str, JsonValue] = Field({}, description="settings of the policy, by name")
    seed: Count = Field(0, ge=0, description="seed of the policy's random choices")
    max_in_flight: Count | None = Field(
        None, ge=1, description="requests that a replica gets at once; more wait in the router; default: no limit"
    )
    args: dict[str, JsonValue] = Field({}, description="settings of the router by name; of another router: its flags")
    flags: Argv = Field([], description="extra command line arguments of another router, passed unchanged")
    command: Argv = Field([], description="program of another router; default: found on PATH")

    def disagreements(self) -> Iterator[Mistake]:
        if self.type == OWN:
            for name in ("flags", "command"):
                if getattr(self, name):
                    yield Mistake((name,), f"belongs to the routers of others, but type is {OWN}")
            return
        for name in ("settings", "max_in_flight"):
            if getattr(self, name) not in ({}, None):
                yield Mistake((name,), f"belongs to type {OWN}, but type is {self.type}: use args or flags")

    @property
    def fleet_policy(self) -> str:
        """The policy in front of a fleet: as set, or the router's default."""
        return self.policy or ROUTERS[self.type].policy


class EngineName(NamedTuple):
    """An inference engine by its name in plans: the path of its `Engine`, which `target.launch` imports on use."""

    place: str
    model_flags: tuple[str, ...] = ()  # flags that may name the model instead of server.model


_HERE = "inferometer.target.engines"
ENGINES: dict[str, EngineName] = {  # an engine is added here and as a file of target/engines
    "vllm": EngineName(f"{_HERE}.vllm:ENGINE"),
    "sglang": EngineName(f"{_HERE}.sglang:ENGINE"),
    "llamacpp": EngineName(f"{_HERE}.llamacpp:ENGINE", ("m", "model", "hf", "hf-repo", "hfr", "model-url", "mu")),
    "tgi": EngineName(f"{_HERE}.tgi:ENGINE"),
}
SERVERS: dict[str, str] = {  # every type of server, and the path of its `Engine`
    **{name: engine.place for name, engine in ENGINES.items()},
    "command": f"{_HERE}.command:COMMAND",
    "simulator": f"{_HERE}.simulator:ENGINE",
    "ray-serve": f"{_HERE}.ray_serve:ENGINE",
    "container": "inferometer.target.container:CONTAINER",
    "external": f"{_HERE}.command:EXTERNAL",
}
if TYPE_CHECKING:
    ServerType = str
else:
    ServerType = Literal[(*SERVERS, "fleet")]
_STARTED = (*ENGINES, "command", "simulator", "container", "ray-serve")
ROUTED = ("fleet", "ray-serve")  # replicas behind a router
_FIELDS_OF_TYPES: dict[str, tuple[str, ...]] = {  # fields that only some types have
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
    "command": (*ENGINES, "command", "container", "ray-serve"),
    "flags": (*ENGINES, "command", "container"),
    **dict.fromkeys(("replicas", "of", "router"), ROUTED),
    **dict.fromkeys(("args", "env", "folder", "prepare"), _STARTED),
    **dict.fromkeys(("host", "port", "grace", "log_limit"), (*_STARTED, "fleet")),
}
_OWN_FIELDS = {  # flags that have a setting in the server's section
    "host": "host",
    "hostname": "host",
    "port": "port",
    "model": "model",
    "model-path": "model",
    "model-id": "model",
}


def _variables(value: Any) -> Any:
    """Environment variables as text; YAML reads `1` and `true` as other types."""
    if not isinstance(value, Mapping):
        return value
    return {
        name: str(setting).lower() if isinstance(setting, bool) else plain_text(setting)
        for name, setting in value.items()
    }


def _variable_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("is not a valid variable name")
    return name


Variables = Annotated[
    dict[Annotated[str, AfterValidator(_variable_name)], Argument],
    BeforeValidator(_variables, json_schema_input_type=dict[str, str | int | float | bool]),
]


class Prepare(Section):
    """A command that runs to its end before the server starts, with the server's environment and folder."""

    short_forms: ClassVar[list[JsonObject]] = [{"type": "string", "description": "command to run"}]

    run: str | list[str] = Field(description="a shell command, or a list of words")
    name: str | None = Field(None, description="name")
    timeout: Duration = Field(600.0, gt=0, description="the step and the run fail after this time")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"run": value} if isinstance(value, str) else value

    def disagreements(self) -> Iterator[Mistake]:
        if not self.run or (isinstance(self.run, str) and not self.run.strip()):
            yield Mistake(("run",), "must not be empty")


class Ready(Section):
    """When a server counts as ready: its health and its list of models answer, and the model is the requested one."""

    short_forms: ClassVar[list[JsonObject]] = [
        DURATION_TEXT | {"description": "its timeout"},
        {"type": "number"},
    ]

    path: Annotated[list[RequestPath], one_or_several(RequestPath)] = Field(
        [], description="paths that must answer with 2xx, instead of the engine's default"
    )
    timeout: Duration | None = Field(
        None,
        gt=0,
        description="give up after this time; default: 15min for vLLM, SGLang, TGI, containers and ray-serve, "
        "1min for the simulator, else 5min",
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"timeout": value} if isinstance(value, str | int | float) and not isinstance(value, bool) else value


class Server(Section):
    """A server that is started before the run and stopped after it, or an external server to wait for."""

    short_forms: ClassVar[list[JsonObject]] = [{"enum": [*SERVERS, "fleet"], "description": "its type"}]

    type: ServerType = Field("simulator", description="type of server to start")
    model: Line | None = Field(None, description="model to serve; default: target.model")
    args: dict[str, JsonValue] = Field(
        {},
        description="settings by name, passed as flags of the engine; for the simulator and ray-serve: its settings",
        repr=False,
    )
    flags: Argv = Field([], description="extra command line arguments, passed unchanged", repr=False)
    command: Argv = Field(
        [], description="command: {port}, {host} and {model} are replaced; for an engine: its program"
    )
    host: Line = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: Count | None = Field(None, ge=1, le=65535, description="port; default: a free one")
    env: Variables = Field(
        {}, description="additional environment variables; ${NAME} is read from the environment at start", repr=False
    )
    folder: str | None = Field(None, min_length=1, description="working directory")
    prepare: Annotated[list[Prepare], one_or_several(Prepare)] = Field(
        [], description="commands to run before the server starts"
    )
    ready: Ready = Field(Ready.usual(), description="how to find out that the server is ready")
    url: Url | None = Field(None, description="external server: its URL")
    image: Line | None = Field(None, min_length=1, description="of a container")
    engine: Literal["docker", "podman"] | None = Field(
        None, description="container program; default: the installed one"
    )
    volumes: list[str] | None = Field(
        None, description="host:container; default: the Hugging Face cache at its default path"
    )
    gpus: str = Field("all", description="container: all, none, or GPU numbers such as 0,1")
    ipc: str = Field("host", description="container: size of shared memory, used between workers")
    runtime: str | None = Field(None, description="container runtime, such as nvidia; default: the container program's")
    pull: Literal["missing", "always", "never"] = Field("missing", description="when the image is fetched")
    entrypoint: str | None = Field(None, description="entry point of the container, instead of the image's")
    container_port: Count | None = Field(
        None,
        ge=1,
        le=65535,
        description="port inside the container; default: the image's default, or 8000",
    )
    replicas: Count | None = Field(None, ge=1, le=MOST_REPLICAS, description="fleet, ray-serve: number of replicas")
    of: "Server | None" = Field(None, description="fleet, ray-serve: the server that every replica is")
    router: Router | None = Field(None, description="fleet, ray-serve: the router in front of the replicas")
    keep: Literal["run", "shared"] = Field(
        "run",
        description="shared: the server is used by several runs, so vLLM is started with prefix cache reset enabled; "
        "set automatically by search, sweep and A/B",
    )
    reset_cache: bool | None = Field(
        None, description="reset the prefix cache before each run; default: if it served a run before"
    )
    exclusive: bool = Field(True, description="refuse to start while another run uses the same GPUs")
    grace: Duration = Field(10.0, gt=0, description="time to exit after SIGINT and again after SIGTERM, before SIGKILL")
    log_limit: Count = Field(
        64 << 20, ge=4096, le=1 << 40, description="bytes of the log to store: the beginning and the end"
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return short.server(value)

    def disagreements(self) -> Iterator[Mistake]:
        for name, types in _FIELDS_OF_TYPES.items():
            if self.type not in types and getattr(self, name) != type(self).model_fields[name].default:
                yield Mistake((name,), f"belongs to type {_either(types)}, but type is {self.type}")
        if self.type == "external" and self.url is None:
            yield Mistake(("url",), "is missing: give the URL of the external server")
        if self.type == "container" and self.image is None:
            yield Mistake(("image",), "is missing: name the container image")
        if self.type == "command":
            yield from self._of_command()
        if self.type in ENGINES:
            yield from self._of_args(ENGINES[self.type])
        if self.type in ROUTED and self.replicas is None:
            yield Mistake(("replicas",), "is missing: give the number of replicas")
        if self.of is not None and self.of.type in (*ROUTED, "external"):
            yield Mistake(("of", "type"), f"must be a server that can be started several times, got {self.of.type}")

    @property
    def has_own_router(self) -> bool:
        """Whether it is a fleet behind our router, which has a journal."""
        return self.type == "fleet" and (self.router is None or self.router.type == OWN)

    @property
    def policy(self) -> str | None:
        """The policy that distributes requests over its replicas."""
        if self.type not in ROUTED:
            return None
        router = self.router or Router()
        return (router.policy or RAY_POLICY) if self.type == "ray-serve" else router.fleet_policy

    def _of_command(self) -> Iterator[Mistake]:
        if not self.command:
            yield Mistake(("command",), "is missing: give the command to start")
        elif self.port is None and not self._holds("{port}"):
            from inferometer.plan.secrets import redacted_argv  # imports all sections

            text = "must contain {port}, or set server.port"
            yield Mistake(("command",), f"{text}, got {shlex.join(redacted_argv(self.command))}")

    def _holds(self, placeholder: str) -> bool:
        texts = [*self.command, *self.flags, *map(str, self.args.values()), *self.env.values()]
        return any(placeholder in text for text in texts)

    def _of_args(self, engine: EngineName) -> Iterator[Mistake]:
        for name in self.args:
            bare = _bare(name)
            own = _OWN_FIELDS.get(bare)
            if own is not None and not (own == "model" and bare in engine.model_flags):
                yield Mistake(("args", name), f"is a setting of its own: server.{own}")

    def needs_of(self, target: Target) -> Iterator[Mistake]:
        """Required settings of an engine that the plan does not set."""
        if self.of is not None:
            for mistake in self.of.needs_of(target):
                yield Mistake(("server", "of", *mistake.path[1:]), mistake.text, mistake.about)
            return
        engine = ENGINES.get(self.type)
        if engine is None or self.model or target.model:
            return
        if not any(_bare(name) in engine.model_flags for name in self.args):
            text = f"is missing: {self.type} needs a model to serve"
            yield Mistake(("server", "model"), text, ("server", "target"))


def _bare(flag: str) -> str:
    return flag.lstrip("-").replace("_", "-")


def _either(types: tuple[str, ...]) -> str:
    return types[0] if len(types) == 1 else f"{', '.join(types[:-1])} or {types[-1]}"
