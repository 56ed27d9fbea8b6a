"""`Summary`: a run as numbers, in seconds and tokens. `measure` creates it, everything else reads its attributes; JSON
is its encoding (`record.encoding`). A section that a run does not have, and a number that is unknown, is None, never 0
or NaN."""

from typing import Literal

import msgspec

from inferometer.documents.document import JsonValue
from inferometer.vocabulary import Direction

Ends = tuple[float | None, float | None]  # of an interval; None: open on that side
Loop = Literal["open", "closed", "mixed"]
TrendStatus = Literal["steady", "drifting", "unknown"]

OPEN: Ends = (None, None)


class SummaryPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a summary."""


# -- one measure -----------------------------------------------------------------------------------------------------


class Adjusted(SummaryPart, frozen=True, kw_only=True):
    """Quantiles with failed requests counted as infinitely late (null)."""

    count: int
    failed: int
    statistics: dict[str, float | None] = {}
    intervals: dict[str, Ends] = {}
    weak: dict[str, int] = {}  # by quantile: number of samples needed for a two-sided interval


class MeasureSummary(SummaryPart, frozen=True, kw_only=True):
    """One measure over a set of requests. `statistics` has the mean, spread and quantiles by name: `mean`, `p99`."""

    unit: str = ""
    count: int | None = None
    undefined: int | None = None  # number of requests without this value
    tokens: int | None = None  # number of tokens, if a value covers several
    statistics: dict[str, float | None] = {}
    intervals: dict[str, Ends] = {}
    weak: dict[str, int] = {}  # by quantile: number of samples needed for a two-sided interval
    adjusted: Adjusted | None = None  # with failed requests counted as infinitely late
    title: str | None = None  # title of a measure that is not in the vocabulary
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


class Value(SummaryPart, frozen=True, kw_only=True):
    """A single number of a run, with unit, direction and title."""

    value: float | None
    unit: str = ""
    direction: Direction | None = None
    title: str | None = None
    interval: Ends | None = None


# -- the load and its window -----------------------------------------------------------------------------------------


class LevelsOfPart(SummaryPart, frozen=True, kw_only=True):
    """Statistics of a latency in a part of the window, in seconds since its start, and outside of that part."""

    start_s: float
    end_s: float
    inside: dict[str, float]  # by statistic
    outside: dict[str, float]  # by statistic

    @property
    def difference(self) -> float:
        """The difference of the means, as a share of the smaller one."""
        ends = [level.get("mean", 0.0) for level in (self.inside, self.outside)]
        return max(ends) / min(ends) - 1 if min(ends) > 0 else 0.0


class Trend(SummaryPart, frozen=True, kw_only=True):
    """`drift` is the change over the window as a share of the mean level; for a `bend`, it is how much higher the two
    ends are than the middle."""

    status: TrendStatus
    p: float | None = None
    drift: float | None = None
    bend: bool = False
    levels: LevelsOfPart | None = None  # levels of a latency that drifts


class Steadiness(SummaryPart, frozen=True, kw_only=True):
    """One status for several series: drifting if any is, steady only if all are."""

    status: TrendStatus
    test: str
    p: float | None = None
    of: dict[str, Trend] = {}


class Backlog(SummaryPart, frozen=True, kw_only=True):
    """Growth of the backlog of due but unfinished requests over the second half of the window."""

    growth: float
    status: TrendStatus
    growth_share: float | None = None
    p: float | None = None
    time_in_system_s: float | None = None
    time_in_system: Trend | None = None  # trend of the time in system
    waiting_share: float | None = None  # of the load: its last part in which no request was answered promptly
    waiting_growth: float | None = None  # mean TTFT of the load's last quarter over that of its first half


class WindowSummary(SummaryPart, frozen=True, kw_only=True):
    """The part of the run that the numbers are computed from, in seconds since its start."""

    rule: str = ""
    length_s: float | None = None
    run_s: float | None = None
    requests: int | None = None
    start_s: float | None = None
    end_s: float | None = None
    steady: Steadiness | None = None
    backlog: Backlog | None = None
    clock_error_s: float | None = None  # by which the window's edges differ between hosts; null: one host


Basis = Literal["window", "span", "file"]


class Rate(SummaryPart, frozen=True, kw_only=True):
    """A rate per second. `value` is the headline: over the window if it is long enough, else over the span from the
    first request sent to the last token; for an imported run the value stated in its file. `basis` names which."""

    unit: str = ""
    value: float | None = None
    basis: Basis = "window"
    window: float | None = None
    span: float | None = None
    peak_1s: float | None = None
    interval: Ends | None = None
    clock_error: float | None = None  # possible error of `value` because the hosts' clocks differ; null: one host

    def over(self, basis: Basis | None) -> float | None:
        """The rate on one basis for all sides of a comparison; a rate stated in a file is treated like the span's."""
        if basis in (None, self.basis) or self.basis == "file":
            return self.value
        return self.window if basis == "window" else self.span


