"""The progress that a shard reports during the run, and the file that informs it of reached goals: small and cheap, a
few times a second."""

from pathlib import Path
from typing import Literal, get_args

import msgspec

from inferometer.record.files import replacing

# -- progress --------------------------------------------------------------------------------------------------------

Phase = Literal["connect", "prime", "load", "drain", "done"]
PHASES: tuple[Phase, ...] = get_args(Phase)  # in the order of a shard's life
BEFORE_LOAD: tuple[Phase, ...] = PHASES[: PHASES.index("load")]


class Progress(msgspec.Struct, array_like=True):
    """Counts since the start of the load, and what happened since the last message."""

    shard: int = 0
    at: int = 0  # monotonic ns
    planned: int | None = None  # requests this shard will send, if known in advance
    scheduled: int = 0
    sent: int = 0
    done: int = 0
    failed: int = 0
    in_flight: int = 0
    waiting: int = 0  # arrivals waiting for a slot under a cap
    output_tokens: int = 0
    ttft_s: list[float] = []  # of requests finished since the last message
    ends_at: int | None = None  # when the load's time ends, if it has a time limit
    phase: Phase = "load"
    interrupted: bool = False  # nothing more is sent, requests in flight may finish


# -- goals -----------------------------------------------------------------------------------------------------------

GOALS = "goals.json"


class ReachedGoal(msgspec.Struct, frozen=True):
    """Why a traffic class may stop: its number is known precisely enough, or its limit is certainly missed."""

    why: str
    status: Literal["precise", "lost"]


Goals = dict[str, ReachedGoal]  # by traffic class
_decoder = msgspec.json.Decoder(Goals)


def read_goals(file: str | None) -> Goals:
    """The goals in the file, none if it does not exist; it is written atomically."""
    if file is None:
        return {}
    try:
        return _decoder.decode(Path(file).read_bytes())
    except FileNotFoundError:
        return {}


def write_goals(file: Path, goals: Goals) -> None:
    with replacing(file) as draft:
        draft.write_bytes(msgspec.json.encode(goals))
