"""An event as a Slack message in Block Kit, within Slack's limits."""

from collections.abc import Mapping
from typing import Any

from inferometer.record.sanitize import cut
from inferometer.show.notify.event import Event, first_of
from inferometer.show.notify.posting import post

MOST_BLOCKS = 50  # of a message
MOST_TEXTS = 20  # of them: who reads more?
MOST_HEADER = 150
MOST_SECTION = 3000
MOST_SENTENCE = 1500
MOST_FIELDS = 10  # of a section, and all of ours
MOST_FIELD = 2000
MOST_VALUE = 400
MOST_LINK = 1000
MOST_TEXT = 3000  # of the fallback: Slack cuts at 40,000, a notification shows a line

Block = dict[str, Any]


def send(event: Event, variables: Mapping[str, str], timeout_s: float) -> None:
    post(variables["SLACK_WEBHOOK_URL"], message(event), timeout_s, plain=False)


def message(event: Event) -> dict[str, Any]:
    """`text` is what a notification and a screen reader say."""
    fallback = escaped(" ".join((event.heading, *event.sentences)), MOST_TEXT)
    return {"text": fallback, "blocks": [_header(event), *_body(event)]}


def _header(event: Event) -> Block:
    return {"type": "header", "text": {"type": "plain_text", "text": cut(event.heading, MOST_HEADER), "emoji": True}}


def _body(event: Event) -> list[Block]:
    texts = [_mrkdwn(escaped(cut(text, MOST_SENTENCE), MOST_SECTION)) for text in first_of(event.sentences, MOST_TEXTS)]
    facts = [_field(label, value) for label, value in list(event.facts.items())[:MOST_FIELDS]]
    fields: list[Block] = [{"type": "section", "fields": facts}] if facts else []
    return [*({"type": "section", "text": text} for text in texts), *fields, *_end(event)]


def _end(event: Event) -> list[Block]:
    parts = [f"run `{escaped(event.run, 200)}`"] if event.run else []
    parts += [f"<{_address(event.page)}|page>"] if event.page and len(event.page) < MOST_LINK else []
    parts += [f"<{_address(event.link)}|CI job>"] if event.link and len(event.link) < MOST_LINK else []
    return [{"type": "context", "elements": [_mrkdwn(" · ".join(parts))]}] if parts else []


def _field(label: str, value: str) -> Block:
    return _mrkdwn(f"*{escaped(label, 200)}*\n{escaped(cut(value, MOST_VALUE), MOST_FIELD - 300)}")


def _mrkdwn(text: str) -> Block:
    """`verbatim`: an address, a channel or an @everyone in a name is no link and wakes nobody."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def escaped(text: str, most: int) -> str:
    """Slack's three characters, which also keeps `<!channel>` from waking everybody; within the limit once written
    out, and never cut in the middle of an entity."""
    text = cut(text, most)
    while len(safe := text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")) > most:
        text = cut(text, len(text) - max(1, (len(safe) - most) // 5))
    return safe


def _address(link: str) -> str:
    return link.replace("|", "%7C").replace(">", "%3E").replace("<", "%3C")
