"""`genai-bench benchmark`: traffic scenarios at a list of concurrencies, as an experiment."""

import re
from collections.abc import Sequence
from typing import Any

from inferometer.plan.draft import CaseDraft, LoadDraft, PlanDraft, SamplingDraft, StopDraft, TargetDraft, WorkloadDraft
from inferometer.plan.foreign.common import Foreign, NoPlanError, without_missing
from inferometer.plan.foreign.shapes import Flag, Given, bell, load_of, parse, tidy, with_parameters

TOOL = "genai-bench benchmark"
_ONE, _MANY = Flag(), Flag("many")
_ABOUT = "is only a description"
_UPLOADED = "results are not uploaded: --records s3://BUCKET or gs://BUCKET stores runs there"
FLAGS: dict[str, Flag] = {
    **dict.fromkeys(("api-backend", "api-base", "api-key", "model-api-key", "api-model-name", "model-tokenizer"), _ONE),
    **dict.fromkeys(("task", "max-time-per-run", "max-requests-per-run", "additional-request-params"), _ONE),
    **dict.fromkeys(("traffic-scenario", "num-concurrency", "batch-size", "request-rate", "dataset-path"), _MANY),
    **dict.fromkeys(("dataset-prompt-column", "dataset-image-column", "dataset-config", "iteration-type"), _ONE),
    **{
        name: Flag("one", _ABOUT) for name in ("server-engine", "server-gpu-type", "server-version", "server-gpu-count")
    },
    **{name: Flag("one", "runs are stored") for name in ("experiment-folder-name", "experiment-base-dir", "log-dir")},
    **dict.fromkeys(("execution-engine", "distribution", "warmup-ratio", "cooldown-ratio"), _ONE),
    **{
        f"storage-{name}": Flag("one", _UPLOADED)
        for name in (
            *("provider", "bucket", "prefix", "auth-type", "aws-access-key-id", "aws-secret-access-key"),
            *("aws-session-token", "aws-region", "aws-profile", "azure-account-name", "azure-account-key"),
            *("azure-connection-string", "azure-sas-token", "gcp-project-id", "gcp-credentials-path"),
        )
    },
    **dict.fromkeys(("namespace", "github-owner", "github-repo", "github-token"), Flag("one", _UPLOADED)),
    "upload-results": Flag("none", _UPLOADED),
    "metrics-refresh-interval": Flag("one", "progress is printed every few seconds"),
    **dict.fromkeys(("prefix-len", "prefix-ratio"), _ONE),
    "qps-level": _MANY,
    "disable-streaming": Flag("none"),
    "help": Flag("none"),
    "track-network-timing": Flag("none", "connection times are always measured"),
    "num-workers": Flag("one", "use --workers if one process is not enough"),
    "spawn-rate": Flag("one", "slots are opened at once"),
    "master-port": Flag("one", "there is no master"),
    "metrics-time-unit": Flag("one", "units are always shown"),
}
_LEVELS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
_DEFAULT = ["N(480,240)/(300,150)", "D(100,100)", "D(100,1000)", "D(2000,200)", "D(7800,200)"]
_LEAST_OUT = 2  # tokens of a drawn answer
_FIXED, _NORMAL, _UNIFORM, _UP_TO = (
    re.compile(r"D\((\d+),(\d+)\)"),
    re.compile(r"N\((\d+),(\d+)\)/\((\d+),(\d+)\)"),
    re.compile(r"U\((\d+),(\d+)\)/\((\d+),(\d+)\)"),
    re.compile(r"U\((\d+),(\d+)\)"),
)


def from_argv(argv: Sequence[str]) -> Foreign:
    """Every scenario at every concurrency, for the duration of one run."""
    given = parse(TOOL, argv, FLAGS)
    if given.on("help"):
        raise NoPlanError(f"{TOOL}: shows its help")
    task = given.text("task") or "text-to-text"
    if task != "text-to-text":
        given.wrong("task", "has no counterpart but text-to-text: others have images, or batches of texts in a request")
    if (backend := given.text("api-backend") or "openai") not in ("openai", "sglang", "vllm"):
        given.wrong("api-backend", f"has no counterpart but openai, vllm and sglang: {backend} has an API of its own")
    for name in ("dataset-path", "dataset-prompt-column", "dataset-image-column", "dataset-config", "request-rate"):
        if name in given:
            given.wrong(name, "has no counterpart: use workload.type table or huggingface")
    scenarios = given.several("traffic-scenario") or _DEFAULT
    levels = [int(level) for level in given.several("num-concurrency")] or _LEVELS
    if (given.text("iteration-type") or "num_concurrency") != "num_concurrency" or given.several("batch-size"):
        given.wrong("batch-size", "has no counterpart: a request holds one text")
    for name in ("warmup-ratio", "cooldown-ratio"):
        if given.number(name):
            given.wrong(name, "has no counterpart: use warmup, as a time or a number of requests")
    loads = _loads(given, levels)
    minutes, most = given.number("max-time-per-run", 15.0), given.count("max-requests-per-run")
    common: PlanDraft = {
        "target": _target(given),
        "sampling": _sampling(given, backend),
    }
    stop: StopDraft = {"duration": f"{minutes:g}min", "requests": most}
    workloads = {scenario: _with_prefix(given, _workload(given, scenario)) for scenario in scenarios}
    cases: list[CaseDraft] = [
        {
            "name": f"{scenario} {name}",
            "plan": without_missing(
                {**common, "workload": _with_prefix(given, _workload(given, scenario)), "load": load, "stop": stop}
            ),
        }
        for scenario, workload in workloads.items()
        for name, load in loads
    ]
    return Foreign.of(given.account, {}, {"cases": with_parameters(cases)})


