"""What servers and GPUs reported during the load, whether it agrees with what we saw, and what could not be watched."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from inferometer.measure.hardware import BUSY, STOLEN
from inferometer.measure.telemetry import SERVER
from inferometer.show.console import facts_table, first_that_fits, plain_table
from inferometer.show.numbers import percent_text, value_text
from inferometer.vocabulary import duration_text, number_text

# -- server ----------------------------------------------------------------------------------------------------------

_MEANS = ("ttft", "queue_time", "prefill_time", "decode_time", "tpot", "itl", "e2e")
_COMPARED = {"requests": "requests", "prompt_tokens": "prompt tokens", "generation_tokens": "generated tokens"}
MOST_PROBLEMS = 5


def server_table(summary: Mapping[str, Any]) -> Table | None:
    """None where there is nothing to tell: an endpoint that nobody named may be missing without a word."""
    server, host = summary.get("server"), summary.get("host")
    rows = [*(_facts(server) if server else ()), *(_machine(host) if host else ()), *_problems(summary)]
    if not rows:
        return None
    table = facts_table()
    for name, text in rows:
        table.add_row(name, text)
    return table


def _facts(server: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if server["counters"] or server["gauges"]:
        yield "server", _who(server["sources"])
    if means := _means(server["histograms"]):
        yield "", f"means by its own clock: {means}"
    if state := _state(server):
        yield "", state
    if agreement := _agreement(server.get("conservation") or {}):
        yield "", agreement


def _machine(host: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Of the load generator, where it was short of cores."""
    busy, stolen = host["cpu_share"] or 0.0, host["steal_share"] or 0.0
    if busy > BUSY or stolen > STOLEN:
        taken = f", {stolen:.1%} taken away by the hypervisor" if stolen > STOLEN else ""
        yield "machine", f"its cores were {busy:.0%} busy{taken}"


def _problems(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What went wrong with what was asked for, or with what answered at least once."""
    sources = (summary.get("server") or {"sources": []})["sources"]
    answered = {source["url"] for source in sources if source["scrapes"]}
    found = (summary.get("observer") or {"problems": []})["problems"]
    for problem in [each for each in found if each["wanted"] or each["source"] in answered][:MOST_PROBLEMS]:
        times = f" ({problem['count']} times)" if problem["count"] > 1 else ""
        yield "observe", f"{problem['source']}: {problem['text']}{times}"


def _who(sources: list[Mapping[str, Any]]) -> str:
    answered = [source for source in sources if source["scrapes"]]
    engines = " and ".join(dict.fromkeys(source["engine"] for source in answered if source["engine"]))
    where = answered[0]["url"] if len(answered) == 1 else f"{len(answered)} endpoints"
    scrapes = sum(source["scrapes"] for source in answered)
    return f"{where}, metrics of {engines or 'an engine'}, read {scrapes:,} times"


def _means(histograms: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{SERVER[name].title} {duration_text(histograms[name]['mean'])}" for name in _MEANS if name in histograms
    )


def _state(server: Mapping[str, Any]) -> str:
    gauges, counters = server["gauges"], server["counters"]
    parts = [
        f"{number_text(gauges[name]['mean'])} {SERVER[name].title} (most {number_text(gauges[name]['max'])})"
        for name in ("running", "queued")
        if name in gauges
    ]
    if "kv_usage" in gauges:
        parts.append(f"KV cache at most {percent_text(gauges['kv_usage']['max'])} full")
    if server["prefix_hit_rate"] is not None:
        parts.append(f"prefix hits {percent_text(round(server['prefix_hit_rate'], 4))}")
    if counters.get("preemptions", {}).get("grown"):
        parts.append(f"{number_text(counters['preemptions']['grown'])} preemptions")
    return ", ".join(parts)


def _agreement(found: Mapping[str, Any]) -> str:
    """`agrees with us on 400 requests, 102,400 prompt tokens; the wire's share of TTFT is 0.8 ms`."""
    said = {name: found[name] for name in _COMPARED if (found.get(name) or {}).get("agree") is not None}
    agreed = ", ".join(f"{each['server']:,.0f} {_COMPARED[name]}" for name, each in said.items() if each["agree"])
    parts = [f"agrees with us on {agreed}"] if agreed else []
    parts += [
        f"counted {value_text(each['server'], '')} {_COMPARED[name]}, we {value_text(each['client'], '')}"
        for name, each in said.items()
        if not each["agree"]
    ]
    if found.get("ttft"):
        parts.append(f"the wire's share of TTFT is {duration_text(found['ttft']['wire'])}")
    return "; ".join(parts)


# -- gpu -------------------------------------------------------------------------------------------------------------

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
