"""The decisions of the routers of this process: for an observer, and with the prompts for a replay.

Separate from the routers, because Ray copies their module by value into the process that uses them, while a module they
import exists only once.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from inferometer.measure.telemetry import ROUTER
from inferometer.record.record import Sample
from inferometer.router.feed import Choice, Feed
from inferometer.router.journal import Chosen, ReplicasChanged, RouterEvent, Sent

MOST_EVENTS = 20_000


Worked = Mapping[str, Sequence[tuple[float, float]]]  # by name of a step: when the tree started and finished each call


@dataclass(slots=True)
class _Call:
    """A call to the tree, which is an actor in its own process."""

    called_at: float
    returned_at: float | None = None


class TreeCalls:
    """When this router called the tree and received its answer, by step: `match` and `insert`. The tree processes the
    calls of one caller in order, so its own times can be matched to them one by one."""

    def __init__(self) -> None:
        self._calls: dict[str, deque[_Call]] = {"match": deque(), "insert": deque()}
        self._waits: dict[tuple[str, object], _Call] = {}  # by step and caller

    def called(self, step: str, caller: object) -> None:
        """A task called the tree; others may call it before the answer arrives."""
        call = self._waits[step, caller] = _Call(monotonic())
        self._calls[step].append(call)

    def returned(self, step: str, caller: object) -> None:
        """The first return counts, because the router's own work follows it."""
        if (call := self._waits.pop((step, caller), None)) is not None:
            call.returned_at = monotonic()

    def samples(self, worked: Worked) -> list[Sample]:
        """The durations of the way to the tree, the work there and the way back, for the calls it has processed."""
        return [
            Sample(ROUTER, f"{step}_{phase}_s", round(call.returned_at * 1e9), took)
            for step, times in worked.items()
            for began, ended in times
            if self._calls[step] and (call := self._calls[step].popleft()).returned_at is not None
            for phase, took in (
                ("there", began - call.called_at),
                ("work", ended - began),
                ("back", call.returned_at - ended),
            )
        ]


class Notes:
    """The decisions of the router of this process."""

    def __init__(self) -> None:
        self.feed = Feed()
        self.with_text = False
        self.events: deque[RouterEvent] = deque(maxlen=MOST_EVENTS)
        self._numbers: dict[str, int] = {}  # of requests, by Ray's id
        self._open: dict[int, Chosen] = {}  # choices for which no request was sent yet

    def number(self, request: Any) -> int:
        """Ray's ids are random texts; ours follow the order of arrival."""
        key = str(request.metadata.internal_request_id)
        return self._numbers.setdefault(key, len(self._numbers))

    def replicas(self, added: list[str], removed: list[str]) -> None:
        if added or removed:
            self.events.append(ReplicasChanged(monotonic(), added, removed))

    def chose(self, chosen: Chosen) -> None:
        self._open[chosen.request] = chosen
        if self.with_text:
            self.events.append(chosen)

    def sent(self, sent: Sent, text: str) -> None:
        """Adds one entry to the feed for each sent request, with the choice that led to it."""
        if self.with_text:
            self.events.append(sent)
        origin = self._origin(sent)
        if origin is None:
            return
        self.feed.add(
            Choice(
                round(sent.at_s * 1e9),
                origin.request,
                sent.replica,
                origin.kind,
                origin.matched_chars / len(text) if text else 0.0,
                None,
                None,
                len(origin.queues),
                origin.took_s,
                sent.insert_s,
                sent.request,
            )
        )

    def _origin(self, sent: Sent) -> Chosen | None:
        """The choice that selected this replica: the request's own, unless Ray used the result of another request's
        choice."""
        own = self._open.get(sent.request)
        if own is not None and sent.replica in own.candidates:
            return self._open.pop(sent.request)
        others = (number for number, chosen in self._open.items() if sent.replica in chosen.candidates)
        request = next(others, None if own is None else sent.request)
        return None if request is None else self._open.pop(request)


NOTES = Notes()
