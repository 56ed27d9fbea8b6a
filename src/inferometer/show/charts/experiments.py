"""Experiments: a measure as curves over a varied setting, or as a grid over two of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypedDict

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.measure.values import Quantity, common_basis, quantities, quantity_on
from inferometer.plan.experiment import LEVEL, number_of
from inferometer.plan.limit import Limit
from inferometer.record.run import Run
from inferometer.record.summary import Summary
from inferometer.show.charts.chart import (
    GREEN,
    GREY,
    ORANGE,
    Cannot,
    Scale,
    Spec,
    colours,
    meanings,
    scale_of,
    tip,
    titled,
    toggled,
    tooltip,
    view,
    with_unit,
    x,
    y,
)
from inferometer.store.experiments import KeptExperiment
from inferometer.vocabulary import MEASURES, duration_text, number_text

ChartedCase = tuple[JsonObject, Run]  # the settings, and the resulting run
NumberedCase = tuple[JsonObject, Run, Quantity]  # a case with its number


class CurvePoint(TypedDict):
    """A case of a curve."""

    at: float
    value: float | None
    series: str
    run: str


class GridCell(TypedDict):
    """A pair of settings, with the mean of its cases."""

    across: str
    up: str
    value: float
    runs: int
    text: str


class StepPoint(TypedDict):
    """A load of a search, with the number to which a limit applies."""

    at: float
    value: float | None
    status: str
    run: str


MOST_SERIES = 12
WIDE = 8.0  # ratio of largest to smallest above which a heat map colours by ratios
KEYS = (
    *("ttft_scheduled.p50", "ttft_scheduled.p99", "ttft.p50", "ttft.p99", "tpot.p50", "e2e_scheduled.p50", "e2e.p50"),
    *("output_rate", "request_rate", "goodput"),
)


@dataclass(frozen=True, eq=False, slots=True)
class Varied:
    """One number of the cases of an experiment: their settings, and the resulting runs."""

    key: str
    cases: Sequence[ChartedCase]

    def known(self) -> list[NumberedCase]:
        basis = common_basis(run.summary for _, run in self.cases)
        joined = joined_cases(self.cases)
        rows = [(settings, run, quantity_on(run.summary, self.key, basis)) for settings, run in joined]
        return [(settings, run, quantity) for settings, run, quantity in rows if quantity is not None]


def cases_of(kept: KeptExperiment, load: Callable[[str], Run | None]) -> list[ChartedCase]:
    """The cases with readable runs; for load levels the levels and not the ends, with the settings they are levels
    of."""
    done = [(dict(case.parameters or {}), case.run) for case in kept.cases if case.run]
    between = [
        ({path: value for path, value in parameters.items() if path != LEVEL}, run)
        for parameters, run in done
        if LEVEL not in parameters or number_of(str(parameters[LEVEL])) is not None
    ]
    loaded = [(parameters, load(run)) for parameters, run in between or done]
    return [(settings, run) for settings, run in loaded if run is not None and run.summary != Summary()]


def keys_of(cases: Sequence[ChartedCase]) -> list[str]:
    """The numbers worth a chart that every case has; if it has none of the usual ones, the first few."""
    known = [set(quantities(run.summary)) for _, run in cases]
    common = set.intersection(*known) if known else set()
    there = [key for key in KEYS if key in common]
    usual = without_unscheduled(there)
    return usual or [key for key in (quantities(cases[0][1].summary) if cases else {}) if key in common][:4]


def without_unscheduled(keys: Sequence[str]) -> list[str]:
    """Measures from the scheduled time replace those from the send time."""
    replaced = {key.replace("_scheduled.", ".") for key in keys if "_scheduled." in key}
    return [key for key in keys if key not in replaced]


def readable(path: str) -> str:
    """`input tokens` for `workload.input_tokens`."""
    return path.rpartition(".")[2].replace("_", " ")


_LOADS = {"rate": "request rate (req/s)", "concurrency": "requests in flight"}


def axis_title(path: str) -> str:
    return _LOADS.get(path.rpartition(".")[2], readable(path))


def joined_cases(cases: Sequence[ChartedCase]) -> list[ChartedCase]:
    """Settings that vary together count as one: the first one stays. Settings that do not vary are left out."""
    settings = [own for own, _ in cases]
    varied = list(_varied(settings))
    kept: list[str] = []
    for name in varied:
        if not any(_together(settings, name, other) for other in kept):
            kept.append(name)
    return [({name: own[name] for name in kept if name in own}, run) for own, run in cases]


def _together(settings: Sequence[JsonObject], one: str, other: str) -> bool:
    """Whether each value of one setting occurs with exactly one value of the other, and vice versa."""
    pairs = {(_value_text(own.get(one)), _value_text(own.get(other))) for own in settings}
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def experiment_curves(varied: Varied) -> Spec:
    """Plotted against the numeric setting with most values; each combination of the others is a series."""
    known = varied.known()
    axis = _numeric_axis([settings for settings, _, _ in known])
    if axis is None:
        raise Cannot("no numeric setting was varied over two or more values")
    scale, name = _scale(known), known[0][2]
    rows = [_curve_row(settings, run, quantity, axis, scale) for settings, run, quantity in known]
    named = list(dict.fromkeys(row["series"] for row in rows))
    series = named[:MOST_SERIES]
    rows = sorted((row for row in rows if row["series"] in series), key=lambda row: row["at"])
    params, opacity = toggled("series")
    up = with_unit(measure_title(name), scale.unit)
    encoding = {
        "x": x("at", axis_title(axis), scale={"zero": False}),
        "color": colours("series", series) | ({} if len(series) > 1 else {"legend": None}),
        "opacity": opacity,
    }
    tips = [
        tip("at", readable(axis)),
        tip("value", up),
        tip("series", "series", "nominal"),
        tip("run", "run", "nominal"),
    ]
    layers: list[Spec] = [
        {
            "params": params,
            "mark": {"type": "line"},
            "encoding": encoding | {"y": y("value", up, aggregate="mean")},
        },
        {"mark": {"type": "point"}, "encoding": encoding | {"y": y("value", up), "tooltip": tooltip(*tips)}},
    ]
    some = f", the first {len(series)} of {len(named)} series" if len(series) < len(named) else ""
    return view(titled(f"{measure_title(name)} by {readable(axis)}", f"{len(rows)} runs{some}"), rows, layers)


def experiment_grid(varied: Varied) -> Spec:
    """Two settings with two or more values; averaged over further settings and repeats."""
    known = varied.known()
    axes = _crossed([settings for settings, _, _ in known])
    scale, name = _scale(known), known[0][2]
    rows = _cells(known, axes, scale)
    title = measure_title(name) if name.unit == "s" else with_unit(measure_title(name), scale.unit)
    across, up = ([settings.get(axis) for settings, _, _ in known] for axis in axes)
    places = {"x": _steps("across", axis_title(axes[0]), across, 0), "y": _steps("up", axis_title(axes[1]), up)}
    return view(
        titled(f"{title} by {readable(axes[0])} and {readable(axes[1])}", _better(name)),
        rows,
        _heat_map(rows, places, title, name.direction),
        height=max(150, 34 * len({row["up"] for row in rows})),
    )


def _crossed(settings: Sequence[JsonObject]) -> tuple[str, str]:
    """The first two settings that each varied while the other stayed: otherwise a grid is a diagonal. Cases that lack
    one of them, as a policy lacks the settings of another, are not part of the grid."""
    for pair in combinations(_varied(settings), 2):
        both = [case for case in settings if case.keys() >= set(pair)]
        places = {tuple(_value_text(case[name]) for name in pair) for case in both}
        if all(len({place[side] for place in places}) < len(places) for side in (0, 1)):
            return pair
    raise Cannot("no two settings were varied against each other")


def _cells(known: Sequence[NumberedCase], axes: Sequence[str], scale: Scale) -> list[GridCell]:
    """The mean of each pair of values. Each time has its own unit, from µs to minutes."""
    cells: dict[tuple[str, str], list[float]] = {}
    for settings, _, quantity in known:
        place = (_value_text(settings.get(axes[0])), _value_text(settings.get(axes[1])))
        cells.setdefault(place, []).append(quantity.value * scale.factor)
    is_time = known[0][2].unit == "s"
    return [
        {
            "across": a,
            "up": b,
            "value": (mean := sum(v) / len(v)),
            "runs": len(v),
            "text": duration_text(mean / scale.factor) if is_time else number_text(mean),
        }
        for (a, b), v in cells.items()
    ]


def _heat_map(rows: Sequence[GridCell], places: Spec, title: str, direction: str | None) -> list[Spec]:
    """Yellow is better in every map, and texts are readable on their colours."""
    low, high = min(row["value"] for row in rows), max(row["value"] for row in rows)
    wide = low > 0 and high / low > WIDE  # else one slow case would leave all others in one colour
    middle = (low * high) ** 0.5 if wide else (low + high) / 2
    is_lower = direction == "lower"
    scale = {"type": "log" if wide else "linear", "scheme": "viridis", "reverse": is_lower}
    colour = {"field": "value", "type": "quantitative", "title": title, "legend": None, "scale": scale}
    dark = {"test": f"datum.value {'<' if is_lower else '>'} {middle!r}", "value": "#111111"}
    text = {"text": {"field": "text", "type": "nominal"}, "color": {"condition": dark, "value": "#ffffff"}}
    tips = tooltip(
        tip("across", places["x"]["title"], "nominal"),
        tip("up", places["y"]["title"], "nominal"),
        tip("text", title, "nominal"),
        tip("runs", "runs"),
    )
    return [
        {"mark": {"type": "rect"}, "encoding": places | {"color": colour, "tooltip": tips}},
        {"mark": {"type": "text", "fontSize": 12}, "encoding": places | text},
    ]


def limit_keys(cases: Sequence[ChartedCase]) -> dict[str, Limit]:
    """The limits that the runs of an experiment were judged by, named like measures: `tpot.p90`."""
    limits = {}
    for text in dict.fromkeys(limit.limit for _, run in cases for limit in run.summary.limits):
        with suppress(ValueError):
            limit = Limit.model_validate(text)
            limits[limit.measure if limit.stat is None else f"{limit.measure}.{limit.stat}"] = limit
    return limits


def search_curve(varied: Varied) -> Spec:
    """The measure of a limit, at every load tried: the limit as a line, the steps as points."""
    limit = limit_keys(varied.cases).get(varied.key)
    if limit is None:
        raise Cannot(f"no limit on {varied.key}")
    axis = _numeric_axis([settings for settings, _ in varied.cases])
    if axis is None:
        raise Cannot("fewer than two loads were tried")
    rows = [row for settings, run in varied.cases for row in _limit_rows(settings, run, varied.key, axis)]
    if not rows:
        raise Cannot(f"no step has a value of {varied.key}")
    measure = MEASURES[limit.measure]
    scale = scale_of(measure.unit, [*(row["value"] for row in rows), limit.value])
    points = [{**row, "value": scale.shown(row["value"])} for row in rows]
    title = measure.title if limit.stat is None else f"{measure.title} {limit.stat}"
    axes = {
        "x": x("at", axis_title(axis), scale={"zero": False}),
        "y": y("value", with_unit(title, scale.unit)),
    }
    tips = [
        tip("at", readable(axis)),
        tip("value", title),
        tip("status", "limit", "nominal"),
        tip("run", "run", "nominal"),
    ]
    layers: list[Spec] = [
        {"mark": {"type": "line", "opacity": 0.5}, "encoding": axes | {"y": axes["y"] | {"aggregate": "mean"}}},
        {
            "data": {"values": [{"limit": scale.shown(limit.value), "text": str(limit)}]},
            "mark": {"type": "rule", "strokeDash": [6, 4], "strokeWidth": 2},
            "encoding": {"y": {"field": "limit", "type": "quantitative"}},
        },
        {
            "data": {"values": [{"limit": scale.shown(limit.value), "text": f"limit: {limit}"}]},
            "mark": {"type": "text", "align": "right", "baseline": "bottom", "dx": -4, "dy": -3, "fontSize": 11},
            "encoding": {
                "y": {"field": "limit", "type": "quantitative"},
                "x": {"value": {"expr": "width"}},
                "text": {"field": "text"},
            },
        },
        {
            "mark": {"type": "point", "size": 80},
            "encoding": axes
            | {
                "color": meanings(
                    "status", {"keeps": GREEN, "breaks": ORANGE, "undecided": GREY}, {r["status"] for r in rows}
                ),
                "tooltip": tooltip(*tips),
            },
        },
    ]
    return view(
        titled(f"{title} at the loads that were tried", f"{len(rows)} steps; the dashed line is the limit"),
        points,
        layers,
    )


def _limit_rows(settings: JsonObject, run: Run, key: str, axis: str) -> Iterator[StepPoint]:
    for result in run.summary.limits:
        with suppress(ValueError):
            limit = Limit.model_validate(result.limit)
            named = limit.measure if limit.stat is None else f"{limit.measure}.{limit.stat}"
            at = settings.get(axis)
            if named == key and result.value is not None and isinstance(at, int | float):
                status = {True: "keeps", False: "breaks", None: "undecided"}[result.met]
                yield {"at": at, "value": result.value, "status": status, "run": run.id}


def _numeric_axis(settings: Sequence[JsonObject]) -> str | None:
    numeric = {
        name: len(values)
        for name, values in _varied(settings).items()
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    }
    return max(numeric, key=lambda name: numeric[name]) if numeric else None


def _varied(settings: Sequence[JsonObject]) -> dict[str, list[JsonValue]]:
    """The settings with two or more values, and these values."""
    names = dict.fromkeys(name for case in settings for name in case)
    by_name = {
        name: list({_value_text(case.get(name)): case.get(name) for case in settings}.values()) for name in names
    }
    return {name: values for name, values in by_name.items() if len(values) > 1}


def _curve_row(settings: JsonObject, run: Run, quantity: Quantity, axis: str, scale: Scale) -> CurvePoint:
    others = ", ".join(f"{readable(name)} {_value_text(value)}" for name, value in settings.items() if name != axis)
    at = settings.get(axis)
    assert isinstance(at, int | float)  # the axis is numeric
    return {"at": at, "value": scale.shown(quantity.value), "series": others or "all", "run": run.id}


def _scale(known: Sequence[NumberedCase]) -> Scale:
    if not known:
        raise Cannot("no case has this measure")
    return scale_of(known[0][2].unit, [quantity.value for _, _, quantity in known])


def _steps(field: str, title: str, values: Sequence[JsonValue], angle: int | None = None) -> Spec:
    """In numeric order if they are numbers."""
    numbers = [value for value in values if isinstance(value, int | float)]
    ordered = sorted(set(numbers)) if len(numbers) == len(values) else dict.fromkeys(map(_value_text, values))
    order = [_value_text(value) for value in ordered]
    axis = {} if angle is None else {"axis": {"labelAngle": angle}}
    return {"field": field, "type": "nominal", "title": title, "sort": order, **axis}


def _better(quantity: Quantity) -> str:
    """The meaning of the colours: the same in every map."""
    if quantity.direction is None:
        return ""
    return f"yellow is better: {'less' if quantity.direction == 'lower' else 'more'}"


def measure_title(quantity: Quantity) -> str:
    return quantity.title if quantity.statistic is None else f"{quantity.title} {quantity.statistic}"


def _value_text(value: Any) -> str:
    return number_text(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
