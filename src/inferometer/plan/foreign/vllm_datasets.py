"""The datasets of `vllm bench` as workloads."""

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from inferometer.documents.document import JsonValue
from inferometer.plan.draft import ImagesDraft, PrefixDraft, WorkloadDraft
from inferometer.plan.foreign.shapes import FIRST_PAIR, Given, about

REQUESTS = 1000
_TEMPLATED = (
    "vLLM applies the model's chat template and sends the text to /v1/completions; here the same message goes to "
    "/v1/chat/completions, where the server applies it"
)


_OF_DATASETS = (  # flags that vLLM ignores with another dataset
    *("random-", "sonnet-", "sharegpt-", "custom-", "hf-", "spec-bench-", "speed-bench-", "prefix-repetition-"),
    *("timed-trace-", "blazedit-", "asr-", "bfcl-", "no-reranker", "enable-multimodal-chat", "skip-chat-template"),
    *("dataset-path", "disable-shuffle", "input-len", "output-len"),
)


@dataclass(frozen=True, slots=True)
class VllmData:
    """The workload of a dataset. `requests` is None if every row is sent once."""

    name: str
    workload: WorkloadDraft
    requests: int | None
    api: str
    made_up: bool = False  # a generated dataset, with answers of full length
    extra: dict[str, JsonValue] = field(default_factory=dict)  # fields of every request's body


@dataclass(frozen=True, slots=True)
class Hub:
    """How vLLM makes prompts from a dataset of the Hugging Face hub."""

    columns: dict[str, str]
    output_tokens: int | None
    templated: bool = False
    template: str | None = None
    longest: int | None = None  # longest prompt, if answers have the recorded length
    longest_total: int = 2048  # prompt and answer


_EDIT = "{input}\n\n{instruction} Just output the code, do not include any explanation."
_SPEECH = Hub({"audio": "audio"}, 1024)
HUB: dict[str, Hub] = {
    "likaixin/InstructCoder": Hub({}, 200, True, _EDIT),
    "openai/openai_humaneval": Hub({"prompt": "prompt"}, 256, True),
    "openai/gsm8k": Hub({"prompt": "question"}, 256, True),
    "philschmid/mt-bench": Hub({"prompt": "turns.0"}, 256, True),
    **dict.fromkeys(
        ("AI-MO/aimo-validation-aime", "AI-MO/NuminaMath-1.5", "AI-MO/NuminaMath-CoT"),
        Hub({"prompt": "problem", "answer": "solution"}, None, longest=2048, longest_total=32_000),
    ),
    "Aeala/ShareGPT_Vicuna_unfiltered": Hub(
        {"prompt": "conversations.0.value", "answer": "conversations.1.value"},
        None,
        longest=1024,
    ),
    "lmms-lab/LLaVA-OneVision-Data": Hub(
        {"prompt": "conversations.0.value", "answer": "conversations.1.value", "image": "image"},
        None,
        longest=1024,
    ),
    "lmarena-ai/VisionArena-Chat": Hub({"prompt": "conversation.0.0.content", "image": "images.0"}, 128),
    "lmarena-ai/vision-arena-bench-v0.1": Hub({"prompt": "turns.0.0.content", "image": "images.0"}, 128),
    **dict.fromkeys(
        (
            "openslr/librispeech_asr",
            "facebook/voxpopuli",
            "LIUM/tedlium",
            "edinburghcstr/ami",
            "speechcolab/gigaspeech",
            "kensho/spgispeech",
        ),
        _SPEECH,
    ),
}
_BFCL = "gorilla-llm/Berkeley-Function-Calling-Leaderboard"
_BFCL_DEFAULT = "simple,live_simple,multiple"


_MADE_UP = ("random", "random-mm", "random-rerank", "prefix_repetition")


