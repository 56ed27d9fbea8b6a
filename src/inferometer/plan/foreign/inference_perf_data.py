"""inference-perf's data generators as workloads."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from inferometer.documents.document import JsonValue
from inferometer.plan.draft import (
    ImagesDraft,
    MediaDraft,
    PrefixDraft,
    Setting,
    SoundsDraft,
    VideosDraft,
    WorkloadDraft,
)
from inferometer.plan.foreign.common import Settings
from inferometer.plan.foreign.shapes import FIRST_PAIR, RESOLUTIONS, SHAREGPT, bell, tidy, together

_SHORTER = re.compile(r"lambdax:x(?:\['max_tokens'\]|\.get\('max_tokens'(?:,0)?\))<([0-9]+)")
_LEAST, _MOST = 10, 1024  # tokens, the default bounds of a length
_ROOM = 225_000  # default context length, tokens
_NO_LENGTH = 30  # output tokens that inference-perf requests by default
_DISTRIBUTION = ("type", "min", "max", "mean", "std_dev", "variance", "skew", "total_count")
_LENGTHS = ("system_prompt_len", "question_len", "output_len", "question_distribution", "output_distribution")
_PER_TURN = ("dynamic_system_prompt_len", "turns_per_conversation", "input_tokens_per_turn", "output_tokens_per_turn")
KEYS: dict[str, tuple[str, ...]] = {  # of each section, for changes that add a setting
    "load": ("type", "interval", "stages", "sweep", "num_workers", "worker_max_concurrency", "request_timeout"),
    "load.stages": ("rate", "duration", "num_requests", "concurrency_level", "concurrent_sessions", "num_sessions"),
    "load.sweep": ("type", "num_requests", "timeout", "num_stages", "stage_duration", "saturation_percentile"),
    "api": ("type", "streaming", "headers", "response_format"),
    "server": ("type", "model_name", "base_url", "ignore_eos", "api_key", "cert_path", "key_path"),
    "tokenizer": ("pretrained_model_name_or_path", "trust_remote_code", "token"),
    "data": ("type", "path", "multimodal", "input_distribution", "output_distribution", "shared_prefix"),
    **{f"data.{name}": _DISTRIBUTION for name in ("input_distribution", "output_distribution")},
    "data.shared_prefix": (
        *("num_groups", "num_prompts_per_group", "num_unique_system_prompts", "num_users_per_system_prompt"),
        *(*_LENGTHS, "enable_multi_turn_chat", "seed"),
    ),
    **{f"data.shared_prefix.{name}": _DISTRIBUTION for name in _LENGTHS},
    "data.conversation_replay": (
        *("seed", "num_conversations", "shared_system_prompt_len", "max_model_len"),
        *(*_PER_TURN, "tool_call_latency_sec"),
    ),
    **{f"data.conversation_replay.{name}": _DISTRIBUTION for name in (*_PER_TURN, "tool_call_latency_sec")},
}


@dataclass(frozen=True, slots=True)
class InferencePerfData:
    """A workload, and its properties that affect the load."""

    kind: str
    workload: WorkloadDraft = field(default_factory=WorkloadDraft)
    users: int | None = None  # users that alternate request by request
    later: Any = None  # content of each of their later turns
    conversations: int | None = None  # in progress at the same time
    seed: int | None = None


def workload_of(settings: Settings) -> InferencePerfData:
    data = settings.section("data")
    kind = data.text("type", "mock") or "mock"
    if kind not in _DATA:
        data.wrong("type", f"has no counterpart; there are {', '.join(_DATA)}")
        return InferencePerfData(kind)
    chat = kind == "shareGPT" and settings.section("api").text("type", "completion") != "completion"
    made = _sharegpt(data, chat) if chat else _DATA[kind](data)
    adapters = settings.section("load").sections("lora_traffic_split")
    if adapters:
        made.workload["models"] = {str(adapter.text("name")): adapter.number("split") for adapter in adapters}
    if "corpus_file_path" in data:
        data.wrong("corpus_file_path", "has no counterpart: the text of prompts is made up")
    if data.on("use_chat_template"):
        data.wrong("use_chat_template", "has no counterpart: use api.type chat")
    return made


def seconds(value: Any) -> Any:
    return f"{tidy(value)}s" if isinstance(value, int | float) else value


def lengths(section: Settings, name: str, default: Any = None) -> Any:
    """A length or a distribution: by default normal, 10 to 1024 with mean 512."""
    value = section.values.get(name)
    if value is None:
        return default
    if isinstance(value, int | float):
        return tidy(section.number(name) or 0)
    one = section.section(name)
    kind = one.text("type", "normal")
    least, most, mean = one.count("min", _LEAST) or 0, one.count("max", _MOST) or 0, one.number("mean", 512.0) or 0.0
    std = one.number("std_dev", one.number("std", 200.0))
    one.no_effect("total_count", "a length is drawn for every request")
    if (variance := one.number("variance")) is not None:
        std = math.sqrt(variance)
    if kind != "skew_normal":
        one.no_effect("skew", "belongs to skew_normal")
    if kind != "fixed" and not most:
        for unused in ("min", "mean", "std_dev", "variance", "type", "skew"):
            one.no_effect(unused, "the bounds leave nothing")
        return 0
    bounds = (max(least, 1), most)  # our texts have at least one token
    match kind:
        case "fixed":
            _bounds_unused(one)
            return tidy(mean)
        case "uniform":
            for unused in ("mean", "std_dev", "variance"):
                one.no_effect(unused, "a uniform distribution has only bounds")
            return f"{bounds[0]}-{most}" if bounds[0] != most else most
        case "normal" | "lognormal":
            return _drawn(one, mean, std, bounds, kind)
        case "skew_normal":
            return _skewed(one, mean, std or 0.0, bounds)
        case "poisson":
            one.note("type", "Poisson lengths are read as normal ones of the same mean and deviation")
            one.no_effect("std_dev", "the deviation follows from the mean")
            return bell(mean, math.sqrt(mean), *bounds)
    one.wrong("type", "has no counterpart")
    return None


def _skewed(one: Settings, place: float, scale: float, bounds: tuple[int, int]) -> Any:
    """A skew normal (Azzalini): `mean` and `std_dev` there are location and scale. With d = skew / sqrt(1 + skew^2),
    the mean is location + scale d sqrt(2/pi), the variance scale^2 (1 - 2 d^2 / pi)."""
    skew = one.number("skew", 0.0) or 0.0
    lean = skew / math.sqrt(1 + skew**2)
    mean, std = place + scale * lean * math.sqrt(2 / math.pi), scale * math.sqrt(1 - 2 * lean**2 / math.pi)
    shape = "lognormal" if skew > 0 else "normal"
    one.note(
        "type",
        f"read as {shape} with the same mean, {mean:.4g}, and deviation, {std:.4g}: mean and std_dev there are"
        " location and scale",
    )
    return bell(round(mean, 3), round(std, 3), *bounds, shape)


def _drawn(one: Settings, mean: float, std: float | None, bounds: tuple[int | None, int | None], kind: str) -> Any:
    """A distribution within bounds, or one value if the bounds or the deviation allow no other."""
    least, most = bounds
    if not std:
        for name in ("min", "max", "type", *(("std_dev", "variance") if least == most else ())):
            one.no_effect(name, "without a deviation every value is the mean")
    elif least == most:
        for name in ("mean", "std_dev", "variance", "type"):
            one.no_effect(name, "the bounds leave one value")
        return least
    return bell(mean, std, least, most, kind)


def _bounds_unused(one: Settings) -> None:
    for name in ("min", "max", "std_dev", "variance"):
        one.no_effect(name, "a fixed value has none")


def _synthetic(data: Settings) -> InferencePerfData:
    """With media, every request has inference-perf's default output length."""
    media = _media(data.section("multimodal"))
    if not media:
        return _random(data)
    data.no_effect("output_distribution", f"with media inference-perf requests {_NO_LENGTH} tokens")
    inputs = lengths(data, "input_distribution", 100)
    return InferencePerfData("random", {"input_tokens": inputs, "output_tokens": _NO_LENGTH, **media})


