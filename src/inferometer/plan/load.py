"""When requests are sent, and when that ends: the `load`, `stop` and `warmup` of a plan."""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from inferometer.documents.document import JsonObject
from inferometer.plan import short
from inferometer.plan.fields import (
    DURATION_TEXT,
    MOST_S,
    Count,
    Duration,
    Mistake,
    Number,
    Requests,
    Section,
    Tokens,
)
from inferometer.plan.limit import Precision

DEFAULT_REQUESTS = 400  # enough for a p99 with an interval: 368 independent samples at 95% confidence
MOST_PER_S = 1_000_000  # more than a thousand workers send: a typo, which would fill the memory
MOST_AT_ONCE = 1_000_000
MOST_CV = 100  # with more variation there are a few arrivals and then none
AT_MOST_S = 600.0  # because a precision may never be reached
_EXTENT: list[JsonObject] = [
    {"type": "integer", "minimum": 0, "description": "number of requests"},
    {**DURATION_TEXT, "description": "a duration (60s), or a number of requests (2k)"},
]


class Stage(Section):
    """A stage of load: a rate (or a ramp between two rates) or a concurrency, for a duration."""

    duration: Duration = Field(gt=0, description="duration of the stage")
    rate: Number | None = Field(None, ge=0, le=MOST_PER_S, description="requests (sessions) per second; 0 is a pause")
    to: Number | None = Field(None, ge=0, le=MOST_PER_S, description="rate at the end: a linear ramp")
    concurrency: Count | None = Field(None, ge=1, le=MOST_AT_ONCE, description="closed loop: requests in flight")
    process: Literal["constant", "poisson", "gamma"] = Field("poisson", description="arrival process")
    cv: Number = Field(1.0, gt=0, le=MOST_CV, description="coefficient of variation of gamma gaps")

    def disagreements(self) -> Iterator[Mistake]:
        if (self.rate is None) == (self.concurrency is None):
            yield Mistake((), "must have either a rate or a concurrency")
        if self.to is not None and self.rate is None:
            yield Mistake(("to",), "ramps a rate; give the rate it starts from")
        if self.cv != 1 and self.process != "gamma":
            yield Mistake(("cv",), f"belongs to process gamma, but process is {self.process}")


class Cancel(Section):
    """Clients that give up: a share of the requests is cancelled before its answer is complete."""

    share: Number = Field(gt=0, le=1, description="share of the requests that are cancelled, chosen by the seed")
    after: Duration | None = Field(
        None, gt=0, description="time from sending; an answer that is complete by then stays complete"
    )
    after_tokens: Tokens | None = Field(
        None, ge=1, description="output tokens received; with `after` too, whichever comes first"
    )

    def disagreements(self) -> Iterator[Mistake]:
        if self.after is None and self.after_tokens is None:
            yield Mistake((), "must have after (a time), after_tokens, or both")

    @model_validator(mode="before")
    @classmethod
    def _percent(cls, value: Any) -> Any:
        share = value.get("share") if isinstance(value, dict) else None
        if not isinstance(share, str) or not share.strip().endswith("%"):
            return value
        try:
            return {**value, "share": float(share.strip()[:-1]) / 100}
        except ValueError:
            return value


class Load(Section):
    """When requests are sent. Without a type: `rate` is Poisson, `concurrency` a closed loop."""

    type: Literal["constant", "poisson", "gamma", "ramp", "concurrency", "stages", "replay"] = Field(
        "concurrency", description="type of load; not needed if another field implies it"
    )
    rate: Number | None = Field(None, gt=0, le=MOST_PER_S, description="requests (sessions) per second")
    to: Number | None = Field(None, ge=0, le=MOST_PER_S, description="for a ramp: the rate at its end")
    tokens_per_s: Number | None = Field(
        None, gt=0, description="input and output tokens per second; determines the rate"
    )
    cv: Number = Field(
        1.0, gt=0, le=MOST_CV, description="for gamma: coefficient of variation of the gaps; 1 is Poisson"
    )
    concurrency: Count | None = Field(None, ge=1, le=MOST_AT_ONCE, description="closed loop: requests in flight")
    max_concurrency: Count | None = Field(
        None, ge=1, le=MOST_AT_ONCE, description="open loop: maximum in flight; arrivals wait, none is dropped"
    )
    sessions_at_once: Count | None = Field(
        None, ge=1, le=MOST_AT_ONCE, description="maximum number of concurrent sessions; others wait"
    )
    in_turn: bool = Field(
        False, description="closed loop: sessions send one turn after the other in a circle; think time keeps the slot"
    )
    speed: Number = Field(1.0, gt=0, le=MOST_PER_S, description="for replay: speed-up over the recording")
    cancel: Cancel | None = Field(None, description="cancel a share of the requests on purpose")
    stages: list[Stage] = Field([], description="stages, one after another, each with its own summary")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return short.load(value)

    def disagreements(self) -> Iterator[Mistake]:
        wanted = {"concurrency": "concurrency", "stages": "stages", "replay": ""}.get(self.type, "rate")
        if wanted and not getattr(self, wanted) and not (wanted == "rate" and self.tokens_per_s):
            yield Mistake((wanted,), f"is missing: a load of type {self.type} needs it")
        for name in ("rate", "concurrency", "stages"):
            if name != wanted and getattr(self, name):
                yield Mistake((name,), f"does not belong to type {self.type}{_way_out(self.type, name)}")
        if self.type == "ramp" and self.to is None:
            yield Mistake(("to",), "is missing: a ramp needs the rate at its end")
        if self.type != "ramp" and self.to is not None:
            yield Mistake(("to",), f"belongs to type ramp, but type is {self.type}")
        if self.cv != 1 and self.type != "gamma":
            yield Mistake(("cv",), f"belongs to type gamma, but type is {self.type}")
        if self.speed != 1 and self.type != "replay":
            yield Mistake(("speed",), f"belongs to type replay, but type is {self.type}")
        if self.tokens_per_s and self.type not in short.RATE_TYPES:
            yield Mistake(("tokens_per_s",), f"does not belong to type {self.type}")
        if self.in_turn and (self.type != "concurrency" or not self.sessions_at_once):
            yield Mistake(("in_turn",), "needs a concurrency, and sessions_at_once: how many sessions take turns")
        if self.max_concurrency and self.type == "concurrency":
            yield Mistake(("max_concurrency",), "caps an open loop; a closed loop has concurrency")
        yield from self._of_stages()

    def _of_stages(self) -> Iterator[Mistake]:
        closed = {stage.concurrency is not None for stage in self.stages}
        if len(closed) > 1:
            yield Mistake(("stages",), "must be all rates or all concurrencies; use traffic for both at once")
        elif closed == {True} and self.max_concurrency:
            yield Mistake(("max_concurrency",), "caps an open loop; these stages have concurrencies")
        elif closed == {False} and not any(stage.rate or stage.to for stage in self.stages):
            yield Mistake(("stages",), "send nothing: every rate is 0")

    def derived(self) -> frozenset[str]:
        return frozenset() if self.tokens_per_s is None else frozenset({"rate"})

    def at_rate(self, mean_input: float | None, mean_output: float | None) -> Self:
        """A copy with the request rate that `tokens_per_s` gives for these lengths: two decimals, never 0."""
        if self.tokens_per_s is None or mean_input is None or mean_output is None:
            return self
        exact = self.tokens_per_s / (mean_input + mean_output)
        return self.model_copy(update={"rate": round(exact, 2) or exact})

    @property
    def changes(self) -> bool:
        """Whether the load changes by plan during the run."""
        return self.type in ("ramp", "stages", "replay")

    @property
    def open_loop(self) -> bool:
        """Whether arrivals follow the clock, not the answers."""
        if self.type == "stages":
            return self.stages[0].concurrency is None
        return self.type != "concurrency"


