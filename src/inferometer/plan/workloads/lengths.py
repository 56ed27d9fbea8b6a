"""Lengths and pauses as written in plans: `512`, `2k`, `100-500`, `{mean: 512, std: 100}`; `2s`, `1s-5s`, `{type:
exponential, mean: 5s}`. The workload draws from them."""

import re
from collections.abc import Iterator, Mapping
from itertools import chain, pairwise
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_serializer, model_validator

from inferometer import vocabulary
from inferometer.documents.document import JsonObject, JsonValue
from inferometer.plan.fields import (
    COUNT_TEXT,
    DURATION_TEXT,
    MOST_TOKENS,
    Count,
    Duration,
    Mistake,
    Number,
    Section,
    Tokens,
)

# -- lengths ---------------------------------------------------------------------------------------------------------

MOST_ALPHA = 20  # at 20 the second length comes once in a million: more is one length
MOST_SPREAD = 10_000  # standard deviation / mean: a lognormal beyond this is almost always 1, and rarely a million
Shape = Literal["fixed", "uniform", "normal", "lognormal", "zipf", "choices", "empirical", "mixture"]

_RANGE = re.compile(r"\s*([0-9][^-]*?)\s*-\s*([0-9][^-]*?)\s*")
_NEEDS: dict[str, tuple[str, ...]] = {
    "fixed": ("value",),
    "uniform": ("min", "max"),
    "normal": ("mean", "std"),
    "lognormal": ("mean", "std"),
    "zipf": ("alpha", "max"),
    "choices": ("values",),
    "empirical": ("file",),
    "mixture": ("parts",),
}
_TAKES: dict[str, tuple[str, ...]] = {
    "normal": ("min", "max"),
    "lognormal": ("min", "max"),
    "zipf": ("min",),
    "choices": ("weights",),
    "empirical": ("min", "max"),
}
_SHAPE_FIELDS = (
    ("value", "fixed"),
    ("values", "choices"),
    ("parts", "mixture"),
    ("file", "empirical"),
    ("alpha", "zipf"),
)


