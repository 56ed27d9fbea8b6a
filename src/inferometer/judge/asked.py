"""Which numbers of runs are compared: those that people look at first, those that were named, or all."""

from collections.abc import Mapping, Sequence

from inferometer.errors import PlanError
from inferometer.measure.registry import REGISTRY
from inferometer.measure.values import Quantity, canonical

Quantities = Mapping[str, Quantity]

# Few, because every measure more makes all of them harder to tell. TPOT by its mean: that is known best.
_CLOSED = ("ttft.p50", "ttft.p99", "tpot.mean", "e2e.p50", "output_rate")
_OPEN = ("ttft_scheduled.p50", "ttft_scheduled.p99", "tpot.mean", "e2e_scheduled.p50", "output_rate")
_BESIDE = ("goodput", "failure_rate")
OBSERVED = (
    *("input_tokens.mean", "output_tokens.mean", "cached_tokens.mean"),
    *("queue_wait.p99", "send_delay.p99", "connect.p50", "concurrency"),
)
_NOT_COMPARED = ("std", "min", "max")  # of how many requests there were, not of how they went


def headline(before: Quantities, after: Quantities, open_loop: bool) -> list[str]:
    """What both sides have of what a person looks at first; of a run of another kind, everything that can be better
    or worse."""
    first = [_known(*pair, before, after) for pair in zip(_OPEN if open_loop else _CLOSED, _CLOSED, strict=True)]
    found = [key for key in (*first, *_BESIDE) if key in before and key in after]
    return found if any(key in first for key in found) else everything(before, after)


def _known(scheduled: str, sent: str, before: Quantities, after: Quantities) -> str:
    """Other tools do not keep when a request was due: their open loops are compared from when it was sent."""
    return scheduled if scheduled in before and scheduled in after else sent


def everything(before: Quantities, after: Quantities) -> list[str]:
    """All that both have and that can be better or worse."""
    return [
        key
        for key, each in before.items()
        if key in after and each.direction is not None and each.statistic not in _NOT_COMPARED
    ]


def observed(before: Quantities, after: Quantities) -> list[str]:
    """What is told where it changed, and fails nothing."""
    return [key for key in OBSERVED if key in before and key in after]


def alerts(quantity: Quantity) -> bool:
    """Whether a change for the worse fails a check. One of somebody's own does, if it says which way is better."""
    known = REGISTRY.get(quantity.name)
    return quantity.direction is not None if known is None else known.alerts


def named(said: Sequence[str], before: Quantities, after: Quantities) -> list[str]:
    """Keys as people write them; one that a side does not have is an error."""
    keys = list(dict.fromkeys(canonical(each) for text in said for each in text.split(",") if each.strip()))
    missing = [key for key in keys if key not in before or key not in after]
    if missing:
        sides = [
            word for word, side in (("before", before), ("after", after)) if any(key not in side for key in missing)
        ]
        near = [key for key in before if key.partition(".")[0] == missing[0].partition(".")[0] and key in after]
        hint = f"there are {', '.join(near)}" if near else "inferometer show RUN --measures lists those a run has"
        raise PlanError(f"--measure: {', '.join(missing)} is not known of the runs {' and '.join(sides)}", hint)
    return keys
