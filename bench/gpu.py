"""The observer's GPU samples while the GPUs of this machine multiply matrices, and the cost of a reading.

python bench/gpu.py [--seconds 20] [--interval 0.5] [--json]        (needs torch and a GPU; NVML or nvidia-smi)
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from _common import parser
from inferometer.measure.hardware import gpu_summary
from inferometer.observe.gpu import NvidiaSmiSampler, NvmlSampler, gpu_facts
from inferometer.observe.observer import ObserverJob, observing
from inferometer.record.log import read_log
from inferometer.record.record import Samples

IDLE_S = 3.0


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--interval", type=float, default=0.5)
    chosen = options.parse_args()
    result = {"facts": gpu_facts(), **watched(chosen.seconds, chosen.interval), "cost": cost()}
    result["nvidia_smi"] = by_nvidia_smi()
    print(json.dumps(result, indent=2))


def watched(seconds: float, interval_s: float) -> dict[str, Any]:
    """The summaries of an idle and of a busy period of the same samples."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log-observer.bin"
        with observing(ObserverJob(log=str(log), interval_s=interval_s, gpu=True, gpu_wanted=True), say):
            idle_at = time.monotonic_ns()
            time.sleep(IDLE_S)
            idle_end_at = time.monotonic_ns()
            multiplied = busy(seconds)
        read = read_log(log)
    samples = Samples.of(read.samples)
    start_at, end_at = multiplied.pop("span")
    return {
        "idle": gpu_summary(samples, idle_at, idle_end_at),
        "busy": gpu_summary(samples, start_at, end_at),
        "multiplied": multiplied,
        "notes": [note.facts for note in read.notes],
    }


def busy(seconds: float, size: int = 8192) -> dict[str, Any]:
    """Multiply matrices for a time; the returned span excludes the start, with memory allocation and kernel
    selection."""
    import torch

    left, right = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    torch.cuda.synchronize()
    torch.mm(left, right)
    torch.cuda.synchronize()
    start_at, times = time.monotonic_ns(), 0
    while time.monotonic_ns() - start_at < seconds * 1e9:
        for _ in range(20):
            torch.mm(left, right)
        torch.cuda.synchronize()
        times += 20
    end_at = time.monotonic_ns()
    flops = 2 * size**3 * times / ((end_at - start_at) / 1e9)
    return {"span": (start_at, end_at), "size": size, "times": times, "flops_per_s": flops}


def cost(times: int = 50) -> dict[str, float]:
    """Wall and CPU time of one reading of all GPUs through NVML, milliseconds."""
    sampler = NvmlSampler()
    sampler.read()
    walls, before = [], _cpu_s()
    for _ in range(times):
        began = time.perf_counter()
        sampler.read()
        walls.append(time.perf_counter() - began)
    cpu_s = _cpu_s() - before
    sampler.close()
    return {"wall_ms_median": median(walls) * 1e3, "wall_ms_max": max(walls) * 1e3, "cpu_ms": cpu_s / times * 1e3}


def by_nvidia_smi() -> dict[str, float] | str:
    """One reading by the fallback, to compare with NVML's."""
    try:
        sampler = NvidiaSmiSampler(0.5)
    except Exception as error:
        return str(error)
    samples = sampler.read()
    sampler.close()
    return {f"{sample.source} {sample.name}": sample.value for sample in samples}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
