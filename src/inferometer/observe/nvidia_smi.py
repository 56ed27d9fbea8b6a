"""Every GPU through `nvidia-smi`, where NVML cannot be called: one process that prints a line per GPU and interval."""

import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from inferometer.errors import InferometerError
from inferometer.measure.telemetry import GPU
from inferometer.record.sample import Sample

COMMAND = "nvidia-smi"
FIRST_S = 10.0  # without persistence mode the first call wakes the driver
_MIB, _MHZ, _PERCENT = 2.0**20, 1e6, 0.01
_FIELDS: dict[str, tuple[str, float]] = {  # what it is asked for: our name, and our unit in its units
    "memory.used": ("memory_used_bytes", _MIB),
    "memory.total": ("memory_total_bytes", _MIB),
    "utilization.gpu": ("utilization_share", _PERCENT),
    "utilization.memory": ("memory_utilization_share", _PERCENT),
    "power.draw": ("power_w", 1.0),
    "clocks.sm": ("sm_clock_hz", _MHZ),
    "clocks.mem": ("memory_clock_hz", _MHZ),
    "temperature.gpu": ("temperature_c", 1.0),
    "clocks_throttle_reasons.active": ("throttle_reasons", 1.0),
}


class NvidiaSmiSampler:
    """A thread stamps each line as it comes; `read` returns what came since it was last called."""

    source = "gpu"

    def __init__(self, interval_s: float, chosen: Sequence[int] | None = None) -> None:
        if shutil.which(COMMAND) is None:
            raise InferometerError(f"no {COMMAND} on this machine")
        self._chosen = chosen
        self._lines: deque[tuple[int, str]] = deque()
        self._some = threading.Event()
        self._process = subprocess.Popen(
            [*_query(["index", *_FIELDS]), f"--loop-ms={round(interval_s * 1e3)}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._stamp, daemon=True)
        self._reader.start()
        if not self._some.wait(FIRST_S) or not self._lines:
            self.close()
            raise InferometerError(f"{COMMAND} shows no GPU")

    def read(self) -> list[Sample]:
        samples = []
        while self._lines:
            samples += self._samples(*self._lines.popleft())
        if not samples and self._process.poll() is not None:
            raise InferometerError(f"{COMMAND} ended with exit status {self._process.returncode}")
        return samples

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(1.0)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _stamp(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError):  # closed under our hands
            for line in self._process.stdout:
                if line[:1].isdigit():
                    self._lines.append((time.monotonic_ns(), line))
                    self._some.set()
        self._some.set()

    def _samples(self, at: int, line: str) -> list[Sample]:
        index, *cells = (cell.strip() for cell in line.split(","))
        if self._chosen is not None and int(index) not in self._chosen:
            return []
        values = zip(_FIELDS.values(), map(_number, cells), strict=False)
        return [
            Sample(f"{GPU}{index}", name, at, value * scale) for (name, scale), value in values if value is not None
        ]


def _query(fields: Sequence[str]) -> list[str]:
    return [COMMAND, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]


def _number(cell: str) -> float | None:
    """`[N/A]` and `[Not Supported]` are missing; reasons come as a hexadecimal mask."""
    try:
        return float(int(cell, 16)) if cell.startswith("0x") else float(cell)
    except ValueError:
        return None


def gpu_facts() -> dict[str, Any] | None:
    """The GPUs and their driver, for the environment of a run; None where there are none."""
    if shutil.which(COMMAND) is None:
        return None
    fields = ["index", "name", "uuid", "memory.total", "power.limit", "clocks.max.sm", "driver_version"]
    try:
        done = subprocess.run(_query(fields), capture_output=True, text=True, timeout=FIRST_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    rows = [row for row in rows if len(row) == len(fields)]
    if not rows:
        return None
    return {"driver": rows[0][-1], "cuda": None, "gpus": [_described(row) for row in rows], "by": COMMAND}


def _described(row: list[str]) -> dict[str, Any]:
    memory, limit, clock = (_number(cell) for cell in row[3:6])
    return {
        "index": int(row[0]),
        "name": row[1],
        "uuid": row[2],
        "memory_bytes": None if memory is None else int(memory * _MIB),
        "power_limit_w": limit,
        "max_sm_clock_hz": None if clock is None else clock * _MHZ,
    }
