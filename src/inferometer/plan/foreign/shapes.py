"""What readers of other tools' plans share: lengths and loads in our form, cases told apart by what they differ in, and
the plan as text for people."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from inferometer.plan.model import Plan
from inferometer.plan.paths import written
from inferometer.plan.text import Dumper
from inferometer.plan.workloads.lengths import Lengths
from inferometer.plan.writing import to_mapping

# -- shapes ----------------------------------------------------------------------------------------------------------

ESTIMATED = (
    "lengths are estimated where the tool counts with the model's tokenizer; "
    "--set workload.tokenizer=model makes them exact, server asks the server"
)

NO_FILES = "outputs: every case is kept as a run, and --csv writes a line for each"  # one file would be the last's


def load_of(rate: float | None, cap: int | None, requests: int, cv: float = 1.0) -> dict[str, Any]:
    """Poisson, gamma or even arrivals under a cap; an endless rate is a closed loop: as many at once as the cap lets,
    or all of them."""
    if rate is None or math.isinf(rate):
        return {"type": "concurrency", "concurrency": cap or requests}
    load: dict[str, Any] = {"type": "poisson", "rate": tidy(rate)}
    if cv == 0:  # vLLM's --burstiness inf
        load = {"type": "constant", "rate": tidy(rate)}
    elif cv != 1:
        load = {"type": "gamma", "rate": tidy(rate), "cv": cv}
    return load if cap is None else {**load, "max_concurrency": cap}


def url_of(base: str | None, host: str, port: int | None) -> str:
    """The address of a server by its base, or by host and port."""
    if base:
        return base.rstrip("/")
    bare = host if ":" not in host or host.startswith("[") else f"[{host}]"
    whole = bare if bare.startswith(("http://", "https://")) else f"http://{bare}"
    return whole if port is None else f"{whole}:{port}"


def about(length: int, ratio: float) -> Any:
    """A length, or the range of lengths `ratio` below and above it, as vLLM's random dataset has them."""
    if not ratio:
        return length
    return f"{max(1, math.floor(length * (1 - ratio)))}-{math.ceil(length * (1 + ratio))}"


def bell(mean: float, std: float | None, least: float | None, most: float | None, shape: str = "normal") -> Any:
    """Lengths about a mean: fixed without a deviation, else normal (or another shape) within bounds."""
    if not std:
        return tidy(mean)
    said: dict[str, Any] = {"type": shape} if shape != "normal" else {}
    said |= {"mean": tidy(mean), "std": tidy(std)}
    return said | {name: tidy(value) for name, value in (("min", least), ("max", most)) if value is not None}


def tidy(value: float) -> float:
    """2.0 as 2."""
    return int(value) if float(value).is_integer() else value


def of_sessions(plan: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """The plan with its rates divided by the turns of a session: elsewhere they are of requests, here of sessions."""
    turns = Lengths.of(plan.get("workload", {}).get("turns") or 1).mean_value or 1.0
    load = plan.get("load", {})
    if turns == 1 or not ("rate" in load or any("rate" in stage for stage in load.get("stages", ()))):
        return plan
    notes.append(f"rates are of sessions of {turns:g} turns: each is the rate of requests / {turns:g}")
    divided = _slower(load, turns)
    if "stages" in load:
        divided["stages"] = [_slower(stage, turns) for stage in load["stages"]]
    return {**plan, "load": divided}


def experiment(plan: dict[str, Any], varied: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """The experiment over a plan without its load; rates of requests as those of sessions. Nothing varied is none."""
    if not varied:
        return {}
    if plan.get("outputs"):
        notes.append(NO_FILES)
        plan = {name: value for name, value in plan.items() if name != "outputs"}
    turns = Lengths.of(plan.get("workload", {}).get("turns") or 1).mean_value or 1.0
    divided: dict[str, Any] = {
        name: {
            path: [tidy(round(value / turns, 6)) for value in values] if path == "load.rate" else values
            for path, values in varied[name].items()
        }
        for name in ("axes", "zip")
        if name in varied
    }
    levels = varied.get("levels", {})
    if turns != 1 and "rate" in (burst := dict(_load_of(levels.get("high")))):
        high = {**levels["high"], "load": _slower(burst, turns)}
        divided["levels"] = {**levels, "high": high}
    return {"plan": plan, **varied, **divided}


def _load_of(end: Any) -> dict[str, Any]:
    return end.get("load", {}) if isinstance(end, dict) else {}


def _slower(level: dict[str, Any], turns: float) -> dict[str, Any]:
    return level | {name: tidy(round(level[name] / turns, 6)) for name in ("rate", "to") if level.get(name)}


def together(first: Any, second: Any) -> Any:
    """The lengths of two drawn parts as one: means and bounds added, deviations as those of independent draws."""
    both = [Lengths.of(first), Lengths.of(second)]
    mean = sum(each.mean_value or 0.0 for each in both)
    if all(each.type == "fixed" for each in both):
        return tidy(mean)
    most = [each.most for each in both]
    return bell(
        mean,
        round(math.sqrt(sum(_deviation(each) ** 2 for each in both)), 3),
        sum(each.least for each in both),
        None if None in most else sum(each or 0 for each in most),
        "lognormal" if "lognormal" in {each.type for each in both} else "normal",
    )


def _deviation(lengths: Lengths) -> float:
    if lengths.type == "uniform":
        return ((lengths.max or 1) - (lengths.min or 1)) / math.sqrt(12)
    return lengths.std or 0.0


# -- varied ----------------------------------------------------------------------------------------------------------

WORKS = ("plan", "throughput")
TWICE = {"target.model": "server.model"}  # the same, where both vary


def told_apart(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """With the settings that are not the same in all of them as parameters."""
    leaves = [dict(_leaves(next(case[work] for work in WORKS if work in case))) for case in cases]
    names = dict.fromkeys(name for each in leaves for name in each)
    varies = [name for name in names if len({str(each.get(name)) for each in leaves}) > 1]
    shown = [name for name in varies if TWICE.get(name) not in varies]
    return [
        {"name": case["name"], "set": {name: each[name] for name in shown if name in each}, **case}
        for case, each in zip(cases, leaves, strict=True)
    ]


def _leaves(said: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Single values by their paths; lists are no parameters that a table can show."""
    for name, value in said.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, name))
        elif not isinstance(value, list):
            yield written((*above, name)), value


# -- shown -----------------------------------------------------------------------------------------------------------


def to_yaml(plan: Plan, said: dict[str, Any]) -> str:
    """What differs from our defaults, and what the other tool's reader set."""
    shown = _beside(to_mapping(plan), said, to_mapping(plan, full=True))
    return yaml.dump(shown, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110)


def _beside(lean: dict[str, Any], said: dict[str, Any], full: dict[str, Any]) -> dict[str, Any]:
    """The lean mapping with the values of the full one wherever something was said, in its order."""
    found: dict[str, Any] = {}
    for name, value in full.items():
        own, shown = said.get(name), lean.get(name)
        if isinstance(value, dict) and isinstance(own, dict) and isinstance(shown, dict | None):
            inner = _beside(shown or {}, own, value)
            found |= {name: inner} if inner else {}
        elif name in lean:
            found[name] = shown
        elif own is not None and value is not None:
            found[name] = value
    return found | {name: value for name, value in lean.items() if name not in found}
