"""What the simulator can do wrong on purpose, decided by shares and a seed or asked for by a request's header.

x-simulate-fault: stall=200ms, no-usage
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from inferometer.plan.fields import Section
from inferometer.vocabulary import count, seconds

HEADER = "x-simulate-fault"


@dataclass(slots=True)
class Faults:
    """What goes wrong with one request; the default is nothing."""

    status: int | None = None  # answered with this error instead
    retry_after_s: float | None = None
    slow_headers_s: float = 0.0  # headers only after this long
    stall_s: float = 0.0  # silence in the middle of the stream
    cut: int | None = None  # connection closed after so many tokens
    tokens_per_chunk: int = 1
    split_utf8: bool = False  # a chunk in two sends, cut inside a character
    split_line: bool = False  # a chunk in two sends, cut inside a line
    no_usage: bool = False
    no_done: bool = False
    role_only: bool = False  # a first chunk that has a role and no content, also where the API has none
    close_after: bool = False  # connection closed without notice after a complete answer
    close_before: bool = False  # connection closed instead of answering
    close_next: bool = False  # connection closed instead of answering the next request on it


NONE = Faults()  # for all requests that nothing goes wrong with


def _given(_text: str) -> bool:
    return True


_FIELDS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "status": ("status", count, "500"),
    "retry-after": ("retry_after_s", seconds, "1s"),
    "slow-headers": ("slow_headers_s", seconds, "500ms"),
    "stall": ("stall_s", seconds, "500ms"),
    "cut": ("cut", count, "3"),
    "tokens-per-chunk": ("tokens_per_chunk", count, "4"),
    "split-utf8": ("split_utf8", _given, ""),
    "split-line": ("split_line", _given, ""),
    "no-usage": ("no_usage", _given, ""),
    "no-done": ("no_done", _given, ""),
    "role-only": ("role_only", _given, ""),
    "close-after": ("close_after", _given, ""),
    "close-before": ("close_before", _given, ""),
    "close-next": ("close_next", _given, ""),
}
NAMES = tuple(_FIELDS)
ON_THE_WIRE = {  # what these are faults of; neither exists in virtual time
    "split-utf8": "bytes",
    "split-line": "bytes",
    "close-after": "connections",
    "close-before": "connections",
    "close-next": "connections",
}


def parse_faults(text: str) -> Faults:
    """`status=429, retry-after=2s` as faults; a name without a value takes its usual one."""
    faults = Faults()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = part.partition("=")
        if name not in _FIELDS:
            raise ValueError(f"unknown fault {name!r} (known: {', '.join(NAMES)})")
        attribute, read, usual = _FIELDS[name]
        setattr(faults, attribute, read(value or usual))
    return faults


def not_virtual(texts: Iterable[str], where: str) -> list[str]:
    """A sentence for each fault that cannot exist in virtual time."""
    names = {part.strip().partition("=")[0] for text in texts for part in text.split(",")}
    return [
        f"{where}: {name} is a fault of {ON_THE_WIRE[name]}, which does not exist in virtual time"
        for name in _FIELDS
        if name in names and name in ON_THE_WIRE
    ]


class FaultShares(Section):
    """Which faults happen by themselves: each as `fault: share of requests`, `"stall=200ms": 0.01`."""

    shares: dict[str, float] = Field({}, description="e.g. {'status=429, retry-after=1s': 0.02, cut=5: 0.01}")
    seed: int = Field(0, ge=0)

    def model_post_init(self, _context: Any) -> None:
        for text, share in self.shares.items():
            parse_faults(text)
            if not 0 <= share <= 1:
                raise ValueError(f"the share of {text!r} must be between 0 and 1, got {share:g}")
        if sum(self.shares.values()) > 1 + 1e-9:
            raise ValueError(f"the shares of faults add up to {sum(self.shares.values()):g}, more than 1")

    def drawer(self) -> Callable[[], Faults]:
        """A function that decides, request after request, what goes wrong with it."""
        rng = random.Random(self.seed)
        texts, weights = list(self.shares), list(self.shares.values())

        def draw() -> Faults:
            if not texts:
                return NONE
            [text] = rng.choices(["", *texts], [max(0.0, 1 - sum(weights)), *weights])
            return parse_faults(text) if text else NONE

        return draw
