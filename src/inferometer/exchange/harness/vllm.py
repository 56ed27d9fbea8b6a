"""`vllm bench serve`, llm-d's harness `vllm-benchmark`."""

import json

from inferometer.documents.document import JsonValue
from inferometer.errors import PlanError
from inferometer.exchange.harness import (
    LLMD_IMAGE,
    Harness,
    HarnessEndpoint,
    Places,
    Rendered,
    counted,
    flags,
    read_command,
    single,
    synthetic,
)
from inferometer.plan.model import Load, Plan
from inferometer.plan.workloads import Lengths, Synthetic

NAME = "vllm-benchmark"
_BACKENDS = {"completions": "openai", "chat": "openai-chat", "embeddings": "openai-embeddings"}
_PENALTY = "sampling.extra.repetition_penalty"
_PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions", "embeddings": "/v1/embeddings"}


def render(plan: Plan, endpoint: HarnessEndpoint, places: Places) -> Rendered:
    requests, notes = counted(plan, NAME)
    target, sampling = plan.target, plan.sampling
    if target.api not in _BACKENDS:
        raise PlanError(f"target.api: {NAME} has {', '.join(_BACKENDS)}, got {target.api}")
    if target.api == "completions" and "repetition_penalty" not in sampling.extra:
        notes[_PENALTY] = "it always sends 1: no penalty, whatever the model's own default is"
    values: dict[str, JsonValue] = {
        "backend": _BACKENDS[target.api],
        "base-url": endpoint.url,
        "endpoint": target.path or _PATHS[target.api],
        "model": endpoint.model,
        "tokenizer": endpoint.tokenizer,
        **_dataset(synthetic(plan, NAME), requests),
        "num-prompts": requests,
        **_load(plan.load),
        "num-warmups": plan.warmup.requests or None,
        "seed": plan.seed,
        "temperature": sampling.temperature,
        "top-p": sampling.top_p,
        "extra-body": json.dumps(sampling.extra) if sampling.extra else None,
        "ignore-eos": True if sampling.ignore_eos is not False else None,
        "insecure": True if not target.tls.verify else None,
        "save-result": True,
        "save-detailed": True,
        "result-dir": places.results,
        "result-filename": "vllm.json",
        "percentile-metrics": "ttft,tpot,itl,e2el",
        "metric-percentiles": "50,90,95,99",
        "disable-tqdm": True,
    }
    argv = ["vllm", "bench", "serve", *flags(values)]
    if target.headers:
        argv += ["--header", *(f"{name}={value}" for name, value in target.headers.items())]
    return Rendered(argv, env={"VLLM_NO_USAGE_STATS": "1"}, notes=notes)


def _dataset(workload: Synthetic, requests: int) -> dict[str, JsonValue]:
    prefix = workload.prefix
    if prefix is not None and (prefix.groups > 1 or prefix.prompts is not None):
        values: dict[str, JsonValue] = {
            "prefix-len": single(prefix.tokens, "workload.prefix.tokens", NAME),
            "suffix-len": single(prefix.suffix_tokens, "workload.prefix.suffix_tokens", NAME),
            "num-prefixes": prefix.groups,
            "output-len": single(workload.output_tokens, "workload.output_tokens", NAME),
        }
        return {"dataset-name": "prefix_repetition"} | {f"prefix-repetition-{k}": v for k, v in values.items()}
    inputs, path = workload.input_tokens, "workload.input_tokens"
    shared = None
    if prefix is not None:
        shared = single(prefix.tokens, "workload.prefix.tokens", NAME)
        inputs, path = prefix.suffix_tokens or inputs, "workload.prefix.suffix_tokens"
    length, ratio = _about(inputs, path)
    output, output_ratio = _about(workload.output_tokens, "workload.output_tokens")
    ratios = {"input": ratio, "output": output_ratio}
    return {
        "dataset-name": "random",
        "random-input-len": length,
        "random-output-len": output,
        "random-prefix-len": shared,
        "random-range-ratio": (ratio or None) if ratio == output_ratio else json.dumps(ratios),
    }


def _about(lengths: Lengths | None, path: str) -> tuple[int, float]:
    """A length and its random range, as a share below and above it."""
    if lengths is not None and lengths.type == "uniform" and lengths.min and lengths.max:
        middle = (lengths.min + lengths.max) / 2
        return round(middle), round((lengths.max - lengths.min) / 2 / round(middle), 6)
    return single(lengths, path, NAME), 0.0


def _load(load: Load) -> dict[str, JsonValue]:
    if load.type == "concurrency":
        return {"max-concurrency": load.concurrency}
    if load.type not in ("poisson", "constant", "gamma"):
        raise PlanError(f"load.type: {NAME} has constant, poisson, gamma and concurrency, got {load.type}")
    burstiness = {"poisson": None, "constant": "inf", "gamma": 1 / load.cv**2}[load.type]
    return {"request-rate": load.rate, "burstiness": burstiness, "max-concurrency": load.max_concurrency}


HARNESS = Harness(
    NAME,
    "vllm bench serve",
    render,
    read_command,
    ("vllm.json", "*.json"),
    "vllm-bench-serve",
    program="vllm",
    requirements=("vllm[bench]",),
    image=LLMD_IMAGE,
    key_env="OPENAI_API_KEY",
)
