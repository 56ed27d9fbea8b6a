"""`Plan`: what to do, typed and checked. Files are read in `plan.reading`, short forms in `plan.short`."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from inferometer.plan import short
from inferometer.plan.fields import Count, Headers, Mistake, Number, Section, one_or_several
from inferometer.plan.limit import Limit
from inferometer.plan.load import Load, Stage, Stop, Warmup
from inferometer.plan.target import Api, Server, Target, Timeouts, Tls

__all__ = [
    "Api",
    "Limit",
    "Load",
    "Output",
    "Plan",
    "Sampling",
    "Save",
    "Server",
    "Stage",
    "Stop",
    "Target",
    "Timeouts",
    "Tls",
    "Traffic",
    "Warmup",
    "Workload",
]


class Sampling(Section):
    """How the model is asked to choose its tokens."""

    ignore_eos: bool | None = Field(None, description="default: on where a length is asked")
    min_tokens: Count | None = Field(None, ge=0, description="no end before so many tokens")
    temperature: Number | None = Field(None, ge=0, description="0 takes the likeliest token")
    top_p: Number | None = Field(None, gt=0, le=1, description="share of probability that is drawn from")
    stop: Annotated[list[str], one_or_several(str)] | None = Field(None, description="texts that end the answer")
    extra: dict[str, Any] = Field({}, description="any other fields of the body", repr=False)


class Workload(Section):
    """Synthetic text of asked lengths. Other kinds come with `workload`."""

    type: Literal["synthetic"] = Field("synthetic", description="where prompts come from")
    input_tokens: Count = Field(256, ge=1, description="length of each prompt")
    output_tokens: Count | None = Field(64, ge=1, description="null: the server decides when to stop")
    prompt_as: Literal["text", "token_ids"] = Field("text", description="how prompts are sent")
    vocabulary: Count = Field(10_000, ge=100, description="token ids are drawn below this")
    nonce_tokens: Count = Field(8, ge=0, description="tokens, new in each run, that keep prompts out of old caches")


class Output(Section):
    """A file that is written when the run ends."""

    format: Literal["json", "csv", "parquet"] = Field(description="how it is written")
    path: str = Field(min_length=1, description="where")


class Save(Section):
    """What is kept beside the numbers; texts are not, unless asked."""

    prompts: bool = Field(False, description="keep what was sent")
    answers: bool = Field(False, description="keep what came back")


class Traffic(Section):
    """One class of requests: what is sent, when, and what is expected of it."""

    name: str = Field("default", min_length=1, description="unique in the plan")
    workload: Workload = Field(Workload(), description="what to send")
    load: Load = Field(Load(type="concurrency", concurrency=8), description="when to send it")
    sampling: Sampling = Field(Sampling(), description="how tokens are chosen")
    stop: Stop = Field(Stop(), description="when it ends")
    limits: Annotated[list[Limit], one_or_several(Limit)] = Field([], description="what is expected of it")
    headers: Headers = Field({}, description="sent with its requests, beside the target's", repr=False)

    def disagreements(self) -> Iterator[Mistake]:
        yield from _of_class(self)

    @model_validator(mode="after")
    def _ends(self) -> Self:
        object.__setattr__(self, "stop", self.stop.ending(self.load))  # frozen, but still being made
        return self


class Plan(Section):
    """What to do. `workload`, `load`, `sampling`, `stop` and `limits` at the top are the short form of one
    traffic class; several are listed under `traffic`, each inheriting what it does not say."""

    name: str | None = Field(None, description="what people call it")
    target: Target = Field(Target(), description="what is measured")
    server: Server | None = Field(None, description="a server to start for the run")
    workload: Workload = Field(Workload(), description="what to send")
    load: Load = Field(Load(type="concurrency", concurrency=8), description="when to send it")
    sampling: Sampling = Field(Sampling(), description="how tokens are chosen")
    stop: Stop = Field(Stop(), description="when the run ends")
    warmup: Warmup = Field(Warmup(), description="what is left out of the window at first")
    limits: Annotated[list[Limit], one_or_several(Limit)] = Field([], description="what is expected of the target")
    traffic: Annotated[list[Traffic], one_or_several(Traffic)] = Field(
        [], description="several classes of requests at once"
    )
    outputs: Annotated[list[Output], one_or_several(Output)] = Field([], description="files written when the run ends")
    save: Save = Field(Save(), description="texts to keep")
    seed: Count = Field(0, ge=0, description="the same seed sends the same requests at the same times")
    workers: Count = Field(1, ge=1, description="processes that share the load")
    confidence: Number = Field(0.95, gt=0.5, lt=1, description="of the intervals")

    @model_validator(mode="before")
    @classmethod
    def _long(cls, value: Any) -> Any:
        return short.inherited(short.long(value)) if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if not self.traffic:
            object.__setattr__(self, "stop", self.stop.ending(self.load))  # frozen, but still being made
        return self

    @property
    def classes(self) -> list[Traffic]:
        """The traffic classes, the short form included."""
        if self.traffic:
            return self.traffic
        parts = {name: getattr(self, name) for name in short.INHERITED}
        return [Traffic(**parts)]

    def disagreements(self) -> Iterator[Mistake]:
        names = Counter(each.name for each in self.traffic)
        for at, each in enumerate(self.traffic):
            if names[each.name] > 1:
                yield Mistake(("traffic", at, "name"), "must be unique in the plan")
            yield from (replace(found, path=("traffic", at, *found.path)) for found in _of_sharing(each, self))
        if not self.traffic:
            yield from _of_class(self)
            yield from _of_sharing(self, self)
        paths = Counter(output.path for output in self.outputs)
        for at, output in enumerate(self.outputs):
            if paths[output.path] > 1:
                yield Mistake(("outputs", at, "path"), "must be unique: one output would overwrite the other")


def _of_class(part: Traffic | Plan) -> Iterator[Mistake]:
    if part.load.type == "ramp" and part.stop.duration is None:
        yield Mistake(("stop", "duration"), "is missing: a ramp needs to know how long it lasts", ("load", "stop"))
    least, most = part.sampling.min_tokens, part.workload.output_tokens
    if least is not None and most is not None and least > most:
        yield Mistake(
            ("sampling", "min_tokens"),
            f"must be at most workload.output_tokens, {most}",
            ("sampling", "workload"),
        )


def _of_sharing(part: Traffic | Plan, plan: Plan) -> Iterator[Mistake]:
    cap = part.load.max_concurrency
    if cap is not None and cap < plan.workers:
        text = f"must be at least workers, {plan.workers}: each worker needs a share of it"
        yield Mistake(("load", "max_concurrency"), text, ("load", "workers"))
    if part.workload.prompt_as == "token_ids" and plan.target.api == "chat":
        yield Mistake(("workload", "prompt_as"), "must be text: api chat sends messages", ("workload", "target"))
