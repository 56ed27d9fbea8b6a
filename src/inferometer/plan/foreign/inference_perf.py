"""inference-perf's YAML and command line: `load`, `api`, `server`, `tokenizer`, `data`, `report`, `storage` as a plan.
`inference_perf_data` reads its data generators."""

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, cast

from inferometer.documents.document import JsonObject, JsonValue, settings_of
from inferometer.errors import PlanError
from inferometer.plan.draft import (
    ExperimentDraft,
    LevelsDraft,
    LoadDraft,
    PlanDraft,
    SamplingDraft,
    StageDraft,
    StopDraft,
    TargetDraft,
    WhenDraft,
    WorkloadDraft,
)
from inferometer.plan.foreign import inference_perf_data
from inferometer.plan.foreign.common import Account, Foreign, NeedsFileError, NoPlanError, Settings, without_missing
from inferometer.plan.foreign.inference_perf_data import seconds
from inferometer.plan.foreign.shapes import ESTIMATED, Flag, experiment, of_sessions, parse, tidy
from inferometer.plan.foreign.templates import changed
from inferometer.plan.reading import file_text
from inferometer.plan.text import parse_yaml

TOOL = "inference-perf"
SECTIONS = ("load", "api", "server", "tokenizer", "data", "report", "storage", "metrics", "circuit_breakers")
_APIS = {"completion": None, "chat": "chat", "anthropic_messages": "anthropic"}
_REPORTS = "every run has a summary, stages and records; there is nothing to choose"
_STORED = "runs are stored in the store (--store); outputs writes more files"
_SCRAPED = "server metrics are read from the servers, not through Prometheus"
_PLACE = ("path", "report_file_prefix")
_PARTS = ("summary", "per_stage")
_NO_EFFECT: Mapping[str, tuple[str, tuple[str, ...]]] = {  # section: reason, and its keys without effect
    "storage.local_storage": (_STORED, _PLACE),
    "storage.google_cloud_storage": (_STORED, (*_PLACE, "bucket_name")),
    "storage.simple_storage_service": (
        _STORED,
        (*_PLACE, "bucket_name", "endpoint_url", "region_name", "addressing_style"),
    ),
    "metrics": (_SCRAPED, ("type",)),
    "metrics.prometheus": (_SCRAPED, ("url", "scrape_interval", "filters", "google_managed")),
    "report.request_lifecycle": (
        _REPORTS,
        (
            *(*_PARTS, "per_request", "per_adapter", "per_adapter_stage"),
            *("percentiles", "use_server_output_tokens", "max_error_messages"),
        ),
    ),
    "report.prometheus": (_REPORTS, _PARTS),
    "report.session_lifecycle": (_REPORTS, (*_PARTS, "per_session")),
    "load": ("connections are opened on demand", ("worker_max_tcp_connections",)),
    "server": ("the API decides what is sent", ("type",)),
    "tokenizer": ("code from models is never executed; HF_TOKEN is read", ("trust_remote_code", "token")),
}
_FAILING = "a failing target ends the run: stop.errors after a number of failures, or when all of the first 100 fail"
_BREAKER = {"": ("name",), "metrics": ("matches", "rules")}
_TRIGGER = ("type", "threshold", "window_sec", "min_samples")
_OUR_SECTIONS = {
    "name",
    "about",
    "target",
    "workload",
    "sampling",
    "stop",
    "warmup",
    "limits",
    "traffic",
    "plan",
    "cases",
}
_GOODPUT = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "ntpot": "ntpot", "request_latency": "e2e"}
CONSTANT = (
    "constant of inference-perf has exponential gaps between requests, and the rate as their mean: read as poisson;"
    " load.type=constant spaces them evenly"
)
BURST_S = 5  # a sweep sends all requests of its first stage in this time


