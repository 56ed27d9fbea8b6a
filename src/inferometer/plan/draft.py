"""A plan as plain settings by name, as a person or a translator of another tool's plan writes them, before the model
validates them. Every name of a section is listed, so a type checker detects wrong names; settings that are not set
are left out or None. A test compares these types with the model."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypedDict

from inferometer.documents.document import JsonValue

Setting: TypeAlias = JsonValue  # as written in a plan: 512, "2k", "100-500", {"mean": 512}; `plan.fields` reads them


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


class ImagesDraft(TypedDict, total=False):
    count: Setting
    width: int | None
    height: int | None
    sizes: Setting
    format: str | None
    content: str | None
    position: float | None


class VideosDraft(ImagesDraft, total=False):
    frames: int | None
    frames_per_second: float | None


class SoundsDraft(TypedDict, total=False):
    count: Setting
    duration: Setting
    durations: Setting
    content: str | None
    sampling: int | None
    position: float | None


class MediaDraft(TypedDict, total=False):
    images: ImagesDraft | None
    videos: VideosDraft | None
    audio: SoundsDraft | None


class PrefixDraft(TypedDict, total=False):
    tokens: Setting
    suffix_tokens: Setting
    groups: int | None
    prompts: int | None
    zipf: float | None
    hit_rate: float | None
    block: int | None
    prime: bool | None
    header: str | None
    media: MediaDraft | None


class ToolsDraft(TypedDict, total=False):
    turns: list[int]
    sent_with: str | None
    definitions: Setting
    response_tokens: Setting
    choice: Setting


class WorkloadDraft(TypedDict, total=False):
    """The fields of all kinds of workloads; the model has one class per kind."""

    type: str
    answer_tokens: Setting
    answers: str | None
    audio: SoundsDraft | None
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
    images: ImagesDraft | None
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
    prefix: PrefixDraft | None
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
    tools: ToolsDraft | None
    turn_interval: Setting
    turn_tokens: Setting
    turns: Setting
    unit: str | None
    unusable: str | None
    url: str | None
    videos: VideosDraft | None
    vocabulary: Setting
    where: Setting
    window: Setting


class ServerDraft(TypedDict, total=False):
    type: str
    model: str | None
    args: Mapping[str, Setting] | None
    flags: list[str] | None
    command: list[str] | None
    host: str | None
    port: int | str | None
    env: Mapping[str, str] | None
    folder: str | None
    prepare: Setting
    ready: Setting
    url: str | None
    image: str | None
    engine: str | None
    volumes: list[str] | None
    gpus: str | None
    ipc: str | None
    runtime: str | None
    pull: str | None
    entrypoint: str | None
    container_port: int | None
    replicas: int | None
    of: "ServerDraft | None"
    router: Setting
    keep: str | None
    reset_cache: bool | None
    exclusive: bool | None
    grace: Setting
    log_limit: Setting


class EngineDraft(TypedDict, total=False):
    """Fields that latency and throughput cases of an offline engine share."""

    engine: str
    model: str | None
    args: Mapping[str, Setting]
    env: Mapping[str, str]
    seed: int | None
    n: int | None


class LatencyDraft(EngineDraft, total=False):
    batch_size: Setting
    input_len: Setting
    output_len: Setting
    iters: int | None
    warmup: int | None


class ThroughputDraft(EngineDraft, total=False):
    workload: WorkloadDraft
    num_prompts: int | None
    warmup: int | None
    passes: int | None
    chat: bool | None
    adapter: str | None


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
    server: ServerDraft | None
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
    latency: LatencyDraft
    throughput: ThroughputDraft
    benchmark: Setting


class ServerUseDraft(TypedDict, total=False):
    restart: str


class LevelsDraft(TypedDict, total=False):
    path: str
    low: WhenDraft | float
    high: WhenDraft | float
    count: int | None
    spacing: str | None
    ends: str
    measure: str
    set: Mapping[str, Setting]


class ExperimentDraft(TypedDict, total=False):
    name: str | None
    about: str | None
    plan: PlanDraft
    latency: LatencyDraft
    throughput: ThroughputDraft
    benchmark: Setting
    set: Mapping[str, Setting]
    axes: Mapping[str, Sequence[Setting]]
    zip: Mapping[str, Sequence[Setting]]
    cases: list[CaseDraft]
    levels: LevelsDraft
    classes: Setting
    exclude: Setting
    repeats: int | None
    vary_seed: bool
    baseline: Setting
    time: Setting
    order: str
    shuffle_seed: int
    server: ServerUseDraft | None
    budget: Setting
    price_per_gpu_hour: float
    gpus: int
