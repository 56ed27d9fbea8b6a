"""Expands short forms in plain mappings: `server: simulator`, `stop: 60s`, inheritance of traffic classes.

Values that are not understood stay unchanged, and the model reports the error.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from inferometer import vocabulary
from inferometer.documents.document import JsonObject, JsonValue
from inferometer.wire.api import endpoints

INHERITED = ("workload", "load", "sampling", "stop", "limits")
RATE_TYPES = ("constant", "poisson", "gamma")
TRACES = ("azure", "mooncake", "burstgpt", "trace")
_FILE_NAMES = {  # parts of well-known file names, and the type that they imply
    "sharegpt": "sharegpt",
    "sonnet": "sonnet",
    "humaneval": "humaneval",
    "human-eval": "humaneval",
    "mt_bench": "mt_bench",
    "mt-bench": "mt_bench",
    "oasst": "oasst",
    "mooncake": "mooncake",
    "burstgpt": "burstgpt",
    "azurellm": "azure",
}
_ENDINGS = {".txt": "prompts", ".csv": "table", ".jsonl": "table", ".parquet": "table"}


def target(value: Any) -> Any:
    """`http://...`, or several of them, are a target's `url`; `http://host/v1/chat/completions` names its `api` too."""
    opened = {"url": value} if isinstance(value, str | list) else value
    return _without_endpoint(opened) if isinstance(opened, Mapping) else opened


def _without_endpoint(target: JsonObject) -> JsonObject:
    """URLs that contradict each other or a set `api` stay unchanged, and the model reports the error."""
    written = target.get("url")
    urls = [written] if isinstance(written, str) else written
    if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls) or target.get("path") is not None:
        return target
    split = [endpoint(url) for url in urls]
    apis = {api for _, api in split}
    if len(apis) != 1 or None in apis or target.get("api") not in {None, *apis}:
        return target
    bases = [base for base, _ in split]
    return {**target, "url": bases[0] if isinstance(written, str) else bases, "api": apis.pop()}


def endpoint(url: str) -> tuple[str, str | None]:
    """The base address and the API of a URL that ends in a request path; `None` for other URLs."""
    whole = url.strip().rstrip("/")
    path = next((path for path in endpoints() if whole.endswith(path)), None)
    return (url, None) if path is None else (whole.removesuffix(path), endpoints()[path])


def server(value: Any) -> Any:
    """`simulator` is a server's `type`; in a fleet, a text is the type of its replicas and the policy of its router."""
    if not isinstance(value, Mapping):
        return {"type": value} if isinstance(value, str) else value
    inner = {"of": "type", "router": "policy"}
    return {**value, **{name: {key: value[name]} for name, key in inner.items() if isinstance(value.get(name), str)}}


def extent(value: Any) -> Any:
    """`60s` is a `duration`; `500` and `2k` are `requests`: for `stop` and `warmup`."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    return {"duration": value} if isinstance(value, str) and not _is_number(value) else {"requests": value}


def _is_number(text: str) -> bool:
    if text.strip().endswith("m"):  # 5m are minutes; a million is written 5M
        return False
    try:
        vocabulary.number(text)
    except ValueError:
        return False
    return True


def load(value: Any) -> Any:
    """A load without `type` gets the type that its fields belong to."""
    if not isinstance(value, Mapping):
        return value
    kind = load_type(value)
    users = value.get("sessions_at_once")
    slots = {"concurrency": users} if kind == "concurrency" and users and value.get("concurrency") is None else {}
    return {"type": kind, **value, **slots}


def load_type(value: JsonObject) -> str:
    """The type of a load: as written, or implied by its fields."""
    given = {name for name, setting in value.items() if setting is not None}
    if "type" in given:
        return str(value["type"])
    if "stages" in given:
        return "stages"
    if "speed" in given:
        return "replay"
    if not given & {"rate", "tokens_per_s"}:
        return "concurrency"
    return "ramp" if "to" in given else "gamma" if "cv" in given else "poisson"


def workload_type(value: Any) -> str | None:
    """The type of a workload: as written, or implied by its fields and its file's name; `None` if there is none."""
    if not isinstance(value, Mapping):
        return None
    given = {name for name, setting in value.items() if setting is not None}
    if "type" in given:
        return str(value["type"])
    if "repo" in given:
        return "huggingface"
    if not given & {"path", "url"}:
        return "synthetic"
    place = str(value.get("path") or value.get("url")).lower()
    name = place.partition("?")[0].rpartition("/")[2]
    by_name = next((kind for part, kind in _FILE_NAMES.items() if part in name), None)
    return by_name or next((kind for ending, kind in _ENDINGS.items() if name.endswith(ending)), None)


def several(value: Any) -> Any:
    """A single entry becomes a list of one."""
    return [value] if isinstance(value, str | Mapping) else value


_LONG = {
    "target": target,
    "server": server,
    "stop": extent,
    "warmup": extent,
    "limits": several,
    "outputs": several,
    "traffic": several,
}


def long(plan: JsonObject) -> dict[str, JsonValue]:
    """The plan (or one traffic class) with its short forms expanded, so that paths can refer to their parts."""
    opened = {name: _LONG[name](value) if name in _LONG else value for name, value in plan.items()}
    for name, field in (("target", "url"), ("sampling", "stop")):
        section = opened.get(name)
        if isinstance(section, Mapping) and field in section:
            opened[name] = {**section, field: several(section[field])}
    classes = opened.get("traffic")
    if isinstance(classes, list):
        opened["traffic"] = [long(traffic) if isinstance(traffic, Mapping) else traffic for traffic in classes]
    return opened


def inherited(plan: JsonObject) -> dict[str, JsonValue]:
    """The plan with complete traffic classes: missing settings are taken from the top of the plan."""
    classes = plan.get("traffic")
    if not isinstance(classes, list | tuple) or not all(
        isinstance(given_fields(traffic), Mapping) for traffic in classes
    ):
        return dict(plan)
    complete = [replayed(_class(plan, given_fields(traffic), at, len(classes))) for at, traffic in enumerate(classes)]
    return {**plan, "traffic": complete}


def _class(plan: JsonObject, own: JsonObject, at: int, classes: int) -> dict[str, JsonValue]:
    above = {name: plan[name] for name in INHERITED if name in plan}
    whole = {**above, **own}
    for name in ("workload", "sampling", "stop"):  # field by field; a load's fields belong to its type
        top, mine = given_fields(above.get(name)), given_fields(own.get(name))
        if isinstance(top, Mapping) and isinstance(mine, Mapping) and not _is_another_kind(name, top, mine):
            whole[name] = {**top, **mine}
    return {"name": "default" if classes == 1 else f"class-{at + 1}", **whole}


def _is_another_kind(name: str, top: JsonObject, mine: JsonObject) -> bool:
    """Whether a class has a workload of another type than the plan, from which it then inherits nothing."""
    if name != "workload" or not {"type", "path", "url", "repo"} & set(mine):
        return False
    return workload_type(mine) != workload_type(top)


def replayed(plan: JsonObject) -> dict[str, JsonValue]:
    """The plan (or one class) with `load: replay` if it sends a trace and has no load."""
    if workload_type(given_fields(plan.get("workload"))) in TRACES and plan.get("load") is None:
        return {**plan, "load": {"type": "replay"}}
    return dict(plan)


def given_fields(value: Any) -> Any:
    """The fields that were set in a section, given as a mapping or, in Python, as the section itself."""
    if isinstance(value, BaseModel):
        kind = {"type": value.type} if hasattr(value, "type") else {}
        return kind | {name: getattr(value, name) for name in value.model_fields_set}
    return value
