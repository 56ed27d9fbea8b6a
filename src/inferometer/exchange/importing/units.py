"""Converts other tools' numbers to our units and names; a number without a known unit is refused, never guessed."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from inferometer.errors import DataError
from inferometer.measure.server import SPECULATION
from inferometer.record.summary import MeasureSummary, Rate, Value
from inferometer.vocabulary import MEASURES, Direction, duration_text

T = TypeVar("T")

SECONDS: dict[str, float] = {
    **dict.fromkeys(("ns", "nanoseconds"), 1e-9),
    **dict.fromkeys(("us", "µs", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "milliseconds", "ms/token"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "seconds", "s/token"), 1.0),
}
COUNTS: dict[str, float] = {
    **dict.fromkeys(("count", "tokens", "token", "requests", "tokens/s", "tokens/sec", "queries/s", "1/s"), 1.0),
    **dict.fromkeys(("requests/sec", "requests/s", "prompts/s", "tokens/sec/user", "ratio", "fraction", ""), 1.0),
    "percent": 0.01,
}
BYTES: dict[str, float] = {
    "bytes": 1.0,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
}
MOST_NUMBER = 1e30  # nanoseconds since 1970 are 2e18, 64-bit seeds 2e19; squares of larger numbers overflow
MOST_COUNT = 2**53  # of requests and tokens: exact in every JSON reader and database
MOST_LETTERS = 400
TYPICAL_S = {"tpot": 0.02, "itl": 0.02, "ntpot": 0.03, "ttft": 0.2, "e2e": 5.0}  # of language models over HTTP
_NAMES = {
    **dict.fromkeys(("mean", "avg", "average"), "mean"),
    **dict.fromkeys(("std", "stddev", "std_dev", "stdev"), "std"),
    "median": "p50",
    "min": "min",
    "max": "max",
}
_QUANTILE = re.compile(r"[pP](\d+)(?:[p.](\d+))?")


def number(value: Any) -> float | None:
    """A finite number, also if written as text; anything else is missing."""
    if isinstance(value, bool) or value is None or (isinstance(value, str) and len(value) > MOST_LETTERS):
        return None
    try:
        amount = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not math.isfinite(amount):
        return None
    if abs(amount) > MOST_NUMBER:
        raise DataError(f"{amount:g} is too large for a time, a rate or a count", "is the file damaged?")
    return amount


def whole(value: Any) -> int | None:
    """A count; fractions are not counts."""
    amount = number(value)
    if amount is None or amount != int(amount):
        return None
    if abs(amount) > MOST_COUNT:
        raise DataError(f"{amount:g} is too large for a count", "is the file damaged?")
    return int(amount)


def is_endless(value: Any) -> bool:
    """Whether a rate is `inf`, as a word or as a number."""
    return isinstance(value, str | float) and str(value).strip().lower() in ("inf", "infinity", ".inf", "+inf")


def factor(unit: str, known: Mapping[str, float] | None = None) -> float:
    """The factor that converts a unit to ours: seconds, tokens, bytes, shares."""
    table = SECONDS | COUNTS | BYTES if known is None else known
    if unit not in table:
        raise DataError(f"the unit {unit!r} is not known", f"known are {', '.join(filter(None, table))}")
    return table[unit]


def statistic(name: str) -> str | None:
    """Our name of a statistic: `median` and `50` are p50, `p99p9` and `p999` are p99.9, `P25` is p25, `p01` is p1."""
    if name.lower() in _NAMES:
        return _NAMES[name.lower()]
    match = _QUANTILE.fullmatch(name)
    if match is None:
        return None
    digits, rest = match[1], match[2] or ""
    if not rest and len(digits) == 3 and digits != "100":  # guidellm: p001 is 0.1, p999 is 99.9
        digits, rest = digits[:2], digits[2]
    share = float(f"{int(digits)}.{rest or 0}")
    return "min" if share == 0 else "max" if share == 100 else f"p{share:g}"


def statistics(mapping: Any, scale: float = 1.0) -> dict[str, float]:
    """The statistics of a mapping under our names, multiplied by `scale`. A nested mapping of percentiles is
    included."""
    if not isinstance(mapping, Mapping):
        return {}
    inner = [mapping[name] for name in ("percentiles", "quantiles") if isinstance(mapping.get(name), Mapping)]
    scaled: dict[str, float] = {}
    for part in (mapping, *inner):
        for name, value in part.items():
            key, amount = statistic(str(name)), number(value)
            if key is not None and amount is not None:
                scaled.setdefault(key, amount * scale)
    return scaled


def prefixed(mapping: Mapping[str, Any], ending: str, scale: float = 1.0) -> dict[str, float]:
    """Statistics whose names are prefixes of a key: `mean_ttft_ms`, `p99.9_ttft_ms` for the ending `_ttft_ms`."""
    parts = {name[: -len(ending)]: value for name, value in mapping.items() if name.endswith(ending)}
    return statistics(parts, scale)


def measure(
    name: str,
    statistics: Mapping[str, float],
    count: int | None = None,
    *,
    unit: str = "",
    direction: Direction | None = None,
    title: str | None = None,
) -> dict[str, MeasureSummary]:
    """One measure of a summary; `{}` if all its times are 0, which means that nothing was measured.
    A measure that is not in the vocabulary has its own unit, direction and title."""
    unit = MEASURES[name].unit if name in MEASURES else unit
    if not statistics or (unit == "s" and not any(statistics.values())):
        return {}
    ordered: dict[str, float | None] = dict(sorted(statistics.items(), key=_order))
    return {name: MeasureSummary(unit=unit, count=count, statistics=ordered, direction=direction, title=title)}


def _order(item: tuple[str, float | None]) -> tuple[int, float]:
    """The order of statistics: mean, deviation, min, quantiles, max."""
    key = item[0]
    if key[0] == "p":
        return 3, float(key[1:])
    return {"mean": 0, "std": 1, "min": 2, "max": 4}.get(key, 5), 0.0


def known_rates(amounts: Mapping[str, float | None]) -> dict[str, Rate]:
    """The known rates, over the whole run."""
    return {
        name: Rate(unit=MEASURES[name].unit, value=amount, basis="file", span=amount)
        for name, amount in amounts.items()
        if amount is not None
    }


def value(amount: float | None, unit: str, direction: Direction | None, title: str) -> Value | None:
    """One number of a summary that is neither a measure nor a rate."""
    return None if amount is None else Value(value=amount, unit=unit, direction=direction, title=title)


def speculation(rate: float | None, length: float | None) -> dict[str, Value | None]:
    """Speculative decoding, under the names of the server's counters."""
    return {
        "server_acceptance_rate": value(rate, "share", "higher", SPECULATION[0]),
        "server_acceptance_length": value(length, "tokens", "higher", SPECULATION[1]),
    }


