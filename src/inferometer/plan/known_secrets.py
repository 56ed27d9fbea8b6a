"""Every secret that a run knows, collected at one place: what its plan would star, what the plan's pointers lead to,
and what this process was given in variables with telling names. `redactor_of` hides them in text from outside."""

import base64
import binascii
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from inferometer.errors import InferometerError, PlanError
from inferometer.plan.model import Plan, Server, Target
from inferometer.plan.redactor import REDACTED, Redactor, is_secret, of_environment
from inferometer.plan.secrets import VARIABLE, looks_secret, redacted

LEAST_NUMBER = 10_000_000  # a smaller one occurs by itself
_SCHEME = re.compile(r"(?:bearer|basic|token|digest)\s+", re.IGNORECASE)


def redactor_of(
    plan: Plan | None = None,
    *,
    target: Target | None = None,
    server: Server | None = None,
    more: Iterable[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> Redactor:
    """What hides the secrets of a plan, or of a target and a server, and `more` that were learnt elsewhere."""
    sections: dict[str, Any] = {"target": target, "server": server}
    whole = plan or Plan.model_construct(**{name: section for name, section in sections.items() if section is not None})
    names = {whole.target.model, whole.server and whole.server.model}  # a header may repeat the model
    secrets = {*more, *_of_plan(whole, environ), *of_environment(environ)}
    return Redactor(_parts(secret for secret in secrets if secret not in names))


@contextmanager
def hiding(redactor: Redactor) -> Iterator[None]:
    """What goes wrong inside is told without secrets, wherever its words come from."""
    try:
        yield
    except InferometerError as error:
        error.message = redactor.hide(error.message)
        error.hint = error.hint and redactor.hide(error.hint)
        error.args = (error.message,)
        if isinstance(error, PlanError):
            error.mistakes = [redactor.hide(mistake) for mistake in error.mistakes]
        raise


def starred_in(original: Any, starred: Any) -> Iterator[str]:
    """What of a mapping is not in the same mapping after secrets were starred."""
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
    yield from starred_in(whole, redacted(plan).model_dump(mode="json", warnings=False))
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
    """Who writes `${NAME}` into a header does not want the value to be seen."""
    names = VARIABLE.findall(header)
    yield from (environ.get(name, "").strip() for name in names)


def _starred_part(original: str, starred: str) -> Iterator[str]:
    """`--api-key=abc` beside `--api-key=***`: `abc`."""
    between = "(.+?)".join(map(re.escape, starred.split(REDACTED)))
    if match := re.fullmatch(between, original, re.DOTALL):
        yield from match.groups()


def _of_url(text: str) -> Iterator[str]:
    """Password and user, and parameters with names of secrets."""
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


def _texts(value: Any) -> Iterator[str]:
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
    """Without `Bearer`, without the names of cookies; and what a Basic key is made of: parts may be echoed alone."""
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