def _loads(given: Given, levels: list[int]) -> list[tuple[str, LoadDraft]]:
    """Closed loops, or the given rates with the asynchronous engine."""
    given.no_effect("execution-engine", "the load generator is Inferometer's")
    rates = [float(rate) for rate in given.several("qps-level")]
    process = {"exponential": 1.0, "constant": 0.0}.get(given.text("distribution") or "exponential")
    if not rates:
        given.no_effect("distribution", "there is no --qps-level")
        return [(f"concurrency={level}", load_of(None, level, 1)) for level in levels]
    if (given.text("execution-engine") or "locust") != "async":
        given.wrong("qps-level", "needs --execution-engine async")
    if process is None:
        given.wrong("distribution", "has no counterpart but exponential and constant")
    given.no_effect("num-concurrency", "--qps-level decides")
    return [(f"qps={tidy(rate)}", load_of(rate, None, 1, process or 0.0)) for rate in rates]


def _target(given: Given) -> TargetDraft:
    key = given.text("api-key") or given.text("model-api-key")
    return {
        "url": given.text("api-base"),
        "model": given.text("api-model-name"),
        "api": "chat",
        "stream": False if given.on("disable-streaming") else None,
        "headers": {"Authorization": f"Bearer {key}"} if key else {},
    }


def _sampling(given: Given, backend: str) -> SamplingDraft:
    """Chats have temperature 0; `ignore_eos` is sent only to vLLM and SGLang, which support it."""
    extra = given.fields("additional-request-params")
    if "system_message" in extra:
        given.wrong("additional-request-params", "has a system_message, which has no counterpart")
    temperature = extra.pop("temperature", 0.0)
    extra.pop("messages", None)  # genai-bench does not send it either
    extra.pop("ignore_eos", None)  # the scenario decides
    if backend == "openai":
        given.account.general.append("--api-backend openai: answers end where the model ends them")
    return {"temperature": temperature, "ignore_eos": backend != "openai", "extra": extra}


def _workload(given: Given, scenario: str) -> WorkloadDraft:
    """`D(in,out)`, `N(mean,std)/(mean,std)`, `U(least,most)/(least,most)`, or `U(most,most)` from one token on."""
    tokenizer = given.text("model-tokenizer")
    if match := _FIXED.fullmatch(scenario):
        return {"input_tokens": int(match[1]), "output_tokens": int(match[2]), "tokenizer": tokenizer}
    if match := _NORMAL.fullmatch(scenario):
        mean, std, out, out_std = (int(number) for number in match.groups())
        return {
            "input_tokens": bell(mean, std, 1, None),
            "output_tokens": bell(out, out_std, _LEAST_OUT, None),
            "tokenizer": tokenizer,
        }
    if match := _UNIFORM.fullmatch(scenario) or _UP_TO.fullmatch(scenario):
        bounds = [int(number) for number in match.groups()]
        least, most, least_out, most_out = bounds if len(bounds) == 4 else (1, bounds[0], 1, bounds[1])
        return {
            "input_tokens": f"{max(1, least)}-{most}",
            "output_tokens": f"{max(_LEAST_OUT, least_out)}-{max(_LEAST_OUT, most_out)}",
            "tokenizer": tokenizer,
        }
    must = "must be D(in,out), N(mean,std)/(mean,std), U(least,most)/(least,most) or U(most,most)"
    given.wrong("traffic-scenario", must)
    return {}


def _with_prefix(given: Given, workload: WorkloadDraft) -> WorkloadDraft:
    """One prefix for all requests, with a length or a share of the prompt; the rest of each prompt is new."""
    tokens, share = given.count("prefix-len"), given.number("prefix-ratio")
    inputs = workload.get("input_tokens")
    if tokens is not None and share is not None:
        given.wrong("prefix-ratio", "contradicts --prefix-len, in genai-bench too")
    if share is not None and not isinstance(inputs, int):
        given.wrong("prefix-ratio", "needs scenarios D(in,out), in genai-bench too")
        return workload
    if isinstance(inputs, int):
        tokens = int(inputs * share) if share is not None else tokens
    if not tokens or inputs is None:
        return workload
    rest = _less(inputs, tokens)
    if rest is None:
        given.wrong("prefix-len", "must be shorter than every prompt")
        return workload
    del workload["input_tokens"]
    workload["prefix"] = {"tokens": tokens, "suffix_tokens": rest}
    return workload


def _less(lengths: Any, tokens: int) -> Any:
    """Lengths minus the prefix: one length, `least-most`, or a normal distribution."""
    if isinstance(lengths, int):
        return lengths - tokens if lengths > tokens else None
    if isinstance(lengths, str):
        least, most = (int(part) - tokens for part in lengths.split("-"))
        return f"{least}-{most}" if least > 0 else None
    return {**lengths, "mean": lengths["mean"] - tokens} if lengths["mean"] > tokens else None
