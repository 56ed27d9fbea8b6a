"""guidellm's flags before 0.7 (`guidellm benchmark run`), on a command line or in a file, as the newer sections."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from inferometer.plan.foreign import guidellm_data
from inferometer.plan.foreign.common import Account, Foreign, Settings, without_missing
from inferometer.plan.foreign.guidellm import TOOL, foreign_of
from inferometer.plan.foreign.shapes import Flag, Given, parse

FLAGS: dict[str, Flag] = {
    **dict.fromkeys(("target", "profile", "model", "processor", "random-seed", "max-seconds", "max-requests"), Flag()),
    **dict.fromkeys(("max-errors", "backend-kwargs", "request-type", "data-column-mapper", "data-samples"), Flag()),
    **dict.fromkeys(
        ("warmup", "output-path", "output-dir", "backend", "max-error-rate", "rampup", "data-args"), Flag()
    ),
    **dict.fromkeys(
        ("max-global-error-rate", "request-formatter-kwargs", "per-constraints", "scenario", "data-sampler"), Flag()
    ),
    **dict.fromkeys(("rate", "data", "outputs"), Flag("many")),
    "cooldown": Flag("one", "answers after the last request was sent are not in the window"),
    "sample-requests": Flag("one", "the records of all requests are stored"),
    "processor-args": Flag("one", "the tokenizer is used unchanged"),
    "data-num-workers": Flag("one", "datasets are read through an index"),
    "dataloader-kwargs": Flag("one", "datasets are read through an index"),
    "over-saturation": Flag("one", "the verdict reports a load above the target's capacity"),
    "detect-saturation": Flag("none", "the verdict reports a load above the target's capacity"),
    "disable-console": Flag("none", "--quiet hides the progress"),
    "disable-console-interactive": Flag("none", "--quiet hides the progress"),
}
_ALIASES = {
    "rate-type": "profile",
    "backend-type": "backend",
    "backend-args": "backend-kwargs",
    "-c": "scenario",
    "warmup-percent": "warmup",
    "cooldown-percent": "cooldown",
    "output-sampling": "sample-requests",
    "default-over-saturation": "detect-saturation",
    "disable-progress": "disable-console-interactive",
    "disable-console-outputs": "disable-console",
}


def from_mapping(mapping: Mapping[str, Any]) -> Foreign:
    """A file of the flags by name."""
    argv = [arg for name, value in mapping.items() if value is not None for arg in (f"--{name}", _flag_value(value))]
    return from_argv(argv)


def _flag_value(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def from_argv(argv: Sequence[str]) -> Foreign:
    """The plan of a command line after `guidellm benchmark run`, through the newer sections."""
    given = parse(TOOL, argv, FLAGS, _ALIASES)
    for name in ("rampup", "scenario", "request-formatter-kwargs", "per-constraints", "data-args"):
        if name in given:
            given.wrong(
                name, "has no counterpart" if name != "scenario" else "give the file itself instead of the command line"
            )
    spec = {
        "backend": {
            "kind": given.text("backend"),
            "target": given.text("target"),
            "model": given.text("model"),
            "request_format": given.text("request-type"),
            **_old_backend(given),
        },
        "profile": _old_profile(given),
        "constraints": _old_constraints(given),
        "data": [guidellm_data.source_of(text) for text in given.several("data")] or None,
        "data_loader": {
            "samples": given.count("data-samples"),
            "shuffle": given.text("data-sampler") in ("random", "shuffle"),
        },
        "data_column_mapper": {"column_mappings": given.fields("data-column-mapper") or None},
        "tokenizer": {"model": given.text("processor")},
        "seed": given.count("random-seed"),
        "outputs": _old_outputs(given),
    }
    given.settle()
    foreign = foreign_of(Settings(without_missing(spec), Account(TOOL), "--"))
    foreign.entries = given.account.entries()
    return foreign.noted(given.account.notes)


def _old_backend(given: Given) -> dict[str, Any]:
    more = given.fields("backend-kwargs")
    headers = more.pop("headers", None)
    if headers:
        more["extras"] = {"headers": headers}
    return more


def _old_profile(given: Given) -> dict[str, Any]:
    """The unit of `--rate` depends on the profile: streams, runs of a sweep, or requests per second."""
    kind = given.text("profile") or "sweep"
    rates = [rate for text in given.several("rate") for rate in text.strip("[]").split(",") if rate]
    try:
        levels: Any = [float(rate) for rate in rates] or None
    except ValueError:
        given.wrong("rate", "must be numbers")
        levels = None
    name = {"concurrent": "streams", "sweep": "sweep_size", "throughput": "max_concurrency"}.get(kind, "rate")
    if levels and not all(math.isfinite(level) and level > 0 for level in levels):
        given.wrong("rate", "must be numbers greater than 0")
        levels = None
    if levels and name in ("sweep_size", "max_concurrency"):
        levels = int(levels[0])
    if levels is None and name in ("streams", "rate") and kind != "synchronous":
        given.wrong("rate", f"is missing: profile {kind} needs it")
    return {"kind": kind, name: levels if kind != "synchronous" else None, "warmup": given.number("warmup")}


def _old_constraints(given: Given) -> list[dict[str, Any]]:
    made: dict[str, dict[str, Any]] = {
        "max_duration": {"seconds": given.number("max-seconds")},
        "max_requests": {"count": given.count("max-requests")},
        "max_errors": {"count": given.count("max-errors")},
        "max_error_rate": {"rate": given.number("max-error-rate")},
        "max_global_error_rate": {"rate": given.number("max-global-error-rate")},
    }
    return [{"kind": kind, **own} for kind, own in made.items() if all(value is not None for value in own.values())]


def _old_outputs(given: Given) -> list[dict[str, Any]]:
    folder = given.text("output-dir")
    names = [name for output in given.several("outputs") for name in output.split(",") if name]
    names = [name if "." in name else f"benchmarks.{name}" for name in names]
    if path := given.text("output-path"):
        names.append(path)
    return [{"path": f"{folder.rstrip('/')}/{name}" if folder else name} for name in names]