class Little(SummaryPart, frozen=True, kw_only=True):
    """Little's law, N = X * R: requests in flight, requests per second, seconds in flight."""

    n: float
    x_per_s: float
    r_s: float
    x_times_r: float
    ratio: float


class Concurrency(SummaryPart, frozen=True, kw_only=True):
    """Requests in flight, averaged over time: `mean` over the basis of the rates, `window` over the window."""

    unit: str = "requests"
    mean: float | None = None
    window: float | None = None
    max: int | None = None
    requested: int | None = None
    little: Little | None = None
    clock_error: float | None = None  # possible error of `mean` because the hosts' clocks differ; null: one host


class Kolmogorov(SummaryPart, frozen=True, kw_only=True):
    """The Kolmogorov-Smirnov test of the gaps between arrivals against the planned process."""

    statistic: float
    p: float


class Lateness(SummaryPart, frozen=True, kw_only=True):
    """Send delay in seconds of all requests, including warm-up."""

    p50: float | None = None
    p99: float | None = None
    max: float | None = None
    moves: dict[str, float] = {}  # by number: increase due to late sending; for a rate, the share it loses


class WorkerDelivery(SummaryPart, frozen=True, kw_only=True):
    """A worker that did not deliver its share as planned."""

    worker: int  # number of the worker, from 0
    status: Literal["late start", "lagging", "lost"]  # the problem
    host: str | None = None  # host name, if it ran elsewhere
    why: str | None = None  # how a lost worker ended
    planned: int | None = None  # sessions of its share, in an open loop
    arrivals: int | None = None  # sessions of its share that were started
    late_start_s: float | None = None  # start delay after the common start
    send_delay_p99_s: float | None = None


class Delivery(SummaryPart, frozen=True, kw_only=True):
    """Whether the offered load was the planned one: no missing requests, no late ones, the planned arrival process."""

    arrivals: int
    sent: int
    unsent: int
    resent: int
    lateness: Lateness
    planned: int | None = None
    shortfall: int | None = None
    process: str | None = None  # arrival process of an open loop
    gaps_of: Literal["scheduled_at", "sent_at"] | None = None
    gaps: int | None = None
    gap_mean: float | None = None  # mean gap relative to the plan: 1 is as planned
    gap_cv: float | None = None
    gap_cv_named: float | None = None
    dispersion: float | None = None
    ks: Kolmogorov | None = None
    workers: list[WorkerDelivery] = []  # those that started late, lagged or were lost


class Slice(SummaryPart, frozen=True, kw_only=True):
    """An equal piece of the run's time; `ttft_*` are quantiles of the slices' measure."""

    t: float
    offered_per_s: float
    tokens_per_s: float | None
    in_flight: float
    ttft_p50: float | None
    ttft_p90: float | None
    failures: int


class Slices(SummaryPart, frozen=True, kw_only=True):
    width_s: float
    measure: str
    rows: list[Slice] = []


# -- what came of the requests ---------------------------------------------------------------------------------------


class Goodput(SummaryPart, frozen=True, kw_only=True):
    """Requests per second that met every limit: `value` over the basis of the rates. The counts are of the window."""

    unit: str
    value: float | None
    window: float | None
    span: float | None
    share: float | None
    met: int
    missed: int
    undefined: int
    censored: int
    limits: list[str]