class Part(Section):
    """One distribution of lengths; several, with weights, make a mixture."""

    type: Shape = Field("fixed", description="type of distribution; not needed if another field implies it")
    value: Tokens | None = Field(None, ge=1, description="fixed: the length")
    min: Tokens | None = Field(None, ge=1, description="uniform, zipf: minimum; others: lower bound")
    max: Tokens | None = Field(None, ge=1, description="uniform, zipf: maximum; others: upper bound")
    mean: Number | None = Field(None, gt=0, le=MOST_TOKENS, description="normal, lognormal: the mean length")
    std: Number | None = Field(None, ge=0, le=MOST_TOKENS, description="normal, lognormal: the standard deviation")
    alpha: Number | None = Field(
        None, gt=0, le=MOST_ALPHA, description="zipf: exponent; the k-th length has a weight of 1/k^alpha"
    )
    values: list[Count] = Field([], description="choices: the lengths")
    weights: list[Number] = Field([], description="choices: relative weights")
    file: str | None = Field(None, description="empirical: a file of lengths, one per line")
    weight: Number = Field(1.0, gt=0, description="relative weight of this part of a mixture")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return lengths_long(value)

    def disagreements(self) -> Iterator[Mistake]:
        needs = _NEEDS[self.type]
        for name in needs:
            if not _given(self, name) and not (name == "std" and self.std == 0):
                yield Mistake((name,), f"is missing: lengths of type {self.type} need it")
        for name in dict.fromkeys(chain(*_NEEDS.values(), *_TAKES.values())):
            if _given(self, name) and name not in (*needs, *_TAKES.get(self.type, ())):
                yield Mistake((name,), f"does not belong to lengths of type {self.type}")
        yield from self._of_numbers()

    def _of_numbers(self) -> Iterator[Mistake]:
        if self.min is not None and self.max is not None and self.min > self.max:
            yield Mistake(("max",), f"must be at least min, {self.min}, got {self.max}")
        if self.weights and len(self.weights) != len(self.values):
            yield Mistake(("weights",), f"must be as many as values, {len(self.values)}, got {len(self.weights)}")
        if any(value < 1 for value in self.values):
            yield Mistake(("values",), f"must be at least 1, got {min(self.values)}")
        if any(value > MOST_TOKENS for value in self.values):
            yield Mistake(("values",), f"must be at most {MOST_TOKENS:,}, got {max(self.values)}")
        if self.type == "lognormal" and self.mean and self.std and self.std > MOST_SPREAD * self.mean:
            yield Mistake(("std",), f"must be at most {MOST_SPREAD:,} times the mean, {self.mean:g}, got {self.std:g}")
        if any(weight < 0 for weight in self.weights) or (self.weights and not any(self.weights)):
            yield Mistake(("weights",), "must not be negative, and not all 0")

    @property
    def mean_value(self) -> float | None:
        """The mean length, ignoring the bounds of a normal distribution; `None` if a file must be read to know it."""
        match self.type:
            case "fixed":
                return self.value
            case "uniform":
                return ((self.min or 1) + (self.max or 1)) / 2
            case "normal" | "lognormal":
                return self.mean
            case "choices":
                return _weighted(self.values, self.weights)
            case "zipf":
                return _zipf_mean(self.min or 1, self.max or 1, self.alpha or 1.0)
        return None

    @property
    def most(self) -> int | None:
        """The maximum length, if there is one."""
        match self.type:
            case "fixed":
                return self.value
            case "choices":
                return max(self.values, default=None)
        return self.max

    @property
    def least(self) -> int:
        """The minimum length, if the plan alone determines it."""
        match self.type:
            case "fixed":
                return self.value or 1
            case "choices":
                return min(self.values, default=1)
        return self.min or 1

    def short(self) -> Any:
        """The short form, which reads back as the same lengths."""
        if self.weight == 1:
            match self.type:
                case "fixed":
                    return self.value
                case "uniform":
                    return f"{self.min}-{self.max}"
                case "choices" if not self.weights:
                    return list(self.values)
        return self._mapping()

    def _mapping(self) -> dict[str, JsonValue]:
        fields = {name: _plain(getattr(self, name)) for name in type(self).model_fields if _given(self, name)}
        fields.pop("type", None)
        if self.weight == 1:
            fields.pop("weight", None)
        return fields if shape_of(fields) == self.type else {"type": self.type, **fields}

    def __str__(self) -> str:
        match self.type:
            case "fixed":
                return f"{self.value:,}"
            case "uniform":
                return f"{self.min:,}-{self.max:,}"
            case "choices":
                return "/".join(f"{value:,}" for value in self.values)
            case "mixture":
                return "a mixture"
            case "empirical":
                return f"those of {self.file}"
        mean = self.mean_value
        return f"{self.type} ~{round(mean or 0):,}"

    @model_serializer
    def _written(self) -> Any:
        return self.short()


class Lengths(Part):
    """A length: a number, a range `100-500`, a list, or a distribution."""

    short_forms: ClassVar[list[JsonObject]] = [
        {"type": "integer", "minimum": 1, "description": "fixed length"},
        {**COUNT_TEXT, "description": "fixed length"},
        {"type": "string", "pattern": r"^\s*[0-9][^-]*-\s*[0-9][^-]*$", "description": "uniform: least-most"},
        {"type": "array", "minItems": 1, "items": {"type": ["integer", "string"]}, "description": "one of these"},
    ]

    parts: list[Part] = Field([], description="mixture: distributions, each with its weight")

    @classmethod
    def of(cls, value: Any) -> Self:
        """The lengths of a short form, for Python: `Lengths.of(512)`."""
        return cls.model_validate(value)

    @classmethod
    def exactly(cls, tokens: int) -> Self:
        """For the default of a field."""
        return cls.usual(type="fixed", value=tokens)

    @property
    def mean_value(self) -> float | None:
        if self.type != "mixture":
            return super().mean_value
        means = [part.mean_value for part in self.parts]
        known = [mean for mean in means if mean is not None]
        return _weighted(known, [part.weight for part in self.parts]) if len(known) == len(means) else None

    @property
    def most(self) -> int | None:
        if self.type != "mixture":
            return super().most
        most = [part.most for part in self.parts]
        known = [bound for bound in most if bound is not None]
        return max(known) if len(known) == len(most) else None

    @property
    def least(self) -> int:
        return min((part.least for part in self.parts), default=1) if self.type == "mixture" else super().least


