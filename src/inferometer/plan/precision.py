"""How well a number is to be known, as people write it: `ttft p99 within 5%`."""

import re
from typing import Any, ClassVar

from pydantic import Field

from inferometer import vocabulary
from inferometer.plan.fields import Phrase
from inferometer.plan.limit import measure_named, stat_named
from inferometer.vocabulary import MEASURES, percent_written

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
            checked["within"] = _share(said["within"])
        return checked

    def __str__(self) -> str:
        return f"{self.measure} {self.stat} within {percent_written(self.within)}"


def _share(text: str) -> float:
    try:
        return vocabulary.percent(text) if "%" in text else vocabulary.number(text)
    except ValueError:
        raise ValueError(f"must be within a percentage such as 5%, got {text}") from None
