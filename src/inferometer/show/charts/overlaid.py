"""Distributions of several runs, one over the other."""

from collections.abc import Callable, Sequence

import numpy as np

from inferometer.record.columns import Floats
from inferometer.record.run import Run
from inferometer.show.charts.chart import Cannot, Spec
from inferometer.show.charts.labels import labels_of
from inferometer.show.charts.spec import colours, scale_of, tip, titled, toggled, view, with_unit, x, y
from inferometer.show.charts.subject import Subject
from inferometer.show.charts.thinning import quantile_grid
from inferometer.vocabulary import MEASURES

Grid = tuple[Floats, Floats]  # shares and values

MOST_RUNS = 8  # more lines cannot be told apart


def cdfs_of(name: str) -> Callable[[Sequence[Run]], Spec]:
    def cdfs(runs: Sequence[Run]) -> Spec:
        found: dict[str, Grid] = {}
        for run in runs:
            if len(found) == MOST_RUNS:
                break
            try:
                found[run.id] = quantile_grid(*Subject(run).values(name), most=160)
            except Cannot:
                continue
        if len(found) < 2:
            raise Cannot("fewer than two of these runs have records of their requests")
        return _view(name, found, [run for run in runs if run.id in found], len(runs))

    return cdfs


def _view(name: str, found: dict[str, Grid], runs: list[Run], asked: int) -> Spec:
    names, word = labels_of(runs), MEASURES[name].title
    scale = scale_of("s", [float(np.quantile(grid, 0.9)) for _, grid in found.values()])
    rows = [
        {"run": names[id_], "share": share, "value": scale.shown(value)}
        for id_, (shares, grid) in found.items()
        for share, value in zip(shares, grid, strict=True)
    ]
    params, opacity = toggled("run")
    axis = with_unit(word, scale.unit)
    line = {
        "params": params,
        "mark": {"type": "line", "interpolate": "step-before"},
        "encoding": {
            "x": x("value", axis, scale={"zero": False}),
            "y": y("share", "share of requests", axis={"format": "%"}, scale={"domain": [0, 1]}),
            "color": colours("run", list(names.values())),
            "opacity": opacity,
            "tooltip": [tip("run", "run", "nominal"), tip("value", axis), tip("share", "share", format_=".2%")],
        },
    }
    some = "" if asked == len(runs) else f"{len(runs)} of {asked} runs"
    return view(titled(f"{word} of several runs, one over the other", some), rows, [line])


ttft_cdfs, e2e_cdfs = cdfs_of("ttft"), cdfs_of("e2e")
