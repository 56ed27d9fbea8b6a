"""Numbers as people read them, each in the unit of its measure."""

from collections.abc import Sequence

from inferometer.vocabulary import duration_text, number_text

LOPSIDED = 4  # one end of an interval this many times farther than the other: a single ± would mislead
LOPSIDED_FROM = 0.1  # of the value; with less it does not matter

VERDICT_STYLES = {"valid": "bold green", "doubtful": "bold yellow", "invalid": "bold red"}


def value_text(value: float | None, unit: str) -> str:
    """`412 ms`, `9.98/s`, `638 tokens/s`, `98.2%`, `256`; missing is `-`."""
    match unit:
        case "s":
            return duration_text(value)
        case "share":
            return percent_text(value)
        case "1/s":
            return number_text(value) if value is None else f"{number_text(value)}/s"
        case "tokens/s":
            return number_text(value) if value is None else f"{number_text(value)} tokens/s"
    return number_text(value)


def percent_text(share: float | None) -> str:
    """`2%`, `98.25%`, never rounded to all or nothing when it is not."""
    if share is None:
        return "-"
    percent = 100 * share
    digits = 0 if percent == round(percent) else 1 if 0.1 <= percent <= 99.9 else 3
    return f"{percent:.{digits}f}%"


def count_text(count: int) -> str:
    """A count that only has to be known roughly: `368`, `84k`, `1.2M`."""
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1000:.0f}k" if count < 1_000_000 else f"{count / 1e6:.1f}M"


def spread_text(value: float | None, interval: Sequence[float | None] | None, unit: str) -> str:
    """`±9`: the farther end of the interval, in the unit the value is shown in; `+39 −0.1` where its ends are not
    nearly as far; `` where it is not known."""
    if value is None or interval is None or any(end is None for end in interval):
        return ""
    low, high = (float(end) for end in interval if end is not None)
    above, below = max(high - value, 0.0), max(value - low, 0.0)
    near, far = sorted((above, below))
    if far > LOPSIDED * near and far > LOPSIDED_FROM * abs(value):
        return f"+{_in_unit_of(value, above, unit)} −{_in_unit_of(value, below, unit)}"
    return f"±{_in_unit_of(value, far, unit)}"


def interval_text(interval: Sequence[float | None] | None, unit: str) -> str:
    """`403..421 ms`, an open end as `-`."""
    if interval is None or all(end is None for end in interval):
        return ""
    low, high = (value_text(end, unit) for end in interval)
    same = low.split(" ")[1:] == high.split(" ")[1:] and "m " not in low
    return f"{low.split(' ')[0]}..{high}" if same else f"{low}..{high}"


_SCALES = {"µs": 1e6, "ms": 1e3, "s": 1.0}


def _in_unit_of(value: float, distance: float, unit: str) -> str:
    if unit != "s":
        return _two_digits(100 * distance if unit == "share" else distance)
    scale = _SCALES.get(duration_text(value).split()[-1])
    return duration_text(distance) if scale is None else _two_digits(distance * scale)


def _two_digits(distance: float) -> str:
    """A spread is itself uncertain: two digits say all there is. Below a hundredth it is rounded up, not away."""
    if distance >= 1 or distance == 0:
        return f"{distance:,.0f}" if distance >= 9.95 or distance == 0 else f"{distance:.1f}"
    return f"{max(distance, 0.01):.2f}"
