"""genai-bench: one traffic scenario at one concurrency."""

import json
import math

from inferometer.documents.document import JsonValue
from inferometer.errors import PlanError
from inferometer.exchange.harness import (
    Harness,
    HarnessEndpoint,
    Places,
    Rendered,
    flags,
    read_command,
    synthetic,
)
from inferometer.plan.model import Plan
from inferometer.plan.workloads import Lengths, Synthetic

NAME = "genai-bench"
MOST_MINUTES = 60
LEAST_OUT = 2  # minimum tokens of a random answer


def render(plan: Plan, endpoint: HarnessEndpoint, places: Places) -> Rendered:
    load, stop, sampling, notes = plan.load, plan.stop, plan.sampling, {}
    if plan.target.api != "chat":
        raise PlanError(f"target.api: {NAME} has chat, got {plan.target.api}", "--api chat")
    if load.type != "concurrency":
        raise PlanError(f"load.type: {NAME} has concurrency only, got {load.type}")
    minutes = MOST_MINUTES if stop.duration is None else math.ceil(stop.duration / 60)
    if stop.duration is not None and stop.duration != minutes * 60:
        notes["stop.duration"] = f"whole minutes only: {minutes}"
    if stop.duration is None:
        notes["stop.duration"] = f"at most {minutes} minutes"
    if stop.requests is not None:
        notes["stop.requests"] = "a minimum: it checks for the end only from time to time, and keeps sending until then"
    if plan.warmup.requests or plan.warmup.duration:
        notes["warmup"] = "not supported: all requests are measured"
    outputs = synthetic(plan, NAME).output_tokens
    if outputs is not None and outputs.type != "fixed" and outputs.least < LEAST_OUT:
        notes["workload.output_tokens.min"] = f"answers have at least {LEAST_OUT} tokens"
    extra: dict[str, JsonValue] = {
        name: value for name, value in {"top_p": sampling.top_p, **sampling.extra}.items() if value is not None
    }
    extra["temperature"] = sampling.temperature  # null leaves it to the server, where the default is 0
    values: dict[str, JsonValue] = {
        "api-backend": "vllm" if sampling.whole_answers else "openai",  # only with vllm it sends ignore_eos
        "api-base": endpoint.url,
        "api-model-name": endpoint.model,
        "model-tokenizer": endpoint.tokenizer,
        "task": "text-to-text",
        "traffic-scenario": _scenario(synthetic(plan, NAME)),
        "num-concurrency": load.concurrency,
        "max-requests-per-run": stop.requests,
        "max-time-per-run": minutes,
        "additional-request-params": json.dumps(extra),
        "experiment-base-dir": places.results,
        "experiment-folder-name": "genai-bench",
    }
    return Rendered(["genai-bench", "benchmark", *flags(values)], notes=notes)


def _scenario(workload: Synthetic) -> str:
    inputs, outputs = workload.input_tokens, workload.output_tokens
    kinds = {lengths.type if lengths is not None else "none" for lengths in (inputs, outputs)}
    if outputs is None or len(kinds) > 1 or not kinds & {"fixed", "uniform", "normal"}:
        text = f"{NAME} has fixed, uniform or normal lengths, the same for input and output"
        raise PlanError(f"workload.output_tokens: {text}, got {outputs}")
    if kinds == {"fixed"}:
        return f"D({inputs.value},{outputs.value})"
    if kinds == {"uniform"}:
        return f"U({inputs.min},{inputs.max})/({outputs.min},{outputs.max})"
    return f"N({_bell(inputs)})/({_bell(outputs)})"


def _bell(lengths: Lengths) -> str:
    return f"{round(lengths.mean or 0)},{round(lengths.std or 0)}"


HARNESS = Harness(
    NAME,
    "genai-bench",
    render,
    read_command,
    ("genai-bench*/D*.json", "genai-bench*/[NU]*.json", "**/*_text-to-text_*.json"),
    "genai-bench",
    program="genai-bench",
    requirements=("genai-bench==0.0.5",),
    keyed=lambda key: ["--api-key", key],
    key_needed=True,
)