class Attainment(SummaryPart, frozen=True, kw_only=True):
    """The share of requests that met a limit, with its confidence interval, and the share that the limit requires."""

    limit: str
    share: float | None
    interval: Ends
    required: float
    needed: int | None = None  # number of requests that would decide it, if the share stays the same


class Stalls(SummaryPart, frozen=True, kw_only=True):
    over_s: float
    share: float | None


class StructureSummary(SummaryPart, frozen=True, kw_only=True):
    """Answers in the window that were checked for the structure that the plan requires."""

    valid: int  # answers that have the structure
    invalid: int  # complete answers that do not
    unchecked: int = 0  # complete answers whose check took too long
    share: float | None = None  # valid / (valid + invalid)


class Failures(SummaryPart, frozen=True, kw_only=True):
    """Among the requests of the window; censored ones are neither failed nor answered."""

    failure_rate: float | None = None
    failed: int | None = None
    first: str | None = None  # error of the first failed request
    censored: int | None = None
    by_outcome: dict[str, float] = {}


class ErrorCount(SummaryPart, frozen=True, kw_only=True):
    message: str
    count: int


class LimitResult(SummaryPart, frozen=True, kw_only=True):
    """A limit of the plan, judged. `met` null: too few samples to decide."""

    limit: str
    value: float | None
    met: bool | None
    text: str
    needed: int | None = None  # requests needed to decide it, if it is undecided
    traffic: str | None = None


class PrecisionResult(SummaryPart, frozen=True, kw_only=True):
    """Result of a required precision."""

    requested: str
    measure: str
    stat: str
    value: float | None
    interval: Ends
    within: float | None
    met: bool


GoalStatus = Literal["precise", "lost"]
GOAL_STATUSES: dict[str, GoalStatus] = {"precise": "precise", "lost": "lost"}


class Goal(SummaryPart, frozen=True, kw_only=True):
    """Why a traffic class stopped early: the precision is reached, or a limit is certainly missed."""

    traffic: str
    why: str
    status: GoalStatus | None = None
    at: int | None = None


class Sessions(SummaryPart, frozen=True, kw_only=True):
    """Sessions whose first turn is in the window."""

    count: int
    complete: int
    measures: dict[str, MeasureSummary] = {}


# -- how exact the numbers are ---------------------------------------------------------------------------------------


class Difference(SummaryPart, frozen=True, kw_only=True):
    """Two counts of tokens, over the requests that have both."""

    requests: int
    differ: int
    fewer: int
    difference: float | None


class InputTokens(SummaryPart, frozen=True, kw_only=True):
    requested: int | None
    reported: int | None
    requested_against_reported: Difference


class OutputTokens(SummaryPart, frozen=True, kw_only=True):
    requested: int | None
    reported: int | None
    counted: int
    requested_against_reported: Difference
    reported_against_counted: Difference
    counted_by: dict[str, int]
    estimated: int


class CachedTokens(SummaryPart, frozen=True, kw_only=True):
    reported: int | None
    share: float | None


class Tokens(SummaryPart, frozen=True, kw_only=True):
    """Tokens requested, reported and counted: if they disagree, no number per token can be trusted."""

    input: InputTokens
    output: OutputTokens
    cached: CachedTokens
    finish_reasons: dict[str, int]
    in_one_piece: float | None = None  # share of the longer answers that arrived in one event; null if all were short


class Slack(SummaryPart, frozen=True, kw_only=True):
    """The uncertainty of reads in seconds, and the share of reads where it is large compared with the measures."""

    p50: float | None
    p99: float | None
    large: int
    large_share: float | None


class FirstTokens(SummaryPart, frozen=True, kw_only=True):
    """How many tokens arrived with the first read. The server or the network may have joined them before they reached
    us: that makes the instant no less certain; its uncertainty is in `first_read`."""

    several: int  # answers with more than one token in the first read
    several_share: float | None  # share of these answers, 0 to 1
    most: int | None  # most tokens in a first read


class Uncertainty(SummaryPart, frozen=True, kw_only=True):
    first_read: Slack
    read: Slack
    last_read: Slack
    moves: dict[str, float] = {}  # by number: the seconds by which it may be off
    first_tokens: FirstTokens | None = None


