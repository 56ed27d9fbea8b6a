"""sglang's `bench_serving` at its current flags, as a plan."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from inferometer.plan.draft import OutputDraft, PlanDraft, SamplingDraft, TargetDraft, WhenDraft, WorkloadDraft
from inferometer.plan.foreign.common import Foreign, without_missing
from inferometer.plan.foreign.shapes import (
    ESTIMATED,
    FIRST_PAIR,
    RESOLUTIONS,
    SHAREGPT,
    Flag,
    Given,
    below,
    load_of,
    parse,
    url_of,
)

TOOL = "sglang.bench_serving"
_APIS = {
    **dict.fromkeys(("sglang", "sglang-native", "sglang-oai", "vllm", "lmdeploy", "truss"), "completions"),
    **dict.fromkeys(("sglang-oai-chat", "vllm-chat", "lmdeploy-chat"), "chat"),
    **dict.fromkeys(("sglang-embedding", "vllm-embedding"), "embeddings"),
}
_PORTS = {"sglang": 30000, "lmdeploy": 23333, "truss": 8080}
_NATIVE = ("sglang", "sglang-native")
_NATIVE_NOTE = "sglang's /generate endpoint is used there, the OpenAI API of the same engine here"
_BOOTSTRAP = "2.2.2.2"  # for sglang's decode workers, this host means a prefill without a cache
_ONE, _NONE, _MANY = Flag(), Flag("none"), Flag("many")
_PROFILING = "the server's own settings of its profiler are used"
FLAGS: dict[str, Flag] = {
    **dict.fromkeys(("backend", "base-url", "host", "port", "model", "served-model-name", "tokenizer", "seed"), _ONE),
    **dict.fromkeys(("dataset-name", "dataset-path", "dataset-offset", "num-prompts", "request-rate"), _ONE),
    **dict.fromkeys(("max-concurrency", "warmup-requests", "extra-request-body", "output-file", "tag"), _ONE),
    **dict.fromkeys(("sharegpt-output-len", "sharegpt-context-len", "prompt-suffix", "temperature", "top-p"), _ONE),
    **dict.fromkeys(("random-input-len", "random-output-len", "random-range-ratio", "agentic-max-turns"), _ONE),
    **dict.fromkeys(("image-count", "image-resolution", "image-format", "image-content"), _ONE),
    **{f"gsp-{name}": _ONE for name in ("num-groups", "prompts-per-group", "system-prompt-len", "question-len")},
    **{f"gsp-{name}": _ONE for name in ("output-len", "range-ratio", "num-turns", "group-distribution", "zipf-alpha")},
    **{f"mooncake-{name}": _ONE for name in ("slowdown-factor", "num-rounds", "workload")},
    **dict.fromkeys(("speed-bench-category", "speed-bench-output-len"), _ONE),
    **dict.fromkeys(("lora-request-distribution", "lora-zipf-alpha"), _ONE),
    **dict.fromkeys(("top-logprobs-num", "logprob-start-len"), _ONE),
    **dict.fromkeys(("lora-name", "header", "token-ids-logprob"), _MANY),
    **dict.fromkeys(("disable-ignore-eos", "disable-stream", "apply-chat-template", "tokenize-prompt"), _NONE),
    **dict.fromkeys(("return-logprob", "return-routed-experts", "random-image-count", "use-trace-timestamps"), _NONE),
    **dict.fromkeys(("gsp-ordered", "gsp-send-routing-key", "fake-prefill", "profile", "pd-separated"), _NONE),
    "gsp-fast-prepare": Flag("none", "prompts are made while they are sent"),
    "ready-check-timeout-sec": Flag("one", "the target is checked before the load"),
    "disable-tqdm": Flag("none", "--quiet hides the progress"),
    "print-requests": Flag("none", "inferometer show RUN --requests lists them"),
    "output-details": Flag("none", "the records of every run are stored"),
    "plot-throughput": Flag("none", "use inferometer chart for plots"),
    "cache-report": Flag("none", "cached tokens are always measured"),
    "flush-cache": Flag("none", "prompts are new in every run: no cache can hold them"),
    "flush-cache-timeout": Flag("one", "no cache has to be flushed"),
    **{f"profile-{name}": Flag("one", _PROFILING) for name in ("start-step", "steps", "num-steps", "output-dir")},
    **{f"profile-{name}": Flag("many", _PROFILING) for name in ("activities", "stages", "prefill-url", "decode-url")},
    "profile-by-stage": Flag("none", _PROFILING),
    "profile-prefix": Flag("one", _PROFILING),
}
_OF_DATASETS = (
    *("random-input-len", "random-output-len", "random-range-ratio", "random-image-count", "image-", "gsp-"),
    *("mooncake-", "sharegpt-", "speed-bench-", "agentic-max-turns"),
)
_ALIASES = {"num-prompt": "num-prompts", "random-input": "random-input-len", "random-output": "random-output-len"}
_MOONCAKE = "https://raw.githubusercontent.com/kvcache-ai/Mooncake/main/"
_TRACES = {
    "mooncake": f"{_MOONCAKE}FAST25-release/arxiv-trace/mooncake_trace.jsonl",
    "conversation": f"{_MOONCAKE}FAST25-release/traces/conversation_trace.jsonl",
    "synthetic": f"{_MOONCAKE}FAST25-release/traces/synthetic_trace.jsonl",
    "toolagent": f"{_MOONCAKE}FAST25-release/traces/toolagent_trace.jsonl",
}


def from_argv(argv: Sequence[str]) -> Foreign:
    """The plan of a command line after `sglang.bench_serving`."""
    given = parse(TOOL, argv, FLAGS, _ALIASES)
    name = given.text("dataset-name") or "sharegpt"
    if name not in _DATASETS:
        given.wrong("dataset-name", f"has no counterpart; there are {', '.join(_DATASETS)}")
        given.settle()
    workload = _DATASETS[name](given)
    _of_other_datasets(given, name)
    requests = _requests(given, name, workload)
    tokenizer = given.text("tokenizer")
    if tokenizer is None:
        given.account.general.append(ESTIMATED)
    when = _when(given, name, requests)
    plan: PlanDraft = {
        "target": _target(given, name),
        "workload": {**workload, **_adapters(given), "tokenizer": tokenizer},
        "load": when["load"],
        "stop": when["stop"],
        "sampling": _sampling(given),
        "warmup": given.count("warmup-requests", 1) or None,
        "observe": {"profiler": True} if given.on("profile") else None,
        "outputs": _outputs(given),
        "name": given.text("tag"),
        "seed": given.count("seed", 42) or None,
    }
    if given.on("pd-separated"):
        given.no_effect("pd-separated", "the endpoint in front of the workers is measured")
    if given.text("prompt-suffix"):
        given.wrong("prompt-suffix", "has no counterpart")
    return Foreign.of(given.account, without_missing(plan))


def _of_other_datasets(given: Given, name: str) -> None:
    """Flags that sglang reads only with another dataset."""
    if name in ("random", "image") and "dataset-path" in given:
        given.note("dataset-path", "prompts are made up; sglang fills the lengths with text of this file")
    for flag in given:
        if flag.startswith(_OF_DATASETS) and not given.was_read(flag):
            given.no_effect(flag, f"is not used by the dataset {name}")


def _requests(given: Given, name: str, workload: WorkloadDraft) -> int:
    """The number of requests; with generated prefixes all prompts, independent of --num-prompts."""
    if name != "generated-shared-prefix":
        return given.count("num-prompts", 1000) or 1000
    made = int(workload["prefix"]["groups"] * (workload["prefix"]["prompts"] or 1))
    given.no_effect("num-prompts", f"all of the groups x prompts are sent, {made}, as sglang does")
    return made


def _target(given: Given, dataset: str) -> TargetDraft:
    backend = given.text("backend") or "sglang"
    if backend not in _APIS:
        given.wrong("backend", f"has no counterpart; there are {', '.join(_APIS)}")
    api = _APIS.get(backend, "completions")
    if backend in _NATIVE:
        given.account.general.append(_NATIVE_NOTE)
    if given.on("apply-chat-template") and api == "chat":
        given.no_effect("apply-chat-template", "the chat API applies it")
    elif given.on("apply-chat-template") and api == "completions":
        given.note("apply-chat-template", "the server applies it: the same messages go to /v1/chat/completions")
        api = "chat"
    if dataset == "image":
        api = "chat"
    if dataset == "mooncake":
        api = "completions"
    base = backend.partition("-")[0]
    model = given.text("model")
    return {
        "url": url_of(
            given.text("base-url"), given.text("host") or "127.0.0.1", given.count("port", _PORTS.get(base, 8000))
        ),
        "model": given.text("served-model-name") or model,
        "api": None if api == "completions" else api,
        "stream": False if given.on("disable-stream") else None,
        "headers": given.pairs("header"),
    }


def _sampling(given: Given) -> SamplingDraft:
    extra = given.fields("extra-request-body")
    if given.on("return-logprob"):
        extra["logprobs"] = given.count("top-logprobs-num", 0) or True
    for flag in ("top-logprobs-num", "token-ids-logprob", "logprob-start-len", "return-routed-experts"):
        if flag in given and (flag != "top-logprobs-num" or not given.on("return-logprob")):
            given.wrong(flag, "has no counterpart")
    if given.on("fake-prefill"):
        extra |= {"bootstrap_host": _BOOTSTRAP, "bootstrap_room": 0}
    return {
        "ignore_eos": False if given.on("disable-ignore-eos") else None,
        "temperature": given.number("temperature", 0.0),
        "top_p": given.number("top-p"),
        "extra": extra,
    }


def _outputs(given: Given) -> list[OutputDraft]:
    path = given.text("output-file")
    if path is None:
        return []
    given.note("output-file", "the file has Inferometer's schema, not sglang's")
    return [{"format": "json", "path": path}]


def _adapters(given: Given) -> WorkloadDraft:
    names = [name for text in given.several("lora-name") for name in text.split(",") if name]
    kind = given.text("lora-request-distribution") or "uniform"
    alpha = given.number("lora-zipf-alpha", 1.5) or 1.5
    if not names:
        return {}
    if kind == "distinct":
        given.wrong("lora-request-distribution", "has no counterpart but uniform and skewed")
    weights = [1.0] * len(names) if kind == "uniform" else [alpha**-rank for rank in range(len(names))]
    return {"models": dict(zip(names, weights, strict=True))}


# -- datasets ------------------------------------------------------------------------------------------------------


def _random(given: Given) -> WorkloadDraft:
    """Random lengths: ratio 0 means any length up to the given one, 1 exactly that length."""
    if given.text("dataset-name") == "random" and "dataset-path" not in given:
        given.account.general.append("prompts are made up; sglang cuts them from ShareGPT, with the same lengths")
    ratio = given.number("random-range-ratio", 0.0) or 0.0
    ids = given.on("tokenize-prompt")
    return {
        "input_tokens": below(given.count("random-input-len", 1024) or 1024, ratio),
        "output_tokens": below(given.count("random-output-len", 1024) or 1024, ratio),
        "prompt_as": "token_ids" if ids else None,
    }


def _image(given: Given) -> WorkloadDraft:
    count: Any = given.count("image-count", 1) or 1
    if given.on("random-image-count"):
        count = f"1-{count}"
    size = (given.text("image-resolution") or "1080p").lower()
    width, height = RESOLUTIONS.get(size, (0, 0))
    if not width:
        parts = size.split("x")
        if len(parts) != 2 or not all(part.isdigit() and int(part) for part in parts):
            given.wrong("image-resolution", f"must be {', '.join(RESOLUTIONS)} or HEIGHTxWIDTH")
            return {}
        height, width = int(parts[0]), int(parts[1])
    content = {"random": "noise", "blank": "blank"}.get(given.text("image-content") or "random")
    if content is None:
        given.wrong("image-content", "must be random or blank")
    images = {"count": count, "width": width, "height": height, "content": content}
    images["format"] = given.text("image-format") or "jpeg"
    return {**_random(given), "images": images}


def _shared_prefix(given: Given) -> WorkloadDraft:
    ratio = given.number("gsp-range-ratio", 1.0)
    ratio = 1.0 if ratio is None else ratio
    turns = given.count("gsp-num-turns", 1) or 1
    if given.on("gsp-ordered"):
        given.wrong("gsp-ordered", "has no counterpart: prompts come in a drawn order")
    if given.on("gsp-send-routing-key"):
        given.wrong("gsp-send-routing-key", "has no counterpart")
    zipf = None
    if (given.text("gsp-group-distribution") or "uniform") == "zipf":
        zipf = given.number("gsp-zipf-alpha", 1.0)
    elif "gsp-zipf-alpha" in given:
        given.no_effect("gsp-zipf-alpha", "groups are uniform")
    prefix = {
        "tokens": below(given.count("gsp-system-prompt-len", 2048) or 2048, ratio),
        "suffix_tokens": below(given.count("gsp-question-len", 128) or 128, ratio),
        "groups": given.count("gsp-num-groups", 64),
        "prompts": given.count("gsp-prompts-per-group", 16),
        "zipf": zipf,
    }
    output = below(given.count("gsp-output-len", 256) or 256, ratio)
    return {"prefix": prefix, "output_tokens": output, "turns": turns if turns > 1 else None}


def _place(given: Given, default: str | None = None) -> WorkloadDraft:
    path = given.text("dataset-path")
    if path is None and default is None:
        given.wrong("dataset-path", "is missing: this dataset is a file")
    if given.count("dataset-offset"):
        given.wrong("dataset-offset", "has no counterpart")
    link = path or default or ""
    return {"url": link} if link.startswith(("http://", "https://")) else {"path": link}


def _sharegpt(given: Given) -> WorkloadDraft:
    """The first two messages of a conversation, in any role, as a prompt and its answer."""
    output = given.count("sharegpt-output-len")
    return {
        "type": "table",
        **_place(given, SHAREGPT),
        "columns": FIRST_PAIR,
        "min_tokens": 2,
        "min_output_tokens": 2 if output is None else None,
        "max_total_tokens": given.count("sharegpt-context-len") or None,
        "output_tokens": output,
    }


def _speed_bench(given: Given) -> WorkloadDraft:
    where = {"category": category} if (category := given.text("speed-bench-category")) else None
    output = given.count("speed-bench-output-len", 512)
    return {"type": "table", **_place(given), "columns": {"prompt": "turns.0"}, "where": where, "output_tokens": output}


def _custom(given: Given) -> WorkloadDraft:
    """Lines with `conversations` of `content`, the first two of which are a prompt and its answer."""
    columns = {"prompt": "conversations.0.content", "answer": "conversations.1.content"}
    output = given.count("sharegpt-output-len")
    return {"type": "table", **_place(given), "columns": columns, "output_tokens": output}


def _openai(given: Given) -> WorkloadDraft:
    output = given.count("sharegpt-output-len")
    return {"type": "messages", **_place(given), "turns": "whole", "output_tokens": output}


def _mooncake(given: Given) -> WorkloadDraft:
    """Mooncake traces; sglang generates the text of a row itself: 128 words per block of the trace."""
    kind = given.text("mooncake-workload") or "conversation"
    if kind not in _TRACES and "dataset-path" not in given:
        given.wrong("mooncake-workload", f"must be one of {', '.join(_TRACES)}")
    rounds = given.count("mooncake-num-rounds", 1) or 1
    if rounds != 1:
        given.wrong("mooncake-num-rounds", "has no counterpart: a row of the trace is one request")
    given.account.general.append(
        "mooncake: lengths and shared blocks are those of the trace, sglang makes 128 words per block"
    )
    return {"type": "mooncake", **_place(given, _TRACES.get(kind, kind)), "sort": True}


_DATASETS: dict[str, Callable[[Given], WorkloadDraft]] = {
    "sharegpt": _sharegpt,
    "random": _random,
    "random-ids": _random,
    "image": _image,
    "generated-shared-prefix": _shared_prefix,
    "speed-bench": _speed_bench,
    "custom": _custom,
    "openai": _openai,
    "mooncake": _mooncake,
}


def _when(given: Given, dataset: str, requests: int) -> WhenDraft:
    cap, rate = given.count("max-concurrency"), given.number("request-rate", math.inf)
    slow = given.number("mooncake-slowdown-factor", 1.0) or 1.0
    timed = given.on("use-trace-timestamps")
    if dataset == "mooncake":
        if "request-rate" in given:
            given.no_effect("request-rate", "requests come at the times of the trace")
        return {"load": {"type": "replay", "speed": 1 / slow, "max_concurrency": cap}, "stop": {"requests": requests}}
    if timed:
        given.wrong("use-trace-timestamps", "needs --dataset-name mooncake")
    return {"load": load_of(rate, cap, requests), "stop": {"requests": requests}}
