"""What several tools say in their own words: a rate that may be endless, a host and a port, lengths about a middle."""

import math
from typing import Any


def load_of(rate: float | None, cap: int | None, requests: int, cv: float = 1.0) -> dict[str, Any]:
    """Poisson (or gamma) arrivals under a cap; an endless rate is a closed loop: as many at once as the cap lets, or
    all of them."""
    if rate is None or math.isinf(rate):
        return {"type": "concurrency", "concurrency": cap or requests}
    load: dict[str, Any] = {"type": "poisson", "rate": tidy(rate)}
    if cv != 1:
        load = {"type": "gamma", "rate": tidy(rate), "cv": cv}
    return load if cap is None else {**load, "max_concurrency": cap}


def url_of(base: str | None, host: str, port: int | None) -> str:
    """The address of a server by its base, or by host and port."""
    if base:
        return base.rstrip("/")
    bare = host if ":" not in host or host.startswith("[") else f"[{host}]"
    whole = bare if bare.startswith(("http://", "https://")) else f"http://{bare}"
    return whole if port is None else f"{whole}:{port}"


def about(length: int, ratio: float) -> Any:
    """A length, or the range of lengths `ratio` below and above it, as vLLM's random dataset has them."""
    if not ratio:
        return length
    return f"{max(1, math.floor(length * (1 - ratio)))}-{math.ceil(length * (1 + ratio))}"


def bell(mean: float, std: float | None, least: float | None, most: float | None, shape: str = "normal") -> Any:
    """Lengths about a mean: fixed without a deviation, else normal (or another shape) within bounds."""
    if not std:
        return tidy(mean)
    said: dict[str, Any] = {"type": shape} if shape != "normal" else {}
    said |= {"mean": tidy(mean), "std": tidy(std)}
    return said | {name: tidy(value) for name, value in (("min", least), ("max", most)) if value is not None}


def tidy(value: float) -> float:
    """2.0 as 2."""
    return int(value) if float(value).is_integer() else value
