"""`vllm bench serve` (and its predecessor `benchmark_serving.py`): its flags as a plan."""

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any

from inferometer.plan.foreign.arguments import Flag, Given, parse
from inferometer.plan.foreign.found import Foreign, without_missing
from inferometer.plan.foreign.shapes import NO_FILES, about, load_of, tidy, told_apart, url_of

TOOL = "vllm bench serve"
_ONE, _NONE, _MANY = Flag(), Flag("none"), Flag("many")


def _unused(text: str, takes: Any = "one") -> Flag:
    return Flag(takes, text)


_SHOWN = "the progress is shown where there is a terminal; --quiet hides it"
_ALL = "every measure has its percentiles here, whatever was asked"
_OTHER_DATASETS = (
    *("spec-bench-output-len", "spec-bench-category", "blazedit-min-distance", "blazedit-max-distance"),
    *("speed-bench-dataset-subset", "speed-bench-output-len", "speed-bench-category", "bfcl-categories"),
    *("asr-max-audio-len-sec", "asr-min-audio-len-sec"),
)
_BY_SERVER = "how prompts become tokens is the server's part"
FLAGS: dict[str, Flag] = {
    **dict.fromkeys(("backend", "endpoint-type", "base-url", "host", "port", "endpoint", "model", "tokenizer"), _ONE),
    **dict.fromkeys(("served-model-name", "label", "seed", "num-prompts", "request-rate", "burstiness"), _ONE),
    **dict.fromkeys(("max-concurrency", "num-warmups", "logprobs", "input-len", "output-len"), _ONE),
    **dict.fromkeys(("dataset-name", "dataset", "dataset-path", "hf-subset", "hf-split", "hf-output-len"), _ONE),
    **dict.fromkeys(("random-input-len", "random-output-len", "random-range-ratio", "random-prefix-len"), _ONE),
    **dict.fromkeys(("random-mm-base-items-per-request", "random-mm-bucket-config", "custom-output-len"), _ONE),
    **dict.fromkeys(("sonnet-input-len", "sonnet-output-len", "sonnet-prefix-len", "sharegpt-output-len"), _ONE),
    **{f"timed-trace-{name}": _ONE for name in ("chunk-hash-size", "sec-multiplier")},
    **{f"timed-trace-label-{name}": _ONE for name in ("timestamp", "input-length", "output-length", "hash-ids")},
    **{f"prefix-repetition-{name}": _ONE for name in ("prefix-len", "suffix-len", "num-prefixes", "output-len")},
    **dict.fromkeys(("top-p", "top-k", "min-p", "temperature", "extra-body"), _ONE),
    **dict.fromkeys(("frequency-penalty", "presence-penalty", "repetition-penalty"), _ONE),
    **dict.fromkeys(("ramp-up-strategy", "ramp-up-start-rps", "ramp-up-end-rps"), _ONE),
    **dict.fromkeys(("result-dir", "result-filename"), _ONE),
    **dict.fromkeys(("ignore-eos", "insecure", "save-result", "append-result", "use-beam-search"), _NONE),
    **dict.fromkeys(("disable-shuffle", "self-timed", "no-self-timed"), _NONE),
    **dict.fromkeys(("header", "goodput", "lora-modules"), _MANY),
    **dict.fromkeys(("sweep-max-concurrency", "sweep-request-rate", "sweep-num-prompts-factor"), _ONE),
    "reset-prefix-cache": _unused("the prefix cache of a server that we start is reset between cases", "none"),
    "sweep-summary-percentiles": _unused(_ALL),
    "metadata": _unused("what is kept with a run is its environment; name the plan instead", "many"),
    "percentile-metrics": _unused(_ALL),
    "metric-percentiles": _unused(_ALL),
    "disable-tqdm": _unused(_SHOWN, "none"),
    "save-detailed": _unused("the records of every run are kept", "none"),
    "request-id-prefix": _unused("requests are told apart by their records"),
    "ready-check-timeout-sec": _unused("a target that does not answer is said before the load"),
    "tokenizer-mode": _unused(_BY_SERVER),
    "trust-remote-code": _unused("no code of a model is run here", "none"),
    "skip-tokenizer-init": _unused("no tokenizer is read unless workload.tokenizer names one", "none"),
    "chat-template-kwargs": _unused(_BY_SERVER + "; sampling.extra.chat_template_kwargs asks it of the server"),
    "skip-chat-template": _unused(_BY_SERVER, "none"),
    "no-oversample": _unused("after the last row of a dataset its first comes again", "none"),
    "no-stream": _unused("datasets are read through an index", "none"),
    "profile": _unused("the server's profiler is not started", "none"),
    "plot-timeline": _unused("no plot is made", "none"),
    "timeline-itl-thresholds": _unused("no plot is made"),
    "plot-dataset-stats": _unused("no plot is made", "none"),
    "probe-request-rate": _unused("probes are a traffic class of their own: traffic"),
    "lora-assignment": _unused("models are drawn by weight"),
    "hf-name": _unused("rows of a dataset tell their schema"),
    "random-batch-size": _unused("one text is embedded per request"),
    "random-mm-num-mm-items-range-ratio": _unused("the number of images is fixed"),
    "random-mm-limit-mm-per-prompt": _unused("the number of images is fixed"),
    "no-reranker": _unused("api rerank is spoken", "none"),
    "enable-multimodal-chat": _unused("images of a dataset's rows are sent as they are", "none"),
    "custom-ensure-client-side-data": _unused("rows are read here anyway", "none"),
    **{name: _unused("belongs to a dataset that has no counterpart") for name in _OTHER_DATASETS},
}
_APIS = {
    **dict.fromkeys(("openai", "vllm", "lmdeploy", "sglang", "scalellm", "llama.cpp"), "completions"),
    "openai-chat": "chat",
    "openai-embeddings": "embeddings",
    "openai-embeddings-chat": "embeddings",
    "vllm-pooling": "embeddings",
    "vllm-rerank": "rerank",
    "tgi": "tgi",
}
_PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions", "embeddings": "/v1/embeddings"}
_GOODPUT = {"ttft": "ttft", "tpot": "tpot", "e2el": "e2e"}
_EXTRA = ("top-k", "min-p", "frequency-penalty", "presence-penalty", "repetition-penalty")


