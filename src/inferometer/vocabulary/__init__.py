"""Shared vocabulary: names of measures, durations and sizes in the notation of users, displayed numbers (`formats`),
and the registries' `"module:attribute"` notation. The definitions of measures are in `measure.registry`."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from importlib import import_module
from typing import Any, Literal
from urllib.parse import urlsplit

from inferometer.vocabulary.formats import (
    RATE_UNITS,
    WEAK_MARK,
    bound_text,
    change_interval_text,
    change_size_text,
    change_text,
    count_text,
    duration_text,
    interval_text,
    number_text,
    percent_text,
    size_text,
    spread_text,
    value_text,
)

__all__ = [
    "MEASURES",
    "NANOSECONDS",
    "RATE_UNITS",
    "WEAK_MARK",
    "Direction",
    "MeasureName",
    "attribute_at",
    "bound_text",
    "change_interval_text",
    "change_size_text",
    "change_text",
    "count",
    "count_text",
    "duration_text",
    "duration_written",
    "http_url",
    "interval_text",
    "number",
    "number_text",
    "percent",
    "percent_text",
    "percent_written",
    "seconds",
    "size_text",
    "spread_text",
    "value_text",
]

NANOSECONDS = 1_000_000_000

Direction = Literal["lower", "higher"]


def attribute_at(place: str) -> Any:
    """The object named by `"module:attribute"`, imported now; the attribute may contain dots. An `ImportError` names
    what is missing; errors from the module's own imports are passed on unchanged."""
    module, colon, attribute = place.partition(":")
    if not (module and colon and attribute):
        raise ImportError(f"{place!r} must be written module:attribute")
    imported = import_module(module)
    try:
        return reduce(getattr, attribute.split("."), imported)
    except AttributeError as error:
        raise ImportError(f"{place}: {error}", name=module) from error


@dataclass(frozen=True, slots=True)
class MeasureName:
    """The name of a measure, its unit, and which direction is better (`None`: neither).

    A scalar is one number of a run; other measures have a value per request (session, gap) and therefore quantiles.
    """

    name: str
    title: str
    unit: str
    direction: Direction | None
    scalar: bool = False

    @property
    def phrase(self) -> str:
        """The title inside a sentence: `scheduled TTFT`, `request throughput`."""
        what, _, how = self.title.partition(", ")
        words = f"{how} {what}" if how else what
        return words if words[:2].isupper() else f"{words[0].lower()}{words[1:]}"


_PER_REQUEST: tuple[tuple[str, str, str, Direction | None], ...] = (
    ("ttft", "TTFT", "s", "lower"),
    ("ttft_scheduled", "TTFT, scheduled", "s", "lower"),
    ("ttfo", "TTFO", "s", "lower"),
    ("ttfo_scheduled", "TTFO, scheduled", "s", "lower"),
    ("tpot", "TPOT", "s", "lower"),
    ("itl", "ITL", "s", "lower"),
    ("icl", "ICL", "s", "lower"),
    ("ntpot", "NTPOT", "s", "lower"),
    ("e2e", "E2E", "s", "lower"),
    ("e2e_scheduled", "E2E, scheduled", "s", "lower"),
    ("done", "Done", "s", "lower"),
    ("done_scheduled", "Done, scheduled", "s", "lower"),
    ("stall", "Longest stall", "s", "lower"),
    ("queue_wait", "Queue wait", "s", "lower"),
    ("send_delay", "Send delay", "s", "lower"),
    ("connect", "Connect", "s", "lower"),
    ("tls", "TLS handshake", "s", "lower"),
    ("input_tokens", "Input tokens", "tokens", None),
    ("output_tokens", "Output tokens", "tokens", None),
    ("cached_tokens", "Cached tokens", "tokens", None),
    ("reasoning_tokens", "Reasoning tokens", "tokens", None),
    ("user_speed", "User speed", "tokens/s", "higher"),
    ("session_time", "Session time", "s", "lower"),
    ("session_last_answer", "Time to the last answer", "s", "lower"),
    ("session_turns", "Turns done", "turns", None),
)
_SCALARS: tuple[tuple[str, str, str, Direction | None], ...] = (
    ("request_rate", "Request throughput", "1/s", "higher"),
    ("input_rate", "Input token throughput", "tokens/s", "higher"),
    ("output_rate", "Output token throughput", "tokens/s", "higher"),
    ("total_rate", "Total token throughput", "tokens/s", "higher"),
    ("offered_rate", "Offered request rate", "1/s", None),
    ("concurrency", "Concurrency", "requests", None),
    ("goodput", "Goodput", "1/s", "higher"),
    ("goodput_share", "Goodput share", "share", "higher"),
    ("failure_rate", "Failure rate", "share", "lower"),
    ("stall_share", "Requests that stalled", "share", "lower"),
    ("structure_valid", "Valid structured answers", "share", "higher"),
)


def _names() -> Iterator[MeasureName]:
    yield from (MeasureName(*row) for row in _PER_REQUEST)
    yield from (MeasureName(*row, scalar=True) for row in _SCALARS)


MEASURES: dict[str, MeasureName] = {measure.name: measure for measure in _names()}

