"""Arrays for github-action-benchmark: one file per direction, for one run of the action knows only one. A file
without an entry is not written: the action fails on it.

What is better lower or higher may alert; tails and extremes, which differ from run to run by themselves, and what has
no better side are only observed.
"""

from typing import Any

from inferometer.exchange.exporting.facts import gpu_text
from inferometer.exchange.exporting.registry import ExportRequest, Piece, json_piece
from inferometer.judge.identity import identity
from inferometer.measure.values import Quantity, quantities
from inferometer.record.run import Run

FILES = {"higher": "bigger.json", "lower": "smaller.json", None: "observe.json"}
STEADY = (None, "mean", "p50")  # statistics that may alert
LEFT_OUT = ("std", "min", "max", "p99.9")  # a chart of each would hide the others
MS = 1000.0
DIGITS = 6  # of the hash of a workload that has no name


def export(request: ExportRequest) -> list[Piece]:
    entries: dict[str, list[dict[str, Any]]] = {name: [] for name in FILES.values()}
    for run in request.runs:
        for quantity in quantities(run.summary).values():
            if quantity.statistic not in LEFT_OUT:
                entries[FILES[_direction(quantity)]].append(entry(run, quantity))
    return [json_piece(name, content) for name, content in entries.items() if content]


def _direction(quantity: Quantity) -> Any:
    return quantity.direction if quantity.statistic in STEADY else None


def entry(run: Run, quantity: Quantity) -> dict[str, Any]:
    """The name is the line in the chart: no version is part of it, so that an upgrade continues the line."""
    unit, scale = ("ms", MS) if quantity.unit == "s" else (quantity.unit or "1", 1.0)
    fields = {"name": f"{_subject(run)}: {quantity.key}", "unit": unit, "value": quantity.value * scale}
    if (range_ := _range(quantity, scale)) is not None:
        fields["range"] = range_
    return fields | {"extra": _extra(run, quantity)}


def _subject(run: Run) -> str:
    """What was measured, in words that stay the same: plan, model, accelerators. Plans without a name are told apart
    by the hash of what they ask: two workloads are not one line."""
    parts = (run.plan.get("name") or f"{run.kind} {identity(run).workload[:DIGITS]}", run.subject.model, gpu_text(run))
    return ", ".join(str(part) for part in parts if part)


def _range(quantity: Quantity, scale: float) -> str | None:
    """`± 3.1`: the farther end of the interval."""
    if quantity.interval is None:
        return None
    ends = [abs(end - quantity.value) for end in quantity.interval if end is not None]
    return f"± {max(ends) * scale:.4g}" if len(ends) == 2 else None


def _extra(run: Run, quantity: Quantity) -> str:
    engine = run.subject.engine_text
    lines = (quantity.title, f"run {run.id}", engine, f"verdict {run.status}")
    return "\n".join(line for line in lines if line)
