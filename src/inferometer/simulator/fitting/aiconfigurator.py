"""aiconfigurator's estimate of a measured run, for comparison with ours. It has measured tables of engines and GPUs
and estimates one operating point: lengths of prompt and answer, and the number of requests in flight. It has no
arrivals and no queue. Its command is run if it is installed; it is not a dependency."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from inferometer.errors import PlanError
from inferometer.record.columns import known
from inferometer.simulator.fitting.calibration import Observed
from inferometer.simulator.settings import ACCELERATORS, BLOCK, MODELS, Accelerator, ModelShape, by_arithmetic

COMMAND = "aiconfigurator"
ROUNDS = 4  # until the number in flight agrees with the estimated latency
LIMIT_S = 120.0
SYSTEMS = {"gb200": "gb200", "b200": "b200_sxm", "h200": "h200_sxm", "h100": "h100_sxm", "a100": "a100_sxm"} | {
    name: name for name in ("l40s", "l4")
}
BACKENDS = {"vllm": "vllm", "sglang": "sglang", "tensorrt": "trtllm", "trt": "trtllm"}
_PRINTED = {
    "ttft": re.compile(r"^\s*TTFT:\s+([\d.,]+) ms", re.MULTILINE),
    "tpot": re.compile(r"^\s*TPOT:\s+([\d.,]+) ms", re.MULTILINE),
    "e2e": re.compile(r"^\s*Request Latency:\s+([\d.,]+) ms", re.MULTILINE),
    "output_rate": re.compile(r"^\s*tokens/s:\s+([\d.,]+)", re.MULTILINE),
}

Estimates = dict[str, float]  # milliseconds, and output tokens/s


class NoEstimate(Exception):
    """The reason why there is no estimate."""


@dataclass(slots=True, frozen=True)
class Deployment:
    """A server in aiconfigurator's terms."""

    model: str  # on Hugging Face, or a folder with its config.json
    system: str
    backend: str
    version: str | None
    gpus: int

    @classmethod
    def of(cls, model: str | None, engine: str | None, accelerators: tuple[str, ...]) -> "Deployment":
        gpu = accelerators[0].lower() if accelerators else ""
        system = next((system for name, system in SYSTEMS.items() if name in gpu), None)
        name, _, version = (engine or "").partition(" ")
        backend = next((backend for start, backend in BACKENDS.items() if name.lower().startswith(start)), None)
        if model is None or system is None or backend is None:
            about = f"model {model or 'not known'}, GPU {gpu or 'not known'}, engine {engine or 'not known'}"
            raise NoEstimate(f"it is not known for this server: {about}")
        return cls(model, system, backend, version.split(",")[0] or None, len(accelerators))


def command() -> str | None:
    """Its executable: on the PATH, or next to our Python."""
    return shutil.which(COMMAND) or shutil.which(COMMAND, path=str(Path(sys.executable).parent))


def estimates(run: Observed, ask: Callable[[int, int, int, int], Estimates]) -> Estimates:
    """Estimates for a measured run. `ask` takes prompt, answer and cached tokens, and the number in flight. For an open
    loop that number follows from rate and latency (Little's law), and its throughput is the arrival rate."""
    records = run.records
    good = records.outcome.mask("ok") & known(records.input_tokens) & known(records.output_tokens)
    if not good.any():
        raise NoEstimate(f"{run.name} has no answered request of known length")
    prompt, answer = (round(float(column[good].mean())) for column in (records.input_tokens, records.output_tokens))
    cached = round(float(np.maximum(records.cached_tokens[good], 0).mean()))
    if run.plan.load.concurrency is not None:
        return ask(prompt, answer, cached, run.plan.load.concurrency)
    scheduled_s = float(records.sent_at.max() - records.sent_at.min()) / 1e9
    if scheduled_s * 1e3 < 1:  # all at once
        return ask(prompt, answer, cached, len(records))
    rate, batch = len(records) / scheduled_s, 1
    for _ in range(ROUNDS):
        made = ask(prompt, answer, cached, batch)
        following = max(1, round(rate * made["e2e"] / 1e3))
        if following == batch:
            break
        batch = following
    return made | {"output_rate": min(made["output_rate"], rate * answer)}


