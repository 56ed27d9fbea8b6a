"""What the marks of a start say beside times: engine, model, load format, arguments, sizes, and sleeps."""

import ast
import re
from typing import Any

from inferometer.plan.redactor import REDACTED
from inferometer.plan.secrets import is_secret, redacted_text
from inferometer.target.startup.starts import Mark, Start

_CONFIG = re.compile(r"\b(model|load_format|dtype|quantization|tensor_parallel_size|pipeline_parallel_size"
                     r"|data_parallel_size|enforce_eager|device_config)=('[^']*'|[^,\s)]+)")  # fmt: skip
_OBJECT = re.compile(r"<[^<>]*>|\b[A-Za-z_][\w.]*\([^()]*\)")  # reprs that are no literals


def facts_of(start: Start) -> dict[str, Any]:
    """As far as it was said."""
    config, arguments = config_of(start), arguments_of(start)
    load_format = config.get("load_format") or arguments.get("load_format")
    return {
        "engine": "vLLM",
        "version": first_value(start, "version"),
        "platform": first_value(start, "platform"),
        "model": config.get("model") or arguments.get("model") or first_value(start, "model"),
        "load_format": _bare(load_format),
        "parallel": {name.removesuffix("_parallel_size"): int(config[name]) for name in config if "parallel" in name},
        "arguments": arguments,
        "device": config.get("device_config"),
        "eager": str(config.get("enforce_eager", arguments.get("enforce_eager"))) == "True",
        "serves": serves(start),
        "cache": cache_word(start),
    }


def first_value(start: Start, name: str) -> Any:
    return next((mark.values[name] for mark in start.marks if name in mark.values), None)


def serves(start: Start) -> bool:
    """Whether it is a server: an engine inside of somebody's script has no API to start."""
    if start.of("server_version", "api_begins", "routes", "api_ends"):
        return True
    return any(name.lower().startswith("apiserver") for name in start.processes)


def cache_word(start: Start) -> str | None:
    """Whether compiled graphs came from the cache."""
    if start.of("cache_read"):
        return "hit" if not start.of("inductor") else "partly"
    return "miss" if start.of("inductor") else None


def config_of(start: Start) -> dict[str, str]:
    """Of the line with which the engine begins."""
    text = str(first_value(start, "config") or "")
    found: dict[str, str] = {}
    for name, value in _CONFIG.findall(text):
        found.setdefault(name, value.strip("'"))
    return found


def arguments_of(start: Start) -> dict[str, Any]:
    """What was not left at its default, with secrets starred; {} where it cannot be read."""
    text = str(first_value(start, "arguments") or "")
    text = text.partition("}")[0] + "}" if text.startswith("{") and "{" not in text[1:] else text
    for attempt in (text, _OBJECT.sub(lambda found: repr(found[0]), text)):
        try:
            said = ast.literal_eval(attempt)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return (
            {str(name): _harmless(str(name), value) for name, value in said.items()} if isinstance(said, dict) else {}
        )
    return {}


def _harmless(name: str, value: Any) -> Any:
    if is_secret(name):
        return REDACTED
    if isinstance(value, dict):
        return {str(inner): _harmless(str(inner), each) for inner, each in value.items()}
    if isinstance(value, list | tuple):
        return [_harmless("", each) for each in value]
    return redacted_text(value) if isinstance(value, str) else value


def _bare(load_format: object) -> str | None:
    """`safetensors`, also where an old version wrote `LoadFormat.SAFETENSORS`."""
    return None if load_format is None else str(load_format).rpartition(".")[2].lower()


def sizes_of(start: Start) -> dict[str, float]:
    """Bytes and tokens, summed over processes: each worker has its part."""
    named = {
        "weights_size": ("weights_end", "size"),
        "stream_size": ("streamed", "size"),
        "kv_cache_size": ("cache_memory", "size"),
        "kv_cache_tokens": ("cache_tokens", "tokens"),
        "kv_cache_blocks": ("cache_blocks", "blocks"),
        "graph_size": ("captured", "size"),
        "free_before": ("free_before", "size"),
        "free_after": ("free_after", "size"),
    }
    found = {name: _summed(start.of(mark), value) for name, (mark, value) in named.items()}
    return {name: value for name, value in found.items() if value is not None}


def _summed(marks: list[Mark], value: str) -> float | None:
    """The last of each process counts."""
    last = {mark.process: mark.values[value] for mark in marks if value in mark.values}
    return sum(float(each) for each in last.values()) if last else None


def sleeps_of(start: Start) -> list[dict[str, Any]]:
    """How long it took to fall asleep, what that freed, and how long to wake up; several where it slept several times.
    What was freed is said by each worker, and before the time it took is said."""
    sleeps: list[dict[str, Any]] = []
    freed: list[Mark] = []
    for mark in start.of("freed", "asleep", "awake"):
        match mark.name:
            case "freed":
                freed.append(mark)
            case "asleep":
                sleeps.append({"seconds": mark.values["seconds"], **_freed(freed), "wake_seconds": None})
                freed = []
            case "awake" if sleeps and sleeps[-1]["wake_seconds"] is None:
                sleeps[-1]["wake_seconds"] = mark.values["seconds"]
            case "awake":
                sleeps.append({"seconds": None, **_freed(freed), "wake_seconds": mark.values["seconds"]})
                freed = []
    if freed:
        sleeps.append({"seconds": None, **_freed(freed), "wake_seconds": None})
    return sleeps


def _freed(marks: list[Mark]) -> dict[str, float | None]:
    return {"freed_bytes": _summed(marks, "freed"), "in_use_bytes": _summed(marks, "in_use")}
