"""The workloads by the name that a plan gives them, imported on use."""

import secrets
from collections.abc import Callable
from inspect import signature

from inferometer.errors import PlanError
from inferometer.plan import model
from inferometer.vocabulary import attribute_at
from inferometer.workload.session import NOWHERE, Workload, WorkloadContext

WORKLOADS = {
    "synthetic": "inferometer.workload.synthetic:synthetic",
    "conversation_pieces": "inferometer.workload.benchmark_prompts:conversation_pieces",
    "azure": "inferometer.workload.traces:trace",
    "mooncake": "inferometer.workload.traces:trace",
    "burstgpt": "inferometer.workload.traces:trace",
    "trace": "inferometer.workload.traces:trace",
    "sharegpt": "inferometer.workload.dataset:dataset",
    "messages": "inferometer.workload.dataset:dataset",
    "oasst": "inferometer.workload.dataset:dataset",
    "mt_bench": "inferometer.workload.dataset:dataset",
    "humaneval": "inferometer.workload.dataset:dataset",
    "prompts": "inferometer.workload.dataset:dataset",
    "table": "inferometer.workload.dataset:dataset",
    "huggingface": "inferometer.workload.dataset:dataset",
    "otel": "inferometer.workload.otel:otel",
    "weka": "inferometer.workload.weka:weka",
    "text": "inferometer.workload.synthetic:fixed_text",
    "sonnet": "inferometer.workload.benchmark_prompts:sonnet",
}


def workload_of(
    spec: model.Workload, seed: int, traffic: int, nonce: str, context: WorkloadContext = NOWHERE
) -> Workload:
    """What the plan asks to send: a function from the index of a session to the session. A kind of workload that
    wants to know the target takes the keyword `context`."""
    place = WORKLOADS.get(spec.type)
    if place is None:
        raise PlanError(f"workload.type must be one of {', '.join(WORKLOADS)}, got {spec.type}")
    make: Callable[..., Workload] = attribute_at(place)
    knows = {"context": context} if "context" in signature(make).parameters else {}
    return make(spec, seed, traffic, nonce, **knows)


def new_nonce() -> str:
    """What makes the prompts of a run new. It is kept with the run: two runs with one nonce share a tape."""
    return secrets.token_hex(8)