def _random(data: Settings) -> InferencePerfData:
    data.no_effect("multimodal", "only data.type synthetic and shared_prefix have media, also there")
    trace = data.section("trace")
    if trace.values:
        path, shape = trace.text("file"), trace.text("format", "AzurePublicDataset")
        if shape != "AzurePublicDataset":
            trace.wrong("format", "must be AzurePublicDataset")
        return InferencePerfData("trace", {"type": "azure", "path": path})
    workload: WorkloadDraft = {
        "input_tokens": lengths(data, "input_distribution", bell(512, 200, _LEAST, _MOST)),
        "output_tokens": lengths(data, "output_distribution", bell(512, 200, _LEAST, _MOST)),
    }
    for name in ("input", "output"):
        drawn = data.section(f"{name}_distribution")
        if drawn.text("type") == "lognormal" and (drawn.number("min", 10.0) or 0.0) > 1:
            drawn.note("type", "begins at min there, at 0 here; mean and deviation are the same")
    return InferencePerfData("random", workload)


def _mock(data: Settings) -> InferencePerfData:
    """Prompts of a few words, and answers of inference-perf's default length."""
    for name in ("input_distribution", "output_distribution", "multimodal"):
        data.no_effect(name, "the prompts of mock are a few words")
    return InferencePerfData("mock", {"type": "text", "text": "1 2 3 {index}", "output_tokens": _NO_LENGTH})


