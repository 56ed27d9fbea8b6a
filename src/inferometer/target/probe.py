"""Checks a target before the load: its model and engine, or why it cannot be measured; whether a started server is
ready; and, if it is not, what the end of its log means."""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from inferometer.documents.document import Document
from inferometer.errors import TargetError
from inferometer.plan.model import Target, Timeouts
from inferometer.plan.secrets import redacted_url
from inferometer.record.environment import MeasuredTarget
from inferometer.target.ask import START_HINT, ServerReply, TargetClient
from inferometer.wire.api import MOST_TOKENS, api_of, message_in

if TYPE_CHECKING:
    from inferometer.target.launch import Launch

LONGEST_NAME = 1000  # characters; of a model, an engine, a version


_NO_SUCH_PATH = {404, 405, 501}


_PROBE_TIMEOUT_S = 5.0  # longest wait for an empty request to be refused, which takes milliseconds


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """The facts about a target before the load. A request goes to a URL of `urls` plus the API's path."""

    urls: list[str]  # without a trailing slash or /v1
    model: str | None = None  # model to request
    models: list[str] = field(default_factory=list)  # all served models
    server: str | None = None  # the engine, as far as it can be detected
    version: str | None = None
    max_model_len: int | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def measured(self) -> MeasuredTarget:
        """For the environment of a run."""
        facts = asdict(self)
        return MeasuredTarget(names=tuple(facts), **facts)


def probe(target: Target) -> TargetFacts:
    """Query every URL; the facts are those of the first. A `TargetError` names the problem."""
    if not target.url:
        raise TargetError("target.url: is missing", START_HINT)
    replicas = [_probe_one(target, url) for url in target.url]
    first = replicas[0]
    _refuse_chat_only(target)
    notes = list(dict.fromkeys(note for facts in replicas for note in facts.notes))
    notes += _differences(replicas)
    return TargetFacts(
        urls=[url for facts in replicas for url in facts.urls],
        model=first.model,
        models=first.models,
        server=first.server,
        version=first.version,
        max_model_len=first.max_model_len,
        notes=notes,
    )


def _refuse_chat_only(target: Target) -> None:
    """A server that offers chat but no completions would answer every request of the load with 404."""
    if target.api != "completions" or target.path is not None:
        return
    patient = target.timeout.model_copy(
        update={"request": min(target.timeout.request or _PROBE_TIMEOUT_S, _PROBE_TIMEOUT_S)}
    )
    url, completions, chat = target.url[0], api_of("completions").path, api_of("chat").path
    client = TargetClient(target.model_copy(update={"timeout": patient}), base_url(url))
    try:  # without a body: if the path exists the request is refused as incomplete, without generating a token
        status = client.post(_path(url, completions)).status
        if status not in _NO_SUCH_PATH or client.post(_path(url, chat)).status in _NO_SUCH_PATH:
            return
    except TargetError:  # no information about paths: the load will show it
        return
    raise TargetError(f"{client.where} has no {completions} ({status}), but {chat} is there", "--api chat")


