"""guidellm's `benchmark run` flags and the same by name in a file, and its sections since 0.7 (`spec`, `guidellm run`),
as a plan."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from inferometer.documents.json_text import json_value
from inferometer.errors import PlanError
from inferometer.plan.foreign.arguments import Flag, Given, parse
from inferometer.plan.foreign.found import Foreign, without_missing
from inferometer.plan.foreign.shapes import bell, experiment, of_sessions, tidy
from inferometer.plan.reading import read_mapping
from inferometer.plan.text import parse_yaml

# -- guidellm --------------------------------------------------------------------------------------------------------

TOOL = "guidellm"
_THROUGHPUT = 512  # requests at once where guidellm sends as many as it can, its own cap
_SWEEP = 10  # runs of a sweep where nobody says how many, both ends among them
_ONE = Flag()
FLAGS: dict[str, Flag] = {
    **dict.fromkeys(("target", "profile", "model", "processor", "random-seed", "max-seconds", "max-requests"), _ONE),
    **dict.fromkeys(("max-errors", "backend-kwargs", "request-type", "data-column-mapper", "data-samples"), _ONE),
    **dict.fromkeys(("warmup", "output-path", "output-dir", "backend"), _ONE),
    **dict.fromkeys(("rate", "data", "outputs"), Flag("many")),
    "data-sampler": Flag("one", "rows come in an order drawn from the seed; workload.shuffle: false keeps the file's"),
    "rampup": Flag("one", "a ramp is a load of its own: type ramp, or stages"),
    "cooldown": Flag("one", "answers that come after the last was sent are not in the window"),
    "scenario": Flag("one", "not read: give the file itself in place of the command line"),
    "max-error-rate": Flag("one", "a limit on failure_rate judges a run; stop.errors ends it"),
    "max-global-error-rate": Flag("one", "a limit on failure_rate judges a run; stop.errors ends it"),
    "sample-requests": Flag("one", "the records of all requests are kept"),
    "processor-args": Flag("one", "a tokenizer is read as it is"),
    "data-args": Flag("one", "a dataset's settings are those of workload"),
    "request-formatter-kwargs": Flag("one", "sampling.extra adds fields to the body"),
    "data-num-workers": Flag("one", "datasets are read through an index"),
    "dataloader-kwargs": Flag("one", "datasets are read through an index"),
    "over-saturation": Flag("one", "the verdict says when a load was more than the target bears"),
    "per-constraints": Flag("one", "a plan has one stop"),
    "detect-saturation": Flag("none", "the verdict says when a load was more than the target bears"),
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
_APIS = {"text_completions": None, "chat_completions": "chat"}


def is_it(said: Mapping[str, Any]) -> bool:
    spec = said.get("spec")
    if isinstance(spec, Mapping):
        return "data" in spec and "plan" not in said
    return "target" in said and bool({"rate-type", "profile", "data"} & set(said)) and "workload" not in said


def from_mapping(said: Mapping[str, Any]) -> Foreign:
    """A file of the flags by name, or one of sections below `spec`."""
    if "spec" in said:
        return from_spec(said)
    words = [word for name, value in said.items() if value is not None for word in (f"--{name}", _worded(value))]
    return from_words(words)


def _worded(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def from_words(words: Sequence[str]) -> Foreign:
    """The plan that a command line after `guidellm benchmark run` means."""
    return from_flags(*parse(TOOL, words, FLAGS, _ALIASES))


def from_flags(given: Given, notes: list[str]) -> Foreign:
    """The plan or the experiment that its flags mean; its files since 0.7 have the same in sections."""
    workload = _workload(given, notes)
    warmup, ends = _warmup_and_end(given)
    plan = {
        "target": _target(given, notes),
        "workload": workload,
        "warmup": warmup,
        "outputs": _outputs(given, notes),
        "seed": given.count("random-seed") or None,
    }
    load, varied = _when(given, ends)
    given.settle()
    whole = of_sessions(without_missing({**plan, **load}), notes) if load else {}
    return Foreign(TOOL, whole, notes, experiment(without_missing({**plan, "stop": ends}), varied, notes))


def _target(given: Given, notes: list[str]) -> dict[str, Any]:
    kind = given.text("request-type")
    if kind is None:
        notes.append("requests are chat completions, as guidellm's are unless --request-type says text_completions")
    elif kind not in _APIS:
        given.wrong("request-type", f"has no counterpart; there are {', '.join(_APIS)}")
    if (given.text("backend") or "openai_http") not in ("openai_http", "openai"):
        given.wrong("backend", "has no counterpart but openai_http")
    more = given.fields("backend-kwargs")
    headers = dict(more.pop("headers", None) or {})
    if key := more.pop("api_key", None):
        headers["Authorization"] = f"Bearer {key}"
    verify, timeout = more.pop("verify", None), more.pop("timeout", None)
    notes += [f"--backend-kwargs {name}: has no counterpart" for name in more]
    return {
        "url": given.text("target"),
        "model": given.text("model"),
        "api": _APIS.get(kind, "chat") if kind else "chat",
        "headers": headers,
        "tls": {"verify": verify},
        "timeout": {"request": timeout},
    }


def _workload(given: Given, notes: list[str]) -> dict[str, Any]:
    sources = given.several("data")
    if len(sources) != 1:
        given.wrong("data", "must be one source")
        return {}
    said = _settings(sources[0])
    workload = _file(given, sources[0]) if said is None else _synthetic(given, said, notes)
    samples = given.count("data-samples", -1) or -1
    if samples > 0:
        workload["count" if said is not None else "limit"] = samples
    return {**workload, "tokenizer": given.text("processor")}


def _settings(text: str) -> dict[str, Any] | None:
    """`prompt_tokens=256,output_tokens=128` or JSON; `None` for a file or a dataset's name."""
    if text.lstrip().startswith(("{", "[")):
        try:
            value = json_value(text)[0]
        except ValueError:
            return None
        value = value[0] if isinstance(value, list) and value else value
        return value if isinstance(value, dict) else None
    parts = [part.partition("=") for part in text.split(",")]
    return {key.strip(): value.strip() for key, _, value in parts} if all(sign for _, sign, _ in parts) else None


