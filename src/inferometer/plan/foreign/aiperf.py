"""`aiperf profile` (and genai-perf's, its predecessor): its flags as a plan; llm-d's profiles have the same by name."""

import math
from collections.abc import Sequence
from typing import Any, cast

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.plan.draft import (
    LoadDraft,
    PlanDraft,
    SamplingDraft,
    StopDraft,
    TargetDraft,
    WarmupDraft,
    WhenDraft,
    WorkloadDraft,
)
from inferometer.plan.foreign.common import Account, Foreign, without_missing
from inferometer.plan.foreign.shapes import (
    SHAREGPT,
    Flag,
    Given,
    bell,
    given_of,
    load_of,
    of_sessions,
    parse,
    tidy,
)
from inferometer.plan.text import parse_yaml

TOOL = "aiperf profile"
_APIS = {
    "chat": "chat",
    "completions": "completions",
    "embeddings": "embeddings",
    "rankings": "rerank",
    "responses": "responses",
    "transcriptions": "transcriptions",
}
_ONE, _NONE, _MANY = Flag(), Flag("none"), Flag("many")
_METRICS = "GPU and server metrics are sampled where the target is on this machine"
_TRACKED = "inferometer export writes runs for MLflow, W&B and OpenTelemetry"
_STORED = "the records of every run are stored; --save-answers adds the texts"
_PROCESSES = "Inferometer has no such processes"
FLAGS: dict[str, Flag] = {
    **dict.fromkeys(("model", "url", "endpoint", "endpoint-type", "api-key", "tokenizer", "random-seed"), _ONE),
    **dict.fromkeys(
        ("concurrency", "request-rate", "request-rate-mode", "arrival-pattern", "arrival-smoothness"), _ONE
    ),
    **dict.fromkeys(("request-count", "benchmark-duration", "benchmark-grace-period", "warmup-request-count"), _ONE),
    **dict.fromkeys(("isl", "isl-stddev", "osl", "osl-stddev", "num-dataset-entries", "request-timeout-seconds"), _ONE),
    **dict.fromkeys(("input-file", "custom-dataset-type", "public-dataset", "prefix-prompt-length"), _ONE),
    **dict.fromkeys(("prefix-prompt-pool-size", "image-width-mean", "image-height-mean", "image-format"), _ONE),
    **dict.fromkeys(("image-width-stddev", "image-height-stddev", "image-batch-size", "batch-size-text"), _ONE),
    **dict.fromkeys(("audio-length-mean", "audio-batch-size", "output-artifact-dir", "profile-export-file"), _ONE),
    **dict.fromkeys(("conversation-turn-mean", "conversation-turn-stddev", "conversation-turn-delay-mean"), _ONE),
    **dict.fromkeys(("conversation-turn-delay-stddev", "conversation-num", "request-cancellation-rate"), _ONE),
    **dict.fromkeys(("request-cancellation-delay", "sequence-distribution"), _ONE),
    **dict.fromkeys(("fixed-schedule-start-offset", "fixed-schedule-end-offset"), _ONE),
    **dict.fromkeys(("streaming", "fixed-schedule", "fixed-schedule-auto-offset", "no-fixed-schedule"), Flag("maybe")),
    **dict.fromkeys(("extra-inputs", "header", "goodput"), _MANY),
    "use-server-token-count": Flag("maybe", "the server's counts are always used"),
    "tokenizer-trust-remote-code": Flag("maybe", "code from models is never executed"),
    "tokenizer-revision": _ONE,
    "no-server-metrics": Flag("maybe", _METRICS),
    "server-metrics": Flag("many", _METRICS),
    "gpu-telemetry": Flag("many", _METRICS),
    "no-gpu-telemetry": Flag("maybe", _METRICS),
    "ui": Flag("one", "--quiet hides the progress"),
    "ui-type": Flag("one", "--quiet hides the progress"),
    "verbose": Flag("none", "--quiet hides the progress"),
    "workers-max": Flag("one", "use --workers if one process is not enough"),
    "export-level": Flag("one", "the records of every run are stored"),
    "slice-duration": Flag("one", "charts show any slice"),
    "connection-reuse-strategy": Flag("one", "connections are kept"),
    **dict.fromkeys(("warmup-duration", "system-prompt", "shared-system-prompt-length"), _ONE),
    **dict.fromkeys(("audio-format", "audio-sample-rates", "audio-num-channels", "audio-length-stddev"), _ONE),
    **dict.fromkeys(("video-width", "video-height", "video-duration", "video-fps", "video-batch-size"), _ONE),
    **dict.fromkeys(("video-format", "video-codec", "video-synth-type"), _ONE),
    "server-profiler": Flag("maybe"),
    "audio-depths": Flag("one", "samples have 16 bits"),
    "use-legacy-max-tokens": Flag("maybe", "the answer's length is requested under the name that the API has for it"),
    "per-chunk-usage": Flag("maybe", "target.continuous_usage requests it"),
    "apply-chat-template": Flag("maybe", "the server's counts are used"),
    "url-strategy": Flag("one", "several URLs are used in turn"),
    **dict.fromkeys(
        ("wait-for-model-timeout", "wait-for-model-mode", "wait-for-model-interval"),
        Flag("one", "the target is checked before the load"),
    ),
    **dict.fromkeys(("wandb-project", "wandb-entity", "wandb-run-name"), Flag("one", _TRACKED)),
    **dict.fromkeys(("mlflow-tracking-uri", "mlflow-experiment", "mlflow-run-name"), Flag("one", _TRACKED)),
    **dict.fromkeys(("mlflow-parent-run-id", "otel-url", "gen-ai-provider"), Flag("one", _TRACKED)),
    **dict.fromkeys(("wandb-tag", "mlflow-tag", "mlflow-artifact-glob"), Flag("many", _TRACKED)),
    **dict.fromkeys(("otel-resource-attributes", "stream"), Flag("many", _TRACKED)),
    **dict.fromkeys(("auto-plot", "no-auto-plot", "plot-required"), Flag("maybe", "inferometer report has charts")),
    **dict.fromkeys(("export-outputs-json", "export-http-trace", "show-trace-timing"), Flag("maybe", _STORED)),
    "server-metrics-formats": Flag("many", _STORED),
    **dict.fromkeys(("log-level", "stats-interval"), Flag("one", "--quiet hides the progress")),
    "extra-verbose": Flag("none", "--quiet hides the progress"),
    **dict.fromkeys(("record-processors", "zmq-host", "zmq-ipc-path", "api-host", "api-port"), Flag("one", _PROCESSES)),
    "zmq-dual-bind": Flag("maybe", _PROCESSES),
}
_ALIASES = {
    "seq-dist": "sequence-distribution",
    "isl-osl-pairs": "sequence-distribution",
    "num-warmup-requests": "warmup-request-count",
    "-m": "model",
    "model-names": "model",
    "-u": "url",
    "synthetic-input-tokens-mean": "isl",
    "synthetic-input-tokens-stddev": "isl-stddev",
    "output-tokens-mean": "osl",
    "output-tokens-stddev": "osl-stddev",
    "num-requests": "request-count",
    "num-prompts": "num-dataset-entries",
    "custom-endpoint": "endpoint",
    "-H": "header",
    "session-turns-mean": "conversation-turn-mean",
    "session-turns-stddev": "conversation-turn-stddev",
    "session-turn-delay-mean": "conversation-turn-delay-mean",
    "session-turn-delay-stddev": "conversation-turn-delay-stddev",
    "num-sessions": "conversation-num",
    "warmup-num-requests": "warmup-request-count",
    "artifact-dir": "output-artifact-dir",
    "profile-export-prefix": "profile-export-file",
    "profile-export-level": "export-level",
    "prompt-input-tokens-mean": "isl",
    "prompt-input-tokens-stddev": "isl-stddev",
    "prompt-output-tokens-mean": "osl",
    "prompt-output-tokens-stddev": "osl-stddev",
    "prompt-prefix-length": "prefix-prompt-length",
    "prompt-prefix-pool-size": "prefix-prompt-pool-size",
    "num-prefix-prompts": "prefix-prompt-pool-size",
    "num-conversations": "conversation-num",
    "prompt-batch-size": "batch-size-text",
    "batch-size": "batch-size-text",
    "-b": "batch-size-text",
    "batch-size-image": "image-batch-size",
    "batch-size-audio": "audio-batch-size",
    "max-workers": "workers-max",
    "record-processor-service-count": "record-processors",
    "-v": "verbose",
}
_REQUESTS = 10  # if no stop condition is set
_AT_ONCE = "1ms"
_FILES = {"single_turn": "table", "mooncake_trace": "mooncake"}
_GOODPUT = {"time_to_first_token": "ttft", "inter_token_latency": "tpot", "request_latency": "e2e"}


