"""Starts of servers: their phases in time, of one start and of several."""

from collections.abc import Mapping, Sequence
from typing import Any

from inferometer.measure.values import quantities
from inferometer.record.run import Run
from inferometer.record.summary import Phase
from inferometer.show.charts.chart import Cannot, Spec, colours, tip, titled, tooltip, view, x
from inferometer.show.charts.subject import ChartedRun, labels_of
from inferometer.vocabulary import duration_text

_BAR = 22


def startup_phases(subject: ChartedRun) -> Spec:
    """A bar for each phase, from when it began; inner phases are indented below their outer one."""
    startup = subject.run.summary.startup
    phases = [(phase, phase.began_s) for phase in startup.phases if phase.began_s is not None] if startup else []
    if not phases:
        raise Cannot("this run has no startup phases")
    inside = {phase.name: phase.inside for phase, _ in phases}
    rows = [_row(phase, began_s, at, inside) for at, (phase, began_s) in enumerate(phases)]
    processes = list(dict.fromkeys(row["process"] for row in rows))
    colour = colours("process", processes) | ({} if len(processes) > 1 else {"legend": None})
    bars = {
        "mark": {"type": "bar", "height": {"band": 0.7}},
        "encoding": {
            "x": x("from", "time since the first line of the log (s)"),
            "x2": {"field": "to"},
            "y": {
                "field": "phase",
                "type": "nominal",
                "sort": None,
                "title": None,
                "axis": {"labelLimit": 150, "labelAlign": "left", "labelPadding": 150, "grid": False, "ticks": False},
            },
            "color": colour,
            "tooltip": tooltip(
                tip("phase", "phase", "nominal"),
                tip("took", "took (s)"),
                tip("process", "process", "nominal"),
            ),
        },
    }
    ready = quantities(subject.run.summary).get("time_to_ready")
    subtitle = f"ready after {duration_text(ready.value)}" if ready else "it never became ready"
    return view(titled("Startup time by phase", subtitle), rows, [bars], height=_BAR * len(rows) + 20)


def _row(phase: Phase, began_s: float, at: int, inside: Mapping[str, str | None]) -> dict[str, Any]:
    """Two processes may have the same phase: their rows are kept apart by invisible signs behind the title."""
    depth, outer = 0, str(phase.inside)
    while outer in inside and depth < 5:
        depth, outer = depth + 1, str(inside[outer])
    return {
        "phase": "\u00a0\u00a0\u00a0" * depth + phase.title + "\u200b" * at,
        "process": phase.process or "server",
        "from": began_s,
        "to": began_s + phase.seconds,
        "took": phase.seconds,
    }


def startups(runs: Sequence[Run]) -> Spec:
    """Bars side by side for each phase, a colour for each start."""
    with_phases = [run for run in runs if (run.summary.startup and run.summary.startup.phases)]
    if len(with_phases) < 2:
        raise Cannot("fewer than two runs have startup phases")
    names = labels_of(with_phases)
    rows = [
        {"phase": quantity.title, "start": names[run.id], "took": quantity.value}
        for run in with_phases
        for quantity in quantities(run.summary).values()
        if quantity.unit == "s" and quantity.name.endswith(("_time", "time_to_ready"))
    ]
    phases = list(dict.fromkeys(row["phase"] for row in rows))
    bars = {
        "mark": {"type": "bar"},
        "encoding": {
            "x": x("took", "time (s)"),
            "y": {"field": "phase", "type": "nominal", "sort": phases, "title": None, "axis": {"labelLimit": 220}},
            "yOffset": {"field": "start", "sort": list(names.values())},
            "color": colours("start", list(names.values())),
            "tooltip": tooltip(
                tip("start", "start", "nominal"), tip("phase", "phase", "nominal"), tip("took", "took (s)")
            ),
        },
    }
    height = max(120, 12 * len(phases) * len(with_phases))
    return view(titled("Startup phases of several runs, side by side"), rows, [bars], height=height)
