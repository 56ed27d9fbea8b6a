"""guidellm's data sources as workloads."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from inferometer.documents.document import JsonValue
from inferometer.documents.json_text import json_value
from inferometer.plan.draft import ImagesDraft, WorkloadDraft
from inferometer.plan.foreign.common import Settings
from inferometer.plan.foreign.shapes import bell, tidy

_TEXT = "prompt|instruction|question|input|context|content|conversation|turn|text"  # columns that guidellm searches for
_COLUMNS = {
    "text_column": "prompt",
    "prefix_column": "system",
    "image_column": "image",
    "audio_column": "audio",
    "video_column": "video",
    "tools_column": "tools",
    "output_tokens_count_column": "output_tokens",
}
_MEDIA = ("synthetic_image", "synthetic_video")
_PRESETS = {
    "240p": (426, 240),
    "360p": (640, 360),
    "480p": (854, 480),
    "540p": (960, 540),
    "720p": (1280, 720),
    "1080p": (1920, 1080),
    "1440p": (2560, 1440),
    "2160p": (3840, 2160),
    "4k": (3840, 2160),
}
_CONTENT = {"gradient": "gradient", "noise": "noise", "solid": "solid"}
_FILES = ("json_file", "jsonl_file", "csv_file", "parquet_file", "text_file", "arrow_file")


@dataclass(frozen=True, slots=True)
class GuidellmData:
    """A workload, and its properties that affect the rest of the plan."""

    workload: WorkloadDraft = field(default_factory=WorkloadDraft)
    api: str = "chat"
    timed: bool = False  # it has arrival times
    calls_tools: bool = False


def source_of(text: str) -> dict[str, JsonValue]:
    """A data source in the syntax before 0.7: `prompt_tokens=256,output_tokens=128`, JSON, a file or a dataset."""
    if text.lstrip().startswith(("{", "[")):
        try:
            value = json_value(text)[0]
        except ValueError:
            value = None
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, dict):
            return {
                "kind": "synthetic_text",
                **{key: own for key, own in value.items() if key not in ("type", "source")},
            }
    parts = [part.partition("=") for part in text.split(",")]
    if all(sign for _, sign, _ in parts):
        return {"kind": "synthetic_text", **{key.strip(): value.strip() for key, _, value in parts}}
    ending = PurePath(text).suffix.lower()
    if ending in (".txt", ".csv", ".jsonl", ".json", ".parquet"):
        return {"kind": "text_file" if ending == ".txt" else f"{ending[1:]}_file", "path": text}
    return {"kind": "huggingface", "source": text}


def workload_of(spec: Settings, api: str) -> GuidellmData:
    """The workload of `data`, with the changes of mapper, loader, preprocessors and finalizer."""
    sources = spec.sections("data")
    media = [source for source in sources if source.values.get("kind") in _MEDIA]
    others = [source for source in sources if source.values.get("kind") not in _MEDIA]
    if len(others) > 1 or not sources:
        spec.wrong("data", "must be one source, with images and videos: several texts are joined there")
        return GuidellmData(api=api)
    workload: WorkloadDraft = _with_media({}, media) if media else {}
    if not others:
        spec.wrong("data", "must have a source of text in addition to images and videos")
        return GuidellmData(workload, api)
    (source,) = others
    kind = source.text("kind") or "synthetic_text"
    if kind not in _KINDS:
        source.wrong("kind", f"has no counterpart; there are {', '.join(_KINDS)}")
        return GuidellmData(api=api)
    if media and kind != "synthetic_text":
        source.wrong("kind", "must be synthetic_text with made-up images and videos")
    if "output_tokens" in source and "output_tokens" in workload:
        source.wrong("output_tokens", "is in two sources")
    workload = {**_KINDS[kind](source), **workload}
    _columns(spec, workload)
    _rows(spec, workload)
    timed = workload.get("type") in ("trace", "mooncake")
    return GuidellmData(workload, api, timed, "tools" in workload)


def _rows(spec: Settings, workload: WorkloadDraft) -> None:
    """Which rows are sent, in which order, and how they are processed."""
    loader = spec.section("data_loader")
    loader.no_effect("kind", "rows are read through an index")
    samples, shuffle = loader.count("samples", -1) or -1, loader.on("shuffle")
    for name in ("num_workers", "prefetch_factor"):
        loader.no_effect(name, "rows are read through an index")
    rows = workload.get("type") not in (None, "trace", "mooncake")
    if samples > 0:
        workload |= {"limit": samples} if rows else {"count": samples}
    if rows and not shuffle:
        workload["shuffle"] = False
    elif shuffle and not rows:
        loader.no_effect("shuffle", "made-up prompts have no order")
    for step in spec.sections("data_preprocessors"):
        match step.text("kind"):
            case "encode_media":
                step.no_effect("kind", "media are sent as data URLs")
            case "tool_calling_message_extractor":
                columns = workload.setdefault("columns", {})
                columns["messages"] = columns.pop("prompt", "messages")
                workload["turns"] = "questions"
            case _:
                step.wrong("kind", "has no counterpart")
    finalizer = spec.section("data_finalizer")
    if finalizer.text("kind", "generative") != "generative":
        finalizer.wrong("kind", "has no counterpart but generative")
    mode = finalizer.text("tool_call_mode", "client")
    if "tools" not in workload.get("columns", {}):
        finalizer.no_effect("tool_call_mode", "no column has tools")
    elif mode == "client":
        text = "client has no counterpart with tools of a dataset: it answers each call of the server"
        finalizer.wrong("tool_call_mode", text) if "tool_call_mode" in finalizer else finalizer.account.mistakes.append(
            f"guidellm: data_finalizer.tool_call_mode: {text}"
        )


def _columns(spec: Settings, workload: WorkloadDraft) -> None:
    mapper = spec.section("data_column_mapper")
    mapper.no_effect("kind", "columns are mapped by name")
    mapped = mapper.section("column_mappings")
    columns: dict[str, str] = {}
    for name in mapped:
        if name not in _COLUMNS:
            mapped.wrong(name, f"has no counterpart; there are {', '.join(_COLUMNS)}")
            continue
        value = mapped.value(name)
        columns[_COLUMNS[name]] = "|".join(map(str, value)) if isinstance(value, list) else str(value)
    if workload.get("type") in ("table", "huggingface"):
        media = {"image", "audio", "video"} & set(columns)
        workload["columns"] = {**({} if media and "prompt" not in columns else {"prompt": _TEXT}), **columns}
    elif columns:
        mapper.wrong("column_mappings", "belong to files and datasets")


# -- sources -------------------------------------------------------------------------------------------------------


def _synthetic(own: Settings) -> WorkloadDraft:
    own.no_effect("load_kwargs", "nothing is loaded")
    inputs, outputs = _lengths(own, "prompt_tokens"), _lengths(own, "output_tokens")
    turns = own.count("turns", 1) or 1
    first = _lengths(own, "first_prompt_tokens")
    if _lengths(own, "first_output_tokens") is not None:
        own.wrong("first_output_tokens", "has no counterpart: all turns ask for the same lengths")
    for name in ("branches", "server_tool_call_turns"):
        if own.values.get(name):
            own.wrong(name, "has no counterpart")
    whole: WorkloadDraft = {
        "output_tokens": outputs,
        "turns": turns if turns > 1 else None,
        "count": own.count("samples"),
    }
    if outputs is None:
        whole.pop("output_tokens")
    if first is not None and turns > 1:
        whole["turn_tokens"], inputs = inputs, first
    whole["think"] = _delay(own)
    whole |= _tools(own, turns)
    return {**_prefix(own, inputs), **whole}


def _prefix(own: Settings, inputs: Any) -> WorkloadDraft:
    groups, shared = own.count("prefix_count"), own.count("prefix_tokens")
    buckets = own.sections("prefix_buckets")
    if len(buckets) > 1:
        own.wrong("prefix_buckets", "must be one: use several traffic classes for several kinds of prefixes")
    for bucket in buckets:
        groups, shared = bucket.count("prefix_count", 1), bucket.count("prefix_tokens")
        bucket.no_effect("bucket_weight", "there is one bucket")
    if shared:
        own.account.general.append(
            "a prefix begins the first message of the user; in a chat guidellm sends it as system message"
        )
        return {"prefix": {"tokens": shared, "suffix_tokens": inputs, "groups": groups}}
    return {"input_tokens": inputs}


def _lengths(own: Settings, name: str) -> Any:
    mean, std = own.number(name), own.number(f"{name}_stdev", own.number(f"{name.removesuffix('s')}_stdev"))
    least, most = own.number(f"{name}_min"), own.number(f"{name}_max")
    if not all(value is None or math.isfinite(value) for value in (mean, std, least, most)):
        own.wrong(name, "must be a number of tokens")
        return None
    if mean is None:
        return None
    if std is None and least is not None and most is not None:
        return f"{int(least)}-{int(most)}"
    return bell(mean, std, 1 if least is None and std else least, most)


def _delay(own: Settings) -> Any:
    mean, std = own.number("delay"), own.number("delay_stdev")
    least, most = own.number("delay_min"), own.number("delay_max")
    if mean is None:
        return None
    if not std:
        return f"{tidy(mean)}s"
    bounds = {"min": least, "max": most}
    shaped = {"type": "normal", "mean": f"{tidy(mean)}s", "std": f"{tidy(std)}s"}
    return shaped | {name: f"{tidy(value)}s" for name, value in bounds.items() if value is not None}


def _tools(own: Settings, turns: int) -> WorkloadDraft:
    """Turns that ask for a tool call, each followed by a request with the tool's answer."""
    value = own.value("tool_call_turns")
    if isinstance(value, str):
        value = json_value(value)[0]
    if value in (None, 0, []):
        for name in ("tool_response_tokens", "tools"):
            own.no_effect(name, "no turn calls a tool")
        return {}
    calls = list(range(turns)) if value == -1 else list(range(value)) if isinstance(value, int) else sorted(value)
    if any(turn >= turns for turn in calls):
        own.wrong("tool_call_turns", f"must be turns below {turns}")
    return {
        "tools": {
            "turns": calls,
            "response_tokens": _lengths(own, "tool_response_tokens"),
            "definitions": own.value("tools"),
            "sent_with": "calls",
        }
    }


