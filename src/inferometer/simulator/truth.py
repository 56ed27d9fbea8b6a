"""What the server really did: for each request when it came, and the instant just before each write of tokens.

Instants are of the monotonic clock of the machine, so that a client on the same machine can be held against them.
"""

import io
from array import array
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray


@dataclass(slots=True)
class TruthOfRequest:
    """`written_tokens` is None where every write carried one token."""

    id: str
    received_at: int
    headers_at: int = 0
    written_at: "array[int]" = field(default_factory=lambda: array("q"))
    written_tokens: "array[int] | None" = None
    ending: str = ""  # ok, left (the client went away), cut, status; empty while under way

    def tokens(self) -> list[int]:
        return [1] * len(self.written_at) if self.written_tokens is None else list(self.written_tokens)


class TruthLog:
    """The latest requests, up to so many writes, and how late the steps of the engine were."""

    def __init__(self, most_events: int) -> None:
        self._most_events = most_events
        self._events = 0
        self.requests: deque[TruthOfRequest] = deque()
        self.first_late_ns: deque[int] = deque(maxlen=1 << 18)  # per step: deadline to the first write
        self.last_late_ns: deque[int] = deque(maxlen=1 << 18)  # ... to after the last write

    def add(self, request: TruthOfRequest) -> None:
        self.requests.append(request)

    def ended(self, request: TruthOfRequest, ending: str) -> None:
        request.ending = ending
        self._events += len(request.written_at)
        while self._events > self._most_events and len(self.requests) > 1 and self.requests[0].ending:
            self._events -= len(self.requests.popleft().written_at)

    def stepped(self, first_late: int, last_late: int) -> None:
        self.first_late_ns.append(first_late)
        self.last_late_ns.append(last_late)

    def lateness(self) -> dict[str, Any]:
        """Seconds after the deadline of a step, over the latest steps."""
        return {
            "steps": len(self.first_late_ns),
            "first_write_s": _spread(self.first_late_ns),
            "last_write_s": _spread(self.last_late_ns),
        }

    def to_json(self) -> bytes:
        requests = [
            {
                "id": request.id,
                "received_at": request.received_at,
                "headers_at": request.headers_at or None,
                "ending": request.ending or None,
                "written_at": request.written_at.tolist(),
                "written_tokens": request.tokens(),
            }
            for request in self.requests
        ]
        return orjson.dumps({"clock": "monotonic_ns", "lateness": self.lateness(), "requests": requests})

    def to_npz(self) -> bytes:
        """Columns; the writes of request i are `written_at[offsets[i]:offsets[i + 1]]`."""
        buffer = io.BytesIO()
        requests = list(self.requests)
        tokens = [np.array(request.tokens(), np.int64) for request in requests]
        np.savez(
            buffer,
            id=np.array([request.id for request in requests], dtype=np.str_),
            received_at=np.array([request.received_at for request in requests], np.int64),
            headers_at=np.array([request.headers_at for request in requests], np.int64),
            ending=np.array([request.ending for request in requests], dtype=np.str_),
            offsets=np.cumsum([0, *(len(part) for part in tokens)]).astype(np.int64),
            written_at=_joined([np.array(request.written_at, np.int64) for request in requests]),
            written_tokens=_joined(tokens),
            first_late_ns=np.array(self.first_late_ns, np.int64),
            last_late_ns=np.array(self.last_late_ns, np.int64),
        )
        return buffer.getvalue()

    def write(self, path: Path) -> None:
        path.write_bytes(self.to_json() if path.suffix == ".json" else self.to_npz())


def _spread(values_ns: deque[int]) -> dict[str, float] | None:
    if not values_ns:
        return None
    values = np.array(values_ns, np.int64) / 1e9
    p50, p99, highest = np.quantile(values, [0.5, 0.99, 1.0])
    return {"p50": float(p50), "p99": float(p99), "max": float(highest)}


def _joined(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
