"""guidellm since 0.7 (`guidellm run`, files with a `spec`) as a plan. `guidellm_data` reads its data sources,
`guidellm_flags` its older flags."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, TypedDict, cast

from inferometer.documents.document import Document, JsonObject, JsonValue, settings_of
from inferometer.documents.json_text import json_value
from inferometer.errors import PlanError
from inferometer.plan.draft import (
    CaseDraft,
    ExperimentDraft,
    LevelsDraft,
    OutputDraft,
    PlanDraft,
    SamplingDraft,
    StageDraft,
    StopDraft,
    TargetDraft,
    WarmupDraft,
    WhenDraft,
)
from inferometer.plan.foreign import guidellm_data
from inferometer.plan.foreign.common import Account, Foreign, NoPlanError, Settings, without_missing
from inferometer.plan.foreign.shapes import Flag, Given, experiment, of_sessions, parse, tidy, with_parameters
from inferometer.plan.reading import read_mapping
from inferometer.plan.text import parse_yaml

TOOL = "guidellm"
_THROUGHPUT = 512  # requests at once in throughput mode: guidellm's own cap
_SWEEP = 10  # runs of a sweep by default, including both ends
_APIS = {
    "/v1/completions": "completions",
    "/v1/chat/completions": "chat",
    "/v1/embeddings": "embeddings",
    "/v1/responses": "responses",
    "/v1/audio/transcriptions": "transcriptions",
    "/v1/audio/translations": "translations",
}
_SCENARIOS: dict[str, dict[str, int]] = {  # built into guidellm
    "chat": {
        "prompt_tokens": 512,
        "prompt_tokens_stdev": 128,
        "prompt_tokens_min": 1,
        "prompt_tokens_max": 1024,
        "output_tokens": 256,
        "output_tokens_stdev": 64,
        "output_tokens_min": 1,
        "output_tokens_max": 1024,
    },
    "rag": {
        "prompt_tokens": 4096,
        "prompt_tokens_stdev": 512,
        "prompt_tokens_min": 2048,
        "prompt_tokens_max": 6144,
        "output_tokens": 512,
        "output_tokens_stdev": 128,
        "output_tokens_min": 1,
        "output_tokens_max": 1024,
    },
}


class GuidellmFile(TypedDict, total=False):
    """The file of `guidellm run --config`; reports have it below `config`. `Settings` reads the sections of `spec`."""

    config: "GuidellmFile"
    spec: dict[str, JsonValue]
    benchmarks: list[JsonObject | None] | None  # changes of the spec, one run each


def is_it(mapping: JsonObject) -> bool:
    spec = mapping.get("spec")
    if isinstance(spec, Mapping):
        return "data" in spec and "plan" not in mapping
    return "target" in mapping and bool({"rate-type", "profile", "data"} & set(mapping)) and "workload" not in mapping


def from_mapping(mapping: JsonObject) -> Foreign:
    """A file with flags by name, or with sections below `spec`."""
    if "spec" in mapping:
        return from_spec(mapping)
    from inferometer.plan.foreign import guidellm_flags

    return guidellm_flags.from_mapping(mapping)


# -- sections ------------------------------------------------------------------------------------------------------


def from_spec(mapping: JsonObject) -> Foreign:
    """The plan of the sections below `spec`; several `benchmarks` become cases."""
    file = cast(GuidellmFile, mapping)
    file = file.get("config", file) if "spec" not in file else file  # reports nest it there
    several = file.get("benchmarks") or []
    if len(several) < 2:
        settings = Settings(_without_benchmarks(file), Account(TOOL))
        settings.no_effect("metadata", "is only a description")
        return foreign_of(settings.section("spec"))
    account = Account(TOOL)
    whole = Settings(settings_of(file), account)
    whole.no_effect("metadata", "is only a description")
    cases: list[CaseDraft] = []
    notes: list[str] = []
    for at, given in enumerate(several):
        changes = given or {}
        spec = _changed(file["spec"], changes)
        one = foreign_of(Settings({"spec": spec}, Account(TOOL)).section("spec"))
        if not one.plan:
            raise PlanError(f"{TOOL}: benchmarks.{at} is itself several runs: give it one rate or number of streams")
        name = " ".join(f"{path.rpartition('.')[2]}={value}" for path, value in changes.items())
        one.plan.pop("outputs", None)
        cases.append({"name": name or f"benchmark {at + 1}", "plan": one.plan})
        notes += one.notes
    for name in ("spec", "benchmarks"):
        whole.value(name)
    account.general += dict.fromkeys(notes)
    return Foreign.of(account, {}, {"cases": with_parameters(cases)})


def _without_benchmarks(file: GuidellmFile) -> dict[str, JsonValue]:
    """The spec without `benchmarks`; each of their entries changes the spec."""
    (changes,) = file.get("benchmarks") or [{}]
    return {
        name: _changed(file["spec"], changes or {}) if name == "spec" else value
        for name, value in settings_of(file).items()
        if name != "benchmarks"
    }


def _changed(spec: JsonObject, changes: JsonObject) -> dict[str, JsonValue]:
    """`profile.streams: 300`, `constraints[0].count: 320`."""
    made: Any = json.loads(json.dumps(spec))
    for path, value in changes.items():
        at: Any = made
        keys: list[Any] = [int(step) if step.isdigit() else step for step in re.split(r"[.\[\]]+", path.rstrip("]"))]
        *steps, last = keys
        for step in steps:
            at = at[step] if isinstance(at, list) else at.setdefault(step, {})
        at[last] = value
    return dict(made)


def foreign_of(spec: Settings) -> Foreign:
    """The plan or the experiment that its sections mean."""
    account = spec.account
    if not spec.values.get("data"):
        text = f"{TOOL}: {spec.source('data')} is missing"
        raise NoPlanError(text, "guidellm refuses it too: name the data, such as kind=synthetic_text,prompt_tokens=256")
    backend = spec.section("backend")
    data = guidellm_data.workload_of(spec, _api(backend))
    ends = _ends(spec)
    profile = _profile(spec.section("profile"), ends, data)
    plan: PlanDraft = {
        "target": _target(backend, data.api),
        "workload": {**data.workload, "tokenizer": _tokenizer(spec)},
        "sampling": _sampling(backend, data),
        "warmup": profile.warmup,
        "limits": ends.limits,
        "outputs": _outputs(spec),
        "seed": _seed(spec),
    }
    for name in ("metrics", "label", "labels"):
        spec.no_effect(name, "the records of all requests are stored")
    if not any((ends.seconds, ends.requests, profile.measured)):
        account.general.append(NO_END)
    account.settle()
    stop: StopDraft = {**ends.stop, **(profile.measured or {})}
    loads: WhenDraft = (
        {**profile.load, "stop": stop} if profile.load and "stages" not in profile.load["load"] else profile.load
    )
    if loads and "stages" in loads["load"]:
        loads = {**loads, "stop": {"errors": ends.stop.get("errors")}}
    whole = of_sessions(without_missing({**plan, **loads}), account.general) if loads else {}
    varied = experiment(without_missing({**plan, "stop": stop}), profile.varied, account.general)
    return Foreign.of(account, whole, varied)


def _api(backend: Settings) -> str:
    if (backend.text("kind") or "openai_http") not in ("openai_http", "openai"):
        backend.wrong("kind", "has no counterpart but openai_http")
    route = backend.text("request_format")
    if route is None:
        backend.account.general.append("requests are chat completions, guidellm's default")
        return "chat"
    known = {**_APIS, **{path.removeprefix("/v1/").replace("/", "_"): api for path, api in _APIS.items()}}
    known["text_completions"] = "completions"
    if route not in known:
        backend.wrong("request_format", f"has no counterpart; there are {', '.join(_APIS)}")
    return known.get(route, "chat")


def _target(backend: Settings, api: str) -> TargetDraft:
    target = (backend.text("target") or "").rstrip("/").removesuffix("/v1")
    headers = dict(backend.section("extras").value("headers", {}))
    if key := backend.text("api_key"):
        headers["Authorization"] = f"Bearer {key}"
    for name in ("http2", "follow_redirects", "validate_backend"):
        backend.no_effect(name, "HTTP/1.1 is used, the target is checked before the load")
    if backend.section("extras").value("params"):
        backend.section("extras").wrong("params", "has no counterpart: parameters of the URL")
    routes, path = backend.section("api_routes"), backend.text("request_format") or "/v1/chat/completions"
    own = routes.text(path) or path.lstrip("/")
    for name in routes:
        routes.no_effect(name, "another request format has it") if name != path else None
    if backend.on("server_history"):
        backend.wrong("server_history", "has no counterpart: every turn sends its history")
    if backend.value("multiturn_reasoning"):
        backend.wrong("multiturn_reasoning", "has no counterpart: history holds the visible answer")
    return {
        "url": target or None,
        "model": backend.text("model"),
        "api": None if api == "completions" else api,
        "path": None if own.strip("/") == path.strip("/") else f"/{own.lstrip('/')}",
        "stream": None if backend.on("stream", True) else False,
        "headers": headers,
        "tls": None if backend.on("verify") or not target.startswith("https") else {"verify": False},
        "timeout": {"request": backend.number("timeout"), "connect": backend.number("timeout_connect")},
    }


def _choose_tools(backend: Settings, data: guidellm_data.GuidellmData, extra: dict[str, JsonValue]) -> None:
    """Requests with their own tools must call one; tools of all requests are optional."""
    if data.calls_tools:
        if "tools" in extra:
            backend.section("extras").wrong("body", "has no counterpart for tools in addition to tool_call_turns")
        if tools := data.workload.get("tools"):
            tools["choice"] = extra.pop("tool_choice", None) or "required"
    elif "tools" in data.workload.get("columns", {}):
        extra.setdefault("tool_choice", "required")
    elif "tools" in extra:
        extra["tool_choice"] = "none"
    else:
        extra.pop("tool_choice", None)


def _sampling(backend: Settings, data: guidellm_data.GuidellmData) -> SamplingDraft:
    extra = dict(backend.section("extras").value("body", {}))
    behaviour = backend.text("tool_call_missing_behavior")
    if behaviour is not None or data.calls_tools:
        own = "a turn without a tool call continues as if there was one"
        if behaviour != "ignore_continue":
            own += "; guidellm's default is to end the session as failed"
        if behaviour is None:
            backend.account.general.append(f"tool_call_missing_behavior: {own}")
        else:
            backend.note("tool_call_missing_behavior", own)
    if (most := backend.count("max_tokens")) is not None:
        extra["max_tokens"] = most
    ignore = extra.pop("ignore_eos", None)
    _choose_tools(backend, data, extra)
    return {
        "ignore_eos": ignore,
        "temperature": extra.pop("temperature", None),
        "top_p": extra.pop("top_p", None),
        "extra": extra,
    }


def _tokenizer(spec: Settings) -> str | None:
    own = spec.section("tokenizer")
    own.no_effect("kind", "the tokenizer is read by its name")
    own.no_effect("load_kwargs", "the tokenizer is used unchanged")
    return own.text("model")


def _seed(spec: Settings) -> int | None:
    value = spec.values.get("seed")
    if not isinstance(value, Mapping):
        return spec.count("seed") or None
    own = spec.section("seed")
    if own.text("kind", "static") != "static":
        own.wrong("kind", "has no counterpart but static")
    return own.count("value") or None


def _outputs(spec: Settings) -> list[OutputDraft]:
    outputs: list[OutputDraft] = []
    for entry in spec.sections("outputs"):
        kind, path = entry.text("kind"), entry.text("path")
        ending = (PurePath(path).suffix.lower().lstrip(".") if path else "") or (kind or "")
        if ending in ("json", "csv", "parquet") and path:
            outputs.append({"format": ending, "path": path})
            entry.note("path", "has Inferometer's schema, not guidellm's")
        else:
            entry.account.no_effect(
                entry.prefix.rstrip("."), "this file is not written; inferometer report makes pages"
            )
    return outputs


# -- when ----------------------------------------------------------------------------------------------------------


NO_END = (
    "without max_duration or max_requests guidellm runs until its data ends, with synthetic data forever; "
    "here stop determines the end"
)


@dataclass(frozen=True, slots=True)
class Ends:
    """The stop conditions of a benchmark, and limits that replace its failure rates."""

    stop: StopDraft
    limits: list[str]

    @property
    def seconds(self) -> float | None:
        value = self.stop.get("duration")
        return None if value is None else float(cast(float, value))

    @property
    def requests(self) -> int | None:
        value = self.stop.get("requests")
        return None if value is None else int(value)


def _ends(spec: Settings) -> Ends:
    stop: StopDraft = {"duration": None, "requests": None, "errors": None}
    limits: list[str] = []
    for entry in spec.sections("constraints"):
        entry.no_effect("stopping_scope", "every level is a run of its own")
        match entry.text("kind"):
            case "max_duration":
                stop["duration"] = entry.number("seconds")
            case "max_requests":
                stop["requests"] = entry.count("count")
            case "max_errors":
                stop["errors"] = entry.count("count")
            case "max_error_rate" | "max_global_error_rate" as kind:
                limits.append(f"failure_rate < {tidy((entry.number('rate') or 0.0) * 100)}%")
                entry.note("kind", f"{kind} is a limit, judged at the end; stop.errors stops early")
                entry.no_effect("window", "the limit is on the whole run")
                entry.no_effect("minimum", "the limit is on the whole run")
            case "over_saturation":
                for name in entry:
                    entry.note(name, "the verdict reports a load above the target's capacity; the run is not cut short")
            case _:
                entry.wrong("kind", "has no counterpart")
    return Ends(stop, limits)


@dataclass(frozen=True, slots=True)
class GuidellmProfile:
    """When requests are sent: the load of a plan, or the varied settings of an experiment."""

    load: WhenDraft
    varied: ExperimentDraft
    warmup: WarmupDraft | None = None
    measured: StopDraft | None = None


def _profile(profile: Settings, ends: Ends, data: guidellm_data.GuidellmData) -> GuidellmProfile:
    kind = profile.text("kind") or "sweep"
    if profile.number("rampup_duration"):
        profile.wrong("rampup_duration", "has no counterpart: use a load of type ramp, or stages")
    if "cooldown" in profile:
        profile.no_effect("cooldown", "answers after the last request was sent are not in the window")
    warmup, measured = _warmup(profile, ends)
    load, varied = _loads(profile, kind, ends, data)
    return GuidellmProfile(load, varied, warmup, measured)


def _loads(
    profile: Settings, kind: str, ends: Ends, data: guidellm_data.GuidellmData
) -> tuple[WhenDraft, ExperimentDraft]:
    cap = profile.count("max_concurrency")
    match kind:
        case "synchronous":
            return _at_once(1), {}
        case "throughput":
            most = cap or min(_THROUGHPUT, ends.requests or _THROUGHPUT)
            return _at_once(most), {}
        case "replay":
            scale = profile.number("time_scale", 1.0) or 1.0
            if not data.timed:
                profile.wrong("kind", "needs data with times, such as kind=trace_synthetic")
            return {"load": {"type": "replay", "speed": 1 / scale}}, {}
        case "sweep":
            return {}, _swept(profile, ends, cap)
        case "concurrent":
            return _at_levels("concurrent", _levels(profile, "streams"), ends, None)
        case "constant" | "poisson" | "async":
            return _at_levels("constant" if kind == "async" else kind, _levels(profile, "rate"), ends, cap)
    profile.wrong(
        "kind", "has no counterpart; there are synchronous, concurrent, throughput, constant, poisson, sweep, replay"
    )
    return {}, {}


def _levels(profile: Settings, name: str) -> list[float]:
    value = profile.value(name)
    entries = value if isinstance(value, list) else [] if value is None else str(value).strip("[]").split(",")
    try:
        levels = [float(entry) for entry in entries]
    except (TypeError, ValueError):
        levels = [math.nan]
    if not all(math.isfinite(level) and level > 0 for level in levels):
        profile.wrong(name, "must be numbers greater than 0")
        return [1.0]
    if not levels:
        profile.wrong(name, f"is missing: profile {profile.values.get('kind')} needs it")
    return levels or [1.0]


def _at_once(count: int) -> WhenDraft:
    return {"load": {"type": "concurrency", "concurrency": count}}


def _swept(profile: Settings, ends: Ends, cap: int | None) -> ExperimentDraft:
    """One request at a time, then maximum throughput, then evenly spaced rates between the results of the two; the
    highest is the rate of the second."""
    size = profile.count("sweep_size", _SWEEP) or _SWEEP
    if size < 2:
        profile.wrong("sweep_size", "must be at least 2: a sweep has a run at both ends")
        return {}
    kind, most = profile.text("strategy_type") or "constant", cap or _THROUGHPUT
    levels: LevelsDraft = {
        "low": _at_once(1),
        "high": _at_once(min(most, ends.requests or most)),
        "count": size - 2,
        "set": {"load": {"type": kind, "max_concurrency": most}},
    }
    return {"levels": levels}


def _at_levels(kind: str, levels: list[float], ends: Ends, cap: int | None) -> tuple[WhenDraft, ExperimentDraft]:
    """One level is a load. Several are separate runs, or stages of one run if each has a duration."""
    if len(levels) == 1:
        if kind == "concurrent":
            return _at_once(int(levels[0])), {}
        return {"load": {"type": kind, "rate": tidy(levels[0]), "max_concurrency": cap}}, {}
    if kind == "concurrent":
        varied: ExperimentDraft = {"axes": {"load.concurrency": [int(level) for level in levels]}}
    else:
        varied = {"set": {"load": {"type": kind, "max_concurrency": cap}}}
        varied["axes"] = {"load.rate": [tidy(level) for level in levels]}
    return _as_stages(kind, levels, ends, cap), without_missing(varied)


def _as_stages(kind: str, levels: list[float], ends: Ends, cap: int | None) -> WhenDraft:
    """Stages with guidellm's duration; none if the duration is not known in advance."""
    stages: list[StageDraft] = []
    for level in levels:
        lasts = ends.seconds
        if lasts is None and kind != "concurrent" and ends.requests:
            lasts = ends.requests / level
        if lasts is None:
            return {}
        at: StageDraft = {"concurrency": int(level)} if kind == "concurrent" else {"rate": tidy(level), "process": kind}
        stages.append({**at, "duration": tidy(round(lasts, 3))})
    return {"load": {"type": "stages", "stages": stages, "max_concurrency": cap}}


