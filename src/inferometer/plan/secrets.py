"""Secrets stay out of what is written and printed: headers, URLs and body fields that look like one are starred.

`${NAME}` is not a secret but a pointer to one: it is kept, and read from the environment when a request is sent.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from inferometer.errors import PlanError
from inferometer.plan.model import Plan, Target

REDACTED = "***"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ENDINGS = (
    *("authorization", "auth", "cookie", "token", "secret", "password", "passwd", "credential", "credentials"),
    "bearer",
    *("apikey", "accesskey", "secretkey", "privatekey", "subscriptionkey", "functionskey", "signature"),
)
_LOOKS = (  # whatever name it stands under
    r"(?:bearer|basic)\s+[\w.~+/=-]{6,}",
    r"(?:sk|pk|rk|nvapi|gsk|xai|glpat|pplx)-[\w-]{8,}",
    r"(?:hf|ghp|gho|github_pat)_\w{8,}",
    r"AKIA[0-9A-Z]{16}",
    r"eyJ[\w-]+\.[\w-]+\.[\w-]*",
)
_LOOKS_SECRET = re.compile("|".join(_LOOKS), re.IGNORECASE)
_LOOKS_WITHIN = re.compile(rf"(?<![\w-])(?:{'|'.join(_LOOKS)})", re.IGNORECASE)
_BODY_FIELD = re.compile(r'("([^"\\]+)"\s*:\s*)"((?:[^"\\]|\\.)*)"')


def is_secret(name: str) -> bool:
    """Whether a header, parameter or field of this name holds a secret."""
    bare = re.sub(r"[^a-z0-9]", "", name.lower())
    return bare in ("key", "sig", "pwd") or bare.endswith(_ENDINGS)


def looks_secret(text: str) -> bool:
    """Whether a text is a key by its own looks: `Bearer ...`, `sk-...`."""
    return bool(_LOOKS_SECRET.fullmatch(text.strip()))


def redacted_text(text: str) -> str:
    """A text of any kind, with what looks like a key starred."""
    return _LOOKS_WITHIN.sub(REDACTED, text)


def redacted(plan: Plan) -> Plan:
    """The plan as it may be written and printed. What was starred has to be given again for a rerun."""
    target = plan.target
    shown = target.model_copy(
        update={
            "url": [redacted_url(url) for url in target.url],
            "proxy": None if target.proxy is None else redacted_url(target.proxy),
            "headers": redacted_fields(target.headers),
            "body": None if target.body is None else _BODY_FIELD.sub(_starred_field, target.body),
        }
    )
    update: dict[str, Any] = {"target": shown, "sampling": _redacted_extra(plan.sampling)}
    update["workload"] = _redacted_place(plan.workload)
    if isinstance(plan.observe.metrics, list):
        metrics = [redacted_url(url) for url in plan.observe.metrics]
        update["observe"] = plan.observe.model_copy(update={"metrics": metrics})
    if plan.server is not None:
        update["server"] = _redacted_server(plan.server)
    update["traffic"] = [_redacted_class(each) for each in plan.traffic]
    return plan.model_copy(update=update)


def _redacted_server(server: Any) -> Any:
    prepare = [each.model_copy(update={"run": _redacted_command(each.run)}) for each in server.prepare]
    own = {"args": redacted_fields(server.args), "env": redacted_fields(server.env), "prepare": prepare}
    words = {name: redacted_words(getattr(server, name)) for name in ("command", "flags")}
    return server.model_copy(update=own | words | {"url": server.url and redacted_url(server.url)})


def _redacted_command(command: str | list[str]) -> str | list[str]:
    return redacted_text(command) if isinstance(command, str) else redacted_words(command)


def redacted_words(words: Sequence[str]) -> list[str]:
    """The words of a command line, with the values of flags that hold secrets starred: `--api-key ***`."""
    return [_redacted_word(word, before) for before, word in zip(["", *words], words, strict=False)]


def _redacted_word(word: str, before: str) -> str:
    name, equals, value = word.partition("=")
    if equals and is_secret(name) and value and not _only_points(value):
        return f"{name}={REDACTED}"
    follows_secret = before.startswith("-") and "=" not in before and is_secret(before) and not word.startswith("-")
    return REDACTED if follows_secret and not _only_points(word) else redacted_text(word)


def _redacted_class(traffic: Any) -> Any:
    headers = redacted_fields(traffic.headers)
    own = {"headers": headers, "sampling": _redacted_extra(traffic.sampling)}
    return traffic.model_copy(update={**own, "workload": _redacted_place(traffic.workload)})


def _redacted_place(workload: Any) -> Any:
    url = getattr(workload, "url", None)
    return workload if url is None else workload.model_copy(update={"url": redacted_url(url)})


def _redacted_extra(sampling: Any) -> Any:
    return sampling.model_copy(update={"extra": redacted_fields(sampling.extra)})


def redacted_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping, however deep, with the texts starred that are under secret names or look secret themselves."""
    return {name: _starred(value) if is_secret(name) else _within(value) for name, value in fields.items()}


