"""Who may ask, and what browsers are told: the token, the hosts that we answer for, and the headers that keep a page to
itself. Plain ASGI, so that nothing passes beside it."""

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http.cookies import SimpleCookie
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qsl, urlencode

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "inferometer"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SAFE = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")
READING = ("GET", "HEAD")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Guard:
    """Stands before the app. `token` None: whoever is on this machine may look; then only names of this machine are
    answered for, so that no page elsewhere can ask through a name that it made point here."""

    app: App
    token: str | None
    write: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        sent = _with_headers(send)
        if (refusal := self._refusal(scope, headers)) is not None:
            await _answer(sent, *refusal)
        elif self.token is not None and self._in_query(scope):
            await _answer(sent, 303, "", [("location", _without_token(scope)), ("set-cookie", self._cookie())])
        else:
            await self.app(scope, receive, sent)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        if self.token is None and _name_of(headers.get("host", "")) not in LOOPBACK:
            return 421, "this dashboard answers for this machine alone; ask for it by localhost"
        if self.token is not None and not (self._in_query(scope) or self._is_known(headers)):
            return 401, "a token is needed: open the address that `inferometer dashboard` printed"
        if scope["method"] in READING:
            return None
        if not self.write:
            return 403, "read-only: `inferometer dashboard --write` lets pages set tags and baselines and delete runs"
        return None if _is_own_page(headers) else (403, "changes are made by pages of this dashboard alone")

    def _is_known(self, headers: dict[str, str]) -> bool:
        cookie = SimpleCookie()
        try:
            cookie.load(headers.get("cookie", ""))
        except Exception:  # whatever somebody sends as a cookie, it is none of ours
            cookie.clear()
        said = [headers.get("authorization", "").removeprefix("Bearer "), getattr(cookie.get(COOKIE), "value", "")]
        return any(self._fits(each) for each in said)

    def _in_query(self, scope: Scope) -> bool:
        return any(name == "token" and self._fits(value) for name, value in _query(scope))

    def _fits(self, said: str) -> bool:
        """In constant time: how long it takes tells nothing of how much was right."""
        return hmac.compare_digest(said.encode(), (self.token or "").encode())

    def _cookie(self) -> str:
        return f"{COOKIE}={self.token}; Path=/; HttpOnly; SameSite=Strict"


def _is_own_page(headers: dict[str, str]) -> bool:
    """A form of another site cannot set this header, nor can its script without our leave, which nobody gets."""
    origin = headers.get("origin")
    same = origin is None or origin.partition("://")[2] == headers.get("host")
    return same and headers.get("x-inferometer") == "1"


def _name_of(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _without_token(scope: Scope) -> str:
    """The same address, so that the token stays neither in the bar nor in the history. On this server: `//` at its
    start would be another one."""
    rest = urlencode([(name, value) for name, value in _query(scope) if name != "token"])
    path = "/" + str(scope["path"]).lstrip("/\\")
    return path + (f"?{rest}" if rest else "")


def _with_headers(send: Send) -> Send:
    async def sent(message: Any) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message["headers"]}
            more = [(name.encode(), value.encode()) for name, value in SAFE.items() if name.encode() not in own]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sent


async def _answer(send: Send, status: int, text: str, headers: list[tuple[str, str]] | None = None) -> None:
    said = [("content-type", "text/plain; charset=utf-8"), ("cache-control", "no-store"), *(headers or [])]
    encoded = [(name.encode(), value.encode("latin-1", "replace")) for name, value in said]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})
