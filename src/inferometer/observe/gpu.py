"""Every GPU of this machine through NVML, the library of NVIDIA's driver (extra `gpu`: nvidia-ml-py)."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from inferometer.errors import InferometerError, MissingExtra
from inferometer.measure.telemetry import GPU
from inferometer.record.sample import Sample

Ask = Callable[[Any, Any], dict[str, float]]


def _memory(nvml: Any, handle: Any) -> dict[str, float]:
    found = nvml.nvmlDeviceGetMemoryInfo(handle)
    return {"memory_used_bytes": float(found.used), "memory_total_bytes": float(found.total)}


def _utilization(nvml: Any, handle: Any) -> dict[str, float]:
    found = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {"utilization_share": found.gpu / 100, "memory_utilization_share": found.memory / 100}


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
    """The bitmask as it is; `measure.telemetry` has the words. The older name works with every driver."""
    return {"throttle_reasons": float(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))}


ASKS: tuple[Ask, ...] = (
    *(_energy, _power, _memory, _utilization),
    *(_sm_clock, _memory_clock, _temperature, _throttling),
)


class NvmlSampler:
    """Samples of the chosen GPUs. What a GPU cannot tell is not asked of it again."""

    source = "gpu"

    def __init__(self, chosen: Sequence[int] | None = None, nvml: Any = None) -> None:
        self._nvml = nvml or started_nvml()
        self._handles = {index: handle for index, handle in handles(self._nvml) if chosen is None or index in chosen}
        if not self._handles:
            self.close()
            raise InferometerError("the driver shows no GPU" if chosen is None else f"no GPU has index {list(chosen)}")
        self._asks = {index: list(ASKS) for index in self._handles}

    def read(self) -> list[Sample]:
        return [sample for index in self._handles for sample in self._of(index)]

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def _of(self, index: int) -> list[Sample]:
        samples: list[Sample] = []
        for ask in list(self._asks[index]):
            at = time.monotonic_ns()
            try:
                values = ask(self._nvml, self._handles[index])
            except self._nvml.NVMLError as error:
                if _is_hopeless(self._nvml, error):
                    self._asks[index].remove(ask)
                continue
            samples += [Sample(f"{GPU}{index}", name, at, value) for name, value in values.items()]
        return samples


def _is_hopeless(nvml: Any, error: Any) -> bool:
    """Whether asking again would give the same answer: not supported, not permitted, not in this driver."""
    lasting = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    return getattr(error, "value", None) in lasting


def started_nvml() -> Any:
    """The module, ready to be asked; an error says why there is no GPU to be seen through it."""
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


def gpu_facts() -> dict[str, Any] | None:
    """The GPUs and their driver, for the environment of a run; None where NVML shows none."""
    try:
        nvml = started_nvml()
    except InferometerError:
        return None
    try:
        return {
            "driver": _text(nvml.nvmlSystemGetDriverVersion()),
            "cuda": _cuda(nvml),
            "gpus": [_described(nvml, index, handle) for index, handle in handles(nvml)],
            "by": "NVML",
        }
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _described(nvml: Any, index: int, handle: Any) -> dict[str, Any]:
    return {
        "index": index,
        "name": _text(nvml.nvmlDeviceGetName(handle)),
        "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
        "memory_bytes": int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        "power_limit_w": _or_none(nvml, lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3),
        "max_sm_clock_hz": _or_none(nvml, lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6),
    }


def _or_none(nvml: Any, ask: Callable[[], float]) -> float | None:
    try:
        return ask()
    except nvml.NVMLError:
        return None


def _cuda(nvml: Any) -> str | None:
    version = _or_none(nvml, nvml.nvmlSystemGetCudaDriverVersion)
    return None if version is None else f"{int(version) // 1000}.{int(version) % 1000 // 10}"


def _text(said: str | bytes) -> str:
    return said.decode() if isinstance(said, bytes) else said
