"""`Redactor`: hides known secrets in external text, in every encoding in which they may appear.

It imports only the standard library, because the observer's process uses it too.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus, unquote

from inferometer.documents.document import JsonObject, JsonValue, is_list

REDACTED = "***"
SHORTEST = 4  # shorter secrets are not hidden: that would star half of every text
PIECE = 8  # characters: parts of a long secret from this length on are hidden, because a server may cut it
LEAST_OF_PIECES = 12  # characters: pieces of a shorter secret are ordinary words and not hidden
MOST_SEARCHED = 4096  # characters: longer texts are searched for whole secrets only
LEAST_OF_ENVIRONMENT = 12  # characters: shorter variables may hold a password such as `postgres`
LONGEST_MESSAGE = 300  # characters of a server's message that are kept
_PLACEHOLDERS = frozenset(  # placeholders for a key that is not needed; also names of models and engines
    (
        "empty",
        "none",
        "null",
        "dummy",
        "test",
        "vllm",
        "sglang",
        "ollama",
        "llama",
        "local",
        "simulator",
        "lm-studio",
    )
)

_ENDINGS = (
    *("authorization", "auth", "cookie", "token", "secret", "password", "passwd", "credential", "credentials"),
    "bearer",
    *("apikey", "accesskey", "secretkey", "privatekey", "subscriptionkey", "functionskey", "signature"),
    *("apikeys", "accesskeys", "secretkeys", "secrets", "passwords", "passphrase"),
)


class Redactor:
    """Stars every given secret in a text, in all encodings that servers and tools use."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.secrets = frozenset(secret for secret in secrets if _is_worth_hiding(secret))
        forms = {form for secret in self.secrets for form in forms_of(secret)}
        self._forms = sorted(forms, key=len, reverse=True)  # the longest first: one may contain another
        self._pieces = {
            form[at : at + PIECE]
            for form in forms
            if len(form) >= LEAST_OF_PIECES
            for at in range(len(form) - PIECE + 1)
        }
        self._short = [form for form in self._forms if len(form) < 2 * PIECE - 1]
        self._long = [form for form in self._forms if len(form) >= PIECE]
        self._last: tuple[str, int, str] = ("", 0, "")  # if all requests fail, their messages are equal

    @property
    def forms(self) -> list[str]:
        """All texts that are searched for, the longest first."""
        return list(self._forms)

    def hide(self, text: str) -> str:
        """The text without secrets; a short text also without pieces of secrets."""
        text = _replaced(text, self._forms)
        return self._without_pieces(text) if self._pieces and len(text) <= MOST_SEARCHED else text

    def hide_bytes(self, data: bytes) -> bytes:
        """The same for bytes."""
        for form in self._forms:
            data = data.replace(form.encode("utf-8", "surrogateescape"), REDACTED.encode())
        return data

    def message(self, text: str, most: int = LONGEST_MESSAGE) -> str:
        """A server's message on one line. Secrets are hidden before the text is cut, because half a key would not
        be found."""
        if (text, most) != self._last[:2]:
            line = _replaced(" ".join(text.split()), self._forms)
            self._last = text, most, self._without_pieces(line[: most + 32 * PIECE])[:most]
        return self._last[2]

    def may_hold(self, text: str) -> bool:
        """Whether a short text, such as an id, must be searched: a quick test that detects pieces of twice `PIECE`."""
        if not self._forms:
            return False
        blocks = [text[at : at + PIECE] for at in range(0, len(text) - PIECE + 1, PIECE)]
        if not self._pieces.isdisjoint(blocks):  # one of them lies within any 15 characters of a secret
            return True
        return any(form in text for form in self._short) if self._short else False

    def hide_within(self, fields: JsonObject) -> dict[str, JsonValue]:
        """Our own plain data, such as a plan, with secrets hidden in its texts. A secret as short as a word stays:
        hiding that word would change the plan."""
        return {name: self._within(value) for name, value in fields.items()}

    def hide_own(self, text: str) -> str:
        """A text of `hide_within`."""
        return self._without_pieces(_replaced(text, self._long)) if self._long else text

    def _within(self, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return self.hide_own(value)
        if isinstance(value, Mapping):
            return self.hide_within(value)
        return [self._within(inner) for inner in value] if is_list(value) else value

    def _without_pieces(self, text: str) -> str:
        pieces, parts, kept_to, at = self._pieces, [], 0, 0
        last = len(text) - PIECE
        while at <= last:
            if text[at : at + PIECE] not in pieces:
                at += 1
                continue
            end = at + PIECE
            while text[end - PIECE + 1 : end + 1] in pieces and end < len(text):
                end += 1
            parts += [text[kept_to:at], REDACTED]
            kept_to = at = end
        return "".join([*parts, text[kept_to:]]) if parts else text


def _replaced(text: str, forms: list[str]) -> str:
    for form in forms:
        if form in text:
            text = text.replace(form, REDACTED)
    return text


def forms_of(secret: str) -> set[str]:
    """A secret as it is, and as encoded in URLs, JSON, HTML and base64 (also inside a longer text)."""
    if any("\ud800" <= sign <= "\udfff" for sign in secret):  # undecodable bytes of the environment
        return {secret}
    import html  # only if there is a secret: it takes 1 ms

    written = (quote(secret, safe=""), quote_plus(secret), unquote(secret), html.escape(secret))
    escaped = (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])
    forms = {secret, *written, *escaped, *_in_base64(secret)}
    return {form for form in forms if len(form) >= SHORTEST}


def _in_base64(secret: str) -> Iterable[str]:
    """The base64 forms at the three possible offsets, without the characters that depend on neighbouring bytes."""
    data = secret.encode()
    for before in range(3) if len(data) >= PIECE else ():
        whole = base64.b64encode(bytes(before) + data).decode()
        first, last = -(-8 * before // 6), 8 * (before + len(data)) // 6
        inner = whole[first:last]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")


def _is_worth_hiding(secret: str) -> bool:
    return len(secret) >= SHORTEST and secret.lower() not in _PLACEHOLDERS and secret != REDACTED


def environment_redactor(environ: Mapping[str, str]) -> Redactor:
    """Hides the secrets of this process's environment, if there is no plan."""
    return Redactor(of_environment(environ))


def of_environment(environ: Mapping[str, str]) -> Iterator[str]:
    """Secrets in our environment: a server that we start inherits it, and may print it."""
    for name, value in environ.items():
        if len(value) >= LEAST_OF_ENVIRONMENT and is_secret(name) and not value.startswith(("/", "~")):  # not a file
            yield value


def is_secret(name: str) -> bool:
    """Whether a header, parameter or field of this name holds a secret."""
    bare = re.sub(r"[^a-z0-9]", "", name.lower())
    return bare in ("key", "sig", "pwd") or bare.endswith(_ENDINGS)
