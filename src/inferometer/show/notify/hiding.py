"""No message of ours has a secret in it, also where a receiver repeats what it was sent."""

import re
from collections.abc import Iterator, Mapping
from html import escape
from urllib.parse import parse_qsl, unquote, urlsplit

_SECRET = ("_URL", "_TOKEN")  # how the names of variables with secrets end
_SHORTEST = 3  # of what is looked for; a path's parts are words more often than secrets below twice that


def hidden(text: str, variables: Mapping[str, str]) -> str:
    """The text with `…` for every secret of a channel and for each part of it, in small letters or capital ones."""
    words = {form for name, value in variables.items() if name.endswith(_SECRET) for form in _forms(value.strip())}
    if not words:
        return text
    pattern = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    return re.sub(pattern, "…", text, flags=re.IGNORECASE)


def _forms(secret: str) -> Iterator[str]:
    for part in _parts(secret):
        for form in (part, unquote(part), escape(part), escape(unquote(part))):
            if len(form) >= _SHORTEST:
                yield form


def _parts(secret: str) -> Iterator[str]:
    yield secret
    try:
        url = urlsplit(secret)
        yield from (part for part in (url.path, url.query, url.password) if part)
    except ValueError:
        return
    yield from (part for part in url.path.split("/") if len(part) >= 2 * _SHORTEST)
    yield from (value for _, value in parse_qsl(url.query) if len(value) >= 2 * _SHORTEST)
