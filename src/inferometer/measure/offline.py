"""Numbers and verdict of offline runs: latencies of batches, one measure per case, and the throughput of a workload."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Literal

import numpy as np
from msgspec import structs

from inferometer.measure import quantiles
from inferometer.measure.describe import described
from inferometer.measure.registry import Measure
from inferometer.measure.steadiness import trend
from inferometer.record.summary import BatchCase, MeasureSummary, Pass, Rate, Summary, Value
from inferometer.record.verdict import Reason, Status, Verdict, judged
from inferometer.vocabulary import MEASURES, MeasureName, duration_text, percent_text

QUANTILES = ("p10", "p25", "p50", "p75", "p90", "p99")  # those of `vllm bench latency`
RATES = ("request_rate", "input_rate", "output_rate", "total_rate")
FORMULA = "ended_at - started_at [s]"
SENTENCE = "Time from submitting a batch of prompts to the engine until all output tokens are generated."
COLD = 1.5  # times the median of the rest: a first iteration above it should have been warm-up
FEWEST_ITERS = 5  # with fewer, the first one cannot be judged


@dataclass(slots=True)
class MeasuredCase:
    """One batch size with its lengths. A failed one has its `error`, and what was measured before it."""

    batch_size: int
    input_len: int | None
    output_len: int | None
    iters: int  # requested
    name: str  # of its measure
    latencies: list[float] = field(default_factory=list)  # seconds, in the order they were taken
    n: int = 1  # answers to each prompt
    output_tokens: int | None = None  # of one batch, counted by the engine
    error: str | None = None
    state: Literal["complete", "failed", "interrupted"] = "complete"

    @property
    def measured(self) -> bool:
        """Whether the case counts: complete, or cut short by a person and not by the engine."""
        return self.state != "failed" and bool(self.latencies)

    @property
    def title(self) -> str:
        return f"Latency, {self.text}"

    @property
    def text(self) -> str:
        lengths = "" if self.input_len is None else f", {self.input_len} in, {self.output_len} out"
        return f"batch size {self.batch_size}{lengths}"


def latency_summary(cases: Sequence[MeasuredCase], starts: int = 1, confidence: float = 0.95) -> Summary:
    """One measure per measured case; quantiles that need more iterations are unknown."""
    return Summary(
        measures={case.name: _measure(case, confidence) for case in cases if case.measured},
        cases=[_case(case) for case in cases],
        engine_starts=starts,
        confidence=confidence,
    )


def _measure(case: MeasuredCase, confidence: float) -> MeasureSummary:
    name = MeasureName(case.name, case.title, "s", "lower")
    summary = described(np.array(case.latencies), Measure(name, "answered", FORMULA, SENTENCE), QUANTILES, confidence)
    if summary.min == summary.max:  # virtual time: the rounding of a sum is no spread
        summary = structs.replace(
            summary,
            statistics=summary.statistics | {"mean": summary.min, "std": 0.0},
            intervals=summary.intervals | {"mean": (summary.min, summary.max)},
        )
    return structs.replace(summary, title=case.title, direction="lower", formula=FORMULA)


def _case(case: MeasuredCase) -> BatchCase:
    rate = None
    if case.measured and case.output_tokens is not None:
        rate = case.output_tokens * len(case.latencies) / sum(case.latencies)
    return BatchCase(**asdict(case), output_rate=rate)


def throughput_summary(passes: Sequence[Pass], confidence: float = 0.95) -> Summary:
    """Rates over the whole elapsed time, with an interval if the workload was sent several times."""
    elapsed = sum(one.elapsed_s for one in passes)
    return Summary(
        rates={name: _rate(name, passes, elapsed, confidence) for name in RATES},
        values={
            "elapsed": Value(value=elapsed, unit="s", direction="lower", title="Elapsed"),
        },
        requests=sum(one.requests for one in passes),
        input_tokens=sum(one.input_tokens for one in passes),
        output_tokens=sum(one.output_tokens for one in passes),
        passes=list(passes),
        confidence=confidence,
    )


def _rate(name: str, passes: Sequence[Pass], elapsed: float, confidence: float) -> Rate:
    amounts = [_amount(name, one) for one in passes]
    value = sum(amounts) / elapsed if elapsed > 0 else None
    rates = np.array([amount / one.elapsed_s for amount, one in zip(amounts, passes, strict=True) if one.elapsed_s > 0])
    interval = quantiles.mean_interval(quantiles.sample(rates), confidence) if len(rates) > 1 else (None, None)
    return Rate(value=value, window=value, span=value, interval=interval, unit=MEASURES[name].unit)


def _amount(name: str, one: Pass) -> int:
    match name:
        case "request_rate":
            return one.requests
        case "input_rate":
            return one.input_tokens
        case "output_rate":
            return one.output_tokens
    return one.input_tokens + one.output_tokens


# -- the verdict ---------------------------------------------------------------------------------------------


def latency_verdict(summary: Summary) -> Verdict:
    """Whether the latencies can be trusted, and every reason why not, worst first."""
    cases = [_read(case) for case in summary.cases]
    return judged(
        [
            *_nothing(cases),
            *_failed(cases),
            *_restarted(summary),
            *_short(cases),
            *_cold(cases),
            *_drifting(cases),
        ]
    )


def throughput_verdict(summary: Summary, requested_tokens: int | None) -> Verdict:
    """`requested_tokens`: the output tokens that all passes together should have generated."""
    made, doubts = summary.output_tokens or 0, []
    if not summary.passes:
        doubts.append(_reason("invalid", "nothing_measured", "No repeat of the workload was completed."))
    elif requested_tokens is not None and made != requested_tokens:
        text = f"{made:,} output tokens were generated, {requested_tokens:,} were requested."
        doubts.append(_reason("invalid" if made < requested_tokens else "doubtful", "output_differs", text))
    return judged(doubts)


def _read(case: BatchCase) -> MeasuredCase:
    return MeasuredCase(**{name: value for name, value in structs.asdict(case).items() if name != "output_rate"})


def _reason(status: Status, code: str, text: str) -> Reason:
    return Reason(status=status, code=code, text=text)


def _nothing(cases: list[MeasuredCase]) -> Iterator[Reason]:
    if not any(case.measured for case in cases):
        yield _reason("invalid", "nothing_measured", f"None of {len(cases)} cases could be measured.")


def _failed(cases: list[MeasuredCase]) -> Iterator[Reason]:
    failed = [case for case in cases if case.state == "failed"]
    if failed:
        first = f"{failed[0].text}: {failed[0].error}"
        text = f"{len(failed)} of {len(cases)} cases failed, the first with {first}"
        yield _reason("doubtful", "case_failed", text)


def _restarted(summary: Summary) -> Iterator[Reason]:
    if (summary.engine_starts or 1) > 1:
        text = "The engine died and was restarted: later cases were measured after the restart."
        yield _reason("doubtful", "engine_restarted", text)


def _short(cases: list[MeasuredCase]) -> Iterator[Reason]:
    for case in cases:
        requested = None if case.output_len is None else case.batch_size * case.output_len * case.n
        if case.measured and requested and case.output_tokens is not None and case.output_tokens < requested:
            text = f"{case.text}: the engine generated {case.output_tokens:,} of {requested:,} tokens."
            yield _reason("invalid", "output_short", text)


def _cold(cases: list[MeasuredCase]) -> Iterator[Reason]:
    for case in cases:
        first, *rest = case.latencies or [0.0]
        if case.measured and len(rest) + 1 >= FEWEST_ITERS and first > COLD * median(rest):
            text = (
                f"{case.text}: the first iteration took {duration_text(first)}, the median of the others "
                f"{duration_text(median(rest))}: increase --warmup."
            )
            yield _reason("doubtful", "cold_start", text)


def _drifting(cases: list[MeasuredCase]) -> Iterator[Reason]:
    for case in cases:
        latency_trend = trend(np.array(case.latencies)) if case.measured else None
        if latency_trend is not None and latency_trend.status == "drifting" and latency_trend.drift is not None:
            way = "grew" if latency_trend.drift > 0 else "fell"
            size = percent_text(abs(latency_trend.drift))
            text = f"{case.text}: latency {way} by {size} from the first iteration to the last."
            yield _reason("doubtful", "drifting", text)