def without_none(mapping: Mapping[str, T | None]) -> dict[str, T]:
    """A copy without missing values."""
    return {name: value for name, value in mapping.items() if value is not None}


def nearest_unit(name: str, amount: float, units: Iterable[str]) -> str:
    """Of several units the one in which a measure is closest to typical values of language models."""
    usual = TYPICAL_S[name]
    return min(units, key=lambda unit: abs(math.log(max(amount, 1e-12) * SECONDS[unit] / usual)))


def contradictions(measures: Mapping[str, MeasureSummary]) -> list[tuple[str, str]]:
    """Doubts from the numbers alone: an answer that ends before its first token, parts that do not add up."""
    mean = {name: measure.mean for name, measure in measures.items() if measure.mean is not None}
    doubts = [
        ("out_of_range", f"{name} is negative ({key} {amount:g} {measure.unit}), which is impossible.")
        for name, measure in measures.items()
        for key, amount in measure.statistics.items()
        if amount is not None and amount < 0 and name in MEASURES
    ][:1]
    if "ttft" in mean and "e2e" in mean and mean["e2e"] < 0.99 * mean["ttft"]:
        text = f"E2E is {duration_text(mean['e2e'])} and TTFT {duration_text(mean['ttft'])} on average, but no answer"
        doubts.append(("units", f"{text} ends before its first token: one of them has a wrong unit."))
    if {"ttft", "e2e", "tpot", "output_tokens"} <= mean.keys() and not doubts:
        parts = mean["ttft"] + mean["tpot"] * max(mean["output_tokens"] - 1, 0)
        if parts > 0 and not 0.1 < mean["e2e"] / parts < 10:
            text = f"TTFT and the tokens after it make {duration_text(parts)}, but E2E is {duration_text(mean['e2e'])}"
            doubts.append(("units", f"{text}: one of them has a wrong unit."))
    return doubts
