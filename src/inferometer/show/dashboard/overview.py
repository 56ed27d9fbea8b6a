"""The first page: every line of history with its latest numbers and its state, and the runs in progress."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median

from inferometer.errors import StoreError
from inferometer.measure.values import quantities
from inferometer.record.run import Run
from inferometer.show.about import own_plan
from inferometer.show.dashboard.documents import LiveDocument, run_document
from inferometer.show.dashboard.families import (
    Family,
    FamilySeries,
    SeriesChange,
    SeriesPoint,
    changes_in,
    points_of,
)
from inferometer.show.dashboard.listing import RunRow
from inferometer.show.experiment_answer import ExperimentRow
from inferometer.store.entry import Entry
from inferometer.store.folder import logs_of
from inferometer.vocabulary import change_text

SPARK_POINTS = 60  # of the sparkline in a row
MOST_OTHERS = 3  # number of values for other kinds of run
FEW = 4  # points required to call a line steady
QUIET_TIMES, QUIET_DAYS = 3.0, 2.0  # a line is quiet after this many usual pauses, and this many days, without a run
JUDGED = ("ttft_scheduled.p50", "ttft.p50", "tpot.p50", "output_rate", "latency.mean", "time_to_ready")
SHOWN = ("ttft_scheduled.p50", "ttft.p50", "ttft_scheduled.p99", "ttft.p99", "tpot.p50", "output_rate")


@dataclass(frozen=True)
class HeadlineNumber:
    key: str
    title: str
    unit: str
    value: float
    weak: bool = False  # a percentile of too few samples


@dataclass(frozen=True)
class HistoryLine:
    """One line of history as a row of the overview."""

    family: str
    title: str  # of the family
    series: str
    label: str
    kind: str
    model: str
    engine: str
    hardware: str
    workload: str
    load: str
    runs: int
    updated: str
    run: str  # the newest run
    verdict: str | None
    numbers: list[HeadlineNumber]
    spark: list[float]
    spark_title: str
    state: str  # "steady", "better", "worse", "quiet" (no data for a while), "few" (too few runs to tell)
    state_text: str
    since: str | None  # the first run in this state


@dataclass(frozen=True)
class Overview:
    lines: list[HistoryLine]
    left_out: int
    running: list[RunRow]
    experiments: list[ExperimentRow]
    total: int


def history_lines(families: Sequence[Family], now: datetime | None = None) -> list[HistoryLine]:
    """Lines that got worse first, then the newest."""
    at = now or datetime.now(UTC)
    lines = [_line(family, series, at) for family in families for series in family.series if series.entries]
    rank = {"worse": 0, "better": 1}
    newest = sorted(lines, key=lambda line: line.updated, reverse=True)
    return sorted(newest, key=lambda line: rank.get(line.state, 2))


def _line(family: Family, series: FamilySeries, now: datetime) -> HistoryLine:
    newest = series.entries[-1]
    judged = {key: points for key in JUDGED if key in family.keys and (points := points_of(series, key))}
    if "ttft_scheduled.p50" in judged:
        judged.pop("ttft.p50", None)
    first = next(iter(judged), None)
    state, text, since = _state(family, series, judged, now)
    spark = [point.value for point in judged[first] if point.sound][-SPARK_POINTS:] if first else []
    return HistoryLine(
        family=family.id,
        title=family.title,
        series=series.id,
        label=series.label,
        kind=family.kind,
        model=family.model,
        engine=family.engine,
        hardware=family.hardware,
        workload=series.workload,
        load=series.load,
        runs=len(series.entries),
        updated=newest.started_at,
        run=newest.id,
        verdict=newest.verdict,
        numbers=_numbers(family, series),
        spark=spark,
        spark_title=_title(family, first) if first else "",
        state=state,
        state_text=text,
        since=since,
    )


def _numbers(family: Family, series: FamilySeries) -> list[HeadlineNumber]:
    """Numbers of the newest run; scheduled TTFT replaces TTFT."""
    scheduled = any(key.startswith("ttft_scheduled") for key in family.keys) and bool(
        points_of(series, "ttft_scheduled.p50")
    )
    keys = [key for key in SHOWN if not (scheduled and key in ("ttft.p50", "ttft.p99"))]
    usual = [key for key in keys if key in family.keys]
    numbers: list[HeadlineNumber] = []
    for key in usual or family.keys:
        points, quantity = points_of(series, key), family.keys[key]
        if not points or (quantity.unit == "s" and not points[-1].value):  # a phase shorter than its log can resolve
            continue
        last = points[-1]
        numbers.append(HeadlineNumber(key, _title(family, key), quantity.unit, last.value, last.weak))
    return numbers if usual else numbers[:MOST_OTHERS]


def _title(family: Family, key: str) -> str:
    quantity = family.keys[key]
    title = quantity.title.replace(", scheduled", "")
    return title if quantity.statistic is None else f"{title} {quantity.statistic}"


def _state(
    family: Family, series: FamilySeries, judged: dict[str, list[SeriesPoint]], now: datetime
) -> tuple[str, str, str | None]:
    """The last change of any headline number decides; a line without new runs for a long time is marked."""
    days = _quiet_days(series, now)
    quiet = f"no data for {days} days" if days else ""
    changes = [(key, change) for key, points in judged.items() for change in changes_in(points)[-1:]]
    if changes:
        key, last = max(changes, key=lambda item: item[1].at)
        state = "worse" if (last.after > last.before) == (family.keys[key].direction == "lower") else "better"
        text = f"{state} since {_since(last)}: {_title(family, key)} {_change(last)}"
        return state, ", ".join(filter(None, (text, quiet))), last.run
    if quiet:
        return "quiet", quiet, None
    few = max((len(points) for points in judged.values()), default=0) < FEW
    return ("few", "too few runs to tell", None) if few else ("steady", "steady", None)


def _since(change: SeriesChange) -> str:
    name = change.commit[:8] if change.commit else change.version or ""
    return " ".join(filter(None, (name, f"({change.at[:10]})" if name else change.at[:10])))


def _change(change: SeriesChange) -> str:
    return "changed" if change.change is None else change_text(change.change)


def _quiet_days(series: FamilySeries, now: datetime) -> int | None:
    """Days since the newest run, if that is long for this line."""
    times = [at for entry in series.entries if (at := _instant(entry.started_at)) is not None]
    if not times:
        return None
    pauses = [(b - a).total_seconds() for a, b in pairwise(times)]
    idle_s = (now - times[-1]).total_seconds()
    usual_s = median(pauses) if pauses else 0.0
    is_quiet = len(times) >= FEW and idle_s > QUIET_TIMES * usual_s and idle_s > QUIET_DAYS * 86400
    return int(idle_s // 86400) if is_quiet else None


def _instant(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


LARGEST_READ = 256 * 2**20  # bytes of logs; reading more takes longer than a user waits
QUIET_S = 15.0  # logs not written for this long belong to a run that was killed, or that waits

Partial = Callable[[Run], Run]


class LiveRuns:
    """The last computed state of each run; finished runs are dropped."""

    def __init__(self, partial: Partial) -> None:
        self._partial = partial
        self._known: dict[str, tuple[int, Run]] = {}
        self._one_at_a_time = threading.Lock()

    def read(self, run: Run) -> Run:
        """The run with the summary of its logs so far; unchanged if they are still empty."""
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
            return run  # no request was over yet

    def state(self, run: Run, entry: Entry) -> LiveDocument:
        """For the page of a run in progress: whether it is still being written, its progress, and its numbers so
        far."""
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
            rate_planned=requested,
            rate_sent=rate.value if rate else None,
            run=run_document(now, entry),
        )


def is_running(run: Run) -> bool:
    quiet_s = quiet_for(run)
    return run.state == "partial" and quiet_s is not None and quiet_s < QUIET_S


def _extent(run: Run) -> tuple[float | None, int | None, float | None]:
    """What the plan sets: seconds, requests and requests per second; None if it does not set it."""
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
    """Seconds since any file of the run was written."""
    if run.folder is None or not run.folder.is_dir():
        return None
    written = [path.stat().st_mtime for path in run.folder.iterdir()]
    return max(0.0, time.time() - max(written)) if written else None
