"""inference-perf's YAML and command line: `load`, `api`, `server`, `tokenizer`, `data`, `report`,
`storage` as a plan."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from inferometer.errors import PlanError
from inferometer.plan.foreign.arguments import Flag, parse
from inferometer.plan.foreign.found import Foreign, without_missing
from inferometer.plan.foreign.shapes import ESTIMATED, bell, experiment, of_sessions, tidy, together
from inferometer.plan.foreign.templates import changed
from inferometer.plan.reading import file_text
from inferometer.plan.text import parse_yaml

# -- inference perf settings -----------------------------------------------------------------------------------------

ELSEWHERE = {
    "report": "a run has its summary, its stages and its records; there is nothing to choose",
    "storage": "runs are kept in the store (--store); outputs write more files",
    "metrics": "the metrics of a server are not read through Prometheus",
    "circuit_breakers": "stop.errors ends a run after so many failures",
}
LOAD_ELSEWHERE = {
    "num_workers": "processes are added only where one is not enough: --workers",
    "worker_max_concurrency": "connections are opened as they are needed",
    "worker_max_tcp_connections": "connections are opened as they are needed",
    "interval": "there is no pause between stages; a stage of rate 0 is one",
    "circuit_breakers": "stop.errors ends a run after so many failures",
}
_DISTRIBUTION = dict.fromkeys(("type", "min", "max", "mean", "std", "std_dev", "variance", "total_count"))
_SHARED = (
    *("num_groups", "num_prompts_per_group", "num_unique_system_prompts", "num_users_per_system_prompt"),
    "enable_multi_turn_chat",
)
_SHARED_LENGTHS = ("system_prompt_len", "question_len", "output_len", "question_distribution", "output_distribution")
_REPLAY_LENGTHS = (
    *("dynamic_system_prompt_len", "input_tokens_per_turn", "output_tokens_per_turn", "turns_per_conversation"),
    "tool_call_latency_sec",
)
_STAGE = dict.fromkeys(("rate", "duration", "num_requests", "concurrency_level"))
_SWEEP = dict.fromkeys(("type", "num_requests", "timeout", "num_stages", "stage_duration", "saturation_percentile"))
_KNOWN: dict[str, Any] = {  # what is read or has a note; nothing below what is None
    **dict.fromkeys(ELSEWHERE),
    "load": dict.fromkeys((*LOAD_ELSEWHERE, "type", "base_seed", "request_timeout"))
    | {"sweep": _SWEEP, "stages": _STAGE, "lora_traffic_split": dict.fromkeys(("name", "split"))},
    "api": dict.fromkeys(("type", "streaming", "headers", "response_format")),
    "server": dict.fromkeys(("type", "model_name", "base_url", "ignore_eos", "api_key", "cert_path", "key_path")),
    "tokenizer": dict.fromkeys(("pretrained_model_name_or_path", "trust_remote_code", "token")),
    "data": {
        **dict.fromkeys(("type", "path", "multimodal")),
        **dict.fromkeys(("input_distribution", "output_distribution"), _DISTRIBUTION),
        "shared_prefix": dict.fromkeys(_SHARED) | dict.fromkeys(_SHARED_LENGTHS, _DISTRIBUTION),
        "conversation_replay": dict.fromkeys(("shared_system_prompt_len", "num_conversations"))
        | dict.fromkeys(_REPLAY_LENGTHS, _DISTRIBUTION),
    },
}


def unread(said: Any, known: Any = _KNOWN, above: str = "") -> Iterator[str]:
    """The settings that nobody reads, by their path."""
    if isinstance(said, list):
        for at, each in enumerate(said):
            yield from unread(each, known, f"{above}{at}.")
    for name, value in said.items() if isinstance(said, Mapping) and known is not None else ():
        if name in known:
            yield from unread(value, known[name], f"{above}{name}.")
        else:
            yield f"{above}{name}"


def may_have(path: Sequence[str | int]) -> Collection[str]:
    """The settings that the section at a path can have, whether a file says them or not."""
    known: Any = _KNOWN
    for step in path:
        known = known if isinstance(step, int) else (known or {}).get(step)
    return list(known or ())


# -- inference perf --------------------------------------------------------------------------------------------------

TOOL = "inference-perf"
SECTIONS = ("load", "api", "server", "tokenizer", "data", "report", "storage", "metrics", "circuit_breakers")
_APIS = {"completion": None, "chat": "chat", "anthropic_messages": "anthropic"}
BURST_S = 5  # in which a sweep sends all requests of its first stage
SHAREGPT = (
    "https://huggingface.co/datasets/anon8231489123/ShareGPT_Vicuna_unfiltered/resolve/main/"
    "ShareGPT_V3_unfiltered_cleaned_split.json"
)


def is_it(said: Mapping[str, Any]) -> bool:
    """Whether a file's content is an inference-perf configuration: no plan of ours has these sections."""
    return bool({"data", "api", "tokenizer", "report", "storage"} & set(said)) and set(said) <= set(SECTIONS)