def _warmup(profile: Settings, ends: Ends) -> tuple[WarmupDraft | None, StopDraft | None]:
    """guidellm's warm-up is part of the run, ours comes before it; the measured part stays the same."""
    value = profile.values.get("warmup")
    if isinstance(value, Mapping):
        own = profile.section("warmup")
        own.no_effect("mode", "a share of what ends the run")
        warm = own.number("percent") or own.number("value") or 0.0
    else:
        warm = profile.number("warmup", 0.0) or 0.0
    if not warm:
        return None, None
    name, whole = ("duration", ends.seconds) if ends.seconds is not None else ("requests", ends.requests)
    if whole is None:
        if warm < 1:
            profile.no_effect("warmup", "a share of an end that is not there: guidellm measures everything")
            return None, None
        profile.wrong("warmup", "needs max_duration or max_requests here, to know whether it is seconds or requests")
        return None, None
    part = warm if warm >= 1 else warm * whole
    if not math.isfinite(part) or not math.isfinite(whole):
        profile.wrong("warmup", "must be a number, and a share of one")
        return None, None
    if name == "requests":
        return {"requests": round(part)}, {"requests": int(whole) - round(part)}
    return {"duration": tidy(part)}, {"duration": tidy(whole - part)}


# -- the command line since 0.7 --------------------------------------------------------------------------------------

