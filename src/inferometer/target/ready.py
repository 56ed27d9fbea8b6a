"""Whether a server can be measured: its health and its list of models answer, and the model is the one requested; and
what the end of a log means where it did not get that far."""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from inferometer.errors import TargetError
from inferometer.plan.model import Target, Timeouts
from inferometer.plan.secrets import redacted_url
from inferometer.target.ask import Asker, Reply
from inferometer.target.launch import Launch

# -- ready -----------------------------------------------------------------------------------------------------------

CONNECT_S, ANSWER_S = 2.0, 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
_NO_SUCH_PATH = {404, 405, 501}

Question = Callable[[str], Reply]  # from a path to what it answers


class NotReadyError(Exception):
    """What is in the way, to be told with the end of the server's log."""

    def __init__(self, what: str, hint: str | None = None, *, in_time: bool = True) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint
        self.in_time = in_time  # found before the deadline: no waiting would help


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the server showed: ready with these models, or why not yet."""

    waits_for: str = ""
    served: list[str] | None = None


def await_ready(
    launch: Launch, target: Target, own_paths: list[str], ended: Callable[[], str | None], deadline: float
) -> list[str] | None:
    """The names of the models it serves, None where it has no list of them."""
    ask = _question(launch, target)
    pause, seen = FIRST_PAUSE_S, Look("nothing answered")
    while True:
        if how := ended():
            raise NotReadyError(f"ended {how} before it was ready")
        seen = look(ask, launch, own_paths)
        if not seen.waits_for and not ended():
            check_model(launch, seen.served)
            return seen.served
        if time.monotonic() + pause >= deadline:
            raise NotReadyError(seen.waits_for, _path_hint(launch, own_paths, seen), in_time=False)
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_S)


def look(ask: Question, launch: Launch, own_paths: list[str]) -> Look:
    """Ask once. Paths that the plan names must answer; the engine's own stand in for them."""
    answered = False
    for path in own_paths or launch.health:
        reply, why = _ask(ask, path)
        if not why:
            answered = True
        elif own_paths or not (launch.lenient and reply is not None and reply.status in _NO_SUCH_PATH):
            return Look(why)
    if launch.models is None:
        return Look() if answered else Look(f"no {' or '.join(launch.health)}")
    return _look_at_models(ask, launch, answered, bool(own_paths))


def _look_at_models(ask: Question, launch: Launch, answered: bool, own_paths: bool) -> Look:
    path = str(launch.models)
    reply, why = _ask(ask, path)
    if reply is not None and reply.status in (401, 403):
        raise NotReadyError(
            f"answers {path} with {reply.status}: it wants a key",
            "put the key in the environment variable that target.key_env names",
        )
    if reply is not None and reply.status == 200 and (served := served_models(reply)) is not None:
        return Look(served=served)
    missing = reply is not None and reply.status in _NO_SUCH_PATH
    if answered and (own_paths or launch.lenient) and (missing or own_paths):
        return Look()
    if missing and launch.lenient:
        return Look(f"neither {' nor '.join(launch.health)} nor {path} is there")
    return Look(why or f"{path} gave no list of models")


def _ask(ask: Question, path: str) -> tuple[Reply | None, str]:
    """The answer, or what is in the way of one; and what to say of it where it is not good."""
    try:
        reply = ask(path)
    except TargetError as error:
        return None, error.message
    return reply, "" if 200 <= reply.status < 300 else f"{path} answered with status {reply.status}"


def served_models(reply: Reply) -> list[str] | None:
    """From a list of models, or from TGI's /info; None where it is neither."""
    document = reply.json()
    if not isinstance(document, dict):
        return None
    if isinstance(document.get("data"), list):
        cards = [card for card in document["data"] if isinstance(card, dict)]
        return [card["id"] for card in cards if isinstance(card.get("id"), str)]
    own = document.get("model_id")
    return [own] if isinstance(own, str) else None