def lengths_long(value: Any) -> Any:
    """Expand a short form; anything unknown is an error of the whole value."""
    if isinstance(value, Mapping):
        return value if "type" in value else {"type": shape_of(value), **value}
    if isinstance(value, list | tuple):
        if not value:
            raise ValueError("must hold at least one length")
        return {"type": "choices", "values": list(value)}
    if isinstance(value, str) and (match := _RANGE.fullmatch(value)):
        return {"type": "uniform", "min": match[1], "max": match[2]}
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    return {"type": "fixed", "value": _whole(value)}


def _whole(value: str | float) -> int:
    try:
        number = vocabulary.count(value)
    except ValueError:
        also = "" if isinstance(value, int | float) else ", or a range such as 100-500"
        raise ValueError(f"must be a whole number such as 300, 2k or 4Ki{also}") from None
    if number < 1:
        raise ValueError("must be at least 1")
    if number > MOST_TOKENS:
        raise ValueError(f"must be at most {MOST_TOKENS:,}")
    return number


def shape_of(fields: JsonObject) -> str:
    """The type that the fields of a distribution imply."""
    given = {name for name, value in fields.items() if value is not None}
    shape = next((shape for name, shape in _SHAPE_FIELDS if name in given), None)
    return shape or ("normal" if given & {"mean", "std"} else "uniform" if given & {"min", "max"} else "fixed")


def _given(part: Section, name: str) -> bool:
    value = getattr(part, name, None)
    return value is not None and value != []


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if isinstance(value, Part):
        return value._mapping()
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _weighted(values: list[Any], weights: list[float]) -> float:
    shares = weights or [1.0] * len(values)
    return float(sum(value * share for value, share in zip(values, shares, strict=True)) / sum(shares))


