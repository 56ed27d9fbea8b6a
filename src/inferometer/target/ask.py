"""Requests to a server outside the load: a GET or POST with a deadline, emptying the prefix cache between runs, and
vLLM's sleep and wake-up, timed by the client."""

import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import orjson

from inferometer.documents.document import JsonValue
from inferometer.errors import TargetError
from inferometer.plan.model import Target
from inferometer.plan.secrets import key_of, redacted_url, redactor_of, resolve_headers
from inferometer.record.summary import MeasuredSleep
from inferometer.vocabulary import duration_text
from inferometer.wire.api import api_of
from inferometer.wire.origin import Origin, TooLarge, trusted_origin, within

if TYPE_CHECKING:
    from inferometer.target.launch import Launch

# -- ask -------------------------------------------------------------------------------------------------------------

ANSWER_S = 30.0  # a list of models takes milliseconds; a starting server may take some seconds


LARGEST_ANSWER = 8 << 20


RECONNECT_S = 5.0  # to open a connection after the load, if the server seems to be gone


START_HINT = "start a server, or let Inferometer start one: inferometer run --server simulator"


@dataclass(frozen=True, slots=True)
class ServerReply:
    """A server's response, with our secrets removed wherever it echoes them; header names are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> JsonValue:
        """The body as JSON; None if it is not JSON."""
        try:
            document: JsonValue = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None
        return document


class TargetClient:
    """Sends requests to one of a target's URLs, with the target's TLS settings, proxy, headers and key."""

    def __init__(self, target: Target, url: str, answer_s: float = ANSWER_S) -> None:
        self.where = redacted_url(url).rstrip("/")
        self._origin = trusted_origin(url, target.tls.trust, target.proxy)
        self._headers = request_headers(target)
        self.has_key = bool({"authorization", "x-api-key"} & {name.lower() for name in self._headers})
        self._connect_s = target.timeout.connect
        self._answer_s = min(answer_s, target.timeout.request or answer_s)
        self._redactor = redactor_of(target=target)

    def get(self, path: str) -> ServerReply:
        """The response, whatever its status; raises a `TargetError` if there is none."""
        return self._ask("GET", path)

    def post(self, path: str, body: bytes = b"") -> ServerReply:
        """The same for a POST, with an optional JSON body."""
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: bytes = b"") -> ServerReply:
        """Runs in a thread, because a socket's timeout applies to each read: a name server, a proxy or a server that is
        slow byte by byte would never reach it."""
        connection = self._origin.connection(self._connect_s)
        result: list[ServerReply | BaseException] = []
        asking = threading.Thread(target=self._ask_into, args=(result, connection, method, path, body), daemon=True)
        asking.start()
        asking.join(self._connect_s + self._answer_s)
        if not result:
            _shut(connection)
            raise self._too_slow(self._connect_s + self._answer_s)
        if isinstance(result[0], BaseException):
            raise result[0] from None
        return result[0]

    def _ask_into(
        self,
        result: list[ServerReply | BaseException],
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes,
    ) -> None:
        try:
            with self._translated_errors():
                result.append(self._exchange(connection, method, path, body))
        except BaseException as error:
            result.append(error)
        finally:
            connection.close()

    def connect(self) -> None:
        """Check that a connection is accepted; raises a `TargetError` if not."""
        with self._translated_errors():
            connection = self._origin.connection(min(self._connect_s, RECONNECT_S))
            try:
                self._connect(connection)
            finally:
                connection.close()

    def hide(self, text: str) -> str:
        """The text on one line, without any secret of the plan: servers often echo a wrong key."""
        return self._redactor.message(text)

    def _exchange(self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes) -> ServerReply:
        self._connect(connection)
        connection.sock.settimeout(self._answer_s)
        headers = self._headers | self._origin.proxy_headers
        if body:
            headers |= {"Content-Type": "application/json"}
        connection.request(method, self._origin.request_target(path), body or None, headers)
        with self._answer_awaited(), connection.getresponse() as response:
            headers = {name.lower(): self._redactor.hide(value) for name, value in response.getheaders()}
            return ServerReply(response.status, headers, self._redactor.hide_bytes(self._body(response)))

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        try:
            body = response.read(LARGEST_ANSWER + 1)
        except ValueError as error:  # http.client accepts a chunk size below 0
            raise http.client.HTTPException(str(error)) from None
        if len(body) > LARGEST_ANSWER:
            raise TargetError(
                f"{self.where} answered with more than {LARGEST_ANSWER >> 20} MiB instead of a few lines of JSON",
                "is it an LLM server? Check host, port and path",
            )
        if response.length:  # bytes not yet received
            raise http.client.IncompleteRead(body, response.length)
        return body

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        """Connects, including the TLS handshake. A socket that exists after a timeout was accepted, but not
        answered."""
        try:
            connection.connect()
        except TimeoutError:
            if connection.sock is None or self._origin.tls is None:
                raise
            if self._origin.proxy is not None:
                what, hint = "got no TLS answer through the proxy", "does the proxy reach the server? (target.proxy)"
            else:
                plain = self.where.replace("https://", "http://", 1)
                what, hint = (
                    "accepted the connection, but sent no TLS answer",
                    f"is it a plain HTTP server? write {plain}",
                )
            raise TargetError(f"{self.where} {what} within {duration_text(self._connect_s)}", hint) from None

    @contextmanager
    def _answer_awaited(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise self._too_slow(self._answer_s) from None

    def _too_slow(self, limit_s: float) -> TargetError:
        return TargetError(
            f"{self.where} accepted the connection but did not answer within {duration_text(limit_s)}",
            "is the server still starting, or is something else behind this address?",
        )

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except ssl.SSLError as error:
            raise self._tls_failure(error) from None
        except http.client.HTTPException as error:
            raise self._no_http(error) from None
        except OSError as error:
            raise self._no_connection(error) from None

    def _no_connection(self, error: OSError) -> TargetError:
        peer = self._origin.proxy or self._origin
        where = f"the proxy {redacted_url(peer.url)}" if self._origin.proxy else self.where
        match error:
            case socket.gaierror():
                return TargetError(
                    f"{where}: the host name {peer.host!r} is not known",
                    "check the spelling, or the name server of this machine",
                )
            case ConnectionRefusedError():
                hint = START_HINT if self._origin.proxy is None else "is the proxy running there? (target.proxy)"
                return TargetError(f"{where} refused the connection", hint)
            case TimeoutError():
                return TargetError(
                    f"{where} did not accept the connection within {duration_text(self._connect_s)}",
                    "check the address and firewalls (target.timeout.connect)",
                )
            case ConnectionResetError() | BrokenPipeError():
                return self._closed()
        return TargetError(f"{where}: {self.hide(error.strerror or str(error)).lower()}", "is the address right?")

    def _no_http(self, error: http.client.HTTPException) -> TargetError:
        if isinstance(error, http.client.RemoteDisconnected):
            return self._closed()
        if isinstance(error, http.client.BadStatusLine):
            if str(error).strip().startswith("\x15\x03"):
                return self._closed()
            return TargetError(
                f"{self.where} does not speak HTTP, it answered {self.hide(str(error))[:60]!r}",
                "is the port that of the server's API?",
            )
        if isinstance(error, http.client.IncompleteRead):
            return TargetError(
                f"{self.where} closed the connection in the middle of its answer", "look at the server's log"
            )
        return TargetError(
            f"{self.where} sent an answer that cannot be read: {self.hide(str(error))[:100]}",
            "is the port that of the server's API?",
        )

    def _closed(self) -> TargetError:
        """The error for a connection closed without a response: often an http:// address of a server that uses TLS, so
        we test for that."""
        if self._origin.tls is None and self._origin.proxy is None and _speaks_tls(self._origin, self._connect_s):
            return TargetError(
                f"{self.where} uses TLS, but the URL has http",
                f"write {self.where.replace('http://', 'https://', 1)}",
            )
        return TargetError(
            f"{self.where} closed the connection without an answer", "is the port that of the server's API?"
        )

    def _tls_failure(self, error: ssl.SSLError) -> TargetError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return TargetError(
                f"{self.where}: its certificate is not trusted: {error.verify_message}",
                "set target.tls.ca, or disable verification: target.tls.verify=false",
            )
        if error.reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNEXPECTED_MESSAGE"}:
            return TargetError(
                f"{self.where} does not use TLS, but the URL has https",
                f"write {self.where.replace('https://', 'http://', 1)}",
            )
        reason = (error.reason or str(error)).lower().replace("_", " ")
        return TargetError(f"{self.where}: no TLS connection: {reason}", "see target.tls: ca, cert and key, verify")


def request_headers(target: Target) -> dict[str, str]:
    """The headers of every request before the load: the key as the API expects it, and the plan's headers."""
    headers = {"Accept": "application/json", "User-Agent": "inferometer", "Connection": "close"}
    headers |= api_of(target.api).headers
    own = resolve_headers(target.headers, os.environ)
    if key := key_of(target, os.environ):
        names = {name.lower() for name in own}
        credentials = api_of(target.api).credentials(key)
        headers |= {name: value for name, value in credentials.items() if name.lower() not in names}
    return headers | own