def _synthetic(given: Given, said: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    inputs = _lengths(given, said, "prompt_tokens")
    groups, shared = said.pop("prefix_count", None), said.pop("prefix_tokens", None)
    buckets = said.pop("prefix_buckets", None) or []
    if len(buckets) > 1:
        given.wrong("data", "must have one of prefix_buckets: beginnings of several kinds are several traffic classes")
    for bucket in buckets:
        groups, shared = bucket.get("prefix_count", 1), bucket.get("prefix_tokens")
    outputs, turns, samples = (
        _lengths(given, said, "output_tokens"),
        said.pop("turns", None),
        said.pop("samples", None),
    )
    for name in ("kind", "type", "source"):
        said.pop(name, None)
    notes += [f"--data {name}: has no counterpart" for name in said]
    whole = {"output_tokens": outputs, "turns": _count(turns), "count": _count(samples)}
    if shared:
        return {"prefix": {"tokens": _count(shared), "suffix_tokens": inputs, "groups": _count(groups)}, **whole}
    return {"input_tokens": inputs, **whole}


def _lengths(given: Given, said: dict[str, Any], name: str) -> Any:
    values = [said.pop(key, None) for key in (name, f"{name}_stdev", f"{name}_min", f"{name}_max")]
    try:
        mean, std, least, most = (None if value is None else float(value) for value in values)
    except ValueError:
        given.wrong("data", f"must have numbers for {name}")
        return None
    if mean is None:
        return None
    if std is None and least is not None and most is not None:
        return f"{int(least)}-{int(most)}"
    return bell(mean, std, least, most)


def _count(value: Any) -> int | None:
    return None if value is None else int(value)


def _file(given: Given, source: str) -> dict[str, Any]:
    ending = PurePath(source).suffix.lower()
    if ending == ".txt":
        return {"type": "prompts", "path": source}
    if ending in (".csv", ".jsonl", ".json", ".parquet"):
        mapped = given.fields("data-column-mapper")
        column = mapped.get("text_column") or mapped.get("prompt_column")
        return {"type": "table", "path": source, "columns": {"prompt": column} if column else {}}
    return {"type": "huggingface", "repo": source}


def _warmup_and_end(given: Given) -> tuple[Any, dict[str, Any]]:
    """guidellm's warm-up is a part of the whole, ours stands before it: what is measured stays the same."""
    seconds, requests = given.number("max-seconds"), given.count("max-requests")
    ends: dict[str, Any] = {"duration": seconds, "requests": requests, "errors": given.count("max-errors")}
    warm = given.number("warmup", 0.0) or 0.0
    if not warm:
        return None, ends
    name, whole = ("duration", seconds) if seconds is not None else ("requests", requests)
    if whole is None:
        given.wrong("warmup", "needs max-seconds or max-requests: it is a part of these")
        return None, ends
    part = warm if warm >= 1 else warm * whole
    part = round(part) if name == "requests" else part
    return {name: tidy(part)}, {**ends, name: tidy(whole - part)}


def _when(given: Given, ends: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a plan says of it, and what an experiment varies; either may be empty."""
    profile = given.text("profile") or "sweep"
    try:
        rates = [float(rate) for each in given.several("rate") for rate in each.strip("[]").split(",") if rate]
    except ValueError:
        given.wrong("rate", "must be numbers")
        rates = []
    match profile:
        case "synchronous":
            return {"load": _at_once(1), "stop": ends}, {}
        case "throughput":
            return {"load": _at_once(int(rates[0]) if rates else _most_at_once(given)), "stop": ends}, {}
        case "concurrent" | "constant" | "poisson" | "async" if rates:
            return _at_rates(given, "constant" if profile == "async" else profile, rates, ends)
        case "concurrent" | "constant" | "poisson" | "async":
            given.wrong("rate", f"is missing: profile {profile} needs it")
        case "sweep":
            return {}, _swept(given, int(rates[0]) if rates else _SWEEP)
        case _:
            known = "synchronous, concurrent, throughput, constant, poisson, async, sweep"
            given.wrong("profile", f"has no counterpart; there are {known}")
    return {}, {}


def _at_once(count: int) -> dict[str, Any]:
    return {"type": "concurrency", "concurrency": count}


def _most_at_once(given: Given) -> int:
    most = given.count("max-concurrency", _THROUGHPUT) or _THROUGHPUT
    return min(most, given.count("max-requests") or most)


def _swept(given: Given, size: int) -> dict[str, Any]:
    """One at a time, as many as it can, and the rest of the runs at rates between what both reached: evenly spaced, the
    highest the rate of the second."""
    if size < 2:
        given.wrong("rate", "must be at least 2: a sweep has a run at each end")
        return {}
    kind, cap = given.text("strategy-type") or "constant", given.count("max-concurrency", _THROUGHPUT)
    levels = {
        "low": {"load": _at_once(1)},
        "high": {"load": _at_once(_most_at_once(given))},
        "count": size - 2,
        "set": {"load": {"type": kind, "max_concurrency": cap}},
    }
    return {"levels": levels}


def _at_rates(
    given: Given, kind: str, rates: list[float], ends: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One level is a load. Several are runs of their own, and stages of one where each has a time to last."""
    cap = given.count("max-concurrency") if kind != "concurrent" else None
    if len(rates) == 1:
        level: dict[str, Any] = {"type": kind, "rate": tidy(rates[0]), "max_concurrency": cap}
        return {"load": _at_once(int(rates[0])) if kind == "concurrent" else level, "stop": ends}, {}
    if kind == "concurrent":
        varied: dict[str, Any] = {"axes": {"load.concurrency": [int(rate) for rate in rates]}}
    else:
        varied = {"set": {"load": {"type": kind, "max_concurrency": cap}}}
        varied["axes"] = {"load.rate": [tidy(rate) for rate in rates]}
    return _as_stages(kind, rates, ends, cap), without_missing(varied)


def _as_stages(kind: str, rates: list[float], ends: dict[str, Any], cap: int | None) -> dict[str, Any]:
    """Each as long as guidellm runs it; nothing where that is not known before."""
    stages = []
    for rate in rates:
        seconds = ends["duration"]
        if seconds is None and kind != "concurrent" and ends["requests"]:
            seconds = ends["requests"] / rate
        if seconds is None:
            return {}
        level = {"concurrency": int(rate)} if kind == "concurrent" else {"rate": tidy(rate), "process": kind}
        stages.append({**level, "duration": tidy(round(seconds, 3))})
    return {
        "load": {"type": "stages", "stages": stages, "max_concurrency": cap},
        "stop": {"errors": ends["errors"]},
    }


def _outputs(given: Given, notes: list[str]) -> list[dict[str, str]]:
    folder = given.text("output-dir")
    names = [name for each in given.several("outputs") for name in each.split(",") if name]
    names = [name if "." in name else f"benchmarks.{name}" for name in names]
    if path := given.text("output-path"):
        names.append(path)
    found = []
    for name in names:
        ending = PurePath(name).suffix.lower().lstrip(".")
        if ending in ("json", "csv", "parquet"):
            found.append({"format": ending, "path": f"{folder.rstrip('/')}/{name}" if folder else name})
        else:
            notes.append(f"{name}: files of this kind are not written")
    if found:
        notes.append(f"{', '.join(each['path'] for each in found)}: has our own schema, not guidellm's")
    return found


# -- guidellm spec ---------------------------------------------------------------------------------------------------

_CONSTRAINTS = {"max_duration": "max-seconds", "max_requests": "max-requests", "max_errors": "max-errors"}
_ROUTES = {"/v1/completions": "text_completions", "/v1/chat/completions": "chat_completions"}
_ROUTES |= {route.removeprefix("/v1/").replace("/", "_"): request for route, request in _ROUTES.items()}
_SECTIONS = ("backend", "profile", "tokenizer", "seed", "data-loader", "data-column-mapper")
RUN_FLAGS: dict[str, Flag] = {
    **dict.fromkeys((*_SECTIONS, "config"), Flag()),
    **dict.fromkeys(("data", "constraint", "override", "output"), Flag("many")),
    "data-preprocessor": Flag("many", "rows are read as they are"),
    "data-finalizer": Flag("one", "rows are read as they are"),
    "metrics": Flag("one", "the records of all requests are kept"),
    "label": Flag("many", "what is kept with a run is its environment; name the plan instead"),
    "disable-console": Flag("none", "--quiet hides the progress"),
    "disable-console-interactive": Flag("none", "--quiet hides the progress"),
}
_SPEC_ALIASES = {
    "scenario": "config",
    "-c": "config",
    "-l": "label",
    "disable-console-outputs": "disable-console",
    "disable-progress": "disable-console-interactive",
}


def from_run_words(words: Sequence[str]) -> Foreign:
    """What a command line after `guidellm run` means."""
    given, notes = parse(TOOL, words, RUN_FLAGS, _SPEC_ALIASES)
    typed = {name: text for name in _SECTIONS if (text := given.text(name))}
    spec: dict[str, Any] = {name.replace("-", "_"): _section(given, name, text) for name, text in typed.items()}
    spec["data"] = [_section(given, "data", each) for each in given.several("data")]
    spec["constraints"] = [_section(given, "constraint", each) for each in given.several("constraint")]
    spec["outputs"] = [_section(given, "output", each) for each in given.several("output")]
    _override(given, spec)
    given.settle()
    return from_spec(_merged(given, spec)).noted(notes)


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


def from_spec(said: Mapping[str, Any]) -> Foreign:
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