class Instrument(SummaryPart, frozen=True, kw_only=True):
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


class HostClockSummary(SummaryPart, frozen=True, kw_only=True):
    """The monotonic clock of a host with workers, compared with the clock of the host that drives them."""

    host: str  # host name
    workers: int  # number of workers on it
    offset_s: float | None = None  # of the first reading; null: not measured
    drift_ppm: float | None = None  # clock rate error in parts per million; positive: runs fast
    uncertainty_s: float | None = None  # half the smallest round trip; 0 on the driving host; null: not measured
    readings: int | None = None  # number of readings that the correction is based on
    jump_s: float | None = None  # largest jump between two readings; null: none


class Clocks(SummaryPart, frozen=True, kw_only=True):
    """How well the hosts of the workers agree on the time."""

    hosts: list[HostClockSummary]
    uncertainty_s: float | None  # between instants of any two hosts; null: not measured
    start_spread_s: float | None = None  # at most, from the first worker's start to the last one's; null: not measured


# -- what was sampled during the load --------------------------------------------------------------------------------


class SourceProblem(SummaryPart, frozen=True, kw_only=True):
    text: str = ""
    count: int | None = None
    source: str | None = None
    wanted: bool | None = None


class MetricsSource(SummaryPart, frozen=True, kw_only=True):
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
    prefix_hit_rate: float | None = None  # share of prompt tokens that were in its cache


class Counter(SummaryPart, frozen=True, kw_only=True):
    grown: float
    unit: str
    resets: int
    by_source: dict[str, float]


class HistogramSummary(SummaryPart, frozen=True, kw_only=True):
    unit: str
    count: float
    sum: float
    mean: float | None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    buckets: dict[str, Ends] = {}


class Gauge(SummaryPart, frozen=True, kw_only=True):
    unit: str
    mean: float
    max: float


class CountAgreement(SummaryPart, frozen=True, kw_only=True):
    """What the client and the server counted."""

    client: float | None
    unsure: float
    server: float | None
    difference: float | None
    agree: bool | None


class TtftAgreement(SummaryPart, frozen=True, kw_only=True):
    client: float
    server: float
    wire: float
    allowed: float
    agree: bool


class Conservation(SummaryPart, frozen=True, kw_only=True):
    requests: CountAgreement
    prompt_tokens: CountAgreement
    generation_tokens: CountAgreement
    ttft: TtftAgreement | None = None


class Speculation(SummaryPart, frozen=True, kw_only=True):
    """Speculative decoding, as the servers counted it during the load."""

    acceptance_rate: float | None
    acceptance_length: float | None
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None


class ServerSummary(SummaryPart, frozen=True, kw_only=True):
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
    speculation: Speculation | None = None


class Sampled(SummaryPart, frozen=True, kw_only=True):
    """A series of samples within the window."""

    unit: str
    mean: float
    min: float
    max: float


class Energy(SummaryPart, frozen=True, kw_only=True):
    """Joules; `why` states the reason if they are unknown."""

    j: float | None
    interval: Ends | None = None
    by: str | None = None
    why: str | None = None


class GpuSummary(SummaryPart, frozen=True, kw_only=True):
    index: int
    host: str | None = None  # name in DCGM's exporter; null: this machine
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


class GpusSummary(SummaryPart, frozen=True, kw_only=True):
    gpus: list[GpuSummary]
    window_s: float
    energy: Energy


class HostSummary(SummaryPart, frozen=True, kw_only=True):
    """The machine of the load generator during the load."""

    cpu_share: float | None = None
    steal_share: float | None = None
    cpu_pressure_share: float | None = None
    received_bytes_per_s: float | None = None
    sent_bytes_per_s: float | None = None
    retransmitted_segments_per_s: float | None = None
    least_memory_available_bytes: float | None = None


class ObserverSummary(SummaryPart, frozen=True, kw_only=True):
    """Resource use of the samplers, and problems with sources other than servers."""

    cpu_s: float | None
    problems: list[SourceProblem]


# -- runs without a server -------------------------------------------------------------------------------------------


