"""GitLab's metrics report: OpenMetrics text whose names and labels stay the same from run to run, because a merge
request shows what changed by them. So the run's id is not in it; `export --as openmetrics` has it."""

import math
import re
from collections.abc import Iterator

from inferometer.measure.values import Quantity
from inferometer.record.sanitize import harmless
from inferometer.show.ci.outcome import Outcome, Report

_UNITS = {"s": "seconds", "tokens/s": "tokens_per_second", "1/s": "per_second", "share": "ratio"}
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]+")
_LEFT_OUT = ("std", "min", "max")  # too noisy to be read as a change


def metrics(report: Report) -> str:
    """All samples of a name stand together; of runs that nothing tells apart, the last."""
    families: dict[str, dict[str, float]] = {}
    for outcome in report.outcomes:
        for quantity in outcome.quantities.values():
            if quantity.statistic not in _LEFT_OUT and math.isfinite(quantity.value):
                families.setdefault(_name(quantity), {})[_labels(outcome, quantity)] = quantity.value
    return "".join(f"{line}\n" for line in _lines(families))


def _lines(families: dict[str, dict[str, float]]) -> Iterator[str]:
    for name, samples in sorted(families.items()):
        yield f"# TYPE {name} gauge"
        yield from (f"{name}{labels} {value!r}" for labels, value in samples.items())
    yield "# EOF"


def _name(quantity: Quantity) -> str:
    unit, name = (
        _UNITS.get(quantity.unit, _NOT_IN_NAMES.sub("_", quantity.unit).strip("_")),
        _NOT_IN_NAMES.sub("_", quantity.name),
    )
    return f"inferometer_{name}" if not unit or name.endswith(f"_{unit}") else f"inferometer_{name}_{unit}"


def _labels(outcome: Outcome, quantity: Quantity) -> str:
    labels = {
        "plan": outcome.run.plan.get("name"),
        "kind": outcome.run.kind,
        "model": outcome.run.subject.model,
        **{_NOT_IN_NAMES.sub("_", str(name)): value for name, value in outcome.parameters.items()},
        "statistic": quantity.statistic,
    }
    written = (f'{name}="{_escaped(str(value))}"' for name, value in labels.items() if value is not None)
    return f"{{{','.join(written)}}}"


def _escaped(value: str) -> str:
    """GitLab takes everything after a `#` for a comment, also inside quotes, and then refuses the whole file."""
    text = harmless(value).replace("#", "＃")
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