def is_it(mapping: JsonObject) -> bool:
    """Whether a file's content is an inference-perf configuration: no plan of ours has these sections."""
    known, unknown = set(mapping) & set(SECTIONS), set(mapping) - set(SECTIONS)
    if not {"data", "api", "tokenizer", "report", "storage"} & known or not {"data", "load", "api"} & known:
        return False
    sections = sum(isinstance(mapping[name], Mapping) for name in ("data", "load", "api", "server") if name in known)
    return not unknown or (sections > 1 and len(unknown) < len(known) and not unknown & _OUR_SECTIONS)


def from_mapping(mapping: JsonObject) -> Foreign:
    """The plan of a configuration; all errors in it are raised together."""
    settings = Settings(mapping, Account(TOOL))
    account = settings.account
    data = inference_perf_data.workload_of(settings)
    plan: PlanDraft = {
        "target": _target(settings),
        "workload": {**data.workload, **_tokenizer(settings, data)},
        "sampling": _sampling(settings),
        "limits": _limits(settings),
        "seed": settings.section("load").count("base_seed") if data.seed is None else data.seed,
    }
    if data.seed is not None:
        settings.section("load").no_effect("base_seed", "the seed of the data is used")
    load, varied = _with_cap(settings.section("load"), *_load_and_stop(settings, data))
    _accounted(settings)
    account.settle()
    notes = account.general
    scaled = data.users is None
    if turns := load.pop("turns", None):
        plan["workload"] |= turns
    whole: PlanDraft = {} if not load else without_missing({**plan, **load})
    if whole and scaled:
        whole = of_sessions(whole, notes)
    return Foreign.of(account, whole, experiment(without_missing(plan), varied, notes, scaled=scaled))


def _accounted(settings: Settings) -> None:
    """Account for the settings that do not affect the requests."""
    for place, (why, names) in _NO_EFFECT.items():
        section = settings
        for step in place.split("."):
            section = section.section(step)
        for name in names:
            section.no_effect(name, why)
    _breakers(settings)


def _breakers(settings: Settings) -> None:
    """Circuit breakers: theirs end a stage after failures, ours the run."""
    used = settings.section("load").several("circuit_breakers")
    for breaker in settings.sections("circuit_breakers"):
        unused = breaker.text("name") not in used
        text = "no load uses it" if unused else _FAILING
        for section, names in (
            *((breaker.section(place) if place else breaker, names) for place, names in _BREAKER.items()),
            *((trigger, _TRIGGER) for trigger in breaker.sections("triggers")),
        ):
            for name in names:
                section.no_effect(name, text)
    if used:
        settings.section("load").note("circuit_breakers", "see circuit_breakers")


def _target(settings: Settings) -> TargetDraft:
    server, api = settings.section("server"), settings.section("api")
    kind = api.text("type", "completion") or "completion"
    if kind not in _APIS:
        api.wrong("type", f"must be one of {', '.join(_APIS)}")
    headers = dict(api.value("headers", {}))
    if key := server.text("api_key"):
        headers["Authorization"] = f"Bearer {key}"
    for name in ("slo_unit", "slo_tpot_header", "slo_ttft_header", "session_token_header_key"):
        if name in api:
            api.wrong(name, "has no counterpart")
    return {
        "url": server.text("base_url"),
        "model": server.text("model_name"),
        "api": _APIS.get(kind),
        "stream": None if api.on("streaming") else False,
        "headers": headers,
        "session_header": api.text("session_id_header_key"),
        "tls": {"cert": server.text("cert_path"), "key": server.text("key_path")},
        "timeout": {"request": settings.section("load").number("request_timeout")},
    }


def _sampling(settings: Settings) -> SamplingDraft:
    ignore = settings.section("server").on("ignore_eos", True)
    shape = settings.section("api").section("response_format")
    extra: dict[str, JsonValue] = {}
    if shape.values:
        kind, name, schema = shape.text("type", "json_schema"), shape.text("name"), shape.value("json_schema")
        form: dict[str, JsonValue] = {"type": kind}
        if kind == "json_schema":
            form["json_schema"] = {"name": name or "structured_output", "schema": schema}
        extra["response_format"] = form
    return {"ignore_eos": None if ignore else False, "extra": extra}


