"""Cases that each have a whole plan: what they differ in is set once more, so that a table has a column for it."""

from collections.abc import Iterator, Sequence
from typing import Any

from inferometer.plan.paths import written

WORKS = ("plan", "throughput")
TWICE = {"target.model": "server.model"}  # the same, where both vary


def told_apart(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """With the settings that are not the same in all of them as parameters."""
    leaves = [dict(_leaves(next(case[work] for work in WORKS if work in case))) for case in cases]
    names = dict.fromkeys(name for each in leaves for name in each)
    varies = [name for name in names if len({str(each.get(name)) for each in leaves}) > 1]
    shown = [name for name in varies if TWICE.get(name) not in varies]
    return [
        {"name": case["name"], "set": {name: each[name] for name in shown if name in each}, **case}
        for case, each in zip(cases, leaves, strict=True)
    ]


def _leaves(said: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Single values by their paths; lists are no parameters that a table can show."""
    for name, value in said.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, name))
        elif not isinstance(value, list):
            yield written((*above, name)), value