def base_url(url: str) -> str:
    """The address to which paths such as /v1/completions are appended."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _probe_one(target: Target, url: str) -> TargetFacts:
    client = TargetClient(target, base_url(url))
    reply = client.get(_path(url, "/v1/models"))
    cards = _model_cards(reply)
    if cards is None:
        return _without_models(target, url, client, reply)
    models = list(cards)
    model = _chosen(target, models, client)
    card = cards.get(model or "", Document({}))
    notes = [] if target.model or len(models) < 2 else [f"{client.where} serves {len(models)} models, taking {model}"]
    server, version = _engine(client, reply, card, url)
    return TargetFacts([base_url(url)], model, models, server, version, _whole(card.get("max_model_len")), notes)


def _path(url: str, path: str) -> str:
    return urlsplit(base_url(url)).path + path


def _model_cards(reply: ServerReply) -> dict[str, Document] | None:
    """The models by name, None if the answer has no list. An entry without a usable name is skipped."""
    document = Document.of(reply.json())
    if reply.status != 200 or not document.has_list("data"):
        return None
    cards: dict[str, Document] = {}
    for card in document.sections("data"):
        if name := _name(card.get("id")):
            cards.setdefault(name, card)
    return cards


def _chosen(target: Target, models: list[str], client: TargetClient) -> str | None:
    if target.model is not None:
        if models and target.model not in models and api_of(target.api).needs_model:
            raise TargetError(
                f"{client.where} does not serve the model {target.model!r}; it serves {_listed(models)}",
                f"--model {models[0]}, or omit it to use the served model",
            )
        return target.model
    if not models and api_of(target.api).needs_model:
        raise TargetError(
            f"{client.where} serves no model", "is it still loading a model? An entry of /v1/models needs an id"
        )
    return models[0] if models else None


def _listed(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def _without_models(target: Target, url: str, client: TargetClient, reply: ServerReply) -> TargetFacts:
    """No list of models: an error, unless the plan has all necessary settings and only the path is missing."""
    missing_path = reply.status in _NO_SUCH_PATH and target.model is not None
    if not missing_path and api_of(target.api).needs_model:
        raise _not_usable(target, client, reply)
    note = f"{client.where} has no list of models (status {reply.status}); the model is not checked"
    return TargetFacts([base_url(url)], target.model, server=_by_header(reply), notes=[note])


def _not_usable(target: Target, client: TargetClient, reply: ServerReply) -> TargetError:
    message = f": {client.hide(_message(reply))}" if _message(reply) else ""
    if reply.status in {401, 403}:
        return _not_allowed(target, client, reply.status, message)
    if reply.status in _NO_SUCH_PATH:
        return TargetError(
            f"{client.where} has no /v1/models, it answered {reply.status}",
            "is it an LLM server? If it is, name the model: --model NAME",
        )
    if reply.status >= 400:
        hint = "is it still loading the model?" if reply.status == 503 else "look at the server's log"
        if "HTTPS" in reply.body[:500].decode("latin-1").upper() and client.where.startswith("http:"):
            hint = f"write {client.where.replace('http://', 'https://', 1)}"
        return TargetError(f"{client.where} answered /v1/models with status {reply.status}{message}", hint)
    kind = reply.headers.get("content-type", "no content type").partition(";")[0]
    got = "JSON of another shape" if reply.json() is not None else kind
    return TargetError(
        f"{client.where} is not an OpenAI-compatible server: /v1/models gave {reply.status} with {got}",
        "check host, port and path; for a server of another kind see target.api: template",
    )


def _not_allowed(target: Target, client: TargetClient, status: int, message: str) -> TargetError:
    if client.has_key:
        return TargetError(
            f"{client.where} rejected the API key ({status}){message}", f"check the key in {target.key_env}"
        )
    return TargetError(
        f"{client.where} needs an API key ({status}){message}",
        f"put it in the environment variable {target.key_env}, or name another in target.key_env",
    )


def _message(reply: ServerReply) -> str:
    """The error text in a JSON body of the usual forms; an HTML page has no useful single line."""
    document = reply.json()
    return message_in(document) if isinstance(document, dict) and document else ""


def _engine(client: TargetClient, reply: ServerReply, card: Document, url: str) -> tuple[str | None, str | None]:
    """Name and version, from what servers report: the owner of the model, the Server header, /version."""
    owner = _name(card.get("owned_by")) or ""
    name = _title_of(owner) or _by_header(reply) or owner or None
    try:
        document = client.get(_path(url, "/version")).json()
    except TargetError:
        return name, None
    version = document.get("version") if isinstance(document, dict) else None
    return name, _name(version)


def _by_header(reply: ServerReply) -> str | None:
    header = reply.headers.get("server", "")
    return _title_of(header.partition("/")[0]) or _name(header)


def _title_of(owner: str) -> str | None:
    from inferometer.target.launch import engines  # most servers are recognised without

    return next((engine.title for engine in engines().values() if owner.lower() in engine.owners), None)


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME else None


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 < value <= MOST_TOKENS else None


def _differences(replicas: list[TargetFacts]) -> list[str]:
    """Notes on replicas that differ, because their numbers will be mixed."""
    names = {"model": "models", "server": "servers", "version": "versions", "max_model_len": "context lengths"}
    notes = []
    for attribute, plural in names.items():
        values = dict.fromkeys(getattr(facts, attribute) for facts in replicas)
        if len(values) > 1:
            notes.append(f"the URLs have different {plural}: {', '.join(map(str, values))}")
    return notes


# -- ready -----------------------------------------------------------------------------------------------------------

CONNECT_S, ANSWER_S = 2.0, 10.0


FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5


Question = Callable[[str], ServerReply]  # from a path to the response


class NotReadyError(Exception):
    """The problem, to be reported with the end of the server's log."""

    def __init__(self, what: str, hint: str | None = None, *, in_time: bool = True) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint
        self.in_time = in_time  # detected before the deadline: waiting longer would not help


@dataclass(frozen=True, slots=True)
class ReadyCheck:
    """Result of one readiness check: ready with these models, or why not yet."""

    waits_for: str = ""
    served: list[str] | None = None


def await_ready(
    launch: "Launch", target: Target, own_paths: list[str], ended: Callable[[], str | None], deadline: float
) -> list[str] | None:
    """The names of the models it serves, None if it has no list of them."""
    ask = _question(launch, target)
    pause, seen = FIRST_PAUSE_S, ReadyCheck("nothing answered")
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


def look(ask: Question, launch: "Launch", own_paths: list[str]) -> ReadyCheck:
    """Query once. Paths in the plan must answer; they replace the engine's own."""
    answered = False
    for path in own_paths or launch.health:
        reply, why = _ask(ask, path)
        if not why:
            answered = True
        elif own_paths or not (launch.lenient and reply is not None and reply.status in _NO_SUCH_PATH):
            return ReadyCheck(why)
    if launch.models is None:
        return ReadyCheck() if answered else ReadyCheck(f"no {' or '.join(launch.health)}")
    return _look_at_models(ask, launch, answered, bool(own_paths))


