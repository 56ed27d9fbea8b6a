"""`vllm bench serve --save-result`, with `--save-detailed` every request of it; and `vllm bench latency`, `throughput`
and `startup`."""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from inferometer.errors import DataError
from inferometer.exchange.importing import fields as sayings
from inferometer.exchange.importing.fields import each_row
from inferometer.exchange.importing.requests import (
    NOT_CONNECTED,
    NOT_SCHEDULED,
    Told,
    records_of,
    status_in,
)
from inferometer.exchange.importing.source import Format, Found, ImportedRun, Source
from inferometer.exchange.importing.units import (
    SECONDS,
    known_rates,
    measure,
    number,
    prefixed,
    statistics,
    told,
    value,
    whole,
)
from inferometer.plan.secrets import is_secret
from inferometer.record.summary import MeasureSummary, Rate, Value

# -- vllm bench ------------------------------------------------------------------------------------------------------

TITLE = "vllm bench serve"
TIMES = {"ttft": "_ttft_ms", "tpot": "_tpot_ms", "itl": "_itl_ms", "e2e": "_e2el_ms"}
RATES = {
    "request_rate": "request_throughput",
    "output_rate": "output_throughput",
    "total_rate": "total_token_throughput",
}
DEFINITIONS = {
    "ttft": "from just before the request is posted to the first chunk with choices, even an empty one",
    "tpot": "(E2E - TTFT) / (n - 1), 0 for answers of one token",
    "itl": "gaps between messages, however many tokens each brings",
    "e2e": "to the last chunk with choices; in chat to the last chunk, that with the usage included",
    "output_rate": "tokens of all answers / time from the first send to the last answer, the drain included",
    "quantiles": "linear interpolation, failed requests left out",
}
ARRAYS = ("ttfts", "itls", "start_times", "input_lens", "output_lens")
_KNOWN = {
    *("date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate"),
    *("burstiness", "max_concurrency", "duration", "completed", "failed", "total_input_tokens", "total_output_tokens"),
    *("request_throughput", "request_goodput", "request_goodput:", "output_throughput", "total_token_throughput"),
    *("max_output_tokens_per_s", "max_concurrent_requests", "rtfx", "generated_texts", "errors", *ARRAYS),
}
_CHAT = ("openai-chat", "vllm-chat")


def is_serve(said: Mapping[str, Any]) -> bool:
    return {"completed", "duration", "request_throughput", "model_id"} <= said.keys()


def _fits(source: Source) -> bool:
    return bool(source.rows()) and is_serve(source.rows()[0].said)


def _read(source: Source) -> Found:
    return each_row(source, lambda row: imported(row.said, source.name))


def imported(said: Mapping[str, Any], name: str) -> ImportedRun:
    """One result."""
    answered, failed = whole(said.get("completed")), whole(said.get("failed"))
    detailed = all(isinstance(said.get(array), list) for array in ARRAYS)
    return ImportedRun(
        started=sayings.instant(said.get("date")),
        plan=_plan(said, name),
        environment=_environment(said),
        measures=measures_of(said, answered),
        rates=rates_of(said),
        values=_values(said),
        answered=answered,
        failed=failed,
        duration_s=number(said.get("duration")),
        definitions=DEFINITIONS,
        records=records_of(requests_of(said)) if detailed else None,
        underivable=(*NOT_SCHEDULED, *NOT_CONNECTED),
    )


def measures_of(said: Mapping[str, Any], count: int | None) -> dict[str, MeasureSummary]:
    """All statistics that the names of the summary spell, in seconds; served lengths as means of the totals."""
    found: dict[str, MeasureSummary] = {}
    for name, ending in TIMES.items():
        found |= measure(name, prefixed(said, ending, SECONDS["ms"]), count)
    for name, total in (("input_tokens", "total_input_tokens"), ("output_tokens", "total_output_tokens")):
        tokens = number(said.get(total))
        if tokens is not None and count:
            found |= measure(name, {"mean": tokens / count}, count)
    return found


def rates_of(said: Mapping[str, Any]) -> dict[str, Rate]:
    rates = {name: number(said.get(key)) for name, key in RATES.items()}
    duration, tokens = number(said.get("duration")), number(said.get("total_input_tokens"))
    if duration and tokens is not None:
        rates["input_rate"] = tokens / duration
    return known_rates(rates)


