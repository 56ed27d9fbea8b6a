"""What a run is called in a chart: short, and not the same as another run's."""

from collections.abc import Sequence
from typing import Any

from inferometer.judge.identity import identity
from inferometer.record.run import Run


def labels_of(runs: Sequence[Run]) -> dict[str, str]:
    """By run id: the plan's name where that tells them apart, with the load where it does not, else the id."""
    for label in (_name, _name_and_load):
        words = {run.id: label(run) for run in runs}
        if all(words.values()) and len(set(words.values())) == len(words):
            return words
    return {run.id: run.id for run in runs}


def stack_of(run: Run) -> str:
    """The model and what it ran on, as far as that is known."""
    parts = identity(run).parts
    model, engine = parts["stack"].get("model"), parts["stack"].get("engine")
    return ", ".join(str(each) for each in (model, engine) if each) or "unknown model"


def load_of(run: Run) -> str:
    """`8 at once`, `10/s`; empty where the plan does not say."""
    load = run.plan.get("load") or {}
    if not isinstance(load, dict):
        return ""
    if load.get("concurrency"):
        return f"{load['concurrency']} at once"
    if load.get("max_concurrency"):
        return f"at most {load['max_concurrency']} at once"
    return f"{_number(load['rate'])}/s" if load.get("rate") else ""


def gpus_of(run: Run) -> int | None:
    """How many GPUs the run had; None where nobody said."""
    gpus = identity(run).parts["hardware"].get("gpus")
    return len(gpus) if isinstance(gpus, list) and gpus else None


def _name(run: Run) -> str:
    return str(run.plan.get("name") or "")


def _name_and_load(run: Run) -> str:
    return " ".join(filter(None, [_name(run) or stack_of(run), load_of(run)]))


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
