"""What the drive loop keeps of a session under way, and what it counts."""

from dataclasses import dataclass
from typing import Any

from inferometer.workload.session import Session


@dataclass(slots=True)
class Counts:
    """What has happened so far."""

    scheduled: int = 0
    sent: int = 0
    done: int = 0
    failed: int = 0
    in_flight: int = 0
    output_tokens: int = 0


class Visit:
    """A session under way: which turn is next, and since when it is wanted."""

    __slots__ = ("answer", "index", "scheduled_at", "session", "stage", "turn")

    def __init__(self, index: int, session: Session, stage: int, scheduled_at: int) -> None:
        self.index = index
        self.session = session
        self.stage = stage
        self.turn = 0
        self.scheduled_at = scheduled_at
        self.answer = ""


def answer_in_history(messages: list[Any], answer: str) -> None:
    """Put the live answer where the recorded one stands: in the last assistant message. The turns of a session share
    their messages, so that it is in all later turns. A recorded tool call stays: what the tool said answers that."""
    for message in reversed(messages):
        if isinstance(message, dict) and message.get("role") == "assistant":
            if not message.get("tool_calls"):
                message["content"] = answer
            return
