"""aiconfigurator's estimate of a measured run, for comparison with ours. It holds measured tables of engines and GPUs
and is asked for one operating point: lengths of prompt and answer, and how many requests are in flight. It has no
arrivals and no queue. Its command is run where it is installed; we depend on nothing of it."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from inferometer.record.columns import known
from inferometer.simulator.fitting.calibration import Observed

COMMAND = "aiconfigurator"
ROUNDS = 4  # until the number in flight and the latency that it gives agree
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
    """Why there is none, in a line."""


@dataclass(slots=True, frozen=True)
class Deployment:
    """A server as aiconfigurator names it."""

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
    """Of a measured run. `ask` takes prompt, answer and cached tokens, and the number in flight. An open loop has as
    many in flight as its latency gives at its rate (Little's law), and sends what arrives."""
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
    """Asks the command; equal questions once."""

    @cache
    def ask(prompt: int, answer: int, cached: int, batch: int) -> Estimates:
        return _asked(deployment, executable, prompt, answer, cached, batch)

    return ask


def _asked(deployment: Deployment, executable: str, prompt: int, answer: int, cached: int, batch: int) -> Estimates:
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
    """The numbers of what `aiconfigurator cli estimate` prints."""
    matches = {name: pattern.search(printed) for name, pattern in _PRINTED.items()}
    if any(match is None for match in matches.values()):
        lines = [line for line in f"{printed}\n{errors}".splitlines() if line.strip()]
        raise NoEstimate(f"it printed no estimate: {lines[-1].strip() if lines else 'nothing'}")
    return {name: float(match[1].replace(",", "")) for name, match in matches.items() if match}
