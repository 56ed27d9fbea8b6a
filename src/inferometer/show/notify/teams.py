"""An event as an adaptive card, which Teams' workflow webhooks take. Text runs are shown as they are: no Markdown."""

import json
from collections.abc import Mapping
from typing import Any

from inferometer.record.sanitize import cut
from inferometer.show.notify.event import Event, first_of
from inferometer.show.notify.posting import post

MOST_BYTES = 24_000  # of the 28 KB that a message may have
MOST_LINES, MOST_FACTS = 20, 10
LINES = (1000, 500, 250, 120, 60)  # characters, the first with which all has room; 4 bytes each in some scripts
MOST_LINK = 2000
_COLOURS = {"failure": "Attention", "regression": "Attention", "recovery": "Good", "test": "Accent"}


def send(event: Event, variables: Mapping[str, str], timeout_s: float) -> None:
    post(variables["TEAMS_WEBHOOK_URL"], message(event), timeout_s, plain=False)


def message(event: Event) -> dict[str, Any]:
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
        if url and len(url) < MOST_LINK
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
