"""Runs as points: what more load costs in latency, what throughput costs in speed for a user, and which runs are not
dominated by others. Points of one series are joined in the order of load; on a page, users can map the fields listed in
`usermeta` to colour, shape or facet."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TypedDict

from inferometer.measure.values import common_basis, quantities
from inferometer.record.run import Run
from inferometer.record.summary import Basis
from inferometer.show.about import hardware_name, short_model
from inferometer.show.charts.chart import (
    LETTER,
    WIDTH,
    Cannot,
    Spec,
    Tip,
    colours,
    scale_of,
    stack_of,
    tip,
    titled,
    tooltip,
    view,
    with_unit,
    x,
    y,
)
from inferometer.vocabulary import MEASURES

QUANTILES = ("p50", "p99")
FIELDS = {  # of a row: fields for colour, shape or facet, and their titles
    "stack": "model · engine · hardware",
    "model": "model",
    "engine": "engine",
    "hardware": "hardware",
    "workload": "workload",
    "name": "plan",
}
MOST_CHOICES = 12  # colours, shapes or facets that can be distinguished
SPEED = "interactivity: output tok/s of one user"
TALL = 340  # pixels: points of many runs need room
LABEL_HEIGHT = 14
STACK_DOT = " · "
_ABOUT = [
    *(tip("stack", "stack", "nominal"), tip("workload", "workload", "nominal"), tip("load", "load", "nominal")),
    tip("run", "run", "nominal"),
]
_FIRST_NUMBER = re.compile(r"[0-9][0-9,]*(?:\.[0-9]+)?")


class PointRow(TypedDict, total=False):
    """A run as a point: what it is about, its load, and its numbers."""

    run: str
    stack: str
    model: str
    engine: str
    hardware: str
    workload: str
    name: str
    load: str
    process: str  # rates are not joined with numbers in flight
    order: float  # of the load: points are joined in this order
    speed: float
    throughput: float
    cost: float | None
    rate: float
    quantile: str
    value: float | None
    beaten: str
    label: str


@dataclass(frozen=True)
class PlottedRun:
    """The data of a point: from a run, or from an index entry."""

    about: PointRow
    numbers: Mapping[str, float]  # rates on one basis for all runs of a chart
    gpus: int | None  # accelerators; None: unknown


Plottable = Run | PlottedRun


def plotted(runs: Sequence[Plottable]) -> list[PlottedRun]:
    basis = common_basis(run.summary for run in runs if isinstance(run, Run))
    return _without_shared_parts([_plotted(run, basis) if isinstance(run, Run) else run for run in runs])


def _without_shared_parts(points: list[PlottedRun]) -> list[PlottedRun]:
    """Parts that all stacks share are left out of the names of series."""
    stacks = [point.about["stack"].split(STACK_DOT) for point in points]
    if len(set(map(tuple, stacks))) < 2:
        return points
    shared = set(stacks[0]).intersection(*stacks[1:])
    names = [STACK_DOT.join(part for part in parts if part not in shared) for parts in stacks]
    if not all(names):
        return points
    return [replace(own, about={**own.about, "stack": name}) for own, name in zip(points, names, strict=True)]


def _plotted(run: Run, basis: Basis) -> PlottedRun:
    numbers = {key: quantity.value for key, quantity in quantities(run.summary, basis).items()}
    return PlottedRun(_about(run), numbers, len(run.subject.accelerators) or None)


# -- charts ----------------------------------------------------------------------------------------------------------


def latency_by_rate(runs: Sequence[Plottable]) -> Spec:
    """Lines over runs with different rates; the tail is dashed."""
    points = plotted(runs)
    rows = [row for run in points for row in _rate_rows(run)]
    if len({row["rate"] for row in rows}) < 2:
        raise Cannot("it needs runs with TTFT at two or more rates")
    scale = scale_of("s", [row["value"] for row in rows])
    for row in rows:
        row["value"] = scale.shown(row["value"])
    name = MEASURES["ttft_scheduled" if all(_ttft_of(run) == "ttft_scheduled" for run in points) else "ttft"].title
    axis = with_unit(name, scale.unit)
    across, up = x("rate", "requests offered (1/s)"), y("value", axis)
    present = [quantile for quantile in QUANTILES if any(row["quantile"] == quantile for row in rows)]
    dash = {
        "field": "quantile",
        "type": "nominal",
        "title": None,
        "scale": {"domain": present, "range": [[1, 0], [4, 3]][: len(present)]},
    }
    tips = [tip("rate", "requests/s"), tip("quantile", "quantile", "nominal"), tip("value", axis)]
    layers = _joined(rows, across, up, tips, detail=["workload", "process", "quantile"], more={"strokeDash": dash})
    return _view(titled(f"{name} by offered rate", f"{len(runs)} runs"), rows, layers)


def throughput_by_user_speed(runs: Sequence[Plottable]) -> Spec:
    rows, axis = speed_rows(runs)
    unknown = sum(1 for run in plotted(runs) if per_gpu(run) is None)
    some = f"; not per GPU: {unknown} of {len(runs)} runs have no number of GPUs" if unknown < len(runs) else ""
    subtitle = "each point is a run, joined in the order of load; up and right is better"
    title = titled(f"{axis} by interactivity", subtitle + (some if unknown else ""))
    across, up = x("speed", SPEED), y("throughput", _named(axis))
    tips = [tip("speed", "tok/s of one user"), tip("throughput", axis)]
    return _view(title, rows, [*_joined(rows, across, up, tips), *_labels(rows, across, up, "speed", "throughput")])


def cost_by_user_speed(runs: Sequence[Plottable]) -> Spec:
    rows = [row for row in speed_rows(runs)[0] if row["cost"] is not None]
    if not rows:
        raise Cannot("no run has a hardware price")
    title = titled("Cost of a million tokens by interactivity", "input and output tokens; down and right is better")
    across, up = x("speed", SPEED), y("cost", "$ per million tokens (input + output)")
    tips = [tip("speed", "tok/s of one user"), tip("cost", "$ per million")]
    return _view(title, rows, [*_joined(rows, across, up, tips), *_labels(rows, across, up, "speed", "cost")])


def pareto(runs: Sequence[Plottable]) -> Spec:
    """The front as a line; dominated runs are pale."""
    rows, axis = speed_rows(runs)
    best = front([(row["speed"], row["throughput"]) for row in rows])
    for at, row in enumerate(rows):
        row["beaten"] = "on the front" if at in best else "beaten by another"
    line = sorted((row for at, row in enumerate(rows) if at in best), key=lambda row: row["speed"])
    across, up = x("speed", SPEED), y("throughput", _named(axis))
    axes = {"x": across, "y": up}
    faded = {"condition": {"test": "datum.beaten == 'on the front'", "value": 1}, "value": 0.3}
    tips = tooltip(tip("speed", "tok/s of one user"), tip("throughput", axis), *_ABOUT)
    shown: list[Spec] = [
        {
            "data": {"values": line},
            "mark": {"type": "line", "interpolate": "step-before", "strokeDash": [5, 4], "strokeWidth": 1.5},
            "encoding": axes,
        },
        {
            "name": "points",
            "mark": {"type": "point", "size": 60},
            "encoding": axes | {"color": _colour(rows), "opacity": faded, "tooltip": tips},
        },
    ]
    subtitle = f"{len(best)} of {len(rows)} runs are on it: no other is better in both"
    return _view(titled("Pareto front", subtitle), rows, [*shown, *_labels(line, across, up, "speed", "throughput")])


# -- parts -----------------------------------------------------------------------------------------------------------


def _view(title: Spec, rows: Sequence[PointRow], layers: Sequence[Spec]) -> Spec:
    values = {name: len({row.get(name) for row in rows}) for name in FIELDS}
    choices = {name: FIELDS[name] for name, count in values.items() if 1 < count <= MOST_CHOICES}
    if shared := _shared_text(rows):
        title = {**title, "subtitle": f"{title['subtitle']}; all {shared}"}
    return view(title, rows, layers, height=TALL) | {"usermeta": {"choices": choices, "colour": _coloured_by(rows)}}


def _shared_text(rows: Sequence[PointRow]) -> str:
    """Text that all series share, and that is left out of their names."""
    if len({row["stack"] for row in rows}) < 2:
        return ""
    facts = [(short_model(row["model"]), row["engine"], row["hardware"]) for row in rows]
    values = [set(column) for column in zip(*facts, strict=True)]
    return STACK_DOT.join(only for only, *others in map(sorted, values) if not others and only != "-")


def _joined(
    rows: Sequence[PointRow],
    across: Spec,
    up: Spec,
    tips: Sequence[Tip],
    detail: Sequence[str] = ("workload", "process"),
    more: Spec | None = None,
) -> list[Spec]:
    """A line through each series in the order of load, and its points."""
    colour, dash = _colour(rows), more or {}
    middles = _middles(rows, across["field"], up["field"])
    return [
        {
            "name": "lines",
            **({"data": {"values": middles}} if len(middles) < len(rows) else {}),
            "mark": {"type": "line", "strokeWidth": 1.5, "opacity": 0.6},
            "encoding": {"x": across, "y": up, "color": colour, "order": {"field": "order"}, **dash}
            | {"detail": [{"field": name} for name in detail]},
        },
        {
            "name": "points",
            "mark": {"type": "point", "size": 60},
            "encoding": {"x": across, "y": up, "color": colour, "tooltip": tooltip(*tips, *_ABOUT)},
        },
    ]


def _middles(rows: Sequence[PointRow], x_field: str, y_field: str) -> list[PointRow]:
    """One row for each load of a series, with the medians of its runs: a line through every night's run at one load
    would be a knot."""
    groups: dict[tuple[object, ...], list[PointRow]] = {}
    for row in rows:
        series = tuple(row.get(name) for name in ("stack", "workload", "process", "quantile", "order"))
        groups.setdefault(series, []).append(row)
    return [
        {**own[-1], **{name: median(float(row[name]) for row in own) for name in (x_field, y_field)}}  # type: ignore[literal-required,typeddict-item]
        for own in groups.values()
    ]


def _colour(rows: Sequence[PointRow]) -> Spec:
    field = _coloured_by(rows)
    names = list(dict.fromkeys(str(row.get(field)) for row in rows))
    return colours(field, names) | ({} if len(names) > 1 else {"legend": None})


def _coloured_by(rows: Sequence[PointRow]) -> str:
    """The stack; with one stack the workload, if a few of them differ: otherwise all lines would look alike."""
    stacks, workloads = ({row.get(name) for row in rows} for name in ("stack", "workload"))
    return "workload" if len(stacks) == 1 and 1 < len(workloads) <= MOST_CHOICES else "stack"


def _labels(rows: Sequence[PointRow], across: Spec, up: Spec, x_field: str, y_field: str) -> list[Spec]:
    """The load next to its point, for as many points as there is room: no label covers another label or point. The
    highest load of a series also shows its workload, if colours do not distinguish workloads, and is placed first. If
    all points have the same load, there are no labels."""
    tops = {id(row) for row in _tops(rows)} if _coloured_by(rows) != "workload" else set()
    ordered = sorted(rows, key=lambda row: id(row) not in tops)
    points = [(float(row[x_field]), float(row[y_field])) for row in ordered]  # type: ignore[literal-required]
    texts = [[f"{row['workload']}: {row['load']}"] if id(row) in tops else [] for row in ordered]
    loads = {row["load"] for row in rows}
    short = [[row["load"]] if len(loads) > 1 else [] for row in ordered]
    placed = _with_room(points, [[*long, *own] for long, own in zip(texts, short, strict=True)])
    labelled = [{**ordered[at], "label": text} for at, text in placed.items() if text]
    if not labelled:
        return []
    return [
        {
            "name": "labels",
            "data": {"values": labelled},
            "mark": {"type": "text", "align": "left", "dx": 7, "dy": -7, "fontSize": 11},
            "encoding": {"x": across, "y": up, "text": {"field": "label", "type": "nominal"}},
        }
    ]


def _tops(rows: Sequence[PointRow]) -> list[PointRow]:
    """For each series the run with the highest load, if there are several workloads."""
    if len({row["workload"] for row in rows} - {"-"}) < 2:
        return []
    tops: dict[tuple[str, str, str], PointRow] = {}
    for row in rows:
        series = (row["stack"], row["workload"], row["process"])
        if row["workload"] != "-" and (series not in tops or row["order"] > tops[series]["order"]):
            tops[series] = row
    return list(tops.values())


def _with_room(points: Sequence[tuple[float, float]], texts: Sequence[Sequence[str]]) -> dict[int, str]:
    """The first text of each point that there is room for. Greedy, at the size of pictures; a narrower page hides more
    of them."""
    if not points:
        return {}
    widest, highest = max(point[0] for point in points) or 1.0, max(point[1] for point in points) or 1.0
    spots = [(px / widest * WIDTH, TALL - py / highest * TALL) for px, py in points]
    taken: list[tuple[float, float, float, float]] = []
    placed: dict[int, str] = {}
    for at, (left, top) in enumerate(spots):
        dots = [(a - 4, b - 4, a + 4, b + 4) for other, (a, b) in enumerate(spots) if other != at]
        for text in texts[at]:
            box = (left + 7, top - 7 - LABEL_HEIGHT, left + 7 + LETTER * len(text), top - 3)
            if not any(_overlap(box, other) for other in (*taken, *dots)):
                placed[at] = text
                taken.append(box)
                break
    return placed


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def front(points: Sequence[tuple[float, float]]) -> set[int]:
    """Indices of the points that are not dominated (another point better in one and not worse in the other); more is
    better."""
    best: set[int] = set()
    highest = float("-inf")
    for at in sorted(range(len(points)), key=lambda at: points[at], reverse=True):
        if points[at][1] > highest or (best and points[at] == points[max(best, key=lambda b: points[b][1])]):
            best.add(at)
            highest = max(highest, points[at][1])
    return best


# -- rows ------------------------------------------------------------------------------------------------------------


def _ttft_of(run: PlottedRun) -> str:
    """For an open loop, counted from the scheduled time."""
    return "ttft_scheduled" if "ttft_scheduled.p50" in run.numbers else "ttft"


def _rate_rows(run: PlottedRun) -> list[PointRow]:
    numbers, measure = run.numbers, _ttft_of(run)
    rate = numbers.get("offered_rate", numbers.get("request_rate"))
    rows: list[PointRow] = []
    for quantile in QUANTILES:
        value = numbers.get(f"{measure}.{quantile}")
        if rate is not None and value is not None:
            rows.append({**run.about, "rate": rate, "order": rate, "quantile": quantile, "value": value})
    return rows


def speed_rows(runs: Sequence[Plottable]) -> tuple[list[PointRow], str]:
    """Speed of one user, tokens per second and GPU, and cost, for each run that has them; and the name of the axis. If
    the number of GPUs is not known for all, total tokens per second are used."""
    points = plotted(runs)
    counted = all(per_gpu(run) is not None for run in points)
    rows: list[PointRow] = []
    for run in points:
        speed, tokens = user_speed(run.numbers), per_gpu(run) if counted else _tokens(run.numbers)
        if speed is not None and tokens is not None:
            cost = run.numbers.get("cost_per_million_tokens")
            rows.append({**run.about, "speed": speed, "throughput": tokens, "cost": cost})
    if len(rows) < 2:
        raise Cannot("it needs at least two runs with tokens per second and TPOT")
    return rows, "Tokens per second and GPU" if counted else "Tokens per second"


def _named(axis: str) -> str:
    return f"{axis.lower().replace('gpu', 'GPU')} (input + output)"


def _tokens(numbers: Mapping[str, float]) -> float | None:
    return numbers.get("total_rate", numbers.get("output_rate"))


def per_gpu(run: PlottedRun) -> float | None:
    """From the run itself, else computed with its known GPUs."""
    if (reported := run.numbers.get("throughput_per_gpu")) is not None:
        return reported
    tokens = _tokens(run.numbers)
    return None if tokens is None or run.gpus is None else tokens / run.gpus


def user_speed(numbers: Mapping[str, float]) -> float | None:
    """From the run itself; else 1 / mean TPOT, as CI benchmarks plot it."""
    if (reported := numbers.get("tokens_per_s_user")) is not None:
        return reported
    tpot = numbers.get("tpot.mean")
    return 1 / tpot if tpot is not None and tpot > 0 else numbers.get("user_speed.p50")


def _about(run: Run) -> PointRow:
    subject = run.subject
    return {
        "run": run.id,
        "stack": stack_of(run),
        "model": subject.model or "-",
        "engine": subject.engine_text or "-",
        "hardware": hardware_name(run) or "-",
        "workload": subject.workload or "-",
        "name": subject.name or "-",
        "load": subject.load,
        "process": load_process(subject.load),
        "order": load_order(subject.load),
    }


def load_process(load: str) -> str:
    """A load in words without its numbers: `req/s Poisson`, `in flight`."""
    return _FIRST_NUMBER.sub("", load).strip()


def load_order(load: str) -> float:
    """The first number of a load in words: `16 in flight` comes after `8 in flight`."""
    match = _FIRST_NUMBER.search(load)
    return float(match[0].replace(",", "")) if match else 0.0
