"""Every number of a summary by one name, `ttft.p99`, `output_rate`, `avg_latency`: what lists filter by, histories
follow, comparisons and checks compare; and what tokens cost."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from inferometer.vocabulary import MEASURES, Direction

# -- values ----------------------------------------------------------------------------------------------------------

NOT_STATISTICS = {"count", "undefined", "tokens"}


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


def quantities(summary: Mapping[str, Any]) -> dict[str, Quantity]:
    """By key, in the order of the summary; what is unknown is not there."""
    return {each.key: each for each in _all(summary)}


def quantity(summary: Mapping[str, Any], key: str) -> Quantity | None:
    """One of them; `ttft p99` and `TTFT.P99` mean `ttft.p99`."""
    return quantities(summary).get(canonical(key))


def canonical(key: str) -> str:
    return ".".join(key.strip().lower().replace(".", " ", 1).split())


def _all(summary: Mapping[str, Any]) -> Iterator[Quantity]:
    for name, said in (summary.get("measures") or {}).items():
        yield from _of_measure(name, said)
    for name, said in (summary.get("rates") or {}).items():
        yield from _scalar(name, said, said.get("window"), said.get("interval"))
    yield from _of_whole(summary)
    for name, said in (summary.get("values") or {}).items():
        yield from _scalar(name, said, said.get("value"), said.get("interval"))


def _of_measure(name: str, said: Mapping[str, Any]) -> Iterator[Quantity]:
    unit, direction, title = _named(name, said)
    intervals = said.get("intervals") or {}
    for statistic, value in said.items():
        if _is_number(value) and statistic not in NOT_STATISTICS:
            better = None if statistic == "std" else direction
            yield Quantity(name, statistic, float(value), unit, better, title, _pair(intervals.get(statistic)))


def _of_whole(summary: Mapping[str, Any]) -> Iterator[Quantity]:
    """What a summary has one of."""
    concurrency, goodput = summary.get("concurrency") or {}, summary.get("goodput") or {}
    yield from _scalar("concurrency", {}, concurrency.get("mean"))
    yield from _scalar("goodput", {}, goodput.get("window"))
    yield from _scalar("goodput_share", {}, goodput.get("share"))
    yield from _scalar("failure_rate", {}, (summary.get("failures") or {}).get("failure_rate"))
    yield from _scalar("stall_share", {}, (summary.get("stalls") or {}).get("share"))


def _scalar(name: str, said: Mapping[str, Any], value: object, interval: object = None) -> Iterator[Quantity]:
    if isinstance(value, int | float) and _is_number(value):
        unit, direction, title = _named(name, said)
        yield Quantity(name, None, float(value), unit, direction, title, _pair(interval))


def _named(name: str, said: Mapping[str, Any]) -> tuple[str, Direction | None, str]:
    known = MEASURES.get(name)
    if known is not None:
        return known.unit, known.direction, known.title
    return said.get("unit") or "", said.get("direction"), said.get("title") or name


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _pair(interval: object) -> tuple[float | None, float | None] | None:
    return (interval[0], interval[1]) if isinstance(interval, list | tuple) and len(interval) == 2 else None


# -- cost ------------------------------------------------------------------------------------------------------------

HOUR_S = 3600
MILLION = 1_000_000


def shared_among(summary: Mapping[str, Any], gpus: int, price_per_gpu_hour: float | None) -> dict[str, Any]:
    """`values` for a summary: throughput per GPU = tokens/s / GPUs; speed of a user = 1 / mean TPOT; cost of a million
    tokens = price per hour * 1e6 / (tokens/s * 3600). Tokens: input and output. What is unknown is left out."""
    known = quantities(summary)
    rate, tpot = known.get("total_rate"), known.get("tpot.mean")
    found = {}
    if rate is not None:
        found["throughput_per_gpu"] = _value(rate.value / gpus, "tokens/s", "higher", "Tokens per second and GPU")
    if tpot is not None and tpot.value > 0:
        found["tokens_per_s_user"] = _value(1 / tpot.value, "tokens/s", "higher", "Tokens per second and user")
    if rate is not None and rate.value > 0 and price_per_gpu_hour is not None:
        cost = price_per_gpu_hour * gpus * MILLION / (rate.value * HOUR_S)
        found["cost_per_million_tokens"] = _value(cost, "$", "lower", "Cost of a million tokens")
    return found


def _value(value: float, unit: str, direction: str, title: str) -> dict[str, Any]:
    return {"value": value, "unit": unit, "direction": direction, "title": title}
