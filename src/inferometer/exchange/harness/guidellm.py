"""guidellm since 0.7: `guidellm run`, each section as JSON."""

import json
from typing import Any

from inferometer.errors import PlanError
from inferometer.exchange.harness import (
    LLMD_IMAGE,
    Harness,
    HarnessEndpoint,
    Places,
    Rendered,
    ignores_end,
    read_command,
    single,
    synthetic,
)
from inferometer.plan.foreign.common import without_missing
from inferometer.plan.foreign.shapes import tidy
from inferometer.plan.model import Plan
from inferometer.plan.workloads import Lengths, Synthetic

NAME = "guidellm"
_FORMATS = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "embeddings": "/v1/embeddings",
}


def render(plan: Plan, endpoint: HarnessEndpoint, places: Places) -> Rendered:
    sections: list[tuple[str, dict[str, Any]]] = [
        ("backend", _backend(plan, endpoint)),
        ("profile", _profile(plan)),
        ("tokenizer", {"kind": "huggingface_auto", "model": endpoint.tokenizer}),
        ("data", _data(synthetic(plan, NAME))),
        *(("constraint", constraint) for constraint in _constraints(plan)),
        ("seed", {"kind": "static", "value": plan.seed}),
        ("output", {"kind": "json", "path": f"{places.results}/benchmarks.json"}),
    ]
    argv = ["guidellm", "run"]
    for name, section in sections:
        argv += [f"--{name}", json.dumps(without_missing(section))]
    return Rendered([*argv, "--disable-console-interactive"], notes=_notes(plan))


def _notes(plan: Plan) -> dict[str, str]:
    if plan.sampling.ignore_eos is None and plan.workload.mean_output is not None:
        return {}
    return {} if ignores_end(plan) else {"sampling.ignore_eos": "sent as a field of the body"}


def _backend(plan: Plan, endpoint: HarnessEndpoint) -> dict[str, Any]:
    target, sampling = plan.target, plan.sampling
    if target.api not in _FORMATS:
        raise PlanError(f"target.api: {NAME} has {', '.join(_FORMATS)}, got {target.api}")
    body = {"ignore_eos": sampling.ignore_eos, "temperature": sampling.temperature, "top_p": sampling.top_p}
    route = _FORMATS[target.api]
    return {
        "kind": "openai_http",
        "target": endpoint.url,
        "model": endpoint.model,
        "request_format": route,
        "stream": target.stream,
        "api_routes": None if target.path is None else {route: target.path.lstrip("/")},
        "timeout": target.timeout.request,
        "extras": {"headers": dict(target.headers), "body": {**body, **sampling.extra}},
        "verify": False if not target.tls.verify and endpoint.url.startswith("https") else None,
    }


def _profile(plan: Plan) -> dict[str, Any]:
    load, warm = plan.load, plan.warmup
    warmup = warm.requests or warm.duration or None
    if warm.requests and (warm.duration or plan.stop.requests is None):
        raise PlanError(
            f"warmup: {NAME} counts it in what ends the run, {'time' if plan.stop.duration else 'requests'}"
        )
    if load.type == "concurrency":
        return {"kind": "concurrent", "streams": [load.concurrency], "warmup": warmup}
    if load.type not in ("constant", "poisson"):
        raise PlanError(f"load.type: {NAME} has constant, poisson and concurrency, got {load.type}")
    return {"kind": load.type, "rate": [load.rate], "max_concurrency": load.max_concurrency, "warmup": warmup}


def _constraints(plan: Plan) -> list[dict[str, Any]]:
    """Stop conditions; guidellm's warm-up is part of the run, ours comes before it."""
    stop, made = plan.stop, []
    if stop.sessions is not None:
        raise PlanError(f"stop.sessions: {NAME} ends by requests or time, got {stop.sessions}")
    if stop.requests is not None:
        made.append({"kind": "max_requests", "count": stop.requests + plan.warmup.requests})
    if stop.duration is not None:
        made.append({"kind": "max_duration", "seconds": tidy(stop.duration + plan.warmup.duration)})
    if stop.errors is not None:
        made.append({"kind": "max_errors", "count": stop.errors})
    return made


def _data(workload: Synthetic) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": "synthetic_text"}
    inputs, path, prefix = workload.input_tokens, "workload.input_tokens", workload.prefix
    if prefix is not None:
        shared = single(prefix.tokens, "workload.prefix.tokens", NAME)
        data["prefix_buckets"] = [{"bucket_weight": 100, "prefix_count": prefix.groups, "prefix_tokens": shared}]
        if prefix.suffix_tokens is not None:
            inputs, path = prefix.suffix_tokens, "workload.prefix.suffix_tokens"
    data |= _lengths(inputs, "prompt_tokens", path)
    if workload.output_tokens is not None:
        data |= _lengths(workload.output_tokens, "output_tokens", "workload.output_tokens")
    if workload.turns.most != 1:
        data["turns"] = single(workload.turns, "workload.turns", NAME)
    return data


def _lengths(lengths: Lengths, name: str, path: str) -> dict[str, Any]:
    if lengths.type == "uniform":
        bounds = {f"{name}_min": lengths.min, f"{name}_max": lengths.max}
        return {name: round(lengths.mean_value or 1), **bounds}
    if lengths.type == "normal" and lengths.mean is not None:
        bounds = {f"{name}_min": lengths.min, f"{name}_max": lengths.max}
        return {name: round(lengths.mean), f"{name}_stdev": round(lengths.std or 0), **bounds}
    return {name: single(lengths, path, NAME)}


HARNESS = Harness(
    NAME,
    "guidellm",
    render,
    read_command,
    ("benchmarks.json",),
    "guidellm",
    program="guidellm",
    requirements=("guidellm==0.8.1",),
    image=LLMD_IMAGE,
    key_env="GUIDELLM__OPENAI__API_KEY",
)
