"""What the routers of this process decided: for an observer, and with the prompts for a replay.

Apart from the routers, whose module Ray copies by value into the process that uses them: a module that they import is
there once.
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


Worked = Mapping[str, Sequence[tuple[float, float]]]  # by name of a step: when the tree began and ended each call


@dataclass(slots=True)
class _Call:
    """A call to the tree, an actor in a process of its own."""

    called_at: float
    returned_at: float | None = None


class TreeCalls:
    """When this router called the tree and had its answer, by step: `match` and `insert`. The tree works off the calls
    of one caller in their order, so that its own times belong to them one by one."""

    def __init__(self) -> None:
        self._calls: dict[str, deque[_Call]] = {"match": deque(), "insert": deque()}
        self._waits: dict[tuple[str, object], _Call] = {}  # by step and caller

    def called(self, step: str, caller: object) -> None:
        """By a task; others may call before it has its answer."""
        call = self._waits[step, caller] = _Call(monotonic())
        self._calls[step].append(call)

    def returned(self, step: str, caller: object) -> None:
        """Only the first time counts, the work of the router comes after it."""
        if (call := self._waits.pop((step, caller), None)) is not None:
            call.returned_at = monotonic()

    def samples(self, worked: Worked) -> list[Sample]:
        """The way to the tree, the work there and the way back of the calls that it has worked off."""
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
    """What the router of this process has decided."""

    def __init__(self) -> None:
        self.feed = Feed()
        self.with_text = False
        self.events: deque[RouterEvent] = deque(maxlen=MOST_EVENTS)
        self._numbers: dict[str, int] = {}  # of requests, by Ray's id
        self._open: dict[int, Chosen] = {}  # choices that no request was sent for yet

    def number(self, request: Any) -> int:
        """Ray's ids are random texts; ours are in the order of arrival."""
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
        """The feed gets one entry for each request that was sent, with the choice that led there."""
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
        """The choice that found this replica: the request's own, unless Ray gave it one that another one had found."""
        own = self._open.get(sent.request)
        if own is not None and sent.replica in own.candidates:
            return self._open.pop(sent.request)
        others = (number for number, chosen in self._open.items() if sent.replica in chosen.candidates)
        request = next(others, None if own is None else sent.request)
        return None if request is None else self._open.pop(request)


NOTES = Notes()
