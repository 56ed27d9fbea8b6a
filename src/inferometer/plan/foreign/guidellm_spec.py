"""guidellm's sections since 0.7: files with a `spec`, and `guidellm run --profile kind=sweep,sweep_size=10 ...`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inferometer.documents.json_text import json_value
from inferometer.errors import PlanError
from inferometer.plan.foreign.arguments import Flag, Given, parse
from inferometer.plan.foreign.found import Foreign
from inferometer.plan.foreign.guidellm import TOOL, from_flags
from inferometer.plan.reading import read_mapping
from inferometer.plan.text import parse_yaml

_CONSTRAINTS = {"max_duration": "max-seconds", "max_requests": "max-requests", "max_errors": "max-errors"}
_ROUTES = {"/v1/completions": "text_completions", "/v1/chat/completions": "chat_completions"}
_ROUTES |= {route.removeprefix("/v1/").replace("/", "_"): request for route, request in _ROUTES.items()}
_SECTIONS = ("backend", "profile", "tokenizer", "seed", "data-loader", "data-column-mapper")
FLAGS: dict[str, Flag] = {
    **dict.fromkeys((*_SECTIONS, "config"), Flag()),
    **dict.fromkeys(("data", "constraint", "override", "output"), Flag("many")),
    "data-preprocessor": Flag("many", "rows are read as they are"),
    "data-finalizer": Flag("one", "rows are read as they are"),
    "metrics": Flag("one", "the records of all requests are kept"),
    "label": Flag("many", "what is kept with a run is its environment; name the plan instead"),
    "disable-console": Flag("none", "--quiet hides the progress"),
    "disable-console-interactive": Flag("none", "--quiet hides the progress"),
}
_ALIASES = {
    "scenario": "config",
    "-c": "config",
    "-l": "label",
    "disable-console-outputs": "disable-console",
    "disable-progress": "disable-console-interactive",
}


def from_words(words: Sequence[str]) -> Foreign:
    """What a command line after `guidellm run` means."""
    given, notes = parse(TOOL, words, FLAGS, _ALIASES)
    typed = {name: text for name in _SECTIONS if (text := given.text(name))}
    spec: dict[str, Any] = {name.replace("-", "_"): _section(given, name, text) for name, text in typed.items()}
    spec["data"] = [_section(given, "data", each) for each in given.several("data")]
    spec["constraints"] = [_section(given, "constraint", each) for each in given.several("constraint")]
    spec["outputs"] = [_section(given, "output", each) for each in given.several("output")]
    _override(given, spec)
    given.settle()
    return from_mapping(_merged(given, spec)).noted(notes)


def _section(given: Given, name: str, text: str) -> dict[str, Any]:
    """`kind=sweep,sweep_size=10` or the same as JSON."""
    try:
        if text.lstrip().startswith("{"):
            return dict(json_value(text)[0])
        pairs = [part.partition("=") for part in text.split(",")]
        if not all(sign for _, sign, _ in pairs):
            raise ValueError
        return {key.strip(): parse_yaml(value, f"--{name}")[0] for key, _, value in pairs}
    except ValueError:
        given.mistakes.append(f"{TOOL}: --{name} must be kind=NAME,key=value or JSON, got {text}")
        return {}


def _override(given: Given, spec: dict[str, Any]) -> None:
    """`--override profile.rate 10,20,30`: a run for each."""
    words = given.several("override")
    for path, values in zip(words[::2], words[1::2], strict=False):
        if path not in ("profile.rate", "profile.streams"):
            given.mistakes.append(f"{TOOL}: --override {path} has no counterpart but profile.rate and profile.streams")
            continue
        spec["profile"] = {**spec.get("profile", {}), path.partition(".")[2]: values.strip("[]").split(",")}


def _merged(given: Given, spec: dict[str, Any]) -> dict[str, Any]:
    """What was typed, over what the file of `--config` says."""
    name = given.text("config")
    if name is None:
        return {"spec": spec}
    if not Path(name).is_file():
        raise PlanError(f"{TOOL}: --config {name}: there is no such file; its ready scenarios are not here")
    said, twice = read_mapping(name)
    if twice:
        raise PlanError(twice)
    said = said.get("config", said)  # a report has it there
    typed = {key: value for key, value in spec.items() if value}
    return {**said, "spec": {**(said.get("spec") or {}), **typed}}


def from_mapping(said: Mapping[str, Any]) -> Foreign:
    """What the sections below `spec` mean."""
    spec = said["spec"]
    notes: list[str] = []
    if len(said.get("benchmarks") or []) > 1:
        raise PlanError(f"{TOOL}: benchmarks has several entries: say the rates in spec.profile.rate, as a list")
    profile = dict(spec.get("profile") or {})
    if profile.get("rampup_duration"):
        notes.append("rampup_duration: a ramp is a load of its own: type ramp, or stages")
    flags = {
        **_of_backend(dict(spec.get("backend") or {})),
        **_of_profile(profile),
        "data": [_source(spec["data"])],
        "data-samples": (spec.get("data_loader") or {}).get("samples"),
        "data-column-mapper": _columns(spec.get("data_column_mapper")),
        "processor": (spec.get("tokenizer") or {}).get("model"),
        "random-seed": seed.get("value") if isinstance(seed := spec.get("seed"), Mapping) else seed,
        "outputs": [each["path"] for each in spec.get("outputs") or [] if each.get("path")],
    }
    for each in spec.get("constraints") or []:
        name = _CONSTRAINTS.get(each.get("kind"))
        flags |= {name: each.get("seconds", each.get("count"))} if name else {}
        if not name:
            notes.append(f"constraint {each.get('kind')}: the verdict says when a load was more than a target bears")
    return from_flags(Given(TOOL, {name: value for name, value in flags.items() if value is not None}), notes)


def _of_backend(backend: dict[str, Any]) -> dict[str, Any]:
    key, timeout = backend.get("api_key"), backend.get("timeout")
    more = {name: value for name, value in (("api_key", key), ("timeout", timeout)) if value is not None}
    return {
        "backend": backend.get("kind"),
        "target": backend.get("target"),
        "model": backend.get("model"),
        "request-type": _ROUTES.get(str(backend.get("request_format"))),
        "backend-kwargs": json.dumps(more) if more else None,
    }


def _of_profile(profile: dict[str, Any]) -> dict[str, Any]:
    kind = profile.get("kind")
    levels = {"concurrent": "streams", "sweep": "sweep_size", "throughput": "max_concurrency"}.get(str(kind), "rate")
    return {
        "profile": kind,
        "rate": _levels(profile.get(levels)),
        "strategy-type": profile.get("strategy_type"),
        "max-concurrency": profile.get("max_concurrency"),
        "warmup": _warmup(profile.get("warmup")),
    }


def _levels(rate: Any) -> list[str] | None:
    return None if rate is None else [str(each) for each in (rate if isinstance(rate, list) else [rate])]


def _warmup(said: Any) -> Any:
    """A share of the whole below 1, else seconds or requests."""
    return said.get("percent") or said.get("value") if isinstance(said, Mapping) else said


def _columns(mapper: Any) -> str | None:
    mapped = mapper.get("column_mappings") if isinstance(mapper, Mapping) else None
    return json.dumps(mapped) if mapped else None


def _source(data: Any) -> str:
    """The first source; a file by its path, made-up text by its settings."""
    only = data[0] if isinstance(data, list) and data else data
    if not isinstance(only, Mapping):
        return str(only)
    if path := only.get("path") or only.get("source_path") or only.get("source"):
        return str(path)
    return json.dumps({name: value for name, value in only.items() if value not in (None, {}, [])})
