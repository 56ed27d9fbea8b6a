"""The harnesses by name: those of others, and two that are ours under the names that llm-d-benchmark uses."""

from functools import cache

from inferometer.errors import PlanError
from inferometer.exchange.harness.harness import Harness
from inferometer.vocabulary import attribute_at

OURS = {
    "inferometer": "Inferometer itself",
    "nop": "no load: how long the server takes to start, as `inferometer startup` measures it",
}
_HERE = "inferometer.exchange.harness"
HARNESSES: dict[str, str] = {
    "inference-perf": f"{_HERE}.inference_perf:HARNESS",
    "guidellm": f"{_HERE}.guidellm:HARNESS",
    "vllm-benchmark": f"{_HERE}.vllm:HARNESS",
    "sglang": f"{_HERE}.sglang:HARNESS",
    "aiperf": f"{_HERE}.aiperf:HARNESS",
    "genai-bench": f"{_HERE}.genai_bench:HARNESS",
    "fmperf": f"{_HERE}.fmperf:HARNESS",
}
NAMES = ("inferometer", *HARNESSES, "nop")
_REFUSED = {
    "inferencemax": "drives a cluster of its own",
    "lm-eval": "scores answers instead of timing them",
    "eval-containers": "scores answers instead of timing them",
    "priority-mix": "its profile is a plan with traffic classes: inferometer run PROFILE",
}
_ALIASES = {"vllm": "vllm-benchmark", "vllm-bench": "vllm-benchmark", "sglang-bench": "sglang", "genai-perf": "aiperf"}


def checked_name(name: str) -> str:
    """A harness by its name; those of llm-d that are none here are refused with the reason."""
    if name in NAMES:
        return name
    if name in _REFUSED:
        raise PlanError(f"--harness {name}: is not run: {_REFUSED[name]}", f"there are {', '.join(NAMES)}")
    meant = f"; did you mean {_ALIASES[name]}?" if name in _ALIASES else ""
    raise PlanError(f"--harness {name}: there is no such harness{meant}", f"there are {', '.join(NAMES)}")


@cache
def harness_named(name: str) -> Harness:
    """One of the others; `inferometer` and `nop` have nothing to render."""
    checked_name(name)
    if name in OURS:
        raise PlanError(f"--harness {name}: is ours, and has no other tool's files")
    harness: Harness = attribute_at(HARNESSES[name])
    return harness
