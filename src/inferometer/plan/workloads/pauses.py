"""Pauses as people write them: `2s`, `1s-5s`, `{mean: 2s, std: 1s}`, `{type: exponential, mean: 5s}`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_serializer, model_validator

from inferometer import vocabulary
from inferometer.plan.fields import DURATION_TEXT, Duration, Mistake, Section

_RANGE = re.compile(r"\s*([0-9.][^-]*?)\s*-\s*([0-9.][^-]*?)\s*")
MOST_SPREAD = 10_000  # standard deviations in means
_NEEDS: dict[str, tuple[str, ...]] = {
    "fixed": ("value",),
    "uniform": ("min", "max"),
    "normal": ("mean", "std"),
    "lognormal": ("mean", "std"),
    "exponential": ("mean",),
}


class Pause(Section):
    """How long something waits: always the same, or drawn."""

    short_forms: ClassVar[list[dict[str, Any]]] = [
        {"type": "number", "minimum": 0, "description": "always so many seconds"},
        {**DURATION_TEXT, "description": "always so long"},
        {"type": "string", "pattern": r"^\s*[0-9.][^-]*-\s*[0-9.][^-]*$", "description": "uniform: least-most"},
    ]

    type: Literal["fixed", "uniform", "normal", "lognormal", "exponential"] = Field(
        "fixed", description="kind of distribution; not needed where another field tells"
    )
    value: Duration | None = Field(None, ge=0, description="fixed: the pause")
    min: Duration | None = Field(None, ge=0, description="the least")
    max: Duration | None = Field(None, ge=0, description="the most")
    mean: Duration | None = Field(None, ge=0, description="normal, lognormal, exponential: the mean")
    std: Duration | None = Field(None, ge=0, description="normal, lognormal: the standard deviation")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return pause_long(value)

    def disagreements(self) -> Iterator[Mistake]:
        needs = _NEEDS[self.type]
        for name in ("value", "min", "max", "mean", "std"):
            given = getattr(self, name) is not None
            if name in needs and not given:
                yield Mistake((name,), f"is missing: a pause of type {self.type} needs it")
            bound = name in ("min", "max") and self.type != "fixed"
            if given and name not in needs and not bound:
                yield Mistake((name,), f"does not belong to a pause of type {self.type}")
        if self.min is not None and self.max is not None and self.min > self.max:
            yield Mistake(("max",), "must be at least min")
        if self.type == "lognormal" and self.mean and self.std and self.std > MOST_SPREAD * self.mean:
            yield Mistake(("std",), f"must be at most {MOST_SPREAD:,} times the mean")

    @property
    def mean_value(self) -> float:
        """The mean pause in seconds."""
        if self.type == "fixed":
            return self.value or 0.0
        return ((self.min or 0.0) + (self.max or 0.0)) / 2 if self.type == "uniform" else self.mean or 0.0

    def short(self) -> Any:
        """As people write it; reads back as the same pause."""
        written = vocabulary.duration_written
        names = ("value", "min", "max", "mean", "std")
        said = {name: written(value) for name in names if (value := getattr(self, name)) is not None}
        match self.type:
            case "fixed":
                return said["value"]
            case "uniform" if not any("-" in text for text in said.values()):
                return f"{said['min']}-{said['max']}"
        return said if _type_of(said) == self.type else {"type": self.type, **said}

    @model_serializer
    def _written(self) -> Any:
        return self.short()


def pause_long(value: Any) -> Any:
    """A short form made long."""
    if isinstance(value, Mapping):
        return value if "type" in value else {"type": _type_of(value), **value}
    if isinstance(value, str) and (found := _RANGE.fullmatch(value)) and "e-" not in value:
        return {"type": "uniform", "min": found[1], "max": found[2]}
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    try:
        seconds = vocabulary.seconds(value)
    except ValueError:
        raise ValueError("must be a pause such as 500ms, 2s or 1s-5s") from None
    if seconds < 0:
        raise ValueError("must be at least 0")
    return {"type": "fixed", "value": seconds}


def _type_of(said: Mapping[str, Any]) -> str:
    given = {name for name, value in said.items() if value is not None}
    if given & {"mean", "std"}:
        return "normal" if "std" in given else "exponential"
    return "uniform" if given & {"min", "max"} else "fixed"
