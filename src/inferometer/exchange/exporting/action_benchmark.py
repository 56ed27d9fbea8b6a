"""Arrays for github-action-benchmark: one file per direction, for one run of the action knows only one. A file
without an entry is not written: the action fails on it.

What is better lower or higher may alert; tails and extremes, which differ from run to run by themselves, and what has
no better side are only observed.
"""

from typing import Any

from inferometer.exchange.exporting.facts import engine_of, gpu_text, model_of, version_of
from inferometer.exchange.exporting.registry import Asked, Piece, json_piece
from inferometer.judge.identity import identity
from inferometer.measure.values import Quantity, quantities
from inferometer.record.run import Run

FILES = {"higher": "bigger.json", "lower": "smaller.json", None: "observe.json"}
STEADY = (None, "mean", "p50")  # statistics that may alert
LEFT_OUT = ("std", "min", "max", "p99.9")  # a chart of each would hide the others
MS = 1000.0
DIGITS = 6  # of the hash of a workload that has no name


def export(asked: Asked) -> list[Piece]:
    entries: dict[str, list[dict[str, Any]]] = {name: [] for name in FILES.values()}
    for run in asked.runs:
        for each in quantities(run.summary).values():
            if each.statistic not in LEFT_OUT:
                entries[FILES[_direction(each)]].append(entry(run, each))
    return [json_piece(name, content) for name, content in entries.items() if content]


def _direction(each: Quantity) -> Any:
    return each.direction if each.statistic in STEADY else None


def entry(run: Run, each: Quantity) -> dict[str, Any]:
    """The name is the line in the chart: no version is part of it, so that an upgrade continues the line."""
    unit, scale = ("ms", MS) if each.unit == "s" else (each.unit or "1", 1.0)
    found = {"name": f"{_subject(run)}: {each.key}", "unit": unit, "value": each.value * scale}
    if (range_ := _range(each, scale)) is not None:
        found["range"] = range_
    return found | {"extra": _extra(run, each)}


def _subject(run: Run) -> str:
    """What was measured, in words that stay the same: plan, model, accelerators. Plans without a name are told apart
    by the hash of what they ask: two workloads are not one line."""
    said = (run.plan.get("name") or f"{run.kind} {identity(run).workload[:DIGITS]}", model_of(run), gpu_text(run))
    return ", ".join(str(each) for each in said if each)


def _range(each: Quantity, scale: float) -> str | None:
    """`± 3.1`: the farther end of the interval."""
    if each.interval is None:
        return None
    ends = [abs(end - each.value) for end in each.interval if end is not None]
    return f"± {max(ends) * scale:.4g}" if len(ends) == 2 else None


def _extra(run: Run, each: Quantity) -> str:
    engine = " ".join(word for word in (engine_of(run), version_of(run)) if word)
    lines = (each.title, f"run {run.id}", engine, f"verdict {run.status}")
    return "\n".join(line for line in lines if line)
