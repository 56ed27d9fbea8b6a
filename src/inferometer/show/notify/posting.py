"""One POST of JSON to a webhook: an event for any address, for Slack in Block Kit, for Teams as an adaptive card."""

import http.client
import json
import re
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from html import escape
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from inferometer import __version__
from inferometer.record.sanitize import cut, one_line
from inferometer.show.notify import Channel, Event, first_of
from inferometer.vocabulary import duration_text

# -- posting ---------------------------------------------------------------------------------------------------------

MOST_READ = 4096  # bytes of an answer: enough for an error message
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Undelivered(Exception):
    """Why a message was not delivered, whether another attempt may help, and the receiver's Retry-After."""

    def __init__(self, why: str, again: bool = False, after_s: float | None = None) -> None:
        super().__init__(why)
        self.again = again
        self.after_s = after_s


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET without its message, and send the secret elsewhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def post(
    url: str, content: Mapping[str, Any], timeout_s: float, *, headers: Mapping[str, str] | None = None, plain: bool
) -> None:
    """`plain`: whether http without TLS is allowed for hosts other than this machine."""
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
    """`https://hooks.slack.com`, in a form without secrets."""
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
    """The event's id lets a receiver drop a duplicate, after an attempt that it answered too late. A token is only sent
    encrypted."""
    token = variables.get("INFEROMETER_WEBHOOK_TOKEN", "").strip()
    headers = {"Idempotency-Key": event.id} | ({"Authorization": f"Bearer {token}"} if token else {})
    post(variables["INFEROMETER_WEBHOOK_URL"], event.document(), timeout_s, headers=headers, plain=not token)


MOST_BLOCKS = 50  # of a message
MOST_TEXTS = 20  # maximum number of them
MOST_HEADER = 150
MOST_SECTION = 3000
MOST_SENTENCE = 1500
MOST_FIELDS = 10  # of a section, and in total
MOST_FIELD = 2000
MOST_VALUE = 400
SLACK_LINK = 1000
MOST_TEXT = 3000  # of the fallback: Slack cuts at 40,000, a notification shows one line

SlackBlock = dict[str, Any]


def send_slack(event: Event, variables: Mapping[str, str], timeout_s: float) -> None:
    post(variables["SLACK_WEBHOOK_URL"], slack_message(event), timeout_s, plain=False)


def slack_message(event: Event) -> dict[str, Any]:
    """`text` is for notifications and screen readers."""
    fallback = escaped(" ".join((event.heading, *event.sentences)), MOST_TEXT)
    return {"text": fallback, "blocks": [_header(event), *_body(event)]}


def _header(event: Event) -> SlackBlock:
    return {"type": "header", "text": {"type": "plain_text", "text": cut(event.heading, MOST_HEADER), "emoji": True}}


def _body(event: Event) -> list[SlackBlock]:
    texts = [_mrkdwn(escaped(cut(text, MOST_SENTENCE), MOST_SECTION)) for text in first_of(event.sentences, MOST_TEXTS)]
    facts = [_field(label, value) for label, value in list(event.facts.items())[:MOST_FIELDS]]
    fields: list[SlackBlock] = [{"type": "section", "fields": facts}] if facts else []
    return [*({"type": "section", "text": text} for text in texts), *fields, *_end(event)]


def _end(event: Event) -> list[SlackBlock]:
    parts = [f"run `{escaped(event.run, 200)}`"] if event.run else []
    parts += [f"<{_address(event.page)}|page>"] if event.page and len(event.page) < SLACK_LINK else []
    parts += [f"<{_address(event.link)}|CI job>"] if event.link and len(event.link) < SLACK_LINK else []
    return [{"type": "context", "elements": [_mrkdwn(" · ".join(parts))]}] if parts else []


def _field(label: str, value: str) -> SlackBlock:
    return _mrkdwn(f"*{escaped(label, 200)}*\n{escaped(cut(value, MOST_VALUE), MOST_FIELD - 300)}")