def _shut(connection: http.client.HTTPConnection) -> None:
    """Unblock a thread that waits on the connection. A TLS socket's own method must not be called from another
    thread."""
    if connection.sock is not None:
        with suppress(OSError):
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


def _speaks_tls(origin: Origin, timeout_s: float) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((origin.host, origin.port), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=origin.host),
        ):
            return True
    except OSError as error:
        return "CERTIFICATE_REQUIRED" in str(error)


# -- reset -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reset:
    """Result of a cache reset: `done` is None if the server offers no way to do it."""

    done: bool | None
    note: str


def reset_prefix_cache(launch: "Launch", target: Target) -> Reset:
    """Try each path that may reset the cache, until one succeeds."""
    if not launch.resets:
        return Reset(
            None, f"the prefix cache was not reset: {launch.reset_hint or 'the engine offers no such request'}"
        )
    asker = TargetClient(target, launch.url)
    below = urlsplit(launch.url).path.rstrip("/")
    refusals = []
    for path in launch.resets:
        refusal = _ask(asker, below + path)
        if refusal is None:
            return Reset(True, f"the prefix cache was reset (POST {path})")
        refusals.append(f"POST {path} {refusal}")
    hint = f"; {launch.reset_hint}" if launch.reset_hint else ""
    return Reset(False, f"the prefix cache was not reset: {', '.join(refusals)}{hint}")


