"""The instrument's own error at a point of operation, looked up in the curve that calibration kept of this machine.

A curve is {"schema", "machine", "points": [{"streams", "events_per_s", "ttft_error_p50", ..., "stamps"}],
"ceiling_events_per_s", "ceiling_is_at_least"}. Errors and loads span decades, so the lookup is linear in their
logarithms.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

ERRORS = ("ttft_error_p50", "ttft_error_p99", "read_error_p50", "read_error_p99", "cpu_s_per_million")
_SMALLEST = 1e-9  # seconds: the clock's own step; an error of 0 has no logarithm

Points = list[Mapping[str, Any]]


def error_at(
    curve: Mapping[str, Any], streams: float, events_per_s: float, stamps: str | None = None
) -> dict[str, Any] | None:
    """Errors to expect in seconds: along events/s at the two nearest numbers of streams, then between those.

    Below the curve's ends the error is that of its end; above them it grows in proportion to the load and is marked
    `extrapolated`. None without a point that fits.
    """
    points = _points(curve, stamps)
    if not points:
        return None
    found: dict[str, Any] = {"streams": streams, "events_per_s": events_per_s}
    beyond = False
    for name in ERRORS:
        fitting = [point for point in points if point.get(name) is not None]
        value, outside = _looked_up(fitting, name, streams, events_per_s) if fitting else (None, False)
        found[name], beyond = value, beyond or outside
    ceiling = None if curve.get("ceiling_is_at_least") else curve.get("ceiling_events_per_s")
    return found | {"ceiling_share": events_per_s / ceiling if ceiling else None, "extrapolated": beyond}


def _points(curve: Mapping[str, Any], stamps: str | None) -> Points:
    """The points made with the same kind of stamps, where the curve has any of them."""
    points = [point for point in curve.get("points", ()) if point["streams"] > 0 and point["events_per_s"] > 0]
    return [point for point in points if stamps is None or point.get("stamps") in (None, stamps)] or points


def _looked_up(points: Points, name: str, streams: float, events_per_s: float) -> tuple[float, bool]:
    levels: dict[float, list[tuple[float, float]]] = {}
    for point in points:
        levels.setdefault(float(point["streams"]), []).append((float(point["events_per_s"]), float(point[name])))
    nearest = _around(sorted(levels), streams)
    along = {level: _along(levels[level], events_per_s) for level in nearest}
    value, outside = _along([(level, along[level][0]) for level in nearest], streams)
    return value, outside or along[nearest[-1]][1]  # what more streams were tried with, fewer bear too


def _around(levels: list[float], x: float) -> list[float]:
    """The one or two levels between which x lies."""
    below = [level for level in levels if level <= x][-1:]
    above = [level for level in levels if level > x][:1] if below != [x] else []
    return below + above


def _along(points: list[tuple[float, float]], x: float) -> tuple[float, bool]:
    """y at x by log-log interpolation, and whether x lies beyond the last point."""
    points = sorted(points)
    (first_x, first_y), (last_x, last_y) = points[0], points[-1]
    if x <= first_x:
        return first_y, False
    if x > last_x:
        return last_y * x / last_x, True
    (x0, y0), (x1, y1) = next(pair for pair in pairwise(points) if x <= pair[1][0])
    share = math.log(x / x0) / math.log(x1 / x0) if x1 > x0 else 1.0
    return math.exp((1 - share) * _log(y0) + share * _log(y1)), False


def _log(y: float) -> float:
    return math.log(max(y, _SMALLEST))
