"""What tokens cost, and how they are shared: derived from a summary and a price. Pure."""

from collections.abc import Mapping
from typing import Any

from inferometer.measure.values import quantities

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