def _file(own: Settings) -> WorkloadDraft:
    path = own.text("path") or own.text("source")
    own.no_effect("load_kwargs", "the file is read as it is") if not own.values.get("load_kwargs") else None
    loading = own.section("load_kwargs")
    if loading.values.get("split") == "train":
        loading.no_effect("split", "a file has one split, of this name")
    if path is None:
        own.wrong("path", "is missing")
    return {"type": "prompts" if own.text("kind") == "text_file" else "table", "path": path}


def _with_media(workload: WorkloadDraft, sources: list[Settings]) -> WorkloadDraft:
    """Images and videos of every request in addition to its text. The output length is that of the request."""
    for own in sources:
        if (outputs := _lengths(own, "output_tokens")) is not None:
            workload["output_tokens"] = outputs
        own.no_effect("seed", "the seed of the plan decides")
        for name, why in (("jpeg_quality", "images have one quality"), ("video_bitrate", "videos are Motion JPEG")):
            if name in own:
                own.note(name, f"{why}: the size in bytes differs, the pixels do not")
        width, height = _pixels(own)
        content = own.text("content", "gradient")
        if content not in _CONTENT:
            own.wrong("content", f"has no counterpart; there are {', '.join(_CONTENT)}")
        shown = _CONTENT.get(str(content))
        one: ImagesDraft = {"width": width, "height": height, "content": shown, "position": 1}
        if own.text("kind") == "synthetic_image":
            count = own.count("images_per_request", 1)
            workload["images"] = {**one, "count": count, "format": own.text("format", "jpeg")}
        else:
            own.no_effect("format", "videos are MP4 files")
            frames, rate = own.count("frames"), own.number("fps", 1.0) or 1.0
            if frames is None:
                own.wrong("frames", "is missing")
            workload["videos"] = {**one, "frames": frames, "frames_per_second": tidy(rate)}
    return workload


