"""Delivery with patience that ends: every channel by itself, some attempts with growing waits, a deadline, and no
secret in any message."""

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import parse_qsl, unquote, urlsplit

from inferometer.record.sanitize import cut, one_line
from inferometer.show.notify.channels import Channel, Event
from inferometer.show.notify.posting import Undelivered
from inferometer.vocabulary import duration_text

# -- hiding ----------------------------------------------------------------------------------------------------------

_SECRET = ("_URL", "_TOKEN")  # how the names of variables with secrets end
_SHORTEST = 3  # of what is looked for; a path's parts are words more often than secrets below twice that


def hidden(text: str, variables: Mapping[str, str]) -> str:
    """The text with `…` for every secret of a channel and for each part of it, in small letters or capital ones."""
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
    first_wait_s: float = 1.0  # then twice as long each time
    timeout_s: float = 8.0  # of an attempt
    deadline_s: float = 30.0  # of all


@dataclass(frozen=True)
class Delivered:
    channel: str
    why_not: str | None = None  # None: it arrived

    @property
    def arrived(self) -> bool:
        return self.why_not is None


PATIENCE = Patience()


def deliver(
    event: Event, channels: Sequence[Channel], patience: Patience = PATIENCE, until: float | None = None
) -> list[Delivered]:
    """To all of them at once, until an instant of the monotonic clock. What hangs is left to a thread that ends with
    the process."""
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
        except Exception as error:  # a message that cannot be made is no reason to lose the run's own result
            results[channel.name] = Delivered(channel.name, f"{type(error).__name__}: internal error")
            return
        else:
            results[channel.name] = Delivered(channel.name)
            return


def _reason_text(error: Undelivered, channel: Channel) -> str:
    """Secrets go before anything is cut: half of one would not be known."""
    return cut(one_line(hidden(str(error), channel.variables)), MOST_REASON)
