"""A run as OpenMetrics text, for a textfile collector or a scrape: a gauge per measure with its statistics as labels,
in base units. Without timestamps: whoever collects it stamps it."""

import math
import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from inferometer.exchange.exporting.facts import gpu_text
from inferometer.exchange.exporting.registry import ExportRequest, Piece, text_piece
from inferometer.judge.identity import identity
from inferometer.measure.values import Quantity, quantities
from inferometer.record.run import Run

UNITS = {
    "s": "seconds",
    "tokens": "tokens",
    "tokens/s": "tokens_per_second",
    "1/s": "per_second",
    "share": "ratio",
    "requests": "requests",
    "turns": "turns",
    "bytes": "bytes",
    "": "",
}
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]+")


def export(request: ExportRequest) -> list[Piece]:
    return [text_piece("inferometer.om", text(request.runs))]


def text(runs: Sequence[Run]) -> str:
    lines = [*_info(runs), *_families(runs), "# EOF"]
    return "".join(f"{line}\n" for line in lines)


def _info(runs: Sequence[Run]) -> Iterator[str]:
    """What a run is, once; the numbers carry only its id, model and identity."""
    yield "# TYPE inferometer_run info"
    yield "# HELP inferometer_run What was measured, and the verdict."
    for run in runs:
        about = _labels(run) | {
            "name": run.plan.get("name"),
            "kind": run.kind,
            "verdict": run.status,
            "engine": run.subject.engine,
            "engine_version": run.subject.engine_version,
            "gpu": gpu_text(run),
            "started": run.started_at,
        }
        yield f"inferometer_run_info{_written(about)} 1"


def _families(runs: Sequence[Run]) -> Iterator[str]:
    """All samples of a name stand together, whatever run they are of."""
    samples = [(_name(quantity), run, quantity) for run in runs for quantity in quantities(run.summary).values()]
    for name, group in groupby(sorted(samples, key=lambda entry: entry[0]), key=lambda entry: entry[0]):
        entries = list(group)
        yield f"# TYPE {name} gauge"
        if unit := _unit(entries[0][2]):
            yield f"# UNIT {name} {unit}"
        yield f"# HELP {name} {_escaped(entries[0][2].title)}"
        for _, run, quantity in entries:
            labels = _labels(run) | {"statistic": quantity.statistic}
            yield f"{name}{_written(labels)} {_number(quantity.value)}"


def _labels(run: Run) -> dict[str, str | None]:
    return {"run": run.id, "identity": identity(run).key, "model": run.subject.model}


def _unit(quantity: Quantity) -> str:
    return UNITS.get(quantity.unit, _NOT_IN_NAMES.sub("_", quantity.unit).strip("_"))


def _name(quantity: Quantity) -> str:
    """`inferometer_ttft_seconds`: the unit is the end of the name, written once."""
    unit, name = _unit(quantity), _NOT_IN_NAMES.sub("_", quantity.name)
    return f"inferometer_{name}" if not unit or name.endswith(f"_{unit}") else f"inferometer_{name}_{unit}"


def _written(labels: dict[str, str | None]) -> str:
    pairs = (f'{name}="{_escaped(str(value))}"' for name, value in labels.items() if value is not None)
    return f"{{{','.join(pairs)}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