def is_it(mapping: JsonObject) -> bool:
    """A profile of llm-d: flags by name."""
    return "endpoint-type" in mapping and "url" in mapping


def from_mapping(mapping: JsonObject) -> Foreign:
    """`none` stands for a flag without a value."""
    values: dict[str, JsonValue] = {}
    account = Account("aiperf")
    for name, value in mapping.items():
        if value is None:
            continue
        known = _ALIASES.get(name, name)
        if known not in FLAGS:
            account.mistakes.append(f"aiperf: {name} is not a known flag")
            continue
        taken = True if value == "none" else value
        values[known] = str(taken).split() if FLAGS[known].takes == "many" and taken is not True else taken
    return _foreign(given_of("aiperf", values, FLAGS, "", account))


def from_argv(argv: Sequence[str]) -> Foreign:
    """The plan that a command line after `aiperf profile` means."""
    return _foreign(parse(TOOL, argv, FLAGS, _ALIASES))


def _foreign(given: Given) -> Foreign:
    when = _when(given, given.count("request-count"))
    plan: PlanDraft = {
        "target": _target(given),
        "workload": {**_workload(given), "tokenizer": given.text("tokenizer")},
        "load": when["load"],
        "stop": when["stop"],
        "sampling": _sampling(given),
        "warmup": _warmup(given),
        "observe": {"profiler": True} if given.on("server-profiler") else None,
        "limits": _limits(given),
        "seed": given.count("random-seed") or None,
    }
    for name in ("output-artifact-dir", "profile-export-file"):
        given.no_effect(name, "runs are stored; inferometer export writes files")
    if "tokenizer-revision" in given:
        given.wrong("tokenizer-revision", "has no counterpart")
    return Foreign.of(given.account, of_sessions(without_missing(plan), given.account.general))


