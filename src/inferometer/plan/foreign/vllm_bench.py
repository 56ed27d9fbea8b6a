"""`vllm bench serve` (and its predecessor `benchmark_serving.py`): its flags as a plan."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from inferometer.plan.draft import (
    CaseDraft,
    LoadDraft,
    OutputDraft,
    PlanDraft,
    SamplingDraft,
    StageDraft,
    StopDraft,
    TargetDraft,
    WorkloadDraft,
)
from inferometer.plan.foreign import vllm_datasets
from inferometer.plan.foreign.common import Account, Foreign, Settings, without_missing
from inferometer.plan.foreign.shapes import (
    NO_FILES,
    Flag,
    Given,
    bell,
    given_of,
    load_of,
    parse,
    tidy,
    together,
    url_of,
    with_parameters,
)

TOOL = "vllm bench serve"
_ONE, _NONE, _MANY = Flag(), Flag("none"), Flag("many")


def _unused(text: str, takes: Any = "one") -> Flag:
    return Flag(takes, text)


_SHOWN = "progress is shown on a terminal; --quiet hides it"
_ALL = "all measures always have percentiles"
_CHARTS = "use inferometer chart for plots"
_BY_SERVER = "the server tokenizes the prompts"
FLAGS: dict[str, Flag] = {
    **dict.fromkeys(("backend", "base-url", "host", "port", "endpoint", "model", "tokenizer"), _ONE),
    **dict.fromkeys(("served-model-name", "label", "seed", "num-prompts", "request-rate", "burstiness"), _ONE),
    **dict.fromkeys(("max-concurrency", "num-warmups", "logprobs", "input-len", "output-len"), _ONE),
    **dict.fromkeys(("dataset-name", "dataset-path", "hf-subset", "hf-split", "hf-output-len", "hf-name"), _ONE),
    **dict.fromkeys(("random-input-len", "random-output-len", "random-range-ratio", "random-prefix-len"), _ONE),
    **dict.fromkeys(("random-mm-base-items-per-request", "random-mm-bucket-config", "custom-output-len"), _ONE),
    **dict.fromkeys(("random-mm-num-mm-items-range-ratio", "random-mm-limit-mm-per-prompt", "random-batch-size"), _ONE),
    **dict.fromkeys(("sonnet-input-len", "sonnet-output-len", "sonnet-prefix-len", "sharegpt-output-len"), _ONE),
    **{f"timed-trace-{name}": _ONE for name in ("chunk-hash-size", "sec-multiplier")},
    **{f"timed-trace-label-{name}": _ONE for name in ("timestamp", "input-length", "output-length", "hash-ids")},
    **{f"prefix-repetition-{name}": _ONE for name in ("prefix-len", "suffix-len", "num-prefixes", "output-len")},
    **dict.fromkeys(("spec-bench-output-len", "spec-bench-category", "bfcl-categories"), _ONE),
    **dict.fromkeys(("speed-bench-dataset-subset", "speed-bench-output-len", "speed-bench-category"), _ONE),
    **dict.fromkeys(("blazedit-min-distance", "blazedit-max-distance"), _ONE),
    **dict.fromkeys(("asr-max-audio-len-sec", "asr-min-audio-len-sec"), _ONE),
    **dict.fromkeys(("top-p", "top-k", "min-p", "temperature", "extra-body", "chat-template-kwargs"), _ONE),
    **dict.fromkeys(("frequency-penalty", "presence-penalty", "repetition-penalty"), _ONE),
    **dict.fromkeys(("ramp-up-strategy", "ramp-up-start-rps", "ramp-up-end-rps"), _ONE),
    **dict.fromkeys(("result-dir", "result-filename", "probe-request-rate", "lora-assignment"), _ONE),
    **dict.fromkeys(("ignore-eos", "insecure", "save-result", "append-result", "use-beam-search"), _NONE),
    **dict.fromkeys(("disable-shuffle", "self-timed", "no-self-timed", "no-oversample", "profile"), _NONE),
    **dict.fromkeys(("no-reranker", "enable-multimodal-chat", "skip-chat-template"), _NONE),
    **dict.fromkeys(("header", "goodput", "lora-modules"), _MANY),
    **dict.fromkeys(("sweep-max-concurrency", "sweep-request-rate", "sweep-num-prompts-factor"), _ONE),
    "reset-prefix-cache": _unused("the prefix cache of a started server is reset between cases", "none"),
    "sweep-summary-percentiles": _unused(_ALL),
    "metadata": _unused("the environment is stored with every run; use the plan's name instead", "many"),
    "percentile-metrics": _unused(_ALL),
    "metric-percentiles": _unused(_ALL),
    "disable-tqdm": _unused(_SHOWN, "none"),
    "save-detailed": _unused("the records of every run are stored", "none"),
    "request-id-prefix": _unused("records identify requests"),
    "ready-check-timeout-sec": _unused("the target is checked before the load"),
    "tokenizer-mode": _unused(_BY_SERVER),
    "trust-remote-code": _unused("code from models is never executed", "none"),
    "skip-tokenizer-init": _unused("a tokenizer is used only if workload.tokenizer is set", "none"),
    "no-stream": _unused("datasets are read through an index", "none"),
    "plot-timeline": _unused(_CHARTS, "none"),
    "timeline-itl-thresholds": _unused(_CHARTS),
    "plot-dataset-stats": _unused(_CHARTS, "none"),
    "custom-ensure-client-side-data": _unused("rows are always read", "none"),
}
ALIASES = {"endpoint-type": "backend", "dataset": "dataset-path"}
_PICTURED = ("openai-embeddings-clip", "openai-embeddings-vlm2vec")
_TRUNCATED = {"embeddings", "embeddings_chat", "rerank"}  # vLLM asks the server to cut prompts that are too long
_APIS = {
    **dict.fromkeys(("openai", "vllm", "lmdeploy", "sglang", "scalellm", "llama.cpp"), "completions"),
    "openai-chat": "chat",
    "openai-audio": "transcriptions",
    **dict.fromkeys(("openai-embeddings", "vllm-pooling"), "embeddings"),
    **dict.fromkeys(("openai-embeddings-chat", *_PICTURED), "embeddings_chat"),
    "vllm-rerank": "rerank",
    "tgi": "tgi",
}
_PATHS = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "embeddings": "/v1/embeddings",
    "embeddings_chat": "/v1/embeddings",
    "rerank": "/v1/rerank",
    "transcriptions": "/v1/audio/transcriptions",
}
_GOODPUT = {"ttft": "ttft", "tpot": "tpot", "e2el": "e2e"}
_EXTRA = ("top-k", "min-p", "frequency-penalty", "presence-penalty", "repetition-penalty")


def from_argv(argv: Sequence[str]) -> Foreign:
    """The plan of a command line after `vllm bench serve`, or the experiment of `vllm-bench --sweep-...`."""
    return from_given(parse(TOOL, argv, FLAGS, ALIASES))


def from_script(argv: Sequence[str]) -> Foreign:
    """The same for `benchmark_serving.py`, which requests greedy decoding; `vllm bench serve` does not."""
    given = parse(TOOL, argv, FLAGS, ALIASES)
    if "temperature" not in given:
        given.values["temperature"] = "0"
        given.account.general.append("temperature is 0, the default of the script")
    return from_given(given)


def from_values(values: dict[str, Any], account: Account, prefix: str) -> Foreign:
    """The same flags by name, as in suites and profiles."""
    named = {ALIASES.get(name, name): value for name, value in values.items()}
    unknown = [name for name in named if name not in FLAGS]
    account.mistakes += [f"{account.tool}: {prefix}{name} is not a flag of {TOOL}" for name in unknown]
    return from_given(given_of(account.tool, named, FLAGS, prefix, account))


def from_given(given: Given) -> Foreign:
    for name in ("request-rate", "max-concurrency"):
        swept = given.text(f"sweep-{name}") or (given.text(name) if "," in str(given.values.get(name)) else None)
        if swept is not None:
            return _swept(given, name, swept.split(","))
    return Foreign.of(given.account, plan_of(given))


def _swept(given: Given, name: str, values: list[str]) -> Foreign:
    """One case per value; a factor sets the number of requests per concurrency."""
    factor = given.count("sweep-num-prompts-factor")
    cases: list[CaseDraft] = []
    for value in values:
        also = {"num-prompts": str(factor * int(value))} if factor and name == "max-concurrency" else {}
        one = given.without(f"sweep-{name}")
        one.values |= {name: value.strip(), **also}
        cases.append({"name": f"{name}={value.strip()}", "plan": plan_of(one)})
    files = [case["plan"].pop("outputs", None) for case in cases]
    if any(files):
        given.account.general.append(NO_FILES)
    return Foreign.of(given.account, {}, {"cases": with_parameters(cases)})


def plan_of(given: Given) -> PlanDraft:
    """The plan of its flags."""
    api = api_of_backend(given)
    data = vllm_datasets.workload_of(given, api)
    columns = data.workload.get("columns") or {}
    if given.text("backend") in _PICTURED and "image" in columns:
        _without_text(given, data.workload)
    plan: PlanDraft = {
        "name": given.text("label"),
        "target": target_of(given, data.api),
        "workload": data.workload,
        "load": _load(given, data),
        "sampling": _sampling(given, data),
        "stop": _stop(given, data),
        "warmup": given.count("num-warmups") or None,
        "limits": limits_of(given),
        "outputs": _outputs(given),
        "observe": {"profiler": True} if given.on("profile") else None,
        "seed": given.count("seed") or None,
    }
    if "probe-request-rate" in given:
        given.wrong("probe-request-rate", "has no counterpart: add a traffic class for probes")
    whole: PlanDraft = without_missing(plan)
    return whole


def _without_text(given: Given, workload: WorkloadDraft) -> None:
    """CLIP embeds only the image; VLM2Vec adds a fixed text, and in every second request the question."""
    workload["columns"] = {"image": (workload["columns"] or {})["image"]}
    if given.text("backend") == "openai-embeddings-vlm2vec":
        workload["template"] = "Represent the given image."
        given.note("backend", "every image is sent with the same text; vLLM adds the question to every second one")


def api_of_backend(given: Given) -> str:
    backend = given.text("backend", "openai") or "openai"
    if backend not in _APIS:
        given.wrong("backend", f"has no counterpart; there are {', '.join(_APIS)}")
    path = given.text("endpoint") or ""
    if path.endswith("/chat/completions"):
        return "chat"
    if path.endswith("/translations"):
        return "translations"
    return _APIS.get(backend, "completions")


def target_of(given: Given, api: str) -> TargetDraft:
    path = given.text("endpoint")
    own = _PATHS.get(api)
    if api == "chat" and path == _PATHS["completions"]:  # the chat template is applied by the server
        path = own
    model = given.text("model")
    return {
        "url": url_of(given.text("base-url"), given.text("host") or "127.0.0.1", given.count("port", 8000)),
        "model": given.text("served-model-name") or model,
        "api": None if api == "completions" else api,
        "path": None if path in (None, own) else path,
        "headers": given.pairs("header"),
        "tls": {"verify": False} if given.on("insecure") else None,
    }


def _load(given: Given, data: vllm_datasets.VllmData) -> LoadDraft:
    cap = given.count("max-concurrency")
    burstiness = given.number("burstiness", 1.0) or 1.0
    timed = data.name == "timed_trace" and not given.on("no-self-timed")
    if given.on("self-timed") and data.name != "timed_trace":
        given.wrong("self-timed", "needs --dataset-name timed_trace")
    if timed:
        given.no_effect("self-timed", "a timed trace is replayed by its own times, unless --no-self-timed")
        return {"type": "replay", "max_concurrency": cap}
    strategy = given.text("ramp-up-strategy")
    if strategy is None:
        rate = given.number("request-rate", math.inf)
        return load_of(rate, cap, data.requests or vllm_datasets.REQUESTS, 1 / math.sqrt(burstiness))
    if strategy != "linear":
        given.wrong("ramp-up-strategy", "must be linear; use stages for other ramps")
    first, last = given.number("ramp-up-start-rps", 0.0) or 0.0, given.number("ramp-up-end-rps", 0.0) or 0.0
    if not first + last or data.requests is None:
        given.wrong("ramp-up-end-rps", "is missing: a ramp has a start and an end")
        return {}
    given.note("ramp-up-strategy", "the rate grows with time, in vLLM with each request; both send the same number")
    stage: StageDraft = {
        "rate": tidy(first),
        "to": tidy(last),
        "duration": round(2 * data.requests / (first + last), 3),
    }
    return {"type": "stages", "stages": [stage], "max_concurrency": cap}


def _stop(given: Given, data: vllm_datasets.VllmData) -> StopDraft | None:
    return None if "ramp-up-strategy" in given or data.requests is None else {"requests": data.requests}


def _sampling(given: Given, data: vllm_datasets.VllmData) -> SamplingDraft:
    numbers = {name: given.number(name) for name in _EXTRA}
    extra: dict[str, Any] = {name.replace("-", "_"): tidy(own) for name, own in numbers.items() if own is not None}
    if given.on("use-beam-search"):
        extra["use_beam_search"] = True
    if (logprobs := given.count("logprobs")) is not None:
        extra["logprobs"] = logprobs
    if "chat-template-kwargs" in given:
        extra["chat_template_kwargs"] = given.fields("chat-template-kwargs")
    ignore = given.on("ignore-eos")
    if data.made_up:
        given.no_effect("ignore-eos", "made-up prompts always ask for answers of full length, as in vLLM")
    if data.api == "completions":  # vLLM always sends it: a model's generation_config.json may have another
        extra.setdefault("repetition_penalty", 1.0)
    truncated = {"truncate_prompt_tokens": -1} if data.api in _TRUNCATED else {}
    return {
        "ignore_eos": None if data.made_up or ignore or truncated else False,
        "temperature": given.number("temperature"),
        "top_p": given.number("top-p"),
        "extra": extra | data.extra | truncated | given.fields("extra-body"),
    }


def limits_of(given: Given) -> list[str]:
    """Goodput limits: limits without a statistic, which each request must meet."""
    limits = []
    for name, value in given.pairs("goodput", ":").items():
        if name not in _GOODPUT:
            given.wrong("goodput", f"must be about {', '.join(_GOODPUT)}")
        else:
            limits.append(f"{_GOODPUT[name]} < {value}ms")
    return limits


def _outputs(given: Given) -> list[OutputDraft]:
    """Result files in vLLM's format, because scripts after the command read that."""
    folder, name = given.text("result-dir"), given.text("result-filename")
    if not given.on("save-result") and not given.on("append-result"):
        for flag in ("result-dir", "result-filename"):
            given.no_effect(flag, "no file is written without --save-result")
        return []
    if name is None:
        rate = given.text("request-rate") or "inf"
        model = (given.text("model") or "model").rpartition("/")[2]
        name = f"{given.text('label') or given.text('backend') or 'openai'}-{rate}qps-{model}.json"
        given.note("save-result", f"written to {name}; vLLM appends the time to the name")
    return [{"format": "vllm", "path": f"{folder.rstrip('/')}/{name}" if folder else name}]


