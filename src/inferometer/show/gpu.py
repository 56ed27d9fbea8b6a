"""What the GPUs did in the window, and the energy its tokens took."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from inferometer.show.console import facts_table, first_that_fits, plain_table
from inferometer.show.values import percent_text
from inferometer.vocabulary import number_text

_GIB = 2.0**30


def gpu_table(gpu: Mapping[str, Any], width: int) -> Table:
    """One line per GPU; what it did not tell is `-`."""
    columns = ("use", "memory", "power", "SM clock", "hottest", "energy", "throttled")
    fewer = (columns, columns[:-2], columns[:3])
    return first_that_fits((_gpus(gpu["gpus"], chosen) for chosen in fewer), width)


def _gpus(gpus: list[Mapping[str, Any]], columns: tuple[str, ...]) -> Table:
    table = plain_table("GPU", *columns, right=tuple(column for column in columns if column != "throttled"))
    for each in gpus:
        cells = _cells(each)
        table.add_row(str(each["index"]), *(cells[column] for column in columns))
    return table


def _cells(gpu: Mapping[str, Any]) -> dict[str, str]:
    used, total = _stat(gpu, "memory_used_bytes", "max"), gpu["memory_total_bytes"]
    of_total = f" of {number_text(total / _GIB)}" if total else ""
    throttled = ", ".join(f"{word} {percent_text(share)}" for word, share in gpu["throttled"].items())
    return {
        "use": percent_text(_stat(gpu, "utilization_share", "mean")),
        "memory": "-" if used is None else f"{number_text(used / _GIB)}{of_total} GiB",
        "power": _with_unit(_stat(gpu, "power_w", "mean"), "W"),
        "SM clock": _with_unit(_scaled(_stat(gpu, "sm_clock_hz", "mean"), 1e-6), "MHz"),
        "hottest": _with_unit(_stat(gpu, "temperature_c", "max"), "°C"),
        "energy": _with_unit(gpu["energy"]["j"], "J"),
        "throttled": throttled or "no",
    }


def energy_table(values: Mapping[str, Any], gpu: Mapping[str, Any]) -> Table | None:
    rows = list(_energy(values, gpu))
    if not rows:
        return None
    table = facts_table()
    for name, text in rows:
        table.add_row(name, text)
    return table


def _energy(values: Mapping[str, Any], gpu: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    token, request = values.get("energy_per_output_token"), values.get("energy_per_request")
    if token is not None:
        per_request = f", {_joules(request)} per request" if request is not None else ""
        yield "energy", f"{_joules(token)} per output token{per_request}, by {gpu['energy']['by']}"
    elif gpu["energy"]["j"] is None:
        yield "energy", f"not known: {gpu['energy']['why']}"


def _joules(value: Mapping[str, Any]) -> str:
    low, high = value["interval"]
    return f"{number_text(value['value'])} J ({number_text(low)}..{number_text(high)})"


def _stat(gpu: Mapping[str, Any], name: str, statistic: str) -> float | None:
    return gpu[name][statistic] if name in gpu else None


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def _with_unit(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{number_text(value)} {unit}"
