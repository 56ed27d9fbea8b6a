"""Every number of a summary by one name, `ttft.p99`, `output_rate`, `avg_latency`: what lists filter by, histories
follow, comparisons and checks compare; and what tokens cost."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from inferometer.record.summary import Ends, MeasureSummary, Summary, Value
from inferometer.vocabulary import MEASURES, Direction

# -- values ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number: its value with its interval, where that is known, and which way is better (`None`: neither)."""

    name: str  # "ttft"
    statistic: str | None  # "p99"; None for a scalar
    value: float
    unit: str
    direction: Direction | None
    title: str
    interval: tuple[float | None, float | None] | None = None

    @property
    def key(self) -> str:
        return self.name if self.statistic is None else f"{self.name}.{self.statistic}"


def quantities(summary: Summary) -> dict[str, Quantity]:
    """By key, in the order of the summary; what is unknown is not there."""
    return {quantity.key: quantity for quantity in _all(summary)}


def quantity(summary: Summary, key: str) -> Quantity | None:
    """One of them; `ttft p99` and `TTFT.P99` mean `ttft.p99`."""
    return quantities(summary).get(canonical(key))


def canonical(key: str) -> str:
    return ".".join(key.strip().lower().replace(".", " ", 1).split())


def _all(summary: Summary) -> Iterator[Quantity]:
    for name, measure in summary.measures.items():
        yield from _of_measure(name, measure)
    for name, rate in summary.rates.items():
        yield from _scalar(name, rate.window, rate.interval, rate.unit)
    yield from _of_whole(summary)
    for name, value in summary.values.items():
        yield from _scalar(name, value.value, value.interval, value.unit, value.direction, value.title)


def _of_measure(name: str, measure: MeasureSummary) -> Iterator[Quantity]:
    unit, direction, title = _named(name, measure.unit, measure.direction, measure.title)
    for statistic, value in measure.statistics.items():
        if value is not None and not math.isnan(value):
            better = None if statistic == "std" else direction
            interval = measure.intervals.get(statistic)
            yield Quantity(name, statistic, float(value), unit, better, title, interval)


def _of_whole(summary: Summary) -> Iterator[Quantity]:
    """What a summary has one of."""
    yield from _scalar("concurrency", summary.concurrency.mean)
    if summary.goodput is not None:
        yield from _scalar("goodput", summary.goodput.window)
        yield from _scalar("goodput_share", summary.goodput.share)
    yield from _scalar("failure_rate", summary.failures.failure_rate)
    if summary.stalls is not None:
        yield from _scalar("stall_share", summary.stalls.share)


def _scalar(
    name: str,
    value: float | None,
    interval: Ends | None = None,
    unit: str = "",
    direction: Direction | None = None,
    title: str | None = None,
) -> Iterator[Quantity]:
    if value is not None and not math.isnan(value):
        yield Quantity(name, None, float(value), *_named(name, unit, direction, title), interval)


def _named(name: str, unit: str, direction: Direction | None, title: str | None) -> tuple[str, Direction | None, str]:
    known = MEASURES.get(name)
    if known is not None:
        return known.unit, known.direction, known.title
    return unit, direction, title or name


# -- cost ------------------------------------------------------------------------------------------------------------

HOUR_S = 3600
MILLION = 1_000_000


def shared_among(summary: Summary, gpus: int, price_per_gpu_hour: float | None) -> dict[str, Value]:
    """`values` for a summary: throughput per GPU = tokens/s / GPUs; speed of a user = 1 / mean TPOT; cost of a million
    tokens = price per hour * 1e6 / (tokens/s * 3600). Tokens: input and output. What is unknown is left out."""
    known = quantities(summary)
    rate, tpot = known.get("total_rate"), known.get("tpot.mean")
    found = {}
    if rate is not None:
        found["throughput_per_gpu"] = _higher(rate.value / gpus, "Tokens per second and GPU")
    if tpot is not None and tpot.value > 0:
        found["tokens_per_s_user"] = _higher(1 / tpot.value, "Tokens per second and user")
    if rate is not None and rate.value > 0 and price_per_gpu_hour is not None:
        cost = price_per_gpu_hour * gpus * MILLION / (rate.value * HOUR_S)
        found["cost_per_million_tokens"] = Value(
            value=cost, unit="$", direction="lower", title="Cost of a million tokens"
        )
    return found


def _higher(value: float, title: str) -> Value:
    return Value(value=value, unit="tokens/s", direction="higher", title=title)
