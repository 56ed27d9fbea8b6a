"""Runs as points: what more load costs in latency, what throughput costs in speed for a user, and which runs no other
one beats."""

from collections.abc import Mapping, Sequence
from typing import Any

from inferometer.measure.values import Quantity, quantities
from inferometer.record.run import Run
from inferometer.show.charts.chart import Cannot, Spec, colours, scale_of, tip, titled, toggled, view, with_unit, x, y
from inferometer.show.charts.subject import gpus_of, load_of, stack_of

QUANTILES = ("p50", "p90", "p99")
_ABOUT = [tip("stack", "stack", "nominal"), tip("load", "load", "nominal"), tip("run", "run", "nominal")]


def latency_by_rate(runs: Sequence[Run]) -> Spec:
    """Lines over runs of different rates; a dash pattern for each stack."""
    rows = [row for run in runs for row in _rate_rows(run)]
    if len({row["rate"] for row in rows}) < 2:
        raise Cannot("it needs runs with TTFT at two rates or more")
    scale = scale_of("s", [row["value"] for row in rows])
    for row in rows:
        row["value"] = scale.shown(row["value"])
    params, opacity = toggled("quantile")
    axis = with_unit("TTFT", scale.unit)
    line: Spec = {
        "params": params,
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": x("rate", "requests offered (1/s)"),
            "y": y("value", axis),
            "color": colours("quantile", [q for q in QUANTILES if any(row["quantile"] == q for row in rows)]),
            "opacity": opacity,
            "tooltip": [tip("rate", "requests/s"), tip("quantile", "quantile", "nominal"), tip("value", axis), *_ABOUT],
        },
    }
    if len({row["stack"] for row in rows}) > 1:
        line["encoding"]["strokeDash"] = {"field": "stack", "type": "nominal", "title": None}
    return view(titled("TTFT against the rate that was offered", f"{len(runs)} runs"), rows, [line])


def _rate_rows(run: Run) -> list[dict[str, Any]]:
    found = quantities(run.summary)
    rate = found.get("offered_rate") or found.get("request_rate")
    measure = "ttft_scheduled" if "ttft_scheduled.p50" in found else "ttft"
    told = [(quantile, found.get(f"{measure}.{quantile}")) for quantile in QUANTILES]
    return [
        _about(run) | {"rate": rate.value, "quantile": quantile, "value": each.value}
        for quantile, each in told
        if rate is not None and each is not None
    ]


def throughput_by_user_speed(runs: Sequence[Run]) -> Spec:
    rows, axis = _speed_rows(runs)
    said = "each point is a run; up and to the right is better"
    title = titled(f"{axis} against the speed of one user", said)
    return view(title, rows, _points(rows, y("throughput", axis), tip("throughput", axis)))


def cost_by_user_speed(runs: Sequence[Run]) -> Spec:
    rows = [row for row in _speed_rows(runs)[0] if row["cost"] is not None]
    if not rows:
        raise Cannot("no run tells what its hardware costs")
    title = titled("Cost of a million tokens against the speed of one user", "down and to the right is better")
    return view(title, rows, _points(rows, y("cost", "cost of a million tokens ($)"), tip("cost", "$ per million")))


def pareto(runs: Sequence[Run]) -> Spec:
    """The front as a line; runs that another one beats are pale."""
    rows, axis = _speed_rows(runs)
    best = front([(row["speed"], row["throughput"]) for row in rows])
    line = [row for at, row in enumerate(rows) if at in best]
    for at, row in enumerate(rows):
        row["beaten"] = "on the front" if at in best else "beaten by another"
    axes = {"x": x("speed", "tokens per second of one user"), "y": y("throughput", axis)}
    shown: list[Spec] = [
        {
            "data": {"values": sorted(line, key=lambda row: row["speed"])},
            "mark": {"type": "line", "interpolate": "step-before", "strokeDash": [5, 4], "strokeWidth": 1.5},
            "encoding": axes,
        },
        {
            "mark": {"type": "point", "size": 60},
            "encoding": axes
            | {
                "color": colours("beaten", ["on the front", "beaten by another"]),
                "tooltip": [tip("speed", "tokens/s of one user"), tip("throughput", axis), *_ABOUT],
            },
        },
    ]
    said = f"{len(best)} of {len(rows)} runs are on it"
    return view(titled("Pareto front: no other run is better in both", said), rows, shown)


def front(points: Sequence[tuple[float, float]]) -> set[int]:
    """Indices of the points that no other one beats in one without losing in the other; more is better."""
    best: set[int] = set()
    highest = float("-inf")
    for at in sorted(range(len(points)), key=lambda at: points[at], reverse=True):
        if points[at][1] > highest or (best and points[at] == points[max(best, key=lambda b: points[b][1])]):
            best.add(at)
            highest = max(highest, points[at][1])
    return best


def _speed_rows(runs: Sequence[Run]) -> tuple[list[dict[str, Any]], str]:
    """Speed of one user, tokens per second and GPU, and cost, of each run that tells them; and the axis' name. Where
    the number of GPUs is not known of all, it is tokens per second and no more."""
    per_gpu = all(_per_gpu(run) is not None for run in runs)
    rows = []
    for run in runs:
        found = quantities(run.summary)
        speed, tokens = user_speed(found), _per_gpu(run) if per_gpu else _tokens(found)
        if speed is not None and tokens is not None:
            cost = found.get("cost_per_million_tokens")
            numbers = {"speed": speed, "throughput": tokens, "cost": None if cost is None else cost.value}
            rows.append(_about(run) | numbers)
    if len(rows) < 2:
        raise Cannot("it needs two runs or more that tell tokens per second and TPOT")
    return rows, "Tokens per second and GPU" if per_gpu else "Tokens per second"


def _tokens(found: Mapping[str, Quantity]) -> float | None:
    rate = found.get("total_rate") or found.get("output_rate")
    return None if rate is None else rate.value


def _per_gpu(run: Run) -> float | None:
    """As the run itself says it, else by the GPUs that are known of it."""
    found = quantities(run.summary)
    if (said := found.get("throughput_per_gpu")) is not None:
        return said.value
    tokens, gpus = _tokens(found), gpus_of(run)
    return None if tokens is None or gpus is None else tokens / gpus


def user_speed(found: Mapping[str, Quantity]) -> float | None:
    """As the run itself says it; else 1 / mean TPOT, as CI benchmarks plot it."""
    if (said := found.get("tokens_per_s_user")) is not None:
        return said.value
    tpot, speed = found.get("tpot.mean"), found.get("user_speed.p50")
    if tpot is not None and tpot.value > 0:
        return 1 / tpot.value
    return None if speed is None else speed.value


def _points(rows: Sequence[Mapping[str, Any]], up: Spec, more: Spec) -> list[Spec]:
    stacks = list(dict.fromkeys(row["stack"] for row in rows))
    axes = {"x": x("speed", "tokens per second of one user"), "y": up}
    colour = colours("stack", stacks) | ({} if len(stacks) > 1 else {"legend": None})
    point = {
        "mark": {"type": "point", "size": 60},
        "encoding": axes | {"color": colour, "tooltip": [tip("speed", "tokens/s of one user"), more, *_ABOUT]},
    }
    words = {
        "mark": {"type": "text", "align": "left", "dx": 7, "dy": -6, "fontSize": 11},
        "encoding": axes | {"text": {"field": "load", "type": "nominal"}},
    }
    return [point, words] if len(rows) <= 40 else [point]


def _about(run: Run) -> dict[str, Any]:
    return {"run": run.id, "stack": stack_of(run), "load": load_of(run)}
