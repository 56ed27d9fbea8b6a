"""The settings of a router, as plain values."""

import ssl
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.errors import PlanError
from inferometer.plan.server import Router
from inferometer.router.policy import Query, checked_settings, wrong_setting
from inferometer.vocabulary import http_url

# -- what a router reads of a request ----------------------------------------------------------------------------------

# What a router reads from a request: the text of its prompt in any API's body, and its session.

SESSION_HEADERS = ("x-session-id", "x-prefix-id", "x-user-id")


class _Body(msgspec.Struct):
    """The prompt fields of the APIs; everything else in a body is skipped."""

    prompt: Any = None
    messages: Any = None
    input: Any = None
    inputs: Any = None
    text: Any = None
    system: Any = None
    instructions: Any = None
    model: Any = None


_decoder = msgspec.json.Decoder(_Body)


def query_of(body: bytes, headers: Mapping[str, str], session_headers: Sequence[str], number: int) -> Query:
    """The query of a request. A body that cannot be parsed has no text: the replica refuses it."""
    session = next((headers[name] for name in session_headers if name in headers), None)
    try:
        read = _decoder.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return Query("", session, len(body) // 4, id=number)
    text, tokens = prompt_of(read)
    return Query(text, session, tokens, read.model if isinstance(read.model, str) else "", id=number)


def prompt_of(body: _Body) -> tuple[str, int | None]:
    """The concatenated text without roles, as in Ray and SGLang; and the number of tokens if token ids are given."""
    for prompt in (body.prompt, body.messages, body.input, body.inputs, body.text):
        if prompt is None:
            continue
        if _is_ids(prompt):
            return "".join(map(_character, prompt)), len(prompt)
        return text_of(body.system) + text_of(body.instructions) + text_of(prompt), None
    return "", None


def text_of(value: Any) -> str:
    """Texts, lists of texts, messages and their text parts; other parts, such as images, have no text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(_character, value)) if _is_ids(value) else "".join(map(text_of, value))
    if isinstance(value, dict):
        return text_of(value.get("text") if isinstance(value.get("text"), str) else value.get("content"))
    return ""


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], int)


def _character(token: Any) -> str:
    """A token id as one character, so that common prefixes of ids are common prefixes of texts."""
    return chr(token) if isinstance(token, int) and 0 <= token < 0xD800 else chr(0x10000 + hash(token) % 0xFFFFF)


# -- settings ----------------------------------------------------------------------------------------------------------

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Count = Annotated[int, msgspec.Meta(ge=1)]


class UpstreamAddress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A replica, and its name in decisions and metrics."""

    name: str
    url: str


class RouterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where requests are sent, and how. Times are in seconds."""

    upstreams: list[UpstreamAddress]
    policy: str = "power_of_two"
    settings: dict[str, JsonValue] = {}  # of the policy
    seed: int = 0
    max_in_flight: _Count | None = None  # requests per replica; more wait in the router
    queue_limit: Annotated[int, msgspec.Meta(ge=0)] = 1024  # requests that may wait; more are refused with 503
    retries: Annotated[int, msgspec.Meta(ge=0)] = 2  # further replicas to try before the first byte
    retry_statuses: tuple[int, ...] = (502, 503, 504)  # of a replica, for which another one is tried
    health_path: str = "/health"
    health_interval_s: _Positive = 1.0
    health_timeout_s: _Positive = 5.0
    connect_timeout_s: _Positive = 5.0
    drain_s: _Positive = 30.0  # for requests in flight after the first signal
    session_headers: tuple[str, ...] = SESSION_HEADERS
    most_body: _Count = 64 << 20  # bytes of a request
    tls_verify: bool = True  # certificates of replicas behind https://
    tls_ca: str | None = None  # a file with trusted authorities, in place of the system's

    def tls_context(self) -> ssl.SSLContext | None:
        """For replicas with https://, if there are any."""
        if not any(upstream.url.startswith("https:") for upstream in self.upstreams):
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca)
        except OSError as error:
            raise PlanError(f"tls_ca {self.tls_ca}: not a file with certificates ({error.strerror or error})") from None
        if not self.tls_verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


def router_settings(fields: JsonObject) -> RouterSettings:
    """Checks the settings; a `PlanError` lists all errors, including those of the policy's own settings."""
    try:
        settings = msgspec.convert(dict(fields), RouterSettings)
    except msgspec.ValidationError as error:
        raise PlanError(wrong_setting("the router", RouterSettings, fields, error)) from None
    if not settings.upstreams:
        raise PlanError("router: no upstream is given", "name at least one: --upstream http://localhost:8001")
    names = [upstream.name for upstream in settings.upstreams]
    for name in names:
        if names.count(name) > 1:
            raise PlanError(f"upstream {name} is given twice")
    for upstream in settings.upstreams:
        _check_url(upstream.url)
    _refuse_precise(settings.policy, checked_settings(settings.policy, settings.settings))
    settings.tls_context()
    return settings


def _refuse_precise(policy: str, settings: msgspec.Struct) -> None:
    """Replicas do not report the content of their caches over HTTP: the policy would silently work without."""
    if getattr(settings, "precise", False):
        raise PlanError(
            f"precise of {policy} needs to know what every cache holds, which replicas do not report to this router",
            "inferometer simulate knows it of a fleet of simulators; without precise a match is what was sent there",
        )


def check_policy(router: Router) -> None:
    """Checks that our router has the policy of a plan, with its settings; a `PlanError` names the mistake."""
    try:
        checked_settings(router.fleet_policy, router.settings)
    except PlanError as error:
        error.name("server.router")
        raise


def _check_url(url: str) -> None:
    """Only http(s)://host:port, and a path if the replica has one; other parts of a URL would not reach the replica."""
    if "@" in url:
        raise PlanError(
            "upstream: a user and a password in a URL are not sent to the replica",
            "requests are passed on with their headers, Authorization too",
        )
    try:
        parts = urlsplit(http_url(url))
    except ValueError as error:
        raise PlanError(f"upstream {error}, got {url}") from None
    if parts.query or parts.fragment:
        raise PlanError(f"upstream {url} must end with its path, without ? and #")