def _values(said: Mapping[str, Any]) -> dict[str, Value]:
    goodput = number(said.get("request_goodput", said.get("request_goodput:")))
    peak, busiest = number(said.get("max_output_tokens_per_s")), number(said.get("max_concurrent_requests"))
    found = {
        "request_goodput": value(goodput, "1/s", "higher", "Goodput, as reported"),
        "peak_output_rate": value(peak or None, "tokens/s", "higher", "Output tokens in the busiest second"),
        "peak_concurrency": value(busiest or None, "requests", None, "Requests in the busiest second"),
    }
    accepted = number(said.get("spec_decode_acceptance_rate"))
    if accepted is not None:  # vLLM reports percent
        found["spec_acceptance"] = value(accepted / 100, "share", "higher", "Speculated tokens accepted")
    return told(found)


def _plan(said: Mapping[str, Any], name: str) -> dict[str, Any]:
    requests, answered = whole(said.get("num_prompts")), whole(said.get("completed"))
    asked = sayings.lengths_in_name(name)
    served = [number(said.get(total)) for total in ("total_input_tokens", "total_output_tokens")]
    means = [each / answered if each and answered else None for each in served]
    backend = str(said.get("backend") or said.get("endpoint_type") or "")
    return sayings.plan_of(
        name=said.get("label"),
        model=said.get("model_id"),
        api="chat" if backend in _CHAT else None,
        workload=sayings.lengths(*(asked or means)),
        load=sayings.load(
            said.get("request_rate"), said.get("max_concurrency"), requests or answered, said.get("burstiness")
        ),
        requests=requests,
    )


def _environment(said: Mapping[str, Any]) -> dict[str, Any]:
    """`--metadata version=0.6.6 tp=1` stands between the fields, as text."""
    more = {
        str(key): each
        for key, each in said.items()
        if key not in _KNOWN and isinstance(each, str) and len(each) <= 200 and not is_secret(str(key))
    }
    version = more.pop("version", None) or more.pop("engine_version", None)
    gpu = more.pop("gpu", None) or more.pop("gpu_type", None) or more.pop("accelerator", None)
    commit = more.pop("commit", None)
    engine = str(said.get("backend") or said.get("endpoint_type") or "").partition("-")[0]
    return sayings.environment_of(
        engine=engine if engine not in ("", "openai") else None, version=version, hardware=gpu, commit=commit, said=more
    )


def requests_of(said: Mapping[str, Any]) -> Iterator[Told]:
    """One of each entry of the arrays; arrays that differ in length are about different requests."""
    names = ("start_times", "ttfts", "itls", "input_lens", "output_lens")
    columns = [said[name] for name in names]
    columns.append(said.get("errors") or [""] * len(columns[0]))
    sizes = {name: len(column) for name, column in zip((*names, "errors"), columns, strict=True)}
    if len(set(sizes.values())) > 1:
        raise DataError(f"its arrays differ in length: {', '.join(f'{name} {size}' for name, size in sizes.items())}")
    for row in zip(*columns, strict=True):
        yield request(*row)


def request(sent_s: float, ttft: float, gaps: list[float], inputs: int, outputs: int, error: str | None) -> Told:
    """The instants that vLLM took: the first chunk, and a gap for each that followed. A failed one has none, and its
    lengths are what was asked of it."""
    if error or not ttft:
        return Told(sent_s, error=error or "no answer", status=status_in(error))
    reads = list(itertools.accumulate(gaps or [], initial=sent_s + ttft))
    return Told(sent_s, reads, input_tokens=inputs, output_tokens=outputs or None, status=200)


SERVE = Format(TITLE, _fits, _read)

# -- vllm offline ----------------------------------------------------------------------------------------------------

_BATCH = re.compile(r"(?:bs|batch_size|batch)[_-]?(\d+)", re.IGNORECASE)
OFFLINE_DEFINITIONS = {
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
    return Found([ImportedRun(kind="latency", plan=plan, measures=found, definitions=OFFLINE_DEFINITIONS, notes=note)])


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


def latency_measure(
    batch: int | None, found: Mapping[str, float], count: int | None = None
) -> dict[str, MeasureSummary]:
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
        rates=known_rates(rates),
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
    found: dict[str, MeasureSummary] = {}
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