def _way_out(kind: str, name: str) -> str:
    match kind, name:
        case "concurrency", "rate":
            return ": for an open loop, set type to poisson and take concurrency out (max_concurrency caps it)"
        case (("constant" | "poisson" | "gamma" | "ramp" | "replay"), "concurrency"):
            return ": max_concurrency caps an open loop; for a closed loop, set type to concurrency"
    return ""


class Stop(Section):
    """When the run ends: whichever comes first. Default: after 400 requests, or with the last stage."""

    short_forms: ClassVar[list[JsonObject]] = _EXTENT

    requests: Requests | None = Field(None, ge=1, description="number of requests, without warm-up")
    minutes: Number | None = Field(
        None, gt=0, le=MOST_S / 60, description="number of requests as minutes at the given rate"
    )
    duration: Duration | None = Field(None, gt=0, description="duration of the load, without warm-up")
    sessions: Requests | None = Field(None, ge=1, description="number of sessions, without warm-up")
    whole_sessions: bool = Field(True, description="false: the last of `requests` may be in the middle of its session")
    errors: Count | None = Field(None, ge=1, description="stop early after this number of failed requests")
    precision: Precision | None = Field(None, description="stop when a number is precise enough: ttft p99 within 5%")
    at_most: Duration | None = Field(
        None, gt=0, description="maximum duration if the precision is not reached; default 10min"
    )
    lost: bool = Field(False, description="stop early as soon as a limit is certainly missed")
    drain: Duration = Field(30.0, ge=0, description="how long to wait for answers after the last request was sent")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return short.extent(value)

    def disagreements(self) -> Iterator[Mistake]:
        if self.at_most is not None and self.precision is None:
            yield Mistake(("at_most",), "needs a precision; other runs use duration")
        if self.precision is not None and self.duration not in (None, self.longest):
            yield Mistake(("duration",), "must be left out: a precision is ended by at_most")

    @property
    def longest(self) -> float | None:
        """The maximum time to reach a precision."""
        return None if self.precision is None else self.at_most or AT_MOST_S

    def ending(self, load: Load, finite: bool = False) -> Self:
        """A copy with a default end if nothing else ends the load; a finite workload does."""
        if self.precision is not None:
            return self.model_copy(update={"duration": self.longest})
        if self.minutes is not None and load.rate is not None:
            return self.model_copy(update={"requests": max(1, round(self.minutes * 60 * load.rate))})
        endless = self.requests is None and self.duration is None and self.sessions is None
        if not endless or finite or load.type in ("stages", "replay"):
            return self
        return self.model_copy(update={"requests": DEFAULT_REQUESTS})

    def derived(self) -> frozenset[str]:
        made = {"requests": self.minutes, "duration": self.precision}
        return frozenset(name for name, source in made.items() if source is not None)


class Warmup(Section):
    """The first part of the load, which is recorded but not measured."""

    short_forms: ClassVar[list[JsonObject]] = _EXTENT

    requests: Requests = Field(0, ge=0, description="number of requests")
    duration: Duration = Field(0.0, ge=0, description="duration")
    tape: bool = Field(False, description="send all measured requests once before, to fill caches")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return short.extent(value)

    def derived(self) -> frozenset[str]:
        return frozenset({"requests"}) if self.tape else frozenset()