def _tokenizer(settings: Settings, data: inference_perf_data.InferencePerfData) -> WorkloadDraft:
    section = settings.section("tokenizer")
    name = section.text("pretrained_model_name_or_path")
    if data.workload.get("type") == "otel":
        section.no_effect("pretrained_model_name_or_path", "the recorded messages are sent as they are")
        return {}
    if name != settings.section("server").text("model_name") or data.kind == "shareGPT":
        return {"tokenizer": name}
    settings.account.general.append(ESTIMATED)
    return {}


def _limits(settings: Settings) -> list[str]:
    """Goodput limits: limits without a statistic, which each request must meet."""
    constraints = settings.section("report").section("goodput").section("constraints")
    limits = []
    for name in constraints:
        value = constraints.number(name)
        if name not in _GOODPUT:
            constraints.wrong(name, f"is not one of {', '.join(_GOODPUT)}")
        elif value is not None:
            limits.append(f"{_GOODPUT[name]} < {tidy(round(value * 1000, 6))}ms")
    return limits


# -- when it is sent -------------------------------------------------------------------------------------------------


class When(TypedDict, total=False):
    load: LoadDraft
    stop: StopDraft
    turns: WorkloadDraft  # turns that the load generates


def _load_and_stop(settings: Settings, data: inference_perf_data.InferencePerfData) -> tuple[When, ExperimentDraft]:
    """The load and stop rule of a plan, and the settings that an experiment varies; either may be empty."""
    load = settings.section("load")
    kind, stages = load.text("type", "constant") or "constant", load.sections("stages")
    if kind == "constant":
        kind = "poisson"
        load.note("type", CONSTANT) if "type" in load else load.account.general.append(f"load.type: {CONSTANT}")
    if load.section("sweep").values:
        return {}, _swept(load, kind)
    if kind == "trace_replay":
        return _replayed(load, data), {}
    if not stages:
        load.wrong("stages", "is missing")
        return {}, {}
    match kind:
        case "constant" | "poisson" if data.users is not None:
            return _rounds(stages, kind, data)
        case "constant" | "poisson":
            return _rates(load, stages, kind), _of_rates(stages, kind)
        case "concurrent":
            return _concurrencies(stages, data)
        case "trace_session_replay":
            return _sessions(stages, _in_flight(load))
    load.wrong(
        "type", "has no counterpart; there are constant, poisson, concurrent, trace_replay, trace_session_replay"
    )
    return {}, {}


_PER_WORKER = 100  # requests in flight, by default


def _with_cap(load: Settings, made: When, varied: ExperimentDraft) -> tuple[When, ExperimentDraft]:
    """Cap the requests in flight at workers x their limit; more arrivals wait, as with `max_concurrency`."""
    workers, per_worker = load.count("num_workers"), load.count("worker_max_concurrency", _PER_WORKER)
    kind = load.text("type", "constant")
    if kind not in ("constant", "poisson", "trace_replay"):
        if kind != "trace_session_replay":
            for name in ("num_workers", "worker_max_concurrency"):
                load.no_effect(name, "the load determines how many requests are in flight")
        load.no_effect("interval", "the stages are runs of their own")
        return made, varied
    if not workers or not per_worker:
        load.no_effect("num_workers", "use --workers if one process is not enough")
        if "worker_max_concurrency" in load:
            text = "not applied: it is per worker, of which inference-perf starts one per CPU; use load.max_concurrency"
            load.note("worker_max_concurrency", text)
        return made, varied
    if made:
        made = {**made, "load": {**made["load"], "max_concurrency": workers * per_worker}}
    if "levels" in varied:
        levels = varied["levels"]
        cap: LoadDraft = {"max_concurrency": workers * per_worker}
        high, common = cast(WhenDraft, levels["high"]), levels["set"]
        capped: LevelsDraft = {
            **levels,
            "high": {**high, "load": {**high["load"], **cap}},
            "set": {**common, "load": {**cast(JsonObject, common["load"]), **settings_of(cap)}},
        }
        varied = {**varied, "levels": capped}
    elif varied:
        varied = {**varied, "set": {**varied.get("set", {}), "load.max_concurrency": workers * per_worker}}
    return made, varied


