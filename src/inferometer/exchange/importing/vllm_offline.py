"""`vllm bench latency`, `throughput` and `startup`: what they write with `--output-json`. All times are seconds.

Fields: vllm-project/vllm, vllm/benchmarks/{latency,throughput,startup}.py. The batch size stands in the file's name
only, where people write it there: `latency_bs8.json`.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from inferometer.errors import DataError
from inferometer.exchange.importing import sayings
from inferometer.exchange.importing.found import Format, Found, ImportedRun, Source
from inferometer.exchange.importing.units import measure, number, statistics, told, value, whole

_BATCH = re.compile(r"(?:bs|batch_size|batch)[_-]?(\d+)", re.IGNORECASE)
DEFINITIONS = {
    "latency": "one batch through the engine in its own process, from the call to the last token",
    "quantiles": "linear interpolation",
}


def _is_latency(source: Source) -> bool:
    return {"avg_latency", "latencies", "percentiles"} <= source.mapping().keys()


def _latency(source: Source) -> Found:
    said = source.mapping()
    size = _BATCH.search(source.name)
    batch = int(size[1]) if size else None
    found = latency_measure(batch, _of_latencies(said), len(said["latencies"]))
    plan = latency_plan([batch] if batch else [], sayings.lengths_in_name(source.name))
    note = () if batch else ("the batch size is not in the file; write it into its name: latency_bs8.json",)
    return Found([ImportedRun(kind="latency", plan=plan, measures=found, definitions=DEFINITIONS, notes=note)])


def _of_latencies(said: Mapping[str, Any]) -> dict[str, float]:
    """The file's mean and percentiles, and the extremes of the latencies it lists."""
    each = [number(latency) for latency in said["latencies"]]
    if None in each or not each:
        raise DataError("latencies must be numbers of seconds")
    values = np.array(each, np.float64)
    spread = {"std": float(values.std(ddof=1))} if len(values) > 1 else {}
    named = {f"p{name}": amount for name, amount in said["percentiles"].items()}
    mean = {"mean": said["avg_latency"], "min": float(values.min()), "max": float(values.max())}
    return statistics(mean | spread | named)


def latency_measure(batch: int | None, found: Mapping[str, float], count: int | None = None) -> dict[str, Any]:
    """A measure of its own for each batch size."""
    name = "latency" if batch is None else f"latency_bs{batch}"
    title = "Latency of a batch" if batch is None else f"Latency, batch of {batch}"
    return measure(name, found, count, unit="s", direction="lower", title=title)


def latency_plan(batches: list[int], lengths: tuple[int, int] | None, model: Any = None) -> dict[str, Any]:
    """As the plan of a latency run has it."""
    lens = {"input_lens": [lengths[0]], "output_lens": [lengths[1]]} if lengths else {}
    return told({"model": model}) | ({"batch_sizes": batches} if batches else {}) | lens


def _is_throughput(source: Source) -> bool:
    return {"elapsed_time", "num_requests", "requests_per_second", "tokens_per_second"} <= source.mapping().keys()


def _throughput(source: Source) -> Found:
    said = source.mapping()
    requests = whole(said["num_requests"])
    tokens = value(number(said.get("total_num_tokens")), "tokens", None, "Tokens in all")
    rates = {"request_rate": number(said["requests_per_second"]), "total_rate": number(said["tokens_per_second"])}
    run = ImportedRun(
        kind="throughput",
        plan=told({"num_prompts": requests}),
        rates=told(rates),
        values=told({"tokens": tokens}),
        answered=requests,
        duration_s=number(said["elapsed_time"]),
        definitions={"total_rate": "prompt and output tokens / time from the first prompt given to the last answer"},
    )
    return Found([run])


def _is_startup(source: Source) -> bool:
    return {"avg_cold_startup_time", "avg_warm_startup_time"} & source.mapping().keys() != set()


def _startup(source: Source) -> Found:
    said = source.mapping()
    found: dict[str, Any] = {}
    for when in ("cold", "warm"):
        for what, word in (("startup", "Startup"), ("compilation", "Compilation")):
            times = {"mean": said.get(f"avg_{when}_{what}_time")}
            times |= {f"p{name}": each for name, each in (said.get(f"{when}_{what}_percentiles") or {}).items()}
            title = f"{word}, {when}"
            found |= measure(f"{what}_{when}", statistics(times), unit="s", direction="lower", title=title)
    return Found([ImportedRun(kind="startup", measures=found)])


LATENCY = Format("vllm bench latency", _is_latency, _latency)
THROUGHPUT = Format("vllm bench throughput", _is_throughput, _throughput)
STARTUP = Format("vllm bench startup", _is_startup, _startup)
