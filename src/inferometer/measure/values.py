"""All numbers of a summary by name (`ttft.p99`, `output_rate`, `avg_latency`), as used to filter lists, draw histories,
compare and check; and the cost of tokens."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from inferometer.record.summary import Basis, Ends, MeasureSummary, Summary, Value
from inferometer.vocabulary import MEASURES, WEAK_MARK, Direction, bound_text, spread_text, value_text

# -- values ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number: its value with its interval, if that is known, and which direction is better (`None`: neither)."""

    name: str  # "ttft"
    statistic: str | None  # "p99"; None for a scalar
    value: float
    unit: str
    direction: Direction | None
    title: str
    interval: tuple[float | None, float | None] | None = None
    count: int | None = None  # number of samples, if known
    needed: int | None = None  # number of samples required; there are fewer: a weak quantile

    @property
    def key(self) -> str:
        return self.name if self.statistic is None else f"{self.name}.{self.statistic}"

    @property
    def text(self) -> str:
        """`412 ms`; `~412 ms` if it is weak."""
        return f"{WEAK_MARK if self.needed else ''}{value_text(self.value, self.unit)}"

    @property
    def spread(self) -> str:
        """`±9`, or for a weak quantile its only bound: `≥380`."""
        bound = bound_text(self.value, self.interval, self.unit) if self.needed else ""
        return bound or spread_text(self.value, self.interval, self.unit)


def quantities(summary: Summary, basis: Basis | None = None) -> dict[str, Quantity]:
    """The numbers by key, in the order of the summary, without unknown ones. Rates are those of the headline, or all on
    one basis."""
    return {quantity.key: quantity for quantity in _all(summary, basis)}


def common_basis(summaries: Iterable[Summary]) -> Basis:
    """The basis on which the rates of several runs are compared: the window if every run has it, else the span."""
    return "window" if all(basis_of(summary) == "window" for summary in summaries) else "span"


def basis_of(summary: Summary) -> Basis:
    rate = summary.rates.get("request_rate") or next(iter(summary.rates.values()), None)
    return "window" if rate is None else rate.basis


def alike(summaries: Sequence[Summary]) -> list[dict[str, Quantity]]:
    """The quantities of each of several runs, with comparable rates."""
    basis = common_basis(summaries)
    return [quantities(summary, basis) for summary in summaries]


def indexed(summary: Summary) -> dict[str, Quantity]:
    """The numbers that an index keeps: the headline, and each rate on either basis (`output_rate.span`), so that a
    history of many runs can be drawn on one basis."""
    both = (
        Quantity(name, basis, value, rate.unit, None, MEASURES[name].title if name in MEASURES else name)
        for name, rate in summary.rates.items()
        for basis, value in (("window", rate.over("window")), ("span", rate.over("span")))
        if value is not None and not math.isnan(value)
    )
    return quantities(summary) | {quantity.key: quantity for quantity in both}


def quantity(summary: Summary, key: str) -> Quantity | None:
    """One quantity by key; `ttft p99` and `TTFT.P99` mean `ttft.p99`."""
    return quantities(summary).get(canonical(key))


def quantity_on(summary: Summary, key: str, basis: Basis) -> Quantity | None:
    """One of `quantities(summary, basis)`, without computing the others."""
    name = key.partition(".")[0]
    if (measure := summary.measures.get(name)) is not None:
        return next((quantity for quantity in _of_measure(name, measure) if quantity.key == key), None)
    return quantities(replace(summary, measures={}), basis).get(key)


def canonical(key: str) -> str:
    return ".".join(key.strip().lower().replace(".", " ", 1).split())


def _all(summary: Summary, basis: Basis | None) -> Iterator[Quantity]:
    for name, measure in summary.measures.items():
        yield from _of_measure(name, measure)
    for name, rate in summary.rates.items():
        yield from _scalar(name, rate.over(basis), rate.interval, rate.unit)
    yield from _of_whole(summary, basis)
    for name, value in summary.values.items():
        yield from _scalar(name, value.value, value.interval, value.unit, value.direction, value.title)


def _of_measure(name: str, measure: MeasureSummary) -> Iterator[Quantity]:
    unit, direction, title = _named(name, measure.unit, measure.direction, measure.title)
    for statistic, value in measure.statistics.items():
        if value is not None and not math.isnan(value):
            better = None if statistic == "std" else direction
            interval, needed = measure.intervals.get(statistic), measure.weak.get(statistic)
            yield Quantity(name, statistic, float(value), unit, better, title, interval, measure.count, needed)


def _of_whole(summary: Summary, basis: Basis | None) -> Iterator[Quantity]:
    """The numbers that a summary has once."""
    yield from _scalar("concurrency", summary.concurrency.mean)
    if summary.goodput is not None:
        yield from _scalar("goodput", getattr(summary.goodput, basis if basis in ("window", "span") else "value"))
        yield from _scalar("goodput_share", summary.goodput.share)
    yield from _scalar("failure_rate", summary.failures.failure_rate)
    if summary.stalls is not None:
        yield from _scalar("stall_share", summary.stalls.share)
    if summary.structure is not None:
        yield from _scalar("structure_valid", summary.structure.share)


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
    tokens = price per hour * 1e6 / (tokens/s * 3600). Tokens: input and output. Unknown numbers are left out."""
    known = quantities(summary)
    rate, tpot = known.get("total_rate"), known.get("tpot.mean")
    values = {}
    if rate is not None:
        values["throughput_per_gpu"] = _higher(rate.value / gpus, "Tokens per second and GPU")
    if tpot is not None and tpot.value > 0:
        values["tokens_per_s_user"] = _higher(1 / tpot.value, "Tokens per second and user")
    if rate is not None and rate.value > 0 and price_per_gpu_hour is not None:
        cost = price_per_gpu_hour * gpus * MILLION / (rate.value * HOUR_S)
        values["cost_per_million_tokens"] = Value(
            value=cost, unit="$", direction="lower", title="Cost of a million tokens"
        )
    return values


def _higher(value: float, title: str) -> Value:
    return Value(value=value, unit="tokens/s", direction="higher", title=title)