_SECTIONS = ("backend", "profile", "tokenizer", "seed", "data-loader", "data-column-mapper", "data-finalizer")
RUN_FLAGS: dict[str, Flag] = {
    **dict.fromkeys((*_SECTIONS, "config"), Flag()),
    **dict.fromkeys(("data", "constraint", "override", "output", "data-preprocessor"), Flag("many")),
    "metrics": Flag("one", "the records of all requests are stored"),
    "label": Flag("many", "the environment is stored with every run; use the plan's name instead"),
    "disable-console": Flag("none", "--quiet hides the progress"),
    "disable-console-interactive": Flag("none", "--quiet hides the progress"),
}
_RUN_ALIASES = {
    "scenario": "config",
    "-c": "config",
    "-l": "label",
    "disable-console-outputs": "disable-console",
    "disable-progress": "disable-console-interactive",
}
_PLURAL = {"constraint": "constraints", "output": "outputs", "data-preprocessor": "data_preprocessors", "data": "data"}


def from_run_argv(argv: Sequence[str]) -> Foreign:
    """The plan of a command line after `guidellm run`."""
    given = parse(TOOL, argv, RUN_FLAGS, _RUN_ALIASES)
    spec: dict[str, JsonValue] = {}
    for name in _SECTIONS:
        if (text := given.text(name)) is not None:
            spec[name.replace("-", "_")] = _section(given, name, text)
    for name, plural in _PLURAL.items():
        if texts := given.several(name):
            spec[plural] = [_section(given, name, text) for text in texts]
    _override(given, spec)
    base = _config(given)
    given.settle()
    whole = {**base, "spec": {**cast(JsonObject, base.get("spec") or {}), **spec}}
    foreign = from_spec(whole) if base else foreign_of(Settings(spec, Account(TOOL), "--"))
    flags = [entry for entry in given.account.entries() if entry.outcome == "no effect"]
    foreign.entries = [*flags, *foreign.entries]
    return foreign.noted(given.account.notes)