def _within(value: Any) -> Any:
    if isinstance(value, Mapping):
        return redacted_fields(value)
    if isinstance(value, str):
        return REDACTED if looks_secret(value) else value
    return [_within(each) for each in value] if isinstance(value, list) else value


def _starred(value: Any) -> Any:
    if isinstance(value, str) and value and not _only_points(value):
        return REDACTED
    return value if isinstance(value, str | bool | None) else REDACTED


def _only_points(text: str) -> bool:
    """`${KEY}` and `Bearer ${KEY}` hold nothing that must not be seen."""
    return bool(_VARIABLE.search(text)) and _VARIABLE.sub("", text).strip().lower() in ("", "bearer", "basic", "token")


def _starred_field(match: re.Match[str]) -> str:
    secret = (is_secret(match[2]) and match[3] and "{prompt}" not in match[3]) or looks_secret(match[3])
    return f'{match[1]}"{REDACTED}"' if secret else match[0]


def redacted_url(url: str) -> str:
    """A URL without user, password and secret parameters: `http://***@host/v1?api_key=***`."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return re.sub(r"//[^/@]*@", f"//{REDACTED}@", url)
    user, at, host = parts.netloc.rpartition("@")
    netloc = f"{user if _VARIABLE.fullmatch(user) else REDACTED}@{host}" if at else host
    query = parts.query
    pairs = parse_qsl(query, keep_blank_values=True)
    starred = [(name, REDACTED if is_secret(name) or looks_secret(value) else value) for name, value in pairs]
    if starred != pairs:
        query = urlencode(starred, quote_via=quote, safe="*${}")
    return parts._replace(netloc=netloc, query=query).geturl()


def resolve(text: str, environ: Mapping[str, str], where: str) -> str:
    """The text with each `${NAME}` as the environment has it, for sending; `where` names the setting in errors."""
    if missing := sorted({name for name in _VARIABLE.findall(text) if name not in environ}):
        names = " and ".join(missing)
        raise PlanError(f"{where} needs {names} from the environment, where it is not set", f"export {missing[0]}=...")
    if REDACTED in text:
        hint = f"--set '{where}=${{NAME}}' reads it from the environment and can be kept"
        raise PlanError(f"{where} was starred when the plan was kept; it has to be given again", hint)
    ready = _VARIABLE.sub(lambda match: environ[match[1]].strip(), text)
    if re.search(r"[\r\n\0]", ready):
        raise PlanError(f"{where} must be a single line, but the environment holds several")
    return ready


def secret_hider(target: Target, *more: Mapping[str, str]) -> Callable[[str], str]:
    """A function that stars the key, the secret headers (of `more` too) and passwords in addresses, wherever they
    occur in a text."""
    secrets: set[str] = set()
    for headers in (target.headers, *more):
        own = resolve_headers(headers, os.environ)
        secrets |= {value for name, value in own.items() if _hides(name, value) or value != headers[name]}
    secrets |= {secret.partition(" ")[2] for secret in secrets}  # what follows Bearer
    secrets |= {urlsplit(url).password or "" for url in [*target.url, target.proxy or ""]}
    secrets.add(os.environ.get(target.key_env, ""))
    longest_first = sorted((secret for secret in secrets if len(secret) > 3), key=len, reverse=True)

    def hide(text: str) -> str:
        for secret in longest_first:
            text = text.replace(secret, REDACTED)
        return text

    return hide


def _hides(name: str, value: str) -> bool:
    return is_secret(name) or looks_secret(value)


def resolve_headers(headers: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Headers ready to be sent; every one that cannot be is named at once."""
    ready, mistakes, hint = {}, [], None
    for name, value in headers.items():
        try:
            ready[name] = resolve(value, environ, f"target.headers.{name}")
        except PlanError as error:
            mistakes += error.mistakes
            hint = hint or error.hint
    if mistakes:
        raise PlanError(mistakes, hint)
    return ready
