"""The InferX benchmark framework: its flags as a plan; the files it writes to --outdir are an output format."""

from collections.abc import Sequence

from inferometer.plan.draft import ObserveDraft, WorkloadDraft
from inferometer.plan.foreign.common import Foreign, without_missing
from inferometer.plan.foreign.shapes import Flag, Given, load_of, parse, tidy

TOOL = "inferx_benchmark_framework.py"
_TEMPLATE = '{"prompt": "{prompt}"}'
_ONE = Flag()
FLAGS: dict[str, Flag] = {
    **dict.fromkeys(("endpoint", "duration", "rate", "concurrency", "prompt-dist", "min-tokens", "max-tokens"), _ONE),
    **dict.fromkeys(("choices-tokens", "request-body-template", "sample-prompts-file", "outdir", "timeout"), _ONE),
    "header": Flag("many"),
    "json-field": Flag("one", "any returned text is accepted; the framework does not use it either"),
    "gpu-monitor": Flag("none"),
    "gpu-poll-interval": _ONE,
}


def from_argv(argv: Sequence[str]) -> Foreign:
    """The plan of a command line after the script's name: Poisson arrivals into a queue of `concurrency`."""
    given = parse(TOOL, argv, FLAGS)
    if "endpoint" not in given:
        given.wrong("endpoint", "is missing")
    outdir = given.text("outdir", "./results")
    plan = {
        "target": {
            "url": given.text("endpoint"),
            "api": "template",
            "body": given.text("request-body-template", _TEMPLATE),
            "key_env": "LLM_API_KEY",
            "headers": given.pairs("header"),
            "timeout": {"request": tidy(given.number("timeout", 60.0) or 60.0)},
        },
        "workload": _workload(given),
        "load": load_of(given.number("rate", 10.0), given.count("concurrency", 8), 1000),
        "stop": {"duration": tidy(given.number("duration", 60.0) or 60.0)},
        "outputs": [{"format": "inferx", "path": outdir}],
        "observe": _observe(given),
    }
    given.settle()
    given.account.general.append(
        "throughput_latency.png: drawn if the extra 'charts' is installed; metrics.csv has its numbers"
    )
    whole = without_missing(plan)
    if "path" not in whole["workload"]:
        whole["workload"]["output_tokens"] = None  # the body sets the maximum length of answers
    return Foreign.of(given.account, whole)


def _observe(given: Given) -> ObserveDraft | None:
    """The GPU is polled every half second where that is requested."""
    every = tidy(given.number("gpu-poll-interval", 0.5) or 0.5)
    return {"gpu": "on", "interval": every} if given.on("gpu-monitor") else None


def _workload(given: Given) -> WorkloadDraft:
    if path := given.text("sample-prompts-file"):
        return {"type": "prompts", "path": path}
    least, most = given.count("min-tokens", 8) or 8, given.count("max-tokens", 128) or 128
    match given.text("prompt-dist") or "uniform":
        case "uniform":
            return {"input_tokens": f"{least}-{most}"}
        case "zipf":
            return {"input_tokens": {"type": "zipf", "alpha": 2, "min": least, "max": most}}
        case "choices":
            return {"input_tokens": _choices(given)}
    given.wrong("prompt-dist", "must be uniform, zipf or choices")
    return {}


def _choices(given: Given) -> list[int]:
    try:
        return [int(choice) for choice in (given.text("choices-tokens", "32,64,128") or "").split(",")]
    except ValueError:
        given.wrong("choices-tokens", "must be whole numbers such as 32,64,128")
        return []
