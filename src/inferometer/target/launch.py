"""Defines an engine, and how a server is started, as plain data: each engine turns a plan's `server` into a `Launch`
that `target.server` runs; and converts settings to command line flags."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from inferometer.documents.document import JsonObject
from inferometer.errors import PlanError, TargetError
from inferometer.plan.model import Server, Target
from inferometer.plan.secrets import resolve
from inferometer.plan.server import ENGINES, SERVERS
from inferometer.vocabulary import attribute_at

# -- launch ----------------------------------------------------------------------------------------------------------

ENGINE_READY_S = 900.0  # loading and compiling a large model takes minutes; vLLM's own benchmarks wait as long
OTHER_READY_S = 300.0


@dataclass(frozen=True, slots=True)
class LaunchPlace:
    """Decided before a server is started: its address, port and model."""

    host: str
    port: int
    model: str | None = None
    replica: int = 0  # index of the replica in a fleet, from 0

    @property
    def url(self) -> str:
        """Its address from this machine: a server that listens on all interfaces also listens on loopback."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host and "[" not in host else f"http://{host}:{self.port}"

    def filled(self, text: str) -> str:
        """The text with our placeholders replaced; other braces, such as those of JSON, stay."""
        places = {"{port}": str(self.port), "{host}": self.host, "{url}": self.url, "{model}": self.model or ""}
        places["{replica}"] = str(self.replica)
        for placeholder, value in places.items():
            text = text.replace(placeholder, value)
        return text


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a server and how to detect that it is ready."""

    name: str  # name used in messages
    url: str
    argv: list[str] = field(default_factory=list)  # empty if nothing is started here
    env: Mapping[str, str] = field(default_factory=dict)  # in addition to ours
    folder: Path | None = None
    names: list[str] = field(default_factory=list)  # the model is served under one of these names; empty: under any
    health: tuple[str, ...] = ("/health",)
    models: str | None = "/v1/models"
    lenient: bool = False  # a missing path is no reason to wait, because the kind of server is unknown
    ready_s: float = ENGINE_READY_S
    resets: tuple[str, ...] = ()  # paths to POST to, one of which empties the prefix cache
    reset_hint: str = ""
    version: tuple[str, str] | None = None  # path to query, and the field of its response
    metrics: tuple[str, ...] = ()  # its metrics addresses, if they differ from its own
    engine: str | None = None  # its common name, if its answers do not contain it
    first_query: bool = False  # besides being ready it must answer one query before the load
    held_by_stdin: bool = False  # it ends when its stdin closes, even if we are killed
    missing: str = ""  # what to do if its program is not installed
    is_container: bool = False


def launch_of(server: Server, place: LaunchPlace) -> Launch:
    """How the server in a plan is launched with this address, port and model."""
    if server.type not in SERVERS:
        raise PlanError(f"server.type must be one of {', '.join(SERVERS)}, got {server.type}")
    engine: Engine = attribute_at(SERVERS[server.type])
    made = engine.launch(server, place)
    made = replace(made, ready_s=server.ready.timeout or made.ready_s)
    if made.is_container:  # its environment and folder are those of the container
        return made
    return replace(made, env={**made.env, **variables_of(server, place)}, folder=folder_of(server))


def variables_of(server: Server, place: LaunchPlace) -> dict[str, str]:
    """The plan's environment variables, with references to our environment and placeholders filled in."""
    return {name: resolve(place.filled(text), os.environ, f"server.env.{name}") for name, text in server.env.items()}


def folder_of(server: Server) -> Path | None:
    """The working folder; a missing folder is an error of the plan, not of the server."""
    if server.folder is None:
        return None
    folder = Path(server.folder).expanduser()
    if not folder.is_dir():
        raise PlanError(f"server.folder must be an existing folder, got {server.folder}")
    return folder.resolve()


def model_of(server: Server, target: Target) -> str | None:
    """The model to serve. For the simulator it is one of its settings."""
    model = server.model or (None if server.type == "simulator" else target.model)
    return str(Path(model).expanduser()) if model and model.startswith("~") else model


def served_names(argv: list[str], place: LaunchPlace, flag: str = "--served-model-name") -> list[str]:
    """The names under which the model will be served: a flag may set one or several."""
    names: list[str] = []
    for at, arg in enumerate(argv):
        if arg == flag:
            following = argv[at + 1 :]
            end = next((index for index, name in enumerate(following) if name.startswith("-")), len(following))
            names += following[:end]
        elif arg.startswith(f"{flag}="):
            names.append(arg.partition("=")[2])
    return names or ([place.model] if place.model else [])


def check_port(host: str, port: int, setting: str = "server.port") -> None:
    """Raises a `TargetError` if the port is taken: whatever answers there is not the server that we start."""
    if not port_is_free(host, port):
        raise TargetError(
            f"port {port} of {host} is already in use",
            f"stop the process that uses it, or omit {setting} to use a free port",
        )


def port_is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do, for lingering old connections
        try:
            tried.bind((host, port))
        except OSError:
            return False
    return True


# -- arguments -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spelling:
    """Differences between engines in command line syntax."""

    hyphens: bool = True  # max_model_len becomes --max-model-len
    negated: bool | frozenset[str] = False  # switches with an opposite, --no-NAME; for others false means no flag
    short: frozenset[str] = frozenset()  # multi-letter names with a single dash
    repeated: bool = False  # a list becomes --name a --name b, not --name a b


AS_WRITTEN = Spelling(hyphens=False)


def flags_of(args: JsonObject, spelling: Spelling = AS_WRITTEN) -> list[str]:
    """`{max-model-len: 4096, enforce-eager: true}` as `--max-model-len 4096 --enforce-eager`.

    True and null give the flag alone, a list gives several values, a mapping is written as JSON.
    """
    return [arg for name, value in args.items() for arg in _flag(str(name), value, spelling)]


def _flag(name: str, value: Any, spelling: Spelling) -> Iterator[str]:
    flag = _spelled(name, spelling)
    if value is False:
        yield from _negated(flag, spelling)
    elif value is None or value is True:
        yield flag
    elif isinstance(value, list):
        yield from _several(flag, [_text(part) for part in value], spelling)
    else:
        yield from (flag, _text(value))


def _spelled(name: str, spelling: Spelling) -> str:
    if name.startswith("-"):
        return name
    bare = name.replace("_", "-") if spelling.hyphens else name
    return f"-{bare}" if len(bare) == 1 or bare in spelling.short else f"--{bare}"


def _negated(flag: str, spelling: Spelling) -> Iterator[str]:
    bare = flag.removeprefix("--")
    has_opposite = spelling.negated if isinstance(spelling.negated, bool) else bare in spelling.negated
    if has_opposite and flag.startswith("--"):
        yield flag.replace("--no-", "--", 1) if bare.startswith("no-") else f"--no-{bare}"


def _several(flag: str, values: list[str], spelling: Spelling) -> Iterator[str]:
    if not spelling.repeated:
        yield from (flag, *values) if values else ()
        return
    for value in values:
        yield from (flag, value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return orjson.dumps(value).decode() if isinstance(value, Mapping | list) else str(value)


# -- engine ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An engine's container image: how its name identifies it, and what differs inside it."""

    name: str = ""  # part of the image's name
    port: int = 8000
    model_flag: str | None = None
    spelling: Spelling = AS_WRITTEN
    before: tuple[str, ...] = ()  # words that its program requires first
    listen: tuple[str, ...] = ()  # flags without which it listens only inside its container
    models: str = "/v1/models"
    resets: tuple[str, ...] = ()
    reset_env: tuple[str, ...] = ()  # `NAME=value`, required for resetting the prefix cache
    version: tuple[str, str] = ("/version", "version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Describes a type of server for all other code. Each module of `target.engines` has one, or two related ones; the
    name used in plans is a line of `plan.server`."""

    launch: Callable[[Server, LaunchPlace], Launch]
    title: str = ""  # name used in messages
    owners: tuple[str, ...] = ()  # lower case, as in its list of models or its Server header
    program: str | None = None  # required program: a command, or `python3 -m MODULE`
    image: Image | None = None
    log_signs: str | None = None  # a regular expression for lines that only this engine logs


def engines() -> dict[str, Engine]:
    """All inference engines by the names used in plans."""
    return {name: attribute_at(engine.place) for name, engine in ENGINES.items()}