def check_model(launch: Launch, served: list[str] | None) -> None:
    """Somebody else's server may sit on the port, or the arguments may name another model."""
    if launch.names and served is not None and not matching(launch.names, served):
        raise NotReadyError(
            f"answers at {redacted_url(launch.url)}, but serves {_listed(served)} and not {_listed(launch.names)}",
            "does another server listen there, or do its arguments name another model? (server.model, target.model)",
        )


def matching(names: list[str], served: list[str]) -> str | None:
    """The served model that is one of the names; a file may be served under its last part."""
    for name in names:
        for model in served:
            if model == name or model.rpartition("/")[2].removesuffix(".gguf") == _last_part(name):
                return model
    return None


def _last_part(name: str) -> str | None:
    """Of a file or folder; a repository's name is taken whole."""
    if not (name.endswith(".gguf") or name.startswith(("/", ".", "~"))):
        return None
    return name.rstrip("/").rpartition("/")[2].removesuffix(".gguf")


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (" and more" if len(names) > 5 else "") if names else "no model"


def _path_hint(launch: Launch, own_paths: list[str], seen: Look) -> str | None:
    if launch.lenient and not own_paths and seen.waits_for.startswith("neither"):
        return "say which path answers when it is ready: server.ready.path"
    return None


def _question(launch: Launch, target: Target) -> Question:
    """How it is asked: with short patience, for it is asked again."""
    patience = min(ANSWER_S, launch.ready_s)
    timeout = Timeouts(connect=min(CONNECT_S, target.timeout.connect, patience), request=patience)
    changes: dict[str, Any] = {"url": [launch.url], "timeout": timeout}
    asker = Asker(target.model_copy(update=changes), launch.url)
    below = urlsplit(launch.url).path.rstrip("/")
    return lambda path: asker.get(below + path)


# -- diagnosis -------------------------------------------------------------------------------------------------------

_RUNTIME = (
    "the container sees no GPU: make nvidia the default runtime in /etc/docker/daemon.json "
    '("default-runtime": "nvidia") and restart docker, or set server.runtime=nvidia'
)
_FAILURES = (  # in the order of how much they say
    (r"platform (is )?not detected|failed to infer device type|unspecified platform", _RUNTIME),
    (
        r"could not select device driver|unresolvable CDI devices|nvidia-container-cli",
        "docker cannot hand out GPUs: install the nvidia container toolkit, or do without: server.gpus=none",
    ),
    (r"unknown or invalid runtime name", "this engine has no such runtime: install it, or leave out server.runtime"),
    (
        r"permission denied.*docker(\.sock| daemon)|cannot connect to the docker daemon",
        "is the docker daemon running, and may you use it?",
    ),
    (
        r"no available memory for the cache blocks|larger than the maximum number of tokens that can be stored|"
        r"estimated maximum model length",
        "too little memory for the KV cache: a smaller server.args.max-model-len, or more gpu-memory-utilization",
    ),
    (
        r"out of memory|less than desired gpu memory|free memory on device",
        "too little GPU memory: does something else use the GPU (nvidia-smi)? Else a smaller gpu-memory-utilization",
    ),
    (r"address already in use", "something else listens on this port: leave out server.port and a free one is found"),
    (r"no space left on device", "the disk is full"),
    (
        r"gated repo|401 client error|access to model .* is restricted",
        "the model needs a token: export HF_TOKEN=..., and accept its licence",
    ),
    (r"unrecognized arguments|unexpected argument|invalid argument: -", "server.args has a flag it does not know"),
    (r"no module named", "is the engine installed in the Python that server.command names?"),
)


def meaning(lines: Iterable[str]) -> str | None:
    """The remedy for the first known failure in a log's end."""
    text = "\n".join(lines)
    for pattern, remedy in _FAILURES:
        if re.search(pattern, text, re.IGNORECASE):
            return remedy
    return None