_DURATION_UNITS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "sec": Decimal(1),
    "m": Decimal(60),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_COUNT_UNITS = {"": 1, "k": 1000, "ki": 1024, "m": 1000**2, "mi": 1024**2, "g": 1000**3, "gi": 1024**3}
_DIGITS = r"(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]{1,4})?"
_MOST_BITS = 64  # of an integer
_MOST_LETTERS = 400  # of a number or duration; the smallest share has 330 zeros
_DURATION_PART = re.compile(rf"\s*({_DIGITS})\s*([a-zµ]+)\s*", re.IGNORECASE)
_NUMBER = re.compile(rf"\s*([+-]?{_DIGITS})\s*(?:([kmg]i?)b?)?\s*", re.IGNORECASE)


def seconds(text: str | float) -> float:
    """`90`, `1.5s`, `500ms`, `1h30m` in seconds; a bare number is seconds already."""
    bare = _finite(text)
    if bare is not None:
        return _as_float(bare, text)
    unsigned = str(text).strip().removeprefix("-")
    sign = -1 if str(text).strip().startswith("-") else 1
    total, at = Decimal(0), 0
    while at < len(unsigned):
        part = _DURATION_PART.match(unsigned, at)
        if part is None or part[2].lower() not in _DURATION_UNITS:
            break
        total += Decimal(part[1]) * _DURATION_UNITS[part[2].lower()]
        at = part.end()
    if not unsigned or at < len(unsigned):
        raise ValueError(f"not a duration: {text!r} (write 500ms, 60s, 5min, 1h30m)")
    return sign * _as_float(total, text)


def number(text: str | float) -> float:
    """`2.5`, `1e3`, `2k` as a number."""
    return _as_float(_scaled(text), text)


def count(text: str | float) -> int:
    """`2k`, `1.5M`, `4Ki`, `300` as a whole number."""
    value = _scaled(text)
    if value.adjusted() > 18 or value != value.to_integral_value():
        raise ValueError(f"not a whole number: {text!r}")
    return int(value)


def _scaled(text: str | float) -> Decimal:
    bare = _finite(text)
    if bare is not None:
        return bare
    match = _NUMBER.fullmatch(_short(str(text)))
    if match is None:
        raise ValueError(f"not a number: {text!r} (write 300, 2k, 1.5M, 4Ki)")
    return Decimal(match[1]) * _COUNT_UNITS[(match[2] or "").lower()]


def _as_float(value: Decimal, text: str | float) -> float:
    """A number with valid digits may still be too large: `1e400`."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"not a finite number: {text!r}")
    return number


def _finite(text: str | float) -> Decimal | None:
    """A number without a unit, or `None` if there is a unit to parse."""
    if isinstance(text, int):
        if text.bit_length() > _MOST_BITS:
            raise ValueError(f"not a number that can be kept: {text.bit_length()} bits")
        return Decimal(text)
    if isinstance(text, float):
        if not math.isfinite(text):
            raise ValueError(f"not a finite number: {text!r}")
        return Decimal(str(text))
    match = _NUMBER.fullmatch(_short(text))
    return Decimal(match[1]) if match and not match[2] else None


def _short(text: str) -> str:
    """The text itself; users do not write longer numbers."""
    if len(text) > _MOST_LETTERS:
        raise ValueError(f"not a number: {len(text)} characters")
    return text


def duration_written(value_s: float) -> str:
    """Seconds as users write them in a plan, exactly: `60s`, `500ms`, `10min`; `seconds` reads it back."""
    exact = Decimal(repr(float(value_s)))
    size = abs(exact)
    if size and not Decimal("1e-9") <= size < Decimal("1e15"):
        return repr(float(value_s))
    if size >= 120 and exact % 60 == 0:
        unit = "h" if size >= 7200 and exact % 3600 == 0 else "min"
    else:
        unit = next((name for name in ("s", "ms", "us") if not size or size >= _DURATION_UNITS[name]), "ns")
    return f"{_plain(exact / _DURATION_UNITS[unit])}{unit}"


def percent_written(share: float) -> str:
    """A share as users write it in a plan, exactly: `1%`, `0.5%`."""
    return f"{_plain(Decimal(repr(float(share))) * 100)}%"


def percent(text: str) -> float:
    """`1%` as a share."""
    match = _NUMBER.fullmatch(_short(text.strip()).removesuffix("%"))
    if match is None or match[2] or not text.strip().endswith("%"):
        raise ValueError(f"not a percentage: {text!r} (write 1%)")
    return _as_float(Decimal(match[1]) / 100, text)


def _plain(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def http_url(text: str) -> str:
    """The address of a server, checked; raises a `ValueError` if it is invalid."""
    url = text.strip()
    if not url.startswith(("http://", "https://")):
        raise ValueError("must start with http:// or https://")
    try:
        parts = urlsplit(url)
        complete = bool(parts.hostname) and parts.port != 0
    except ValueError:
        complete = False
    if not complete or any(sign <= " " or sign == "\x7f" for sign in url):
        raise ValueError("must be a URL such as http://localhost:8000")
    return url
