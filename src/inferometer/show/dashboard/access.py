"""Access control and timeouts: the token and its login form, the accepted host names, the security headers, and the
time limit of every answer."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from html import escape
from http.cookies import SimpleCookie
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qsl, urlencode

from inferometer.record.sanitize import json_bytes

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = dict[str, str]

COOKIE = "inferometer"
LOGIN = "/login"
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
PUBLIC = ("/assets/style.css", "/assets/pages.css", "/assets/theme.js")  # files used by the login form
LONGEST_QUERY = 8192  # bytes; a typical filter has some hundred
LONGEST_FORM = 4096
WRONG_TOKEN_S = 0.5  # minimum duration of a wrong guess


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Guard:
    """Middleware in front of the app. With `token` None any user of this machine may read; then only names of this
    machine are accepted as host, so that no page elsewhere can send requests through a name that resolves to this
    machine."""

    app: App
    token: str | None
    write: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        sent = _with_headers(send)
        if scope["method"] == "HEAD":
            scope, sent = {**scope, "method": "GET"}, _without_body(sent)
        if self.token is not None and scope["path"] == LOGIN and scope["method"] == "POST":
            await self._log_in(scope, receive, sent)
        elif (refusal := self._refusal(scope, headers)) is not None:
            await self._refuse(sent, headers, scope, *refusal)
        elif self.token is not None and self._in_query(scope):
            await _answer(sent, 303, "", [("location", _without_token(scope)), ("set-cookie", self._cookie())])
        else:
            await self.app(scope, receive, sent)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        if self.token is None and _name_of(headers.get("host", "")) not in LOOPBACK:
            return 421, "this dashboard is reachable only from this machine; use localhost"
        if len(scope["query_string"]) > LONGEST_QUERY:
            return 414, f"the address is too long: at most {LONGEST_QUERY} bytes after the question mark"
        if self.token is not None and not self._may_read(scope, headers):
            return 401, "a token is needed: open the address that `inferometer dashboard` printed"
        if scope["method"] in READING:
            return None
        if not self.write:
            return 403, "read-only: start `inferometer dashboard --write` to set tags and baselines and to delete runs"
        return None if _is_own_page(headers) else (403, "only pages of this dashboard can make changes")

    def _may_read(self, scope: Scope, headers: Headers) -> bool:
        return scope["path"] in PUBLIC or self._in_query(scope) or self._is_known(headers)

    async def _refuse(self, send: Send, headers: Headers, scope: Scope, status: int, text: str) -> None:
        if status == 401 and "text/html" in headers.get("accept", ""):
            await _answer(send, status, login_page(_without_token(scope)), kind="text/html")
        else:
            await _answer(send, status, f"{text}\n")

    async def _log_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The form of `login_page`: with the right token it sets a cookie and redirects to the requested page."""
        form = dict(parse_qsl(await _body(receive, LONGEST_FORM), keep_blank_values=True))
        path = "/" + form.get("next", "").lstrip("/\\")  # on this server: a leading `//` would lead to another one
        if self._fits(form.get("token", "").strip()):
            await _answer(send, 303, "", [("location", _printable(path)), ("set-cookie", self._cookie())])
            return
        await asyncio.sleep(WRONG_TOKEN_S)
        await _answer(send, 401, login_page(path, "This is not the token of this dashboard."), kind="text/html")

    def _is_known(self, headers: Headers) -> bool:
        cookie = SimpleCookie()
        try:
            cookie.load(headers.get("cookie", ""))
        except Exception:  # any malformed cookie is not ours
            cookie.clear()
        tokens = [headers.get("authorization", "").removeprefix("Bearer "), getattr(cookie.get(COOKIE), "value", "")]
        return any(self._fits(token) for token in tokens)

    def _in_query(self, scope: Scope) -> bool:
        return any(name == "token" and self._fits(value) for name, value in _query(scope))

    def _fits(self, token: str) -> bool:
        """In constant time: the time does not depend on how much of the token is right."""
        return hmac.compare_digest(token.encode(), (self.token or "").encode())

    def _cookie(self) -> str:
        return f"{COOKIE}={self.token}; Path=/; HttpOnly; SameSite=Strict"


