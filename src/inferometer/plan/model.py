"""`Plan`: what to do, typed and checked. Files are read in `plan.reading`, short forms in `plan.short`."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self
from zlib import crc32

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from inferometer import vocabulary
from inferometer.documents.document import JsonValue
from inferometer.plan import short
from inferometer.plan.fields import (
    COUNT_TEXT,
    Count,
    Duration,
    Headers,
    Line,
    Mistake,
    Number,
    Section,
    Tokens,
    one_or_several,
)
from inferometer.plan.limit import Limit
from inferometer.plan.load import Load, Stage, Stop, Warmup
from inferometer.plan.server import Server
from inferometer.plan.structured import Structured
from inferometer.plan.target import Api, Bounds, Observe, Target, Timeouts, Tls
from inferometer.plan.workloads import Lengths, Synthetic, TraceFile, Workload, WorkloadSection
from inferometer.wire.api import api_of

# -- where the workers run ---------------------------------------------------------------------------------------------

# Where the workers of a plan run, and how many there are: processes of this machine, of a Ray cluster, or pods.

PlaceName = Literal["local", "ray", "kubernetes"]
MOST_WORKERS = 10_000
AUTO = 0  # workers: as many as needed by the calibration of this machine


def _read_workers(value: Any) -> int:
    if isinstance(value, str) and value.strip().lower() == "auto":
        return AUTO
    try:
        number = vocabulary.count(value) if not isinstance(value, bool) else None
    except (TypeError, ValueError):
        number = None
    if number is None:
        raise ValueError("must be a whole number such as 4, or auto")
    if number < 1:
        raise ValueError("must be at least 1, or auto")
    if number > MOST_WORKERS:
        raise ValueError(f"must be at most {MOST_WORKERS:,}")
    return number


Workers = Annotated[
    int,
    BeforeValidator(_read_workers),
    PlainSerializer(lambda number: "auto" if number == AUTO else number),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MOST_WORKERS}, {"const": "auto"}, COUNT_TEXT]}
    ),
]


class RaySettings(Section):
    """The Ray cluster that the workers run on."""

    address: Line | None = Field(
        None,
        description="host:port of a running cluster; default: $RAY_ADDRESS, else a cluster of this machine for the run",
    )
    timeout: Duration = Field(
        60.0, gt=0, description="maximum time until the cluster has room and the workers are ready"
    )
    wheel: Line | None = Field(
        None, description="wheel of Inferometer to install on nodes that lack it; pip there must reach its dependencies"
    )

    def disagreements(self) -> Iterator[Mistake]:
        if self.address is not None and self.address.startswith("ray://"):
            text = "must be host:port of the cluster: ray:// goes through a proxy that cannot stream logs; run"
            yield Mistake(("address",), f"{text} inferometer on a node of the cluster instead")
        if self.wheel is not None and not self.wheel.endswith(".whl"):
            yield Mistake(("wheel",), "must be a .whl file")


class KubernetesSettings(Section):
    """The Kubernetes cluster that the workers run on, as pods."""

    kubeconfig: Line | None = Field(
        None, description="kubeconfig; default: $KUBECONFIG, else ~/.kube/config, else the pod's service account"
    )
    context: Line | None = Field(None, description="context of the kubeconfig; default: the current one")
    namespace: Line | None = Field(None, description="namespace of the pods; default: that of the context")
    image: Line | None = Field(
        None, description="image of the pods; default: $INFEROMETER_IMAGE, else inferometer:VERSION"
    )
    cpu: Line = Field("1", description="CPUs of a pod, request and limit")
    memory: Line = Field("1Gi", description="memory of a pod, request and limit")
    service_account: Line | None = Field(None, description="service account of the pods; they need no rights")
    pull_secrets: list[Line] = Field([], description="secrets to pull the image with")
    node_selector: dict[str, str] = Field({}, description="labels that the nodes must have")
    tolerations: list[Line] = Field([], description="keys of taints of nodes that the pods tolerate")
    claim: Line | None = Field(
        None,
        description="persistent volume claim that the pods write their records to, which are fetched from there after "
        "the load; default: in pieces through the API server, during the load",
    )
    fs_group: int | None = Field(None, ge=0, description="group that owns the files of the claim")
    timeout: Duration = Field(300.0, gt=0, description="maximum time until the pods run")
    deadline: Duration = Field(
        86_400.0, gt=0, description="after this time the cluster ends and removes what a killed client left"
    )


# -- the plan ----------------------------------------------------------------------------------------------------------

__all__ = [
    "Api",
    "Bounds",
    "Lengths",
    "Limit",
    "Load",
    "Observe",
    "Output",
    "Plan",
    "Sampling",
    "Save",
    "Server",
    "Stage",
    "Stop",
    "Synthetic",
    "Target",
    "Timeouts",
    "Tls",
    "Traffic",
    "Warmup",
    "Workload",
    "WorkloadSection",
]


OutputFormat = Literal[
    "json",
    "csv",
    "parquet",
    "vllm",
    "llm-d",
    "llm-d-v0.1",
    "github-action-benchmark",
    "ci-bench",
    "nm-vllm",
    "ray-sweep",
    "ray-routing",
    "inferx",
    "pytorch-hud",
    "openmetrics",
    "mlflow",
    "wandb",
    "opentelemetry",
]


class Sampling(Section):
    """Sampling parameters of the requests."""

    ignore_eos: bool | None = Field(None, description="default: on if an output length is requested")
    min_tokens: Tokens | None = Field(None, ge=0, description="minimum number of output tokens")
    temperature: Number | None = Field(None, ge=0, le=1000, description="sampling temperature; 0 means greedy")
    top_p: Number | None = Field(None, gt=0, le=1, description="nucleus sampling: cumulative probability")
    stop: Annotated[list[str], one_or_several(str)] | None = Field(None, description="stop sequences")
    structured: Structured | None = Field(None, description="structured output: the form that answers must have")
    extra: dict[str, JsonValue] = Field({}, description="other fields of the request body", repr=False)

    @property
    def structure(self) -> Structured | None:
        """The structure that answers are checked for, also if `extra` requests it in a server's own syntax."""
        return self.structured or Structured.among(self.extra)

    @property
    def whole_answers(self) -> bool:
        """Whether answers continue to the requested length; a structured answer ends when it is complete."""
        return self.structure is None if self.ignore_eos is None else self.ignore_eos

    def disagreements(self) -> Iterator[Mistake]:
        if not _is_finite(self.extra):
            yield Mistake(("extra",), "must not hold .inf or .nan: JSON has no such numbers")


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict | list):
        return all(_is_finite(entry) for entry in (value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


class Output(Section):
    """A file to write at the end of the run."""

    format: OutputFormat = Field(description="a format of `inferometer export`; some are folders")
    path: str = Field(min_length=1, description="where")


class Save(Section):
    """Texts to store with the run; by default none."""

    prompts: bool = Field(False, description="store the prompts")
    answers: bool = Field(False, description="store the generated text")


class Traffic(Section):
    """A traffic class: its workload, load, stop rule and limits."""

    name: str = Field("default", min_length=1, description="unique in the plan")
    workload: Workload = Field(Synthetic.usual(), description="workload: what to send")
    load: Load = Field(Load.usual(type="concurrency", concurrency=8), description="load: when to send")
    sampling: Sampling = Field(Sampling.usual(), description="sampling parameters")
    stop: Stop = Field(Stop.usual(), description="stop rule")
    limits: Annotated[list[Limit], one_or_several(Limit)] = Field([], description="limits of this class")
    headers: Headers = Field({}, description="additional headers of its requests", repr=False)

    @property
    def draw(self) -> int:
        """Its random stream: by name, so that it sends the same when other classes are added or removed."""
        return 0 if self.name == "default" else crc32(self.name.encode())

    def disagreements(self) -> Iterator[Mistake]:
        yield from _of_class(self)

    @model_validator(mode="after")
    def _ends(self) -> Self:
        _settle(self)
        return self


class Plan(Section):
    """What to do. `workload`, `load`, `sampling`, `stop` and `limits` at the top are the short form of one
    traffic class; several are listed under `traffic`, each inheriting what it does not set."""

    name: str | None = Field(None, description="name, shown in lists and reports")
    about: str | None = Field(None, description="purpose of the plan")
    target: Target = Field(Target.usual(), description="target: the endpoint to measure")
    server: Server | None = Field(None, description="a server to start for the run")
    workload: Workload = Field(Synthetic.usual(), description="workload: what to send")
    load: Load = Field(Load.usual(type="concurrency", concurrency=8), description="load: when to send")
    sampling: Sampling = Field(Sampling.usual(), description="sampling parameters")
    stop: Stop = Field(Stop.usual(), description="stop rule")
    warmup: Warmup = Field(Warmup.usual(), description="warm-up, not measured")
    limits: Annotated[list[Limit], one_or_several(Limit)] = Field([], description="limits that the target must meet")
    traffic: Annotated[list[Traffic], one_or_several(Traffic)] = Field(
        [], description="traffic classes that run at the same time"
    )
    outputs: Annotated[list[Output], one_or_several(Output)] = Field([], description="files written when the run ends")
    save: Save = Field(Save.usual(), description="texts to store")
    observe: Observe = Field(Observe.usual(), description="telemetry sampled during the load")
    seed: Count = Field(0, ge=0, description="the same seed sends the same requests at the same times")
    workers: Workers = Field(
        1, description="number of load generator processes; auto: as the calibration of this machine demands"
    )
    place: PlaceName = Field(
        "local", description="where the workers run: here, on a Ray cluster, or in Kubernetes pods"
    )
    ray: RaySettings = Field(RaySettings.usual(), description="the Ray cluster, with place: ray")
    kubernetes: KubernetesSettings = Field(
        KubernetesSettings.usual(), description="the Kubernetes cluster, with place: kubernetes"
    )
    confidence: Number = Field(0.95, gt=0.5, lt=1, description="confidence level of the intervals")

    @model_validator(mode="before")
    @classmethod
    def _long(cls, value: Any) -> Any:
        return short.replayed(short.inherited(short.long(value))) if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if not self.traffic:
            _settle(self)
        if self.warmup.tape and (tape := _tape(self)):
            warmup = self.warmup.model_copy(update={"requests": tape})
            object.__setattr__(self, "warmup", warmup)  # frozen, but still being made
        return self

    @property
    def classes(self) -> list[Traffic]:
        """The traffic classes, the short form included."""
        if self.traffic:
            return self.traffic
        parts = {name: getattr(self, name) for name in short.INHERITED}
        return [Traffic.model_construct(**parts)]  # all of it was validated as part of the plan

    def disagreements(self) -> Iterator[Mistake]:
        names = Counter(traffic.name for traffic in self.traffic)
        for at, traffic in enumerate(self.traffic):
            if names[traffic.name] > 1:
                yield Mistake(("traffic", at, "name"), "must be unique in the plan")
            yield from (replace(mistake, path=("traffic", at, *mistake.path)) for mistake in _of_sharing(traffic, self))
        if not self.traffic:
            yield from _of_class(self)
            yield from _of_sharing(self, self)
        if self.server is not None:
            yield from self.server.needs_of(self.target)
        if self.warmup.tape and _tape(self) is None:
            text = "needs an end by sessions (or by requests of one turn each), the same in every traffic class"
            yield Mistake(("warmup", "tape"), text, ("warmup", "stop"))
        if self.place != "ray" and self.ray != RaySettings.usual():
            yield Mistake(("ray",), "needs place: ray (--on ray)", ("place", "ray"))
        if self.place != "kubernetes" and self.kubernetes != KubernetesSettings.usual():
            text = "needs place: kubernetes (--on kubernetes)"
            yield Mistake(("kubernetes",), text, ("place", "kubernetes"))
        stops = [self.stop, *(traffic.stop for traffic in self.traffic)]
        if self.kubernetes.claim and any(stop.precision or stop.lost for stop in stops):
            text = "excludes an end by precision or by a lost limit: these need the records during the load"
            yield Mistake(("kubernetes", "claim"), text, ("kubernetes", "stop"))
        paths = Counter(output.path for output in self.outputs)
        for at, output in enumerate(self.outputs):
            if paths[output.path] > 1:
                yield Mistake(("outputs", at, "path"), "must be unique: one output would overwrite the other")


def _tape(plan: Plan) -> int | None:
    """The number of sessions of each class after the warm-up, if it is known and equal for all classes."""
    parts: Sequence[Traffic | Plan] = plan.traffic or [plan]
    stops = [(part.stop.ending(part.load), part.workload) for part in parts]
    counts = {stop.sessions or (stop.requests if workload.single_turns else None) for stop, workload in stops}
    return counts.pop() if len(counts) == 1 and all(stop.duration is None for stop, _ in stops) else None


def _settle(part: Traffic | Plan) -> None:
    """Fill in derived settings: the rate from tokens per second, the requests from minutes, the end."""
    load = part.load.at_rate(part.workload.mean_input, part.workload.mean_output)
    object.__setattr__(part, "load", load)  # frozen, but still being made
    object.__setattr__(part, "stop", part.stop.ending(load, part.workload.is_finite))


def _of_class(part: Traffic | Plan) -> Iterator[Mistake]:
    yield from _of_tokens_per_s(part)
    if part.load.type == "ramp" and part.stop.duration is None:
        yield Mistake(("stop", "duration"), "is missing: a ramp needs to know how long it lasts", ("load", "stop"))
    requested = part.workload.requested_output
    least, most = part.sampling.min_tokens, None if requested is None else requested.most
    if least is not None and most is not None and least > most:
        yield Mistake(
            ("sampling", "min_tokens"),
            f"must be at most workload.output_tokens, {most}",
            ("sampling", "workload"),
        )


def _of_tokens_per_s(part: Traffic | Plan) -> Iterator[Mistake]:
    load, stop = part.load, part.stop
    if load.tokens_per_s is not None:
        settled = load.at_rate(part.workload.mean_input, part.workload.mean_output)
        if settled.rate is None:
            text = "needs lengths in the plan: workload.input_tokens and workload.output_tokens, or give a rate"
            yield Mistake(("load", "tokens_per_s"), text, ("load", "workload"))
        elif load.rate is not None and load.rate != settled.rate:
            text = f"must be omitted, or match tokens_per_s: {settled.rate:g}, got {load.rate:g}"
            yield Mistake(("load", "rate"), text, ("load", "workload"))
        load = settled
    if stop.minutes is not None and load.type not in short.RATE_TYPES:
        yield Mistake(("stop", "minutes"), f"counts requests of a rate, but load is {load.type}", ("load", "stop"))
    elif stop.minutes is not None and stop.requests not in (None, stop.ending(load).requests):
        text = f"must be omitted, or match minutes: {stop.ending(load).requests}, got {stop.requests}"
        yield Mistake(("stop", "requests"), text, ("load", "stop"))
    if load.type == "replay" and not isinstance(part.workload, TraceFile):
        text = f"must not be replay: a workload of type {part.workload.type} has no recorded times"
        yield Mistake(("load", "type"), text, ("load", "workload"))


def _counts_on_the_way(target: Target) -> bool:
    api = api_of(target.api)
    return target.stream and api.generates and not api.in_pieces


def _may_have_sound(workload: Workload) -> bool:
    """Whether a workload may have sound: by a table's columns; a dataset of the hub shows it only in its rows."""
    if isinstance(workload, Synthetic):
        shared = workload.prefix.media if workload.prefix is not None else None
        return workload.audio is not None or (shared is not None and shared.audio is not None)
    return workload.type == "huggingface" or "audio" in getattr(workload, "columns", {})


def _of_sharing(part: Traffic | Plan, plan: Plan) -> Iterator[Mistake]:
    for name in ("max_concurrency", "concurrency", "sessions_at_once"):
        slots = getattr(part.load, name)
        if slots is not None and slots < plan.workers:
            text = f"must be at least workers, {plan.workers}: each worker needs a share of it"
            yield Mistake(("load", name), text, ("load", "workers"))
    if (
        part.load.cancel is not None
        and part.load.cancel.after_tokens is not None
        and not _counts_on_the_way(plan.target)
    ):
        text = "needs answers that stream tokens as server-sent events: use after"
        yield Mistake(("load", "cancel", "after_tokens"), text, ("load", "target"))
    if part.sampling.structured is not None and plan.target.api not in ("chat", "completions", "responses"):
        text = f"needs api chat, completions or responses, got {plan.target.api}"
        yield Mistake(("sampling", "structured"), text, ("sampling", "target"))
    if plan.target.api in ("transcriptions", "translations") and not _may_have_sound(part.workload):
        text = f"is missing: api {plan.target.api} needs sound, made up or a dataset's column"
        yield Mistake(("workload", "audio"), text, ("workload", "target"))
    if getattr(part.workload, "prompt_as", "text") == "token_ids" and not api_of(plan.target.api).takes_ids:
        text = f"must be text: api {plan.target.api} takes no token ids"
        yield Mistake(("workload", "prompt_as"), text, ("workload", "target"))
    media: list[tuple[str, ...]] = getattr(part.workload, "media_fields", [])
    for field in media if not api_of(plan.target.api).takes_images else ():
        text = f"need api chat: only its messages hold them, got {plan.target.api}"
        yield Mistake(("workload", *field), text, ("workload", "target"))