@contextmanager
def profiling(target: Target, urls: Sequence[str], notify: Callable[[str], None]) -> Iterator[None]:
    """Runs the profiler of every server around the load, with vLLM's and SGLang's requests for it."""
    _profile(target, urls, "/start_profile", notify)
    try:
        yield
    finally:
        _profile(target, urls, "/stop_profile", notify)


def _profile(target: Target, urls: Sequence[str], path: str, notify: Callable[[str], None]) -> None:
    for url in urls:
        refusal = _ask(TargetClient(target, url), urlsplit(url).path.rstrip("/").removesuffix("/v1") + path)
        if refusal is not None:
            notify(f"POST {path} {refusal}: start the server with its profiler enabled")


def _ask(asker: TargetClient, path: str) -> str | None:
    """None on success, else the response."""
    try:
        status = asker.post(path).status
    except TargetError as error:
        return error.message
    return None if 200 <= status < 300 else f"answered {status}"


PATIENCE_S = 15 * 60.0


POLL_S = 0.1


_HINT = (
    "sleep needs --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1: inferometer startup --server vllm --sleep sets both"
)


def sleep_and_wake(target: Target, url: str, level: int = 1, patience_s: float = PATIENCE_S) -> MeasuredSleep:
    """Times as the client sees them; the server's log has its own. Raises a `TargetError` if the server cannot sleep,
    or does not wake up."""
    asker = TargetClient(target, url)
    began = time.monotonic()
    _post(target, url, f"/sleep?level={level}", patience_s)
    _await(asker, True, began + patience_s)
    asleep = time.monotonic()
    _post(target, url, "/wake_up", patience_s)
    _await(asker, False, asleep + patience_s)
    return MeasuredSleep(level=level, sleep_s=asleep - began, wake_s=time.monotonic() - asleep)


def _post(target: Target, url: str, path: str, patience_s: float) -> None:
    """Waits longer than a `TargetClient`: the response arrives when the operation is done, for a large model late."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=patience_s)
    within(connection, time.monotonic() + patience_s, LARGEST_ANSWER)
    try:
        connection.request("POST", where.path.rstrip("/") + path, headers=request_headers(target))
        status = connection.getresponse().status
    except (OSError, TooLarge, http.client.HTTPException) as error:
        raise TargetError(f"{url} did not answer POST {path}: {error}", "look at the server's log") from None
    finally:
        connection.close()
    if status >= 400:
        raise TargetError(f"{url} answered POST {path} with status {status}", _HINT)


def _await(asker: TargetClient, sleeping: bool, until: float) -> None:
    while (state := _is_sleeping(asker)) is not sleeping:
        if time.monotonic() > until:
            what = "asleep" if sleeping else "awake"
            raise TargetError(
                f"{asker.where} is not {what} yet, it reports is_sleeping={state}", "look at the server's log"
            )
        time.sleep(POLL_S)


def _is_sleeping(asker: TargetClient) -> bool | None:
    reply = asker.get("/is_sleeping")
    if reply.status >= 400:
        raise TargetError(f"{asker.where} answered GET /is_sleeping with status {reply.status}", _HINT)
    document = reply.json()
    state = document.get("is_sleeping") if isinstance(document, dict) else None
    return state if isinstance(state, bool) else None