def _shared_prefix(data: Settings) -> InferencePerfData:
    own = data.section("shared_prefix")
    prompts = own.count("num_users_per_system_prompt", own.count("num_prompts_per_group", 10)) or 10
    groups = own.count("num_unique_system_prompts", own.count("num_groups", 10)) or 10
    several = own.on("enable_multi_turn_chat")
    question = "question_distribution" if own.values.get("question_distribution") else "question_len"
    output = "output_distribution" if own.values.get("output_distribution") else "output_len"
    for name in ("question_len", "output_len"):
        if name not in (question, output):
            own.no_effect(name, "the distribution is used")
    prefix: PrefixDraft = {
        "tokens": lengths(own, "system_prompt_len", 100),
        "suffix_tokens": lengths(own, question, 50),
        "groups": groups,
        "prompts": prompts,
    }
    media, shared = _media(data.section("multimodal")), _media(own.section("multimodal"))
    if shared:
        prefix["media"] = cast(MediaDraft, shared)
    workload: WorkloadDraft = {"prefix": prefix, "output_tokens": lengths(own, output, 50), **media}
    if several:
        own.note(
            "enable_multi_turn_chat",
            "every turn of a user repeats system prompt and question, as inference-perf does; here it is new text of"
            " that length",
        )
    return InferencePerfData(
        "shared_prefix",
        workload,
        users=groups * prompts if several else None,
        later=together(prefix["tokens"], prefix["suffix_tokens"]) if several else None,
        seed=own.count("seed"),
    )


def _sharegpt(data: Settings, chat: bool) -> InferencePerfData:
    """With completions the first question, if its length and that of its answer are within bounds; with chat whole
    conversations of any length."""
    bounds, outputs = data.section("input_distribution"), data.section("output_distribution")
    path = data.text("path")
    place: WorkloadDraft = {"path": path} if path else {"url": SHAREGPT}
    if chat:
        for name in ("input_distribution", "output_distribution"):
            data.no_effect(name, "with the chat API no conversation is left out")
        data.account.general.append(
            f"shareGPT with the chat API: everything up to the last question; answers of {_NO_LENGTH} tokens, as"
            " inference-perf requests where a prompt has no length of its own"
        )
        return InferencePerfData(
            "shareGPT", {"type": "sharegpt", **place, "turns": "whole", "output_tokens": _NO_LENGTH, "shuffle": False}
        )
    workload: WorkloadDraft = {
        "type": "table",
        **place,
        "columns": FIRST_PAIR,
        "min_tokens": bounds.count("min", _LEAST if bounds.values else None),
        "max_tokens": bounds.count("max", _MOST if bounds.values else None),
        "min_output_tokens": outputs.count("min", _LEAST if outputs.values else None),
        "max_output_tokens": outputs.count("max", _MOST if outputs.values else None),
        "shuffle": False,
    }
    for section in (bounds, outputs):
        for name in ("mean", "std_dev", "total_count", "type"):
            section.no_effect(name, "the lengths are those of the file")
    return InferencePerfData("shareGPT", workload)