def _warmup(given: Given) -> WarmupDraft | int | None:
    requests, seconds = given.count("warmup-request-count"), given.number("warmup-duration")
    if requests and seconds:
        given.wrong("warmup-duration", "is given with --warmup-request-count: warmup has one of them")
    return {"duration": f"{tidy(seconds)}s"} if seconds else requests or None


def _target(given: Given) -> TargetDraft:
    kind = given.text("endpoint-type") or "chat"
    if kind not in _APIS:
        given.wrong("endpoint-type", f"has no counterpart; there are {', '.join(_APIS)}")
    api = _APIS.get(kind, "chat")
    url = given.text("url")
    headers = {name: value.strip() for name, value in given.pairs("header", ":").items()}
    if key := given.text("api-key"):
        headers["Authorization"] = f"Bearer {key}"
    return {
        "url": url if url is None or "://" in url else f"http://{url}",
        "model": given.text("model"),
        "api": None if api == "completions" else api,
        "path": given.text("endpoint"),
        "stream": None if given.on("streaming") else False,
        "headers": headers,
        "timeout": {"request": given.number("request-timeout-seconds")},
    }


def _workload(given: Given) -> WorkloadDraft:
    if (path := given.text("input-file")) is not None:
        return _file(given, path)
    if "sequence-distribution" in given:
        given.wrong("sequence-distribution", "has no counterpart: add a traffic class for each pair of lengths")
    if (name := given.text("public-dataset")) is not None:
        if name != "sharegpt":
            given.wrong("public-dataset", "has no counterpart but sharegpt")
        return {"type": "sharegpt", "url": SHAREGPT, "output_tokens": _output(given)}
    mean = given.number("isl", 550.0)
    if not mean or mean < 1:
        given.wrong("isl", "must be at least 1: a prompt without text has no counterpart")
        mean = 550.0
    inputs = bell(mean, given.number("isl-stddev"), 1, None)
    whole: WorkloadDraft = {"count": _entries(given), **_turns(given)}
    whole["output_tokens"] = _output(given)
    if whole["output_tokens"] is None:
        given.account.general.append("without --osl the server decides how long answers are")
    shared, pool = given.count("prefix-prompt-length"), given.count("prefix-prompt-pool-size", 0)
    if shared and not pool:
        given.note("prefix-prompt-length", "needs --prefix-prompt-pool-size, as in aiperf: no prefix is sent")
        shared = None
    system = given.count("shared-system-prompt-length")
    if "system-prompt" in given:
        given.wrong("system-prompt", "has no counterpart: the text of prompts is made up")
    if system:
        if shared:
            given.wrong("prefix-prompt-length", "contradicts --shared-system-prompt-length, in aiperf too")
        given.note("shared-system-prompt-length", "begins the first message of the user, instead of a system message")
        shared, pool = system, 1
    if shared:
        whole["prefix"] = {"tokens": shared, "suffix_tokens": inputs, "groups": pool}
    else:
        whole["input_tokens"] = inputs
    return {**whole, **_media(given)}


