"""Experiments: a measure as curves over what was varied, or as a grid over two things that were."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferometer.measure.values import Quantity, quantities
from inferometer.plan.experiment import LEVEL, number_of
from inferometer.record.run import Run
from inferometer.record.summary import Summary
from inferometer.show.charts.chart import (
    Cannot,
    Scale,
    Spec,
    colours,
    scale_of,
    tip,
    titled,
    toggled,
    view,
    with_unit,
    x,
    y,
)
from inferometer.store.experiments import KeptExperiment

MOST_SERIES = 12
KEYS = ("ttft_scheduled.p50", "ttft.p50", "ttft.p99", "tpot.p50", "e2e.p50", "output_rate", "request_rate", "goodput")


@dataclass(frozen=True, eq=False, slots=True)
class Varied:
    """One number of the cases of an experiment: what was set, and the run that came of it."""

    key: str
    cases: list[tuple[dict[str, Any], Run]]

    def known(self) -> list[tuple[dict[str, Any], Run, Quantity]]:
        found = [(settings, run, quantities(run.summary).get(self.key)) for settings, run in self.cases]
        return [(settings, run, each) for settings, run, each in found if each is not None]


def cases_of(kept: KeptExperiment, load: Callable[[str], Run | None]) -> list[tuple[dict[str, Any], Run]]:
    """The cases that came to a run that can be read; of levels these and not the ends, by what they are levels of."""
    done = [(case.get("parameters") or {}, case["run"]) for case in kept.cases if case.get("run")]
    between = [(said, run) for said, run in done if LEVEL not in said or number_of(said[LEVEL]) is not None]
    loaded = [({k: v for k, v in said.items() if k != LEVEL}, load(run)) for said, run in between] if between else []
    loaded = loaded or [(said, load(run)) for said, run in done]
    return [(dict(settings), run) for settings, run in loaded if run is not None and run.summary != Summary()]


def keys_of(cases: Sequence[tuple[Mapping[str, Any], Run]]) -> list[str]:
    """The numbers worth a chart that every case knows; without any of the usual, the first few."""
    known = [set(quantities(run.summary)) for _, run in cases]
    common = set.intersection(*known) if known else set()
    usual = [key for key in KEYS if key in common]
    return usual or [key for key in (quantities(cases[0][1].summary) if cases else {}) if key in common][:4]


def experiment_curves(varied: Varied) -> Spec:
    """Against the numeric setting with most values; all others together make a series."""
    known = varied.known()
    axis = _numeric_axis([settings for settings, _, _ in known])
    if axis is None:
        raise Cannot("no number with two values or more was varied")
    scale, name = _scale(known), known[0][2]
    rows = [_curve_row(settings, run, each, axis, scale) for settings, run, each in known]
    named = list(dict.fromkeys(row["series"] for row in rows))
    series = named[:MOST_SERIES]
    rows = sorted((row for row in rows if row["series"] in series), key=lambda row: row["at"])
    params, opacity = toggled("series")
    up = with_unit(_title(name), scale.unit)
    encoding = {
        "x": x("at", axis, scale={"zero": False}),
        "color": colours("series", series) | ({} if len(series) > 1 else {"legend": None}),
        "opacity": opacity,
    }
    tips = [tip("at", axis), tip("value", up), tip("series", "series", "nominal"), tip("run", "run", "nominal")]
    layers: list[Spec] = [
        {
            "params": params,
            "mark": {"type": "line"},
            "encoding": encoding | {"y": y("value", up, aggregate="mean")},
        },
        {"mark": {"type": "point"}, "encoding": encoding | {"y": y("value", up), "tooltip": tips}},
    ]
    some = f", the first {len(series)} of {len(named)} series" if len(series) < len(named) else ""
    return view(titled(f"{_title(name)} against {axis}", f"{len(rows)} runs{some}"), rows, layers)


def experiment_grid(varied: Varied) -> Spec:
    """Two settings with two values or more; over more settings and repeats the mean."""
    known = varied.known()
    axes = list(_varied([settings for settings, _, _ in known]))[:2]
    if len(axes) < 2:
        raise Cannot("fewer than two things were varied")
    scale, name = _scale(known), known[0][2]
    cells: dict[tuple[str, str], list[float]] = {}
    for settings, _, each in known:
        place = (_word(settings.get(axes[0])), _word(settings.get(axes[1])))
        cells.setdefault(place, []).append(each.value * scale.factor)
    rows: list[dict[str, Any]] = [
        {"across": a, "up": b, "value": sum(v) / len(v), "runs": len(v)} for (a, b), v in cells.items()
    ]
    up = with_unit(_title(name), scale.unit)
    places = {
        "x": _steps("across", axes[0], [settings.get(axes[0]) for settings, _, _ in known], 0),
        "y": _steps("up", axes[1], [settings.get(axes[1]) for settings, _, _ in known]),
    }
    tips = [tip("across", axes[0], "nominal"), tip("up", axes[1], "nominal"), tip("value", up), tip("runs", "runs")]
    middle = (min(row["value"] for row in rows) + max(row["value"] for row in rows)) / 2
    layers: list[Spec] = [
        {
            "mark": {"type": "rect"},
            "encoding": places
            | {"color": {"field": "value", "type": "quantitative", "title": up, "legend": None}, "tooltip": tips},
        },
        {
            "mark": {"type": "text", "fontSize": 12},
            "encoding": places
            | {
                "text": {"field": "value", "type": "quantitative", "format": ".3~g"},
                "color": {"condition": {"test": f"datum.value > {middle!r}", "value": "#111111"}, "value": "#ffffff"},
            },
        },
    ]
    return view(
        titled(f"{up} over {axes[0]} and {axes[1]}"), rows, layers, height=max(150, 34 * len({r["up"] for r in rows}))
    )


def _numeric_axis(settings: Sequence[Mapping[str, Any]]) -> str | None:
    numeric = {
        name: len(values)
        for name, values in _varied(settings).items()
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    }
    return max(numeric, key=lambda name: numeric[name]) if numeric else None


def _varied(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The settings with two values or more, and these."""
    names = dict.fromkeys(name for each in settings for name in each)
    found = {name: list({_word(each.get(name)): each.get(name) for each in settings}.values()) for name in names}
    return {name: values for name, values in found.items() if len(values) > 1}


def _curve_row(settings: Mapping[str, Any], run: Run, each: Quantity, axis: str, scale: Scale) -> dict[str, Any]:
    others = ", ".join(f"{name} {_word(value)}" for name, value in settings.items() if name != axis)
    return {"at": settings.get(axis), "value": scale.shown(each.value), "series": others or "all", "run": run.id}


def _scale(known: Sequence[tuple[dict[str, Any], Run, Quantity]]) -> Scale:
    if not known:
        raise Cannot("no case knows this measure")
    return scale_of(known[0][2].unit, [each.value for _, _, each in known])


def _steps(field: str, title: str, values: Sequence[Any], angle: int | None = None) -> Spec:
    """In the order of numbers where they are numbers."""
    numbers = all(isinstance(value, int | float) for value in values)
    order = [_word(value) for value in (sorted(set(values)) if numbers else dict.fromkeys(map(_word, values)))]
    axis = {} if angle is None else {"axis": {"labelAngle": angle}}
    return {"field": field, "type": "nominal", "title": title, "sort": order, **axis}


def _title(each: Quantity) -> str:
    return each.title if each.statistic is None else f"{each.title} {each.statistic}"


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