def login_page(path: str, mistake: str = "") -> str:
    """A form for the token, without a script."""
    message = f'<p class="error" role="alert">{escape(mistake)}</p>' if mistake else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in · Inferometer</title><link rel="icon" href="data:,"><link rel="stylesheet" href="/assets/style.css">
<link rel="stylesheet" href="/assets/pages.css"></head>
<body><main class="wrap login"><h1>Inferometer</h1>{message}
<form class="tools" method="post" action="{LOGIN}">
<input type="hidden" name="next" value="{escape(path)}">
<input type="text" name="user" value="inferometer" autocomplete="username" hidden aria-label="User">
<label class="wide">Token
<input type="password" name="token" autocomplete="current-password" required autofocus></label>
<button class="primary" type="submit">Log in</button></form>
<p class="muted">The token is in the address that <code>inferometer dashboard</code> printed, or in
<code>$INFEROMETER_TOKEN</code> of the machine that it runs on.</p></main></body></html>
"""


def _is_own_page(headers: Headers) -> bool:
    """A form of another site cannot set this header, nor can its script without our permission, which is never
    granted."""
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
    """The same address without the token, so that it remains neither in the address bar nor in the history. On this
    server: a leading `//` would lead to another one."""
    rest = urlencode([(name, value) for name, value in _query(scope) if name != "token"])
    path = "/" + str(scope["path"]).lstrip("/\\")
    return path + (f"?{rest}" if rest else "")


def _printable(path: str) -> str:
    """A header is a single line."""
    return "".join(letter for letter in path if letter.isascii() and letter.isprintable())


def _with_headers(send: Send) -> Send:
    async def sent(message: Any) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message["headers"]}
            more = [(name.encode(), value.encode()) for name, value in SAFE.items() if name.encode() not in own]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sent


def _without_body(send: Send) -> Send:
    """The answer to HEAD: that of GET with its length, but without a body."""

    async def sent(message: Any) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return sent


async def _body(receive: Receive, most: int) -> str:
    content = b""
    while len(content) <= most:
        message = await receive()
        content += message.get("body", b"")
        if message["type"] != "http.request" or not message.get("more_body"):
            break
    return content[:most].decode("utf-8", "replace")


async def _answer(
    send: Send, status: int, text: str, headers: list[tuple[str, str]] | None = None, kind: str = "text/plain"
) -> None:
    all_headers = [("content-type", f"{kind}; charset=utf-8"), ("cache-control", "no-store"), *(headers or [])]
    encoded = [(name.encode(), value.encode("latin-1", "replace")) for name, value in all_headers]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": text.encode()})


LIMIT_S = 20.0
CONCURRENT_ANSWERS = 8  # answers computed at the same time; others wait for their turn, within their own limit


@dataclass(frozen=True)
class TimeLimit:
    app: App
    limit_s: float = LIMIT_S
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENT_ANSWERS))
    _late: set[asyncio.Task[None]] = field(default_factory=set)  # kept, or the event loop would drop them

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/api"):
            await self.app(scope, receive, send)
            return
        answer = _Answer(send)
        task = asyncio.ensure_future(self._take_turn(scope, receive, answer))
        done, _ = await asyncio.wait({task}, timeout=self.limit_s)
        if done:
            task.result()
            return
        self._late.add(task)
        task.add_done_callback(self._forget)
        await answer.give_up(self.limit_s)

    async def _take_turn(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        async with self._turns:
            if not answer.is_over:
                await self.app(scope, receive, answer.send)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # the client was already answered


class _Answer:
    """Passes messages on until the request is given up; later ones are dropped."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False
        self.is_over = False

    async def send(self, message: Any) -> None:
        if self.is_over:
            return
        self._begun = True
        await self._send(message)

    async def give_up(self, limit_s: float) -> None:
        self.is_over = True
        if self._begun:  # the rest will not arrive: the connection is closed
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        hint = "request less: fewer runs, or a narrower filter"
        body = json_bytes({"error": f"the answer took longer than {limit_s:g} s", "hint": hint})
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), (b"retry-after", b"30")]
        await self._send({"type": "http.response.start", "status": 503, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
