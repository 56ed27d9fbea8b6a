"""Every GPU of this machine, through NVML (extra `gpu`: nvidia-ml-py) or, if that is not available, through
`nvidia-smi`; those of AMD through `amd-smi`; and which of them a server will use."""

import json
import math
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.errors import InferometerError, MissingExtra
from inferometer.measure.telemetry import GPU
from inferometer.record.environment import GpuDevice, GpuDriver
from inferometer.record.record import Sample

# -- gpu -------------------------------------------------------------------------------------------------------------

Reading = Callable[[Any, Any], dict[str, float]]


def _memory(nvml: Any, handle: Any) -> dict[str, float]:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return {"memory_used_bytes": float(memory.used), "memory_total_bytes": float(memory.total)}


def _utilization(nvml: Any, handle: Any) -> dict[str, float]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {"utilization_share": rates.gpu / 100, "memory_utilization_share": rates.memory / 100}


def _power(nvml: Any, handle: Any) -> dict[str, float]:
    return {"power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1e3}


def _energy(nvml: Any, handle: Any) -> dict[str, float]:
    return {"energy_j": nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3}


def _sm_clock(nvml: Any, handle: Any) -> dict[str, float]:
    return {"sm_clock_hz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6}


def _memory_clock(nvml: Any, handle: Any) -> dict[str, float]:
    return {"memory_clock_hz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6}


def _temperature(nvml: Any, handle: Any) -> dict[str, float]:
    return {"temperature_c": float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))}


def _throttling(nvml: Any, handle: Any) -> dict[str, float]:
    """The raw bitmask; `measure.telemetry` has the names. The older function name works with every driver."""
    return {"throttle_reasons": float(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))}


READINGS: tuple[Reading, ...] = (
    *(_energy, _power, _memory, _utilization),
    *(_sm_clock, _memory_clock, _temperature, _throttling),
)


class NvmlSampler:
    """Samples of the chosen GPUs. A value that a GPU does not support is not queried again."""

    source = "gpu"

    def __init__(self, chosen: Sequence[int] | None = None, nvml: Any = None) -> None:
        self._nvml = nvml or started_nvml()
        self._handles = {index: handle for index, handle in handles(self._nvml) if chosen is None or index in chosen}
        if not self._handles:
            self.close()
            raise InferometerError("the driver shows no GPU" if chosen is None else f"no GPU has index {list(chosen)}")
        self._readings = {index: list(READINGS) for index in self._handles}

    def read(self) -> list[Sample]:
        return [sample for index in self._handles for sample in self._of(index)]

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def _of(self, index: int) -> list[Sample]:
        samples: list[Sample] = []
        for ask in list(self._readings[index]):
            at = time.monotonic_ns()
            try:
                values = ask(self._nvml, self._handles[index])
            except self._nvml.NVMLError as error:
                if _is_hopeless(self._nvml, error):
                    self._readings[index].remove(ask)
                continue
            samples += [Sample(f"{GPU}{index}", name, at, value) for name, value in values.items()]
        return samples


def _is_hopeless(nvml: Any, error: Any) -> bool:
    """Whether another query would give the same answer: not supported, not permitted, not in this driver."""
    lasting = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    return getattr(error, "value", None) in lasting


def started_nvml() -> Any:
    """The initialised module; an error states why it finds no GPU."""
    try:
        import pynvml
    except ImportError:
        raise MissingExtra("reading GPUs through NVML", "gpu") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise InferometerError(f"NVML: {str(error).lower()}") from None
    return pynvml