def workload_of(given: Given, api: str) -> VllmData:
    """The workload of the dataset flags."""
    name = given.text("dataset-name") or ("random" if "dataset-path" not in given else "sharegpt")
    requests = _requests(given, name)
    if name not in _DATASETS:
        given.wrong("dataset-name", f"has no counterpart; there are {', '.join(_DATASETS)}")
        return VllmData(name, {}, requests or REQUESTS, api)
    data = _DATASETS[name](given, VllmData(name, {}, requests, api))
    workload = data.workload
    if given.several("lora-modules"):
        workload["models"] = dict.fromkeys(given.several("lora-modules"), 1)
        kind, same = given.text("lora-assignment", "random"), "adapters are drawn at random, with equal shares"
        (given.no_effect if kind == "random" else given.note)("lora-assignment", same)
    elif "lora-assignment" in given:
        given.no_effect("lora-assignment", "there are no --lora-modules")
    for flag in given:
        if flag.startswith(_OF_DATASETS) and not given.was_read(flag):
            given.no_effect(flag, f"is not used by the dataset {name}")
    if data.requests is None or (given.on("no-oversample") and name not in _MADE_UP):
        workload["once"] = True
    workload["tokenizer"] = given.text("tokenizer")
    return data


def _requests(given: Given, name: str) -> int | None:
    """The number of requests. prefix_repetition sends the same number for each prefix and drops the remainder. -1, or
    more than the rows without oversampling, means every row once."""
    requested = given.count("num-prompts", REQUESTS) or REQUESTS
    once = given.on("no-oversample") and name not in _MADE_UP
    if requested < 0:
        return None
    if name == "prefix_repetition":
        groups = given.count("prefix-repetition-num-prefixes", 10) or 10
        return max(1, requested // groups) * groups
    if once:
        given.note("no-oversample", "the run ends with the last row")
        return None if requested >= 1_000_000 else requested
    return requested


def _with(data: VllmData, workload: WorkloadDraft, *, api: str | None = None, made_up: bool = False) -> VllmData:
    return VllmData(data.name, workload, data.requests, api or data.api, made_up, data.extra)


def _output(given: Given, name: str, default: int | None) -> int | None:
    own = given.count(name)
    requested = given.count("output-len", default if own is None else own)
    return None if requested is None or requested < 0 else requested


def _templated(given: Given, data: VllmData, flag: str = "dataset-name") -> str:
    """The API for templated prompts: the server applies the chat template that vLLM's client applies."""
    if given.on("skip-chat-template") or data.api != "completions":
        return data.api
    given.note(flag, _TEMPLATED)
    return "chat"


# -- made up -----------------------------------------------------------------------------------------------------


def _random(given: Given, data: VllmData) -> VllmData:
    return _with(data, _lengths(given), made_up=True)


def _lengths(given: Given) -> WorkloadDraft:
    own, common = given.count("random-input-len"), given.count("input-len")
    length = common if common is not None else 1024 if own is None else own
    ratios = _ratios(given)
    output: WorkloadDraft = {"output_tokens": about(_output(given, "random-output-len", 128) or 128, ratios["output"])}
    prefix = given.count("random-prefix-len", 0)
    if prefix:
        return {"prefix": {"tokens": prefix, "suffix_tokens": about(length, ratios["input"])}, **output}
    return {"input_tokens": about(length, ratios["input"]), **output}


def _ratios(given: Given) -> dict[str, float]:
    """One ratio for both, or `{"input": 0.1, "output": 0.5}`."""
    if (given.text("random-range-ratio") or "").lstrip().startswith("{"):
        return {"input": 0.0, "output": 0.0} | cast(dict[str, float], given.fields("random-range-ratio"))
    return dict.fromkeys(("input", "output"), given.number("random-range-ratio", 0.0) or 0.0)


def _random_rerank(given: Given, data: VllmData) -> VllmData:
    """A query and its documents; `--no-reranker` sends them as texts of one embedding request."""
    if given.on("no-reranker"):
        given.wrong("no-reranker", "has no counterpart: use --backend openai-embeddings")
    batch = given.count("random-batch-size", 1) or 1
    lengths = _lengths(given)
    if lengths.get("prefix"):
        given.wrong("random-prefix-len", "has no counterpart with random-rerank")
    given.account.general.append("every request has a query of its own; vLLM asks the same of all documents")
    half = _halved(lengths.get("input_tokens"))
    made = _with(data, {"input_tokens": half, "output_tokens": None, "documents": batch})
    return replace(made, requests=None if data.requests is None else math.ceil(data.requests / batch))


def _halved(lengths: Any) -> Any:
    """Half of a length: vLLM's length is that of query and document together."""
    if isinstance(lengths, int):
        return max(1, lengths // 2)
    if isinstance(lengths, str):
        return "-".join(str(max(1, int(end) // 2)) for end in lengths.split("-"))
    return lengths


def _random_images(given: Given, data: VllmData) -> VllmData:
    buckets = _buckets(given)
    count = given.count("random-mm-base-items-per-request", 1) or 1
    ratio = given.number("random-mm-num-mm-items-range-ratio", 0.0) or 0.0
    most = (
        given.fields("random-mm-limit-mm-per-prompt").get("image") if "random-mm-limit-mm-per-prompt" in given else 255
    )
    low, high = max(0, int(count * (1 - ratio))), int(count * (1 + ratio) + 0.999999)
    limited = min(high, int(cast(int, most) or 0)) if most is not None else high
    if limited == high:
        given.no_effect("random-mm-limit-mm-per-prompt", "no prompt has more images")
    high = limited
    sizes = [{"width": width, "height": height, "weight": share} for (height, width, _), share in buckets.items()]
    images: ImagesDraft = {
        "count": f"{low}-{high}" if low < high else max(low, 1),
        "format": "jpeg",
        "content": "noise",
        "position": 1,  # after the text
    }
    if len(buckets) == 1:
        ((height, width, _),) = buckets
        images["width"], images["height"] = width, height
    else:
        images["sizes"] = sizes
    return _with(data, {**_lengths(given), "images": images}, made_up=True)


def _buckets(given: Given) -> dict[tuple[int, int, int], float]:
    """`{(height, width, frames): share}`; one frame is an image."""
    default = {(256, 256, 1): 0.5, (720, 1280, 1): 0.5}
    text = given.text("random-mm-bucket-config")
    if text is None:
        return default
    try:
        buckets = {
            (int(key[0]), int(key[1]), int(key[2])): float(share) for key, share in ast.literal_eval(text).items()
        }
    except (AttributeError, LookupError, ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        given.wrong("random-mm-bucket-config", "must be {(height, width, frames): share}")
        return default
    used = {key: share for key, share in buckets.items() if share > 0}
    if any(frames > 1 for _, _, frames in used):
        given.wrong("random-mm-bucket-config", "has no counterpart for videos: frames must be 1")
    return used or default


def _prefix_repetition(given: Given, data: VllmData) -> VllmData:
    groups = given.count("prefix-repetition-num-prefixes", 10) or 10
    prefix: PrefixDraft = {
        "tokens": given.count("prefix-repetition-prefix-len", 256),
        "suffix_tokens": given.count("prefix-repetition-suffix-len", 256),
        "groups": groups,
        "prompts": (data.requests or REQUESTS) // groups,
    }
    return _with(data, {"prefix": prefix, "output_tokens": _output(given, "prefix-repetition-output-len", 128)})


# -- files -------------------------------------------------------------------------------------------------------


def _path(given: Given, key: Literal["path", "repo"] = "path") -> WorkloadDraft:
    place, shuffle = _place(given, key), False if given.on("disable-shuffle") else None
    return {**place, "shuffle": shuffle}


def _place(given: Given, key: Literal["path", "repo"] = "path") -> WorkloadDraft:
    path = given.text("dataset-path")
    if path is None:
        given.wrong("dataset-path", "is missing: this dataset is a file")
    is_url = path is not None and path.startswith(("http://", "https://"))
    return {"url": path} if is_url else {"path": path} if key == "path" else {"repo": path}


def _sharegpt(given: Given, data: VllmData) -> VllmData:
    """The first two messages of a conversation, in any role, as a prompt and its answer."""
    columns = dict(FIRST_PAIR)
    if data.api == "chat":
        columns |= {"image": "image?", "video": "video?"}
        given.account.general.append("sharegpt: files of images and videos are sent; vLLM sends their file:// address")
    output = _output(given, "sharegpt-output-len", None)
    bounds = _valid(1024, 2048)
    if output is not None:
        bounds["min_output_tokens"] = None
    return _with(data, {"type": "table", **_path(given), "columns": columns, **bounds, "output_tokens": output})


def _valid(longest: int, longest_total: int) -> WorkloadDraft:
    """vLLM's bounds of prompts and their recorded answers, in tokens."""
    return {
        "min_tokens": 4,
        "max_tokens": longest,
        "min_output_tokens": 4,
        "max_total_tokens": longest_total,
    }


def _sonnet(given: Given, data: VllmData) -> VllmData:
    own = given.count("sonnet-input-len")
    lengths: WorkloadDraft = {
        "input_tokens": given.count("input-len", 550 if own is None else own),
        "output_tokens": _output(given, "sonnet-output-len", 150),
        "prefix_tokens": given.count("sonnet-prefix-len", 200),
    }
    return _with(data, {"type": "sonnet", **_place(given), **lengths})


def _custom(given: Given, data: VllmData) -> VllmData:
    columns = {"prompt": "prompt"}
    if (given.count("custom-output-len") or 0) < 0:
        columns["output_tokens"] = "output_tokens"
    lengths: WorkloadDraft = {"columns": columns, "output_tokens": _output(given, "custom-output-len", 256)}
    return _with(data, {"type": "table", **_path(given), **lengths}, api=_templated(given, data))


def _custom_audio(given: Given, data: VllmData) -> VllmData:
    """One audio file per row, in a chat message or to transcribe."""
    if given.on("enable-multimodal-chat") and data.api == "chat":
        given.no_effect("enable-multimodal-chat", "with the chat API the sound is always part of the message")
    elif data.api == "chat":
        given.account.general.append("custom_audio: the sound is part of the chat message")
    columns = {"prompt": "prompt", "audio": "audio"}
    if (given.count("custom-output-len") or 0) < 0:
        columns["output_tokens"] = "output_tokens"
    lengths: WorkloadDraft = {"columns": columns, "output_tokens": _output(given, "custom-output-len", 256)}
    made = _with(data, {"type": "table", **_path(given), **lengths})
    return _spoken(made) if data.api in ("transcriptions", "translations") else made


def _spoken(data: VllmData) -> VllmData:
    """vLLM's transcription requests name the language."""
    return VllmData(data.name, data.workload, data.requests, data.api, data.made_up, {"language": "en"})


def _spec_bench(given: Given, data: VllmData) -> VllmData:
    where = {"category": category} if (category := given.text("spec-bench-category")) else None
    own: WorkloadDraft = {
        "columns": {"prompt": "turns.0"},
        "where": where,
        "output_tokens": _output(given, "spec-bench-output-len", 256),
    }
    return _with(data, {"type": "table", **_path(given), **own}, api=_templated(given, data))


def _speed_bench(given: Given, data: VllmData) -> VllmData:
    """One file for each subset below the folder."""
    subset = given.text("speed-bench-dataset-subset", "qualitative")
    where = {"category": category} if (category := given.text("speed-bench-category")) else None
    place = _path(given)
    if folder := place.get("path"):
        place["path"] = f"{folder.rstrip('/')}/{subset}.jsonl"
    own: WorkloadDraft = {
        "columns": {"prompt": "messages.0.content"},
        "where": where,
        "output_tokens": _output(given, "speed-bench-output-len", 4096),
    }
    return _with(data, {"type": "table", **place, **own}, api=_templated(given, data))


def _burstgpt(given: Given, data: VllmData) -> VllmData:
    given.account.general.append("burstgpt: lengths are those of the trace, arrivals are those of the load")
    return _with(data, {"type": "burstgpt", **_place(given)})


def _timed_trace(given: Given, data: VllmData) -> VllmData:
    labels = {"time": "timestamp", "input_tokens": "input-length", "output_tokens": "output-length"}
    labels["hash_ids"] = "hash-ids"
    workload: WorkloadDraft = {
        "type": "trace",
        **_place(given),
        "columns": {ours: given.text(f"timed-trace-label-{t}") or t.replace("-", "_") for ours, t in labels.items()},
        "block_tokens": given.count("timed-trace-chunk-hash-size", 16),
        "unit": _unit(given),
        "prompt_as": "token_ids",
    }
    return _with(data, workload)


def _unit(given: Given) -> str:
    """The factor that converts a time to seconds."""
    factor = given.number("timed-trace-sec-multiplier", 1.0)
    units = {1.0: "s", 1e-3: "ms", 1e-6: "us", 1e-9: "ns"}
    if factor not in units:
        given.wrong("timed-trace-sec-multiplier", "must be 1, 0.001, 1e-6 or 1e-9")
    return units.get(factor or 1.0, "s")


# -- the hub -----------------------------------------------------------------------------------------------------


def _hub(given: Given, data: VllmData) -> VllmData:
    name = given.text("hf-name") or given.text("dataset-path") or ""
    subset, split = given.text("hf-subset"), given.text("hf-split")
    place: WorkloadDraft = {"type": "huggingface", **_path(given, "repo"), "subset": subset, "split": split}
    if name == _BFCL:
        return _functions(given, data, place)
    known = HUB.get(name)
    if known is None:
        given.wrong("dataset-path", f"has no counterpart; vLLM's datasets here are {', '.join([*HUB, _BFCL])}")
        return _with(data, {})
    output = _output(given, "hf-output-len", known.output_tokens)
    own: WorkloadDraft = {"columns": known.columns, "template": known.template, "output_tokens": output}
    if known.longest is not None and output is None:
        own |= _valid(known.longest, known.longest_total)
    if given.on("enable-multimodal-chat"):
        given.no_effect("enable-multimodal-chat", "media are always part of the message")
    if known is _SPEECH:
        for flag in ("asr-min-audio-len-sec", "asr-max-audio-len-sec"):
            if flag in given:
                given.wrong(flag, "has no counterpart: all lengths are sent")
        return _spoken(_with(data, {**place, **own}))
    made = _with(data, {**place, **own}, api=_templated(given, data, "dataset-path") if known.templated else None)
    if "image" in known.columns and made.api == "completions":
        given.wrong("backend", "must be openai-chat: the completions API takes no images")
    return made


def _functions(given: Given, data: VllmData, place: WorkloadDraft) -> VllmData:
    """The function calling leaderboard: one file for each category, a question with its tools."""
    categories = (given.text("bfcl-categories") or _BFCL_DEFAULT).split(",")
    files = [f"BFCL_v3_{category.strip()}.json" for category in categories if category.strip()]
    own: WorkloadDraft = {
        "files": files,
        "columns": {"messages": "question.0", "tools": "function"},
        "turns": "whole",
        "output_tokens": _output(given, "hf-output-len", 512),
    }
    made = _with(data, {**place, **own})
    return VllmData(made.name, made.workload, made.requests, made.api, made.made_up, {"tool_choice": "auto"})


_DATASETS: dict[str, Callable[[Given, VllmData], VllmData]] = {
    "random": _random,
    "random-mm": _random_images,
    "random-rerank": _random_rerank,
    "prefix_repetition": _prefix_repetition,
    "sharegpt": _sharegpt,
    "sonnet": _sonnet,
    "custom": _custom,
    "custom_audio": _custom_audio,
    "spec_bench": _spec_bench,
    "speed_bench": _speed_bench,
    "hf": _hub,
    "burstgpt": _burstgpt,
    "timed_trace": _timed_trace,
}
