"""`Verdict`: whether the numbers of a run are true within the printed intervals, and every reason why not."""

from collections.abc import Iterable
from typing import Literal

import msgspec

Status = Literal["valid", "doubtful", "invalid"]
STATUSES: tuple[Status, ...] = ("valid", "doubtful", "invalid")  # from the best to the worst


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A headline number that a doubt may have changed, and by how much: in its unit, and as a share."""

    key: str
    by: float
    share: float | None = None


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """A doubt or a note about a run: its status, a code for programs, a sentence for people. A note has the
    status `valid`."""

    status: Status
    code: str
    text: str
    remedy: str | None = None  # recommended action
    moves: list[Move] = []  # numbers that it may have shifted
    traffic: str | None = None  # traffic class, if it concerns one of several
    signal: str | None = None  # name of the signal that interrupted the run

    @property
    def sentence(self) -> str:
        """The text with its remedy."""
        return self.text if self.remedy is None else f"{self.text} {self.remedy[0].upper()}{self.remedy[1:]}."


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`doubts` can change the status, worst first; `notes` never do."""

    status: Status
    doubts: list[Reason] = []
    notes: list[Reason] = []
    traffic: dict[str, Status] = {}  # status by traffic class, from its own doubts and those of the whole run

    @property
    def codes(self) -> list[str]:
        return [reason.code for reason in self.doubts]


def worst(doubts: Iterable[Reason]) -> Status:
    return max((doubt.status for doubt in doubts), key=STATUSES.index, default="valid")


def judged(reasons: Iterable[Reason]) -> Verdict:
    """The doubts, worst first, the notes, and the resulting status."""
    ordered = sorted(reasons, key=lambda reason: STATUSES.index(reason.status), reverse=True)
    doubts = [reason for reason in ordered if reason.status != "valid"]
    return Verdict(status=worst(doubts), doubts=doubts, notes=[note for note in ordered if note.status == "valid"])
