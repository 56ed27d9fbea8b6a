"""Sessions made before they are needed, so that making one never holds up a request that is due."""

from collections import deque
from collections.abc import Callable, Iterator

from inferometer.workload.session import Session, Workload

MOST = 2048  # sessions that wait, ready to be sent: a second of a fast load
MOST_BYTES = 64 << 20  # and what they may take: images are large
ENOUGH = 0.25  # of the most: below it, making sessions comes before other quiet work

When = tuple[int, int, int]  # the index of a session, and what else its arrival is made of


class Ahead:
    """Takes the indices in order and keeps their sessions ready; where none is, it is made on the spot.

    `polish` gets a session ready for the wire and says how many bytes it takes; `most` is how many will be wanted.
    """

    def __init__(
        self,
        workload: Workload,
        indices: Iterator[When],
        polish: Callable[[int, Session], int],
        most: int | None = None,
    ) -> None:
        self._workload, self._indices = workload, indices
        self._polish = polish
        self._most = MOST if most is None else min(most, MOST)
        self._ready: deque[tuple[When, Session | None, int]] = deque()
        self._bytes = 0
        self._ended = False  # no more indices, or one whose session cannot be made: that is told when its turn comes

    @property
    def short(self) -> bool:
        """Whether few are left."""
        return not self._ended and len(self._ready) < ENOUGH * self._most and self._bytes < ENOUGH * MOST_BYTES

    def take(self) -> tuple[When, Session] | None:
        """The next one, None after the last."""
        if not self._ready:
            when = next(self._indices, None)
            return None if when is None else (when, self._workload(when[0]))
        when, session, size = self._ready.popleft()
        self._bytes -= size
        return when, session if session is not None else self._workload(when[0])

    def make_one(self) -> bool:
        """Make one more, in a quiet moment; False when enough wait or there are no more."""
        if self._ended or len(self._ready) >= self._most or self._bytes >= MOST_BYTES:
            return False
        when = next(self._indices, None)
        if when is None:
            self._ended = True
            return False
        try:
            session = self._workload(when[0])
            size = self._polish(when[0], session)
        except Exception:  # it is not wanted yet; it fails again, and is heard, when it is
            self._ended = True
            self._ready.append((when, None, 0))
            return False
        self._ready.append((when, session, size))
        self._bytes += size
        return True
