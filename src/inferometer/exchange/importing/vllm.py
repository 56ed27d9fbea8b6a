"""`vllm bench serve --save-result`, with `--save-detailed` every request of it; and `vllm bench latency`, `throughput`
and `startup`."""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from inferometer.errors import DataError
from inferometer.exchange.importing import fields
from inferometer.exchange.importing.fields import run_per_row
from inferometer.exchange.importing.requests import (
    NOT_CONNECTED,
    NOT_SCHEDULED,
    ImportedRequest,
    records_of,
    status_in,
)
from inferometer.exchange.importing.source import (
    ImportedPlan,
    ImportedRun,
    ImportFormat,
    ParsedFile,
    SiblingError,
    Source,
)
from inferometer.exchange.importing.units import (
    SECONDS,
    known_rates,
    measure,
    number,
    prefixed,
    speculation,
    statistics,
    value,
    whole,
    without_none,
)
from inferometer.plan.secrets import is_secret
from inferometer.record.environment import Environment
from inferometer.record.summary import MeasureSummary, Rate, Value

# -- vllm bench ------------------------------------------------------------------------------------------------------

TITLE = "vllm bench serve"
TIMES = {"ttft": "_ttft_ms", "tpot": "_tpot_ms", "itl": "_itl_ms", "e2e": "_e2el_ms"}
WHOLE = "_latency_ms"  # E2E in files before e2el existed
BARE = {"ttft": "_ttft", "tpot": "_tpot", "itl": "_itl", "e2e": "_e2el"}  # in seconds, in scripts derived from vLLM's
IN_SECONDS = "times without a unit in their names are read as seconds"
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
ARRAYS = ("ttfts", "itls", "input_lens", "output_lens")  # of `--save-detailed`; `start_times` since 2026
ENGINES = {"sgl": "sglang", "trt": "tensorrt-llm", "tensorrt": "tensorrt-llm", "mii": "deepspeed-mii"}
UNKNOWN_ARRIVALS = "when requests were sent is not in the file: their own times are used, rates are the file's"
EMPTY = "{} answers have no token: vLLM takes their TTFT as 0, which lowers its means; here they have none"
_KNOWN = {
    *("date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate"),
    *("burstiness", "max_concurrency", "duration", "completed", "failed", "total_input_tokens", "total_output_tokens"),
    *("request_throughput", "request_goodput", "request_goodput:", "output_throughput", "total_token_throughput"),
    *(
        "max_output_tokens_per_s",
        "max_concurrent_requests",
        "rtfx",
        "generated_texts",
        "errors",
        "start_times",
        *ARRAYS,
    ),
}
_SPECULATION = ("spec_decode_acceptance_rate", "spec_decode_acceptance_length")
_CHAT = ("openai-chat", "vllm-chat")


def is_serve(result: Mapping[str, Any]) -> bool:
    return {"completed", "duration", "request_throughput", "model_id"} <= result.keys()


def _fits(source: Source) -> bool:
    return bool(source.rows()) and is_serve(source.rows()[0].fields)


def _read(source: Source) -> ParsedFile:
    if source.name == "summary.json" and source.sibling("run=0.json") is not None:
        raise SiblingError(f"{source.name}: lists the results of the files run=N.json next to it", "import those")
    return run_per_row(source, lambda row: imported(row.fields, source.name))


def imported(result: Mapping[str, Any], name: str) -> ImportedRun:
    """One result."""
    answered = whole(result.get("completed"))
    detailed = all(isinstance(result.get(array), list) for array in ARRAYS)
    timed = isinstance(result.get("start_times"), list)
    empty = empty_answers(result) if detailed else 0
    notes = {
        UNKNOWN_ARRIVALS: detailed and not timed,
        EMPTY.format(empty): empty > 0,
        IN_SECONDS: bool(bare_times(result)),
    }
    return ImportedRun(
        started=fields.instant(result.get("date")),
        plan=_plan(result, name),
        environment=_environment(result),
        measures=measures_of(result, answered),
        rates=rates_of(result),
        values=_values(result),
        answered=answered,
        failed=failed_of(result),
        duration_s=number(result.get("duration")),
        definitions=DEFINITIONS,
        records=records_of(requests_of(result)) if detailed else None,
        underivable=(*NOT_SCHEDULED, *NOT_CONNECTED),
        arrivals_known=timed or not detailed,
        empty=empty,
        notes=tuple(note for note, holds in notes.items() if holds),
    )


