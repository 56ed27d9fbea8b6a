"""NVIDIA's aiperf: `aiperf profile` with flags."""

import math

from inferometer.documents.document import JsonValue
from inferometer.errors import PlanError
from inferometer.exchange.harness import (
    Harness,
    HarnessEndpoint,
    Places,
    Rendered,
    bell,
    flags,
    ignores_end,
    read_command,
    single,
    synthetic,
)
from inferometer.plan.model import Load, Plan
from inferometer.plan.workloads import Synthetic

NAME = "aiperf"
_TYPES = {"completions": "completions", "chat": "chat", "responses": "responses", "embeddings": "embeddings"}
_UNUSUAL = 10_000  # dataset entries if no request count is set: aiperf generates them before the load, and repeats them


def render(plan: Plan, endpoint: HarnessEndpoint, places: Places) -> Rendered:
    workload = synthetic(plan, NAME)
    entries, notes = _entries(plan)
    values: dict[str, JsonValue] = {
        "model": endpoint.model,
        "url": endpoint.url,
        "endpoint-type": _type(plan),
        "endpoint": plan.target.path,
        "streaming": plan.target.stream,
        "tokenizer": endpoint.tokenizer,
        **_lengths(workload),
        "num-dataset-entries": entries,
        **_load(plan.load, workload.turns.mean_value or 1.0),
        "request-count": plan.stop.requests,
        "benchmark-duration": plan.stop.duration,
        "benchmark-grace-period": plan.stop.drain if plan.stop.duration is not None else None,
        "conversation-num": plan.stop.sessions,
        "warmup-request-count": plan.warmup.requests or None,
        "random-seed": plan.seed,
        "use-server-token-count": True,  # its tokenizer would count another model's text differently
        "output-artifact-dir": places.results,
        "ui": "none",
        "no-gpu-telemetry": True,  # we sample both, in the same way for every harness
        "no-server-metrics": True,
    }
    if not workload.single_turns:
        notes |= _of_turns(plan, workload)
    argv = ["aiperf", "profile", *flags(values)]
    for name, value in _inputs(plan).items():
        argv += ["--extra-inputs", f"{name}:{value}"]
    for name, value in plan.target.headers.items():
        argv += ["--header", f"{name}:{value}"]
    return Rendered(argv, notes=notes)


def _of_turns(plan: Plan, workload: Synthetic) -> dict[str, str]:
    """Differences with several turns: sessions keep their slot during pauses, and the run may end inside a session."""
    notes = {}
    if plan.stop.whole_sessions and plan.stop.requests is not None:
        notes["stop.whole_sessions"] = "the last request may be in the middle of its session"
    if not workload.think.mean_value and plan.load.sessions_at_once is None:
        notes["load.sessions_at_once"] = "a session keeps its slot to its end; without pauses that is the same"
    return notes


def _entries(plan: Plan) -> tuple[int, dict[str, str]]:
    """The number of prompts that aiperf generates before the load and draws from; ours are all new."""
    count = getattr(plan.workload, "count", None)
    if count is not None:
        return int(count), {}
    requests = plan.stop.requests or plan.stop.sessions
    if requests is not None:
        total = requests + plan.warmup.requests
        return total, {"workload.count": f"a pool of {total:,} prompts is made before the load, as many as are sent"}
    rate = plan.load.rate
    expected = math.ceil(rate * (plan.stop.duration or 0.0)) if rate else _UNUSUAL
    text = f"a pool of {expected:,} prompts is made before the load; they repeat if it sends more"
    return max(expected, 1), {"workload.count": text}


def _type(plan: Plan) -> str:
    if plan.target.api not in _TYPES:
        raise PlanError(f"target.api: {NAME} has {', '.join(_TYPES)}, got {plan.target.api}")
    return _TYPES[plan.target.api]


def _lengths(workload: Synthetic) -> dict[str, JsonValue]:
    prefix, shared = workload.prefix, {}
    inputs, path = workload.input_tokens, "workload.input_tokens"
    if prefix is not None:
        shared = {"prefix-prompt-length": single(prefix.tokens, "workload.prefix.tokens", NAME)}
        shared["prefix-prompt-pool-size"] = prefix.groups
        if prefix.suffix_tokens is not None:
            inputs, path = prefix.suffix_tokens, "workload.prefix.suffix_tokens"
    mean, std = bell(inputs, path, NAME)
    values: dict[str, JsonValue] = {"isl": mean, "isl-stddev": std, **shared}
    if workload.output_tokens is not None:
        values["osl"], values["osl-stddev"] = bell(workload.output_tokens, "workload.output_tokens", NAME)
    if workload.turns.most != 1:
        values["conversation-turn-mean"], values["conversation-turn-stddev"] = bell(
            workload.turns, "workload.turns", NAME
        )
    if workload.think.value:
        values["conversation-turn-delay-mean"] = workload.think.value * 1000
    return values


def _load(load: Load, turns: float) -> dict[str, JsonValue]:
    """The load; its rates are request rates, ours are session rates."""
    if load.type == "concurrency":
        return {"concurrency": load.concurrency}
    values: dict[str, JsonValue] = {"request-rate": (load.rate or 0.0) * turns, "arrival-pattern": load.type}
    if load.type == "gamma":
        values["arrival-smoothness"] = 1 / load.cv**2
    return {**values, "concurrency": load.max_concurrency}


def _inputs(plan: Plan) -> dict[str, str]:
    sampling = plan.sampling
    values: dict[str, JsonValue] = {"ignore_eos": ignores_end(plan), "temperature": sampling.temperature}
    values |= {"top_p": sampling.top_p, **sampling.extra}
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if value is not None
    }


HARNESS = Harness(
    NAME,
    "NVIDIA's aiperf",
    render,
    read_command,
    ("profile_export_aiperf.json", "**/profile_export_aiperf.json"),
    "aiperf",
    requests=("**/profile_export.jsonl", "aiperf-requests"),
    program="aiperf",
    requirements=("aiperf==0.13.0",),
    keyed=lambda key: ["--api-key", key],
)
