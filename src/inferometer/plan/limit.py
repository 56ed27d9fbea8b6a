"""What is required of a number, as people write it: a limit, `ttft p99 < 500ms`, and a precision, `ttft
p99 within 5%`."""

import difflib
import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from inferometer import vocabulary
from inferometer.plan.fields import Phrase
from inferometer.vocabulary import MEASURES, MeasureName, percent_written

# -- limit -----------------------------------------------------------------------------------------------------------

STATS = ("mean", "min", "max", "std")
_LIMIT = re.compile(r"\s*([\w-]+)(?:[ .]+([\w.%]+))?\s*(<=|>=|<|>)\s*(.+?)\s*")
_UNIT_WORD = re.compile(r"\s*(tokens?|tok|turns?|requests?|req)$")
_QUANTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)")


class Limit(Phrase):
    """`measure stat < value`: the value in the measure's own unit (seconds, per second, share).

    Without a stat, a measure that each request has is limited for each request: what goodput counts.
    """

    short_forms: ClassVar[list[dict[str, Any]]] = [
        {"type": "string", "examples": ["ttft p99 < 500ms", "failure_rate < 1%", "output_rate > 2k/s"]}
    ]

    measure: str = Field(description="what is limited", json_schema_extra={"enum": list(MEASURES)})
    stat: str | None = Field(None, description="p50, p99, p99.9, mean, min, max or std; none for a rate or share")
    op: Literal["<", "<=", ">", ">="] = Field("<", description="how it is compared with the value")
    value: Annotated[float, WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]})] = Field(
        description="in the measure's unit"
    )

    @classmethod
    def split(cls, text: str) -> dict[str, Any]:
        match = _LIMIT.fullmatch(text)
        if match is None:
            raise ValueError("must be a limit such as 'ttft p99 < 500ms' or 'failure_rate < 1%'")
        measure, stat, op, value = match.groups()
        return {"measure": measure, "stat": stat, "op": op, "value": value}

    @classmethod
    def checked(cls, said: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(said.get("measure"), str):
            return said
        measure = measure_named(said["measure"])
        checked = {**said, "measure": measure.name}
        if isinstance(said.get("stat"), str):
            checked["stat"] = stat_named(said["stat"], measure)
        if "value" in said:
            checked["value"] = _value(said["value"], measure)
        return checked

    def __str__(self) -> str:
        stat = f" {self.stat}" if self.stat else ""
        return f"{self.measure}{stat} {self.op} {_written(self.value, MEASURES[self.measure].unit)}"

    def met_by(self, value: float) -> bool:
        """Whether a value of the measure, in its unit, keeps the limit."""
        match self.op:
            case "<":
                return value < self.value
            case "<=":
                return value <= self.value
            case ">":
                return value > self.value
            case ">=":
                return value >= self.value


def measure_and_stat(said: Any) -> tuple[str, str | None] | None:
    """What a limit, as it was written, is about; `None` where that cannot be told."""
    try:
        limit = Limit.model_validate(said)
    except ValueError:
        return None
    return limit.measure, limit.stat


def measure_named(text: str) -> MeasureName:
    """A measure as people write its name."""
    name = text.lower().replace("-", "_")
    if name in MEASURES:
        return MEASURES[name]
    close = difflib.get_close_matches(name, MEASURES, n=3)
    known = f"did you mean {' or '.join(close)}?" if close else f"measures are {', '.join(MEASURES)}"
    raise ValueError(f"names an unknown measure {text}; {known}")


def stat_named(text: str, measure: MeasureName) -> str:
    """A statistic of a measure as people write it."""
    stat = {"median": "p50", "avg": "mean", "average": "mean"}.get(text.lower(), text.lower())
    if measure.scalar:
        raise ValueError(f"takes no {text}: {measure.name} is one number of a run")
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
    try:
        return parse(value)
    except ValueError:
        raise ValueError(f"must compare {measure.name} with {example}") from None


def _share(value: str | float) -> float:
    share = vocabulary.percent(value) if isinstance(value, str) and "%" in value else vocabulary.number(value)
    if not 0 <= share <= 1:
        raise ValueError
    return share


def _per_second(value: str | float) -> float:
    return _plain_number(re.sub(r"\s*/\s*s$", "", value) if isinstance(value, str) else value)


def _plain_number(value: str | float) -> float:
    return vocabulary.number(_UNIT_WORD.sub("", value) if isinstance(value, str) else value)


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
    """`measure stat within share`: half of the interval's width, as a share of the value."""

    short_forms: ClassVar[list[dict[str, Any]]] = [
        {"type": "string", "examples": ["ttft p99 within 5%", "tpot mean within 1%"]}
    ]

    measure: str = Field(description="what is to be known", json_schema_extra={"enum": list(MEASURES)})
    stat: str = Field("p50", description="p50, p99, p99.9 or mean")
    within: float = Field(gt=0, le=1, description="how well, as a share of the value")

    @classmethod
    def split(cls, text: str) -> dict[str, Any]:
        match = _PRECISION.fullmatch(text)
        if match is None:
            raise ValueError("must be a precision such as 'ttft p99 within 5%'")
        return dict(zip(("measure", "stat", "within"), match.groups(), strict=True))

    @classmethod
    def checked(cls, said: dict[str, Any]) -> dict[str, Any]:
        checked = dict(said)
        if isinstance(said.get("measure"), str):
            measure = measure_named(said["measure"])
            if measure.scalar or measure.name.startswith("session_"):
                raise ValueError(f"must name a measure that each request has, such as ttft or tpot, got {measure.name}")
            checked["measure"] = measure.name
            checked["stat"] = stat_named(str(said.get("stat", "p50")), measure)
            if checked["stat"] != "mean" and checked["stat"][0] != "p":
                raise ValueError(f"must be of a quantile or the mean: {said['stat']} has no interval")
        if isinstance(said.get("within"), str):
            checked["within"] = _relative(said["within"])
        return checked

    def __str__(self) -> str:
        return f"{self.measure} {self.stat} within {percent_written(self.within)}"


def _relative(text: str) -> float:
    try:
        return vocabulary.percent(text) if "%" in text else vocabulary.number(text)
    except ValueError:
        raise ValueError(f"must be within a percentage such as 5%, got {text}") from None
