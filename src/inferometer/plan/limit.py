"""Requirements on a number as written in a plan: a limit, `ttft p99 < 500ms`, and a precision, `ttft p99 within 5%`."""

import difflib
import math
import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from inferometer import vocabulary
from inferometer.documents.document import JsonObject, JsonValue
from inferometer.plan.fields import Phrase
from inferometer.vocabulary import MEASURES, MeasureName, percent_written

# -- limit -----------------------------------------------------------------------------------------------------------

STATS = ("mean", "min", "max", "std")
_LIMIT = re.compile(r"\s*([\w-]+)(?:[ .]+([\w.%]+))?\s*(<=|>=|<|>)\s*(.+?)\s*")
_UNIT_NAME = re.compile(r"\s*(tokens?|tok|turns?|requests?|req)$")
_QUANTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)")


class Limit(Phrase):
    """`measure stat < value`: the text has the unit (500ms, 1%); a number as `value` is in the measure's own (seconds,
    per second, share).

    Without a stat, a measure that each request has is limited for each request: what goodput counts.
    """

    short_forms: ClassVar[list[JsonObject]] = [
        {"type": "string", "examples": ["ttft p99 < 500ms", "failure_rate < 1%", "output_rate > 2k/s"]}
    ]

    measure: str = Field(description="measure to limit", json_schema_extra={"enum": list(MEASURES)})
    stat: str | None = Field(None, description="p50, p99, p99.9, mean, min, max or std; none for a rate or share")
    op: Literal["<", "<=", ">", ">="] = Field("<", description="comparison with the value")
    value: Annotated[float, WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]})] = Field(
        description="value in the measure's unit"
    )

    @classmethod
    def split(cls, text: str) -> dict[str, JsonValue]:
        match = _LIMIT.fullmatch(text)
        if match is None:
            raise ValueError("must be a limit such as 'ttft p99 < 500ms' or 'failure_rate < 1%'")
        measure, stat, op, value = match.groups()
        return {"measure": measure, "stat": stat, "op": op, "value": value}

    @classmethod
    def checked(cls, parts: dict[str, JsonValue]) -> dict[str, JsonValue]:
        name, stat = parts.get("measure"), parts.get("stat")
        if not isinstance(name, str):
            return parts
        measure = measure_named(name)
        checked: dict[str, JsonValue] = {**parts, "measure": measure.name}
        if isinstance(stat, str):
            checked["stat"] = stat_named(stat, measure)
        if "value" in parts:
            checked["value"] = _value(parts["value"], measure)
        return checked

    def __str__(self) -> str:
        stat = f" {self.stat}" if self.stat else ""
        return f"{self.measure}{stat} {self.op} {_written(self.value, MEASURES[self.measure].unit)}"

    def met_by(self, value: float) -> bool:
        """Whether a value of the measure, in its unit, meets the limit."""
        match self.op:
            case "<":
                return value < self.value
            case "<=":
                return value <= self.value
            case ">":
                return value > self.value
            case ">=":
                return value >= self.value


def measure_and_stat(value: Any) -> tuple[str, str | None] | None:
    """The measure of a limit as it was written; `None` if that is unclear."""
    try:
        limit = Limit.model_validate(value)
    except ValueError:
        return None
    return limit.measure, limit.stat


def measure_named(text: str) -> MeasureName:
    """The measure for a name as typed."""
    name = text.lower().replace("-", "_")
    if name in MEASURES:
        return MEASURES[name]
    close = difflib.get_close_matches(name, MEASURES, n=3)
    known = f"did you mean {' or '.join(close)}?" if close else f"measures are {', '.join(MEASURES)}"
    raise ValueError(f"names an unknown measure {text}; {known}")


def stat_named(text: str, measure: MeasureName) -> str:
    """The statistic of a measure for a name as typed."""
    stat = {"median": "p50", "avg": "mean", "average": "mean"}.get(text.lower(), text.lower())
    if measure.scalar:
        raise ValueError(f"takes no {text}: {measure.name} is a single number per run")
    if stat in STATS:
        return stat
    quantile = _QUANTILE.fullmatch(stat)
    if quantile is None or float(quantile[1]) == 0:
        raise ValueError(f"names an unknown statistic {text}; write p50, p99, p99.9, mean, min, max or std")
    return f"p{float(quantile[1]):.12g}"