def from_mapping(said: Mapping[str, Any]) -> Foreign:
    """The plan that a configuration means; everything wrong with it at once."""
    reading = _Reading(said)
    plan = {
        "target": reading.target(),
        "workload": reading.workload(),
        "sampling": reading.sampling(),
        "seed": reading.section("load").get("base_seed"),
    }
    load, varied = reading.load_and_stop()
    if reading.mistakes:
        raise PlanError([f"{TOOL}: {each}" for each in reading.mistakes])
    reading.notes += [f"{path}: is not known here, and has no effect" for path in unread(said)]
    whole = of_sessions(without_missing({**plan, **load}), reading.notes) if load else {}
    return Foreign(TOOL, whole, reading.notes, experiment(without_missing(plan), varied, reading.notes))


class _Reading:
    """One configuration while it is read: what is wrong with it, and what a person should know."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self.said = said
        self.mistakes: list[str] = []
        self.notes = [f"{name}: {text}" for name, text in ELSEWHERE.items() if said.get(name)]

    def section(self, name: str) -> dict[str, Any]:
        value = self.said.get(name) or {}
        if isinstance(value, Mapping):
            return dict(value)
        self.mistakes.append(f"{name} must be settings by name, got {value}")
        return {}

    def target(self) -> dict[str, Any]:
        server, api = self.section("server"), self.section("api")
        kind = api.get("type", "completion")
        if kind not in _APIS:
            self.mistakes.append(f"api.type must be one of {', '.join(_APIS)}, got {kind}")
        headers = dict(api.get("headers") or {})
        if server.get("api_key"):
            headers["Authorization"] = f"Bearer {server['api_key']}"
        return {
            "url": server.get("base_url"),
            "model": server.get("model_name"),
            "api": _APIS.get(kind),
            "stream": None if api.get("streaming", False) else False,
            "headers": headers,
            "tls": {"cert": server.get("cert_path"), "key": server.get("key_path")},
            "timeout": {"request": self.section("load").get("request_timeout")},
        }

    def sampling(self) -> dict[str, Any]:
        ignore = self.section("server").get("ignore_eos", True)
        shape = self.section("api").get("response_format")
        if shape:
            self.notes.append("api.response_format: write it as sampling.extra.response_format, as the server takes it")
        return {"ignore_eos": None if ignore else False}

    # ---- what is sent

    def workload(self) -> dict[str, Any]:
        data = self.section("data")
        kind = data.get("type", "mock")
        if kind not in _DATA:
            known = ", ".join(_DATA)
            self.mistakes.append(f"data.type {kind} has no counterpart; there are {known}")
            return {}
        workload = _DATA[kind](self, data)
        adapters = self.section("load").get("lora_traffic_split") or []
        if adapters and workload.get("type", "synthetic") == "synthetic":
            workload["models"] = {each.get("name"): each.get("split") for each in adapters}
        elif adapters:
            self.mistakes.append(f"load.lora_traffic_split goes with made-up prompts only, not with {kind}")
        return {**workload, "tokenizer": self.tokenizer(kind)}

    def tokenizer(self, kind: str) -> str | None:
        name = self.section("tokenizer").get("pretrained_model_name_or_path")
        if name != self.section("server").get("model_name") or kind == "shareGPT":
            return name
        self.notes.append(ESTIMATED)
        return None

    def lengths(self, said: Any, where: str) -> Any:
        """inference-perf's distribution: normal by default, 10 to 1024 about 512."""
        if isinstance(said, int | float):
            return tidy(said)
        if not isinstance(said, Mapping):
            self.mistakes.append(f"{where} must be a length or a distribution, got {said}")
            return None
        kind = said.get("type", "normal")
        least, most = said.get("min", 10), said.get("max", 1024)
        std = said.get("std_dev", said.get("std", 200))
        if said.get("variance") is not None:
            std = math.sqrt(said["variance"])
        match kind:
            case "fixed":
                return tidy(said.get("mean", 512))
            case "uniform":
                return f"{least}-{most}"
            case "normal" | "lognormal":
                return bell(said.get("mean", 512), std, least, most, kind)
            case "skew_normal":
                self.notes.append(f"{where}: a skewed normal is read as a lognormal of the same mean and deviation")
                return bell(said.get("mean", 512), std, least, most, "lognormal")
            case "poisson":
                self.notes.append(f"{where}: Poisson lengths are read as normal ones of the same mean and deviation")
                return bell(said.get("mean", 512), math.sqrt(said.get("mean", 512)), least, most)
        self.mistakes.append(f"{where}.type {kind} has no counterpart")
        return None

    def random(self, data: Mapping[str, Any]) -> dict[str, Any]:
        both = {name: data.get(f"{name}_distribution") or {} for name in ("input", "output")}
        counts = [count for each in both.values() if (count := each.get("total_count")) is not None]
        if data.get("multimodal"):
            self.notes.append("data.multimodal: images are workload.images, of one size")
        return {
            "input_tokens": self.lengths(both["input"], "data.input_distribution"),
            "output_tokens": self.lengths(both["output"], "data.output_distribution"),
            "count": max(counts) if counts else None,
        }

    def shared_prefix(self, data: Mapping[str, Any]) -> dict[str, Any]:
        said = dict(data.get("shared_prefix") or {})
        questions = said.get("question_distribution") or said.get("question_len", 50)
        outputs = said.get("output_distribution") or said.get("output_len", 50)
        prompts = said.get("num_users_per_system_prompt", said.get("num_prompts_per_group", 10))
        several = bool(said.get("enable_multi_turn_chat"))
        prefix = {
            "tokens": self.lengths(said.get("system_prompt_len", 100), "data.shared_prefix.system_prompt_len"),
            "suffix_tokens": self.lengths(questions, "data.shared_prefix.question_len"),
            "groups": said.get("num_unique_system_prompts", said.get("num_groups", 10)),
            "prompts": None if several else prompts,
        }
        if several:
            self.notes.append("enable_multi_turn_chat: users go on for as many turns as a group has prompts")
        return {
            "prefix": prefix,
            "output_tokens": self.lengths(outputs, "data.shared_prefix.output_len"),
            "turns": prompts if several else None,
        }

    def sharegpt(self, data: Mapping[str, Any]) -> dict[str, Any]:
        bounds = data.get("input_distribution") or {}
        place = {"path": data["path"]} if data.get("path") else {"url": SHAREGPT}
        if data.get("output_distribution"):
            self.notes.append("data.output_distribution: answers are asked to be as long as those of the file")
        return {"type": "sharegpt", **place, "min_tokens": bounds.get("min"), "max_tokens": bounds.get("max")}

    def conversations(self, data: Mapping[str, Any]) -> dict[str, Any]:
        said = dict(data.get("conversation_replay") or {})
        where = "data.conversation_replay"
        pause = said.get("tool_call_latency_sec")
        asked = self.lengths(said.get("input_tokens_per_turn", {}), f"{where}.input_tokens_per_turn")
        first = self._first_turn(said, asked, where)
        shared = said.get("shared_system_prompt_len") or None
        turns = self.lengths(said.get("turns_per_conversation", {}), f"{where}.turns_per_conversation")
        return {
            **({"prefix": {"tokens": shared, "suffix_tokens": first}} if shared else {"input_tokens": first}),
            "turn_tokens": None if first == asked or turns == 1 else asked,
            "output_tokens": self.lengths(said.get("output_tokens_per_turn", {}), f"{where}.output_tokens_per_turn"),
            "turns": turns,
            "think": _pause(pause) if pause is not None else None,
            "count": said.get("num_conversations"),
        }

    def _first_turn(self, said: Mapping[str, Any], asked: Any, where: str) -> Any:
        """Behind what is shared: the system prompt of a conversation's own, and its first question."""
        if not said.get("dynamic_system_prompt_len") or asked is None:
            return asked
        own = self.lengths(said["dynamic_system_prompt_len"], f"{where}.dynamic_system_prompt_len")
        self.notes.append(f"{where}: the dynamic system prompt and the first question are drawn together")
        return None if own is None else together(own, asked)

    # ---- when it is sent

    def load_and_stop(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a plan says of it, and what an experiment varies; either may be empty."""
        load = self.section("load")
        self.notes += [f"load.{name}: {text}" for name, text in LOAD_ELSEWHERE.items() if load.get(name) is not None]
        kind, stages = load.get("type", "constant"), load.get("stages") or []
        if load.get("sweep"):
            return {}, self._swept(kind, load["sweep"])
        if not stages:
            self.mistakes.append("load.stages is missing")
            return {}, {}
        match kind:
            case "constant" | "poisson":
                return self._rates(stages, kind), self._of_rates(stages, kind)
            case "concurrent":
                return self._concurrencies(stages)
        self.mistakes.append(f"load.type {kind} has no counterpart; there are constant, poisson, concurrent")
        return {}, {}

    def _rates(self, stages: list[dict[str, Any]], kind: str) -> dict[str, Any]:
        if len(stages) == 1:
            (only,) = stages
            return {
                "load": {"type": kind, "rate": only.get("rate")},
                "stop": {"duration": _seconds(only.get("duration"))},
            }
        said = [
            {"rate": each.get("rate"), "duration": _seconds(each.get("duration")), "process": kind} for each in stages
        ]
        return {"load": {"type": "stages", "stages": said}}

    def _of_rates(self, stages: list[dict[str, Any]], kind: str) -> dict[str, Any]:
        """Each a run of its own, where that is asked for."""
        if len(stages) == 1 or not all(each.get("rate") for each in stages):
            return {}
        levels = {"load.rate": [each["rate"] for each in stages]}
        lasts = {"stop.duration": [_seconds(each.get("duration")) for each in stages]}
        return {"set": {"load.type": kind}, "zip": {**levels, **lasts}}

    def _concurrencies(self, stages: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
        if len(stages) > 1:
            levels = {"load.concurrency": [each.get("concurrency_level") for each in stages]}
            return {}, {"zip": {**levels, "stop.requests": [each.get("num_requests") for each in stages]}}
        (only,) = stages
        return {
            "load": {"type": "concurrency", "concurrency": only.get("concurrency_level")},
            "stop": {"requests": only.get("num_requests")},
        }, {}

    def _swept(self, kind: str, sweep: Any) -> dict[str, Any]:
        """A burst whose draining tells the rate that the server bears, and rates from 1 up to it."""
        if kind not in ("constant", "poisson") or not isinstance(sweep, Mapping):
            self.mistakes.append(f"load.sweep must be settings by name beside type constant or poisson, got {kind}")
            return {}
        if self.section("load").get("stages"):
            self.notes.append("load.stages: are not done, for those that load.sweep finds take their place")
        spacing = {"linear": "linear", "geometric": "narrowing"}.get(str(sweep.get("type", "linear")))
        if spacing is None:
            self.mistakes.append(f"load.sweep.type must be linear or geometric, got {sweep['type']}")
        requests, count = sweep.get("num_requests", 2000), sweep.get("num_stages", 5)
        burst = {"load": {"type": kind, "rate": tidy(requests / BURST_S)}}
        stop = {"requests": requests, "drain": _seconds(max(sweep.get("timeout", 60) - BURST_S, 0))}
        levels = {
            "low": 1,
            "high": {**burst, "stop": stop},
            "count": count,
            "spacing": spacing,
            "ends": "both",
            "measure": f"drain_rate p{tidy(sweep.get('saturation_percentile', 95))}",
            "set": {"load": {"type": kind}, "stop.duration": _seconds(sweep.get("stage_duration", 180))},
        }
        return {"levels": levels}


def _seconds(value: Any) -> Any:
    return f"{tidy(value)}s" if isinstance(value, int | float) else value


def _pause(said: Any) -> Any:
    if isinstance(said, int | float):
        return _seconds(said)
    kind = said.get("type", "normal")
    if kind == "fixed":
        return _seconds(said.get("mean"))
    shaped = {"type": kind, "mean": said.get("mean"), "std": said.get("std_dev"), "min": said.get("min")}
    return {name: value if name == "type" else _seconds(value) for name, value in shaped.items() if value is not None}


_DATA: dict[str, Callable[[_Reading, Mapping[str, Any]], dict[str, Any]]] = {
    "random": _Reading.random,
    "synthetic": _Reading.random,
    "mock": _Reading.random,
    "shared_prefix": _Reading.shared_prefix,
    "shareGPT": _Reading.sharegpt,
    "conversation_replay": _Reading.conversations,
}

# -- files -----------------------------------------------------------------------------------------------------------


def inference_perf(words: Sequence[str]) -> Foreign:
    """`inference-perf --config_file X`, where every other flag is a setting by its dotted path."""
    others = [word.lstrip("-").partition("=")[0].replace("_", "-") for word in words if word.startswith("--")]
    flags = {name: Flag() for name in others} | {"config-file": Flag()}
    given, _ = parse(TOOL, words, flags, {"-c": "config-file"})
    name = given.text("config-file")
    if name is None:
        raise PlanError(f"{TOOL}: --config_file is missing")
    path = Path(name)
    if not path.is_file():
        raise PlanError(f"{TOOL}: --config_file {name}: there is no such file")
    said, twice = parse_yaml(file_text(path), name)
    changes = [f"{key.replace('-', '_')}={value}" for key, value in given.values.items() if key != "config-file"]
    said, notes = changed(said, changes, name, may_have)
    given.mistakes += twice
    given.settle()
    return from_mapping(said).noted(notes)
