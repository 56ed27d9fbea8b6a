"""`Summary`: a run as numbers, in seconds and tokens. `measure` makes it, everybody else reads its attributes; JSON is
its encoding (`record.encoding`). A section that a run has not, and a number that is unknown, is None, never 0 or NaN.
"""

from typing import Any, Literal

import msgspec

from inferometer.vocabulary import Direction

Ends = tuple[float | None, float | None]  # of an interval; None: open on that side
Loop = Literal["open", "closed", "mixed"]
TrendStatus = Literal["steady", "drifting", "unknown"]

OPEN: Ends = (None, None)
Json = Any  # settings of other programs, whose shape is theirs


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a summary."""


# -- one measure -----------------------------------------------------------------------------------------------------


class Adjusted(Part, frozen=True, kw_only=True):
    """Quantiles with failed requests as infinitely late. None that is not in `unknown` means infinitely late."""

    count: int
    failed: int
    statistics: dict[str, float | None] = {}
    intervals: dict[str, Ends] = {}
    unknown: dict[str, int] = {}  # quantile to the number of samples it needs


class MeasureSummary(Part, frozen=True, kw_only=True):
    """One measure over a set of requests. `statistics` has the mean, spread and quantiles by name: `mean`, `p99`."""

    unit: str = ""
    count: int | None = None
    undefined: int | None = None  # requests that have no such value
    tokens: int | None = None  # where a value belongs to several of them
    statistics: dict[str, float | None] = {}
    intervals: dict[str, Ends] = {}
    unknown: dict[str, int] = {}  # quantile to the number of samples it needs
    adjusted: Adjusted | None = None  # where requests failed
    title: str | None = None  # of a measure that is not in the vocabulary
    direction: Direction | None = None
    formula: str | None = None

    def __getitem__(self, statistic: str) -> float | None:
        return self.statistics.get(statistic)

    def interval(self, statistic: str) -> Ends:
        return self.intervals.get(statistic, OPEN)

    @property
    def mean(self) -> float | None:
        return self["mean"]

    @property
    def std(self) -> float | None:
        return self["std"]

    @property
    def min(self) -> float | None:
        return self["min"]

    @property
    def max(self) -> float | None:
        return self["max"]

    @property
    def p50(self) -> float | None:
        return self["p50"]

    @property
    def p90(self) -> float | None:
        return self["p90"]

    @property
    def p95(self) -> float | None:
        return self["p95"]

    @property
    def p99(self) -> float | None:
        return self["p99"]


class Value(Part, frozen=True, kw_only=True):
    """A number that a run has one of, with what a reader needs to know of it."""

    value: float | None
    unit: str = ""
    direction: Direction | None = None
    title: str | None = None
    interval: Ends | None = None


# -- the load and its window -----------------------------------------------------------------------------------------


class Trend(Part, frozen=True, kw_only=True):
    """`drift` is the change over the window as a share of the mean level."""

    status: TrendStatus
    p: float | None = None
    drift: float | None = None


class Steadiness(Part, frozen=True, kw_only=True):
    """One status for several series: drifting if any is, steady only if all are."""

    status: TrendStatus
    test: str
    p: float | None = None
    of: dict[str, Trend] = {}


class Backlog(Part, frozen=True, kw_only=True):
    """Growth of what was due and not yet done over the window's second half."""

    growth: float
    status: TrendStatus
    growth_share: float | None = None
    p: float | None = None
    time_in_system_s: float | None = None


class WindowSummary(Part, frozen=True, kw_only=True):
    """Which stretch of the run the numbers are of, in seconds since its start."""

    rule: str = ""
    length_s: float | None = None
    run_s: float | None = None
    requests: int | None = None
    start_s: float | None = None
    end_s: float | None = None
    steady: Steadiness | None = None
    backlog: Backlog | None = None


class Rate(Part, frozen=True, kw_only=True):
    """Per second: over the window, over the whole run, and in the busiest second."""

    unit: str = ""
    window: float | None = None
    run: float | None = None
    peak_1s: float | None = None
    interval: Ends | None = None


class Little(Part, frozen=True, kw_only=True):
    """Little's law, N = X * R: requests in flight, requests per second, seconds in flight."""

    n: float
    x_per_s: float
    r_s: float
    x_times_r: float
    ratio: float


class Concurrency(Part, frozen=True, kw_only=True):
    unit: str = "requests"
    mean: float | None = None
    max: int | None = None
    requested: int | None = None
    little: Little | None = None


