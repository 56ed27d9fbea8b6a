"""Keeps secrets out of written and printed text: headers, URLs and body fields that look like secrets are starred.

`${NAME}` is not a secret but a reference to one: it is kept, and read from the environment when a request is sent.
The starred values are also collected, to be hidden in text from servers.
"""

import base64
import binascii
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from inferometer.documents.document import JsonObject, JsonValue, is_list
from inferometer.errors import InferometerError, PlanError
from inferometer.plan.fields import Section, as_header
from inferometer.plan.model import Plan, Sampling, Server, Target, Traffic, Workload
from inferometer.plan.redactor import REDACTED, Redactor, of_environment
from inferometer.plan.redactor import is_secret as is_secret  # re-exported

SectionType = TypeVar("SectionType", bound=Section)

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_OTHER_KEYS = re.compile(r"cache|rout|sort|partition|primary|foreign|public|idempot|group", re.IGNORECASE)
_ENDS_WITH_KEY = re.compile(r"(?:[_.-]key|[a-z]Key|[A-Z]_KEY)$")
_RANDOM = re.compile(r"(?=\S*[0-9])(?=\S*[A-Za-z])[\w.~+/=:-]{20,}")  # keys mix digits and letters
_LOOKS = (  # under any name
    r"(?:bearer|basic)\s+[\w.~+/=-]{6,}",
    r"(?:sk|pk|rk|nvapi|gsk|xai|glpat|pplx)-[\w-]{8,}",
    r"(?:hf|ghp|gho|github_pat)_\w{8,}",
    r"AKIA[0-9A-Z]{16}",
    r"eyJ[\w-]+\.[\w-]+\.[\w-]*",
)
_LOOKS_SECRET = re.compile("|".join(_LOOKS), re.IGNORECASE)
_LOOKS_WITHIN = re.compile(rf"(?<![\w-])(?:{'|'.join(_LOOKS)})", re.IGNORECASE)
_KEYS_WITHIN = re.compile(rf"(?<![\w-])(?:{'|'.join(_LOOKS[1:])})", re.IGNORECASE)
_BODY_FIELD = re.compile(r'("([^"\\]+)"\s*:\s*)"((?:[^"\\]|\\.)*)"')
_URL_WITHIN = re.compile(r"\b[A-Za-z][\w+.-]*://[^\s'\"<>]+")
_BETWEEN_WORDS = re.compile(r"([\s;&|()]+)")
_NAMED = re.compile(r"""(?P<head>["']?(?P<name>-{0,2}[A-Za-z][\w.-]*)\s*[=:]\s*)(?P<value>.+)""", re.DOTALL)
_COMMANDS = ("command", "flags", "argv", "run")  # fields that hold a command line
_SCHEMES = ("bearer", "basic", "token")  # words before a key in a header
_VARIABLE_FLAGS = ("-e", "--env")  # of docker: NAME=value is one word, also with blanks in the value
_USER_FLAGS = ("-u", "--user", "--proxy-user")  # of curl: the value is user:password


def looks_secret(text: str) -> bool:
    """Whether a text itself looks like a key: `Bearer ...`, `sk-...`."""
    return bool(_LOOKS_SECRET.fullmatch(text.strip()))


def holds_secret(name: str, value: str) -> bool:
    """Whether a text under this name is a secret, judging by name, content or both."""
    if is_secret(name) or looks_secret(value):
        return True
    return bool(_ENDS_WITH_KEY.search(name) and not _OTHER_KEYS.search(name) and _RANDOM.fullmatch(value))


def redacted_text(text: str) -> str:
    """A text with everything starred that looks like a key, and passwords in addresses."""
    return _without_urls(_LOOKS_WITHIN.sub(REDACTED, text))


def _without_urls(text: str) -> str:
    """A text with secrets in addresses starred; other addresses stay unchanged."""
    return _URL_WITHIN.sub(_starred_url, text) if "://" in text else text


def _starred_url(match: re.Match[str]) -> str:
    starred = redacted_url(match[0])
    return starred if REDACTED in starred else match[0]


def redacted_line(text: str) -> str:
    """A shell command line: secret values of flags, variables and headers are starred too."""
    parts = _BETWEEN_WORDS.split(text)
    parts[::2] = redacted_argv(parts[::2])
    return redacted_text("".join(parts))


