"""What defines an engine, and how a server is started, as plain data: each engine turns a plan's `server` into a
`Launch` that `target.server` runs; and settings as command line flags."""

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

ENGINE_READY_S = 900.0  # a large model is loaded and compiled for minutes; vLLM's own benchmarks wait as long
OTHER_READY_S = 300.0


@dataclass(frozen=True, slots=True)
class LaunchPlace:
    """What is decided before a server is started: where it will listen and what it will serve."""

    host: str
    port: int
    model: str | None = None
    replica: int = 0  # of a fleet: which, from 0 on

    @property
    def url(self) -> str:
        """Its address from here: a server that listens on all interfaces is also on the loopback."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host and "[" not in host else f"http://{host}:{self.port}"

    def filled(self, text: str) -> str:
        """A word with our placeholders replaced; other braces, as of JSON, stay."""
        places = {"{port}": str(self.port), "{host}": self.host, "{url}": self.url, "{model}": self.model or ""}
        places["{replica}"] = str(self.replica)
        for placeholder, value in places.items():
            text = text.replace(placeholder, value)
        return text


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a server and how to tell that it is ready."""

    name: str  # as people call it
    url: str
    argv: list[str] = field(default_factory=list)  # empty where nothing is started here
    env: Mapping[str, str] = field(default_factory=dict)  # in addition to ours
    folder: Path | None = None
    names: list[str] = field(default_factory=list)  # its model is served under one of them; empty: under any
    health: tuple[str, ...] = ("/health",)
    models: str | None = "/v1/models"
    lenient: bool = False  # a path that is not there is no reason to wait: the server's kind is not known
    ready_s: float = ENGINE_READY_S
    resets: tuple[str, ...] = ()  # paths to POST to, one of which empties the prefix cache
    reset_hint: str = ""
    version: tuple[str, str] | None = None  # path to ask, and the field of its answer
    metrics: tuple[str, ...] = ()  # where it reports its metrics, if not at its own address
    engine: str | None = None  # its common name, if its answers do not contain it
    first_query: bool = False  # ready is not enough: one query must be answered before the load
    held_by_stdin: bool = False  # it ends when its stdin closes, even if we are killed
    missing: str = ""  # what to do when its program is not here
    is_container: bool = False


def launch_of(server: Server, place: LaunchPlace) -> Launch:
    """How the server that a plan names is launched at a place."""
    if server.type not in SERVERS:
        raise PlanError(f"server.type must be one of {', '.join(SERVERS)}, got {server.type}")
    engine: Engine = attribute_at(SERVERS[server.type])
    made = engine.launch(server, place)
    made = replace(made, ready_s=server.ready.timeout or made.ready_s)
    if made.is_container:  # its environment and folder are inside it
        return made
    return replace(made, env={**made.env, **variables_of(server, place)}, folder=folder_of(server))


def variables_of(server: Server, place: LaunchPlace) -> dict[str, str]:
    """The plan's environment variables, with what they take from ours and from the place."""
    return {name: resolve(place.filled(text), os.environ, f"server.env.{name}") for name, text in server.env.items()}


def folder_of(server: Server) -> Path | None:
    """The working folder; one that is not there is a mistake of the plan, not of the server."""
    if server.folder is None:
        return None
    folder = Path(server.folder).expanduser()
    if not folder.is_dir():
        raise PlanError(f"server.folder must be an existing folder, got {server.folder}")
    return folder.resolve()


def model_of(server: Server, target: Target) -> str | None:
    """What to serve. The simulator's model is a setting of its own."""
    model = server.model or (None if server.type == "simulator" else target.model)
    return str(Path(model).expanduser()) if model and model.startswith("~") else model


def served_names(argv: list[str], place: LaunchPlace, flag: str = "--served-model-name") -> list[str]:
    """What the model will be called: a flag may name it anew, with one name or several."""
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
    """A `TargetError` if the port is taken: what answered there would not be the server that we started."""
    if not port_is_free(host, port):
        raise TargetError(
            f"port {port} of {host} is already in use",
            f"stop the process that uses it, or omit {setting} to use a free port",
        )


def port_is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: old connections may linger
        try:
            tried.bind((host, port))
        except OSError:
            return False
    return True


# -- arguments -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spelling:
    """What engines do differently."""

    hyphens: bool = True  # max_model_len is --max-model-len
    negated: bool | frozenset[str] = False  # which switches have an opposite, --no-NAME; of the others false is nothing
    short: frozenset[str] = frozenset()  # names of several letters behind one dash
    repeated: bool = False  # a list is --name a --name b, and not --name a b


AS_WRITTEN = Spelling(hyphens=False)


def flags_of(args: JsonObject, spelling: Spelling = AS_WRITTEN) -> list[str]:
    """`{max-model-len: 4096, enforce-eager: true}` as `--max-model-len 4096 --enforce-eager`.

    True and nothing at all are the flag alone, a list is several values, a mapping is JSON.
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
    """An engine's container image: how its name identifies it, and what is different inside it."""

    name: str = ""  # part of the image's name
    port: int = 8000
    model_flag: str | None = None
    spelling: Spelling = AS_WRITTEN
    before: tuple[str, ...] = ()  # words that its program wants in front
    listen: tuple[str, ...] = ()  # flags without which it listens only inside its container
    models: str = "/v1/models"
    resets: tuple[str, ...] = ()
    reset_env: tuple[str, ...] = ()  # `NAME=value`, without which there is nothing to reset by
    version: tuple[str, str] = ("/version", "version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A type of server: all that others ask of it. One module of `target.engines` has one, or two that belong together;
    the name in plans is a line of `plan.server`."""

    launch: Callable[[Server, LaunchPlace], Launch]
    title: str = ""  # as people call it
    owners: tuple[str, ...] = ()  # in lower case, as its list of models or its Server header has it
    program: str | None = None  # what must be installed: a program, or `python3 -m MODULE`
    image: Image | None = None
    log_signs: str | None = None  # a regular expression for lines that only this engine logs


def engines() -> dict[str, Engine]:
    """Every inference engine by the name that plans have for it."""
    return {name: attribute_at(engine.place) for name, engine in ENGINES.items()}