class Kolmogorov(Part, frozen=True, kw_only=True):
    """The Kolmogorov-Smirnov test of the gaps between arrivals against the process that the plan names."""

    statistic: float
    p: float


class Lateness(Part, frozen=True, kw_only=True):
    """Send delay in seconds of everything that was sent, warm-up included."""

    p50: float | None = None
    p99: float | None = None
    max: float | None = None


class Delivery(Part, frozen=True, kw_only=True):
    """Whether the offered load was the planned one: nothing missing, nothing late, and the process that was named."""

    arrivals: int
    sent: int
    unsent: int
    resent: int
    lateness: Lateness
    planned: int | None = None
    shortfall: int | None = None
    process: str | None = None  # of an open loop, as what follows
    gaps_of: Literal["scheduled_at", "sent_at"] | None = None
    gaps: int | None = None
    gap_mean: float | None = None  # in planned gaps: 1 is as planned
    gap_cv: float | None = None
    gap_cv_named: float | None = None
    dispersion: float | None = None
    ks: Kolmogorov | None = None


class Slice(Part, frozen=True, kw_only=True):
    """An equal piece of the run's time; `ttft_*` are quantiles of the slices' measure."""

    t: float
    offered_per_s: float
    tokens_per_s: float | None
    in_flight: float
    ttft_p50: float | None
    ttft_p90: float | None
    failures: int


class Slices(Part, frozen=True, kw_only=True):
    width_s: float
    measure: str
    rows: list[Slice] = []


# -- what came of the requests ---------------------------------------------------------------------------------------


class Goodput(Part, frozen=True, kw_only=True):
    """Requests scheduled in the window that met every limit."""

    unit: str
    window: float | None
    share: float | None
    met: int
    missed: int
    undefined: int
    censored: int
    limits: list[str]


class Attainment(Part, frozen=True, kw_only=True):
    """The share of requests that kept a limit, with its interval, and the share that the limit requires."""

    limit: str
    share: float | None
    interval: Ends
    required: float


class Stalls(Part, frozen=True, kw_only=True):
    over_s: float
    share: float | None


class Failures(Part, frozen=True, kw_only=True):
    """Among the requests of the window; censored ones are neither failed nor answered."""

    failure_rate: float | None = None
    failed: int | None = None
    first: str | None = None  # what the first request that failed was told
    censored: int | None = None
    by_outcome: dict[str, float] = {}


class ErrorCount(Part, frozen=True, kw_only=True):
    message: str
    count: int


class LimitResult(Part, frozen=True, kw_only=True):
    """A limit of the plan, judged. `met` None: it can be shown neither met nor broken."""

    limit: str
    value: float | None
    met: bool | None
    text: str
    needed: int | None = None  # requests that would decide it, where it is undecided
    traffic: str | None = None


class PrecisionResult(Part, frozen=True, kw_only=True):
    """What a required precision came to."""

    requested: str
    measure: str
    stat: str
    value: float | None
    interval: Ends
    within: float | None
    met: bool


class Goal(Part, frozen=True, kw_only=True):
    """Why a traffic class ended before its time: its number is known well enough, or a limit is lost."""

    traffic: str
    why: str
    status: Literal["precise", "lost"] | None = None
    at: int | None = None


class Sessions(Part, frozen=True, kw_only=True):
    """Sessions whose first turn is in the window."""

    count: int
    complete: int
    measures: dict[str, MeasureSummary] = {}


# -- how exact the numbers are ---------------------------------------------------------------------------------------


class Difference(Part, frozen=True, kw_only=True):
    """Two counts of tokens, over the requests that have both."""

    requests: int
    differ: int
    fewer: int
    difference: float | None


class InputTokens(Part, frozen=True, kw_only=True):
    requested: int | None
    reported: int | None
    requested_against_reported: Difference


class OutputTokens(Part, frozen=True, kw_only=True):
    requested: int | None
    reported: int | None
    counted: int
    requested_against_reported: Difference
    reported_against_counted: Difference
    counted_by: dict[str, int]
    estimated: int


class CachedTokens(Part, frozen=True, kw_only=True):
    reported: int | None
    share: float | None


class Tokens(Part, frozen=True, kw_only=True):
    """Tokens requested, reported and counted: where they disagree, no number per token can be trusted."""

    input: InputTokens
    output: OutputTokens
    cached: CachedTokens
    finish_reasons: dict[str, int]


class Slack(Part, frozen=True, kw_only=True):
    """The uncertainty of reads in seconds, and in how many it is large against what is reported."""

    p50: float | None
    p99: float | None
    large: int
    large_share: float | None


