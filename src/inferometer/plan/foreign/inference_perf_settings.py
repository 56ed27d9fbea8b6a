"""Every setting that inference-perf's YAML can have: what is read, and what a plan says elsewhere or not at all."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

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