def _section(given: Given, name: str, text: str) -> dict[str, JsonValue]:
    """`kind=sweep,sweep_size=10`, with dots for what is inside another, or the same as JSON."""
    try:
        if text.lstrip().startswith("{"):
            return dict(json_value(text)[0])
        made: dict[str, JsonValue] = {}
        for part in _parts(text):
            key, sign, value = part.partition("=")
            if not sign:
                raise ValueError
            *steps, last = key.strip().split(".")
            at = made
            for step in steps:
                at = cast(dict[str, JsonValue], at.setdefault(step, {}))
            at[last] = parse_yaml(value, f"--{name}")[0]
        return made
    except (ValueError, TypeError, AttributeError):
        given.wrong(name, "must be kind=NAME,key=value or JSON")
        return {}


def _parts(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _override(given: Given, spec: dict[str, JsonValue]) -> None:
    """`--override profile.rate 10,20,30`: one run per value."""
    args = given.several("override")
    for path, values in zip(args[::2], args[1::2], strict=False):
        if path not in ("profile.rate", "profile.streams"):
            given.account.mistakes.append(
                f"{TOOL}: --override {path} has no counterpart but profile.rate and profile.streams"
            )
            continue
        spec["profile"] = {
            **cast(JsonObject, spec.get("profile", {})),
            path.partition(".")[2]: values.strip("[]").split(","),
        }


def _config(given: Given) -> dict[str, JsonValue]:
    """The content of the file of `--config`, or of one of guidellm's own scenarios."""
    name = given.text("config")
    if name is None:
        return {}
    if not Path(name).is_file():
        if name in _SCENARIOS:
            return {"spec": {"profile": {"kind": "sweep"}, "data": [{"kind": "synthetic_text", **_SCENARIOS[name]}]}}
        given.wrong("config", f"file not found; guidellm's own scenarios are {', '.join(_SCENARIOS)}")
        return {}
    mapping, twice = read_mapping(name)
    if twice:
        raise PlanError(twice)
    return dict(Document(mapping).section("config") or mapping)