def empty_answers(result: Mapping[str, Any]) -> int:
    """Requests without a token that vLLM before 2025 counts as completed (a model that ends at once). If the file
    counts fewer as completed, requests without a token failed."""
    errors = result.get("errors") or [""] * len(result["ttfts"])
    silent = sum(not ttft and not error for ttft, error in zip(result["ttfts"], errors, strict=False))
    answered = sum(bool(ttft) and not error for ttft, error in zip(result["ttfts"], errors, strict=False))
    return silent if (whole(result.get("completed")) or 0) >= answered + silent else 0


def failed_of(result: Mapping[str, Any]) -> int | None:
    """The number of failed requests; older files have only the numbers of sent and answered ones."""
    failed, sent, answered = (whole(result.get(name)) for name in ("failed", "num_prompts", "completed"))
    if failed is not None or sent is None or answered is None:
        return failed
    return sent - answered if sent >= answered else None


def measures_of(result: Mapping[str, Any], count: int | None) -> dict[str, MeasureSummary]:
    """All statistics named in the summary, in seconds; served lengths are means of the totals."""
    measures: dict[str, MeasureSummary] = {}
    for name, ending in TIMES.items():
        measures |= measure(name, prefixed(result, ending, SECONDS["ms"]), count)
    if "e2e" not in measures:
        measures |= measure("e2e", prefixed(result, WHOLE, SECONDS["ms"]), count)
    for name in bare_times(result):
        measures |= measure(name, prefixed(result, BARE[name]), count)
    for name, total in (("input_tokens", "total_input_tokens"), ("output_tokens", "total_output_tokens")):
        tokens = number(result.get(total))
        if tokens is not None and count:
            measures |= measure(name, {"mean": tokens / count}, count)
    return measures


def bare_times(result: Mapping[str, Any]) -> list[str]:
    """Measures whose names have no unit: seconds, if none is longer than the whole run."""
    bare = {name: prefixed(result, ending) for name, ending in BARE.items()}
    longest = max((value for statistics in bare.values() for value in statistics.values()), default=None)
    duration = number(result.get("duration"))
    if longest is not None and duration is not None and longest > duration:
        raise DataError(f"a time of {longest:g} without a unit is longer than the whole run of {duration:g} s")
    return [name for name, statistics in bare.items() if statistics]


def rates_of(result: Mapping[str, Any]) -> dict[str, Rate]:
    rates = {name: number(result.get(key)) for name, key in RATES.items()}
    duration, tokens = number(result.get("duration")), number(result.get("total_input_tokens"))
    if duration and tokens is not None:
        rates["input_rate"] = tokens / duration
    return known_rates(rates)


def _values(result: Mapping[str, Any]) -> dict[str, Value]:
    goodput = number(result.get("request_goodput", result.get("request_goodput:")))
    peak, busiest = number(result.get("max_output_tokens_per_s")), number(result.get("max_concurrent_requests"))
    factor = number(result.get("rtfx"))
    values = {
        "rtfx": value(factor or None, "", "higher", "Seconds of sound transcribed per second"),
        "request_goodput": value(goodput, "1/s", "higher", "Goodput, as reported"),
        "peak_output_rate": value(peak or None, "tokens/s", "higher", "Output tokens in the busiest second"),
        "peak_concurrency": value(busiest or None, "requests", None, "Requests in the busiest second"),
    }
    accepted, length = (number(result.get(f"spec_decode_acceptance_{name}")) for name in ("rate", "length"))
    values |= speculation(None if accepted is None else accepted / 100, length)  # vLLM reports percent
    return without_none(values)


