"""`Verdict`: whether the numbers of a run are true within what is printed with them, and every reason why not."""

from collections.abc import Iterable
from typing import Literal

import msgspec

Status = Literal["valid", "doubtful", "invalid"]
STATUSES: tuple[Status, ...] = ("valid", "doubtful", "invalid")  # from the best to the worst


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know of a run: what it makes of it, a code for programs, a sentence for people."""

    status: Status
    code: str
    text: str
    traffic: str | None = None  # the class that it is about, where it is about one of several
    signal: str | None = None  # its name, where one interrupted the run


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`doubts` can change the status, worst first; `notes` never do."""

    status: Status
    doubts: list[Reason] = []
    notes: list[Reason] = []
    traffic: dict[str, Status] = {}  # of each of several classes: by its own doubts, and by those of the whole run

    @property
    def codes(self) -> list[str]:
        return [reason.code for reason in self.doubts]


def worst(doubts: Iterable[Reason]) -> Status:
    return max((doubt.status for doubt in doubts), key=STATUSES.index, default="valid")


def judged(doubts: Iterable[Reason]) -> Verdict:
    """All doubts, the worst first, and the status that they make."""
    ordered = sorted(doubts, key=lambda doubt: STATUSES.index(doubt.status), reverse=True)
    return Verdict(status=worst(ordered), doubts=ordered)