def from_words(words: Sequence[str]) -> Foreign:
    """The plan that a command line after `vllm bench serve` means, or the experiment of `vllm-bench --sweep-...`."""
    given, notes = parse(TOOL, words, FLAGS, {"endpoint-type": "backend", "dataset": "dataset-path"})
    for name in ("request-rate", "max-concurrency"):
        swept = given.values.pop(f"sweep-{name}", None) or (given.values.get(name) if _is_list(given, name) else None)
        if swept is not None:
            return _swept(given, notes, name, str(swept).split(","))
    return from_flags(given, notes)


def _is_list(given: Given, name: str) -> bool:
    return "," in str(given.values.get(name))


def _swept(given: Given, notes: list[str], name: str, values: list[str]) -> Foreign:
    """Each value as if it had been given alone; a factor makes the requests of a concurrency."""
    factor = given.count("sweep-num-prompts-factor")
    cases: list[dict[str, Any]] = []
    given.settle()
    for value in values:
        also = {"num-prompts": str(factor * int(value))} if factor and name == "max-concurrency" else {}
        one = Given(given.tool, {**given.values, name: value.strip(), **also})
        found = from_flags(one, list(notes))
        cases.append({"name": f"{name}={value.strip()}", "plan": found.plan})
    notes = found.notes
    files = [case["plan"].pop("outputs", None) for case in cases]
    if any(files):
        notes.append(NO_FILES)
    return Foreign(TOOL, {}, notes, {"cases": told_apart(cases)})


def from_flags(given: Given, notes: list[str]) -> Foreign:
    """The plan that its flags mean; an llm-d profile has the same in a file."""
    requests = _requests(given)
    api = _api(given)
    plan = {
        "name": given.text("label"),
        "target": _target(given, api),
        "workload": _workload(given, requests, notes),
        "load": _load(given, requests, notes),
        "sampling": _sampling(given),
        "stop": _stop(given, requests),
        "warmup": given.count("num-warmups") or None,
        "limits": _limits(given),
        "outputs": _outputs(given, notes),
        "seed": given.count("seed") or None,
    }
    given.settle()
    return Foreign(TOOL, without_missing(plan), notes)


