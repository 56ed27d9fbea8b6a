"""The measurements that a user's own benchmark reports, as values of a summary: names, units and directions are
checked, and units are converted to the ones used everywhere (seconds, bytes, shares)."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import structs

from inferometer.documents.document import JsonObject
from inferometer.documents.json_text import json_value
from inferometer.errors import DataError
from inferometer.measure.quantiles import t_quantile
from inferometer.record.summary import MeasureSummary, Summary, Value
from inferometer.vocabulary import MEASURES, Direction

EXPECTED = (
    'JSON such as {"name": "tokens per second", "value": 812.5, "unit": "tokens/s", "direction": "higher"}, '
    "a list of these, or one on each line"
)
_DIRECTIONS: dict[str, Direction | None] = {
    **dict.fromkeys(("higher", "bigger", "up", "max", "biggerisbetter", "custombiggerisbetter"), "higher"),
    **dict.fromkeys(("lower", "smaller", "down", "min", "smallerisbetter", "customsmallerisbetter"), "lower"),
    **dict.fromkeys(("none", "neither", "observation"), None),
}
_UNITS: dict[str, tuple[str, float]] = {  # our unit, and the factor that converts to it
    **dict.fromkeys(("ns", "nanoseconds"), ("s", 1e-9)),
    **dict.fromkeys(("us", "µs", "microseconds"), ("s", 1e-6)),
    **dict.fromkeys(("ms", "milliseconds"), ("s", 1e-3)),
    **dict.fromkeys(("s", "sec", "secs", "seconds"), ("s", 1.0)),
    **dict.fromkeys(("min", "minutes"), ("s", 60.0)),
    **dict.fromkeys(("h", "hours"), ("s", 3600.0)),
    **dict.fromkeys(("%", "percent"), ("share", 0.01)),
    **dict.fromkeys(("share", "fraction", "ratio"), ("share", 1.0)),
    **dict.fromkeys(("b", "bytes"), ("bytes", 1.0)),
    **{f"{prefix}b": ("bytes", 1000.0**power) for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": ("bytes", 1024.0**power) for power, prefix in enumerate("kmgt", 1)},
    **dict.fromkeys(("tokens/s", "tokens/sec", "tok/s", "tokens per second"), ("tokens/s", 1.0)),
    **dict.fromkeys(("1/s", "requests/s", "req/s", "prompts/s"), ("1/s", 1.0)),
    **dict.fromkeys(("/s", "ops/sec", "ops/s", "iter/sec"), ("/s", 1.0)),
}
CONFIDENCE = 0.95
_FIELDS = MeasureSummary.__struct_fields__  # not names of statistics: `batch.count` is a number of its own


@dataclass(frozen=True, slots=True)
class CustomMeasure:
    """One measure as it was reported, in our units; several values are repeats."""

    name: str
    title: str
    unit: str
    direction: Direction | None
    values: tuple[float, ...]
    interval: tuple[float, float] | None = None


def documents_in(text: str) -> Any:
    """The JSON in an output: the whole text if it is JSON, else the lines that are JSON (the others are its log), else
    the text from the last line that starts with a bracket. None if there is no JSON."""
    try:
        return json_value(text)[0]
    except ValueError:
        pass
    lines = [line for line in text.splitlines() if line.strip()]
    documents = [document for line in lines if line.lstrip()[0] in "{[" and (document := _parsed(line)) is not None]
    if documents:
        return [entry for document in documents for entry in (document if isinstance(document, list) else [document])]
    return _last_document(lines)


def _parsed(text: str) -> Any:
    try:
        return json_value(text)[0]
    except ValueError:
        return None


def _last_document(lines: Sequence[str]) -> Any:
    starts = [at for at, line in enumerate(lines) if line[0] in "{["]
    documents = (_parsed("\n".join(lines[at:])) for at in starts)
    return next((document for document in documents if document is not None), None)


def measures_in(document: Any, default: Direction | None = None) -> list[CustomMeasure]:
    """Every measure of a document; raises a `DataError` that lists everything wrong with it. `default` is the direction
    of measures that state none."""
    entries = list(_entries(document))
    if not entries:
        raise DataError(f"it contains no measures, expected {EXPECTED}")
    measures: dict[str, CustomMeasure] = {}
    mistakes: list[str] = []
    for at, entry in enumerate(entries, 1):
        try:
            measure = _measure(entry, default)
            if measure is not None and measure.name in measures:
                raise ValueError("appears twice; write several values of one measure as a list: values: [...]")
        except ValueError as error:
            mistakes.append(f"{_named(entry, at)} {error}")
            continue
        if measure is not None:
            measures[measure.name] = measure
    if mistakes:
        raise DataError("; ".join(mistakes), f"expected {EXPECTED}")
    if not measures:
        raise DataError("every value is null", f"expected {EXPECTED}")
    return list(measures.values())


def summary_of(measures: Sequence[CustomMeasure]) -> Summary:
    """The summary section that every list, filter, chart, comparison and check reads."""
    values: dict[str, Value] = {}
    series: dict[str, MeasureSummary] = {}
    for measure in measures:
        name, _, statistic = measure.name.partition(".")
        if len(measure.values) == 1 and (not statistic or statistic in _FIELDS):
            values[measure.name] = Value(
                value=measure.values[0],
                unit=measure.unit,
                direction=measure.direction,
                title=measure.title,
                interval=measure.interval,
            )
            continue
        first = MeasureSummary(unit=measure.unit, direction=measure.direction, title=measure.title)
        before = series.get(name, first)
        if statistic and len(measure.values) == 1:
            series[name] = structs.replace(before, statistics=before.statistics | {statistic: measure.values[0]})
        else:
            series[name] = _described(before, measure.values)
    return Summary(measures=series, values=values)


def _entries(document: Any) -> Iterator[Any]:
    """One entry, a list of them, `{"measures": [...]}`, or a mapping from names to entries, as nm-vllm writes it."""
    if isinstance(document, list):
        yield from document
    elif isinstance(document, Mapping) and not _is_entry(document):
        inner = next((document[key] for key in ("measures", "metrics", "benches") if key in document), document)
        if inner is not document:
            yield from _entries(inner)
        else:
            for name, entry in document.items():
                yield {"name": name, **entry} if isinstance(entry, Mapping) else {"name": name, "value": entry}
    elif document is not None:
        yield document


def _is_entry(document: JsonObject) -> bool:
    return "value" in document or "values" in document or isinstance(document.get("name"), str)


def _named(entry: Any, at: int) -> str:
    name = entry.get("name") or entry.get("key") if isinstance(entry, Mapping) else None
    return str(name) if name else f"entry {at}"


def _measure(entry: Any, default: Direction | None) -> CustomMeasure | None:
    """None if the value is null, which means missing."""
    if not isinstance(entry, Mapping):
        raise ValueError(f"must be an object with name, value, unit and direction, got {_short(entry)}")
    title = entry.get("name") or entry.get("key")
    if not isinstance(title, str) or not _key(title):
        raise ValueError("has no name" if not title else f"is not a valid name, got {_short(title)}")
    if "value" not in entry and "values" not in entry:
        raise ValueError("has no value")
    raw = entry["values"] if "values" in entry else [entry["value"]]
    if raw == [None]:
        return None
    unit, factor = _unit(entry.get("unit"))
    values = tuple(_number(value) * factor for value in (raw if isinstance(raw, list) else [raw]))
    if not values:
        raise ValueError("has an empty list of values")
    name = _key(title)
    _check_ours(name, unit)
    shown = str(entry.get("title") or title)
    return CustomMeasure(name, shown, unit, _direction(entry, default), values, _interval(entry, factor))


def _key(title: str) -> str:
    """A name that is easy to type: `TTFT p99 (ms)` becomes ttft_p99_ms; one dot is kept: `ttft.p99`."""
    parts = [re.sub(r"[^a-z0-9]+", "_", part.lower()).strip("_") for part in title.split(".", 1)]
    return ".".join(part for part in parts if part)


def _check_ours(name: str, unit: str) -> None:
    known = MEASURES.get(name.partition(".")[0])
    if known is not None and known.unit != unit:
        raise ValueError(f"is a built-in measure in {known.unit}, got {unit or 'no unit'}: convert or rename it")


def _unit(unit: Any) -> tuple[str, float]:
    if not isinstance(unit, str):
        raise ValueError('has no unit (write "" for a bare number)' if unit is None else f"has the unit {_short(unit)}")
    return _UNITS.get(unit.strip().lower(), (unit.strip(), 1.0))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"must have a finite number as its value, got {_short(value)}")
    return float(value)


def _direction(entry: JsonObject, default: Direction | None) -> Direction | None:
    direction = next((entry[key] for key in ("direction", "type", "tool") if entry.get(key) is not None), None)
    if direction is None:
        return default
    name = str(direction).strip().lower().replace("_", "").replace(" ", "")
    if name not in _DIRECTIONS:
        raise ValueError(f"must have the direction higher, lower or none, got {_short(direction)}")
    return _DIRECTIONS[name]


def _interval(entry: JsonObject, factor: float) -> tuple[float, float] | None:
    interval = entry.get("interval")
    if interval is None:
        return None
    if not isinstance(interval, list) or len(interval) != 2 or _number(interval[0]) > _number(interval[1]):
        raise ValueError(f"must have an interval of two numbers, the lower first, got {_short(interval)}")
    return _number(interval[0]) * factor, _number(interval[1]) * factor


def _described(of: MeasureSummary, values: Sequence[float]) -> MeasureSummary:
    """Describes repeats: their mean with a t interval, and their spread."""
    array = np.asarray(values, np.float64)
    mean, std = float(array.mean()), float(array.std(ddof=1))
    half = t_quantile(0.5 + CONFIDENCE / 2, len(values) - 1) * std / math.sqrt(len(values))
    spread = {"min": float(array.min()), "p50": float(np.median(array)), "max": float(array.max())}
    return structs.replace(
        of,
        count=len(values),
        statistics=of.statistics | {"mean": mean, "std": std, **spread},
        intervals=of.intervals | {"mean": (mean - half, mean + half)},
    )


def _short(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
