"""sglang's `bench_serving`, against any server with OpenAI's API."""

import json

from inferometer.documents.document import JsonValue
from inferometer.errors import PlanError
from inferometer.exchange.harness import (
    Harness,
    HarnessEndpoint,
    Places,
    Rendered,
    counted,
    flags,
    ignores_end,
    read_command,
    single,
    synthetic,
)
from inferometer.plan.model import Plan
from inferometer.plan.workloads import Lengths, Synthetic

NAME = "sglang"
_NEEDED = (  # by the benchmark only: the engine needs GPU libraries, and newer benchmarks import the engine
    *("aiohttp", "numpy", "requests", "tqdm", "transformers", "datasets", "pybase64", "ipython", "pillow"),
    *("psutil", "pydantic", "pyzmq", "orjson"),
)
_BACKENDS = {"completions": "sglang-oai", "chat": "sglang-oai-chat"}


def render(plan: Plan, endpoint: HarnessEndpoint, places: Places) -> Rendered:
    requests, notes = counted(plan, NAME)
    target, sampling, load = plan.target, plan.sampling, plan.load
    if target.api not in _BACKENDS:
        raise PlanError(f"target.api: {NAME} has {', '.join(_BACKENDS)}, got {target.api}")
    if load.type not in ("poisson", "concurrency"):
        raise PlanError(f"load.type: {NAME} has poisson and concurrency, got {load.type}")
    if sampling.temperature is None:
        notes["sampling.temperature"] = "0 is sent with every request"
    values: dict[str, JsonValue] = {
        "backend": _BACKENDS[target.api],
        "base-url": endpoint.url,
        "model": endpoint.tokenizer,
        "served-model-name": endpoint.model,
        "tokenizer": endpoint.tokenizer,
        **_dataset(synthetic(plan, NAME)),
        "num-prompts": requests,
        "request-rate": load.rate,
        "max-concurrency": load.concurrency or load.max_concurrency,
        "warmup-requests": plan.warmup.requests,
        "seed": plan.seed,
        "temperature": sampling.temperature,
        "top-p": sampling.top_p,
        "extra-request-body": json.dumps(sampling.extra) if sampling.extra else None,
        "disable-ignore-eos": not ignores_end(plan),
        "disable-stream": not target.stream,
        "output-file": f"{places.results}/sglang.jsonl",
        "output-details": True,
        "disable-tqdm": True,
    }
    argv = ["python", "-m", "sglang.bench_serving", *flags(values)]
    if target.headers:
        argv += ["--header", *(f"{name}={value}" for name, value in target.headers.items())]
    return Rendered(argv, notes=notes)


def _dataset(workload: Synthetic) -> dict[str, JsonValue]:
    prefix = workload.prefix
    if prefix is not None:
        values: dict[str, JsonValue] = {
            "system-prompt-len": single(prefix.tokens, "workload.prefix.tokens", NAME),
            "question-len": single(prefix.suffix_tokens, "workload.prefix.suffix_tokens", NAME),
            "output-len": single(workload.output_tokens, "workload.output_tokens", NAME),
            "num-groups": prefix.groups,
            "prompts-per-group": prefix.prompts,
            "group-distribution": None if prefix.zipf is None else "zipf",
            "zipf-alpha": prefix.zipf,
        }
        named = {f"gsp-{name}": value for name, value in values.items()}
        return {"dataset-name": "generated-shared-prefix", **named}
    inputs, least = _bounds(workload.input_tokens, "workload.input_tokens")
    outputs, least_output = _bounds(workload.output_tokens, "workload.output_tokens")
    low, high = max(least / inputs, least_output / outputs), min((least + 1) / inputs, (least_output + 1) / outputs)
    if low >= high:
        text = "workload.output_tokens: must vary by the same share as input_tokens"
        raise PlanError(f"{text}: {NAME} has one ratio for both")
    return {
        "dataset-name": "random-ids",  # `random` cuts its prompts out of ShareGPT, which it would download
        "random-input-len": inputs,
        "random-output-len": outputs,
        "random-range-ratio": 1 if low == 1 else (low + high) / 2,  # the shortest is rounded down
        "tokenize-prompt": workload.prompt_as == "token_ids",
    }


def _bounds(lengths: Lengths | None, path: str) -> tuple[int, int]:
    """The longest and the shortest length."""
    if lengths is not None and lengths.type == "uniform" and lengths.min and lengths.max:
        return lengths.max, lengths.min
    length = single(lengths, path, NAME)
    return length, length


HARNESS = Harness(
    NAME,
    "sglang.bench_serving",
    render,
    read_command,
    ("sglang.jsonl", "*.jsonl"),
    "sglang-bench-serving",
    program="python",
    requirements=_NEEDED,
    bare=("sglang==0.5.6",),
    key_env="OPENAI_API_KEY",
)
