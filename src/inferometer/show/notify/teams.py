"""An event as an adaptive card, which Teams' workflow webhooks take. Text runs are shown as they are: no Markdown."""

from collections.abc import Mapping
from typing import Any

from inferometer.show.notify.event import Event, cut
from inferometer.show.notify.posting import post

MOST_LINE = 1000
MOST_LINES = 20  # a message may have 28 KB
_COLOURS = {"failure": "Attention", "regression": "Attention", "recovery": "Good", "test": "Accent"}


def send(event: Event, variables: Mapping[str, str], timeout_s: float) -> None:
    post(variables["TEAMS_WEBHOOK_URL"], message(event), timeout_s, plain=False)


def message(event: Event) -> dict[str, Any]:
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [_heading(event), *_lines(event)],
        **({"actions": [{"type": "Action.OpenUrl", "title": "CI job", "url": event.link}]} if event.link else {}),
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "contentUrl": None, "content": card}]}


def _heading(event: Event) -> dict[str, Any]:
    look = {"size": "Large", "weight": "Bolder", "color": _COLOURS[event.kind]}
    return _block({"type": "TextRun", "text": cut(event.heading, 200), **look})


def _lines(event: Event) -> list[dict[str, Any]]:
    shown = event.sentences[:MOST_LINES]
    lines = [_block(_run(text)) for text in shown]
    if left := len(event.sentences) - len(shown):
        lines.append(_block(_run(f"… and {left} more")))
    facts = event.facts | ({"run": event.run} if event.run else {})
    return lines + [_block(_run(f"{label}: ", bold=True), _run(value)) for label, value in list(facts.items())[:10]]


def _block(*runs: dict[str, Any]) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": list(runs)}


def _run(text: str, bold: bool = False) -> dict[str, Any]:
    return {"type": "TextRun", "text": cut(text, MOST_LINE), **({"weight": "Bolder"} if bold else {})}