def _entries(given: Given) -> int | None:
    """The number of generated conversations, which repeat after the last: as many as requested."""
    for name in ("num-dataset-entries", "conversation-num", "request-count"):
        if name in given:
            return given.count(name)
    return 100


def _output(given: Given) -> Any:
    mean, std = given.number("osl"), given.number("osl-stddev")
    return None if mean is None else bell(mean, std, 1, None)


def _turns(given: Given) -> WorkloadDraft:
    mean, std = given.number("conversation-turn-mean", 1.0) or 1.0, given.number("conversation-turn-stddev")
    pause, spread = given.number("conversation-turn-delay-mean"), given.number("conversation-turn-delay-stddev")
    if mean == 1 and not std:
        return {}
    think: Any = None if not pause else f"{tidy(pause)}ms"
    if pause and spread:
        think = {"type": "normal", "mean": f"{tidy(pause)}ms", "std": f"{tidy(spread)}ms"}
    return {"turns": bell(mean, std, 1, None), "think": think}


def _media(given: Given) -> WorkloadDraft:
    width, height = given.number("image-width-mean"), given.number("image-height-mean")
    given.count("image-batch-size")
    if given.number("image-width-stddev") or given.number("image-height-stddev"):
        given.wrong("image-width-stddev", "has no counterpart: list sizes with weights in workload.images.sizes")
    if (given.count("batch-size-text", 1) or 1) != 1:
        given.wrong("batch-size-text", "has no counterpart: one text per request")
    kind = given.text("image-format") or "png"
    media: WorkloadDraft = {**_sound(given), **_video(given)}
    if width and height:
        count = given.count("image-batch-size", 1) or 1
        media["images"] = {"count": count, "width": int(width), "height": int(height), "format": kind}
    if images := media.get("images"):
        images["position"] = 1  # after the text
    if videos := media.get("videos"):
        videos["position"] = 1
    if sounds := media.get("audio"):
        sounds["position"] = 1
    return media


def _sound(given: Given) -> WorkloadDraft:
    """Audio clips of the requested durations, WAV by default."""
    seconds, count = given.number("audio-length-mean"), given.count("audio-batch-size", 1) or 1
    form, rate = given.text("audio-format", "wav"), given.number("audio-sample-rates", 16.0)
    if given.number("audio-length-stddev"):
        given.wrong("audio-length-stddev", "has no counterpart: use workload.audio.durations")
    if given.count("audio-num-channels", 1) != 1:
        given.wrong("audio-num-channels", "has no counterpart but 1")
    if not seconds:
        return {}
    if (form or "").lower() != "wav":
        given.wrong("audio-format", "has no counterpart but wav")
    return {"audio": {"duration": f"{tidy(seconds)}s", "count": count, "sampling": round((rate or 16.0) * 1000)}}


def _video(given: Given) -> WorkloadDraft:
    """Video clips of the requested duration and frame rate."""
    width, height = given.count("video-width"), given.count("video-height")
    seconds, rate = given.number("video-duration", 5.0) or 5.0, given.number("video-fps", 4.0) or 4.0
    count = given.count("video-batch-size", 1) or 1
    for name in ("video-format", "video-codec", "video-synth-type"):
        given.no_effect(name, "videos are MP4 files of Motion JPEG with made-up pictures")
    if not width or not height:
        return {}
    given.account.general.append("videos are MP4 files of Motion JPEG: the frames have the size, the files do not")
    frames = max(1, round(seconds * rate))
    return {
        "videos": {"count": count, "width": width, "height": height, "frames": frames, "frames_per_second": tidy(rate)}
    }


def _file(given: Given, path: str) -> WorkloadDraft:
    kind = given.text("custom-dataset-type") or "single_turn"
    if kind not in _FILES:
        given.wrong("custom-dataset-type", f"has no counterpart; there are {', '.join(_FILES)}")
    if "num-dataset-entries" in given:
        given.no_effect("num-dataset-entries", "the file has its own rows")
    if kind == "mooncake_trace":
        for name in ("isl", "osl"):
            given.no_effect(name, "the trace has its own lengths")
        return {"type": "mooncake", "path": path, "sort": True, "window": _part(given)}
    return {
        "type": "table",
        "path": path,
        "columns": {"prompt": "text"},
        "output_tokens": _output(given),
        "shuffle": False,
    }