def redacted(plan: Plan, environ: Mapping[str, str] = os.environ) -> Plan:
    """The plan for writing and printing: a secret is starred in its own field, and wherever else the plan
    repeats it. Starred values must be given again for a rerun."""
    return _hidden_in(_starred_plan(plan), redactor_of(plan, environ=environ))


def _hidden_in(section: SectionType, redactor: Redactor) -> SectionType:
    """A section with secrets hidden in all nested texts. Values of a fixed set of words stay: they are no secrets."""
    changed = {}
    for name, value in section:
        hidden = _hidden(value, redactor)
        if hidden != value and value not in _words(type(section), name):
            changed[name] = hidden
    return section.model_copy(update=changed) if changed else section


@cache
def _words(section: type[Section], name: str) -> tuple[str, ...]:
    """The fixed set of words that a field allows."""
    return tuple(_words_in(section.model_fields[name].annotation))


def _words_in(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    else:
        for part in get_args(annotation):
            yield from _words_in(part)


def _hidden(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, Section):
        return _hidden_in(value, redactor)
    if isinstance(value, Mapping):
        return {name: _hidden(inner, redactor) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_hidden(inner, redactor) for inner in value)
    return redactor.hide_own(value) if isinstance(value, str) else value


def _starred_plan(plan: Plan) -> Plan:
    """The plan with every field starred whose name or content looks like a secret."""
    target = plan.target
    shown = target.model_copy(
        update={
            "url": [redacted_url(url) for url in target.url],
            "proxy": None if target.proxy is None else redacted_url(target.proxy),
            "headers": redacted_fields(target.headers),
            "body": None if target.body is None else _BODY_FIELD.sub(_starred_field, target.body),
        }
    )
    observe = plan.observe
    if isinstance(observe.metrics, list):
        observe = observe.model_copy(update={"metrics": [redacted_url(url) for url in observe.metrics]})
    return plan.model_copy(
        update={
            "target": shown,
            "sampling": _redacted_extra(plan.sampling),
            "workload": _redacted_place(plan.workload),
            "observe": observe,
            "server": None if plan.server is None else _redacted_server(plan.server),
            "traffic": [_redacted_class(traffic) for traffic in plan.traffic],
        }
    )


def _redacted_server(server: Server) -> Server:
    return server.model_copy(
        update={
            "args": redacted_fields(server.args),
            "env": redacted_fields(server.env),
            "prepare": [step.model_copy(update={"run": _redacted_command(step.run)}) for step in server.prepare],
            "of": None if server.of is None else _redacted_server(server.of),
            "command": redacted_argv(server.command),
            "flags": redacted_argv(server.flags),
            "url": server.url and redacted_url(server.url),
        }
    )


def _redacted_command(command: str | list[str]) -> str | list[str]:
    return redacted_line(command) if isinstance(command, str) else redacted_argv(command)


def redacted_argv(argv: Sequence[str]) -> list[str]:
    """The arguments of a command with secret values of flags, variables and headers starred: `--api-key ***`.
    A shell command line within an argument, as in `bash -c`, is parsed too."""
    return [_redacted_arg(arg, before) for before, arg in zip(["", *argv], argv, strict=False)]


def _redacted_arg(arg: str, before: str) -> str:
    bare, before = arg.strip("\"'"), before.strip("\"'")
    if _only_points(bare) or not bare:
        return arg
    if (before.startswith("-") and "=" not in before and is_secret(before) and not bare.startswith("-")) or (
        before.endswith(":") and is_secret(before) and bare.lower() not in _SCHEMES
    ):
        return REDACTED
    if before in _USER_FLAGS and ":" in bare:
        return f"{bare.partition(':')[0]}:{REDACTED}"
    named = _NAMED.fullmatch(arg)
    is_line = _BETWEEN_WORDS.search(arg) and "=" in arg.split(None, 1)[0] and not arg.startswith("-")
    if named and not named["value"].startswith("//") and (not is_line or before in _VARIABLE_FLAGS):
        value = named["value"].strip("\"'")
        if holds_secret(named["name"], value) and value.lower() not in _SCHEMES and not _only_points(value):
            return f"{named['head']}{REDACTED}"
    return redacted_line(arg) if _BETWEEN_WORDS.search(arg) else redacted_text(arg)


def _redacted_class(traffic: Traffic) -> Traffic:
    headers = redacted_fields(traffic.headers)
    own = {"headers": headers, "sampling": _redacted_extra(traffic.sampling)}
    return traffic.model_copy(update={**own, "workload": _redacted_place(traffic.workload)})


def _redacted_place(workload: Workload) -> Workload:
    url = getattr(workload, "url", None)
    return workload if url is None else workload.model_copy(update={"url": redacted_url(url)})


def _redacted_extra(sampling: Sampling) -> Sampling:
    return sampling.model_copy(update={"extra": redacted_fields(sampling.extra)})


def redacted_fields(fields: JsonObject) -> dict[str, JsonValue]:
    """A nested mapping with texts starred that have a secret name or look like a secret."""
    return {name: _redacted_field(str(name), value) for name, value in fields.items()}


def _redacted_field(name: str, value: JsonValue) -> JsonValue:
    if _is_secret_field(name, value):
        return _starred(value)
    if name.rpartition(".")[2] in _COMMANDS and isinstance(value, str):
        return redacted_line(value)
    if name.rpartition(".")[2] in _COMMANDS and is_list(value):
        words = [word for word in value if isinstance(word, str)]
        return redacted_argv(words) if len(words) == len(value) else _within(value)
    return _within(value)


def _is_secret_field(name: str, value: JsonValue) -> bool:
    return holds_secret(name, value) if isinstance(value, str) else is_secret(name)


def _within(value: JsonValue) -> JsonValue:
    if isinstance(value, Mapping):
        return redacted_fields(value)
    if isinstance(value, str):  # `basic understanding` in a sentence is no secret
        return REDACTED if looks_secret(value) else _without_urls(_KEYS_WITHIN.sub(REDACTED, value))
    return [_within(entry) for entry in value] if is_list(value) else value


def _starred(value: JsonValue) -> JsonValue:
    if isinstance(value, str) and value and not _only_points(value):
        return REDACTED
    return value if isinstance(value, str | bool | None) else REDACTED


def _only_points(text: str) -> bool:
    """Whether a text only refers to a secret: `${KEY}`, `Bearer ${KEY}`."""
    return bool(VARIABLE.search(text)) and VARIABLE.sub("", text).strip().lower() in ("", *_SCHEMES)


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
    netloc = f"{user if VARIABLE.fullmatch(user) else REDACTED}@{host}" if at else host
    query = parts.query
    pairs = parse_qsl(query, keep_blank_values=True)
    starred = [(name, REDACTED if is_secret(name) or looks_secret(value) else value) for name, value in pairs]
    if starred != pairs:
        query = urlencode(starred, quote_via=quote, safe="*${}")
    return parts._replace(netloc=netloc, query=query).geturl()


def resolve(text: str, environ: Mapping[str, str], where: str) -> str:
    """The text with each `${NAME}` replaced from the environment; `where` names the setting in errors."""
    if missing := sorted({name for name in VARIABLE.findall(text) if name not in environ}):
        names = " and ".join(missing)
        raise PlanError(f"{where} needs environment variables that are not set: {names}", f"export {missing[0]}=...")
    if REDACTED in text:
        hint = f"--set '{where}=${{NAME}}' reads it from the environment and can be stored"
        raise PlanError(f"{where} was masked when the plan was stored; it has to be given again", hint)
    ready = VARIABLE.sub(lambda match: environ[match[1]].strip(), text)
    if re.search(r"[\r\n\0]", ready):
        raise PlanError(f"{where} must be a single line, but the environment holds several")
    return ready


def key_of(target: Target, environ: Mapping[str, str]) -> str | None:
    """The API key for a header; None if the environment has none."""
    key = environ.get(target.key_env, "").strip()
    if not as_header(key):
        hint = f"export {target.key_env}=... again: it contains a line break or a character that no header can have"
        raise PlanError(f"target.key_env: {target.key_env} must hold a key on a single line", hint)
    return key or None


def resolve_headers(headers: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The headers to send; errors in all of them are raised together."""
    ready, mistakes, hint = {}, [], None
    for name, value in headers.items():
        try:
            ready[name] = resolve(value, environ, f"target.headers.{name}")
            if not as_header(ready[name]):
                mistakes.append(f"target.headers.{name}: the environment holds characters that no header can hold")
        except PlanError as error:
            mistakes += error.mistakes
            hint = hint or error.hint
    if mistakes:
        raise PlanError(mistakes, hint)
    return ready


LEAST_NUMBER = 10_000_000  # smaller numbers occur by chance
_SCHEME = re.compile(r"(?:bearer|basic|token|digest)\s+", re.IGNORECASE)


def redactor_of(
    plan: Plan | None = None,
    *,
    target: Target | None = None,
    server: Server | None = None,
    more: Iterable[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> Redactor:
    """Hides the secrets of a plan, or of a target and a server, and `more` from elsewhere."""
    whole = plan or Plan.model_construct(target=target or Target(), server=server)
    names = {whole.target.model, whole.server and whole.server.model}  # a header may repeat the model
    secrets = {*more, *_of_plan(whole, environ), *of_environment(environ)}
    return Redactor(_parts(secret for secret in secrets if secret not in names))


@contextmanager
def hiding(redactor: Redactor) -> Iterator[None]:
    """Context that removes secrets from the errors raised in it."""
    try:
        yield
    except InferometerError as error:
        error.message = redactor.hide(error.message)
        error.hint = error.hint and redactor.hide(error.hint)
        error.args = (error.message,)
        if isinstance(error, PlanError):
            error.mistakes = [redactor.hide(mistake) for mistake in error.mistakes]
        raise


def starred_in(original: JsonValue, starred: JsonValue) -> Iterator[str]:
    """The values of a mapping that were starred in its redacted copy."""
    if isinstance(original, Mapping) and isinstance(starred, Mapping):
        for name, value in original.items():
            yield from starred_in(value, starred.get(name))
    elif isinstance(original, list | tuple) and isinstance(starred, list | tuple):
        for value, other in zip(original, starred, strict=False):
            yield from starred_in(value, other)
    elif isinstance(original, str):
        yield from _starred_part(original, starred) if isinstance(starred, str) and original != starred else ()
    elif starred == REDACTED:
        yield from _texts(original)


def _of_plan(plan: Plan, environ: Mapping[str, str]) -> Iterator[str]:
    whole = plan.model_dump(mode="json", warnings=False)
    yield from starred_in(whole, _starred_plan(plan).model_dump(mode="json", warnings=False))
    yield environ.get(plan.target.key_env, "")
    for headers in (plan.target.headers, *(traffic.headers for traffic in plan.traffic)):
        for value in headers.values():
            yield from _pointed_at(value, environ)
    for name, value in plan.server.env.items() if plan.server else ():
        for pointer in VARIABLE.findall(value):
            if is_secret(name) or is_secret(pointer):
                yield environ.get(pointer, "")
    for text in _texts(whole):
        if "://" in text:
            yield from _of_url(VARIABLE.sub(lambda match: environ.get(match[1], ""), text))


def _pointed_at(header: str, environ: Mapping[str, str]) -> Iterator[str]:
    """The values that headers refer to by `${NAME}`; they are treated as secrets."""
    names = VARIABLE.findall(header)
    yield from (environ.get(name, "").strip() for name in names)


def _starred_part(original: str, starred: str) -> Iterator[str]:
    """The part of a text that was starred: `abc` for `--api-key=abc` and `--api-key=***`."""
    between = "(.+?)".join(map(re.escape, starred.split(REDACTED)))
    if match := re.fullmatch(between, original, re.DOTALL):
        yield from match.groups()


def _of_url(text: str) -> Iterator[str]:
    """The secrets of a URL: password, user, and parameters with secret names."""
    for url in re.findall(r"\b[A-Za-z][\w+.-]*://[^\s'\"<>]+", text):
        try:
            parts = urlsplit(url)
            user, password = parts.username, parts.password
        except ValueError:
            continue
        yield from (
            secret for value in (password or user, password and f"{user}:{password}") for secret in _as_is(value)
        )
        for name, value in parse_qsl(parts.query):
            if is_secret(name) or looks_secret(value):
                yield value


def _as_is(value: str | None) -> Iterator[str]:
    if value:
        yield from (value, unquote(value))


def _texts(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, int) and abs(value) >= LEAST_NUMBER:
        yield str(value)


def _parts(secrets: Iterable[str]) -> Iterator[str]:
    """Parts of a header value that may be echoed alone: without `Bearer`, without cookie names, a decoded Basic key."""
    for secret in secrets:
        text = _SCHEME.sub("", secret.strip(), count=1) if _SCHEME.match(secret.strip()) else secret.strip()
        if not text or VARIABLE.fullmatch(text):
            continue
        if "=" in text and ";" in text:
            yield from (part.partition("=")[2].strip() for part in text.split(";"))
            continue
        yield text
        if secret.strip().lower().startswith("basic "):
            yield from _of_basic(text)


def _of_basic(key: str) -> Iterator[str]:
    try:
        plain = base64.b64decode(key, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return
    yield plain
    yield plain.partition(":")[2]