def _look_at_models(ask: Question, launch: "Launch", answered: bool, own_paths: bool) -> ReadyCheck:
    path = str(launch.models)
    reply, why = _ask(ask, path)
    if reply is not None and reply.status in (401, 403):
        raise NotReadyError(
            f"answers {path} with {reply.status}: it needs an API key",
            "set the key in the environment variable named in target.key_env",
        )
    if reply is not None and reply.status == 200 and (served := served_models(reply)) is not None:
        return ReadyCheck(served=served)
    missing = reply is not None and reply.status in _NO_SUCH_PATH
    if answered and (own_paths or launch.lenient) and (missing or own_paths):
        return ReadyCheck()
    if missing and launch.lenient:
        return ReadyCheck(f"neither {' nor '.join(launch.health)} nor {path} exists")
    return ReadyCheck(why or f"{path} gave no list of models")


def _ask(ask: Question, path: str) -> tuple[ServerReply | None, str]:
    """The response or the problem, and a message for a response that is not OK."""
    try:
        reply = ask(path)
    except TargetError as error:
        return None, error.message
    return reply, "" if 200 <= reply.status < 300 else f"{path} answered with status {reply.status}"


def served_models(reply: ServerReply) -> list[str] | None:
    """From a list of models, or from TGI's /info; None if it is neither."""
    document = reply.json()
    if not isinstance(document, dict):
        return None
    if isinstance(document.get("data"), list):
        cards = [card for card in document["data"] if isinstance(card, dict)]
        return [card["id"] for card in cards if isinstance(card.get("id"), str)]
    own = document.get("model_id")
    return [own] if isinstance(own, str) else None


def check_model(launch: "Launch", served: list[str] | None) -> None:
    """Another process may use the port, or the arguments may name another model."""
    if launch.names and served is not None and not matching(launch.names, served):
        raise NotReadyError(
            f"answers at {redacted_url(launch.url)}, but serves {_several(served)} and not {_several(launch.names)}",
            "does another server listen there, or do its arguments name another model? (server.model, target.model)",
        )


def matching(names: list[str], served: list[str]) -> str | None:
    """The served model with one of the names; a file may be served under the last part of its path."""
    for name in names:
        for model in served:
            if model == name or model.rpartition("/")[2].removesuffix(".gguf") == _last_part(name):
                return model
    return None


def _last_part(name: str) -> str | None:
    """The last part of a file or folder path; a repository's name is not shortened."""
    if not (name.endswith(".gguf") or name.startswith(("/", ".", "~"))):
        return None
    return name.rstrip("/").rpartition("/")[2].removesuffix(".gguf")


def _several(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (" and more" if len(names) > 5 else "") if names else "no model"


def _path_hint(launch: "Launch", own_paths: list[str], seen: ReadyCheck) -> str | None:
    if launch.lenient and not own_paths and seen.waits_for.startswith("neither"):
        return "set the path that answers when it is ready: server.ready.path"
    return None


def _question(launch: "Launch", target: Target) -> Question:
    """With a short timeout, because the check is repeated."""
    patience = min(ANSWER_S, launch.ready_s)
    timeout = Timeouts(connect=min(CONNECT_S, target.timeout.connect, patience), request=patience)
    client = TargetClient(target.model_copy(update={"url": [launch.url], "timeout": timeout}), launch.url)
    below = urlsplit(launch.url).path.rstrip("/")
    return lambda path: client.get(below + path)


# -- diagnosis -------------------------------------------------------------------------------------------------------

_RUNTIME = (
    "the container sees no GPU: make nvidia the default runtime in /etc/docker/daemon.json "
    '("default-runtime": "nvidia") and restart docker, or set server.runtime=nvidia'
)


_FAILURES = (  # most informative first
    (r"platform (is )?not detected|failed to infer device type|unspecified platform", _RUNTIME),
    (
        r"could not select device driver|unresolvable CDI devices|nvidia-container-cli",
        "docker has no GPU access: install the nvidia container toolkit, or use no GPUs: server.gpus=none",
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
    (r"address already in use", "another process uses this port: omit server.port to use a free port"),
    (r"no space left on device", "the disk is full"),
    (
        r"gated repo|401 client error|access to model .* is restricted",
        "the model needs a token: export HF_TOKEN=..., and accept its licence",
    ),
    (r"unrecognized arguments|unexpected argument|invalid argument: -", "server.args has a flag it does not know"),
    (r"no module named", "is the engine installed in the Python that server.command names?"),
)


def meaning(lines: Iterable[str]) -> str | None:
    """The remedy for the first known failure in the end of a log."""
    text = "\n".join(lines)
    for pattern, remedy in _FAILURES:
        if re.search(pattern, text, re.IGNORECASE):
            return remedy
    return None