def _pixels(own: Settings) -> tuple[int, int]:
    """Width and height, if necessary computed from the names of a resolution and a shape."""
    width, height = own.count("width"), own.count("height")
    name, shape = own.text("resolution"), own.text("aspect_ratio")
    ratio = None
    if shape is not None:
        across, _, down = shape.replace("/", ":").partition(":")
        try:
            ratio = float(across) / float(down)
        except (ValueError, ZeroDivisionError):
            own.wrong("aspect_ratio", "must be W:H")
    if name is not None and name.lower() not in _PRESETS:
        own.wrong("resolution", f"must be one of {', '.join(_PRESETS)}")
    elif name is not None:
        most, lines = _PRESETS[name.lower()]
        height = height or lines
        width = width or (round(height * ratio) if ratio else most)
    elif ratio and height and not width:
        width = round(height * ratio)
    elif ratio and width and not height:
        height = round(width / ratio)
    if not width or not height:
        own.wrong("width", "and height are missing")
    return max(2, (width or 2) // 2 * 2), max(2, (height or 2) // 2 * 2)  # even, as in guidellm


def _hub(own: Settings) -> WorkloadDraft:
    name = own.text("source") or own.text("src") or own.text("path") or own.text("name")
    if name is None:
        own.wrong("source", "is missing")
    loading = own.section("load_kwargs")
    for key in loading:
        if key not in ("name", "split"):
            loading.wrong(key, "has no counterpart; there are name and split")
    return {"type": "huggingface", "repo": name, "subset": loading.text("name"), "split": loading.text("split")}


def _trace(own: Settings) -> WorkloadDraft:
    """Rows with times in seconds in every format: Mooncake files have milliseconds, which guidellm does not
    convert. Since 0.8 the file is a separate source."""
    place = own.section("source") if isinstance(own.values.get("source"), dict) else own
    for part in {own.prefix: own, place.prefix: place}.values():
        part.no_effect("load_kwargs", "nothing is loaded")
    if place is not own and place.text("kind") not in _FILES:
        place.wrong("kind", f"has no counterpart; there are {', '.join(_FILES)}")
    columns = {
        "time": own.text("timestamp_column") or "timestamp",
        "input_tokens": own.text("prompt_tokens_column") or "input_length",
        "output_tokens": own.text("output_tokens_column") or "output_length",
    }
    path = place.text("path")
    if path is None:
        place.wrong("path", "is missing")
    made: WorkloadDraft = {"type": "trace", "path": path, "columns": columns, "unit": "s", "sort": True}
    if own.text("kind") == "mooncake":
        columns["hash_ids"] = own.text("hash_ids_column") or "hash_ids"
        made["block_tokens"] = own.count("hash_id_block_size", 512)
        own.note("kind", "times are read as seconds, as guidellm does: Mooncake's own files have milliseconds")
    return made


_KINDS: dict[str, Callable[[Settings], WorkloadDraft]] = {
    "synthetic_text": _synthetic,
    **dict.fromkeys(_FILES, _file),
    **dict.fromkeys(("huggingface", "hf"), _hub),
    "trace_synthetic": _trace,
    "mooncake": _trace,
}
