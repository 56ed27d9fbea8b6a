"""A run in progress: how far it is, from what its logs hold so far. Read again only when they grew."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from inferometer.errors import StoreError
from inferometer.measure.values import quantities
from inferometer.record.run import Run
from inferometer.show.dashboard.documents import LiveDocument, run_document
from inferometer.show.plan_text import own_plan
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

    def state(self, run: Run, entry: Entry) -> LiveDocument:
        """For the page that follows it: whether it is still written, how far it is, and its numbers so far."""
        quiet_s = quiet_for(run)
        now = self.read(run) if run.state == "partial" else run
        numbers = quantities(now.summary)
        rate = numbers.get("offered_rate") or numbers.get("request_rate")
        planned_s, planned, requested = _extent(run)
        return LiveDocument(
            running=is_running(run),
            quiet_s=quiet_s,
            log_bytes=_size(run),
            too_large=_size(run) > LARGEST_READ,
            elapsed_s=_elapsed(run),
            planned_s=planned_s,
            done=sum(now.summary.outcomes.values()),
            planned=planned,
            rate_asked=requested,
            rate_sent=rate.value if rate else None,
            run=run_document(now, entry),
        )


def is_running(run: Run) -> bool:
    quiet_s = quiet_for(run)
    return run.state == "partial" and quiet_s is not None and quiet_s < QUIET_S


def _extent(run: Run) -> tuple[float | None, int | None, float | None]:
    """What the plan asks for: seconds, requests and requests per second; None where it does not say."""
    plan = own_plan(run)
    if plan is None:
        return None, None, None
    stops = [(traffic.stop, traffic.load) for traffic in plan.classes]
    durations = [stop.duration for stop, _ in stops if stop.duration]
    requests = [stop.requests for stop, _ in stops if stop.requests]
    rates = [load.rate for _, load in stops if load.type in ("poisson", "constant", "gamma") and load.rate]
    requested = sum(rates) if rates and len(rates) == len(stops) else None
    whole_s = max(durations) if durations else None
    if whole_s is None and requested and len(requests) == len(stops):
        whole_s = sum(requests) / requested
    return whole_s, sum(requests) if len(requests) == len(stops) else None, requested


def _elapsed(run: Run) -> float | None:
    try:
        started = datetime.fromisoformat(run.started_at)
    except ValueError:
        return None
    return max(0.0, (datetime.now(UTC) - started).total_seconds()) if started.tzinfo else None


def _size(run: Run) -> int:
    return sum(log.stat().st_size for log in logs_of(run.folder)) if run.folder else 0


def quiet_for(run: Run) -> float | None:
    """Seconds since something of the run was written."""
    if run.folder is None or not run.folder.is_dir():
        return None
    written = [path.stat().st_mtime for path in run.folder.iterdir()]
    return max(0.0, time.time() - max(written)) if written else None
