"""inference-perf, by its YAML."""

import yaml

from inferometer.documents.document import JsonValue
from inferometer.errors import PlanError
from inferometer.exchange.harness import (
    LLMD_IMAGE,
    Harness,
    HarnessEndpoint,
    Places,
    Rendered,
    counted,
    ignores_end,
    single,
    synthetic,
    timed,
)
from inferometer.plan.foreign.common import Foreign, without_missing
from inferometer.plan.foreign.inference_perf import from_mapping
from inferometer.plan.foreign.shapes import tidy
from inferometer.plan.model import Plan
from inferometer.plan.reading import mapping_in
from inferometer.plan.text import Dumper
from inferometer.plan.workloads import Lengths, Synthetic

NAME = "inference-perf"
CONFIG = "inference-perf.yaml"
_APIS = {"completions": "completion", "chat": "chat"}
_MOST = 1_000_000  # tokens: a bound that never applies
_IN_FLIGHT = 2500  # its default number of connections; without a number it delays arrivals at 100


def render(plan: Plan, endpoint: HarnessEndpoint, places: Places) -> Rendered:
    workload = synthetic(plan, NAME)
    load, notes = _load(plan)
    target = plan.target
    if target.api not in _APIS:
        raise PlanError(f"target.api: {NAME} has {', '.join(_APIS)}, got {target.api}")
    for name in ("temperature", "top_p", "stop"):
        if getattr(plan.sampling, name) is not None:
            raise PlanError(f"sampling.{name}: {NAME} sends none")
    if plan.warmup.requests or plan.warmup.duration:
        notes["warmup"] = "not supported: all requests are measured"
    if workload.prefix is None and workload.count is not None and workload.count >= _requests(plan):
        notes["workload.count"] = "every prompt is new, as here: the run sends no more requests than that"
    for name in ("input_tokens", "output_tokens"):
        lengths = getattr(workload, name)
        if lengths is not None and lengths.type in ("normal", "lognormal") and lengths.max is None:
            notes[f"workload.{name}.max"] = f"a bound is needed: {_MOST:,}"
    config = {
        "api": {"type": _APIS[target.api], "streaming": target.stream, "headers": dict(target.headers)},
        "server": {
            "type": "vllm",
            "model_name": endpoint.model,
            "base_url": endpoint.url,
            "ignore_eos": ignores_end(plan),
        },
        "tokenizer": {"pretrained_model_name_or_path": endpoint.tokenizer},
        "data": _data(workload, plan),
        "load": {**load, "base_seed": plan.seed, "num_workers": 1},
        "report": {"request_lifecycle": {"summary": True, "per_stage": True, "per_request": True}},
        "storage": {"local_storage": {"path": places.results}},
    }
    text = yaml.dump(without_missing(config), Dumper=Dumper, sort_keys=False)
    return Rendered(["inference-perf", "--config_file", f"{places.inputs}/{CONFIG}"], {CONFIG: text}, notes=notes)


def _load(plan: Plan) -> tuple[dict[str, JsonValue], dict[str, str]]:
    load = plan.load
    if load.type == "concurrency":
        requests, notes = counted(plan, NAME)
        stage: dict[str, JsonValue] = {"concurrency_level": load.concurrency, "num_requests": requests}
        return {"type": "concurrent", "stages": [stage], **_connections(load.concurrency)}, notes
    if load.type != "poisson":
        also = ": its constant has exponential gaps, too" if load.type == "constant" else ""
        raise PlanError(f"load.type: {NAME} has poisson and concurrency, got {load.type}{also}")
    lasts, notes = timed(plan, NAME)
    if not float(lasts).is_integer():
        lasts, whole = max(1, round(lasts)), lasts
        notes["stop"] = f"whole seconds only: {lasts} s instead of {whole:g}"
    if load.max_concurrency is None:
        notes["load.max_concurrency"] = f"it always has a cap: {_IN_FLIGHT:,} requests in flight"
    cap = load.max_concurrency or _IN_FLIGHT
    stage = {"rate": tidy(load.rate or 0.0), "duration": int(lasts)}
    return {"type": load.type, "stages": [stage], "worker_max_concurrency": cap, **_connections(cap)}, notes


def _connections(in_flight: int | None) -> dict[str, int]:
    """The number of connections: with fewer than the requests in flight, requests would wait."""
    return {"worker_max_tcp_connections": in_flight} if in_flight and in_flight > _IN_FLIGHT else {}


def _data(workload: Synthetic, plan: Plan) -> dict[str, JsonValue]:
    prefix = workload.prefix
    if prefix is None:
        count = workload.count or _requests(plan)
        inputs = _lengths(workload.input_tokens, "workload.input_tokens", count)
        return {
            "type": "random",
            "input_distribution": inputs,
            "output_distribution": _lengths(workload.output_tokens, "workload.output_tokens", count),
        }
    values = {
        "num_groups": prefix.groups,
        "num_prompts_per_group": prefix.prompts,
        "system_prompt_len": single(prefix.tokens, "workload.prefix.tokens", NAME),
        "question_len": single(prefix.suffix_tokens, "workload.prefix.suffix_tokens", NAME),
        "output_len": single(workload.output_tokens, "workload.output_tokens", NAME),
    }
    return {"type": "shared_prefix", "shared_prefix": values}


def _requests(plan: Plan) -> int:
    return plan.stop.requests or round((plan.load.rate or 1.0) * (plan.stop.duration or 1.0))


def _lengths(lengths: Lengths | None, path: str, count: int) -> dict[str, JsonValue]:
    if lengths is not None and lengths.type == "uniform":
        return {"type": "uniform", "min": lengths.min, "max": lengths.max, "total_count": count}
    if lengths is not None and lengths.type in ("normal", "lognormal"):
        bounds = {"min": lengths.min or 1, "max": lengths.max or _MOST}
        return {"type": lengths.type, "mean": lengths.mean, "std_dev": lengths.std, **bounds, "total_count": count}
    value = single(lengths, path, NAME)
    return {"min": value, "max": value, "mean": value, "std_dev": 0, "total_count": count}


def _read(rendered: Rendered) -> Foreign:
    return from_mapping(mapping_in(rendered.files[CONFIG], CONFIG)[0])


HARNESS = Harness(
    NAME,
    "inference-perf",
    render,
    _read,
    ("**/summary_lifecycle_metrics.json",),
    "inference-perf",
    requests=("**/per_request_lifecycle_metrics.json", "inference-perf-requests"),
    program="inference-perf",
    requirements=("inference-perf==0.7.0",),
    python=(3, 12),
    image=LLMD_IMAGE,
    key_env="OPENAI_API_KEY",
)
