"""Displayed numbers, the same in terminal, pages, CI and notifications.

`show/dashboard/web/formats.js` and the expressions of `show/charts/chart.py` write the same text for the same value,
and a test compares them with this module: this is why halves are rounded away from zero, as browsers do.
"""

import math
import re
from collections.abc import Sequence

LOPSIDED = 4  # if one end of an interval is this many times farther than the other, a single ± would mislead
LOPSIDED_FROM = 0.1  # of the value; below this it does not matter
MANIFOLD = 9.995  # larger relative changes are written as a factor
COUNTED = ("", "tokens", "requests", "turns", "count")  # units that are part of a measure's title

RATE_UNITS = {"1/s": "req/s", "tokens/s": "tok/s"}  # as in serving benchmarks

WEAK_MARK = "~"  # before a quantile with too few samples to be bounded on both sides

Ends = Sequence[float | None]


# -- numbers ---------------------------------------------------------------------------------------------------------


def number_text(value: float | None) -> str:
    """Three significant digits, thousands separated, missing is `-`."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return _three_digits(value)


def count_text(count: int) -> str:
    """A rough count: `368`, `84k`, `1.2M`."""
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1000:.0f}k" if count < 1_000_000 else f"{count / 1e6:.1f}M"


def percent_text(share: float | None) -> str:
    """`2%`, `98.3%`, `0.002%`, `99.95%`: never rounded to 0% or 100% unless exact."""
    if share is None or not math.isfinite(share):
        return number_text(share)
    percent = float(f"{100 * share:.12g}")  # 100 * 0.07 is slightly more than 7
    size = abs(percent)
    if percent == int(percent):
        return f"{percent + 0.0:.0f}%"
    if size < 0.1:
        return f"{_three_digits(percent)}%"
    if 99.9 < size < 100:
        return f"{_fixed(percent, 1 - _exponent(100 - size)).rstrip('0')}%"
    return f"{_fixed(percent, 1)}%"


def duration_text(value_s: float | None) -> str:
    """Seconds as text: `850 µs`, `12.3 ms`, `1.24 s`, `3m 05s`, `1h 02m`; missing is `-`."""
    if value_s is None or not math.isfinite(value_s):
        return number_text(value_s)
    size = abs(value_s)
    if size == 0:
        return "0 s"
    if size < 0.9995e-3:
        return f"{_three_digits(value_s * 1e6)} µs"
    if size < 0.9995:
        return f"{_three_digits(value_s * 1e3)} ms"
    if size < 119.5:
        return f"{_three_digits(value_s)} s"
    sign = "-" if value_s < 0 else ""
    if size < 7199.5:
        return "{}{}m {:02d}s".format(sign, *divmod(math.floor(size + 0.5), 60))
    return "{}{}h {:02d}m".format(sign, *divmod(math.floor(size / 60 + 0.5), 60))


def size_text(size: float | None) -> str:
    """Bytes as `13.5 GiB`: in the units used for engines and GPUs."""
    if size is None or not math.isfinite(size):
        return number_text(size)
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(size) >= 0.9 * factor:
            return f"{_three_digits(size / factor)} {unit}"
    return f"{_three_digits(size)} B"


def value_text(value: float | None, unit: str) -> str:
    """`412 ms`, `9.98 req/s`, `638 tok/s`, `98.2%`, `13.5 GiB`, `$0.42`, `256`; missing is `-`."""
    if value is None or math.isnan(value):
        return "-"
    match unit:
        case "s":
            return duration_text(value)
        case "share":
            return percent_text(value)
        case "bytes":
            return size_text(value)
        case "bytes/s":
            return f"{size_text(value)}/s"
        case "/s":
            return f"{number_text(value)}/s"
        case "$":
            return f"{'-' if value < 0 else ''}${number_text(abs(value))}"
    return number_text(value) if unit in COUNTED else f"{number_text(value)} {RATE_UNITS.get(unit, unit)}"


# -- changes ---------------------------------------------------------------------------------------------------------


def change_text(change: float | None, relative: bool = True, unit: str = "") -> str:
    """`+4.9%`; for a share in points, `+1.2 pt`; for a value that was 0 in its unit; missing is `-`."""
    if change is None:
        return "-"
    sign = "+" if change > 0 else "−" if change < 0 else "±"
    manifold = relative and change > MANIFOLD
    return f"{'' if manifold else sign}{change_size_text(change, relative, unit)}"


def change_size_text(change: float, relative: bool = True, unit: str = "") -> str:
    """The size of a change whose direction is stated next to it: `4.9%`."""
    if relative and change > MANIFOLD:
        return f"×{number_text(1 + change)}"
    if relative:
        return f"{_change_percent(abs(change))}%"
    if unit == "share":
        return f"{_change_percent(abs(change))} pt"
    return value_text(abs(change), unit)


def _change_percent(share: float) -> str:
    percent = 100 * share
    return _fixed(percent, 0 if percent >= 99.5 or percent == 0 else 1 if percent >= 0.95 else 2)


# -- intervals -------------------------------------------------------------------------------------------------------


def spread_text(value: float | None, interval: Ends | None, unit: str) -> str:
    """`±9`: the farther end of the interval, in the unit of the displayed value; `+39 −0.1` if its ends are very
    unequal or `±` would reach below zero; empty if unknown."""
    if value is None or interval is None or any(end is None for end in interval):
        return ""
    low, high = (float(end) for end in interval if end is not None)
    above, below = max(high - value, 0.0), max(value - low, 0.0)
    near, far = sorted((above, below))
    lopsided = far > LOPSIDED * near and far > LOPSIDED_FROM * abs(value)
    if lopsided or (below < value <= above):
        return f"+{_in_unit_of(value, above, unit)} −{_in_unit_of(value, below, unit)}"
    return f"±{_in_unit_of(value, far, unit)}"


def bound_text(value: float | None, interval: Ends | None, unit: str) -> str:
    """`≥380`: the only bound of an interval that is open on the other side, in the unit of the displayed value."""
    if value is None or interval is None or None not in interval:
        return ""
    low, high = interval
    if low is None and high is None:
        return ""
    return f"≥{_level(value, low, unit)}" if low is not None else f"≤{_level(value, high or 0.0, unit)}"


def _level(value: float, level: float, unit: str) -> str:
    if unit.startswith("bytes"):
        return size_text(level)
    if unit != "s":
        return number_text(100 * level if unit == "share" else level)
    scale = _SCALES.get(duration_text(value).split()[-1])
    return duration_text(level) if scale is None else number_text(level * scale)


def interval_text(interval: Ends | None, unit: str) -> str:
    """`403..421 ms`; `≥403 ms` if it is open on the other side."""
    if interval is None or all(end is None for end in interval):
        return ""
    low, high = (value_text(end, unit) for end in interval)
    if None in interval:
        return f"≥{low}" if interval[0] is not None else f"≤{high}"
    return _span(low, high)


def change_interval_text(interval: tuple[float, float] | None, relative: bool, unit: str) -> str:
    """`+1.2..+4.9%`; `-` if unknown, and if no change was possible."""
    if interval is None or interval == (0.0, 0.0):
        return "-"
    low, high = (change_text(end, relative, unit) for end in interval)
    return _span(low, high)


_NUMBER_AND_UNIT = re.compile(r"([^0-9]?[0-9][0-9.,]*(?:e-[0-9]+)?)(\D*)")


def _span(low: str, high: str) -> str:
    """Both ends, with the unit only once if it is the same."""
    first, last = _NUMBER_AND_UNIT.fullmatch(low), _NUMBER_AND_UNIT.fullmatch(high)
    return f"{first[1]}..{high}" if first and last and first[2] == last[2] else f"{low}..{high}"


_SCALES = {"µs": 1e6, "ms": 1e3, "s": 1.0}


def _in_unit_of(value: float, distance: float, unit: str) -> str:
    if unit.startswith("bytes"):
        return size_text(distance)
    if unit != "s":
        return _two_digits(100 * distance if unit == "share" else distance)
    scale = _SCALES.get(duration_text(value).split()[-1])
    return duration_text(distance) if scale is None else _two_digits(distance * scale)


def _two_digits(distance: float) -> str:
    """A spread is itself uncertain: two digits are enough. Below a hundredth it is rounded up, not to zero."""
    if distance >= 1 or distance == 0:
        return f"{distance:,.0f}" if distance >= 9.95 or distance == 0 else _fixed(distance, 1)
    return _fixed(max(distance, 0.01), 2)


# -- digits ----------------------------------------------------------------------------------------------------------


def _three_digits(value: float) -> str:
    size = abs(value)
    if size >= 99.95 or value == int(value):
        return _fixed(value + 0.0, 0)
    if size < 0.9995:
        return _small(value)
    return _fixed(value, 1 if size >= 9.995 else 2)


def _small(value: float) -> str:
    """`0.00123`, `0.0000123`, `1.23e-7`: below a millionth zeros are hard to count."""
    exponent = _exponent(value)
    if exponent >= -6:
        return _fixed(value, 2 - exponent).rstrip("0").rstrip(".")
    digits, _, _ = f"{value:.2e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{exponent}"


def _exponent(value: float) -> int:
    """The exponent of ten of the value rounded to three digits."""
    return int(f"{value:.2e}".partition("e")[2])


def _fixed(value: float, digits: int) -> str:
    """Rounds halves away from zero. A number is exactly such a half if its binary fraction ends one bit after
    `digits`."""
    if abs(value) < 2**52 and value * 2 ** (digits + 1) % 2 == 1:
        value = math.nextafter(value, math.copysign(math.inf, value))
    return f"{value:,.{digits}f}"