def _rates(load: Settings, stages: list[Settings], kind: str) -> When:
    levels = [(stage.number("rate"), stage.number("duration")) for stage in stages]
    pause = load.number("interval")
    if len(levels) == 1:
        if pause is not None:
            load.no_effect("interval", "there is one stage")
        ((rate, lasts),) = levels
        return {"load": {"type": kind, "rate": _tidy(rate)}, "stop": {"duration": seconds(lasts)}}
    made: list[StageDraft] = []
    for rate, lasts in levels:
        if made and pause:
            made.append({"rate": 0, "duration": seconds(pause)})
        made.append({"rate": _tidy(rate), "duration": seconds(lasts), "process": kind})
    load.account.general.append(
        "load.stages: a stage begins when the one before it ends, with its requests still in flight; inference-perf"
        f" waits until they are answered, and {tidy(1.0 if pause is None else pause)} s more: inferometer sweep runs"
        " each alone"
    )
    return {"load": {"type": "stages", "stages": made}}


def _of_rates(stages: list[Settings], kind: str) -> ExperimentDraft:
    """Stages of rates, as separate runs if requested."""
    rates = [stage.number("rate") for stage in stages]
    if len(stages) == 1 or not all(rates):
        return {}
    lasts = {"stop.duration": [seconds(stage.number("duration")) for stage in stages]}
    return {"set": {"load.type": kind}, "zip": {"load.rate": [_tidy(rate) for rate in rates], **lasts}}


def _rounds(
    stages: list[Settings], kind: str, data: inference_perf_data.InferencePerfData
) -> tuple[When, ExperimentDraft]:
    """Users alternate request by request: each has a session, and its next turn is due after one turn of all others."""
    users, levels = data.users or 1, []
    for stage in stages:
        rate, lasts = stage.number("rate", 1.0) or 1.0, stage.number("duration", 1.0) or 1.0
        requests = max(1, round(rate * lasts))
        begun = min(users, requests)
        levels.append((_tidy(rate), math.ceil(requests / users), seconds(round(users / rate, 6)), requests, begun))
    stages[0].account.general.append(
        f"{users} users send in turn: sessions begin at the request rate, a next turn is due every users / rate"
    )
    if len(levels) == 1:
        ((first, turns, every, _, begun),) = levels
        return {
            "load": {"type": kind, "rate": first},
            "turns": _turns_of(data, turns) | {"turn_interval": every if turns > 1 else None},
            "stop": {"sessions": begun, "requests": levels[0][3], "whole_sessions": False},
        }, {}
    names = ("load.rate", "workload.turns", "workload.turn_interval", "stop.requests", "stop.sessions")
    columns = zip(*levels, strict=True)
    again = {"workload.turn_tokens": data.later} if any(turns > 1 for _, turns, *_ in levels) else {}
    common = {"load.type": kind, "stop.whole_sessions": False, **again}
    return {}, {"set": common, "zip": dict(zip(names, map(list, columns), strict=True))}


def _turns_of(data: inference_perf_data.InferencePerfData, turns: int) -> WorkloadDraft:
    return {"turns": turns, "turn_tokens": data.later} if turns > 1 else {"turns": turns}


def _concurrencies(stages: list[Settings], data: inference_perf_data.InferencePerfData) -> tuple[When, ExperimentDraft]:
    pairs = [(stage.count("concurrency_level"), stage.count("num_requests")) for stage in stages]
    for stage in stages:
        for name in ("rate", "duration"):
            stage.no_effect(name, "a concurrency has no rate")
    if data.users or data.conversations:
        return _in_turn(pairs, data)
    if len(stages) > 1:
        levels = {"load.concurrency": [level for level, _ in pairs], "stop.requests": [count for _, count in pairs]}
        return {}, {"zip": levels}
    ((level, count),) = pairs
    return {"load": {"type": "concurrency", "concurrency": level}, "stop": {"requests": count}}, {}


