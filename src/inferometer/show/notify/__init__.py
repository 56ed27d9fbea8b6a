"""Notifications of a failure, a regression or a recovery. `Event` is the content of a notification. Also the available
channels, and the secrets each needs: only from the environment, never from plans or flags."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from inferometer.documents.document import JsonObject
from inferometer.errors import PlanError
from inferometer.record.files import schema_of
from inferometer.vocabulary import attribute_at

EventKind = Literal["failure", "regression", "recovery", "test"]

MARKS: dict[EventKind, str] = {"failure": "❌", "regression": "📉", "recovery": "✅", "test": "🔔"}


@dataclass(frozen=True)
class Event:
    kind: EventKind
    subject: str  # the subject: it distinguishes two events
    title: str
    sentences: tuple[str, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)  # label to value
    run: str | None = None
    link: str | None = None  # to the CI job
    at: str = ""
    page: str | None = None  # of the run or the experiment

    @property
    def heading(self) -> str:
        return f"{MARKS[self.kind]} {self.title}"

    @property
    def id(self) -> str:
        """The same for every attempt to send it, so that a receiver can drop duplicates."""
        text = "\n".join((self.kind, self.subject, self.run or "", self.at))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def document(self) -> JsonObject:
        """As sent to the generic webhook; stable."""
        plain = ("id", "kind", "subject", "title", "run", "link", "page", "at")
        return {
            "schema": schema_of("event"),
            **{name: getattr(self, name) for name in plain},
            "sentences": list(self.sentences),
            "facts": dict(self.facts),
        }


def first_of(texts: Sequence[str], most: int) -> list[str]:
    """The non-empty texts, at most this many; the others are counted."""
    nonempty = [text for text in texts if text.strip()]
    return nonempty if len(nonempty) <= most else [*nonempty[: most - 1], f"… and {len(nonempty) - most + 1} more"]


Send = Callable[[Event, Mapping[str, str], float], None]  # event, variables, seconds


@dataclass(frozen=True)
class ChannelKind:
    about: str
    send: str  # "module:attribute", imported on use
    needs: tuple[str, ...]
    takes: tuple[str, ...] = ()


_HOME = "inferometer.show.notify"
CHANNELS: dict[str, ChannelKind] = {
    "slack": ChannelKind("Slack incoming webhook", f"{_HOME}.posting:send_slack", ("SLACK_WEBHOOK_URL",)),
    "teams": ChannelKind("Microsoft Teams workflow", f"{_HOME}.posting:send_teams", ("TEAMS_WEBHOOK_URL",)),
    "webhook": ChannelKind(
        "JSON to any URL",
        f"{_HOME}.posting:send",
        ("INFEROMETER_WEBHOOK_URL",),
        ("INFEROMETER_WEBHOOK_TOKEN",),
    ),
    "email": ChannelKind(
        "email by SMTP",
        f"{_HOME}.mail:send",
        ("INFEROMETER_SMTP_URL", "INFEROMETER_EMAIL_TO"),
        ("INFEROMETER_EMAIL_FROM",),
    ),
}


@dataclass(frozen=True)
class Channel:
    name: str
    send: Send
    variables: Mapping[str, str] = field(repr=False)  # secrets: never logged


def channels_of(requested: Sequence[str], environment: Mapping[str, str] | None = None) -> list[Channel]:
    """`["slack,email"]`, checked before anything is measured: known, and with what they need in the environment."""
    there = os.environ if environment is None else environment
    names = list(dict.fromkeys(name.strip() for text in requested for name in text.split(",") if name.strip()))
    mistakes = [mistake for name in names if (mistake := _mistake(name, there))]
    if mistakes:
        raise PlanError(mistakes, "inferometer notify lists the channels and what they need")
    return [_channel(name, there) for name in names]


def missing(name: str, there: Mapping[str, str]) -> list[str]:
    """Required variables of the channel that are not set."""
    return [variable for variable in CHANNELS[name].needs if not there.get(variable)]


def _mistake(name: str, there: Mapping[str, str]) -> str | None:
    if name not in CHANNELS:
        return f"--notify: no channel {name!r}; there are {', '.join(CHANNELS)}"
    lacking = missing(name, there)
    return f"--notify {name}: needs {' and '.join(lacking)} in the environment" if lacking else None


def _channel(name: str, there: Mapping[str, str]) -> Channel:
    kind = CHANNELS[name]
    variables = {variable: there[variable] for variable in (*kind.needs, *kind.takes) if there.get(variable)}
    return Channel(name, attribute_at(kind.send), variables)