def _plan(result: Mapping[str, Any], name: str) -> ImportedPlan:
    requests, answered = whole(result.get("num_prompts")), whole(result.get("completed"))
    requested = fields.lengths_in_name(name)
    served = [number(result.get(total)) for total in ("total_input_tokens", "total_output_tokens")]
    means = [tokens / answered if tokens and answered else None for tokens in served]
    backend = str(result.get("backend") or result.get("endpoint_type") or "")
    return fields.plan_of(
        name=result.get("label"),
        model=result.get("model_id"),
        api="chat" if backend in _CHAT else None,
        workload=fields.lengths(*(requested or means)),
        load=fields.load(
            result.get("request_rate"), result.get("max_concurrency"), requests or answered, result.get("burstiness")
        ),
        requests=requests,
    )


def _environment(result: Mapping[str, Any]) -> Environment:
    """The environment; `--metadata version=0.6.6 tp=1` is among the fields, as text."""
    more = {
        str(key): value
        for key, value in result.items()
        if key not in _KNOWN and _is_setting(str(key), value) and not is_secret(str(key))
    }
    version = more.pop("version", None) or more.pop("engine_version", None)
    gpu = more.pop("gpu", None) or more.pop("gpu_type", None) or more.pop("accelerator", None)
    commit = more.pop("commit", None)
    engine = str(result.get("backend") or result.get("endpoint_type") or "").partition("-")[0]
    engine = ENGINES.get(engine, engine)
    return fields.environment_of(
        engine=engine if engine not in ("", "openai") else None,
        version=version,
        hardware=gpu,
        commit=commit,
        metadata=more,
    )


def _is_setting(name: str, value: Any) -> bool:
    """Whether a text or number describes the run, such as a setting of a sweep, and is not a statistic."""
    if isinstance(value, str):
        return len(value) <= 200
    times = (*TIMES.values(), *BARE.values(), WHOLE)
    measured = name.endswith((*times, "_per_s", "_throughput", "_tokens")) or name in _SPECULATION
    return isinstance(value, int | float) and not measured


def requests_of(result: Mapping[str, Any]) -> Iterator[ImportedRequest]:
    """One request per entry of the arrays; arrays of different lengths are an error. Without send times, requests
    follow each other."""
    names = ("start_times", "ttfts", "itls", "input_lens", "output_lens")
    starts = result.get("start_times")
    starts = starts if isinstance(starts, list) else _one_by_one(result)
    columns = [starts, *(result[name] for name in names[1:])]
    columns.append(result.get("errors") or [""] * len(columns[0]))
    sizes = {name: len(column) for name, column in zip((*names, "errors"), columns, strict=True)}
    if len(set(sizes.values())) > 1:
        raise DataError(f"its arrays differ in length: {', '.join(f'{name} {size}' for name, size in sizes.items())}")
    completed = empty_answers(result) > 0
    for row in zip(*columns, strict=True):
        yield request(*row, completed=completed)


def _one_by_one(result: Mapping[str, Any]) -> list[float]:
    lasts = [float(ttft or 0.0) + sum(gaps or []) for ttft, gaps in zip(result["ttfts"], result["itls"], strict=False)]
    starts = [0.0, *itertools.accumulate(lasts)][: len(lasts)]
    return starts + [starts[-1] if starts else 0.0] * (len(result["ttfts"]) - len(starts))


def request(
    sent_s: float,
    ttft: float,
    gaps: list[float],
    inputs: int,
    outputs: int,
    error: str | None,
    *,
    completed: bool = False,
) -> ImportedRequest:
    """One request with vLLM's timestamps: the first chunk, and a gap for each further one. A failed request has none,
    and requested lengths. An empty answer has none either; `completed` distinguishes it from a failed one."""
    if completed and not error and not ttft:
        return ImportedRequest(sent_s, input_tokens=inputs, output_tokens=0, status=200)
    if error or not ttft:
        return ImportedRequest(sent_s, error=error or "no answer", status=status_in(error))
    reads = np.cumsum([sent_s + ttft, *(gaps or [])], dtype=np.float64)
    return ImportedRequest(sent_s, reads, input_tokens=inputs, output_tokens=outputs or None, status=200)


SERVE = ImportFormat(TITLE, _fits, _read)

# -- vllm offline ----------------------------------------------------------------------------------------------------

_BATCH = re.compile(r"(?:bs|batch_size|batch)[_-]?(\d+)", re.IGNORECASE)
OFFLINE_DEFINITIONS = {
    "latency": "one batch through the engine in its own process, from the call to the last token",
    "quantiles": "linear interpolation",
}


