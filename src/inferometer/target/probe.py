"""What answers at a target's URLs, found out before the load: its model, its engine, or why it cannot be measured."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from inferometer.errors import TargetError
from inferometer.plan.model import Target
from inferometer.target.ask import START_ONE, Asker, Reply
from inferometer.target.launch import engines
from inferometer.wire.api import MOST_TOKENS, api_of, message_in

LONGEST_NAME = 1000  # characters; of a model, an engine, a version
_NO_SUCH_PATH = {404, 405, 501}
_LOOK_S = 5.0  # longest wait for the refusal of an empty request, which takes milliseconds


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What is known of a target before the load. A request goes to a URL of `urls` plus the API's path."""

    urls: list[str]  # without a trailing slash or /v1
    model: str | None = None  # the one to ask for
    models: list[str] = field(default_factory=list)  # all that are served
    server: str | None = None  # the engine, as far as it shows itself
    version: str | None = None
    max_model_len: int | None = None
    notes: list[str] = field(default_factory=list)


def probe(target: Target) -> TargetFacts:
    """Ask every URL; the facts are those of the first. A `TargetError` says what is in the way."""
    if not target.url:
        raise TargetError("target.url: there is no address to measure", START_ONE)
    found = [_probe_one(target, url) for url in target.url]
    first = found[0]
    _refuse_chat_only(target)
    notes = list(dict.fromkeys(note for facts in found for note in facts.notes))
    notes += _differences(found)
    return TargetFacts(
        urls=[url for facts in found for url in facts.urls],
        model=first.model,
        models=first.models,
        server=first.server,
        version=first.version,
        max_model_len=first.max_model_len,
        notes=notes,
    )


def _refuse_chat_only(target: Target) -> None:
    """A server that has no completions but chats would answer every request of the load with 404."""
    if target.api != "completions" or target.path is not None:
        return
    patient = target.timeout.model_copy(update={"request": min(target.timeout.request or _LOOK_S, _LOOK_S)})
    url, completions, chat = target.url[0], api_of("completions").path, api_of("chat").path
    asker = Asker(target.model_copy(update={"timeout": patient}), base_url(url))
    try:  # without a body: refused as incomplete where there is such a path, and no token is made
        status = asker.post(_path(url, completions)).status
        if status not in _NO_SUCH_PATH or asker.post(_path(url, chat)).status in _NO_SUCH_PATH:
            return
    except TargetError:  # it says nothing about paths: the load will show what it does
        return
    raise TargetError(f"{asker.where} has no {completions} ({status}), but {chat} is there", "--api chat")