def _mrkdwn(text: str) -> SlackBlock:
    """`verbatim`: an address, a channel or an @everyone in a name neither links nor notifies anyone."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def escaped(text: str, most: int) -> str:
    """Escapes Slack's three special characters, which also prevents `<!channel>` from notifying everyone; within the
    limit after escaping, and never cut inside an entity."""
    text = cut(text, most)
    while len(safe := text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")) > most:
        text = cut(text, len(text) - max(1, (len(safe) - most) // 5))
    return safe


def _address(link: str) -> str:
    return link.replace("|", "%7C").replace(">", "%3E").replace("<", "%3C")


MOST_BYTES = 24_000  # of the 28 KB allowed per message
MOST_LINES, MOST_FACTS = 20, 10
LINES = (1000, 500, 250, 120, 60)  # characters per line, the first value with which everything fits; up to 4 bytes each
TEAMS_LINK = 2000
_COLOURS = {"failure": "Attention", "regression": "Attention", "recovery": "Good", "test": "Accent"}


def send_teams(event: Event, variables: Mapping[str, str], timeout_s: float) -> None:
    post(variables["TEAMS_WEBHOOK_URL"], teams_message(event), timeout_s, plain=False)


def teams_message(event: Event) -> dict[str, Any]:
    for line in LINES:
        made = _message(event, line)
        if len(json.dumps(made, ensure_ascii=False).encode("utf-16-le")) <= MOST_BYTES:
            break
    return made


def _message(event: Event, line: int) -> dict[str, Any]:
    links = {"page": event.page, "CI job": event.link}
    actions = [
        {"type": "Action.OpenUrl", "title": title, "url": url}
        for title, url in links.items()
        if url and len(url) < TEAMS_LINK
    ]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [_heading(event), *_lines(event, line)],
        **({"actions": actions} if actions else {}),
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "contentUrl": None, "content": card}]}


def _heading(event: Event) -> dict[str, Any]:
    look = {"size": "Large", "weight": "Bolder", "color": _COLOURS[event.kind]}
    return _block({"type": "TextRun", "text": cut(event.heading, 200), **look})


def _lines(event: Event, line: int) -> list[dict[str, Any]]:
    facts = event.facts | ({"run": event.run} if event.run else {})
    known = [(cut(label, line), cut(value, line)) for label, value in list(facts.items())[:MOST_FACTS]]
    return [
        *(_block(_run(cut(text, line))) for text in first_of(event.sentences, MOST_LINES)),
        *(_block(_run(f"{label}: ", bold=True), _run(value)) for label, value in known),
    ]


def _block(*runs: dict[str, Any]) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": list(runs)}


def _run(text: str, bold: bool = False) -> dict[str, Any]:
    return {"type": "TextRun", "text": text, **({"weight": "Bolder"} if bold else {})}


# Delivery with bounded patience: every channel separately, some attempts with growing waits, a deadline, and no secret
# in any message.

# -- hiding ----------------------------------------------------------------------------------------------------------

_SECRET = ("_URL", "_TOKEN")  # endings of variable names with secrets
_SHORTEST = 3  # of a searched text; below twice that, parts of a path are more often words than secrets


def hidden(text: str, variables: Mapping[str, str]) -> str:
    """The text with `…` for every secret of a channel and for each part of it, in lower or upper case."""
    secrets = {form for name, value in variables.items() if name.endswith(_SECRET) for form in _forms(value.strip())}
    if not secrets:
        return text
    pattern = "|".join(map(re.escape, sorted(secrets, key=len, reverse=True)))
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


# -- delivery --------------------------------------------------------------------------------------------------------

MOST_REASON = 240  # characters


@dataclass(frozen=True)
class Patience:
    attempts: int = 4
    first_wait_s: float = 1.0  # doubled for each further attempt
    timeout_s: float = 8.0  # of an attempt
    deadline_s: float = 30.0  # of all attempts together


@dataclass(frozen=True)
class Delivered:
    channel: str
    why_not: str | None = None  # None: it was delivered

    @property
    def arrived(self) -> bool:
        return self.why_not is None


PATIENCE = Patience()


def deliver(
    event: Event, channels: Sequence[Channel], patience: Patience = PATIENCE, until: float | None = None
) -> list[Delivered]:
    """To all channels at once, until an instant of the monotonic clock. Hanging attempts are left to a thread that ends
    with the process."""
    now = time.monotonic()
    end = now + patience.deadline_s if until is None else min(until, now + patience.deadline_s)
    if end <= now:
        return [Delivered(channel.name, "no time left to send it; the next run sends it") for channel in channels]
    results: dict[str, Delivered] = {}
    threads = [
        threading.Thread(target=_deliver_one, args=(event, channel, patience, end, results), daemon=True)
        for channel in channels
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = f"no answer within {duration_text(round(end - now, 1))}"
    return [results.get(channel.name) or Delivered(channel.name, late) for channel in channels]


def _deliver_one(
    event: Event, channel: Channel, patience: Patience, until: float, results: dict[str, Delivered]
) -> None:
    wait_s = patience.first_wait_s
    for attempt in range(1, patience.attempts + 1):
        left_s = until - time.monotonic()
        try:
            channel.send(event, channel.variables, max(0.1, min(patience.timeout_s, left_s)))
        except Undelivered as error:
            results[channel.name] = Delivered(channel.name, _reason_text(error, channel))
            pause_s = max(wait_s, error.after_s or 0.0)
            if not error.again or attempt == patience.attempts or time.monotonic() + pause_s >= until:
                return
            time.sleep(pause_s)
            wait_s *= 2
        except Exception as error:  # a message that cannot be built must not lose the run's own result
            results[channel.name] = Delivered(channel.name, f"{type(error).__name__}: internal error")
            return
        else:
            results[channel.name] = Delivered(channel.name)
            return


def _reason_text(error: Undelivered, channel: Channel) -> str:
    """Secrets are removed before the text is cut: half of a secret would not be recognised."""
    return cut(one_line(hidden(str(error), channel.variables)), MOST_REASON)
