"""A plan as plain settings by name, as a person or a translator of another tool's plan writes them, before the model
validates them. Every name of a section is listed, so a type checker detects wrong names; settings that are not set
are left out or None. A test compares these types with the model."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

Setting = Any  # a value as written in a plan: 512, "2k", "100-500", {"mean": 512, "std": 100}; `plan.fields` reads them


class TargetDraft(TypedDict, total=False):
    url: str | list[str] | None
    model: str | None
    api: str | None
    path: str | None
    body: str | None
    stream: bool | None
    continuous_usage: bool | None
    headers: Mapping[str, str] | None
    session_header: str | None
    key_env: str | None
    tls: Mapping[str, bool | str | None] | None
    proxy: str | None
    timeout: Mapping[str, float | str | None] | None
    bounds: Mapping[str, float | str | None] | None
    preconnect: bool | None
    exclusive: bool | None


class StageDraft(TypedDict, total=False):
    duration: Setting
    rate: float | None
    to: float | None
    concurrency: int | None
    process: str | None
    cv: float | None


class LoadDraft(TypedDict, total=False):
    type: str
    rate: float | None
    to: float | None
    tokens_per_s: float | None
    cv: float | None
    concurrency: int | None
    max_concurrency: int | None
    sessions_at_once: int | None
    in_turn: bool | None
    speed: float | None
    cancel: Mapping[str, float | str | int | None] | None
    stages: Sequence[StageDraft]


class StopDraft(TypedDict, total=False):
    requests: int | None
    minutes: float | None
    duration: Setting
    sessions: int | None
    whole_sessions: bool | None
    errors: int | None
    precision: Setting
    at_most: Setting
    lost: bool | None
    drain: Setting


class WarmupDraft(TypedDict, total=False):
    requests: int | None
    duration: Setting
    tape: bool | None


class SamplingDraft(TypedDict, total=False):
    ignore_eos: bool | None
    min_tokens: int | None
    temperature: float | None
    top_p: float | None
    stop: str | list[str] | None
    structured: Setting
    extra: Mapping[str, Setting] | None  # fields of every request's body


class OutputDraft(TypedDict, total=False):
    format: str
    path: str


class ObserveDraft(TypedDict, total=False):
    gpu: Setting
    metrics: Setting
    router: Setting
    host: bool | None
    interval: Setting
    profiler: bool | None


class WorkloadDraft(TypedDict, total=False):
    """The fields of all kinds of workloads; the model has one class per kind."""

    type: str
    answer_tokens: Setting
    answers: str | None
    audio: Setting
    below_tokens: int | None
    block_tokens: int | None
    checksum: str | None
    columns: dict[str, str]
    conversations: int | str | None
    count: int | None
    documents: int | None
    errors: bool | None
    files: Setting
    groups: int | None
    history: str | None
    images: Setting
    input_tokens: Setting
    limit: int | None
    max_context: int | None
    max_gap: Setting
    max_output_tokens: int | None
    max_tokens: Setting
    max_total_tokens: int | None
    max_wait: Setting
    min_messages: int | None
    min_output_tokens: int | None
    min_tokens: Setting
    model: str | None
    models: Setting
    nonce_tokens: int | None
    once: bool | None
    output_tokens: Setting
    pairs: Setting
    path: str | None
    paths: list[str] | None
    pieces: int | None
    prefix: Setting
    prefix_chars: int | None
    prefix_header: str | None
    prefix_tokens: int | None
    prompt_as: str | None
    question_tokens: Setting
    repeat: Setting
    repo: str | None
    shuffle: bool | None
    skip: Setting
    sort: bool | None
    split: str | None
    subset: str | None
    template: str | None
    text: str | None
    think: Setting
    tokenizer: str | None
    tools: Setting
    turn_interval: Setting
    turn_tokens: Setting
    turns: Setting
    unit: str | None
    unusable: str | None
    url: str | None
    videos: Setting
    vocabulary: Setting
    where: Setting
    window: Setting


class WhenDraft(TypedDict, total=False):
    """The sections of a plan that the reader of a load makes together."""

    load: LoadDraft
    stop: StopDraft


class ClassDraft(TypedDict, total=False):
    """A traffic class."""

    name: str
    workload: WorkloadDraft
    load: LoadDraft
    sampling: SamplingDraft
    stop: StopDraft
    limits: list[str]
    headers: Mapping[str, str]


class PlanDraft(TypedDict, total=False):
    name: str | None
    about: str | None
    target: TargetDraft
    server: Setting
    workload: WorkloadDraft
    load: LoadDraft
    sampling: SamplingDraft
    stop: StopDraft | None
    warmup: WarmupDraft | int | None
    limits: list[str]
    traffic: list[ClassDraft]
    outputs: Sequence[OutputDraft]
    save: Mapping[str, bool] | None
    observe: ObserveDraft | None
    seed: int | None
    workers: int | None
    place: str
    ray: Setting
    kubernetes: Setting
    confidence: float


class CaseDraft(TypedDict, total=False):
    name: str
    set: Mapping[str, Setting]
    plan: PlanDraft
    latency: Setting
    throughput: Setting
    benchmark: Setting


class ExperimentDraft(TypedDict, total=False):
    name: str | None
    about: str | None
    plan: PlanDraft
    latency: Setting
    throughput: Setting
    benchmark: Setting
    set: Mapping[str, Setting]
    axes: Mapping[str, Sequence[Setting]]
    zip: Mapping[str, Sequence[Setting]]
    cases: list[CaseDraft]
    levels: Setting
    classes: Setting
    exclude: Setting
    repeats: int | None
    vary_seed: bool
    baseline: Setting
    time: Setting
    order: str
    shuffle_seed: int
    server: str
    budget: Setting
    price_per_gpu_hour: float
    gpus: int