def _value(value: Any, measure: MeasureName) -> float:
    parse, example = _READERS.get(measure.unit, (_plain_number, f"a number of {measure.unit}, such as 500 or 2k"))
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"must compare {measure.name} with {example}")
    if isinstance(value, str) and (readings := _readings(value, measure.unit)):
        raise ValueError(f"must have a unit: write {' or '.join(readings)}")
    try:
        return parse(value)
    except ValueError:
        raise ValueError(f"must compare {measure.name} with {example}") from None


def _readings(text: str, unit: str) -> list[str]:
    """The possible meanings of a value without a unit, if there are several: `ttft p99 < 500` must not pass as 500 s.
    0 needs no unit, and a number in the structured form has the measure's unit."""
    text = text.strip()
    try:
        bare = float(text)
    except ValueError:
        return []
    if not bare or not math.isfinite(bare):
        return []
    if unit == "s":
        return [f"{text}ms", f"{text}s"]
    if unit == "share" and bare > 0:
        return [f"{text}%", percent_written(bare)] if bare <= 1 else [f"{text}%"]
    return []


def _share(value: str | float) -> float:
    share = vocabulary.percent(value) if isinstance(value, str) and "%" in value else vocabulary.number(value)
    if not 0 <= share <= 1:
        raise ValueError
    return share


def _per_second(value: str | float) -> float:
    return _plain_number(re.sub(r"\s*/\s*s$", "", value) if isinstance(value, str) else value)


def _plain_number(value: str | float) -> float:
    return vocabulary.number(_UNIT_NAME.sub("", value) if isinstance(value, str) else value)


_READERS: dict[str, tuple[Callable[[str | float], float], str]] = {
    "s": (vocabulary.seconds, "a duration such as 500ms"),
    "share": (_share, "a percentage such as 1%, at most 100%"),
    "1/s": (_per_second, "a rate such as 5/s"),
    "tokens/s": (_per_second, "a rate such as 2k/s"),
}


def _written(value: float, unit: str) -> str:
    match unit:
        case "s":
            return vocabulary.duration_written(value)
        case "share":
            return vocabulary.percent_written(value)
        case "1/s" | "tokens/s":
            return f"{_shortest(value)}/s"
        case _:
            return _shortest(value)


def _shortest(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


# -- precision -------------------------------------------------------------------------------------------------------

_PRECISION = re.compile(r"\s*([\w-]+)[ .]+([\w.%]+)\s+within\s+(.+?)\s*")


class Precision(Phrase):
    """`measure stat within share`: half the width of the confidence interval, as a share of the value."""

    short_forms: ClassVar[list[JsonObject]] = [
        {"type": "string", "examples": ["ttft p99 within 5%", "tpot mean within 1%"]}
    ]

    measure: str = Field(description="measure", json_schema_extra={"enum": list(MEASURES)})
    stat: str = Field("p50", description="p50, p99, p99.9 or mean")
    within: float = Field(gt=0, le=1, description="required precision, as a share of the value")

    @classmethod
    def split(cls, text: str) -> dict[str, JsonValue]:
        match = _PRECISION.fullmatch(text)
        if match is None:
            raise ValueError("must be a precision such as 'ttft p99 within 5%'")
        return dict(zip(("measure", "stat", "within"), match.groups(), strict=True))

    @classmethod
    def checked(cls, parts: dict[str, JsonValue]) -> dict[str, JsonValue]:
        checked, name, within = dict(parts), parts.get("measure"), parts.get("within")
        if isinstance(name, str):
            measure = measure_named(name)
            if measure.scalar or measure.name.startswith("session_"):
                raise ValueError(f"must name a measure that each request has, such as ttft or tpot, got {measure.name}")
            checked["measure"] = measure.name
            stat = stat_named(str(parts.get("stat", "p50")), measure)
            if stat != "mean" and stat[0] != "p":
                raise ValueError(f"must be of a quantile or the mean: {stat} has no interval")
            checked["stat"] = stat
        if isinstance(within, str):
            checked["within"] = _relative(within)
        return checked

    def __str__(self) -> str:
        return f"{self.measure} {self.stat} within {percent_written(self.within)}"


def _relative(text: str) -> float:
    try:
        return vocabulary.percent(text) if "%" in text else vocabulary.number(text)
    except ValueError:
        raise ValueError(f"must be within a percentage such as 5%, got {text}") from None