def asking(deployment: Deployment, executable: str) -> Callable[[int, int, int, int], Estimates]:
    """A function that runs the command, with a cache of its results."""

    @cache
    def ask(prompt: int, answer: int, cached: int, batch: int) -> Estimates:
        return _estimate(deployment, executable, prompt, answer, cached, batch)

    return ask


def _estimate(deployment: Deployment, executable: str, prompt: int, answer: int, cached: int, batch: int) -> Estimates:
    words = [executable, "cli", "estimate", "--no-color", "--model-path", deployment.model]
    words += ["--system", deployment.system, "--backend", deployment.backend, "--tp-size", str(deployment.gpus)]
    words += ["--perf-db-version", deployment.version] if deployment.version else []
    words += ["--isl", str(prompt), "--osl", str(answer), "--batch-size", str(batch)]
    words += ["--prefix", str(cached)] if cached else []
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoEstimate(f"it did not run: {error}") from None
    return read_estimates(done.stdout, done.stderr)


def read_estimates(printed: str, errors: str = "") -> Estimates:
    """The numbers in the output of `aiconfigurator cli estimate`."""
    matches = {name: pattern.search(printed) for name, pattern in _PRINTED.items()}
    if any(match is None for match in matches.values()):
        lines = [line for line in f"{printed}\n{errors}".splitlines() if line.strip()]
        raise NoEstimate(f"it printed no estimate: {lines[-1].strip() if lines else 'nothing'}")
    return {name: float(match[1].replace(",", "")) for name, match in matches.items() if match}


# -- from the numbers of a GPU and a model -----------------------------------------------------------------------------

# The terms of a step from arithmetic alone: bytes of weights and of keys and values over the bandwidth of the memory,
# operations over the peak. They are first estimates for `calibration`, and the terms of an unmeasured server.
# The shapes and data sheets are in `settings`; the reached shares of the peaks are those of vLLM 0.24 on an H200.

READS = 0.70  # share of the bandwidth that a step of decodes reaches
COMPUTES = 0.66  # share of the dense peak that a long prefill reaches
EAGER_LAYER_S = 0.7e-3  # to launch the kernels of one layer without a graph
GRAPH_LAYER_S = 0.3e-3  # the same with a graph in pieces
ERRORS = (  # tests/golden/test_predict_golden.py checks them
    "on 14 runs of vLLM 0.24 on one H200 (8B and 32B) such models are off by up to 12% in mean TPOT and E2E and by up "
    "to 20% in mean TTFT; other GPUs and engines were not tried"
)


def accelerator_named(name: str) -> Accelerator:
    """The accelerator by `h200` or the driver's name."""
    plain = name.lower().replace("_", "-")
    for key, accelerator in ACCELERATORS.items():
        if plain == key or accelerator.name.lower() in plain:
            return accelerator
    raise PlanError(f"no accelerator {name!r} is known", f"there are {', '.join(ACCELERATORS)}")


def shape_named(name: str) -> ModelShape:
    if name.lower() not in MODELS:
        raise PlanError(f"no model shape {name!r} is known", f"there are {', '.join(MODELS)}")
    return MODELS[name.lower()]


def physical_terms(accelerator: Accelerator, shape: ModelShape) -> dict[str, float]:
    """The terms that follow from arithmetic, in seconds."""
    bandwidth, peak = accelerator.bandwidth_per_s * READS, accelerator.flops_per_s * COMPUTES
    return {
        "base": shape.weight_bytes / bandwidth,
        "context_token": shape.kv_bytes / bandwidth,
        "compute_token": 2 * shape.parameters / peak,
        "launch_graph": GRAPH_LAYER_S * shape.layers,
        "launch_eager": EAGER_LAYER_S * shape.layers,
    }


def attention_tokens(shape: ModelShape) -> float:
    """The context at which attention needs as many operations as the weights: 2 N = 4 * layers * hidden * context."""
    return 2 * shape.parameters / (4 * shape.layers * shape.hidden)


def physical_limits(accelerator: Accelerator, shape: ModelShape) -> dict[str, int]:
    """The engine's limits: the cache that fits the memory, and vLLM's defaults."""
    settings = by_arithmetic(shape, accelerator)
    return {
        "cache_tokens": settings["blocks"] * BLOCK,
        "max_batched_tokens": accelerator.max_batched_tokens,
        "max_sequences": accelerator.max_sequences,
    }
