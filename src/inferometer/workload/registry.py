"""The workloads by the name that a plan gives them, imported on use."""

import secrets
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

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
    _check_models(spec, context)
    make: Callable[..., Workload] = attribute_at(place)
    knows = {"context": context} if "context" in signature(make).parameters else {}
    return make(spec, seed, traffic, nonce, **knows)


def _check_models(spec: model.Workload, context: WorkloadContext) -> None:
    """Whatever the prompts are: a model or adapter that the server does not have would fail every request."""
    models: Mapping[str, Any] = getattr(spec, "models", {})  # with their weights, or instead of recorded ones
    named = [name if isinstance(other, int | float) else str(other) for name, other in models.items()]
    if not named and (single := getattr(spec, "model", None)):
        named = [single]
    missing = [name for name in dict.fromkeys(named) if context.models and name not in context.models]
    if missing:
        served, setting = ", ".join(context.models[:8]), "models" if models else "model"
        raise PlanError(
            f"workload.{setting}: the server does not serve {', '.join(missing)}, it serves {served}",
            f"start it with these models or adapters (a simulator: server.args.adapters: [{', '.join(missing)}]), "
            "or remove them",
        )


def new_nonce() -> str:
    """What makes the prompts of a run new. It is kept with the run: two runs with one nonce share a tape."""
    return secrets.token_hex(8)