def _requests(given: Given) -> int:
    """Each prefix of prefix_repetition has as many prompts as any other: what is left over is not sent."""
    asked = given.count("num-prompts", 1000) or 1000
    if given.text("dataset-name") != "prefix_repetition":
        return asked
    groups = given.count("prefix-repetition-num-prefixes", 10) or 10
    return max(1, asked // groups) * groups


def _api(given: Given) -> str:
    backend = given.text("backend", "openai") or "openai"
    if backend not in _APIS:
        given.wrong("backend", f"has no counterpart; there are {', '.join(_APIS)}")
    chat = (given.text("endpoint") or "").endswith("/chat/completions")
    return "chat" if chat else _APIS.get(backend, "completions")


def _target(given: Given, api: str) -> dict[str, Any]:
    path = given.text("endpoint")
    name = given.text("served-model-name") or given.text("model")
    return {
        "url": url_of(given.text("base-url"), given.text("host") or "127.0.0.1", given.count("port", 8000)),
        "model": name,
        "api": None if api == "completions" else api,
        "path": None if path in (None, _PATHS.get(api)) else path,
        "headers": given.pairs("header"),
        "tls": {"verify": False} if given.on("insecure") else None,
    }


def _workload(given: Given, requests: int, notes: list[str]) -> dict[str, Any]:
    name = given.text("dataset-name") or ("random" if "dataset-path" not in given else "sharegpt")
    if name not in _DATASETS:
        given.wrong("dataset-name", f"has no counterpart; there are {', '.join(_DATASETS)}")
        return {}
    workload = _DATASETS[name](given, requests, notes)
    if given.several("lora-modules"):
        if workload.get("type", "synthetic") != "synthetic":
            given.wrong("lora-modules", f"go with made-up prompts only, not with {name}")
        workload["models"] = dict.fromkeys(given.several("lora-modules"), 1)
    return {**workload, "tokenizer": given.text("tokenizer")}


def _output(given: Given, name: str, default: int | None) -> int | None:
    asked = given.count("output-len", given.count(name, default))
    return None if asked is None or asked < 0 else asked


def _random(given: Given, requests: int, notes: list[str]) -> dict[str, Any]:
    length = given.count("input-len", given.count("random-input-len", 1024)) or 1024
    ratios = _ratios(given)
    said: dict[str, Any] = {"output_tokens": about(_output(given, "random-output-len", 128) or 128, ratios["output"])}
    prefix = given.count("random-prefix-len", 0)
    if prefix:
        return {"prefix": {"tokens": prefix, "suffix_tokens": about(length, ratios["input"])}, **said}
    return {"input_tokens": about(length, ratios["input"]), **said}


def _ratios(given: Given) -> dict[str, float]:
    """One ratio for both, or `{"input": 0.1, "output": 0.5}`."""
    if (given.text("random-range-ratio") or "").lstrip().startswith("{"):
        return {"input": 0.0, "output": 0.0} | given.fields("random-range-ratio")
    return dict.fromkeys(("input", "output"), given.number("random-range-ratio", 0.0) or 0.0)


def _random_images(given: Given, requests: int, notes: list[str]) -> dict[str, Any]:
    buckets = {(256, 256, 1): 0.5, (720, 1280, 1): 0.5}
    if text := given.text("random-mm-bucket-config"):
        try:
            buckets = dict(ast.literal_eval(text))
            height, width, _ = max(buckets, key=lambda key: buckets[key])
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            given.wrong("random-mm-bucket-config", "must be {(height, width, frames): share}")
            return {}
    height, width, _ = max(buckets, key=lambda key: buckets[key])
    if len(buckets) > 1:
        notes.append(f"--random-mm-bucket-config: images have one size here, the likeliest: {width}x{height}")
    images = {"count": given.count("random-mm-base-items-per-request", 1), "width": width, "height": height}
    return {**_random(given, requests, notes), "images": images}


def _prefix_repetition(given: Given, requests: int, notes: list[str]) -> dict[str, Any]:
    groups = given.count("prefix-repetition-num-prefixes", 10) or 10
    prefix = {
        "tokens": given.count("prefix-repetition-prefix-len", 256),
        "suffix_tokens": given.count("prefix-repetition-suffix-len", 256),
        "groups": groups,
        "prompts": requests // groups,
    }
    return {"prefix": prefix, "output_tokens": _output(given, "prefix-repetition-output-len", 128)}


def _path(given: Given, key: str = "path") -> dict[str, Any]:
    path = given.text("dataset-path")
    if path is None:
        given.wrong("dataset-path", "is missing: this dataset is a file")
    is_url = path is not None and path.startswith(("http://", "https://"))
    return {"url" if is_url else key: path, "shuffle": False if given.on("disable-shuffle") else None}


def _sharegpt(given: Given, requests: int, notes: list[str]) -> dict[str, Any]:
    notes.append("sharegpt: as vLLM does, prompts of 4 to 1024 tokens; its limit of 2048 with the answer is not kept")
    lengths = {"min_tokens": 4, "max_tokens": 1024, "output_tokens": _output(given, "sharegpt-output-len", None)}
    return {"type": "sharegpt", **_path(given), **lengths}


def _sonnet(given: Given, requests: int, notes: list[str]) -> dict[str, Any]:
    return {
        "type": "sonnet",
        **_path(given),
        "input_tokens": given.count("input-len", given.count("sonnet-input-len", 550)),
        "output_tokens": _output(given, "sonnet-output-len", 150),
        "prefix_tokens": given.count("sonnet-prefix-len", 200),
    }


def _custom(given: Given, requests: int, notes: list[str]) -> dict[str, Any]:
    columns = {"prompt": "prompt"}
    if (given.count("custom-output-len") or 0) < 0:
        columns["output_tokens"] = "output_tokens"
    return {
        "type": "table",
        **_path(given),
        "columns": columns,
        "output_tokens": _output(given, "custom-output-len", 256),
    }


def _hub(given: Given, requests: int, notes: list[str]) -> dict[str, Any]:
    return {
        "type": "huggingface",
        **_path(given, "repo"),
        "subset": given.text("hf-subset"),
        "split": given.text("hf-split"),
        "output_tokens": _output(given, "hf-output-len", None),
    }


def _burstgpt(given: Given, requests: int, notes: list[str]) -> dict[str, Any]:
    notes.append("burstgpt: lengths are those of the trace, arrivals are those of the load")
    return {"type": "burstgpt", **_path(given)}


def _timed_trace(given: Given, requests: int, notes: list[str]) -> dict[str, Any]:
    labels = {"time": "timestamp", "input_tokens": "input-length", "output_tokens": "output-length"}
    labels["hash_ids"] = "hash-ids"
    return {
        "type": "trace",
        **_path(given),
        "columns": {ours: given.text(f"timed-trace-label-{t}") or t.replace("-", "_") for ours, t in labels.items()},
        "block_tokens": given.count("timed-trace-chunk-hash-size", 16),
        "unit": _unit(given),
    }


def _unit(given: Given) -> str:
    """What a time is multiplied with to be seconds."""
    factor = given.number("timed-trace-sec-multiplier", 1.0)
    units = {1.0: "s", 1e-3: "ms", 1e-6: "us", 1e-9: "ns"}
    if factor not in units:
        given.wrong("timed-trace-sec-multiplier", "must be 1, 0.001, 1e-6 or 1e-9")
    return units.get(factor or 1.0, "s")


_DATASETS: dict[str, Callable[[Given, int, list[str]], dict[str, Any]]] = {
    "random": _random,
    "random-mm": _random_images,
    "random-rerank": _random,
    "prefix_repetition": _prefix_repetition,
    "sharegpt": _sharegpt,
    "sonnet": _sonnet,
    "custom": _custom,
    "hf": _hub,
    "burstgpt": _burstgpt,
    "timed_trace": _timed_trace,
}


def _load(given: Given, requests: int, notes: list[str]) -> dict[str, Any]:
    cap = given.count("max-concurrency")
    if given.text("dataset-name") == "timed_trace" and not given.on("no-self-timed"):
        return {"type": "replay", "max_concurrency": cap}
    strategy = given.text("ramp-up-strategy")
    if strategy is None:
        burstiness = given.number("burstiness", 1.0) or 1.0
        return load_of(given.number("request-rate", math.inf), cap, requests, 1 / math.sqrt(burstiness))
    if strategy != "linear":
        given.wrong("ramp-up-strategy", "has no counterpart but linear; stages say any other course")
    notes.append("--ramp-up-strategy: the rate grows with time here, there with each request; both send as many")
    first, last = given.number("ramp-up-start-rps", 0.0) or 0.0, given.number("ramp-up-end-rps", 0.0) or 0.0
    if not first + last:
        given.wrong("ramp-up-end-rps", "is missing: a ramp has a start and an end")
        return {}
    stage = {"rate": tidy(first), "to": tidy(last), "duration": round(2 * requests / (first + last), 3)}
    return {"type": "stages", "stages": [stage], "max_concurrency": cap}


def _stop(given: Given, requests: int) -> dict[str, Any] | None:
    return None if "ramp-up-strategy" in given else {"requests": requests}


def _sampling(given: Given) -> dict[str, Any]:
    extra = {name.replace("-", "_"): tidy(value) for name in _EXTRA if (value := given.number(name)) is not None}
    if given.on("use-beam-search"):
        extra["use_beam_search"] = True
    if (logprobs := given.count("logprobs")) is not None:
        extra["logprobs"] = logprobs
    made_up = (given.text("dataset-name") or "random") in ("random", "random-mm", "timed_trace")
    return {
        "ignore_eos": None if made_up or given.on("ignore-eos") else False,
        "temperature": given.number("temperature"),
        "top_p": given.number("top-p"),
        "extra": extra | given.fields("extra-body"),
    }


def _limits(given: Given) -> list[str]:
    """Goodput is the share of requests that keep limits without a statistic."""
    limits = []
    for name, value in given.pairs("goodput", ":").items():
        if name not in _GOODPUT:
            given.wrong("goodput", f"must be about {', '.join(_GOODPUT)}")
        else:
            limits.append(f"{_GOODPUT[name]} < {value}ms")
    return limits


def _outputs(given: Given, notes: list[str]) -> list[dict[str, str]]:
    if not given.on("save-result") and not given.on("append-result"):
        return []
    notes.append("--save-result: the file has our own schema, not vLLM's")
    folder, name = given.text("result-dir"), given.text("result-filename") or "inferometer.json"
    return [{"format": "json", "path": f"{folder.rstrip('/')}/{name}" if folder else name}]
