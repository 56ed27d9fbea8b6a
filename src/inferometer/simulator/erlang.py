"""An M/D/1 queue: Poisson arrivals at one server that takes the same time for each. Erlang's sum (1909).
What the metronome with `--service` is, and what a search behind it must find."""

import math


def waits_at_most(t: float, rate: float, service_s: float) -> float:
    """The share of requests that wait no longer than t."""
    load = rate * service_s
    if load >= 1:
        return 0.0
    late = [t - k * service_s for k in range(int(t / service_s) + 1)]
    terms = ((-rate * each) ** k / math.factorial(k) * math.exp(rate * each) for k, each in enumerate(late))
    return (1 - load) * sum(terms)


def true_rate(t: float, share: float, service_s: float) -> float:
    """The highest rate at which that share waits no longer than t."""
    low, high = 0.0, 1 / service_s
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if waits_at_most(t, middle, service_s) >= share else (low, middle)
    return low