def base_url(url: str) -> str:
    """The address that paths such as /v1/completions are added to."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _probe_one(target: Target, url: str) -> TargetFacts:
    asker = Asker(target, base_url(url))
    reply = asker.get(_path(url, "/v1/models"))
    cards = _model_cards(reply)
    if cards is None:
        return _without_models(target, url, asker, reply)
    models = [card["id"] for card in cards]
    model = _chosen(target, models, asker)
    card = next((card for card in cards if card["id"] == model), {})
    notes = [] if target.model or len(models) < 2 else [f"{asker.where} serves {len(models)} models, taking {model}"]
    server, version = _engine(asker, reply, card, url)
    return TargetFacts([base_url(url)], model, models, server, version, _whole(card.get("max_model_len")), notes)


def _path(url: str, path: str) -> str:
    return urlsplit(base_url(url)).path + path


def _model_cards(reply: Reply) -> list[dict[str, Any]] | None:
    """The list of models, None where the answer is not one. An entry without a name that can be sent is none."""
    document = reply.json()
    data = document.get("data") if isinstance(document, dict) else None
    if reply.status != 200 or not isinstance(data, list):
        return None
    return [card for card in data if isinstance(card, dict) and _name(card.get("id"))]


def _chosen(target: Target, models: list[str], asker: Asker) -> str | None:
    if target.model is not None:
        if models and target.model not in models and api_of(target.api).needs_model:
            raise TargetError(
                f"{asker.where} does not serve the model {target.model!r}, it serves {_listed(models)}",
                f"--model {models[0]}, or leave it out and it is found",
            )
        return target.model
    if not models and api_of(target.api).needs_model:
        raise TargetError(
            f"{asker.where} serves no model", "is it still loading one? An entry of /v1/models needs an id"
        )
    return models[0] if models else None


def _listed(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def _without_models(target: Target, url: str, asker: Asker, reply: Reply) -> TargetFacts:
    """No list of models: fatal, unless the plan says all that is needed and the path is merely missing."""
    missing_path = reply.status in _NO_SUCH_PATH and target.model is not None
    if not missing_path and api_of(target.api).needs_model:
        raise _not_usable(target, asker, reply)
    note = f"{asker.where} has no list of models, it answered {reply.status}; the model is not checked"
    return TargetFacts([base_url(url)], target.model, server=_by_header(reply), notes=[note])


def _not_usable(target: Target, asker: Asker, reply: Reply) -> TargetError:
    said = f": {asker.hide(_message(reply))}" if _message(reply) else ""
    if reply.status in {401, 403}:
        return _not_allowed(target, asker, reply.status, said)
    if reply.status in _NO_SUCH_PATH:
        return TargetError(
            f"{asker.where} has no /v1/models, it answered {reply.status}",
            "is it an LLM server? If it is, name the model: --model NAME",
        )
    if reply.status >= 400:
        hint = "is it still loading the model?" if reply.status == 503 else "look at the server's log"
        if "HTTPS" in reply.body[:500].decode("latin-1").upper() and asker.where.startswith("http:"):
            hint = f"write {asker.where.replace('http://', 'https://', 1)}"
        return TargetError(f"{asker.where} answered /v1/models with status {reply.status}{said}", hint)
    kind = reply.headers.get("content-type", "no content type").partition(";")[0]
    got = "JSON of another shape" if reply.json() is not None else kind
    return TargetError(
        f"{asker.where} is not a server of an OpenAI-compatible API: /v1/models gave {reply.status} with {got}",
        "check host, port and path; for a server of another kind see target.api: template",
    )


def _not_allowed(target: Target, asker: Asker, status: int, said: str) -> TargetError:
    if asker.has_key:
        return TargetError(
            f"{asker.where} did not accept our key ({status}){said}", f"check the key in {target.key_env}"
        )
    return TargetError(
        f"{asker.where} wants a key ({status}){said}",
        f"put it in the environment variable {target.key_env}, or name another in target.key_env",
    )


def _message(reply: Reply) -> str:
    """The error's text in a JSON body of the usual shapes; a page of HTML says nothing in one line."""
    document = reply.json()
    return message_in(document) if isinstance(document, dict) and document else ""


def _engine(asker: Asker, reply: Reply, card: dict[str, Any], url: str) -> tuple[str | None, str | None]:
    """Name and version, from what servers say of themselves: the model's owner, the Server header, /version."""
    owner = _name(card.get("owned_by")) or ""
    name = _title_of(owner) or _by_header(reply) or owner or None
    try:
        document = asker.get(_path(url, "/version")).json()
    except TargetError:
        return name, None
    version = document.get("version") if isinstance(document, dict) else None
    return name, _name(version)


def _by_header(reply: Reply) -> str | None:
    said = reply.headers.get("server", "")
    return _title_of(said.partition("/")[0]) or _name(said)


def _title_of(owner: str) -> str | None:
    return next((engine.title for engine in engines().values() if owner.lower() in engine.owners), None)


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME else None


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 < value <= MOST_TOKENS else None


def _differences(found: list[TargetFacts]) -> list[str]:
    """Replicas that are not alike are worth a word: their numbers will be mixed."""
    names = {"model": "models", "server": "servers", "version": "versions", "max_model_len": "context lengths"}
    notes = []
    for attribute, plural in names.items():
        values = dict.fromkeys(getattr(facts, attribute) for facts in found)
        if len(values) > 1:
            notes.append(f"the URLs have different {plural}: {', '.join(map(str, values))}")
    return notes
