"""`sglang.bench_serving --output-file`: one JSON object a line, appended by each run; its relatives write the same.

Fields: sgl-project/sglang, python/sglang/bench_serving.py. Times of the summary are milliseconds, those of
`--output-details` seconds. Where the server volunteers no usage the output length is the one that was *asked*; what
really came is in `total_output_tokens_retokenized`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from inferometer.exchange.importing import fields
from inferometer.exchange.importing.fields import run_per_row
from inferometer.exchange.importing.requests import NOT_CONNECTED, NOT_SCHEDULED, records_of
from inferometer.exchange.importing.source import Format, ImportedPlan, ImportedRun, ParsedFile, Source
from inferometer.exchange.importing.units import (
    SECONDS,
    known_rates,
    measure,
    number,
    prefixed,
    value,
    whole,
    without_none,
)
from inferometer.exchange.importing.vllm import ARRAYS, UNKNOWN_ARRIVALS, failed_of, requests_of
from inferometer.record.summary import MeasureSummary, Rate, Value

TIMES = {"ttft": "_ttft_ms", "tpot": "_tpot_ms", "itl": "_itl_ms", "e2e": "_e2e_latency_ms"}
DEFINITIONS = {
    "ttft": "from just before the request is posted to the first non-empty content or reasoning",
    "tpot": "(E2E - TTFT) / (n - 1), n as asked where the server sends no usage",
    "itl": "gaps between chunks, however many tokens each brings",
    "e2e": "to the last line, [DONE] included",
    "output_rate": "tokens / time from the first send to the last answer, the drain included",
    "concurrency": "sum of E2E / duration",
    "quantiles": "linear interpolation, failed requests left out",
}
LENGTH_TOLERANCE = 0.01  # asked against counted: more, and numbers per token are not of what came


def is_serving(result: Mapping[str, Any]) -> bool:
    timed = {"mean_ttft_ms", "median_ttft_ms"} & result.keys()  # in 2024 it wrote medians only
    return {"completed", "duration", "output_throughput"} <= result.keys() and bool(timed) and "model_id" not in result


def _fits(source: Source) -> bool:
    return source.form != "csv" and bool(source.rows()) and is_serving(source.rows()[0].fields)


def _read(source: Source) -> ParsedFile:
    return run_per_row(source, lambda row: imported(row.fields))


def imported(result: Mapping[str, Any]) -> ImportedRun:
    answered = whole(result.get("completed"))
    detailed = all(isinstance(result.get(array), list) for array in ARRAYS)
    timed = isinstance(result.get("start_times"), list)
    return ImportedRun(
        started=fields.instant(result.get("date")),
        plan=_plan(result),
        environment=fields.environment_of(engine=result.get("backend"), stack=_stack(result)),
        measures=measures_of(result, answered),
        rates=rates_of(result),
        values=_values(result),
        concurrency=number(result.get("concurrency")),
        answered=answered,
        duration_s=number(result.get("duration")),
        definitions=DEFINITIONS,
        records=records_of(requests_of(result)) if detailed else None,
        failed=failed_of(result),
        underivable=(*NOT_SCHEDULED, *NOT_CONNECTED),
        arrivals_known=timed or not detailed,
        doubts=tuple(_length_doubts(result)),
        notes=() if timed or not detailed else (UNKNOWN_ARRIVALS,),
    )


def measures_of(result: Mapping[str, Any], count: int | None) -> dict[str, MeasureSummary]:
    measures: dict[str, MeasureSummary] = {}
    for name, ending in TIMES.items():
        measures |= measure(name, prefixed(result, ending, SECONDS["ms"]), count)
    for name, total in (("input_tokens", number(result.get("total_input_tokens"))), ("output_tokens", _came(result))):
        if total is not None and count:
            measures |= measure(name, {"mean": total / count}, count)
    return measures


def _came(result: Mapping[str, Any]) -> float | None:
    """Output tokens that came: counted again where that was done, never those that were asked."""
    again = number(result.get("total_output_tokens_retokenized"))
    return again if again else number(result.get("total_output_tokens"))


def rates_of(result: Mapping[str, Any]) -> dict[str, Rate]:
    """Rates of tokens that came: the tool's own output rate is of those that were asked."""
    duration, came = number(result.get("duration")), _came(result)
    output = came / duration if came is not None and duration else number(result.get("output_throughput"))
    inputs = number(result.get("input_throughput"))
    total = inputs + output if inputs is not None and output is not None else None
    rates = {"request_rate": number(result.get("request_throughput")), "input_rate": inputs, "output_rate": output}
    return known_rates(rates | {"total_rate": total})


def _length_doubts(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    requested, came = number(result.get("total_output_tokens")), _came(result)
    if requested and came is not None and abs(came / requested - 1) > LENGTH_TOLERANCE:
        text = f"Its TPOT counts {requested:,.0f} output tokens, but {came:,.0f} were counted in the answers"
        yield "asked_lengths", f"{text}: the tool uses the requested length if the server reports none."


def _values(result: Mapping[str, Any]) -> dict[str, Value]:
    accepted = number(result.get("accept_length"))
    return without_none({"accept_length": value(accepted, "tokens", "higher", "Speculated tokens accepted per step")})


def _plan(result: Mapping[str, Any]) -> ImportedPlan:
    name = result.get("dataset_name")
    drawn = name in fields.MADE_UP
    lengths = fields.lengths(result.get("random_input_len"), result.get("random_output_len")) if drawn else None
    requests = whole(result.get("num_prompts"))
    return fields.plan_of(
        model=result.get("model") or (result.get("server_info") or {}).get("model_path"),
        workload=lengths or fields.dataset(name),
        load=fields.load(
            result.get("request_rate"), result.get("max_concurrency"), requests or whole(result["completed"])
        ),
        requests=requests,
    )


def _stack(result: Mapping[str, Any]) -> dict[str, Any] | None:
    ratio = number(result.get("random_range_ratio"))
    return {"random_range_ratio": ratio} if ratio is not None and result.get("dataset_name") in fields.MADE_UP else None


SERVING = Format("sglang bench_serving", _fits, _read)
