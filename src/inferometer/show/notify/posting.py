"""One POST of JSON to a webhook, and an event as JSON to any address. The address is a secret: no message of ours has
more of it than the host."""

import http.client
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from inferometer import __version__
from inferometer.show.notify.event import Event

# -- posting ---------------------------------------------------------------------------------------------------------

MOST_READ = 4096  # bytes of an answer: enough for its reason
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Undelivered(Exception):
    """Why a message did not arrive, whether another attempt may help, and how long the receiver asked to wait."""

    def __init__(self, why: str, again: bool = False, after_s: float | None = None) -> None:
        super().__init__(why)
        self.again = again
        self.after_s = after_s


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET without its message, and carry the secret elsewhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def post(
    url: str, content: Mapping[str, Any], timeout_s: float, *, headers: Mapping[str, str] | None = None, plain: bool
) -> None:
    """`plain`: whether http without TLS is taken for other places than this machine."""
    host = checked_host(url, plain)
    body = json.dumps(content, ensure_ascii=False, default=str).encode()
    about = {"Content-Type": "application/json; charset=utf-8", "User-Agent": f"inferometer/{__version__}"}
    try:
        request = urllib.request.Request(url, body, {**about, **(headers or {})}, method="POST")
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout_s) as answer:
            answer.read(MOST_READ)
    except urllib.error.HTTPError as error:
        raise _refused(host, error) from None
    except urllib.error.URLError as error:
        raise Undelivered(f"{host}: {_reason(error.reason)}", again=not _is_final(error.reason)) from None
    except (OSError, http.client.HTTPException) as error:
        raise Undelivered(f"{host}: {_reason(error)}", again=True) from None
    except ValueError:
        raise Undelivered(f"{host}: the address cannot be used") from None


def checked_host(url: str, plain: bool) -> str:
    """`https://hooks.slack.com`, as it may be shown."""
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        raise Undelivered("the address is not a URL") from None
    if parts.scheme not in ("http", "https") or not host:
        raise Undelivered("the address must begin with https://")
    if parts.scheme == "http" and not plain and host not in _LOOPBACK:
        raise Undelivered(f"http://{host}: would be sent in the clear; use https://")
    return f"{parts.scheme}://{host}{port}"


def _refused(host: str, error: urllib.error.HTTPError) -> Undelivered:
    with error:
        try:
            body = error.read(MOST_READ).decode(errors="replace").strip()
        except (OSError, http.client.HTTPException):
            body = ""
    why = f"{host}: answered {error.code}" + (f", {body}" if body else "")
    return Undelivered(
        why, again=error.code == 429 or error.code >= 500, after_s=_seconds(error.headers.get("Retry-After"))
    )


def _seconds(value: str | None) -> float | None:
    """`Retry-After`: seconds, or a date."""
    if not value:
        return None
    if re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _is_final(reason: object) -> bool:
    return isinstance(reason, ssl.SSLCertVerificationError)


def _reason(error: object) -> str:
    if isinstance(error, TimeoutError):
        return "did not answer in time"
    return str(getattr(error, "strerror", None) or error or type(error).__name__).lower()


# -- webhook ---------------------------------------------------------------------------------------------------------


def send(event: Event, variables: Mapping[str, str], timeout_s: float) -> None:
    """The event's id lets a receiver drop what it got twice, after an attempt that it answered too late. A token
    goes encrypted or not at all."""
    token = variables.get("INFEROMETER_WEBHOOK_TOKEN", "").strip()
    headers = {"Idempotency-Key": event.id} | ({"Authorization": f"Bearer {token}"} if token else {})
    post(variables["INFEROMETER_WEBHOOK_URL"], event.document(), timeout_s, headers=headers, plain=not token)