def _in_turn(
    pairs: list[tuple[int | None, int | None]], data: inference_perf_data.InferencePerfData
) -> tuple[When, ExperimentDraft]:
    """Conversations alternate request by request up to a number of requests; a tool call keeps the slot."""
    sessions = data.users or data.conversations or 1
    turns = [math.ceil((count or 1) / sessions) for _, count in pairs] if data.users else []
    if len(pairs) == 1:
        ((level, count),) = pairs
        load: LoadDraft = {
            "type": "concurrency",
            "concurrency": level,
            "sessions_at_once": sessions,
            "in_turn": True,
        }
        stop: StopDraft = {"requests": count, "whole_sessions": False}
        return {"load": load, "stop": stop, "turns": _turns_of(data, turns[0]) if turns else {}}, {}
    levels = {"load.concurrency": [level for level, _ in pairs], "stop.requests": [count for _, count in pairs]}
    common = {"load.sessions_at_once": sessions, "load.in_turn": True, "stop.whole_sessions": False}
    if turns:
        levels["workload.turns"] = list(turns)
        common |= {"workload.turn_tokens": data.later} if max(turns) > 1 else {}
    return {}, {"set": common, "zip": levels}


def _in_flight(load: Settings) -> int:
    """The maximum number of requests in flight over all workers; the default is one worker per CPU."""
    return (load.count("num_workers", 1) or 1) * (load.count("worker_max_concurrency", _PER_WORKER) or _PER_WORKER)


def _sessions(stages: list[Settings], most: int) -> tuple[When, ExperimentDraft]:
    """A number of concurrent sessions; each sends its recorded calls, several at once where the recording branches."""
    made = []
    for stage in stages:
        at_once, count = stage.count("concurrent_sessions"), stage.count("num_sessions")
        if stage.number("session_rate") is not None:
            stage.wrong("session_rate", "has no counterpart with concurrent_sessions")
        limit = stage.number("timeout")
        made.append((at_once or None, count, None if limit is None else seconds(limit)))
    if any(at_once is None for at_once, _, _ in made):
        stages[0].wrong("concurrent_sessions", "must be at least 1: an unlimited number has no counterpart")
    loads: list[When] = [
        {
            "load": {"type": "concurrency", "concurrency": max(at_once or 1, most), "sessions_at_once": at_once},
            "stop": {"sessions": count, "duration": limit},
        }
        for at_once, count, limit in made
    ]
    if len(loads) == 1:
        return loads[0], {}
    starts, first = [], 0
    for _, count, _ in made:
        starts.append(first)
        first += count or 0
    names = ("load.concurrency", "load.sessions_at_once", "stop.sessions", "workload.skip")
    slots = [at_once for at_once, _, _ in made]
    columns = ([max(at_once or 1, most) for at_once in slots], slots, [count for _, count, _ in made], starts)
    if any(count is None for _, count, _ in made[:-1]) or any(limit for _, _, limit in made):
        stages[0].account.mistakes.append(f"{TOOL}: load.stages needs num_sessions and no timeout in several stages")
    return {}, {"set": {"load.type": "concurrency"}, "zip": dict(zip(names, columns, strict=True))}


def _replayed(load: Settings, data: inference_perf_data.InferencePerfData) -> When:
    trace = load.section("trace")
    path, kind = trace.text("file"), trace.text("format", "AzurePublicDataset")
    if path is None:
        load.wrong("trace", "is missing: trace_replay needs its file")
    if kind != "AzurePublicDataset":
        trace.wrong("format", "must be AzurePublicDataset")
    if data.kind != "trace" or data.workload.get("path") != path:
        load.account.mistakes.append(
            f"{TOOL}: data.trace.file must be the file of load.trace: times and lengths are its rows"
        )
    for stage in load.sections("stages"):
        for name in ("rate", "duration"):
            stage.no_effect(name, "the trace has its own times")
    return {"load": {"type": "replay"}}