def _visionarena(data: Settings) -> InferencePerfData:
    """The first question of each row and its image."""
    own = data.section("visionarena")
    workload: WorkloadDraft = {
        "type": "huggingface",
        "repo": own.text("hf_dataset_name", "lmarena-ai/VisionArena-Chat"),
        "split": own.text("hf_split", "train"),
        "columns": {"prompt": "conversation.0.0.content", "image": "images.0"},
        "limit": own.count("num_rows", 1000),
        "output_tokens": _NO_LENGTH,
        "shuffle": False,
    }
    if (pattern := own.text("hf_data_files")) is not None:
        workload["files"] = [pattern]
    if (own.count("max_images_per_request", 1) or 1) > 1:
        own.wrong("max_images_per_request", "must be 1: a row has one image")
    if "insertion_point" in own:
        own.note("insertion_point", "the image is where the API of the dataset has it, before the text")
    return InferencePerfData("visionarena", workload)


def _conversations(data: Settings) -> InferencePerfData:
    own = data.section("conversation_replay")
    per_turn = lengths(own, "input_tokens_per_turn", 512)
    first = _first_turn(own, per_turn)
    shared = own.count("shared_system_prompt_len", 8359) or None
    turns = lengths(own, "turns_per_conversation", 10)
    room, count = own.count("max_model_len"), own.count("num_conversations", 200)
    ends = "a session ends before it; inference-perf drops the oldest turns instead"
    if room is not None:
        own.note("max_model_len", ends)
    else:
        room = _ROOM
        own.account.general.append(f"max_model_len is {_ROOM:,}, the default of inference-perf: {ends}")
    if "tool_call_latency_sec" in own:
        own.note(
            "tool_call_latency_sec", "a pause before each turn but the first; inference-perf has one after the last"
        )
    opening: WorkloadDraft = {"input_tokens": first}
    if shared:
        opening = {"prefix": {"tokens": shared, "suffix_tokens": first}}
    workload: WorkloadDraft = {
        **opening,
        "turn_tokens": None if first == per_turn or turns == 1 else per_turn,
        "output_tokens": lengths(own, "output_tokens_per_turn", 256),
        "turns": turns,
        "think": _pause(own),
        "count": count,
        "max_context": room,
    }
    return InferencePerfData("conversation_replay", workload, conversations=count, seed=own.count("seed"))


def _first_turn(own: Settings, per_turn: Any) -> Any:
    """The text after the shared prefix: the conversation's own system prompt and its first question."""
    drawn = lengths(own, "dynamic_system_prompt_len")
    if not drawn or not per_turn:
        return per_turn
    own.account.general.append(
        "data.conversation_replay: the dynamic system prompt and the first question are drawn together"
    )
    return together(drawn, per_turn)


def _pause(own: Settings) -> Any:
    """Time that a tool takes before the next turn."""
    value = own.values.get("tool_call_latency_sec")
    if value is None or isinstance(value, int | float):
        return seconds(own.number("tool_call_latency_sec"))
    one = own.section("tool_call_latency_sec")
    kind, mean, std = one.text("type", "normal"), one.number("mean", 512.0) or 0.0, one.number("std_dev", 200.0) or 0.0
    least, most = one.number("min", _LEAST) or 0.0, one.number("max", _MOST) or 0.0
    if kind == "fixed":
        _bounds_unused(one)
        return seconds(mean)
    if kind == "uniform":
        for name in ("mean", "std_dev"):
            one.no_effect(name, "a uniform distribution has only bounds")
        return {"type": "uniform", "min": seconds(least), "max": seconds(most)}
    if kind not in ("normal", "lognormal"):
        one.wrong("type", "has no counterpart for a pause; there are fixed, uniform, normal, lognormal")
        return None
    if least == most or not std:
        return seconds(least if least == most else mean)
    return {
        "type": kind,
        **{name: seconds(v) for name, v in (("mean", mean), ("std", std), ("min", least), ("max", most))},
    }