def handles(nvml: Any) -> list[tuple[int, Any]]:
    return [(index, nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(nvml.nvmlDeviceGetCount())]


def gpu_facts() -> GpuDriver | None:
    """The GPUs and their driver, for the environment of a run; None if NVML reports none."""
    try:
        nvml = started_nvml()
    except InferometerError:
        return None
    try:
        return GpuDriver(
            driver=_text(nvml.nvmlSystemGetDriverVersion()),
            cuda=_cuda(nvml),
            gpus=[_described(nvml, index, handle) for index, handle in handles(nvml)],
            by="NVML",
        )
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _described(nvml: Any, index: int, handle: Any) -> GpuDevice:
    return GpuDevice(
        index=index,
        name=_text(nvml.nvmlDeviceGetName(handle)),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        power_limit_w=_or_none(nvml, lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3),
        max_sm_clock_hz=_or_none(nvml, lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6),
    )


def _or_none(nvml: Any, ask: Callable[[], float]) -> float | None:
    try:
        return ask()
    except nvml.NVMLError:
        return None


def _cuda(nvml: Any) -> str | None:
    version = _or_none(nvml, nvml.nvmlSystemGetCudaDriverVersion)
    return None if version is None else f"{int(version) // 1000}.{int(version) % 1000 // 10}"


def _text(text: str | bytes) -> str:
    return text.decode() if isinstance(text, bytes) else text


# -- nvidia smi ------------------------------------------------------------------------------------------------------

COMMAND = "nvidia-smi"
FIRST_S = 10.0  # without persistence mode the first call wakes up the driver
_MIB, _MHZ, _PERCENT = 2.0**20, 1e6, 0.01
_FIELDS: dict[str, tuple[str, float]] = {  # queried field to our name, and the factor to our unit
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
    """A thread timestamps each line on arrival; `read` returns the samples since the last call."""

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
        with suppress(ValueError):  # closed by another thread
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
    """`[N/A]` and `[Not Supported]` count as missing; reasons are a hexadecimal mask."""
    try:
        return float(int(cell, 16)) if cell.startswith("0x") else float(cell)
    except ValueError:
        return None


def nvidia_smi_facts() -> GpuDriver | None:
    """The GPUs and their driver, for the environment of a run; None if there are none."""
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
    return GpuDriver(driver=rows[0][-1], gpus=[_smi_described(row) for row in rows], by=COMMAND)


def _smi_described(row: list[str]) -> GpuDevice:
    memory, limit, clock = (_number(cell) for cell in row[3:6])
    return GpuDevice(
        index=int(row[0]),
        name=row[1],
        uuid=row[2],
        memory_bytes=None if memory is None else int(memory * _MIB),
        power_limit_w=limit,
        max_sm_clock_hz=None if clock is None else clock * _MHZ,
    )


# -- amd smi ---------------------------------------------------------------------------------------------------------

AMD_COMMAND = "amd-smi"
_JOULES = 1.0
# Paths in `amd-smi metric --json`, of which the first existing one counts: our name, and the factor to our unit. Values
# are `{"value": 142, "unit": "W"}`, bare numbers, or "N/A". ROCm 6 prints a list of GPUs, ROCm 7 `{"gpu_data": [...]}`.
# Taken from recorded outputs and the tests of public tools that read it.
_AMD_FIELDS: dict[str, tuple[tuple[str, ...], float]] = {
    "energy_j": (("energy.total_energy_consumption",), _JOULES),
    "power_w": (("power.socket_power", "power.current_socket_power", "power.average_socket_power"), 1.0),
    "memory_used_bytes": (("mem_usage.used_vram",), _MIB),
    "memory_total_bytes": (("mem_usage.total_vram",), _MIB),
    "utilization_share": (("usage.gfx_activity",), _PERCENT),
    "memory_utilization_share": (("usage.umc_activity",), _PERCENT),
    "sm_clock_hz": (("clock.gfx_0.clk", "clock.gfx.clk"), _MHZ),
    "memory_clock_hz": (("clock.mem_0.clk", "clock.mem.clk"), _MHZ),
    "temperature_c": (("temperature.hotspot", "temperature.edge"), 1.0),
}


class AmdSmiSampler:
    """One call per reading, with the middle of the call as timestamp: `amd-smi` has no loop mode that prints complete
    documents."""

    source = "gpu"

    def __init__(self, chosen: Sequence[int] | None = None) -> None:
        if shutil.which(AMD_COMMAND) is None:
            raise InferometerError(f"no {AMD_COMMAND} on this machine")
        self._chosen = chosen
        shown = [int(gpu["gpu"]) for gpu in _amd_gpus("metric")]
        if chosen is not None and not set(shown) & set(chosen):
            raise InferometerError(f"no GPU has index {list(chosen)}")

    def read(self) -> list[Sample]:
        requested_at = time.monotonic_ns()
        gpus = _amd_gpus("metric")
        at = (requested_at + time.monotonic_ns()) // 2
        return [
            Sample(f"{GPU}{gpu['gpu']}", name, at, value)
            for gpu in gpus
            if self._chosen is None or int(gpu["gpu"]) in self._chosen
            for name, value in _amd_values(gpu)
        ]

    def close(self) -> None:
        pass


def _amd_gpus(command: str) -> list[dict[str, Any]]:
    """Its GPUs, a document each; warnings printed before them are skipped."""
    try:
        done = subprocess.run(
            [AMD_COMMAND, command, "--json"], capture_output=True, text=True, timeout=FIRST_S, check=True
        )
    except subprocess.CalledProcessError as error:
        raise InferometerError(f"{AMD_COMMAND} ended with exit status {error.returncode}") from None
    except subprocess.TimeoutExpired:
        raise InferometerError(f"{AMD_COMMAND} did not answer within {FIRST_S:g} s") from None
    lines = done.stdout.splitlines(keepends=True)
    start = next((at for at, line in enumerate(lines) if line.lstrip()[:1] in ("[", "{")), len(lines))
    try:
        output = json.loads("".join(lines[start:]))
    except ValueError:
        raise InferometerError(f"{AMD_COMMAND} {command} --json printed no JSON") from None
    listed = output.get("gpu_data") if isinstance(output, dict) else output
    gpus = [gpu for gpu in listed or [] if isinstance(gpu, dict) and isinstance(gpu.get("gpu"), int)]
    if not gpus:
        raise InferometerError(f"{AMD_COMMAND} shows no GPU")
    return gpus


def _amd_values(gpu: dict[str, Any]) -> list[tuple[str, float]]:
    values = []
    for name, (paths, scale) in _AMD_FIELDS.items():
        value = next((value for path in paths if (value := _amd_number(gpu, path)) is not None), None)
        if value is not None:
            values.append((name, value * scale))
    return values


def _amd_at(gpu: dict[str, Any], path: str) -> Any:
    value: Any = gpu
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _amd_number(gpu: dict[str, Any], path: str) -> float | None:
    field = _amd_at(gpu, path)
    value = field.get("value") if isinstance(field, dict) else field
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        return None
    return float(value)


def amd_smi_facts() -> GpuDriver | None:
    """The AMD GPUs and their driver, for the environment of a run; None if there are none."""
    if shutil.which(AMD_COMMAND) is None:
        return None
    try:
        gpus = _amd_gpus("static")
    except (InferometerError, OSError):
        return None
    driver = _amd_at(gpus[0], "driver.version")
    return GpuDriver(
        driver=driver if isinstance(driver, str) else None, gpus=[_amd_described(gpu) for gpu in gpus], by=AMD_COMMAND
    )


def _amd_described(gpu: dict[str, Any]) -> GpuDevice:
    memory = _amd_number(gpu, "vram.size")
    name, uuid = _amd_at(gpu, "asic.market_name"), gpu.get("uuid")
    return GpuDevice(
        index=gpu["gpu"],
        name=name if isinstance(name, str) else None,
        uuid=uuid if isinstance(uuid, str) else None,
        memory_bytes=None if memory is None else int(memory * _MIB),
        power_limit_w=_amd_number(gpu, "limit.max_power"),
    )


# -- visible ---------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    from inferometer.plan.server import Server

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_DEVICES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", "/dev/accel0")


def visible_gpus(server: "Server", environ: Mapping[str, str]) -> list[str] | None:
    """Numbers or names of GPUs, empty if none is used, None for all; `environ` is the server's."""
    if server.type in ("fleet", "ray-serve"):
        return [] if server.of is None else visible_gpus(server.of, environ)
    if server.type in ("simulator", "external"):
        return []
    if server.type == "container":
        return None if server.gpus == "all" else [] if server.gpus == "none" else _listed(server.gpus)
    shown = next((environ[name] for name in _VISIBLE if name in environ), None)
    if shown is not None:
        return _listed(shown)
    if server.type == "command" and not any(Path(device).exists() for device in _DEVICES):
        return []  # any program; an engine without GPUs uses all cores, and excludes similar ones
    return None


def _listed(shown: str) -> list[str]:
    return [name for part in shown.split(",") if (name := part.strip()) and name != "-1" and name != "NoDevFiles"]
