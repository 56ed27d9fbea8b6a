"""A run in progress: how far it is, from what its logs hold so far. Read again only when they grew."""

import threading
import time
from collections.abc import Callable
from typing import Any

from inferometer.errors import StoreError
from inferometer.record.run import Run
from inferometer.show.dashboard.documents import run_document
from inferometer.store.entry import Entry
from inferometer.store.folder import logs_of

LARGEST_READ = 256 * 2**20  # bytes of logs; reading more than that would take longer than a person waits
QUIET_S = 15.0  # logs that were not written for so long belong to a run that was killed, or that waits

Partial = Callable[[Run], Run]


class LiveRuns:
    """What was computed last of each run; runs that are over are forgotten."""

    def __init__(self, partial: Partial) -> None:
        self._partial = partial
        self._known: dict[str, tuple[int, Run]] = {}
        self._one_at_a_time = threading.Lock()

    def read(self, run: Run) -> Run:
        """The run with the summary of what its logs hold; as it is where they hold nothing yet."""
        size = _size(run)
        if size == 0 or size > LARGEST_READ:
            return run
        with self._one_at_a_time:
            known = self._known.get(run.id)
            if known is None or known[0] != size:
                known = self._known[run.id] = (size, self._partial_of(run))
                self._known = dict(list(self._known.items())[-8:])
        return known[1]

    def _partial_of(self, run: Run) -> Run:
        try:
            return self._partial(run)
        except StoreError:
            return run  # nothing was over yet

    def state(self, run: Run, entry: Entry) -> dict[str, Any]:
        """For the page that follows it: whether it is still written, and its numbers so far."""
        quiet_s = _quiet_s(run)
        running = run.state == "partial" and quiet_s is not None and quiet_s < QUIET_S
        now = self.read(run) if run.state == "partial" else run
        whole = {
            "running": running,
            "quiet_s": quiet_s,
            "log_bytes": _size(run),
            "too_large": _size(run) > LARGEST_READ,
        }
        return whole | run_document(now, entry)


def _size(run: Run) -> int:
    return sum(log.stat().st_size for log in logs_of(run.folder)) if run.folder else 0


def _quiet_s(run: Run) -> float | None:
    """Since something of the run was written."""
    if run.folder is None or not run.folder.is_dir():
        return None
    written = [path.stat().st_mtime for path in run.folder.iterdir()]
    return max(0.0, time.time() - max(written)) if written else None