# -- recordings ------------------------------------------------------------------------------------------------------


def _otel(data: Settings) -> InferencePerfData:
    own = data.section("otel_trace_replay")
    workload: WorkloadDraft = {"type": "otel", **_recording(own), "errors": own.on("include_errors", True)}
    if own.on("disable_output_substitution"):
        workload["answers"] = "recorded"
    for name in ("attribute_to_header_map", "attribute_to_label_map"):
        if name in own:
            own.wrong(name, "has no counterpart")
    data.account.general.append(
        "data.otel_trace_replay: a recorded temperature is sent; inference-perf leaves it to the server"
    )
    handling = own.text("bad_tool_call_handling", "none")
    if handling != "none":
        own.note("bad_tool_call_handling", "recorded tool calls are always sent as recorded")
    return InferencePerfData("otel_trace_replay", workload)


def _weka(data: Settings) -> InferencePerfData:
    own = data.section("weka_trace_replay")
    recording = _recording(own)
    recording.pop("output_tokens")  # every call has its own length
    own.no_effect("default_max_tokens", "every call has a recorded length")
    gap = own.number("trace_idle_gap_cap_seconds", 60.0)
    own.no_effect("datagen_workers", "sessions are made while they are sent")
    own.no_effect("bad_tool_call_handling", "these traces have no tool calls, only lengths")
    workload: WorkloadDraft = {
        "type": "weka",
        **recording,
        "block_tokens": own.count("default_block_size", 64),
        "max_gap": seconds(gap),
        "limit": own.count("num_dataset_entries", 100) if "repo" in recording else None,
    }
    if "repo" not in recording:
        own.no_effect("num_dataset_entries", "belongs to hf_dataset_path: all files are sent")
    own.note("default_block_size", "for traces that do not have theirs")
    data.account.general.append(
        "data.weka_trace_replay: a prompt is a system message and one of the user with the same blocks; answers are"
        " not distinguished in it"
    )
    return InferencePerfData("weka_trace_replay", workload)


def _recording(own: Settings) -> WorkloadDraft:
    """The location of recorded sessions, and the request settings that come from them."""
    files, folder, hub = own.value("trace_files"), own.text("trace_directory"), own.value("hf_dataset_path")
    place: WorkloadDraft = {"paths": list(files)} if files else {"path": folder} if folder else {}
    if isinstance(hub, str):
        place = {"repo": hub}
    elif isinstance(hub, dict):
        place = {"repo": hub.get("path"), "split": hub.get("split"), "subset": hub.get("name")}
        if more := set(hub) - {"path", "split", "name"}:
            own.wrong("hf_dataset_path", f"has no counterpart for {', '.join(sorted(more))}")
    if not place:
        own.wrong("trace_files", "is missing: give trace_files, trace_directory or hf_dataset_path")
    for name in ("use_static_model", "static_model_name", "model_mapping"):
        own.no_effect(name, "every request names server.model_name, also there")
    wait = own.number("max_wait_ms", 15000.0)
    if not own.on("override_tool_call_max_tokens", True):
        own.wrong("override_tool_call_max_tokens", "has no counterpart")
    for key in ("inject_random_session_id", "duplicate_sessions_target", "predecessor_wait_timeout_sec"):
        if key in own and own.values[key]:
            own.wrong(key, "has no counterpart")
        own.no_effect(key)
    limit = own.text("filter")
    if limit is not None and (longest := _longest(limit)) is not None:
        own.note("filter", f"sessions whose longest call has fewer than {longest} tokens")
        place["below_tokens"] = longest
    elif limit is not None:
        own.wrong("filter", "has no counterpart: it is Python code")
    return {
        **place,
        "output_tokens": own.count("default_max_tokens", 1000),
        "max_wait": seconds(None if wait is None else wait / 1000),
        "unusable": "skip" if own.on("skip_invalid_files") else "refuse",
    }


def _longest(text: str) -> int | None:
    """`lambda x: x['max_tokens'] < N`, or with `x.get('max_tokens', 0)`: the only filter used in profiles."""
    match = _SHORTER.fullmatch(text.replace('"', "'").replace(" ", ""))
    return int(match[1]) if match else None


