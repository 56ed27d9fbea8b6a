"""The time of a log line as seconds. vLLM's stamps (`11-15 05:54:12`) have no year and no zone: the year is that of the
last change of the file, a stamp that falls back by half a year has passed a new year."""

from calendar import isleap
from datetime import UTC, datetime
from functools import lru_cache

HALF_YEAR_S = 183 * 86400.0
DAY_S = 86400.0


class LogClock:
    """Stamps in the order of the log, as seconds that only make sense as differences, or as `text`."""

    def __init__(self, latest_s: float) -> None:
        """`latest_s` on the wall clock: no line can be younger."""
        self._latest = latest_s
        self._year: int | None = None
        self._last: float | None = None
        self.resolution_s: float | None = None

    def at(self, year: str | None, month: str, day: str, time: str, fraction: str | None) -> float | None:
        """Seconds since 1970 on the log's own clock; None for what is no date."""
        parts = (int(month), int(day), *map(int, time.split(":")))
        at = _seconds(int(year), *parts) if year else self._without_year(*parts)
        if at is None:
            return None
        self._last = at
        self.resolution_s = 10.0 ** -len(fraction) if fraction else 1.0
        return at + float(f"0.{fraction}") if fraction else at

    def _without_year(self, *parts: int) -> float | None:
        if self._year is None:
            self._year = _first_year(self._latest, parts)
        at = _seconds(self._year, *parts)
        if at is not None and self._last is not None and at < self._last - HALF_YEAR_S:
            self._year += 1  # 12-31 was followed by 01-01; a line that is a second late is not
            at = _seconds(self._year, *parts)
        elif at is not None and self._last is not None and at > self._last + HALF_YEAR_S:
            at = _seconds(self._year - 1, *parts)  # a late line of the old year
        return at


def text(at: float) -> str:
    """`2026-11-15T01:14:00`, without a zone: the log does not say it."""
    moment = datetime.fromtimestamp(at, UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds")


def _first_year(latest_s: float, parts: tuple[int, ...]) -> int:
    """The latest year in which these parts are a date that is not in the future; a zone may be a day apart."""
    year = datetime.fromtimestamp(latest_s, UTC).year
    if parts[:2] == (2, 29):
        while not isleap(year):
            year -= 1
    at = _seconds(year, *parts)
    return year if at is None or at <= latest_s + DAY_S else year - 1


@lru_cache(64)
def _seconds(year: int, *parts: int) -> float | None:
    try:
        return datetime(year, *parts, tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]
    except ValueError:
        return None