def _part(given: Given) -> dict[str, str] | None:
    """The time range of the trace; aiperf's offsets are absolute trace times, ours start at the first row."""
    start, end = given.number("fixed-schedule-start-offset"), given.number("fixed-schedule-end-offset")
    if start is None and end is None:
        return None
    for name in ("fixed-schedule-start-offset", "fixed-schedule-end-offset"):
        if name in given:
            given.note(name, "counted from the first row of the trace, in aiperf from 0 of its times")
    part: dict[str, str] = {}
    if start:
        part["start"] = f"{tidy(start)}ms"
    if end:
        part["end"] = f"{tidy(end)}ms"
    return part


def _when(given: Given, requests: int | None) -> WhenDraft:
    at_once, rate = given.count("concurrency"), given.number("request-rate")
    pattern = given.text("arrival-pattern") or given.text("request-rate-mode") or "poisson"
    smooth = given.number("arrival-smoothness")
    seconds, grace = given.number("benchmark-duration"), given.number("benchmark-grace-period")
    sessions = given.count("conversation-num")
    cancel = _cancelled(given)
    stop: StopDraft = {"duration": seconds, "requests": requests, "drain": grace, "sessions": sessions}
    if _replays(given):
        return {"load": {"type": "replay", "max_concurrency": at_once, **cancel}, "stop": stop}
    if rate is None and at_once is None:
        at_once = 1
    several = bool(_turns(given))
    if several and requests is not None:
        stop["whole_sessions"] = False
    if requests is None and seconds is None and sessions is None:
        stop["requests"] = _REQUESTS
        given.account.general.append(f"{_REQUESTS} requests, the default of aiperf, where nothing ends the run")
    cv = {"poisson": 1.0, "constant": 0.0}.get(pattern, 1.0)
    if pattern == "gamma":
        cv = 1 / math.sqrt(smooth or 1.0)
    elif pattern not in ("poisson", "constant"):
        given.wrong("arrival-pattern", "must be poisson, constant or gamma")
    load: LoadDraft = {**load_of(rate, at_once, 1, cv), **cancel}
    if several:  # a session keeps its slot while it pauses
        load["sessions_at_once"] = at_once
    return {"load": load, "stop": stop}


def _replays(given: Given) -> bool:
    """Whether a trace is replayed: if it has times, also without --fixed-schedule."""
    trace = given.text("custom-dataset-type") == "mooncake_trace" and "input-file" in given
    is_fixed = given.on("fixed-schedule")
    if given.on("no-fixed-schedule") or not (is_fixed or trace):
        for name in ("fixed-schedule-auto-offset", "fixed-schedule-start-offset", "fixed-schedule-end-offset"):
            if name in given and not given.was_read(name):
                given.wrong(name, "needs --fixed-schedule")
        return False
    if "request-rate" in given:
        given.wrong("request-rate", "contradicts the times of the trace, in aiperf too: add --no-fixed-schedule")
    if trace:
        given.no_effect("fixed-schedule", "a trace with times is replayed anyway")
    if not is_fixed:
        given.note("custom-dataset-type", "a trace with times is replayed; --no-fixed-schedule leaves the times out")
    given.no_effect("fixed-schedule-auto-offset", "the first row of a trace is time 0")
    return True


def _cancelled(given: Given) -> LoadDraft:
    """Cancellation: percentage of the requests, and seconds after the send (0 by default)."""
    percent, after_s = given.number("request-cancellation-rate"), given.number("request-cancellation-delay")
    if not percent:
        return {}
    if not after_s:
        given.account.general.append(f"cancelled {_AT_ONCE} after sending, in aiperf at once")
    return {"cancel": {"share": percent / 100, "after": after_s or _AT_ONCE}}


def _sampling(given: Given) -> SamplingDraft:
    """`--extra-inputs name:value`, once or several times."""
    extra: dict[str, JsonValue] = {}
    for pair in given.several("extra-inputs"):
        name, sign, value = pair.partition(":")
        if not sign:
            given.wrong("extra-inputs", "must be name:value")
        extra[name] = parse_yaml(value, "--extra-inputs")[0]
    ignore = extra.pop("ignore_eos", None)
    return {
        "ignore_eos": bool(ignore) if ignore is not None else False,
        "temperature": cast(float | None, extra.pop("temperature", None)),
        "top_p": cast(float | None, extra.pop("top_p", None)),
        "extra": extra,
    }


def _limits(given: Given) -> list[str]:
    limits = []
    if "goodput" in given:  # one quoted text, or words
        given.values["goodput"] = " ".join(given.several("goodput")).split()
    for name, value in given.pairs("goodput", ":").items():
        if name not in _GOODPUT:
            given.wrong("goodput", f"must be about {', '.join(_GOODPUT)}")
        else:
            limits.append(f"{_GOODPUT[name]} < {value}ms")
    return limits