def _is_latency(source: Source) -> bool:
    return {"avg_latency", "latencies", "percentiles"} <= source.mapping().keys()


def _latency(source: Source) -> ParsedFile:
    result = source.mapping()
    size = _BATCH.search(source.name)
    batch = int(size[1]) if size else None
    measures = latency_measure(batch, _of_latencies(result), len(result["latencies"]))
    plan = latency_plan([batch] if batch else [], fields.lengths_in_name(source.name))
    note = () if batch else ("the batch size is not in the file; add it to the file name: latency_bs8.json",)
    return ParsedFile(
        [ImportedRun(kind="latency", plan=plan, measures=measures, definitions=OFFLINE_DEFINITIONS, notes=note)]
    )


def _of_latencies(result: Mapping[str, Any]) -> dict[str, float]:
    """The file's mean and percentiles, and the minimum and maximum of its latencies."""
    latencies = [number(latency) for latency in result["latencies"]]
    if None in latencies or not latencies:
        raise DataError("latencies must be numbers of seconds")
    values = np.array(latencies, np.float64)
    spread = {"std": float(values.std(ddof=1))} if len(values) > 1 else {}
    named = {f"p{name}": amount for name, amount in result["percentiles"].items()}
    mean = {"mean": result["avg_latency"], "min": float(values.min()), "max": float(values.max())}
    return statistics(mean | spread | named)


def latency_measure(
    batch: int | None, statistics: Mapping[str, float], count: int | None = None
) -> dict[str, MeasureSummary]:
    """A separate measure for each batch size."""
    name = "latency" if batch is None else f"latency_bs{batch}"
    title = "Batch latency" if batch is None else f"Latency, batch of {batch}"
    return measure(name, statistics, count, unit="s", direction="lower", title=title)


def latency_plan(batches: list[int], lengths: tuple[int, int] | None, model: Any = None) -> ImportedPlan:
    """The plan of a latency run."""
    plan: ImportedPlan = {}
    if model is not None:
        plan["model"] = model
    if batches:
        plan["batch_sizes"] = batches
    if lengths:
        plan["input_lens"], plan["output_lens"] = [lengths[0]], [lengths[1]]
    return plan


def _is_throughput(source: Source) -> bool:
    return {"elapsed_time", "num_requests", "requests_per_second", "tokens_per_second"} <= source.mapping().keys()


def _throughput(source: Source) -> ParsedFile:
    result = source.mapping()
    requests = whole(result["num_requests"])
    tokens = value(number(result.get("total_num_tokens")), "tokens", None, "Tokens in all")
    rates = {"request_rate": number(result["requests_per_second"]), "total_rate": number(result["tokens_per_second"])}
    run = ImportedRun(
        kind="throughput",
        plan={} if requests is None else {"num_prompts": requests},
        rates=known_rates(rates),
        values=without_none({"tokens": tokens}),
        answered=requests,
        duration_s=number(result["elapsed_time"]),
        definitions={"total_rate": "prompt and output tokens / time from the first prompt given to the last answer"},
    )
    return ParsedFile([run])


def _is_startup(source: Source) -> bool:
    return {"avg_cold_startup_time", "avg_warm_startup_time"} & source.mapping().keys() != set()


def _startup(source: Source) -> ParsedFile:
    result = source.mapping()
    measures: dict[str, MeasureSummary] = {}
    for when in ("cold", "warm"):
        for what, label in (("startup", "Startup"), ("compilation", "Compilation")):
            times = {"mean": result.get(f"avg_{when}_{what}_time")}
            times |= {f"p{name}": value for name, value in (result.get(f"{when}_{what}_percentiles") or {}).items()}
            title = f"{label}, {when}"
            measures |= measure(f"{what}_{when}", statistics(times), unit="s", direction="lower", title=title)
    return ParsedFile([ImportedRun(kind="startup", measures=measures)])


LATENCY = ImportFormat("vllm bench latency", _is_latency, _latency)
THROUGHPUT = ImportFormat("vllm bench throughput", _is_throughput, _throughput)
STARTUP = ImportFormat("vllm bench startup", _is_startup, _startup)
