"""An event as a Slack message in Block Kit, within Slack's limits."""

from collections.abc import Mapping
from typing import Any

from inferometer.show.notify.event import Event, cut
from inferometer.show.notify.posting import post

MOST_BLOCKS = 50
MOST_HEADER = 150
MOST_SECTION = 3000
MOST_FIELDS = 10
MOST_FIELD = 2000
MOST_TEXT = 3000  # of the fallback: Slack cuts at 40,000, a notification shows a line

Block = dict[str, Any]


def send(event: Event, variables: Mapping[str, str], timeout_s: float) -> None:
    post(variables["SLACK_WEBHOOK_URL"], message(event), timeout_s, plain=False)


def message(event: Event) -> dict[str, Any]:
    """`text` is what a notification and a screen reader say."""
    fallback = escaped(" ".join((event.heading, *event.sentences)), MOST_TEXT)
    return {"text": fallback, "blocks": [_header(event), *_body(event)][:MOST_BLOCKS]}


def _header(event: Event) -> Block:
    return {"type": "header", "text": {"type": "plain_text", "text": cut(event.heading, MOST_HEADER), "emoji": True}}


def _body(event: Event) -> list[Block]:
    facts = [_field(label, value) for label, value in event.facts.items()]
    sections = [{"type": "section", "fields": facts[at : at + MOST_FIELDS]} for at in range(0, len(facts), MOST_FIELDS)]
    end = _end(event)
    texts = _texts(event, room=MOST_BLOCKS - 1 - len(sections) - len(end))
    return [*texts, *sections, *end]


def _texts(event: Event, room: int) -> list[Block]:
    """A section each; what has no room is counted."""
    shown, left = event.sentences[:room], len(event.sentences) - room
    if left > 0:
        shown = (*event.sentences[: room - 1], f"… and {left + 1} more")
    return [{"type": "section", "text": _mrkdwn(escaped(text, MOST_SECTION))} for text in shown if text.strip()]


def _end(event: Event) -> list[Block]:
    said = [f"run `{escaped(event.run, 200)}`"] if event.run else []
    said += [f"<{_address(event.link)}|CI job>"] if event.link else []
    return [{"type": "context", "elements": [_mrkdwn(" · ".join(said))]}] if said else []


def _field(label: str, value: str) -> Block:
    return _mrkdwn(f"*{escaped(label, 200)}*\n{escaped(value, MOST_FIELD - 300)}")


def _mrkdwn(text: str) -> Block:
    return {"type": "mrkdwn", "text": text}


def escaped(text: str, most: int) -> str:
    """Slack's three characters, which also keeps `<!channel>` from waking everybody; within the limit once written
    out, and never cut in the middle of an entity."""
    text = cut(text, most)
    while len(said := text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")) > most:
        text = cut(text, len(text) - max(1, (len(said) - most) // 5))
    return said


def _address(link: str) -> str:
    return link.replace("|", "%7C").replace(">", "%3E").replace("<", "%3C")