def _zipf_mean(least: int, most: int, alpha: float) -> float:
    """The mean of a Zipf distribution: exact up to a thousand lengths, then approximated by blocks of the range."""
    step = max(1, (most - least + 1) // 1000)
    edges = [*range(0, most - least + 1, step), most - least + 1]
    total = above = 0.0
    for low, high in pairwise(edges):
        middle = (low + high - 1) / 2
        share = (high - low) * (middle + 1) ** -alpha
        total, above = total + share, above + share * (least + middle)
    return above / total


# -- pauses ----------------------------------------------------------------------------------------------------------

_PAUSE_RANGE = re.compile(r"\s*([0-9.][^-]*?)\s*-\s*([0-9.][^-]*?)\s*")
MOST_PAUSE_SPREAD = 10_000  # standard deviation / mean
_PAUSE_NEEDS: dict[str, tuple[str, ...]] = {
    "fixed": ("value",),
    "uniform": ("min", "max"),
    "normal": ("mean", "std"),
    "lognormal": ("mean", "std"),
    "exponential": ("mean",),
}


class Pause(Section):
    """A pause: fixed, or drawn from a distribution."""

    short_forms: ClassVar[list[JsonObject]] = [
        {"type": "number", "minimum": 0, "description": "fixed number of seconds"},
        {**DURATION_TEXT, "description": "fixed length"},
        {"type": "string", "pattern": r"^\s*[0-9.][^-]*-\s*[0-9.][^-]*$", "description": "uniform: least-most"},
    ]

    type: Literal["fixed", "uniform", "normal", "lognormal", "exponential"] = Field(
        "fixed", description="type of distribution; not needed if another field implies it"
    )
    value: Duration | None = Field(None, ge=0, description="fixed: the pause")
    min: Duration | None = Field(None, ge=0, description="minimum")
    max: Duration | None = Field(None, ge=0, description="maximum")
    mean: Duration | None = Field(None, ge=0, description="normal, lognormal, exponential: the mean")
    std: Duration | None = Field(None, ge=0, description="normal, lognormal: the standard deviation")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return pause_long(value)

    def disagreements(self) -> Iterator[Mistake]:
        needs = _PAUSE_NEEDS[self.type]
        for name in ("value", "min", "max", "mean", "std"):
            given = getattr(self, name) is not None
            if name in needs and not given:
                yield Mistake((name,), f"is missing: a pause of type {self.type} needs it")
            bound = name in ("min", "max") and self.type != "fixed"
            if given and name not in needs and not bound:
                yield Mistake((name,), f"does not belong to a pause of type {self.type}")
        if self.min is not None and self.max is not None and self.min > self.max:
            yield Mistake(("max",), "must be at least min")
        if self.type == "lognormal" and self.mean and self.std and self.std > MOST_PAUSE_SPREAD * self.mean:
            yield Mistake(("std",), f"must be at most {MOST_PAUSE_SPREAD:,} times the mean")

    @property
    def mean_value(self) -> float:
        """The mean pause in seconds."""
        if self.type == "fixed":
            return self.value or 0.0
        return ((self.min or 0.0) + (self.max or 0.0)) / 2 if self.type == "uniform" else self.mean or 0.0

    def short(self) -> Any:
        """The short form, which reads back as the same pause."""
        written = vocabulary.duration_written
        names = ("value", "min", "max", "mean", "std")
        fields = {name: written(value) for name in names if (value := getattr(self, name)) is not None}
        match self.type:
            case "fixed":
                return fields["value"]
            case "uniform" if not any("-" in text for text in fields.values()):
                return f"{fields['min']}-{fields['max']}"
        return fields if _type_of(fields) == self.type else {"type": self.type, **fields}

    @model_serializer
    def _written(self) -> Any:
        return self.short()


def pause_long(value: Any) -> Any:
    """Expand a short form."""
    if isinstance(value, Mapping):
        return value if "type" in value else {"type": _type_of(value), **value}
    if isinstance(value, str) and (match := _PAUSE_RANGE.fullmatch(value)) and "e-" not in value:
        return {"type": "uniform", "min": match[1], "max": match[2]}
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    try:
        seconds = vocabulary.seconds(value)
    except ValueError:
        raise ValueError("must be a pause such as 500ms, 2s or 1s-5s") from None
    if seconds < 0:
        raise ValueError("must be at least 0")
    return {"type": "fixed", "value": seconds}


def _type_of(fields: JsonObject) -> str:
    given = {name for name, value in fields.items() if value is not None}
    if given & {"mean", "std"}:
        return "normal" if "std" in given else "exponential"
    return "uniform" if given & {"min", "max"} else "fixed"


# -- common to all workloads -------------------------------------------------------------------------------------------

# Properties of a workload that are known from the plan, before any file is read.


class WorkloadSection(Section):
    """A kind of workload. Each has a `type` that names it."""

    type: str = Field(description="source of the prompts")

    @property
    def mean_input(self) -> float | None:
        """Mean tokens of a prompt, if the plan alone determines it."""
        return None

    @property
    def mean_output(self) -> float | None:
        """Mean tokens requested of an answer, if the plan alone determines it."""
        return None

    @property
    def shares_nothing(self) -> bool:
        """Whether all its prompts are new, so that any prefix cache hit is accidental."""
        return False

    @property
    def single_turns(self) -> bool:
        """Whether the plan alone guarantees that every session is one request."""
        return getattr(self, "turns", None) in ("single", "pieces", "questions")

    @property
    def is_finite(self) -> bool:
        """Whether its last session ends the load."""
        return bool(getattr(self, "once", False))

    @property
    def requested_output(self) -> Lengths | None:
        """The requested lengths of answers, if the plan has them."""
        return None


class FileSection(WorkloadSection):
    """A workload that is read from a local or downloaded file."""

    path: str | None = Field(None, min_length=1, description="the file")
    url: str | None = Field(None, min_length=1, description="URL to download it from, once")
    checksum: str | None = Field(None, description="expected sha256 of the file")

    def disagreements(self) -> Iterator[Mistake]:
        yield from self._of_place()
        if self.checksum is not None and not _is_sha256(self.checksum):
            yield Mistake(("checksum",), "must be the 64 hexadecimal digits of a sha256")

    def _of_place(self) -> Iterator[Mistake]:
        if self.path is None and self.url is None:
            yield Mistake(("path",), "is missing: give the file, or the url to download it from")
        if self.path is not None and self.url is not None:
            yield Mistake(("url",), "cannot be combined with path: give one or the other")

    @property
    def sha256(self) -> str | None:
        """The digits of the checksum."""
        return None if self.checksum is None else self.checksum.removeprefix("sha256:").lower()


def _is_sha256(text: str) -> bool:
    digits = text.removeprefix("sha256:").lower()
    return len(digits) == 64 and set(digits) <= set("0123456789abcdef")