def _swept(load: Settings, kind: str) -> ExperimentDraft:
    """A burst whose drain rate shows the capacity of the server, then rates from 1 up to it."""
    sweep = load.section("sweep")
    if kind not in ("constant", "poisson"):
        load.wrong("type", "must be constant or poisson with load.sweep")
        return {}
    if load.values.get("stages"):
        load.no_effect("stages", "ignored, because load.sweep determines the stages")
    shape = sweep.text("type", "linear")
    spacing = {"linear": "linear", "geometric": "narrowing"}.get(str(shape))
    if spacing is None:
        sweep.wrong("type", "must be linear or geometric")
    requests, count = sweep.count("num_requests", 2000) or 2000, sweep.count("num_stages", 5)
    burst: WhenDraft = {"load": {"type": kind, "rate": tidy(requests / BURST_S)}}
    stop: StopDraft = {
        "requests": requests,
        "drain": seconds(max((sweep.number("timeout", 60.0) or 60.0) - BURST_S, 0)),
    }
    percentile = sweep.number("saturation_percentile", 95.0)
    levels: LevelsDraft = {
        "low": 1,
        "high": {**burst, "stop": stop},
        "count": count,
        "spacing": spacing,
        "ends": "both",
        "measure": f"drain_rate p{tidy(95.0 if percentile is None else percentile)}",
        "set": {"load": {"type": kind}, "stop.duration": seconds(sweep.number("stage_duration", 180.0))},
    }
    load.no_effect("interval", "the levels are runs of their own")
    return {"levels": levels}


def _tidy(value: float | None) -> float | None:
    return None if value is None else tidy(value)


# -- files -----------------------------------------------------------------------------------------------------------


def may_have(path: Sequence[str | int]) -> Collection[str]:
    """The settings that the section at a path can have, whether a file sets them or not."""
    return inference_perf_data.KEYS.get(".".join(str(step) for step in path if not isinstance(step, int)), ())


def from_argv(argv: Sequence[str]) -> Foreign:
    """`inference-perf --config_file X`; every other flag sets a path, and the file is optional."""
    others = [arg.lstrip("-").partition("=")[0].replace("_", "-") for arg in argv if arg.startswith("--")]
    if {"analyze", "help", "h"} & {*others, *(arg.lstrip("-") for arg in argv)}:
        raise NoPlanError(f"{TOOL}: sends no load: it shows {'reports' if 'analyze' in others else 'its help'}")
    flags = {name: Flag() for name in others} | {"config-file": Flag()}
    given = parse(TOOL, argv, flags, {"-c": "config-file", "config": "config-file"})
    name = given.text("config-file")
    changes = [f"{key.replace('-', '_')}={value}" for key, value in given.values.items() if key != "config-file"]
    if name is None:
        if not changes:
            raise PlanError(f"{TOOL}: --config_file is missing")
        return from_mapping(_mapping_of(given.values))
    path = Path(name)
    if not path.is_file():
        raise NeedsFileError(f"{TOOL}: --config_file {name}: file not found")
    mapping, twice = parse_yaml(file_text(path), name)
    if twice:
        raise PlanError(twice)
    mapping, notes = changed(mapping, changes, name, may_have)
    return from_mapping(mapping).noted(notes)


def _mapping_of(flags: JsonObject) -> dict[str, JsonValue]:
    """`--load.type constant --load.stages '[...]'` as the equivalent file."""
    whole: dict[str, JsonValue] = {}
    for key, value in flags.items():
        *above, last = key.replace("-", "_").split(".")
        section = whole
        for step in above:
            below = section.setdefault(step, {})
            if not isinstance(below, dict):
                raise PlanError(f"{TOOL}: --{key} is below a setting that has a value already")
            section = below
        section[last] = parse_yaml(value, f"--{key}")[0] if isinstance(value, str) else value
    return whole