class BatchCase(SummaryPart, frozen=True, kw_only=True):
    """One batch size with its lengths. A failed case has its `error`, and the values measured before it."""

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


class Pass(SummaryPart, frozen=True, kw_only=True):
    """One repeat of a whole workload."""

    elapsed_s: float
    requests: int
    input_tokens: int
    output_tokens: int


class Process(SummaryPart, frozen=True, kw_only=True):
    name: str
    pid: int | None = None
    host: str | None = None  # its address, if the log names one
    first_at: str | None = None


class Phase(SummaryPart, frozen=True, kw_only=True):
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


class Unmatched(SummaryPart, frozen=True, kw_only=True):
    """A phase that is missing in the log, and the log messages that were searched for."""

    name: str
    title: str
    looked_for: list[str] = []


class MissingRanks(SummaryPart, frozen=True, kw_only=True):
    """A quantity that fewer workers report in the log than there are: the total is unknown."""

    name: str  # name of the quantity, as in the values
    reporting: int  # workers that report it
    expected: int  # workers of all nodes, from the engine's settings
    hidden: int = 0  # lines that Ray shows as one, from unnamed workers


class Sleep(SummaryPart, frozen=True, kw_only=True):
    """Sleep mode of a server: memory freed in bytes, and the time to wake up."""

    seconds: float | None = None
    wake_seconds: float | None = None
    freed_bytes: float | None = None
    in_use_bytes: float | None = None


class MeasuredSleep(SummaryPart, frozen=True, kw_only=True):
    """Sleep and wake-up times measured by the client."""

    level: int
    sleep_s: float | None = None
    wake_s: float | None = None


class Startup(SummaryPart, frozen=True, kw_only=True):
    """Startup of a server, from its log."""

    engine: str | None = None
    state: Literal["complete", "partial"] = "partial"
    version: str | None = None
    platform: str | None = None
    model: str | None = None
    load_format: str | None = None
    parallel: dict[str, int] = {}
    arguments: dict[str, JsonValue] = {}
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
    missing_ranks: list[MissingRanks] = []
    why: str | None = None  # why the log could not be read
    requested_sleep: MeasuredSleep | None = None


class Reported(SummaryPart, frozen=True, kw_only=True):
    """Numbers stated in an imported file, if the summary is computed from its requests."""

    measures: dict[str, MeasureSummary] = {}
    rates: dict[str, Rate] = {}


# -- the whole -------------------------------------------------------------------------------------------------------


class SummarySection(SummaryPart, frozen=True, kw_only=True):
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
    structure: StructureSummary | None = None  # of structured output
    outcomes: dict[str, int] = {}
    failures: Failures = Failures()
    cancelled_as_planned: int | None = None  # of those cancelled, by load.cancel
    errors: list[ErrorCount] = []
    tokens: Tokens | None = None
    uncertainty: Uncertainty | None = None
    sessions: Sessions | None = None


class StageSummary(SummarySection, frozen=True, kw_only=True):
    stage: int


class ClassSummary(SummarySection, frozen=True, kw_only=True):
    """One traffic class, or all of a run with one class."""

    precision: PrecisionResult | None = None
    goal: Goal | None = None
    delivery: Delivery | None = None
    stages: list[StageSummary] = []


class Summary(ClassSummary, frozen=True, kw_only=True):
    """Everything about a run that its records and samples show."""

    instrument: Instrument | None = None
    clocks: Clocks | None = None  # of workers on several hosts
    slices: Slices | None = None
    traffic: dict[str, ClassSummary] = {}
    models: dict[str, SummarySection] = {}  # each model or adapter that the workload requests by name
    server: ServerSummary | None = None
    gpu: GpusSummary | None = None
    host: HostSummary | None = None
    observer: ObserverSummary | None = None
    values: dict[str, Value] = {}
    limits: list[LimitResult] = []
    cases: list[BatchCase] = []  # results of offline latency
    engine_starts: int | None = None
    passes: list[Pass] = []  # results of offline throughput
    requests: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    startup: Startup | None = None
    reported: Reported | None = None  # numbers stated in an imported file
    definitions: dict[str, str] = {}
    notes: list[str] = []