MULTI_TURN = "benchmark_serving_multi_turn.py"


def is_it(mapping: Mapping[str, Any]) -> bool:
    return mapping.get("filetype") == "generate_conversations"


def from_mapping(mapping: Mapping[str, Any]) -> Foreign:
    """A plan with one client that sends conversations one after the other, the script's default."""
    settings = Settings(mapping, Account(MULTI_TURN))
    return Foreign.of(settings.account, generated(settings))


def generated(settings: Settings) -> PlanDraft:
    """The conversations that the script generates, for one client. It requests no minimum length, so answers may be
    shorter."""
    settings.value("filetype")
    settings.no_effect("print_stats", "the statistics of a workload are always shown")
    settings.note("text_files", "the text of prompts is made up, with the same lengths")
    inputs, outputs = settings.section("prompt_input"), settings.section("prompt_output")
    count = settings.count("num_conversations")
    turns, shared = _lengths(inputs, "num_turns"), _lengths(inputs, "common_prefix_num_tokens")
    own, added = _lengths(inputs, "prefix_num_tokens"), _lengths(inputs, "num_tokens")
    first = together(own, added) if own else added
    if own:
        settings.account.general.append("prefix_num_tokens: the prefix and the first question are drawn together")
    settings.account.general.append(
        "num_turns: a turn of the script is a message; here it is a question with its answer"
    )
    workload: WorkloadDraft = {
        **({"prefix": {"tokens": shared, "suffix_tokens": first}} if shared else {"input_tokens": first}),
        "turn_tokens": added,
        "output_tokens": _lengths(outputs, "num_tokens"),
        "turns": _halved(turns),
        "count": count,
    }
    plan: PlanDraft = {
        "target": {"api": "chat"},
        "workload": workload,
        "load": {"type": "concurrency", "concurrency": 1},
        "sampling": {"ignore_eos": False},
        "stop": {"sessions": count},
    }
    whole: PlanDraft = without_missing(plan)
    return whole


def _lengths(section: Settings, name: str) -> Any:
    if name not in section.values:
        return None
    own = section.section(name)
    kind = own.text("distribution")
    match kind:
        case "constant":
            return own.count("value")
        case "uniform":
            return f"{own.count('min')}-{own.count('max')}"
        case "lognormal":
            mean, most = own.number("average"), own.count("max")
            if mean is None:
                own.wrong("average", "is missing: lognormals are given by their average")
                return None
            own.note(
                "average", "a lognormal with a median of a quarter of its maximum has its deviation, here half the mean"
            )
            return bell(mean, tidy(mean / 2), 1, most, "lognormal")
    own.wrong("distribution", "has no counterpart; there are constant, uniform, lognormal")
    return None


def _halved(turns: Any) -> Any:
    """Messages as questions with their answers."""
    if isinstance(turns, str):
        least, _, most = turns.partition("-")
        return f"{max(1, int(least) // 2)}-{max(1, int(most) // 2)}"
    return max(1, turns // 2) if isinstance(turns, int) else turns