class Uncertainty(Part, frozen=True, kw_only=True):
    first_read: Slack
    read: Slack
    last_read: Slack


class Instrument(Part, frozen=True, kw_only=True):
    """The load generator's own error at this run's load."""

    stamps: str | None
    calibrated: bool
    workers: int
    streams: int
    events_per_s: float
    ttft_error_p50: float | None = None
    ttft_error_p99: float | None = None
    read_error_p50: float | None = None
    read_error_p99: float | None = None
    cpu_s_per_million: float | None = None
    ceiling_share: float | None = None
    extrapolated: bool | None = None


# -- what was sampled during the load --------------------------------------------------------------------------------


class SourceProblem(Part, frozen=True, kw_only=True):
    text: str = ""
    count: int | None = None
    source: str | None = None
    wanted: bool | None = None


class MetricsSource(Part, frozen=True, kw_only=True):
    """An endpoint that was scraped."""

    url: str
    engine: str | None = None
    names: dict[str, str] = {}
    config: dict[str, str] = {}
    scrapes: int = 0
    failed: int | None = None
    span_s: float | None = None
    restarts: int = 0
    wanted: bool = False
    problems: list[SourceProblem] = []


class Counter(Part, frozen=True, kw_only=True):
    grown: float
    unit: str
    resets: int
    by_source: dict[str, float]


class HistogramSummary(Part, frozen=True, kw_only=True):
    unit: str
    count: float
    sum: float
    mean: float | None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    buckets: dict[str, Ends] = {}


class Gauge(Part, frozen=True, kw_only=True):
    unit: str
    mean: float
    max: float


class CountAgreement(Part, frozen=True, kw_only=True):
    """What the client and the server counted."""

    client: float | None
    unsure: float
    server: float | None
    difference: float | None
    agree: bool | None


class TtftAgreement(Part, frozen=True, kw_only=True):
    client: float
    server: float
    wire: float
    allowed: float
    agree: bool


class Conservation(Part, frozen=True, kw_only=True):
    requests: CountAgreement
    prompt_tokens: CountAgreement
    generation_tokens: CountAgreement
    ttft: TtftAgreement | None = None


class ServerSummary(Part, frozen=True, kw_only=True):
    """What the servers reported during the load, pooled over the replicas."""

    sources: list[MetricsSource]
    counters: dict[str, Counter]
    finished: dict[str, float]
    histograms: dict[str, HistogramSummary]
    gauges: dict[str, Gauge]
    prefix_hit_rate: float | None
    complete: bool
    restarted: bool
    conservation: Conservation | None = None


class Sampled(Part, frozen=True, kw_only=True):
    """A series of samples within the window."""

    unit: str
    mean: float
    min: float
    max: float


class Energy(Part, frozen=True, kw_only=True):
    """Joules; where they are unknown, why."""

    j: float | None
    interval: Ends | None = None
    by: str | None = None
    why: str | None = None


class GpuSummary(Part, frozen=True, kw_only=True):
    index: int
    samples: int
    throttled: dict[str, float]
    energy: Energy
    memory_total_bytes: float | None = None
    memory_used_bytes: Sampled | None = None
    utilization_share: Sampled | None = None
    memory_utilization_share: Sampled | None = None
    power_w: Sampled | None = None
    sm_clock_hz: Sampled | None = None
    memory_clock_hz: Sampled | None = None
    temperature_c: Sampled | None = None


class GpusSummary(Part, frozen=True, kw_only=True):
    gpus: list[GpuSummary]
    window_s: float
    energy: Energy


class HostSummary(Part, frozen=True, kw_only=True):
    """The machine of the load generator during the load."""

    cpu_share: float | None = None
    steal_share: float | None = None
    cpu_pressure_share: float | None = None
    received_bytes_per_s: float | None = None
    sent_bytes_per_s: float | None = None
    retransmitted_segments_per_s: float | None = None
    least_memory_available_bytes: float | None = None


class ObserverSummary(Part, frozen=True, kw_only=True):
    """What the samplers themselves used, and what went wrong with those that are no servers."""

    cpu_s: float | None
    problems: list[SourceProblem]


# -- runs without a server -------------------------------------------------------------------------------------------


class BatchCase(Part, frozen=True, kw_only=True):
    """One batch size with its lengths. A failed one has its `error`, and what was measured before it."""

    batch_size: int
    input_len: int | None
    output_len: int | None
    iters: int
    name: str
    latencies: list[float] = []
    n: int = 1
    output_tokens: int | None = None
    error: str | None = None
    state: Literal["complete", "failed", "interrupted"] = "complete"
    output_rate: float | None = None


