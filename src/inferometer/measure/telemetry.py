"""The names of everything that is sampled during the load. Samplers write these names, summaries read them.

A histogram of a server is three samples: `ttft_sum`, `ttft_count`, and `ttft_bucket` with the bound as label `le`.
"""

from typing import Literal, NamedTuple

MetricKind = Literal["gauge", "counter", "histogram"]

HOST = "host"
GPU = "gpu:"  # before the index of the GPU
DCGM = "DCGM"  # in place of an engine's name: an exporter of GPU metrics only
PICKER = "llm-d endpoint picker"  # in place of an engine's name: it chooses the pod of a request
ROUTER = "router"  # decisions of a router in front of several servers


class ServerName(NamedTuple):
    """A metric that inference servers report."""

    kind: MetricKind
    unit: str
    title: str


_GAUGES = {
    "running": ("requests", "running"),
    "queued": ("requests", "queued"),
    "kv_usage": ("share", "KV cache in use"),
    "hit_rate": ("share", "prefix cache hit rate, as the server reports it"),
    "acceptance_rate": ("share", "drafted tokens accepted, as the server reports it"),
    "acceptance_length": ("tokens", "tokens per step and request, as the server reports it"),
    "process_started": ("s", "start time of the server process"),
    "picker_pods": ("pods", "ready pods, by the endpoint picker"),
    "picker_running": ("requests", "running per pod, by the endpoint picker"),
    "picker_queued": ("requests", "queued per pod, by the endpoint picker"),
    "picker_kv_usage": ("share", "KV cache in use, by the endpoint picker"),
}
_COUNTERS = {
    "requests_ok": ("requests", "requests finished"),
    "requests_failed": ("requests", "requests failed"),
    "prompt_tokens": ("tokens", "prompt tokens"),
    "cached_prompt_tokens": ("tokens", "cached prompt tokens"),
    "generation_tokens": ("tokens", "generated tokens"),
    "prefix_queries": ("tokens", "prompt tokens looked up in the prefix cache"),
    "prefix_hits": ("tokens", "prompt tokens found in the prefix cache"),
    "preemptions": ("requests", "preemptions"),
    "drafts": ("drafts", "speculative drafts"),
    "draft_tokens": ("tokens", "speculative tokens drafted"),
    "accepted_tokens": ("tokens", "speculative tokens accepted"),
    "prefill_seconds": ("s", "time spent on prompts"),
    "decode_seconds": ("s", "time spent on generating"),
    "picker_requests": ("requests", "requests at the endpoint picker"),
    "picker_errors": ("requests", "errors of the endpoint picker"),
    "picker_disaggregated": ("requests", "decisions on a separate prefill, by the endpoint picker"),
}
_HISTOGRAMS = {
    "ttft": ("s", "TTFT"),
    "itl": ("s", "ITL"),
    "tpot": ("s", "TPOT"),
    "e2e": ("s", "E2E"),
    "queue_time": ("s", "queue"),
    "prefill_time": ("s", "prefill"),
    "decode_time": ("s", "decode"),
    "inference_time": ("s", "inference"),
    "input_length": ("tokens", "input tokens"),
    "output_length": ("tokens", "output tokens"),
    "step_tokens": ("tokens", "tokens per step"),
    "picker_time": ("s", "choice of a pod"),
    "picker_plugin_time": ("s", "one plugin of the endpoint picker"),
    "picker_request_time": ("s", "requests, by the endpoint picker"),
    "picker_ttft": ("s", "TTFT, by the endpoint picker"),
    "picker_hit_ratio": ("share", "prefix hit ratio, by the endpoint picker's index"),
}
SERVER: dict[str, ServerName] = {
    **{name: ServerName("gauge", *rest) for name, rest in _GAUGES.items()},
    **{name: ServerName("counter", *rest) for name, rest in _COUNTERS.items()},
    **{name: ServerName("histogram", *rest) for name, rest in _HISTOGRAMS.items()},
}


def named(kind: MetricKind) -> list[str]:
    return [name for name, metric in SERVER.items() if metric.kind == kind]


# What NVML's bitmask of reasons for a lower clock means (nvml.h, nvmlClocksEventReason*).
THROTTLE_REASONS: dict[int, str] = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability",
}
NOT_THROTTLING = {"idle", "application clocks", "sync boost", "display clocks"}  # set by the user, not forced by heat


def throttle_reasons(mask: int) -> list[str]:
    """The reasons in a bitmask; an unknown bit is shown as its number."""
    known = [reason for bit, reason in THROTTLE_REASONS.items() if mask & bit]
    rest = mask & ~sum(THROTTLE_REASONS)
    return known if not rest else [*known, hex(rest)]