# -- media -----------------------------------------------------------------------------------------------------------


def _media(section: Settings) -> WorkloadDraft:
    """Images, videos and sound in addition to the text."""
    made: WorkloadDraft = {}
    for name in ("image", "video", "audio"):
        if section.section(name).values and "count" not in section.section(name):
            section.no_effect(name, "without a count there are none, also there")
    if (image := section.section("image")).values.get("count") is not None:
        made["images"] = _images(image)
    if (video := section.section("video")).values.get("count") is not None:
        made["videos"] = _videos(video)
    if (audio := section.section("audio")).values.get("count") is not None:
        made["audio"] = _audio(audio)
    return made


def _items(own: Settings) -> tuple[Setting, float]:
    """The number of items per prompt, and their position."""
    position = own.number("insertion_point")
    if position is None:
        why = "without insertion_point inference-perf draws the place in the text, here it is the middle"
        own.account.general.append(f"{own.prefix.rstrip('.')}: {why}")
    return lengths(own, "count", 1), 0.5 if position is None else position


def _images(own: Settings) -> ImagesDraft:
    value = own.values.get("resolutions")
    (count, position), form = _items(own), own.text("representation", "png")
    made: ImagesDraft = {"count": count, "position": position, "format": form, "content": "solid"}
    if isinstance(value, str) or (isinstance(value, dict) and "height" in value):
        width, height = _size(own, "resolutions")
        return {**made, "width": width, "height": height}
    sizes: list[dict[str, JsonValue]] = []
    width = height = None
    for one in own.sections("resolutions"):
        width, height = _size(one, "resolution")
        sizes.append({"width": width, "height": height, "weight": one.number("weight", 1.0)})
    if len(sizes) == 1:
        for one in own.sections("resolutions"):
            one.no_effect("weight", "there is one size")
        return {**made, "width": width, "height": height}
    return {**made, "sizes": sizes} if sizes else made


def _size(own: Settings, name: str) -> tuple[int | None, int | None]:
    value = own.values.get(name)
    if isinstance(value, dict):
        place = own.section(name)
        return place.count("width"), place.count("height")
    text = own.text(name)
    if text not in RESOLUTIONS:
        own.wrong(name, f"must be {', '.join(RESOLUTIONS)}, or width and height")
        return None, None
    return RESOLUTIONS[text]


def _videos(own: Settings) -> VideosDraft:
    (count, position), form = _items(own), own.text("representation", "mp4")
    made: VideosDraft = {"count": count, "position": position, "format": form, "content": "solid"}
    if form == "mp4":
        own.account.general.append(f"{own.prefix.rstrip('.')}: MP4 files hold Motion JPEG, every frame a key frame")
    value = own.values.get("profiles")
    profiles = own.sections("profiles")
    sizes = []
    for one in profiles:
        weighted = isinstance(value, list)
        profile = one.section("profile") if weighted else one
        width, height = _size(profile, "resolution")
        weight = one.number("weight", 1.0) if weighted else 1.0
        sizes.append({"width": width, "height": height, "frames": profile.count("frames"), "weight": weight})
    return {**made, "sizes": sizes} if sizes else made


def _audio(own: Settings) -> SoundsDraft:
    value = own.values.get("durations")
    count, position = _items(own)
    made: SoundsDraft = {"count": count, "position": position, "content": "silence"}
    if value is None or isinstance(value, int | float):
        return {**made, "durations": [{"duration": seconds(own.number("durations", 1.0))}]}
    parts = [
        {"duration": seconds(one.number("duration")), "weight": one.number("weight", 1.0)}
        for one in own.sections("durations")
    ]
    return {**made, "durations": parts}


_DATA: dict[str, Callable[[Settings], InferencePerfData]] = {
    "random": _random,
    "synthetic": _synthetic,
    "mock": _mock,
    "shared_prefix": _shared_prefix,
    "shareGPT": partial(_sharegpt, chat=False),
    "visionarena": _visionarena,
    "conversation_replay": _conversations,
    "otel_trace_replay": _otel,
    "weka_trace_replay": _weka,
}
