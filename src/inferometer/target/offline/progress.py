"""How far an offline run is, for whoever watches it."""

from dataclasses import dataclass
from typing import Literal

Phase = Literal["load", "warmup", "measure", "profile"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Said before each batch; `part` of `parts` are done of this phase, `case` of `cases` before it."""

    phase: Phase
    what: str
    part: int = 0
    parts: int = 0
    case: int = 0
    cases: int = 0
    last_s: float | None = None