class Pass(Part, frozen=True, kw_only=True):
    """Once through a whole workload."""

    elapsed_s: float
    requests: int
    input_tokens: int
    output_tokens: int


class Process(Part, frozen=True, kw_only=True):
    name: str
    pid: int | None = None
    first_at: str | None = None


class Phase(Part, frozen=True, kw_only=True):
    """A phase of a server's start, and the lines of its log that show it."""

    name: str
    title: str
    seconds: float
    inside: str | None = None
    process: str | None = None
    interval: Ends | None = None
    by: str | None = None
    began_at: str | None = None
    began_s: float | None = None
    lines: list[int] = []
    wording: str | None = None
    versions: str | None = None
    size_bytes: float | None = None


class Unmatched(Part, frozen=True, kw_only=True):
    """A phase that should be in the log, and the wordings that were looked for."""

    name: str
    title: str
    looked_for: list[str] = []


class Sleep(Part, frozen=True, kw_only=True):
    """A server that slept: what that freed in bytes, and how long it took to wake up."""

    seconds: float | None = None
    wake_seconds: float | None = None
    freed_bytes: float | None = None
    in_use_bytes: float | None = None


class MeasuredSleep(Part, frozen=True, kw_only=True):
    """Sleep and wake-up by our own clock."""

    level: int
    sleep_s: float | None = None
    wake_s: float | None = None


class Startup(Part, frozen=True, kw_only=True):
    """How a server's start went, by its log."""

    engine: str | None = None
    state: Literal["complete", "partial"] = "partial"
    version: str | None = None
    platform: str | None = None
    model: str | None = None
    load_format: str | None = None
    parallel: dict[str, int] = {}
    arguments: dict[str, Json] = {}
    device: str | None = None
    eager: bool | None = None
    serves: bool | None = None
    cache: str | None = None
    started_at: str | None = None
    ready_at: str | None = None
    resolution_s: float | None = None
    ready_in_log_s: float | None = None
    before_log_s: float | None = None
    unexplained_s: float | None = None
    processes: list[Process] = []
    phases: list[Phase] = []
    unmatched: list[Unmatched] = []
    not_run: list[str] = []
    sleeps: list[Sleep] = []
    why: str | None = None  # nothing of the log could be read
    requested_sleep: MeasuredSleep | None = None


class Reported(Part, frozen=True, kw_only=True):
    """The numbers that an imported file states itself, where ours are of the requests in it."""

    measures: dict[str, MeasureSummary] = {}
    rates: dict[str, Rate] = {}


# -- the whole -------------------------------------------------------------------------------------------------------


class Section(Part, frozen=True, kw_only=True):
    """All numbers of one window: of a run, of a stage, or of a traffic class."""

    loop: Loop | None = None
    confidence: float = 0.95
    headline: list[str] = []
    headline_quantiles: list[str] = []
    window: WindowSummary = WindowSummary()
    measures: dict[str, MeasureSummary] = {}
    rates: dict[str, Rate] = {}
    concurrency: Concurrency = Concurrency()
    goodput: Goodput | None = None
    attainment: list[Attainment] = []
    stalls: Stalls | None = None
    outcomes: dict[str, int] = {}
    failures: Failures = Failures()
    errors: list[ErrorCount] = []
    tokens: Tokens | None = None
    uncertainty: Uncertainty | None = None
    sessions: Sessions | None = None


class StageSummary(Section, frozen=True, kw_only=True):
    stage: int


class ClassSummary(Section, frozen=True, kw_only=True):
    """One traffic class, or all of a run with one class."""

    precision: PrecisionResult | None = None
    goal: Goal | None = None
    delivery: Delivery | None = None
    stages: list[StageSummary] = []


class Summary(ClassSummary, frozen=True, kw_only=True):
    """Everything about a run that its records and samples show."""

    instrument: Instrument | None = None
    slices: Slices | None = None
    traffic: dict[str, ClassSummary] = {}
    server: ServerSummary | None = None
    gpu: GpusSummary | None = None
    host: HostSummary | None = None
    observer: ObserverSummary | None = None
    values: dict[str, Value] = {}
    limits: list[LimitResult] = []
    cases: list[BatchCase] = []  # of offline latency
    engine_starts: int | None = None
    passes: list[Pass] = []  # of offline throughput
    requests: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    startup: Startup | None = None
    reported: Reported | None = None  # of an imported run, as what follows
    definitions: dict[str, str] = {}
    notes: list[str] = []
